// What a recording in a format of small range does not show: gradients that had become zero before they were recorded.
#pragma once

#include <ampscope/sim/io/recording.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amp {

/// How well a record tells something.
enum class Known : std::uint8_t {
    exact,  ///< the record tells it
    bound,  ///< the record tells one side of it: at least so much, or as far as was recorded
    unknown ///< the record does not tell it
};
/// Its name in JSON and Python: "exact", "bound" or "unknown".
std::string_view name_of(Known known);

/// What is missing in recorded gradients. Each exact zero in a format of smaller range than FP32's may have been a
/// number that underflowed, so the number of those that did lies between 0 and `zeros`. Merged records hide what any of
/// them hides: the largest threshold counts, as some of the zeros may have been as large, and the zeros add up.
///
/// The gradient of a weight is a sum, of products of an activation and an activation's gradient. Where backward held
/// the latter in such a format without a loss scale, terms may have underflowed whether or not their sum is zero.
struct Censoring {
    /// Every magnitude up to 2^below_log2, that included, was recorded as zero: half the format's least subnormal,
    /// which ties to zero, over the loss scale of the record. None: nothing is hidden.
    std::optional<int> below_log2{};
    std::uint64_t zeros = 0; ///< exact zeros among the elements of such records

    bool sums = false;  ///< gradients of weights are among the records, summed of terms that were held so unscaled
    bool terms = false; ///< gradients of activations, from which the terms can be told, are among the records
    std::uint64_t elements = 0; ///< all of the records that were held in such a format

    [[nodiscard]] bool hides() const { return zeros > 0; }
    [[nodiscard]] bool hides_terms() const { return sums && !terms; }
    /// Whether more may have underflowed than was recorded.
    [[nodiscard]] bool hides_any() const { return hides() || hides_terms(); }
    void merge(const Censoring& other);
    bool operator==(const Censoring&) const = default;
};

/// How a gradient came to be stored.
struct GradientRecord {
    std::string_view stored;   ///< the format that it is stored in; empty for none of the table
    std::string_view backward; ///< the format in which backward computes (autocast's); empty: not known
    double scale = 1;          ///< the loss scale under which it was recorded
    std::uint64_t zeros = 0;   ///< exact zeros among its elements
    /// floor(log2) of its least non-zero magnitude, without the scale; none: all are zero.
    std::optional<int> least_log2 = {};
    TensorKind kind = TensorKind::weight_gradient; ///< or activation_gradient
    std::uint64_t elements = 0;                    ///< how many it has
};

/// What the record of one gradient hides. If it is stored in a format of FP32's range, but backward computes in a
/// smaller one, it was held in that (PyTorch casts FP16 gradients to the FP32 of their weights), unless it has a
/// magnitude that is not zero and too small for it: then it was computed in the wider one, and hides nothing. A loss
/// scale that is no power of two counts as the next smaller one.
Censoring censoring_of(const GradientRecord& record);

/// "what underflowed was never recorded: magnitudes up to 2^-25 were held as zero, and 56.1 % of the 1,000 elements of
/// tensors held so are exact zeros, of which any number may have underflowed".
std::string censoring_text(const Censoring& censoring);

/// What belongs below a picture or a table of such gradients: "It counts what was recorded; more may have underflowed
/// before."; empty if nothing is hidden.
std::string counted_text(const Censoring& censoring);
/// A caption, and that sentence behind it.
std::string with_counted_text(std::string caption, const Censoring& censoring);

/// What to add where no loss scale is needed by records without gradients of activations.
inline constexpr std::string_view without_activations =
    "Gradients of activations, which are often smaller, were not recorded.";

} // namespace amp
