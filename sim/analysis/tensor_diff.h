// Compares two tensors element by element: what differs, by how much, where first and where most.
#pragma once

#include <ampscope/sim/analysis/exact.h>
#include <ampscope/sim/analysis/pass.h>

#include <map>
#include <optional>
#include <vector>

namespace amp {

/// What is true of a pair of elements. A pair has the first class that applies.
enum class DiffClass : std::uint8_t {
    equal,     ///< the same value, zeros of the same sign; or both NaN
    nan,       ///< one of the two is NaN
    inf,       ///< one is infinite, or both are with opposite signs
    zero_sign, ///< one is +0, the other -0
    zero,      ///< one is zero, the other is not
    sign,      ///< both are non-zero, with opposite signs
    finite     ///< both are finite and non-zero, with the same sign and different magnitudes
};
inline constexpr std::array<std::string_view, 7> diff_class_names = {"equal", "nan",  "inf",   "zero_sign",
                                                                     "zero",  "sign", "finite"};
inline constexpr std::size_t diff_classes = diff_class_names.size();

struct DifferingElement {
    std::uint64_t index = 0;              ///< index in C order; in complex tensors the index of the number
    std::uint64_t a_bits = 0, b_bits = 0; ///< the bits as stored
    double a = 0, b = 0;                  ///< nearest doubles, divided by their recorded scales
    double ulps = 0;                      ///< distance in ulps; infinite if one is NaN or infinite
};

/// Classes, the two tables and the first difference are exact for every element type. Maxima are doubles nearest to
/// exact distances (infinite if FP64 values of opposite signs are farther apart than any double). Sums are over pairs
/// of finite elements, block by block of sum_block in order, without overflow and underflow.
struct TensorDiff {
    std::array<std::uint64_t, diff_classes> counts{};
    std::map<int, std::uint64_t> ulps{};                     ///< finite differing pairs by k: 2^(k-1) < ulps <= 2^k
    std::map<int, std::uint64_t> relative{};                 ///< the same pairs by floor(log2(|a - b| / max(|a|, |b|)))
    double max_ulps = 0, max_relative = 0, max_absolute = 0; ///< maxima over finite pairs
    SquareSum difference_squares{}, a_squares{}, b_squares{};
    std::optional<DifferingElement> first{};
    std::vector<DifferingElement> worst{}; ///< largest distances first; equal ones by index

    [[nodiscard]] std::uint64_t elements() const;
    [[nodiscard]] std::uint64_t of(DiffClass c) const { return counts[static_cast<std::size_t>(c)]; }
    [[nodiscard]] std::uint64_t differing() const { return elements() - of(DiffClass::equal); }
    /// |a - b| / |a| in Euclidean norms; infinite if a is zero and b is not.
    [[nodiscard]] double relative_norm() const;
    /// Adds the differences of the next block or of another tensor; with the latter, indices lose their meaning.
    void merge(const TensorDiff& later, std::size_t keep);
};

/// A tensor of a file, and the loss scale by which its values are still multiplied.
struct DiffSide {
    const TensorFile& file;
    std::size_t tensor;
    double recorded_scale = 1;
};

/// Compares two tensors with the same number of numbers, in order of their indices. A distance in ulps is |a - b|
/// divided by the unit in the last place at the larger magnitude, in the element type with fewer digits; below the
/// smallest normal value of that type (times its recorded scale) the unit stays the same, and for integers it is 1.
/// Numbers of b are brought to the recorded scale of a: exactly if the scales are equal or their ratio is a power of
/// two, else to 64 bits. `keep` is the number of worst elements to list. The result does not depend on `threads`.
/// Throws FileError if a file cannot be read or the numbers cannot be paired.
TensorDiff compare_tensors(const DiffSide& a, const DiffSide& b, std::size_t keep, int threads,
                           const Progress& progress = {});

} // namespace amp
