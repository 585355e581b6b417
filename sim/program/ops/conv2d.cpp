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
                const ConvAxis& horizontal, std::int64_t groups) {
    const Shape x = g[in].shape, w = g[weight].shape;
    const bool is_image = x.size() == 4 && w.size() == 2 && groups >= 1;
    if (!is_image || x[3] % groups != 0 || w[0] % groups != 0 ||
        w[1] != vertical.kernel * horizontal.kernel * (x[3] / groups))
        shape_error("conv2d",
                    groups == 1 ? "N x H x W x C and OUT x (KERNEL_H * KERNEL_W * C)"
                                : "N x H x W x C and OUT x (KERNEL_H * KERNEL_W * C / GROUPS), whose OUT and "
                                  "C the groups divide",
                    g, {in, weight});
    if (!kernel_fits(vertical, x[1]) || !kernel_fits(horizontal, x[2]))
        shape_error("conv2d", "a padded image at least as large as the dilated kernel", g, {in});
    const ConvGeometry geometry{x[0], x[1], x[2], x[3], vertical, horizontal, groups};
    const LayerOperands layer = layer_operands(g, "conv2d", in, weight, bias);
    if (layer.scales && groups > 1) throw std::invalid_argument("[conv2d] groups of channels are not cast with scales");
    const TensorId patches =
        g.result("patches", {groups * geometry.patches(), geometry.patch_size()}, g[layer.x].format);
    g.append(Im2Col{layer.x, patches, geometry}, "moves numbers");
    g.keep_gradient_wide(patches); // its gradient is summed before it is rounded
    const Shape out = {x[0], geometry.out_height(), geometry.out_width(), w[0]};
    if (groups == 1) return append_layer(g, layer, patches, g.result("conv2d", out, layer.output));
    const TensorId by_group = g.result("conv2d", {groups, geometry.patches(), w[0] / groups}, layer.output);
    return view(g, transpose(g, append_layer(g, layer, patches, by_group, groups), {1, 0, 2, 3}), out);
}

void backward(Graph& g, const Im2Col& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    g.append(Col2Im{g.gradient(op.out), to, op.geometry}, "formats of forward");
    g.contribute(op.in, to);
}

} // namespace amp::op
