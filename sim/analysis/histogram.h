// The exact magnitude histogram: a small table of integers. From it follows, for every format and every power-of-two
// scale, exactly how many elements underflow, become subnormal, stay normal or overflow: for the roundings
// nearest-even, nearest-away and toward zero, and with further such tables (FineHistogram) for the other roundings and
// for formats of IEEE P3109 that end elsewhere.
//
// Why it suffices: let |x| = 2^e * (1 + m), rounded to nearest even with t fraction bits. Its class depends on e and on
// only three facts about m: whether m is 0 (half the smallest subnormal ties to zero); how many leading ones it has
// (from t of them on x rounds up to the smallest normal, from t + 1 on beyond the largest value); and, for E4M3,
// whether it is below, at or above 0.8125 (464 ties down to 448). So 28 classes of m per exponent decide everything.
#pragma once

#include <ampscope/formats/bits.h>
#include <ampscope/formats/codec.h>
#include <ampscope/sim/analysis/censoring.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

namespace amp {

/// Number of classes of the mantissa m in (1 + m): class 0: m = 0; 1 and 2: no and one leading one; 3, 4, 5: two
/// leading ones and m below, at, above 0.8125; 6 ... 26: 3 ... 23 leading ones; 27: 24 or more.
inline constexpr int mantissa_classes = 28;
using MantissaRow = std::array<std::uint64_t, mantissa_classes>;

/// The class of m = mantissa / 2^64.
constexpr int mantissa_class(std::uint64_t mantissa) {
    constexpr std::uint64_t e4m3_tie = std::uint64_t{13} << 60; // 0.8125
    const int ones = leading_zeros(~mantissa);
    return (ones < 24 ? ones : 24) + 1 + int{mantissa >= e4m3_tie} + int{mantissa > e4m3_tie} - int{mantissa == 0};
}

/// Counts of the finite non-zero elements by what a cast to a format makes of them.
struct ClassCounts {
    std::uint64_t underflow = 0; ///< rounds to zero
    std::uint64_t subnormal = 0; ///< rounds to a non-zero value below the smallest normal
    std::uint64_t normal = 0;
    std::uint64_t overflow = 0; ///< rounds, as if the exponent were unbounded, above the largest finite value

    ClassCounts& operator+=(const ClassCounts& other);
    bool operator==(const ClassCounts&) const = default;
};

/// Counts of elements by magnitude. Merging adds integers, so it is associative and commutative: tensors, files,
/// threads and machines merge exactly.
struct MagnitudeHistogram {
    std::uint64_t zero = 0; ///< +0 and -0
    std::uint64_t nan = 0;
    std::uint64_t inf = 0;
    std::map<int, MantissaRow> rows{}; ///< counts by floor(log2|x|); no row is all zeros

    [[nodiscard]] std::uint64_t nonzero() const; ///< number of finite elements that are not zero
    [[nodiscard]] std::uint64_t count() const { return zero + nan + inf + nonzero(); }
    /// The finite elements that are not zero by floor(log2|x|), whatever the class of their mantissa.
    [[nodiscard]] std::map<int, std::uint64_t> exponents() const;

    void add(const Unpacked& x, std::uint64_t times = 1);
    void merge(const MagnitudeHistogram& other);
    /// As if every element occurred `times` times as often.
    void repeat(std::uint64_t times);
    /// The histogram of the elements times 2^log2_scale, exactly.
    [[nodiscard]] MagnitudeHistogram scaled(int log2_scale) const;

    /// Counts what nearest-even rounding to `format` makes of the elements times 2^log2_scale; the product is exact.
    /// Of formats of which classes do not tell (classes_tell()), what overflows is counted as normal.
    [[nodiscard]] ClassCounts classify(const FormatSpec& format, int log2_scale) const;

    bool operator==(const MagnitudeHistogram&) const = default;
};

/// Whether histograms count what a cast to the format does: it has both signs, which end alike (two's complement is
/// not symmetric), and the fraction of its largest value is all ones, or all ones but the last bit.
constexpr bool is_counted(const FormatSpec& f) {
    const std::uint32_t last = f.max_code() & f.fraction_mask(), ones = f.fraction_mask();
    return !f.is_scale() && f.is_signed && f.max_code(true) == f.max_code() && (last == ones || last + 1 == ones);
}

/// Whether mantissa classes tell where a cast to the format overflows: the fraction of the largest value is all ones,
/// or E4M3's. Formats of IEEE P3109 with infinities, or without a fraction, end elsewhere: FineHistogram::ends tells.
constexpr bool classes_tell(const FormatSpec& f) {
    const bool ones = (f.max_code() & f.fraction_mask()) == f.fraction_mask();
    return is_counted(f) && f.fraction_bits > 0 && (ones || f.fraction_bits == 3);
}

/// Throws std::invalid_argument unless histograms count what a cast to the format does. `option` is what the user
/// asked for it by; `fine`: a FineHistogram can be measured, because the elements are at hand.
void check_counted(const FormatSpec& format, std::string_view option = "format", bool fine = false);

/// How the elements of a cast are rounded.
struct CastRule {
    Rounding rounding = Rounding::nearest_even;
    bool flush = false; ///< subnormal results become zero
};

/// Whether classes under this rounding need both directions of a FineHistogram.
constexpr bool is_directed(Rounding rounding) {
    switch (rounding) {
    case Rounding::nearest_even:
    case Rounding::nearest_away:
    case Rounding::toward_zero: return false;
    case Rounding::down:
    case Rounding::up:
    case Rounding::to_odd:
    case Rounding::stochastic: break;
    }
    return true;
}

/// What a FineHistogram has to tell.
struct FineNeeds {
    std::optional<Rounding> directed{}; ///< the rounding, if it is directed
    std::set<int> ends{};               ///< fraction bits of the formats whose end no mantissa class tells

