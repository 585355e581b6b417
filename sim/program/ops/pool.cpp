#include <ampscope/sim/program/graph.h>

namespace amp::op {

TensorId pool(Graph& g, PoolKind kind, TensorId in, std::int64_t size) {
    const Shape x = g[in].shape;
    if (x.size() != 4 || size < 1 || x[1] < size || x[2] < size)
        shape_error("pool2d", "N x H x W x C, not smaller than the window", g, {in});
    const std::string_view name = kind == PoolKind::max ? "max_pool2d" : "avg_pool2d";
    const Graph::Plan plan = g.plan(name, {in});
    const TensorId out = g.result(name, {x[0], x[1] / size, x[2] / size, x[3]}, plan.output);
    g.append(Pool{kind, plan.operands[0], out, size}, plan.rule);
    return out;
}

void backward(Graph& g, const Pool& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    g.append(PoolBackward{op.kind, op.in, g.gradient(op.out), to, op.size}, "formats of forward");
    g.contribute(op.in, to);
}

} // namespace amp::op
