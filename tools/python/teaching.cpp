#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/program/autocast.h>
#include <ampscope/tools/chart/chart.h>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

namespace amp::python {

namespace {

/// The formats that the operands are read in, that of the result, and what decided.
std::tuple<std::vector<std::string>, std::string, std::string>
autocast(const std::string& op, const std::vector<std::string>& inputs, const std::optional<std::string>& low,
         const std::string& policy_name, bool enabled, const std::optional<std::string>& dtype) {
    std::vector<FormatSpec> formats;
    for (const std::string& name : inputs) formats.push_back(format(name));
    const auto policy = parse_name<AutocastPolicy>("policy", autocast_policy_names, policy_name);
    const Autocast state{.enabled = enabled, .policy = policy, .low = low ? format(*low) : default_format(policy)};
    const OpFormats decided = op_formats(state, op, formats, dtype ? std::optional(format(*dtype)) : std::nullopt);
    std::vector<std::string> read;
    for (const FormatSpec& f : decided.inputs) read.emplace_back(f.name);
    return {read, std::string(decided.output.name), std::string(name_of(decided.rule))};
}

std::string lines(const std::map<std::string, std::vector<std::pair<double, double>>>& series, const std::string& title,
                  const std::string& x_label, bool log2_y) {
    LineFigure figure{.title = title, .subtitle = "", .x_label = x_label, .marks = "", .log2_y = log2_y, .panels = {}};
    figure.first = std::numeric_limits<double>::infinity();
    figure.last = -figure.first;
    LinePanel panel{.name = "", .note = "", .series = {}};
    for (const auto& [name, points] : series) {
        panel.series.push_back({.name = name, .points = points});
        for (const auto& [x, y] : points) {
            figure.first = std::min(figure.first, x);
            figure.last = std::max(figure.last, x);
        }
    }
    if (!(figure.first < figure.last)) throw std::invalid_argument("lines: no two points");
    figure.panel_height = 180;
    figure.panels.push_back(std::move(panel));
    return svg_document({figure}, "lines");
}

} // namespace

void bind_teaching(nb::module_& m) {
    m.def("autocast", &autocast, nb::arg("op"), nb::arg("inputs"), nb::arg("format"), nb::arg("policy"),
          nb::arg("enabled"), nb::arg("dtype"), InEnvironment());
    std::vector<std::string> ops;
    for (const AutocastRow& row : autocast_rows()) ops.emplace_back(row.name);
    m.attr("autocast_ops") = nb::cast(ops);
    m.def("lines", &lines, nb::arg("series"), nb::arg("title"), nb::arg("x_label"), nb::arg("log2_y"), InEnvironment());
}

} // namespace amp::python
