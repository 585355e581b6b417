#include <ampscope/sim/graph.h>

#include <algorithm>

namespace amp {

namespace {

constexpr FormatSpec fp32 = format("fp32");

/// Appends the product that is the gradient of `of`; the op's tensors but for `out` are given.
void append_product(Graph& g, TensorId of, Matmul product, std::string_view name) {
    const TensorId to = g.new_gradient(of);
    if (!to) return;
    const Graph::Plan plan = g.plan(name, {product.a, product.b});
    product.a = plan.operands[0];
    product.b = plan.operands[1];
    product.bias = {};
    product.arithmetic = g.product(product.a, product.b);
    product.out = to;
    if (plan.output != g[to].format && g[to].format != fp32) // cast by autocast in backward: rounded there first
        product.out =
            g.result(g[of].name + ".grad_" + plan.output.name, g[of].shape, plan.output, TensorRole::gradient);
    g.append(product, plan.rule);
    g.contribute(of, product.out);
}

} // namespace

TensorId linear(Graph& g, TensorId x, TensorId weight, TensorId bias) {
    const Shape in = g[x].shape, w = g[weight].shape;
    if (in.empty() || w.size() != 2 || in.back() != w[1])
        shape_error("linear", "... x IN and OUT x IN", g, {x, weight});
    if (bias && g[bias].shape != Shape{w[0]}) shape_error("linear", "a bias of OUT", g, {weight, bias});
    std::vector<TensorId> operands = {x, weight};
    if (bias) operands.push_back(bias);
    const Graph::Plan plan = g.plan("linear", operands);
    Shape shape = in;
    shape.back() = w[0];
    const TensorId out = g.result("linear", shape, plan.output);
    g.append(Matmul{.a = plan.operands[0],
                    .b = plan.operands[1],
                    .bias = bias ? plan.operands[2] : TensorId{},
                    .out = out,
                    .m = element_count(in) / in.back(),
                    .n = w[0],
                    .k = w[1],
                    .transpose_b = true,
                    .arithmetic = g.product(plan.operands[0], plan.operands[1])},
             plan.rule);
    return out;
}

TensorId matmul(Graph& g, TensorId a, TensorId b, bool transpose_b) {
    const Shape x = g[a].shape, y = g[b].shape;
    const std::size_t rank = x.size();
    const bool fits = rank >= 2 && y.size() == rank && std::equal(x.begin(), x.end() - 2, y.begin()) &&
                      x[rank - 1] == y[transpose_b ? rank - 1 : rank - 2];
    if (!fits)
        shape_error("matmul", transpose_b ? "... x M x K and ... x N x K" : "... x M x K and ... x K x N", g, {a, b});
    const std::string_view name = rank == 2 ? "matmul" : "bmm";
    const Graph::Plan plan = g.plan(name, {a, b});
    Shape shape = x;
    shape[rank - 1] = y[transpose_b ? rank - 2 : rank - 1];
    const TensorId out = g.result("matmul", shape, plan.output);
    g.append(Matmul{.a = plan.operands[0],
                    .b = plan.operands[1],
                    .bias = {},
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
    if (!g.needs_gradient(op.bias)) return;
    const TensorId to_bias = g.new_gradient(op.bias);
    g.append(Reduce{.kind = ReduceKind::sum, .in = grad, .out = to_bias, .accumulate = g.precision().sums()},
             "sum over rows, formats of forward");
    g.contribute(op.bias, to_bias);
}

} // namespace amp
