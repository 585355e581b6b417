#include <ampscope/tools/amp-report/collectives.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/json_value.h>
#include <ampscope/sim/train/outcome.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace amp::report_tool {

namespace {

using Json = nlohmann::ordered_json;

/// Numbers of replicas that the table shows, of all that were computed: powers of four, and the largest.
std::vector<std::size_t> shown_columns(const std::vector<int>& replicas) {
    std::vector<std::size_t> columns;
    int next = 2;
    for (std::size_t i = 0; i < replicas.size(); ++i)
        if (replicas[i] == next || i + 1 == replicas.size()) {
            columns.push_back(i);
            next = 4 * replicas[i];
        }
    return columns;
}

Cell exponent_cell(const std::optional<double>& exponent) {
    return exponent ? Cell{fmt::format("{:.2f}", *exponent), *exponent} : no_value();
}

TableBlock table_of(const CollectiveErrorFindings& f) {
    TableBlock table{.caption = fmt::format("|mean - exact mean| / |exact mean| over all elements, by the number of "
                                            "replicas. growth: the error grows as N to this power, by the line through "
                                            "the logarithms from N = {} to {}; 0.5 is the square root.",
                                            CollectiveErrorFindings::fitted_from, CollectiveErrorFindings::fitted_to),
                     .header = {"all-reduce"},
                     .rows = {}};
    const std::vector<std::size_t> columns = shown_columns(f.replicas);
    for (const std::size_t c : columns) table.header.push_back(fmt::format("N = {}", f.replicas[c]));
    table.header.emplace_back("growth");
    const bool beyond = std::ranges::any_of(f.rows, [](const CollectiveErrors& row) { return row.beyond.has_value(); });
    if (beyond) {
        table.header.emplace_back("beyond");
        table.caption +=
            fmt::format(" beyond: the same from N = {} on, where the next of so many equal terms is half a "
                        "unit of their sum in BF16, which then stands still.",
                        CollectiveErrorFindings::fitted_to);
    }
    const auto add = [&](const std::string& name, const std::vector<double>& errors) -> std::vector<Cell>& {
        std::vector<Cell> cells = {{name}};
        for (const std::size_t c : columns) cells.push_back(number_cell(errors[c], 2));
        cells.resize(table.header.size(), no_value());
        return table.rows.emplace_back(std::move(cells));
    };
    for (const CollectiveErrors& row : f.rows) {
        std::vector<Cell>& cells = add(name_of(row.way), row.errors);
        cells[columns.size() + 1] = exponent_cell(row.exponent);
        if (beyond) cells.back() = exponent_cell(row.beyond);
    }
    add("noise of the mean", f.noise);
    return table;
}

/// The square root of N, through the first error of a row at `fitted_from` replicas or at the most there are.
LineSeries square_root(const CollectiveErrorFindings& f, const LineSeries& row) {
    LineSeries line{.name = "square root of N", .points = {}, .quiet = true};
    std::size_t through = 0;
    while (through + 1 < f.replicas.size() && f.replicas[through] < CollectiveErrorFindings::fitted_from) ++through;
    const auto [x0, y0] = row.points[through];
    for (const auto& point : row.points) line.points.emplace_back(point.first, y0 + (point.first - x0) / 2);
    return line;
}

/// Errors against N, both logarithmic.
LineSeries line_of(const CollectiveErrorFindings& f, const std::string& name, const std::vector<double>& errors) {
    LineSeries line{.name = name, .points = {}};
    for (std::size_t i = 0; i < f.replicas.size(); ++i)
        line.points.emplace_back(std::log2(f.replicas[i]), errors[i] > 0 ? std::log2(errors[i]) : std::nan(""));
    return line;
}

/// Whether one line would hide the other.
bool look_alike(const LineSeries& a, const LineSeries& b) {
    constexpr double near = 0.1; // binades
    return std::ranges::equal(a.points, b.points, [](const auto& p, const auto& q) {
        return std::abs(p.second - q.second) < near || (std::isnan(p.second) && std::isnan(q.second));
    });
}

/// The least and the largest finite y of a panel's lines, as whole numbers.
std::pair<double, double> range_of(const LinePanel& panel) {
    double least = 1, most = -150;
    for (const LineSeries& line : panel.series)
        for (const auto& [x, y] : line.points)
            if (std::isfinite(y)) {
                least = std::min(least, std::floor(y));
                most = std::max(most, std::ceil(y));
            }
    return {least, std::max(most, least + 1)};
}

/// The errors of all-reduces of that kind. Those that look alike are one line.
LinePanel panel_of(const CollectiveErrorFindings& f, const std::string& kind) {
    LinePanel panel{.name = kind, .note = {}, .series = {}};
    for (const CollectiveErrors& row : f.rows) {
        if (kind_of(row.way) != kind) continue;
        LineSeries line = line_of(f, name_of(row.way), row.errors);
        const auto twin =
            std::ranges::find_if(panel.series, [&](const auto& other) { return look_alike(line, other); });
        if (twin == panel.series.end()) panel.series.push_back(std::move(line));
        else twin->name += " = " + line.name;
    }
    panel.series.push_back(square_root(f, panel.series.front()));
    panel.range = range_of(panel);
    LineSeries noise = line_of(f, "noise of the mean", f.noise);
    const bool is_near = std::ranges::all_of( // FP32's errors are a million times smaller
        noise.points,
        [&](const auto& p) { return p.second >= panel.range->first - 4 && p.second <= panel.range->second + 4; });
    if (!is_near) return panel;
    panel.series.push_back(std::move(noise));
    panel.range = range_of(panel);
    return panel;
}

FigureBlock figure_of(const CollectiveErrorFindings& f) {
    LineFigure figure{.title = "Error of the mean gradient",
                      .subtitle = "relative to the exact mean, as a power of two",
                      .x_label = "number of replicas, as a power of two",
                      .marks = {},
                      .log2_y = true,
                      .first = std::log2(f.replicas.front()),
                      .last = std::log2(f.replicas.back()),
                      .panel_height = 160,
                      .panels = {}};
    for (const CollectiveErrors& row : f.rows)
        if (std::ranges::find(figure.panels, kind_of(row.way), &LinePanel::name) == figure.panels.end())
            figure.panels.push_back(panel_of(f, kind_of(row.way)));
    return {figure,
            "The grey line grows as the square root of N: one binade in two. Where the noise of the mean is near, it "
            "has a line, too."};
}

TableBlock algorithms() {
    TableBlock table{.caption = "amp-train --all-reduce has the same rows.",
                     .header = {"algorithm", "how it adds", "source"},
                     .rows = {},
                     .text_columns = 3};
    for (const AllReduceRow& row : all_reduce_rows)
        table.rows.push_back({{std::string(row.name)}, {std::string(row.meaning)}, {std::string(row.source)}});
    return table;
}

} // namespace

