// Convolution as a matrix product of patches. Images are batch x height x width x channels (B x H x W x C).
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// How a kernel moves along one axis of an image.
struct ConvAxis {
    std::int64_t kernel = 1, stride = 1, padding = 0; ///< padding: zeros before the image, and as many behind it
    std::int64_t dilation = 1;                        ///< distance of neighbours in the kernel, in pixels
    [[nodiscard]] constexpr std::int64_t span() const { return dilation * (kernel - 1) + 1; }
    [[nodiscard]] constexpr std::int64_t positions(std::int64_t pixels) const {
        return (pixels + 2 * padding - span()) / stride + 1;
    }
};

struct ConvGeometry {
    std::int64_t batch = 0, height = 0, width = 0, channels = 0;
    ConvAxis vertical, horizontal;
    std::int64_t groups = 1; ///< of equally many neighbouring channels, each convolved by itself
    [[nodiscard]] constexpr std::int64_t out_height() const { return vertical.positions(height); }
    [[nodiscard]] constexpr std::int64_t out_width() const { return horizontal.positions(width); }
    [[nodiscard]] constexpr std::int64_t patches() const { return batch * out_height() * out_width(); } ///< of a group
    [[nodiscard]] constexpr std::int64_t group_channels() const { return channels / groups; }
    [[nodiscard]] constexpr std::int64_t patch_size() const {
        return vertical.kernel * horizontal.kernel * group_channels();
    }
};

/// For each group of channels, out has a row for each position of the kernel: the patch below it, row by row, channels
/// last, with zeros beyond the border.
struct Im2Col {
    static constexpr std::string_view name = "im2col";
    TensorId in, out;
    ConvGeometry geometry;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
/// weight: out_channels x (kernel rows * kernel columns * channels of a group), ordered as in Im2Col, group after
/// group; bias: out_channels, may be absent. More groups than one cannot be cast with scales.
TensorId conv2d(Graph& g, TensorId in, TensorId weight, TensorId bias, const ConvAxis& vertical,
                const ConvAxis& horizontal, std::int64_t groups = 1);
/// The same along both axes.
inline TensorId conv2d(Graph& g, TensorId in, TensorId weight, TensorId bias, std::int64_t kernel, std::int64_t stride,
                       std::int64_t padding) {
    const ConvAxis axis{kernel, stride, padding};
    return conv2d(g, in, weight, bias, axis, axis);
}
void backward(Graph& g, const Im2Col& op);
void run(Cpu& cpu, const Im2Col& op);
void run(Cuda& cuda, const Im2Col& op);

/// The transpose of Im2Col: each pixel is the sum of its occurrences in patches, in FP32, in the order of the patches;
/// one rounding at the end. `in` is FP32: the unrounded sums of a product.
struct Col2Im {
    static constexpr std::string_view name = "col2im";
    static constexpr std::string_view accumulation = "fp32, patch by patch";
    TensorId in, out;
    ConvGeometry geometry;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
void run(Cpu& cpu, const Col2Im& op);
void run(Cuda& cuda, const Col2Im& op);

} // namespace amp::op
