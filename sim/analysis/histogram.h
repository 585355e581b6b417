// The exact magnitude histogram: one small table of integers from which the number of elements that underflow, turn
// subnormal, stay normal or overflow follows exactly, for every format and every power-of-two scale: for nearest-even,
// nearest-away and toward zero, and with two such tables (DirectedHistogram) for the other roundings.
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

/// Classes of the mantissa m of (1 + m): 0: m = 0; 1, 2: no, one leading one; 3, 4, 5: two leading ones and m below,
/// at, above 0.8125; 6 ... 26: 3 ... 23 leading ones; 27: 24 or more.
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
    /// As if every element came so often as it does now times `times`.
    void repeat(std::uint64_t times);
    /// The histogram of every element times 2^log2_scale, exactly.
    [[nodiscard]] MagnitudeHistogram scaled(int log2_scale) const;

    /// What nearest-even rounding to `format` makes of every element times 2^log2_scale; the product is exact. Not for
    /// scale formats (E8M0).
    [[nodiscard]] ClassCounts classify(const FormatSpec& format, int log2_scale) const;

    bool operator==(const MagnitudeHistogram&) const = default;
};

/// How the elements of a cast are rounded.
struct CastRule {
    Rounding rounding = Rounding::nearest_even;
    bool flush = false; ///< subnormal results become zero
};

/// Whether classes under this rounding take a DirectedHistogram.
constexpr bool is_directed(Rounding rounding) {
    return rounding == Rounding::down || rounding == Rounding::up || rounding == Rounding::to_odd ||
           rounding == Rounding::stochastic;
}

/// The elements apart by the direction in which a rounding may move their magnitudes; for to_odd and stochastic all are
/// in both. Those in `away` are entered a hair below their magnitude: they exceed a value of a format where their entry
/// is at least that value, which mantissa classes can tell.
struct DirectedHistogram {
    MagnitudeHistogram toward{}, away{}; ///< of zero; finite non-zero elements only

    void add(const Unpacked& x, Rounding rounding);
    void merge(const DirectedHistogram& other);
    bool operator==(const DirectedHistogram&) const = default;
};

/// What a cast to `format` makes of every element times 2^log2_scale, exactly. Under stochastic rounding the worst that
/// the random bits can do: overflow is what can overflow, underflow what can become zero. `directed` need only be
/// filled for directed roundings.
ClassCounts classify(const MagnitudeHistogram& all, const DirectedHistogram& directed, const FormatSpec& format,
                     int log2_scale, const CastRule& rule);

/// Formats that people ask about first: those of tables and pictures where nobody asks for others.
inline constexpr std::array<std::string_view, 4> usual_formats = {"fp16", "bf16", "e4m3", "e5m2"};

/// The same, those of many exponent bits first.
std::vector<FormatSpec> usual_formats_by_range();

/// Binary exponents of loss scales, both ends included.
struct Window {
    int low = 0, high = 0;
    bool operator==(const Window&) const = default;
};

/// The loss scale for one format: where nothing overflows and little underflows.
struct Recommendation {
    std::optional<int> log2_scale{}; ///< none if the window is empty or lies above largest_log2_scale
    std::optional<Window> window{};  ///< no overflow, and underflow / nonzero below the limit
    int lowest_enough = 0;           ///< smallest scale with underflow / nonzero below the limit
    int highest_safe = 0;            ///< largest scale without overflow; below lowest_enough where the window is empty
};

struct RecommendationOptions {
    int margin = 2;       ///< binades between the recommended scale and the first overflow
    double limit = 0.001; ///< of underflow / nonzero
};

/// 2^126 is the largest power of two whose inverse, by which gradients are unscaled, is a normal FP32 value.
inline constexpr int largest_log2_scale = 126;

/// No scaling (2^0) if 1 lies in the window, else the largest power of two up to 2^126 that stays `margin` binades from
/// overflow; the margin may reach below the window, the limit of 2^126 may not. Counted as classify() does, so under
/// stochastic rounding the window is safe whatever the random bits. Where nothing can become zero (roundings up, down
/// and to odd) the window reaches down to where all elements lie below the format. Infinities and NaN do not count.
/// Without any finite non-zero element every scale will do: 2^0, no window.
Recommendation recommend(const MagnitudeHistogram& all, const DirectedHistogram& directed, const FormatSpec& format,
                         const CastRule& rule, const RecommendationOptions& options = {});

/// The same for nearest-even.
Recommendation recommend(const MagnitudeHistogram& histogram, const FormatSpec& format,
                         const RecommendationOptions& options = {});

} // namespace amp
