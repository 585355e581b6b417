// The exact magnitude histogram: one small table of integers from which the number of elements that underflow, turn
// subnormal, stay normal or overflow follows exactly, for nearest-even, for every format and every power-of-two scale.
//
// Why that is enough: with |x| = 2^e * (1 + m), rounding to nearest even with t fraction bits depends at the edges of a
// format only on e and on whether m is 0 (half the smallest subnormal ties to zero), on how many leading ones m has
// (t of them round up to the smallest normal, t + 1 beyond the largest value), and, for E4M3, on which side of 0.8125
// it lies (464 ties down to 448). So 28 classes of m per exponent decide everything.
#pragma once

#include <ampscope/formats/codec.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>

namespace amp {

/// Classes of the mantissa m of (1 + m): 0: m = 0; 1, 2: no, one leading one; 3, 4, 5: two leading ones and m below, at,
/// above 0.8125; 6 ... 26: 3 ... 23 leading ones; 27: 24 or more.
inline constexpr int mantissa_classes = 28;
using MantissaRow = std::array<std::uint64_t, mantissa_classes>;

/// The class of m = mantissa / 2^64.
constexpr int mantissa_class(std::uint64_t mantissa) {
    constexpr std::uint64_t e4m3_tie = std::uint64_t{13} << 60; // 0.8125
    const int ones = std::countl_one(mantissa);
    return (ones < 24 ? ones : 24) + 1 + int{mantissa >= e4m3_tie} + int{mantissa > e4m3_tie} - int{mantissa == 0};
}

/// The finite non-zero elements by what a format makes of them.
struct ClassCounts {
    std::uint64_t underflow = 0; ///< rounds to zero
    std::uint64_t subnormal = 0; ///< rounds to a non-zero value below the smallest normal
    std::uint64_t normal = 0;
    std::uint64_t overflow = 0; ///< rounds, with an unbounded exponent, above the largest finite value

    ClassCounts& operator+=(const ClassCounts& other);
    bool operator==(const ClassCounts&) const = default;
};

/// Counts of elements by magnitude. Merging adds integers, so it is associative and commutative: tensors, files,
/// threads and machines merge exactly.
struct MagnitudeHistogram {
    std::uint64_t zero = 0; ///< +0 and -0
    std::uint64_t nan = 0;
    std::uint64_t inf = 0;
    std::map<int, MantissaRow> rows{}; ///< by floor(log2|x|); no row is all zero

    [[nodiscard]] std::uint64_t nonzero() const; ///< finite and not zero
    [[nodiscard]] std::uint64_t count() const { return zero + nan + inf + nonzero(); }

    void add(const Unpacked& x, std::uint64_t times = 1);
    void merge(const MagnitudeHistogram& other);
    /// The histogram of every element times 2^log2_scale, exactly.
    [[nodiscard]] MagnitudeHistogram scaled(int log2_scale) const;

    /// What nearest-even rounding to `format` makes of every element times 2^log2_scale; the product is exact. Not for
    /// scale formats (E8M0).
    [[nodiscard]] ClassCounts classify(const FormatSpec& format, int log2_scale) const;

    bool operator==(const MagnitudeHistogram&) const = default;
};

/// Binary exponents of loss scales, both ends included.
struct Window {
    int low = 0, high = 0;
    bool operator==(const Window&) const = default;
};

/// The loss scale for one format: where nothing overflows and little underflows.
struct Recommendation {
    std::optional<int> log2_scale{}; ///< none if the window is empty
    std::optional<Window> window{};  ///< no overflow, and underflow / nonzero below the limit
    int lowest_enough = 0;           ///< smallest scale with underflow / nonzero below the limit
    int highest_safe = 0;            ///< largest scale without overflow; below lowest_enough where the window is empty
};

struct RecommendationOptions {
    int margin = 2;       ///< binades between the recommended scale and the first overflow
    double limit = 0.001; ///< of underflow / nonzero
};

/// No scaling (2^0) if 1 lies in the window, else the largest power of two up to 2^126 that stays `margin` binades from
/// overflow. Infinities and NaN do not count. Without any finite non-zero element every scale will do: 2^0, no window.
Recommendation recommend(const MagnitudeHistogram& histogram, const FormatSpec& format, const RecommendationOptions& options = {});

} // namespace amp
