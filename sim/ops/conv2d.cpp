#include <ampscope/sim/graph.h>

namespace amp {

TensorId conv2d(Graph& g, TensorId in, TensorId weight, TensorId bias, std::int64_t kernel, std::int64_t stride,
                std::int64_t padding) {
    const Shape x = g[in].shape, w = g[weight].shape;
    if (x.size() != 4 || w.size() != 2 || w[1] != kernel * kernel * x[3])
        shape_error("conv2d", "N x H x W x C and OUT x (KERNEL * KERNEL * C)", g, {in, weight});
    const ConvGeometry geometry{x[0], x[1], x[2], x[3], kernel, stride, padding};
    if (kernel < 1 || stride < 1 || padding < 0 || x[1] + 2 * padding < kernel || x[2] + 2 * padding < kernel)
        shape_error("conv2d", "an image at least as large as the kernel", g, {in});
    std::vector<TensorId> operands = {in, weight};
    if (bias) operands.push_back(bias);
    const Graph::Plan plan = g.plan("conv2d", operands);
    const TensorId patches =
        g.result("patches", {geometry.patches(), geometry.patch_size()}, g[plan.operands[0]].format);
    g.append(Im2Col{plan.operands[0], patches, geometry}, "moves numbers");
    g.keep_gradient_wide(patches); // its gradient is summed before it is rounded
    const TensorId out = g.result("conv2d", {x[0], geometry.out_height(), geometry.out_width(), w[0]}, plan.output);
    g.append(Matmul{.a = patches,
                    .b = plan.operands[1],
                    .bias = bias ? plan.operands[2] : TensorId{},
                    .out = out,
                    .m = geometry.patches(),
                    .n = w[0],
                    .k = w[1],
                    .transpose_b = true,
                    .arithmetic = g.product(patches, plan.operands[1])},
             plan.rule);
    return out;
}

void backward(Graph& g, const Im2Col& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    g.append(Col2Im{g.gradient(op.out), to, op.geometry}, "formats of forward");
    g.contribute(op.in, to);
}

} // namespace amp
