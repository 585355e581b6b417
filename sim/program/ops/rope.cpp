#include <ampscope/sim/program/graph.h>

#include <stdexcept>

namespace amp::op {

TensorId rope(Graph& g, TensorId in, double theta) {
    constexpr std::int64_t longest = 1 << 24; // beyond it FP32 does not hold all positions
    const Shape x = g[in].shape;
    if (x.size() < 2 || x.back() % 2 != 0 || x[x.size() - 2] > longest)
        shape_error(Rope::name, "... x T x D with an even D", g, {in});
    if (!(theta >= 1)) throw std::invalid_argument("[rope] expected a theta of at least 1");
    const Graph::Plan plan = g.plan(Rope::name, {in});
    const TensorId out = g.result(Rope::name, x, plan.output);
    g.append(Rope{plan.operands[0], out, theta}, plan.rule);
    return out;
}

void backward(Graph& g, const Rope& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    g.append(Rope{g.gradient(op.out), to, op.theta, !op.inverse}, "formats of forward");
    g.contribute(op.in, to);
}

} // namespace amp::op
