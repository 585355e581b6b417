#include <ampscope/sim/program/graph.h>

namespace amp::op {

namespace {

std::string_view row_of(ActivationKind kind) {
    return kind == ActivationKind::gelu_tanh ? "gelu" : activation_names[static_cast<std::size_t>(kind)];
}

} // namespace

TensorId activation(Graph& g, ActivationKind kind, TensorId in) {
    const Graph::Plan plan = g.plan(row_of(kind), {in});
    const TensorId out = g.result(row_of(kind), g[in].shape, plan.output);
    g.append(Activation{kind, plan.operands[0], out}, plan.rule);
    return out;
}

void backward(Graph& g, const Activation& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    const bool by_result = op.kind == ActivationKind::tanh || op.kind == ActivationKind::sigmoid;
    g.append(ActivationBackward{op.kind, by_result ? op.out : op.in, g.gradient(op.out), to}, "formats of forward");
    g.contribute(op.in, to);
}

} // namespace amp::op