    [[nodiscard]] bool any() const { return directed || !ends.empty(); }
};

/// What casts to these formats need beside a MagnitudeHistogram.
FineNeeds fine_needs(std::span<const FormatSpec> wanted, Rounding rounding);

/// Histograms of the finite non-zero elements for casts that depend on more than the classes of their magnitudes.
///
/// For directed roundings: one of the elements whose magnitude may be rounded toward zero, and one of those whose
/// magnitude may be rounded away from it. For to_odd and stochastic every element is in both. Entries of `away` are
/// slightly reduced: a magnitude exceeds a value of a format iff its reduced entry is at least that value, which
/// mantissa classes can tell.
///
/// For roundings to nearest: where formats end whose last fraction is t bits, all ones but the last (or no bits at
/// all), `ends` has a histogram by t. An element above, at or below the tie that follows that fraction is entered as if
/// it were so of E4M3's, 0.8125, in its own binade.
struct FineHistogram {
    MagnitudeHistogram toward{}, away{};
    std::map<int, MagnitudeHistogram> ends{};

    void add(const Unpacked& x, const FineNeeds& needs, std::uint64_t times = 1);
    void merge(const FineHistogram& other);
    /// As if every element occurred `times` times as often.
    void repeat(std::uint64_t times);
    bool operator==(const FineHistogram&) const = default;
};

/// Counts what a cast to `format` makes of the elements times 2^log2_scale, exactly. Under stochastic rounding it
/// counts the worst that random bits can do: `overflow` counts all that can overflow, `underflow` all that can become
/// zero. `fine` is used where fine_needs() says so.
ClassCounts classify(const MagnitudeHistogram& all, const FineHistogram& fine, const FormatSpec& format, int log2_scale,
                     const CastRule& rule);

/// The formats that tables and pictures show unless others are asked for.
inline constexpr std::array<std::string_view, 4> usual_formats = {"fp16", "bf16", "e4m3", "e5m2"};

/// Their rows of the format table, in that order.
inline constexpr auto usual_specs = [] {
    std::array<FormatSpec, usual_formats.size()> specs{};
    for (std::size_t i = 0; i < specs.size(); ++i) specs[i] = format(usual_formats[i]);
    return specs;
}();

/// The same, those of many exponent bits first.
std::vector<FormatSpec> usual_formats_by_range();

/// A range of log2 of loss scales, both ends included.
struct Window {
    int low = 0, high = 0;
    bool operator==(const Window&) const = default;
};

/// The recommended loss scale for one format: nothing overflows and little underflows. What the record hides is never
/// taken for nothing: a window or a scale that is given holds whatever has underflowed before.
struct Recommendation {
    /// log2 of the scale. None: no scale will do, all are above largest_log2_scale, unknown, or all is zero or NaN.
    std::optional<int> log2_scale{};
    std::optional<Window> window{}; ///< scales without overflow and with underflow / nonzero surely below the limit
    int lowest_enough = 0; ///< log2 of the smallest scale with underflow / nonzero of what was recorded below the limit
    int highest_safe = 0;  ///< log2 of the largest scale without overflow; if below lowest_enough, no scale will do
    /// bound: a scale is needed, and the recommended one loses least of those that are safe, but whether it loses less
    /// than the limit is unknown. unknown: whether a scale is needed is unknown. Both without a window.
    Known known = Known::exact;
    Censoring censoring{}; ///< what was hidden of the gradients; nothing for formats of FP32's range
};

struct RecommendationOptions {
    int margin = 2;       ///< binades between the recommended scale and the first overflow
    double limit = 0.001; ///< underflow / nonzero must be below it
};

/// 2^126 is the largest power of two whose inverse, which unscales gradients, is a normal FP32 value.
inline constexpr int largest_log2_scale = 126;

/// Recommends no scaling (2^0) if the window contains it, else the largest power of two up to 2^126 that stays `margin`
/// binades below overflow. Because of the margin the scale may lie below the window; because of the limit of 2^126 it
/// may not. Counts are those of classify(), so under stochastic rounding the window is safe for any random bits. Where
/// nothing can become zero (roundings up, down and to odd) the window reaches down to scales at which all elements lie
/// below the format. Infinities and NaN do not count. Without any finite non-zero element there is nothing to go by: no
/// scale and no window.
///
/// Where gradients had underflowed before they were recorded, of n non-zero elements and z zeros between u / n and
/// (u + z) / (n + z) underflow, u of the n being counted. A scale is taken to be enough if the latter is below the
/// limit, and not to be enough if the former is not; between them it is unknown. That no scale is needed is unknown,
/// too, where terms of the recorded sums may have underflowed. A format of FP32's range is taken to hold whatever a
/// smaller one has flushed.
Recommendation recommend(const MagnitudeHistogram& all, const FineHistogram& fine, const FormatSpec& format,
                         const CastRule& rule, const RecommendationOptions& options = {},
                         const Censoring& censoring = {});

/// The same for nearest-even.
Recommendation recommend(const MagnitudeHistogram& histogram, const FormatSpec& format,
                         const RecommendationOptions& options = {}, const Censoring& censoring = {});

/// How to find out what the record of gradients hides: "To find out, record ...", a sentence. `activations`: with the
/// gradients of these, too; `highest_safe`: log2 of the largest loss scale at which nothing recorded overflows.
std::string way_to_know(bool activations = false, int highest_safe = 0);

/// The same for the gradients that a recommendation is about.
std::string way_to_know(const Recommendation& recommendation);

} // namespace amp
