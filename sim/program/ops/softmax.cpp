#include <ampscope/sim/program/graph.h>

namespace amp::op {

TensorId softmax(Graph& g, TensorId in, bool causal) {
    const Shape x = g[in].shape;
    if (x.empty() || (causal && (x.size() < 2 || x[x.size() - 1] != x[x.size() - 2])))
        shape_error(Softmax::name, causal ? "... x T x T" : "at least one axis", g, {in});
    const Graph::Plan plan = g.plan(Softmax::name, {in});
    const TensorId out = g.result(Softmax::name, x, plan.output);
    g.append(Softmax{plan.operands[0], out, causal}, plan.rule);
    return out;
}

void backward(Graph& g, const Softmax& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    g.append(SoftmaxBackward{op.out, g.gradient(op.out), to, op.causal}, "formats of forward");
    g.contribute(op.in, to);
}

} // namespace amp::op
