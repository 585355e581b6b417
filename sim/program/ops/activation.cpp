#include <ampscope/sim/program/graph.h>

namespace amp::op {

TensorId activation(Graph& g, ActivationKind kind, TensorId in) {
    const Graph::Plan plan = g.plan(facts_of(kind).autocast, {in});
    const TensorId out = g.result(facts_of(kind).autocast, g[in].shape, plan.output);
    g.append(Activation{kind, plan.operands[0], out}, plan.rule);
    return out;
}

void backward(Graph& g, const Activation& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    const TensorId saved = facts_of(op.kind).by_result ? op.out : op.in;
    g.append(ActivationBackward{op.kind, saved, g.gradient(op.out), to}, "formats of forward");
    g.contribute(op.in, to);
}

} // namespace amp::op