Document document_of(const CollectiveErrorFindings& f, const std::string& command) {
    const std::string what =
        f.steps == f.gradients
            ? fmt::format("{}, each a replica", plural(f.steps, "recorded step"))
            : fmt::format("{} in {}", plural(f.gradients, "recorded gradient"), plural(f.steps, "step"));
    Document document{.title = "What adding up gradients costs",
                      .subtitle = fmt::format("{}: {}, {} together", what, plural(f.tensors, "tensor"),
                                              plural(f.elements, "element")),
                      .blocks = {}};
    document.add(Heading{"Verdict"});
    for (const std::string& sentence : f.verdict) document.add(Paragraph{sentence, true});
    document.add(Heading{"Errors"});
    document.add(table_of(f));
    document.add(figure_of(f));
    std::vector<Block> findings = std::exchange(document.blocks, {});
    document.add(Heading{"Algorithms"});
    document.add(algorithms());
    document.add(Heading{"Provenance"});
    document.add(Bullets{{"This report: " + command, fmt::format("made by ampscope {}", AMPSCOPE_VERSION)}});
    document.appendix = std::exchange(document.blocks, std::move(findings));
    return document;
}

Json json_of(const CollectiveErrorFindings& f) {
    Json json = origin_of("amp-report");
    json["collectives"] = {{"gradients", f.gradients},
                           {"steps", f.steps},
                           {"tensors", f.tensors},
                           {"elements", f.elements},
                           {"replicas", f.replicas},
                           {"noise", f.noise},
                           {"verdict", f.verdict},
                           {"fitted_from", CollectiveErrorFindings::fitted_from},
                           {"fitted_to", CollectiveErrorFindings::fitted_to}};
    for (const CollectiveErrors& row : f.rows) {
        Json errors = Json::array();
        for (const double error : row.errors) errors.push_back(finite_or_null(error));
        json["collectives"]["rows"].push_back(
            {{"name", name_of(row.way)},
             {"algorithm", row_of(row.way.order).name},
             {"format", row.way.payload().name()},
             {"divide", all_reduce_division_names[static_cast<std::size_t>(row.way.division)]},
             {"scaling", row.way.scaled ? "ms-amp" : "none"},
             {"errors", errors},
             {"growth", or_null(row.exponent)},
             {"growth_beyond", or_null(row.beyond)}});
    }
    return json;
}

} // namespace amp::report_tool
