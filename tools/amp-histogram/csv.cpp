#include <ampscope/sim/base/text.h>
#include <ampscope/tools/amp-histogram/data_report.h>

#include <fmt/format.h>

#include <iterator>
#include <string>

namespace amp::histogram_tool {

namespace {

std::string rows_of(const HistogramEntry& entry, bool group, const HistogramOptions& options) {
    std::string out;
    const std::string subject =
        fmt::format("{},{},{},{}", csv_cell(entry.file), csv_cell(entry.name),
                    entry.step ? std::to_string(*entry.step) : "", group ? "" : names_of(entry.kinds));
    const auto row = [&](std::string_view format, std::string_view scale, std::string_view name, auto n) {
        fmt::format_to(std::back_inserter(out), "{},{},{},{},{}\r\n", subject, format, scale, name, n);
    };
    row("", "", "nan", entry.magnitudes.histogram.nan);
    row("", "", "inf", entry.magnitudes.histogram.inf);
    row("", "", "zero", entry.magnitudes.histogram.zero);
    for (const FormatSpec& format : options.formats)
        for (const auto& [scale, counts] : format_counts(entry, format, options).scales) {
            const std::string at = fmt::format("{}", scale);
            row(format.name, at, "underflow", counts.underflow);
            row(format.name, at, "subnormal", counts.subnormal);
            row(format.name, at, "normal", counts.normal);
            row(format.name, at, "overflow", counts.overflow);
        }
    for (std::size_t i = 0; i < options.recipes.size(); ++i) {
        const std::string recipe = csv_cell(options.recipes[i].text);
        const ScaledStatistics& s = entry.recipes[i].statistics;
        row(recipe, "blocks", "underflow", s.underflow);
        row(recipe, "blocks", "saturated", s.saturated);
        row(recipe, "blocks", "lost", s.lost);
    }
    return out;
}

} // namespace

void write_csv(const HistogramFindings& findings, const HistogramOptions& options, const TextSink& sink) {
    sink("file,tensor,step,kind,format,scale,class,count\r\n");
    const bool groups = options.by != Grouping::tensor;
    for (const HistogramEntry& entry : groups ? findings.groups : findings.tensors)
        sink(rows_of(entry, groups, options));
}

} // namespace amp::histogram_tool
