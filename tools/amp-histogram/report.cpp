#include <ampscope/tools/amp-histogram/report.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/terminal.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>

namespace amp::histogram_tool {

namespace {

/// "2^13", or "3.5" for a scale that is no power of two.
std::string scale_text(double scale) {
    const auto log2 = exact_log2(scale);
    return log2 ? power_of_two(*log2) : fmt::format("{:g}", scale);
}

/// Expectations under stochastic rounding are shown as whole elements; other counts are whole.
std::uint64_t rounded(double n) { return static_cast<std::uint64_t>(std::llround(n)); }
std::string share(double n, std::uint64_t whole) { return whole == 0 ? "-" : percent(n / static_cast<double>(whole)); }

std::string magnitude(double x) { return x > 0 ? fmt::format("{:.3g} (2^{:.1f})", x, std::log2(x)) : "none"; }

std::string heading(const HistogramFindings& findings, const HistogramToolOptions& options, bool color) {
    const HistogramEntry& total = findings.total;
    const MagnitudeHistogram& histogram = total.magnitudes.histogram;
    std::set<std::string> files;
    for (const HistogramEntry& tensor : findings.tensors) files.insert(tensor.file);
    const std::uint64_t all = histogram.count();
    std::string out = inked(fmt::format("{} in {}: {}", plural(total.tensors, "tensor"), plural(files.size(), "file"),
                                        plural(all, "element")),
                            Ink::bold, color) +
                      "\n";
    out += fmt::format("zero {} ({}), NaN {}, infinite {}, of all elements\n", percent(histogram.zero, all),
                       grouped(histogram.zero), grouped(histogram.nan), grouped(histogram.inf));
    out += fmt::format("magnitudes {} to {}", magnitude(total.magnitudes.min_nonzero), magnitude(total.magnitudes.max));
    if (!total.recorded_scale) out += "; recorded scales divided out\n";
    else if (*total.recorded_scale != 1)
        out += fmt::format("; recorded scale {} divided out\n", scale_text(*total.recorded_scale));
    else out += "; recorded unscaled\n";
    if (options.sample) out += "The sample gradients of the project; name files or folders for your own.\n";
    return out;
}

/// A row for each format and scale of the total. Counts are shortened if the lines would not fit.
std::string format_table(const HistogramFindings& findings, const HistogramOptions& options, bool color) {
    const std::uint64_t nonzero = findings.total.magnitudes.histogram.nonzero();
    const auto build = [&](std::string (*count)(std::uint64_t)) {
        Table table({"format", "scale", "underflow", "", "subnormal", "", "overflow", ""});
        for (std::size_t i = 0; i < options.formats.size(); ++i) {
            const FormatCounts& result = findings.formats[i];
            for (const auto& [scale, counts] : result.scales) {
                const bool recommended =
                    result.recommendation.log2_scale && scale == std::ldexp(1.0, *result.recommendation.log2_scale);
                table.add({&scale == &result.scales.front().scale ? options.formats[i].name : "",
                           scale_text(scale) + (recommended ? "*" : " "), count(rounded(counts.underflow)),
                           share(counts.underflow, nonzero), count(rounded(counts.subnormal)),
                           share(counts.subnormal, nonzero), count(rounded(counts.overflow)),
                           share(counts.overflow, nonzero)});
            }
        }
        return table;
    };
    Table table = build(grouped);
    if (table.columns() > terminal_columns) table = build(short_count);
    const bool random = options.policy.rounding == Rounding::stochastic;
    return inked(fmt::format("Of the {} non-zero elements{} (* recommended scale)", grouped(nonzero),
                             random ? ", expected counts" : ""),
                 Ink::bold, color) +
           "\n" + table.text(color);
}

/// "name" or, where that leaves tensors of several steps apart, "name @step".
std::string label_of(const HistogramEntry& entry, bool with_step) {
    return printable(entry.name) + (with_step && entry.step ? fmt::format(" @{}", *entry.step) : "");
}

constexpr std::size_t formats_per_table = 4;

/// Rates and counts of one class at scale 1, a column for each format from `first` on.
std::string entry_table(const std::vector<const HistogramEntry*>& entries, std::size_t first,
                        const HistogramOptions& options, std::string_view noun, bool with_step,
                        double CastCounts::*part, bool color) {
    const std::size_t last = std::min(first + formats_per_table, options.formats.size());
    std::vector<std::string> header = {std::string(noun), "nonzero"};
    for (std::size_t f = first; f < last; ++f) header.emplace_back(options.formats[f].name);
    Table table(header);
    for (const HistogramEntry* entry : entries) {
        const std::uint64_t nonzero = entry->magnitudes.histogram.nonzero();
        std::vector<std::string> row = {label_of(*entry, with_step), short_count(nonzero)};
        for (std::size_t f = first; f < last; ++f) {
            const double n = entry->unscaled[f].*part;
            row.push_back(n == 0 ? "0" : fmt::format("{} {:>5}", share(n, nonzero), short_count(rounded(n))));
        }
        table.add(std::move(row));
    }
    return table.text(color);
}

std::string entry_tables(const HistogramFindings& findings, const HistogramToolOptions& options, bool color) {
    const std::vector<HistogramEntry>& entries = options.by == Grouping::tensor ? findings.tensors : findings.groups;
    const std::string_view noun = grouping_names[static_cast<std::size_t>(options.by)];
    std::vector<const HistogramEntry*> ranked = worst_first(entries);
    const std::size_t shown = options.worst == 0 ? ranked.size() : std::min(options.worst, ranked.size());
    const std::size_t hidden = ranked.size() - shown;
    ranked.resize(shown);

    const bool several_steps =
        options.by == Grouping::tensor &&
        std::ranges::any_of(entries, [&](const HistogramEntry& entry) { return entry.step != entries.front().step; });

    struct Part {
        std::string_view title;
        double CastCounts::*member;
    };
    std::string out;
    for (const Part& part : {Part{"Non-zero elements that become zero", &CastCounts::underflow},
                             Part{"Non-zero elements that overflow", &CastCounts::overflow}}) {
        const bool any = std::ranges::any_of(ranked, [&](const HistogramEntry* entry) {
            return std::ranges::any_of(entry->unscaled, [&](const CastCounts& n) { return n.*part.member > 0; });
        });
        if (!any) continue;
        const std::string title = fmt::format("{} at scale 1: worst {}s by {}{}", part.title, noun,
                                              options.formats.front().name, several_steps ? " (@step)" : "");
        out += "\n" + inked(title, Ink::bold, color) + "\n";
        for (std::size_t first = 0; first < options.formats.size(); first += formats_per_table)
            out += entry_table(ranked, first, options, noun, several_steps, part.member, color);
        if (hidden > 0)
            out += fmt::format("... and {} more: --worst 0 shows them, --json and --csv hold all\n", grouped(hidden));
    }
    return out;
}

/// Where NaN and infinities are, in order of appearance: the first step that has them is the one to look at.
std::string nonfinite_table(const std::vector<HistogramEntry>& tensors, const HistogramToolOptions& options,
                            bool color) {
    Table table({"tensor", "NaN", "infinite", "elements"});
    std::size_t rows = 0, hidden = 0;
    for (const HistogramEntry& tensor : tensors) {
        const MagnitudeHistogram& histogram = tensor.magnitudes.histogram;
        if (histogram.nan + histogram.inf == 0) continue;
        if (options.worst != 0 && rows == options.worst) {
            ++hidden;
            continue;
        }
        ++rows;
        table.add({label_of(tensor, true), grouped(histogram.nan), grouped(histogram.inf), grouped(histogram.count())});
    }
    if (rows == 0) return {};
    return "\n" + inked("Tensors with NaN or infinities (@step)", Ink::bold, color) + "\n" + table.text(color) +
           (hidden > 0 ? fmt::format("... and {} more: --worst 0 shows them\n", grouped(hidden)) : "");
}

std::string error_table(const HistogramEntry& total, const HistogramOptions& options, bool color) {
    Table table({"format", "scale", "SQNR", "mean |error/x|", "max", "not finite"});
    for (const FormatSpec& format : options.formats)
        for (const auto& [key, error] : total.errors) {
            if (key.first != format.name) continue;
            const double sqnr = error.sqnr();
            table.add({format.name, scale_text(key.second),
                       std::isfinite(sqnr) ? fmt::format("{:.1f} dB", sqnr)
                       : std::isinf(sqnr)  ? "exact"
                                           : "-",
                       error.nonzero == 0 ? "-" : fmt::format("{:.3g}", error.mean_relative()),
                       fmt::format("{:.3g}", error.max_relative), grouped(error.excluded)});
        }
    return "\n" + inked("Error of the cast, over elements that stay finite", Ink::bold, color) + "\n" +
           table.text(color);
}

std::string block_table(const HistogramEntry& total, const HistogramOptions& options, bool color) {
    const std::uint64_t nonzero = total.magnitudes.histogram.nonzero();
    const auto cell = [&](const ClassCounts& counts) {
        return percent(counts.underflow, nonzero) + ", " + percent(counts.overflow, nonzero);
    };
    Table table({"format", "MX scale a block", "amax a block", "amax a tensor"});
    for (const BlockCounts& f : total.blocks.formats)
        if (options.formats.size() > 4 || std::ranges::find(options.formats, f.format) != options.formats.end() ||
            f.format == format("e2m1"))
            table.add({f.format.name, cell(f.mx), cell(f.amax), cell(f.tensor)});
    return "\n" +
           inked(
               fmt::format("Underflow, clipped of non-zero with a scale for each {} elements", grouped(options.block)),
               Ink::bold, color) +
           "\n" + table.text(color) +
           fmt::format("{} blocks, {} of them zero\n", grouped(total.blocks.blocks), grouped(total.blocks.zero_blocks));
}

/// An integer, or an expectation with the digits that may decide.
std::string amount(double n) { return n == std::floor(n) ? grouped(rounded(n)) : fmt::format("{:.10g} expected", n); }

std::string measured(const GateResult& result) {
    if (result.gate.denominator == Denominator::none) return "it is " + amount(result.part);
    if (result.empty())
        return result.gate.denominator == Denominator::all ? "there are no elements"
                                                           : "there are no finite non-zero elements";
    return fmt::format("it is {} ({} of {})", share(result.part, result.whole), amount(result.part),
                       grouped(result.whole));
}

std::string gate_lines(const HistogramFindings& findings, bool color) {
    std::string out;
    for (const GateResult& result : findings.gates)
        out += wrapped(fmt::format("gate {}: {}; {}", result.gate.text,
                                   inked(result.holds ? "holds" : "FAILS", result.holds ? Ink::green : Ink::red, color),
                                   measured(result)),
                       2);
    return out;
}

std::string footnotes(const HistogramOptions& options) {
    const RecommendationOptions& limits = options.recommendation;
    const Rounding rounding = options.policy.rounding;
    const bool random = rounding == Rounding::stochastic;
    return wrapped(
        fmt::format("Rounded once {}{}. Underflow: becomes zero. Subnormal: smaller than the format's "
                    "normal values. Overflow: beyond the largest finite value. {}Safe scales: no overflow "
                    "and underflow under {:g} % of non-zero{}. Recommended: 1 if safe, else {} binades "
                    "below overflow.",
                    rounding == Rounding::nearest_even ? "to nearest even" : fmt::format("with {}", name_of(rounding)),
                    options.policy.flushes_output() ? ", subnormals flushed to zero" : "",
                    random ? "Counts are expectations. " : "", 100 * limits.limit,
                    random ? ", whatever the random bits" : "", limits.margin));
}

/// The scales to draw: from where nothing of the widest data survives at either end, within reason.
std::pair<int, int> scale_range(const HistogramFindings& findings, const HistogramOptions& options) {
    int low = 0, high = 0;
    for (std::size_t i = 0; i < options.formats.size(); ++i) {
        const Recommendation& advice = findings.formats[i].recommendation;
        if (options.formats[i].exponent_bits >= 8 && advice.window && advice.log2_scale == 0)
            continue; // wide formats would stretch the picture
        low = std::min({low, advice.lowest_enough, advice.highest_safe});
        high = std::max({high, advice.lowest_enough, advice.highest_safe});
    }
    return {std::max(low - 8, -140), std::min(high + 8, 140)};
}

} // namespace

MagnitudeFigure magnitude_figure(const HistogramFindings& findings, const HistogramOptions& options) {
    const MagnitudeHistogram& histogram = findings.total.magnitudes.histogram;
    MagnitudeFigure figure{"Magnitudes of " + plural(findings.total.tensors, "tensor"),
                           {},
                           histogram.zero,
                           histogram.nan,
                           histogram.inf,
                           options.formats,
                           options.policy};
    for (const auto& [exponent, row] : histogram.rows)
        figure.exponents[exponent] = std::accumulate(row.begin(), row.end(), std::uint64_t{0});
    return figure;
}

std::string terminal_report(const HistogramFindings& findings, const HistogramToolOptions& options, bool color) {
    std::string out = heading(findings, options, color) + "\n";
    if (findings.total.magnitudes.histogram.count() == 0) return out + "No elements.\n" + gate_lines(findings, color);
    out += magnitude_text(magnitude_figure(findings, options), color) + "\n";
    out += format_table(findings, options, color) + "\n";
    for (const std::string& advice : findings.advice) out += wrapped(advice, 2);
    out += nonfinite_table(findings.tensors, options, color);
    out += entry_tables(findings, options, color);
    if (options.error) out += error_table(findings.total, options, color);
    if (options.block != 0) out += block_table(findings.total, options, color);
    if (!findings.gates.empty()) out += "\n" + gate_lines(findings, color);
    return out + "\n" + footnotes(options);
}

RateFigure rate_figure(const HistogramFindings& findings, const HistogramOptions& options) {
    const MagnitudeHistogram& histogram = findings.total.magnitudes.histogram;
    const auto [low, high] = scale_range(findings, options);
    const auto nonzero = static_cast<double>(std::max<std::uint64_t>(histogram.nonzero(), 1));
    std::string title = "What a loss scale loses and saves";
    if (const CastRule rule = options.rule(); rule.rounding != Rounding::nearest_even || rule.flush)
        title += fmt::format(" ({}{}{})", name_of(rule.rounding), rule.flush ? ", subnormals flushed" : "",
                             rule.rounding == Rounding::stochastic ? ", the worst the random bits can do" : "");
    RateFigure rates{title, low, options.recommendation.limit, {}};
    for (std::size_t i = 0; i < options.formats.size(); ++i) {
        const FormatSpec& format = options.formats[i];
        const Recommendation& advice = findings.formats[i].recommendation;
        RateCurve curve{format, {}, {}, std::nullopt, advice.log2_scale};
        if (advice.window) curve.window = {advice.window->low, advice.window->high};
        for (int k = low; k <= high; ++k) {
            const ClassCounts counts = classes_at(findings.total, format, k, options);
            curve.underflow.push_back(static_cast<double>(counts.underflow) / nonzero);
            curve.overflow.push_back(static_cast<double>(counts.overflow) / nonzero);
        }
        rates.curves.push_back(std::move(curve));
    }
    return rates;
}

std::string svg_report(const HistogramFindings& findings, const HistogramOptions& options) {
    return svg_document({magnitude_figure(findings, options), rate_figure(findings, options)});
}

} // namespace amp::histogram_tool
