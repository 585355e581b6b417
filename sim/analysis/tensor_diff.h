// Two tensors, element by element: what differs, by how much, and where first and worst.
#pragma once

#include <ampscope/sim/analysis/exact.h>
#include <ampscope/sim/analysis/pass.h>

#include <map>
#include <optional>
#include <vector>

namespace amp {

/// What is true of a pair of elements. Every pair has one class: the first that applies.
enum class DiffClass : std::uint8_t {
    equal,     ///< the same value, zeros of the same sign; or both NaN
    nan,       ///< one is NaN
    inf,       ///< one is infinite, or both with opposite signs
    zero_sign, ///< +0 and -0
    zero,      ///< one is zero
    sign,      ///< non-zero, with opposite signs
    finite     ///< finite, non-zero, of one sign
};
inline constexpr std::array<std::string_view, 7> diff_class_names = {"equal", "nan",  "inf",   "zero_sign",
                                                                     "zero",  "sign", "finite"};
inline constexpr std::size_t diff_classes = diff_class_names.size();

struct DifferingElement {
    std::uint64_t index = 0;              ///< in C order; of complex tensors that of the number
    std::uint64_t a_bits = 0, b_bits = 0; ///< as stored
    double a = 0, b = 0;                  ///< the nearest doubles, without their recorded scales
    double ulps = 0;                      ///< infinite where one is NaN or infinite
};

/// Classes, the two tables and what is first are exact for every element type. Maxima are the nearest doubles of exact
/// distances (infinite where FP64 values of opposite signs are farther apart than any double). The sums are over pairs
/// of finite elements, in blocks of sum_block in order, without overflow or underflow.
struct TensorDiff {
    std::array<std::uint64_t, diff_classes> counts{};
    std::map<int, std::uint64_t> ulps{};     ///< by k: 2^(k-1) < distance <= 2^k, of finite pairs that differ in value
    std::map<int, std::uint64_t> relative{}; ///< by floor(log2(|a - b| / max(|a|, |b|))), of the same
    double max_ulps = 0, max_relative = 0, max_absolute = 0; ///< of finite pairs
    SquareSum difference_squares{}, a_squares{}, b_squares{};
    std::optional<DifferingElement> first{};
    std::vector<DifferingElement> worst{}; ///< by distance, then by index

    [[nodiscard]] std::uint64_t elements() const;
    [[nodiscard]] std::uint64_t of(DiffClass c) const { return counts[static_cast<std::size_t>(c)]; }
    [[nodiscard]] std::uint64_t differing() const { return elements() - of(DiffClass::equal); }
    /// |a - b| / |a|, Euclidean norms; infinite where a alone is zero.
    [[nodiscard]] double relative_norm() const;
    /// Adds a later one: of the next block, or of another tensor, whose indices then mean nothing.
    void merge(const TensorDiff& later, std::size_t keep);
};

/// A tensor of a file, and the loss scale that its values still contain.
struct DiffSide {
    const TensorFile& file;
    std::size_t tensor;
    double recorded_scale = 1;
};

/// Compares two tensors of as many numbers, in the order of their indices. A distance in ulps is |a - b| over the unit
/// in the last place, at the larger magnitude, of the element type with fewer digits; below the smallest normal value
/// of that type (under its recorded scale) the unit stays, and among integers it is 1. The numbers of b are brought to
/// the recorded scale of a: exactly where the scales are the same or their ratio is a power of two, else to 64 bits.
/// `keep`: how many of the worst to list. The result does not depend on `threads`. Throws FileError where a file
/// cannot be read, or where the numbers cannot be paired.
TensorDiff compare_tensors(const DiffSide& a, const DiffSide& b, std::size_t keep, int threads,
                           const Progress& progress = {});

} // namespace amp
