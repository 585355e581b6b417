// Describes a tensor of a program: name, shape and number format. Its elements are kept by a backend, as floats.
#pragma once

#include <ampscope/formats/scaled_format.h>

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

/// The index of a tensor in a Program; the default refers to none.
struct TensorId {
    std::int32_t index = -1;
    constexpr explicit operator bool() const { return index >= 0; }
    constexpr bool operator==(const TensorId&) const = default;
};

/// What a tensor is for. Initialisation, recording, checkpoints and the kinds of memory depend on it.
enum class TensorRole : std::uint8_t {
    input,      ///< written by the host: data, targets, token numbers
    parameter,  ///< a master weight
    state,      ///< state of the optimizer
    weight,     ///< a parameter cast to the format it is used in
    activation, ///< the result of an op of the forward pass
    gradient    ///< the gradient of a tensor of any of these roles
};

/// Invariant: every element is a value of `format`; if `scaled_as` is set, a number of that format times its scale.
struct TensorInfo {
    std::string name; ///< unique, say "h.0.mlp.up.linear"; the name of a gradient ends in ".grad"
    Shape shape;
    FormatSpec format;
    TensorRole role = TensorRole::activation;
    TensorId storage{};                      ///< if this is a view: the tensor whose elements it shows; else none
    TensorId gradient_of{};                  ///< the tensor that this is the gradient of; else none
    bool needs_gradient = false;             ///< whether it depends on a parameter
    std::optional<ScaledFormat> scaled_as{}; ///< how the elements are kept under scales; `format` is FP32 then

    [[nodiscard]] std::int64_t count() const { return element_count(shape); }
    /// The format in which memory holds the elements.
    [[nodiscard]] const FormatSpec& kept_as() const { return scaled_as ? scaled_as->element : format; }
};

} // namespace amp
