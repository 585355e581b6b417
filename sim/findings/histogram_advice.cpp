#include <ampscope/sim/findings/detail/fit_advice.h>
#include <ampscope/sim/findings/detail/histogram_summary.h>

#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace amp {

namespace {

constexpr std::size_t name_width = 30;

/// The tensors that the advice names.
struct PerTensor {
    std::string upper; ///< the first tensor to overflow as the scale grows; by name among equals
    std::string lower; ///< the tensor that loses most elements at the largest safe scale; by name among equals
    std::uint64_t with_window = 0, known = 0, counted = 0; ///< known: whether a scale of its own would do
};

PerTensor per_tensor(const std::vector<HistogramEntry>& tensors, const FormatSpec& format, const Recommendation& total,
                     const HistogramOptions& options) {
    PerTensor result;
    std::optional<int> lowest_end;
    std::uint64_t most = 0;
    for (const HistogramEntry& tensor : tensors) {
        if (!tensor.is_gradient() || tensor.magnitudes.histogram.nonzero() == 0) continue;
        const Recommendation own = recommendation_of(tensor, format, options);
        ++result.counted;
        result.with_window += own.window ? 1 : 0;
        result.known += own.known == Known::exact ? 1 : 0;
        const std::string name = printable(tensor.name);
        if (!lowest_end || std::tie(own.highest_safe, name) < std::tie(*lowest_end, result.upper)) {
            lowest_end = own.highest_safe;
            result.upper = name;
        }
        const std::uint64_t lost = classes_at(tensor, format, total.highest_safe, options).underflow;
        if (lost > most || (lost == most && lost > 0 && name < result.lower)) {
            most = lost;
            result.lower = name;
        }
    }
    return result;
}

/// What no format and no scale holds; empty if all gradients are finite.
std::string nonfinite_text(const KindFindings& kind, const std::vector<HistogramEntry>& entries) {
    const MagnitudeHistogram& all = kind.total.magnitudes.histogram;
    const HistogramEntry* first = nullptr;
    std::uint64_t broken = 0;
    bool scaled = false, stated = true;
    for (const HistogramEntry& tensor : entries) {
        const MagnitudeHistogram& own = tensor.magnitudes.histogram;
        if (!tensor.kinds.within(kind.group->kinds) || own.nan + own.inf == 0) continue;
        ++broken;
        scaled = scaled || tensor.recorded_scale.value_or(1) > 1;
        stated = stated && tensor.scale_stated;
        if (first == nullptr || std::tie(tensor.step, tensor.name) < std::tie(first->step, first->name))
            first = &tensor;
    }
    if (first == nullptr) return "";
    return fmt::format("{} in {} of {} {} NaN or infinite as recorded, first in {}{}: {}.{}",
                       plural(all.nan + all.inf, "element"), grouped(broken), plural(kind.total.tensors, "tensor"),
                       all.nan + all.inf == 1 ? "is" : "are", shortened_name(printable(first->name), name_width),
                       first->step ? fmt::format(" in step {}", *first->step) : "",
                       scaled ? "a smaller loss scale than the one of the record mends what overflowed under that, and "
                                "none mends what the network itself made so"
                       : stated ? "no loss scale mends that"
                                : "no loss scale mends that, unless they still contain one that their files do not "
                                  "state (--recorded-scale)",
                       all.nan + all.inf == all.count() ? "" : " What follows is about the other elements.");
}

/// `recorded`: some gradients had underflowed before they were recorded.
std::string unscaled_text(const CastCounts& counts, std::uint64_t elements, bool recorded) {
    const auto nonzero = static_cast<double>(elements);
    if (counts.underflow + counts.overflow == 0)
        return fmt::format("nothing{} becomes zero or overflows unscaled", recorded ? " recorded as non-zero" : "");
    const std::string_view of = recorded ? " of the gradients recorded as non-zero" : " of non-zero gradients";
    std::string text;
    if (counts.underflow > 0) text = fmt::format("{}{} become zero", percent(counts.underflow / nonzero), of);
    if (counts.overflow > 0)
        text += fmt::format("{}{}{} overflow", text.empty() ? "" : " and ", percent(counts.overflow / nonzero),
                            text.empty() ? of : "");
    return text + " unscaled";
}

std::string window_text(const Window& window) {
    return window.low == window.high
               ? power_of_two(window.low) + " loses"
               : fmt::format("{} ... {} lose", power_of_two(window.low), power_of_two(window.high));
}

/// What a scale for each tensor would do, in a sentence; empty if there is one tensor alone.
std::string own_scales_text(const PerTensor& tensors, const std::string& limit) {
    const std::uint64_t open = tensors.counted - tensors.known;
    if (tensors.counted < 2) return "";
    if (tensors.known == 0) return " Whether a scale for each tensor would do is unknown.";
    return fmt::format(" With a scale for each tensor, {} of {} stay under {} and overflow nowhere{}.",
                       grouped(tensors.with_window),
                       open == 0 ? plural(tensors.counted, "tensor")
                                 : fmt::format("the {} of which it is known", plural(tensors.known, "tensor")),
                       limit,
                       open == 0 ? ""
                                 : fmt::format("; of {} more it is unknown, as more may have underflowed than was "
                                               "recorded",
                                               grouped(open)));
}

/// Which loss scale gradients need in a format.
std::string loss_scale_advice(const KindFindings& kind, const std::vector<HistogramEntry>& entries, std::size_t index,
                              const HistogramOptions& options) {
    const HistogramEntry& all = kind.total;
    const FormatSpec& format = options.formats[index];
    const std::string name = upper_case(format.name);
    const std::uint64_t nonzero = all.magnitudes.histogram.nonzero();
    const Recommendation& total = kind.formats[index].recommendation;
    const std::string hidden =
        total.known == Known::exact ? "" : fmt::format("{}. {}", censoring_text(total.censoring), way_to_know(total));
    if (nonzero == 0 && !hidden.empty()) return fmt::format("{}: which scale it needs is unknown, as {}", name, hidden);
    if (nonzero == 0)
        return name + (all.magnitudes.histogram.zero == all.magnitudes.histogram.count()
                           ? ": no finite non-zero gradient; every scale will do."
                           : ": no finite non-zero gradient, so which scale it needs is unknown.");
    const auto lost_at = [&](int k) { return classes_at(all, format, k, options).underflow; };
    // Under stochastic rounding the first sentence states expectations; the next ones hold for any random bits.
    const bool random = options.policy.rounding == Rounding::stochastic;
    const std::string whatever = random ? " whatever the random bits" : "", up_to = random ? "up to " : "";
    const std::string start = name + ": " + unscaled_text(all.unscaled[index], nonzero, total.censoring.hides());
    const std::string limit = limit_percent(options.recommendation.limit);
    if (total.window && total.window->low <= 0 && 0 <= total.window->high)
        return start + (lost_at(0) > 0 ? ", under the limit of " + limit + whatever : "") + "; no loss scale needed." +
               (format.exponent_bits < fp32_format().exponent_bits && !all.censoring.terms
                    ? fmt::format(" {}", without_activations)
                    : "");

    if (total.known == Known::unknown)
        return fmt::format("{}; whether it needs a loss scale is unknown, as {}", start, hidden);
    const PerTensor tensors = per_tensor(entries, format, total, options);
    const std::string upper = shortened_name(tensors.upper, name_width),
                      lower = shortened_name(tensors.lower, name_width);
    if (total.window) {
        std::string text = fmt::format("{}; {} under {} and overflow{} nowhere{}; {} sets the upper end.", start,
                                       window_text(*total.window), limit,
                                       total.window->low == total.window->high ? "s" : "", whatever, upper);
        if (!total.log2_scale)
            text += fmt::format(" None is recommended: all are beyond {}, whose inverse is the smallest that FP32 "
                                "holds as a normal number.",
                                power_of_two(largest_log2_scale));
        else if (*total.log2_scale < total.window->low)
            text += fmt::format(" With a margin of {}: {}, which loses {}{}.",
                                plural(static_cast<std::uint64_t>(options.recommendation.margin), "binade"),
                                power_of_two(*total.log2_scale), up_to, percent(lost_at(*total.log2_scale), nonzero));
        else if (random)
            text += fmt::format(" Recommended: {}, which loses up to {}.", power_of_two(*total.log2_scale),
                                percent(lost_at(*total.log2_scale), nonzero));
        return text;
    }
    if (total.known == Known::bound)
        return fmt::format("{}; it needs a loss scale, {}: {} overflows beyond {}. Whether less than {} become zero "
                           "there is unknown, as {}",
                           start, total.log2_scale ? power_of_two(*total.log2_scale) : "but none is large enough",
                           upper, power_of_two(total.highest_safe), limit, hidden);
    std::string text = fmt::format("{}; no single scale will do{}: under {} needs {}, but {} {} beyond {}, where {}{} "
                                   "still become zero, most of them in {}.",
                                   start, whatever, limit, power_of_two(total.lowest_enough), upper,
                                   random ? "can overflow" : "overflows", power_of_two(total.highest_safe), up_to,
                                   percent(lost_at(total.highest_safe), nonzero), lower);
    return text + own_scales_text(tensors, limit);
}

/// The tensor of which `number` is largest, by name among equals; null if it is 0 for all.
template <class Number>
const HistogramEntry* largest_by(const std::vector<const HistogramEntry*>& tensors, const Number& number) {
    const HistogramEntry* largest = nullptr;
    double most = 0;
    for (const HistogramEntry* tensor : tensors) {
        const auto n = static_cast<double>(number(*tensor));
        if (n == 0 || n < most || (n == most && largest->name <= tensor->name)) continue;
        largest = tensor;
        most = n;
    }
    return largest;
}

/// How a format holds tensors that no loss scale multiplies.
std::string fit_text(const KindFindings& kind, const std::vector<HistogramEntry>& entries, std::size_t index,
                     const HistogramOptions& options) {
    std::vector<const HistogramEntry*> tensors;
    for (const HistogramEntry& tensor : entries)
        if (tensor.kinds.within(kind.group->kinds)) tensors.push_back(&tensor);
    const auto magnitude_beyond = [&](const HistogramEntry& t) { // of tensors that overflow
        if (t.fits[index].overflowing == 0) return 0.0;
        return t.measured ? t.magnitudes.max : std::ldexp(1.0, t.magnitudes.histogram.rows.rbegin()->first);
    };
    const HistogramEntry* const largest = largest_by(tensors, magnitude_beyond);
    const auto name = [](const HistogramEntry* tensor) {
        return tensor == nullptr ? std::string() : printable(tensor->name);
    };
    return detail::fit_advice(
        {.format = options.formats[index],
         .fit = kind.total.fits[index],
         .nonzero = kind.total.magnitudes.histogram.nonzero(),
         .group = kind.group->name,
         .noun = kind.group->noun,
         .largest = name(largest),
         .largest_value = largest == nullptr ? "" : largest->largest_text(),
         .worst = name(largest_by(tensors, [&](const auto& t) { return t.fits[index].unscaled.underflow; })),
         .worst_scaled = name(largest_by(tensors, [&](const auto& t) { return t.fits[index].scaled.underflow; })),
         .limit = options.recommendation.limit,
         .random = options.policy.rounding == Rounding::stochastic});
}

} // namespace

std::vector<std::string> detail::histogram_advice(const KindFindings& kind, const std::vector<HistogramEntry>& tensors,
                                                  const HistogramOptions& options) {
    std::vector<std::string> lines;
    if (kind.total.is_gradient())
        if (const std::string text = nonfinite_text(kind, tensors); !text.empty()) lines.push_back(text);
    for (std::size_t i = 0; i < options.formats.size(); ++i)
        lines.push_back(kind.total.is_gradient() ? loss_scale_advice(kind, tensors, i, options)
                                                 : fit_text(kind, tensors, i, options));
    return lines;
}

} // namespace amp
