#include <ampscope/sim/program/graph.h>

namespace amp::op {

namespace {

TensorId reduce(Graph& g, ReduceKind kind, TensorId in) {
    const std::string_view name = kind == ReduceKind::sum ? "sum" : "mean";
    const Graph::Plan plan = g.plan(name, {in});
    const TensorId out = g.result(name, {}, plan.output);
    g.append(Reduce{.kind = kind, .in = plan.operands[0], .out = out, .accumulate = g.arithmetic().sums()}, plan.rule);
    return out;
}

} // namespace

TensorId sum(Graph& g, TensorId in) { return reduce(g, ReduceKind::sum, in); }
TensorId mean(Graph& g, TensorId in) { return reduce(g, ReduceKind::mean, in); }

void backward(Graph& g, const Reduce& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    const double rows = static_cast<double>(g[op.in].count()) / static_cast<double>(g[op.out].count());
    g.append(ReduceBackward{g.gradient(op.out), to, op.kind == ReduceKind::mean ? 1 / rows : 1}, "formats of forward");
    g.contribute(op.in, to);
}

} // namespace amp::op
