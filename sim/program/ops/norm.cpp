#include <ampscope/sim/program/graph.h>

#include <fmt/format.h>
#include <stdexcept>

namespace amp::op {

namespace {

/// Operands and formats of a norm. What is not cast by autocast keeps its own type, as in PyTorch's kernels, which take
/// an FP32 weight beside BF16 numbers.
Graph::Plan norm_plan(Graph& g, std::string_view name, TensorId in, TensorId weight, TensorId bias) {
    Graph::Plan plan = g.plan(name, {in});
    std::vector<TensorId> affine = {weight};
    if (bias) affine.push_back(bias);
    affine = g.plan(name, affine).operands;
    plan.operands.insert(plan.operands.end(), affine.begin(), affine.end());
    if (!bias) plan.operands.emplace_back();
    return plan;
}

TensorId norm(Graph& g, NormKind kind, TensorId in, TensorId weight, TensorId bias, double eps) {
    const std::string_view name = kind == NormKind::layer ? "layer_norm" : "rms_norm";
    const Shape x = g[in].shape;
    const auto fits = [&](TensorId p) { return !p || g[p].shape == Shape{x.back()}; };
    if (x.empty() || !weight || !fits(weight) || !fits(bias)) shape_error(name, "... x N and N", g, {in, weight});
    const Graph::Plan plan = norm_plan(g, name, in, weight, bias);
    const TensorId out = g.result(name, x, plan.output);
    g.append(Norm{kind, plan.operands[0], plan.operands[1], plan.operands[2], out, eps}, plan.rule);
    return out;
}

} // namespace

TensorId layer_norm(Graph& g, TensorId in, TensorId weight, TensorId bias, double eps) {
    return norm(g, NormKind::layer, in, weight, bias, eps);
}

TensorId rms_norm(Graph& g, TensorId in, TensorId weight, double eps) {
    return norm(g, NormKind::rms, in, weight, {}, eps);
}

TensorId group_norm(Graph& g, TensorId in, TensorId weight, TensorId bias, std::int64_t groups, double eps) {
    constexpr std::string_view name = "group_norm";
    const Shape x = g[in].shape;
    const auto fits = [&](TensorId p) { return !p || g[p].shape == Shape{x[1]}; };
    if (x.size() < 2 || g[in].count() == 0 || !weight || !fits(weight) || !fits(bias))
        shape_error(name, "N x C x ... and C", g, {in, weight});
    if (groups < 1 || x[1] % groups != 0)
        throw std::invalid_argument(
            fmt::format("[{}] expected a number of groups that divides {} channels, got {}", name, x[1], groups));
    const Graph::Plan plan = norm_plan(g, name, in, weight, bias);
    const std::int64_t rows = x[0] * groups;
    const TensorId row = view(g, plan.operands[0], {rows, g[in].count() / rows});
    const TensorId out = g.result(name, g[row].shape, plan.output);
    g.append(Norm{NormKind::layer,
                  row,
                  plan.operands[1],
                  plan.operands[2],
                  out,
                  eps,
                  {groups, g[in].count() / (x[0] * x[1])}},
             plan.rule);
    return view(g, out, x);
}

void backward(Graph& g, const Norm& op) {
    NormBackward b{op.kind,
                   op.in,
                   op.weight,
                   g.gradient(op.out),
                   g.new_gradient(op.in),
                   g.new_gradient(op.weight),
                   g.new_gradient(op.bias),
                   op.eps,
                   op.rows};
    g.append(b, "formats of forward");
    if (b.grad_in) g.contribute(op.in, b.grad_in);
    if (b.grad_weight) g.contribute(op.weight, b.grad_weight);
    if (b.grad_bias) g.contribute(op.bias, b.grad_bias);
}

} // namespace amp::op
