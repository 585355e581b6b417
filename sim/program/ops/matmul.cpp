#include <ampscope/sim/program/graph.h>

#include <algorithm>
#include <fmt/format.h>

namespace amp::op {

namespace {

constexpr FormatSpec fp32 = format("fp32");

/// Appends the product that computes the gradient of `of`. `product` has all tensors but `out`.
void append_product(Graph& g, TensorId of, Matmul product, std::string_view name) {
    const TensorId to = g.new_gradient(of);
    if (!to) return;
    const Graph::Plan plan = g.plan(name, {product.a, product.b});
    product.a = plan.operands[0];
    product.b = plan.operands[1];
    product.bias = {};
    product.arithmetic = g.product(product.a, product.b);
    product.out = to;
    if (plan.output != g[to].format && g[to].format != fp32) // autocast in backward: rounded to its format first
        product.out =
            g.result(g[of].name + ".grad_" + plan.output.name, g[of].shape, plan.output, TensorRole::gradient);
    g.append(product, plan.rule);
    g.contribute(of, product.out);
}

void backward_bias(Graph& g, const Matmul& op, TensorId grad) {
    if (!g.needs_gradient(op.bias)) return;
    const TensorId to = g.new_gradient(op.bias);
    g.append(Reduce{.kind = ReduceKind::sum,
                    .in = grad,
                    .out = to,
                    .batch = g[op.bias].count() / op.n,
                    .accumulate = g.arithmetic().sums()},
             "sum over rows, formats of forward");
    g.contribute(op.bias, to);
}

/// The same for scaled operands, or the tensors they were made from. The result is first rounded to the format of the
/// layer's result.
void append_scaled(Graph& g, TensorId of, Matmul product, const FormatSpec& result) {
    const TensorId to = g.new_gradient(of);
    if (!to) return;
    product.bias = {};
    product.out = g[to].format == result ? to
                                         : g.result(g[of].name + ".grad_" + std::string(result.name), g[of].shape,
                                                    result, TensorRole::gradient);
    product.arithmetic = g.product(product.a, product.b);
    g.append(product, std::string(g.arithmetic().scaling->name));
    g.contribute(of, product.out);
}

/// The gradients of a scaled layer x W^T. Each operand is scaled along the axis that the product sums over.
void backward_scaled(Graph& g, const Matmul& op, TensorId grad) {
    const Graph::ScaledSource x = g.source_of(op.a), w = g.source_of(op.b);
    const FormatSpec result = g[op.out].format;
    const ScalingRecipe recipe = *g.arithmetic().scaling;
    /// A product of the gradient and another operand, with scales or without.
    const auto operands = [&](Matmul& product, const Graph::ScaledSource& other, bool sums_rows, bool for_weight) {
        product.a = grad, product.a_scale = {}, product.b_scale = {};
        if (recipe.reads_unscaled(for_weight)) {
            product.b = recipe.backward == BackwardOperands::dequantized ? g.restored(other.tensor, other.role, result)
                                                                         : g.cast(other.tensor, result, "not scaled");
            return;
        }
        const Graph::Scaled a = g.scaled(grad, OperandRole::gradient, sums_rows),
                            b = g.scaled(other.tensor, other.role, true);
        product.a = a.tensor, product.a_scale = a.scale, product.b = b.tensor, product.b_scale = b.scale;
    };
    Matmul to_x = op, to_w = op;
    to_x.n = op.k, to_x.k = op.n, to_x.transpose_b = false; // grad W
    if (g.needs_gradient(x.tensor)) {
        operands(to_x, w, false, false);
        append_scaled(g, x.tensor, to_x, result);
    }
    to_w.m = op.n, to_w.n = op.k, to_w.k = op.m, to_w.transpose_a = true, to_w.transpose_b = false; // grad^T x
    operands(to_w, x, true, true);
    append_scaled(g, w.tensor, to_w, result);
}

} // namespace

LayerOperands layer_operands(Graph& g, std::string_view op, TensorId x, TensorId weight, TensorId bias) {
    const bool scales = g.scales_here();
    const Serving serving = g.serves_here() ? g.precision().serving : Serving{};
    if (!scales) weight = g.through(serving.weights, weight);
    std::vector<TensorId> operands = {x};
    if (!scales) operands.push_back(weight); // tensors to be scaled are read as they are
    if (bias) operands.push_back(bias);
    const Graph::Plan plan = g.plan(op, operands);
    return {.x = scales ? plan.operands[0] : g.through(serving.activations, plan.operands[0]),
            .weight = scales ? weight : plan.operands[1],
            .bias = bias ? plan.operands.back() : TensorId{},
            .output = plan.output,
            .rule = plan.rule,
            .scales = scales};
}

TensorId append_layer(Graph& g, const LayerOperands& layer, TensorId x, TensorId out, std::int64_t groups) {
    const Shape w = g[layer.weight].shape;
    Matmul product{.a = x,
                   .b = layer.weight,
                   .bias = layer.bias,
                   .out = out,
                   .batch = groups,
                   .m = g[x].count() / w[1] / groups,
                   .n = w[0] / groups,
                   .k = w[1],
                   .transpose_b = true};
    std::string rule = layer.rule;
    if (layer.scales) {
        const Graph::Scaled a = g.scaled(x, OperandRole::input, false),
                            b = g.scaled(layer.weight, OperandRole::weight, false);
        product.a = a.tensor, product.a_scale = a.scale, product.b = b.tensor, product.b_scale = b.scale;
        rule += fmt::format(", {}", g.arithmetic().scaling->name);
    }
    product.arithmetic = g.product(product.a, product.b);
    g.append(product, rule);
    return out;
}

TensorId linear(Graph& g, TensorId x, TensorId weight, TensorId bias) {
    const Shape in = g[x].shape, w = g[weight].shape;
    if (in.empty() || w.size() != 2 || in.back() != w[1])
        shape_error("linear", "... x IN and OUT x IN", g, {x, weight});
    if (bias && g[bias].shape != Shape{w[0]}) shape_error("linear", "a bias of OUT", g, {weight, bias});
    const LayerOperands layer = layer_operands(g, "linear", x, weight, bias);
    Shape shape = in;
    shape.back() = w[0];
    return append_layer(g, layer, layer.x, g.result("linear", shape, layer.output));
}

TensorId matmul(Graph& g, TensorId a, TensorId b, bool transpose_b, TensorId bias) {
    const Shape x = g[a].shape, y = g[b].shape;
    const std::size_t rank = x.size();
    const bool fits = rank >= 2 && y.size() == rank && std::equal(x.begin(), x.end() - 2, y.begin()) &&
                      x[rank - 1] == y[transpose_b ? rank - 1 : rank - 2];
    if (!fits)
        shape_error("matmul", transpose_b ? "... x M x K and ... x N x K" : "... x M x K and ... x K x N", g, {a, b});
    const std::string_view name = rank == 2 ? "matmul" : "bmm";
    Shape shape = x;
    shape[rank - 1] = y[transpose_b ? rank - 2 : rank - 1];
    if (bias && g[bias].shape != Shape{shape[rank - 1]}) shape_error("matmul", "a bias of N", g, {b, bias});
    std::vector<TensorId> operands = {a, b};
    if (bias) operands.push_back(bias);
    const Graph::Plan plan = g.plan(name, operands);
    const TensorId out = g.result("matmul", shape, plan.output);
    g.append(Matmul{.a = plan.operands[0],
                    .b = plan.operands[1],
                    .bias = bias ? plan.operands.back() : TensorId{},
                    .out = out,
                    .batch = element_count(x) / (x[rank - 2] * x[rank - 1]),
                    .m = x[rank - 2],
                    .n = shape[rank - 1],
                    .k = x[rank - 1],
                    .transpose_b = transpose_b,
                    .arithmetic = g.product(plan.operands[0], plan.operands[1])},
             plan.rule);
    return out;
}

void backward(Graph& g, const Matmul& op) {
    const TensorId grad = g.gradient(op.out);
    if (op.a_scale.scale) {
        backward_scaled(g, op, grad);
        return backward_bias(g, op, grad);
    }
    const std::string_view name = op.batch == 1 ? "matmul" : "bmm";
    Matmul to_a = op, to_b = op;
    if (!op.transpose_a) { // grad b^T
        to_a.a = grad, to_a.b = op.b, to_a.n = op.k, to_a.k = op.n, to_a.transpose_b = !op.transpose_b;
    } else { // b grad^T
        to_a.a = op.b, to_a.b = grad, to_a.m = op.k, to_a.n = op.m, to_a.k = op.n;
        to_a.transpose_a = op.transpose_b, to_a.transpose_b = true;
    }
    if (!op.transpose_b) { // a^T grad
        to_b.a = op.a, to_b.b = grad, to_b.m = op.k, to_b.k = op.m, to_b.transpose_a = !op.transpose_a,
        to_b.transpose_b = false;
    } else { // grad^T a
        to_b.a = grad, to_b.b = op.a, to_b.m = op.n, to_b.n = op.k, to_b.k = op.m;
        to_b.transpose_a = true, to_b.transpose_b = op.transpose_a;
    }
    append_product(g, op.a, to_a, name);
    append_product(g, op.b, to_b, name);
    backward_bias(g, op, grad);
}

} // namespace amp::op
