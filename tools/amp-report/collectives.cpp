#include <ampscope/tools/amp-report/collectives.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/json_value.h>
#include <ampscope/sim/train/outcome.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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
    for (const CollectiveErrors& row : f.rows) {
        std::vector<Cell> cells = {{name_of(row.way)}};
        for (const std::size_t c : columns) cells.push_back(number_cell(row.errors[c], 2));
        cells.push_back(exponent_cell(row.exponent));
        if (beyond) cells.push_back(exponent_cell(row.beyond));
        table.rows.push_back(std::move(cells));
    }
    return table;
}

/// What a panel is about: messages with scales, or the format of those without.
std::string panel_name(const AllReduceOptions& way) {
    if (way.blocks != nullptr || way.scaled) return "messages with scales";
    return "sent and summed in " + std::string(way.transport.name);
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

/// The errors of rows of that name, against N, both logarithmic.
LinePanel panel_of(const CollectiveErrorFindings& f, const std::string& name) {
    LinePanel panel{.name = name, .note = {}, .series = {}};
    double least = 0, most = -150;
    for (const CollectiveErrors& row : f.rows) {
        if (panel_name(row.way) != name) continue;
        LineSeries line{.name = name_of(row.way), .points = {}};
        for (std::size_t i = 0; i < f.replicas.size(); ++i) {
            const double error = row.errors[i] > 0 ? std::log2(row.errors[i]) : std::nan("");
            line.points.emplace_back(std::log2(f.replicas[i]), error);
            if (!std::isfinite(error)) continue;
            least = std::min(least, std::floor(error));
            most = std::max(most, std::ceil(error));
        }
        panel.series.push_back(std::move(line));
    }
    panel.range = {least, std::max(most, least + 1)};
    panel.series.push_back(square_root(f, panel.series.front()));
    return panel;
}

FigureBlock figure_of(const CollectiveErrorFindings& f) {
    LineFigure figure{.title = "Error of the mean gradient",
                      .subtitle = "relative to the exact mean; both axes are powers of two",
                      .x_label = "log2 of the number of replicas",
                      .marks = {},
                      .log2_y = true,
                      .first = std::log2(f.replicas.front()),
                      .last = std::log2(f.replicas.back()),
                      .panel_height = 160,
                      .panels = {}};
    for (const CollectiveErrors& row : f.rows)
        if (std::ranges::find(figure.panels, panel_name(row.way), &LinePanel::name) == figure.panels.end())
            figure.panels.push_back(panel_of(f, panel_name(row.way)));
    return {figure, "The grey line grows as the square root of N: one binade in two."};
}

} // namespace

Document document_of(const CollectiveErrorFindings& f) {
    Document document{.title = "What adding up gradients costs",
                      .subtitle = fmt::format("{} of {} with {} together; each step is a replica",
                                              plural(f.steps, "recorded step"), plural(f.tensors, "tensor"),
                                              plural(f.elements, "element")),
                      .blocks = {}};
    document.add(table_of(f));
    document.add(figure_of(f));
    return document;
}

Json json_of(const CollectiveErrorFindings& f) {
    Json json = origin_of("amp-report");
    json["collectives"] = {{"steps", f.steps},
                           {"tensors", f.tensors},
                           {"elements", f.elements},
                           {"replicas", f.replicas},
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
