#include <ampscope/sim/analysis/histogram.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace amp {

namespace {

/// The first class with at least `ones` leading ones.
constexpr int class_of_ones(int ones) { return ones == 0 ? 0 : ones < 3 ? ones + 1 : ones + 3; }

std::uint64_t sum_from(const MantissaRow& row, int first) {
    return std::accumulate(row.begin() + std::min(first, mantissa_classes), row.end(), std::uint64_t{0});
}

/// The lower end of a class of magnitudes: larger binades reach it, and in its own binade mantissa classes from
/// first_class on.
struct Edge {
    int exponent;
    int first_class = 0;
};
constexpr Edge always{std::numeric_limits<int>::min()}, never{std::numeric_limits<int>::max()};

/// The lower ends of subnormal, normal and overflow.
using Edges = std::array<Edge, 3>;

/// Whether the largest value's fraction is all ones but the last bit, as in E4M3; in the other formats it is all ones.
bool ends_below_its_binade(const FormatSpec& format) {
    return (format.max_code() & format.fraction_mask()) != format.fraction_mask();
}

/// A new format of numbers in the table must end in a way that histograms count.
constexpr bool is_counted_or_not_a_float(const FormatSpec& f) {
    return is_counted(f) || f.is_scale() || f.is_integer();
}
static_assert(std::ranges::all_of(formats, is_counted_or_not_a_float));

bool ends_even(const FormatSpec& format) { return format.max_code() % 2 == 0; }

/// Whether all values but zero are normal: integers, and formats without a fraction.
bool has_no_subnormals(const FormatSpec& format) { return format.is_integer() || format.fraction_bits == 0; }

/// The first of the mantissa classes 3 to 5, which compare with a tie, that is rounded up from a largest value.
int tie_class(const FormatSpec& format, bool ties_away) { return ties_away || !ends_even(format) ? 4 : 5; }

/// Edges for rounding to nearest: the ties, which go to the even neighbour. Ties at half the smallest subnormal and at
/// 464, above E4M3's largest value 448, are rounded down; the other ties, whose lower neighbour is odd, are rounded up.
/// Where no class tells how the format ends, FineHistogram::ends has E4M3's classes for it.
Edges nearest_edges(const FormatSpec& format, bool ties_away) {
    const int t = format.precision() - 1;
    const Edge least{format.min_subnormal_exponent() - 1, ties_away ? 0 : 1};
    const bool at_tie = ends_below_its_binade(format) || !classes_tell(format);
    return {least, has_no_subnormals(format) ? least : Edge{format.min_exponent() - 1, class_of_ones(t)},
            Edge{format.max_exponent(), at_tie ? tie_class(format, ties_away) : class_of_ones(t + 1)}};
}

/// Edges for rounding magnitudes down: the first value of each class; for overflow the value that would follow the
/// largest.
Edges toward_edges(const FormatSpec& format) {
    return {Edge{format.min_subnormal_exponent()}, Edge{format.min_exponent()},
            ends_below_its_binade(format) ? Edge{format.max_exponent(), class_of_ones(format.precision() - 1)}
                                          : Edge{format.max_exponent() + 1}};
}

/// Edges for rounding magnitudes up: zero, the largest subnormal and the largest value, which the reduced entries of
/// `away` reach only if the magnitude lies above them.
Edges away_edges(const FormatSpec& format) {
    const int t = format.precision() - 1;
    return {always, has_no_subnormals(format) ? always : Edge{format.min_exponent() - 1, class_of_ones(t - 1)},
            Edge{format.max_exponent(), class_of_ones(ends_below_its_binade(format) ? t - 1 : t)}};
}

/// Counts the elements that, times 2^log2_scale, reach the edge.
std::uint64_t reaching(const MagnitudeHistogram& histogram, const Edge& edge, int log2_scale) {
    std::uint64_t count = 0;
    for (const auto& [exponent, row] : histogram.rows)
        if (exponent + log2_scale >= edge.exponent)
            count += sum_from(row, exponent + log2_scale == edge.exponent ? edge.first_class : 0);
    return count;
}

std::array<std::uint64_t, 3> reaching(const MagnitudeHistogram& histogram, const Edges& edges, int log2_scale) {
    std::array<std::uint64_t, 3> counts{};
    for (std::size_t i = 0; i < edges.size(); ++i) counts[i] = reaching(histogram, edges[i], log2_scale);
    return counts;
}

/// The mantissa of the tie that follows a last fraction of `bits` bits, all ones but the last: 1 ... 101 in binary, of
/// one bit more. Without a fraction it lies in the middle of the binade.
constexpr std::uint64_t tie_after(int bits) {
    return bits == 0 ? std::uint64_t{1} << 63 : ~std::uint64_t{0} << 1 << (64 - bits) | std::uint64_t{1} << (63 - bits);
}
static_assert(tie_after(3) == std::uint64_t{13} << 60 && tie_after(1) == std::uint64_t{1} << 62);

/// The smallest k in [low, high] for which `holds` is true, if it is false below some k and true above; high + 1 if it
/// is never true.
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

void check_counted(const FormatSpec& format, std::string_view option, bool fine) {
    if (fine ? is_counted(format) : classes_tell(format)) return;
    if (is_counted(format))
        throw std::invalid_argument(fmt::format("{}: {} ends within a binade where a histogram does not tell numbers "
                                                "apart; amp-histogram counts it in the tensors themselves",
                                                option, format.name));
    if (format.is_scale())
        throw std::invalid_argument(
            fmt::format("{}: {} holds scales, not numbers; amp-format converts to it", option, format.name));
    // Histograms are of magnitudes: they do not tell which elements become zero for their sign, or end differently.
    throw std::invalid_argument(fmt::format(
        "{}: {} {}, and a histogram does not tell signs; amp-format converts to it, "
        "and amp-histogram --recipe general,format={} casts blocks to it",
        option, format.name, format.is_signed ? "is not symmetric" : "has no negative numbers", format.name));
}

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

std::map<int, std::uint64_t> MagnitudeHistogram::exponents() const {
    std::map<int, std::uint64_t> counts;
    for (const auto& [exponent, row] : rows) counts.emplace_hint(counts.end(), exponent, sum_from(row, 0));
    return counts;
}

void MagnitudeHistogram::add(const Unpacked& x, std::uint64_t times) {
    if (times == 0) return;
    switch (x.kind) {
    case Kind::zero: zero += times; break;
    case Kind::nan: nan += times; break;
    case Kind::infinity: inf += times; break;
    case Kind::finite: {
        const int shift = std::countl_zero(x.significand);
        const std::uint64_t mantissa = x.significand << shift << 1; // without the leading one
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

void MagnitudeHistogram::repeat(std::uint64_t times) {
    zero *= times;
    nan *= times;
    inf *= times;
    for (auto& [exponent, row] : rows)
        for (std::uint64_t& n : row) n *= times;
}

MagnitudeHistogram MagnitudeHistogram::scaled(int log2_scale) const {
    MagnitudeHistogram result{.zero = zero, .nan = nan, .inf = inf};
    for (const auto& [exponent, row] : rows) result.rows.emplace(exponent + log2_scale, row);
    return result;
}

ClassCounts MagnitudeHistogram::classify(const FormatSpec& format, int log2_scale) const {
    return amp::classify(*this, {}, format, log2_scale, {});
}

FineNeeds fine_needs(std::span<const FormatSpec> wanted, Rounding rounding) {
    FineNeeds needs;
    if (is_directed(rounding)) needs.directed = rounding;
    else if (rounding != Rounding::toward_zero)
        for (const FormatSpec& f : wanted)
            if (is_counted(f) && !classes_tell(f)) needs.ends.insert(f.fraction_bits);
    return needs;
}

void FineHistogram::add(const Unpacked& x, const FineNeeds& needs, std::uint64_t times) {
    if (x.kind != Kind::finite || times == 0) return;
    const int shift = std::countl_zero(x.significand);
    const std::uint64_t leading = x.significand << shift;
    for (const int bits : needs.ends) {
        const std::uint64_t tie = tie_after(bits), mantissa = leading << 1; // without the leading one
        const std::size_t entered = mantissa < tie ? 3 : mantissa == tie ? 4 : 5;
        ends[bits].rows[x.exponent + 63 - shift][entered] += times;
    }
    if (!needs.directed) return;
    const bool either = *needs.directed == Rounding::to_odd || *needs.directed == Rounding::stochastic;
    const bool grows = x.sign == (*needs.directed == Rounding::down);
    if (either || !grows) toward.add(x, times);
    if (!either && !grows) return;
    // The reduction is 2^-63 of the leading bit: less than the values of any source differ by.
    away.add({.kind = Kind::finite, .exponent = x.exponent - shift, .significand = leading - 1}, times);
}

void FineHistogram::merge(const FineHistogram& other) {
    toward.merge(other.toward);
    away.merge(other.away);
    for (const auto& [bits, histogram] : other.ends) ends[bits].merge(histogram);
}

void FineHistogram::repeat(std::uint64_t times) {
    toward.repeat(times);
    away.repeat(times);
    for (auto& [bits, histogram] : ends) histogram.repeat(times);
}

ClassCounts classify(const MagnitudeHistogram& all, const FineHistogram& fine, const FormatSpec& format, int log2_scale,
                     const CastRule& rule) {
    // 1. Where the classes begin for elements rounded toward zero (or to nearest) and for those rounded away from it.
    const bool apart = is_directed(rule.rounding);
    Edges toward = toward_edges(format), away = away_edges(format);
    switch (rule.rounding) {
    case Rounding::nearest_even: toward = nearest_edges(format, false); break;
    case Rounding::nearest_away: toward = nearest_edges(format, true); break;
    case Rounding::toward_zero:
    case Rounding::down:
    case Rounding::up: break;
    case Rounding::to_odd: // never passes an odd value, and only a largest one like E4M3's is even
        toward[0] = always;
        if (has_no_subnormals(format)) toward[1] = always;
        (ends_even(format) ? toward : away)[2] = never;
        away[0] = away[1] = never;
        break;
    case Rounding::stochastic: // the worst case at each edge
        toward[2] = away[0] = away[1] = never;
        break;
    }
    // 2. How many elements reach each class.
    const MagnitudeHistogram& down = apart ? fine.toward : all;
    std::array<std::uint64_t, 3> reached = reaching(down, toward, log2_scale);
    if (apart) {
        const std::array<std::uint64_t, 3> more = reaching(fine.away, away, log2_scale);
        for (std::size_t i = 0; i < reached.size(); ++i) reached[i] += more[i];
    } else if (rule.rounding != Rounding::toward_zero && !classes_tell(format)) {
        const auto end = fine.ends.find(format.fraction_bits); // without it there is no element that is not zero
        reached[2] = end == fine.ends.end() ? 0 : reaching(end->second, toward[2], log2_scale);
    }
    // 3. How many stay in each.
    ClassCounts counts{all.nonzero() - reached[0], reached[0] - reached[1], reached[1] - reached[2], reached[2]};
    if (rule.flush) counts.underflow += std::exchange(counts.subnormal, 0);
    return counts;
}

Recommendation recommend(const MagnitudeHistogram& all, const FineHistogram& fine, const FormatSpec& format,
                         const CastRule& rule, const RecommendationOptions& options, const Censoring& censoring) {
    const FloatEnvironment environment;
    const std::uint64_t nonzero = all.nonzero();
    Recommendation result;
    if (format.exponent_bits < fp32_format().exponent_bits) result.censoring = censoring;
    const std::uint64_t hidden = result.censoring.zeros;
    if (nonzero == 0) {
        if (hidden > 0 || result.censoring.hides_terms()) result.known = Known::unknown;
        return result;
    }
    // Beyond these scales all elements lie outside the format, at one end or the other.
    const int smallest = all.rows.begin()->first, largest = all.rows.rbegin()->first;
    const int low = format.min_subnormal_exponent() - largest - 4, high = format.max_exponent() - smallest + 4;
    const auto counts = [&](int k) { return classify(all, fine, format, k, rule); };
    const auto lowest_enough = [&](std::uint64_t unseen) { // if so many more have underflowed
        return first_true(low, high, [&](int k) {
            return static_cast<double>(counts(k).underflow + unseen) <
                   options.limit * static_cast<double>(nonzero + unseen);
        });
    };
    result.lowest_enough = lowest_enough(0);
    result.highest_safe = first_true(low, high, [&](int k) { return counts(k).overflow > 0; }) - 1;
    if (result.lowest_enough > result.highest_safe) return result;
    const Window seen{result.lowest_enough, result.highest_safe};
    const Window sure{hidden == 0 ? seen.low : lowest_enough(hidden), seen.high};
    const auto holds_one = [](const Window& window) { return window.low <= 0 && 0 <= window.high; };
    if (sure.low <= sure.high) result.window = sure;
    else result.known = holds_one(seen) ? Known::unknown : Known::bound;
    if (result.known == Known::unknown || (result.window ? sure : seen).low > largest_log2_scale) return result;
    const bool unscaled = result.window && holds_one(sure);
    if (unscaled && result.censoring.hides_terms()) {
        result.known = Known::unknown;
        result.window.reset();
        return result;
    }
    result.log2_scale = unscaled ? 0 : std::min(largest_log2_scale, result.highest_safe - options.margin);
    return result;
}

Recommendation recommend(const MagnitudeHistogram& histogram, const FormatSpec& format,
                         const RecommendationOptions& options, const Censoring& censoring) {
    return recommend(histogram, {}, format, {}, options, censoring);
}

std::string way_to_know(bool activations, int highest_safe) {
    return fmt::format(
        "To find out, record a few steps of the same training in FP32 (PyTorch: without autocast{}; "
        "amp-train: --precision fp32), in BF16, or under a larger loss scale{}, and ask again.",
        activations ? ", and with activations=True" : "",
        highest_safe > 0 ? fmt::format(" (nothing recorded overflows up to {})", power_of_two(highest_safe)) : "");
}

std::string way_to_know(const Recommendation& recommendation) {
    return way_to_know(recommendation.censoring.hides_terms(), recommendation.highest_safe);
}

std::vector<FormatSpec> usual_formats_by_range() {
    std::vector<FormatSpec> specs(usual_specs.begin(), usual_specs.end());
    std::ranges::stable_sort(specs, std::greater{}, &FormatSpec::exponent_bits);
    return specs;
}

} // namespace amp
