// What a tensor of a tape is: a name, a shape and a number format. Its numbers live in a backend, as floats.
#pragma once

#include <ampscope/formats/spec.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace amp {

using Shape = std::vector<std::int64_t>;

/// The product of the extents; 1 for a scalar.
inline std::int64_t element_count(const Shape& shape) {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    return count;
}

/// Names a tensor of a Program; the default names none.
struct TensorId {
    std::int32_t index = -1;
    constexpr explicit operator bool() const { return index >= 0; }
    constexpr bool operator==(const TensorId&) const = default;
};

/// What a tensor is for: decides what is initialised, recorded, checkpointed and counted as memory of what kind.
enum class TensorRole : std::uint8_t {
    input,      ///< written by the host: data, targets, token numbers
    parameter,  ///< a master weight
    state,      ///< of the optimizer
    weight,     ///< a parameter cast to the format it is used in
    activation, ///< the result of an op of the forward pass
    gradient    ///< of any of them
};

/// Invariant: every element is a value of `format`; where `scaled_as` is set, of that format under some power-of-two
/// scale of the tensor.
struct TensorInfo {
    std::string name; ///< unique; "h.0.mlp.up.linear"; that of a gradient ends in ".grad"
    Shape shape;
    FormatSpec format;
    TensorRole role = TensorRole::activation;
    TensorId storage{};                    ///< a view: the tensor whose numbers it shows; else none
    TensorId gradient_of{};                ///< of a gradient
    bool needs_gradient = false;           ///< depends on a parameter
    std::optional<FormatSpec> scaled_as{}; ///< MS-AMP's ScalingTensor; `format` is FP32

    [[nodiscard]] std::int64_t count() const { return element_count(shape); }
    /// The format in which memory holds it.
    [[nodiscard]] const FormatSpec& kept_as() const { return scaled_as ? *scaled_as : format; }
};

} // namespace amp
