#include <ampscope/tools/histogram/report.h>

#include <ampscope/tools/chart/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace amp {

namespace {

std::string upper_case(std::string_view name) {
    std::string out(name);
    std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return out;
}

/// What the tensors say one by one.
struct PerTensor {
    std::string upper; ///< the first tensor to overflow as the scale grows
    std::string lower; ///< the tensor that loses most elements at the largest safe scale
    std::uint64_t with_window = 0, counted = 0;
};

PerTensor per_tensor(const Findings& findings, const FormatSpec& format, const Recommendation& total,
                     const HistogramOptions& options) {
    PerTensor result;
    std::optional<int> lowest_end;
    std::uint64_t most = 0;
    for (const Entry& tensor : findings.tensors) {
        const MagnitudeHistogram& histogram = tensor.magnitudes.histogram;
        if (histogram.nonzero() == 0) continue;
        const Recommendation own = recommend(histogram, format, options.recommendation);
        ++result.counted;
        result.with_window += own.window ? 1 : 0;
        if (!lowest_end || own.highest_safe < *lowest_end) {
            lowest_end = own.highest_safe;
            result.upper = printable(tensor.name);
        }
        const std::uint64_t lost = histogram.classify(format, total.highest_safe).underflow;
        if (lost > most) {
            most = lost;
            result.lower = printable(tensor.name);
        }
    }
    return result;
}

std::string unscaled(const Entry& total, const FormatSpec& format, const HistogramOptions& options) {
    const CastCounts counts = counts_at(total, format, 1, options);
    const auto nonzero = static_cast<double>(total.magnitudes.histogram.nonzero());
    if (counts.underflow + counts.overflow == 0) return "nothing becomes zero or overflows unscaled";
    constexpr std::string_view of = " of non-zero gradients";
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

} // namespace

std::string advice(const Findings& findings, const FormatSpec& format, const HistogramOptions& options) {
    constexpr std::size_t name_width = 30;
    const MagnitudeHistogram& histogram = findings.total.magnitudes.histogram;
    const std::string name = upper_case(format.name);
    const std::uint64_t nonzero = histogram.nonzero();
    if (nonzero == 0) return name + ": no finite non-zero gradient; every scale will do.";
    const Recommendation total = recommend(histogram, format, options.recommendation);
    const std::string start = name + ": " + unscaled(findings.total, format, options);
    const std::string limit = fmt::format("{:g} %", 100 * options.recommendation.limit);
    if (total.log2_scale == 0) {
        const bool some = histogram.classify(format, 0).underflow > 0;
        return start + (some ? ", under the limit of " + limit : "") + "; no loss scale needed.";
    }

    const PerTensor tensors = per_tensor(findings, format, total, options);
    const std::string upper = clipped(tensors.upper, name_width), lower = clipped(tensors.lower, name_width);
    if (total.window) {
        std::string text =
            fmt::format("{}; {} under {} and overflow{} nowhere; {} sets the upper end.", start,
                        window_text(*total.window), limit, total.window->low == total.window->high ? "s" : "", upper);
        if (*total.log2_scale < total.window->low)
            text += fmt::format(" With a margin of {} binades: {}, which loses {}.", options.recommendation.margin,
                                power_of_two(*total.log2_scale),
                                percent(histogram.classify(format, *total.log2_scale).underflow, nonzero));
        return text;
    }
    const std::uint64_t lost = histogram.classify(format, total.highest_safe).underflow;
    std::string text = fmt::format("{}; no single scale will do: under {} needs {}, but {} overflows beyond {}, where "
                                   "{} still become zero, most of them in {}.",
                                   start, limit, power_of_two(total.lowest_enough), upper,
                                   power_of_two(total.highest_safe), percent(lost, nonzero), lower);
    if (tensors.counted > 1)
        text += fmt::format(" With a scale for each tensor, {} of {} tensors stay under {} and overflow nowhere.",
                            grouped(tensors.with_window), grouped(tensors.counted), limit);
    return text;
}

} // namespace amp
