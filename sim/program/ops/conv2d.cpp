#include <ampscope/sim/program/graph.h>

namespace amp::op {

namespace {

/// Whether the kernel has a position on so many pixels.
bool kernel_fits(const ConvAxis& a, std::int64_t pixels) {
    return a.kernel >= 1 && a.stride >= 1 && a.padding >= 0 && a.dilation >= 1 &&
           a.kernel - 1 <= (pixels + 2 * a.padding - 1) / a.dilation;
}

} // namespace

TensorId conv2d(Graph& g, TensorId in, TensorId weight, TensorId bias, const ConvAxis& vertical,
                const ConvAxis& horizontal) {
    const Shape x = g[in].shape, w = g[weight].shape;
    if (x.size() != 4 || w.size() != 2 || w[1] != vertical.kernel * horizontal.kernel * x[3])
        shape_error("conv2d", "N x H x W x C and OUT x (KERNEL_H * KERNEL_W * C)", g, {in, weight});
    if (!kernel_fits(vertical, x[1]) || !kernel_fits(horizontal, x[2]))
        shape_error("conv2d", "a padded image at least as large as the dilated kernel", g, {in});
    const ConvGeometry geometry{x[0], x[1], x[2], x[3], vertical, horizontal};
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
