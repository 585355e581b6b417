#include <ampscope/sim/program/graph.h>

namespace amp::op {

TensorId batch_norm(Graph& g, TensorId in, TensorId weight, TensorId bias, TensorId running_mean,
                    TensorId running_variance, double eps, double momentum) {
    const Shape x = g[in].shape;
    for (const TensorId id : {weight, bias, running_mean, running_variance})
        if (x.empty() || g[id].shape != Shape{x.back()}) shape_error(BatchNorm::name, "... x C and C", g, {in, id});
    if (g[in].count() / x.back() < 2) shape_error(BatchNorm::name, "at least two numbers a channel", g, {in});
    const Graph::Plan plan = g.plan(BatchNorm::name, {in});
    std::vector<TensorId> affine = {weight, bias};
    if (!g.precision().autocast.enabled) affine = g.plan(BatchNorm::name, affine).operands;
    const TensorId out = g.result(BatchNorm::name, x, plan.output);
    const TensorId mean = g.result("mean", {x.back()}, fp32_format());
    const TensorId inverse = g.result("inverse", {x.back()}, fp32_format());
    g.append(BatchNorm{plan.operands[0], affine[0], affine[1], running_mean, running_variance, out, mean, inverse, eps,
                       momentum},
             plan.rule);
    return out;
}

void backward(Graph& g, const BatchNorm& op) {
    const Shape channels = g[op.mean].shape;
    const BatchNormBackward b{op.in,
                              op.weight,
                              op.mean,
                              op.inverse,
                              g.gradient(op.out),
                              g.new_gradient(op.in),
                              g.result("batch_norm.weight.grad", channels, fp32_format(), TensorRole::gradient),
                              g.result("batch_norm.bias.grad", channels, fp32_format(), TensorRole::gradient)};
    g.append(b, "formats of forward");
    if (b.grad_in) g.contribute(op.in, b.grad_in);
    g.contribute(op.weight, b.grad_weight);
    g.contribute(op.bias, b.grad_bias);
}

} // namespace amp::op
