#include <ampscope/sim/analysis/histogram.h>

#include <algorithm>
#include <numeric>

namespace amp {

namespace {

/// The first class with at least `ones` leading ones.
constexpr int class_of_ones(int ones) { return ones < 3 ? ones + 1 : ones + 3; }

std::uint64_t sum_from(const MantissaRow& row, int first) {
    return std::accumulate(row.begin() + std::min(first, mantissa_classes), row.end(), std::uint64_t{0});
}

/// The first mantissa class that overflows in the binade of the largest finite value.
int first_overflowing_class(const FormatSpec& format) {
    if (format.nonfinite != NonFinite::nan_only) return class_of_ones(format.fraction_bits + 1);
    // The largest fraction is all ones but the last, and even, so the tie above it goes down: 1.8125 for E4M3.
    constexpr auto covered = [](const FormatSpec& f) {
        return f.nonfinite != NonFinite::nan_only || f.fraction_bits == 3 || f.is_scale();
    };
    static_assert(std::ranges::all_of(formats, covered), "a new nan_only format needs a mantissa class at its tie");
    return 5;
}

/// The smallest k in [low, high] for which `holds` is true, if it is false below and true above; high + 1 if it never is.
template <class F>
int first_true(int low, int high, F holds) {
    while (low <= high) {
        const int middle = low + (high - low) / 2;
        if (holds(middle)) high = middle - 1;
        else low = middle + 1;
    }
    return low;
}

} // namespace

ClassCounts& ClassCounts::operator+=(const ClassCounts& other) {
    underflow += other.underflow;
    subnormal += other.subnormal;
    normal += other.normal;
    overflow += other.overflow;
    return *this;
}

std::uint64_t MagnitudeHistogram::nonzero() const {
    std::uint64_t total = 0;
    for (const auto& [exponent, row] : rows) total += sum_from(row, 0);
    return total;
}

void MagnitudeHistogram::add(const Unpacked& x, std::uint64_t times) {
    if (times == 0) return;
    switch (x.kind) {
    case Kind::zero: zero += times; break;
    case Kind::nan: nan += times; break;
    case Kind::infinity: inf += times; break;
    case Kind::finite: {
        const int shift = std::countl_zero(x.significand);
        const std::uint64_t mantissa = x.significand << shift << 1; // less the leading one
        rows[x.exponent + 63 - shift][static_cast<std::size_t>(mantissa_class(mantissa))] += times;
        break;
    }
    }
}

void MagnitudeHistogram::merge(const MagnitudeHistogram& other) {
    zero += other.zero;
    nan += other.nan;
    inf += other.inf;
    for (const auto& [exponent, row] : other.rows) {
        MantissaRow& mine = rows[exponent];
        for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += row[i];
    }
}

MagnitudeHistogram MagnitudeHistogram::scaled(int log2_scale) const {
    MagnitudeHistogram result{.zero = zero, .nan = nan, .inf = inf};
    for (const auto& [exponent, row] : rows) result.rows.emplace(exponent + log2_scale, row);
    return result;
}

ClassCounts MagnitudeHistogram::classify(const FormatSpec& format, int log2_scale) const {
    const int half_smallest = format.min_subnormal_exponent() - 1; // this power of two itself ties to zero
    const int last_subnormal = format.min_exponent() - 1;          // the binade that may round up to the smallest normal
    const int last = format.max_exponent();
    ClassCounts counts;
    for (const auto& [recorded, row] : rows) {
        const int exponent = recorded + log2_scale;
        const std::uint64_t all = sum_from(row, 0);
        ClassCounts part;
        if (exponent < half_smallest) part.underflow = all;
        if (exponent == half_smallest) part.underflow = row[0];
        if (exponent > last) part.overflow = all;
        if (exponent == last) part.overflow = sum_from(row, first_overflowing_class(format));
        if (exponent > last_subnormal) part.normal = all - part.overflow;
        if (exponent == last_subnormal) part.normal = sum_from(row, class_of_ones(format.fraction_bits));
        part.subnormal = all - part.underflow - part.normal - part.overflow;
        counts += part;
    }
    return counts;
}

Recommendation recommend(const MagnitudeHistogram& histogram, const FormatSpec& format, const RecommendationOptions& options) {
    const std::uint64_t nonzero = histogram.nonzero();
    if (nonzero == 0) return {.log2_scale = 0};
    // Beyond these scales every element has left the format, at one end or the other.
    const int smallest = histogram.rows.begin()->first, largest = histogram.rows.rbegin()->first;
    const int low = format.min_subnormal_exponent() - largest - 4, high = format.max_exponent() - smallest + 4;
    Recommendation result;
    result.lowest_enough = first_true(low, high, [&](int k) {
        return static_cast<double>(histogram.classify(format, k).underflow) < options.limit * static_cast<double>(nonzero);
    });
    result.highest_safe = first_true(low, high, [&](int k) { return histogram.classify(format, k).overflow > 0; }) - 1;
    if (result.lowest_enough > result.highest_safe) return result;
    result.window = Window{result.lowest_enough, result.highest_safe};
    const bool unscaled = result.window->low <= 0 && 0 <= result.window->high;
    result.log2_scale = unscaled ? 0 : std::min(126, result.highest_safe - options.margin);
    return result;
}

} // namespace amp
