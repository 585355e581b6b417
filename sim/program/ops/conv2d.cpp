#include <ampscope/sim/program/graph.h>

namespace amp::op {

TensorId conv2d(Graph& g, TensorId in, TensorId weight, TensorId bias, std::int64_t kernel, std::int64_t stride,
                std::int64_t padding) {
    const Shape x = g[in].shape, w = g[weight].shape;
    if (x.size() != 4 || w.size() != 2 || w[1] != kernel * kernel * x[3])
        shape_error("conv2d", "N x H x W x C and OUT x (KERNEL * KERNEL * C)", g, {in, weight});
    const ConvGeometry geometry{x[0], x[1], x[2], x[3], kernel, stride, padding};
    if (kernel < 1 || stride < 1 || padding < 0 || x[1] + 2 * padding < kernel || x[2] + 2 * padding < kernel)
        shape_error("conv2d", "an image at least as large as the kernel", g, {in});
    const LayerOperands layer = layer_operands(g, "conv2d", in, weight, bias);
    const TensorId patches = g.result("patches", {geometry.patches(), geometry.patch_size()}, g[layer.x].format);
    g.append(Im2Col{layer.x, patches, geometry}, "moves numbers");
    g.keep_gradient_wide(patches); // its gradient is summed before it is rounded
    const Shape out = {x[0], geometry.out_height(), geometry.out_width(), w[0]};
    return append_layer(g, layer, patches, g.result("conv2d", out, layer.output));
}

void backward(Graph& g, const Im2Col& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    g.append(Col2Im{g.gradient(op.out), to, op.geometry}, "formats of forward");
    g.contribute(op.in, to);
}

} // namespace amp::op
