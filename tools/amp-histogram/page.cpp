#include <ampscope/tools/amp-histogram/document.h>
#include <ampscope/tools/amp-histogram/report.h>

#include <ampscope/sim/analysis/measure.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/provenance.h>
#include <ampscope/tools/document/document.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace amp::histogram_tool {

namespace {

/// Expectations are shown as whole elements.
Cell count(double n) { return {grouped(static_cast<std::uint64_t>(std::llround(n))), n}; }

TableBlock format_table(const HistogramFindings& findings, const HistogramOptions& options) {
    const std::uint64_t nonzero = findings.total.magnitudes.histogram.nonzero();
    TableBlock table{.caption =
                         fmt::format("Of the {} non-zero elements; * marks the recommended scale.", grouped(nonzero)),
                     .header = {"format", "scale", "underflow", "of non-zero", "subnormal", "of non-zero", "overflow",
                                "of non-zero"},
                     .rows = {}};
    for (std::size_t i = 0; i < options.formats.size(); ++i) {
        const FormatCounts& result = findings.formats[i];
        for (const auto& [scale, counts] : result.scales) {
            const std::optional<int> log2 = exact_log2(scale);
            const bool recommended = log2 && result.recommendation.log2_scale == log2;
            table.rows.push_back(
                {{options.formats[i].name},
                 {(log2 ? power_of_two(*log2) : fmt::format("{:g}", scale)) + (recommended ? " *" : ""),
                  std::log2(scale)},
                 count(counts.underflow),
                 share_cell(counts.underflow, nonzero),
                 count(counts.subnormal),
                 share_cell(counts.subnormal, nonzero),
                 count(counts.overflow),
                 share_cell(counts.overflow, nonzero)});
        }
    }
    return table;
}

TableBlock tensor_table(const HistogramFindings& findings, const HistogramToolOptions& options) {
    const std::vector<const HistogramEntry*> ranked = worst_first(findings.tensors);
    const std::size_t shown = options.worst == 0 ? ranked.size() : std::min(options.worst, ranked.size());
    TableBlock table{.caption =
                         fmt::format("Non-zero elements that become zero at scale 1; {} of {} tensors, the worst by "
                                     "{}.",
                                     shown, ranked.size(), options.formats.front().name),
                     .header = {"tensor", "step", "non-zero", "largest"},
                     .rows = {}};
    for (const FormatSpec& format : options.formats) table.header.emplace_back(format.name);
    for (std::size_t i = 0; i < shown; ++i) {
        const HistogramEntry& entry = *ranked[i];
        const std::uint64_t nonzero = entry.magnitudes.histogram.nonzero();
        const double largest = entry.magnitudes.max;
        table.rows.push_back(
            {{entry.name},
             entry.step ? Cell{std::to_string(*entry.step), static_cast<double>(*entry.step)} : no_value(),
             count_cell(nonzero),
             largest > 0 ? Cell{fmt::format("2^{:.1f}", std::log2(largest)), largest} : no_value()});
        for (const CastCounts& counts : entry.unscaled)
            table.rows.back().push_back(share_cell(counts.underflow, nonzero));
    }
    return table;
}

TableBlock file_table(const HistogramFindings& findings) {
    TableBlock table{.caption = "SHA-256, as sha256sum prints it.",
                     .header = {"file", "SHA-256", "bytes"},
                     .rows = {},
                     .text_columns = 2,
                     .folded = true};
    std::set<std::string> files;
    for (const HistogramEntry& entry : findings.tensors) {
        std::error_code none;
        if (!files.insert(entry.file).second || !std::filesystem::is_regular_file(entry.file, none)) continue;
        const SourceFile file = hashed(entry.file, entry.file);
        table.rows.push_back({{file.name}, {file.sha256}, count_cell(file.bytes)});
    }
    return table;
}

} // namespace

std::string html_report(const HistogramFindings& findings, const HistogramToolOptions& options) {
    const MagnitudeHistogram& all = findings.total.magnitudes.histogram;
    Document document{.title = "What number formats do to recorded gradients",
                      .subtitle = fmt::format("{}, {}: {} zero, {} NaN, {} infinite. Made by ampscope {}.",
                                              plural(findings.total.tensors, "tensor"), plural(all.count(), "element"),
                                              grouped(all.zero), grouped(all.nan), grouped(all.inf), AMPSCOPE_VERSION),
                      .blocks = {}};
    std::vector<Block>& blocks = document.blocks;
    blocks.emplace_back(Heading{"Verdict"});
    for (const std::string& advice : findings.advice) blocks.emplace_back(Paragraph{advice, true});
    Bullets trouble{findings.errors};
    trouble.items.insert(trouble.items.end(), findings.warnings.begin(), findings.warnings.end());
    for (const GateResult& gate : findings.gates)
        if (!gate.holds) trouble.items.push_back("gate does not hold: " + gate.gate.text);
    if (!trouble.items.empty()) {
        blocks.emplace_back(Heading{"What went wrong", 3});
        blocks.emplace_back(std::move(trouble));
    }
    blocks.emplace_back(Heading{"Magnitudes and formats"});
    blocks.emplace_back(FigureBlock{magnitude_figure(findings, options), ""});
    blocks.emplace_back(FigureBlock{rate_figure(findings, options), ""});
    blocks.emplace_back(format_table(findings, options));
    blocks.emplace_back(Heading{"Worst tensors"});
    blocks.emplace_back(tensor_table(findings, options));
    blocks.emplace_back(Heading{"Definitions"});
    Bullets definitions;
    for (const auto& [term, text] : definitions_of(options)) definitions.items.push_back(term + ": " + text);
    blocks.emplace_back(std::move(definitions));
    blocks.emplace_back(Heading{"Provenance"});
    blocks.emplace_back(Bullets{{"This page: " + options.command}});
    blocks.emplace_back(file_table(findings));
    return html_of(document);
}

} // namespace amp::histogram_tool
