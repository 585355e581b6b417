#include <ampscope/tools/amp-diff/report.h>

#include <ampscope/sim/analysis/count.h>
#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/json_value.h>
#include <ampscope/tools/document/page.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <span>

namespace amp::diff_tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t panels_shown = 6;

std::string figure_text(double x) { return x == 0 ? "0" : fmt::format("{:.3g}", x); }

/// "[3, 17]"; of a tensor without dimensions "".
std::string place_of(std::uint64_t index, const std::vector<std::uint64_t>& shape) {
    std::vector<std::uint64_t> at(shape.size());
    for (std::size_t i = shape.size(); i-- > 0;) {
        at[i] = shape[i] == 0 ? 0 : index % shape[i];
        index = shape[i] == 0 ? 0 : index / shape[i];
    }
    return shape.empty() ? "" : fmt::format("[{}]", fmt::join(at, ", "));
}

std::string hex(std::uint64_t bits, const std::string& dtype) {
    return fmt::format("0x{:0{}x}", bits, (info(parse_dtype(dtype)).number_bits() + 3) / 4);
}

/// The value of an element in hexadecimal, as fmt's {:a}: of a 64-bit integer all digits, which a double has not.
std::string value_text(std::uint64_t bits, const std::string& dtype, double value) {
    const DType type = parse_dtype(dtype);
    const Unpacked x = unpack_number(type, bits);
    const bool integer =
        info(type).kind == NumberKind::signed_integer || info(type).kind == NumberKind::unsigned_integer;
    if (!integer || value != value_of(x)) return fmt::format("{:a}", value); // of an integer: under a recorded scale
    return fmt::format("{}0x{:x}", x.sign ? "-" : "", x.significand);
}

std::string element_text(const DifferingElement& e, const PairedTensor& pair) {
    return fmt::format("{}{}: {:.6g} ({}, {}) and {:.6g} ({}, {})", shortened_name(printable(pair.name), 40),
                       place_of(e.index, pair.shape), e.a, hex(e.a_bits, pair.a_dtype),
                       value_text(e.a_bits, pair.a_dtype, e.a), e.b, hex(e.b_bits, pair.b_dtype),
                       value_text(e.b_bits, pair.b_dtype, e.b));
}

std::string origin_text(const StepDiff& step) {
    if (step.diff.differing() == 0) return "the same";
    if (step.origin == DiffOrigin::local) return "local error";
    if (step.origin == DiffOrigin::drift) return fmt::format("drift, state {}", figure_text(step.state_distance));
    return "-";
}

/// At most so many steps, spread over all of them: the first and, if more than one is shown, the last among them.
std::vector<const StepDiff*> steps_shown(const DiffFindings& findings, std::size_t most) {
    std::vector<const StepDiff*> shown;
    const std::size_t n = findings.steps.size();
    if (n <= most)
        for (const StepDiff& s : findings.steps) shown.push_back(&s);
    else
        for (std::size_t i = 0; i < most; ++i)
            shown.push_back(&findings.steps[most == 1 ? 0 : i * (n - 1) / (most - 1)]);
    return shown;
}

Cell figure_cell(double x) { return {figure_text(x), x}; }
Cell step_cell(const std::optional<std::int64_t>& step) {
    return step ? Cell{std::to_string(*step), static_cast<double>(*step)} : no_value();
}
Cell differing_cell(const TensorDiff& diff) { return share_cell(diff.differing(), diff.elements()); }

std::optional<TableBlock> steps_table(const DiffFindings& findings, const DiffToolOptions& options) {
    if (findings.steps.size() < 2 && (findings.steps.empty() || findings.steps.front().origin == DiffOrigin::unknown))
        return std::nullopt;
    TableBlock table{
        .caption = {}, .header = {"step", "tensors", "elements", "|a-b|/|a|", "max ulps", "what it is"}, .rows = {}};
    const auto shown = steps_shown(findings, rows_shown(options.rows, findings.steps.size()));
    for (const StepDiff* s : shown)
        table.rows.push_back({step_cell(s->step),
                              {fmt::format("{} of {}", s->differing, s->tensors)},
                              differing_cell(s->diff),
                              figure_cell(s->diff.relative_norm()),
                              figure_cell(s->diff.max_ulps),
                              {origin_text(*s)}});
    table.caption = shown_of(shown.size(), findings.steps.size(), "step") + ".";
    if (std::ranges::any_of(findings.steps, [](const StepDiff& s) { return s.origin != DiffOrigin::unknown; }))
        table.caption += " local error: weights and optimizer were the same before the step; drift: they had parted.";
    return table;
}

TableBlock tensors_table(const DiffFindings& findings, const DiffToolOptions& options) {
    const auto pairs = findings.farthest_first();
    const std::size_t shown = rows_shown(options.rows, pairs.size());
    const NamesBelow names{std::span(pairs).first(shown), &PairedTensor::name};
    TableBlock table{
        .caption = sentence(names.heading(shown_of(shown, pairs.size(), "tensor") + ", those that differ most first")),
        .header = {"tensor", "step", "differ", "max ulps", "max relative", "|a-b|/|a|"},
        .rows = {}};
    for (std::size_t i = 0; i < shown; ++i) {
        const PairedTensor& p = *pairs[i];
        table.rows.push_back({{names.of(p.name)},
                              step_cell(p.step),
                              differing_cell(p.diff),
                              figure_cell(p.diff.max_ulps),
                              figure_cell(p.diff.max_relative),
                              figure_cell(p.diff.relative_norm())});
    }
    return table;
}

/// NaN, infinities, signs and zeros that differ; nothing where there are none.
std::string classes_text(const TensorDiff& diff) {
    std::vector<std::string> parts;
    for (const auto& [c, what] : {std::pair{DiffClass::nan, "NaN in one"},
                                  {DiffClass::inf, "infinite in one"},
                                  {DiffClass::sign, "of other sign"},
                                  {DiffClass::zero, "zero in one"},
                                  {DiffClass::zero_sign, "zeros of other sign"}})
        if (diff.of(c) > 0) parts.push_back(fmt::format("{} {}", grouped(diff.of(c)), what));
    return parts.empty() ? "" : fmt::format("Elements among them: {}.", fmt::join(parts, ", "));
}

Bullets worst_list(const DiffFindings& findings, const DiffToolOptions& options) {
    struct Item {
        const DifferingElement* element;
        const PairedTensor* pair;
    };
    std::vector<Item> items;
    for (const PairedTensor& pair : findings.pairs)
        for (const DifferingElement& e : pair.diff.worst) items.push_back({&e, &pair});
    std::ranges::stable_sort(items, [](const Item& a, const Item& b) { return a.element->ulps > b.element->ulps; });
    Bullets list;
    for (std::size_t i = 0; i < rows_shown(options.rows, items.size()); ++i)
        list.items.push_back(fmt::format("{} ulps, {}{}", figure_text(items[i].element->ulps),
                                         items[i].pair->step ? fmt::format("step {}, ", *items[i].pair->step) : "",
                                         element_text(*items[i].element, *items[i].pair)));
    return list;
}

/// What has no counterpart.
void add_missing(Bullets& list, const std::vector<std::string>& names, std::string_view side) {
    constexpr std::size_t most = 5;
    if (names.empty()) return;
    std::vector<std::string> shown;
    for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
        shown.push_back(shortened_name(printable(names[i]), 50));
    list.items.push_back(fmt::format("Only in {}: {}{}", side, fmt::join(shown, "; "),
                                     names.size() > most ? fmt::format("; and {} more", names.size() - most) : ""));
}

std::string verdict_of(const DiffFindings& findings) {
    const TensorDiff& total = findings.total;
    if (findings.first() == nullptr)
        return fmt::format("The same: {} of {}, bit for bit in value.", plural(total.elements(), "element"),
                           plural(findings.pairs.size(), "tensor"));
    return fmt::format("They differ: {} of {} ({}).", grouped(total.differing()), plural(total.elements(), "element"),
                       percent(total.differing(), total.elements()));
}

std::string title_of(const DiffToolOptions& options) {
    return options.a.filename().string() + " and " + options.b.filename().string();
}

/// How far apart they are over the steps, where there are several.
std::optional<FigureBlock> lines_of(const DiffFindings& findings, const std::string& title) {
    if (findings.steps.size() < 2 || !findings.steps.front().step) return std::nullopt;
    const bool gradients_only =
        std::ranges::all_of(findings.pairs, [](const PairedTensor& p) { return is_gradient(p.kind); });
    const std::string what = gradients_only ? "gradients" : "tensors";
    LineFigure lines{.title = title + ": how far apart",
                     .subtitle = fmt::format(
                         "|a - b| / |a| of all {}, and of the state before the step where it was recorded", what),
                     .x_label = "step",
                     .marks = {},
                     .log2_y = true,
                     .first = static_cast<double>(*findings.steps.front().step),
                     .last = static_cast<double>(*findings.steps.back().step),
                     .panels = {{.name = "distance", .note = {}, .series = {}}}};
    LineSeries gradients{.name = what, .points = {}}, state{.name = "state", .points = {}};
    const auto log2 = [](double x) { return x > 0 ? std::log2(x) : std::nan(""); };
    for (const StepDiff& s : findings.steps) {
        const auto x = static_cast<double>(s.step.value_or(0));
        gradients.points.emplace_back(x, log2(s.diff.relative_norm()));
        if (s.origin != DiffOrigin::unknown) state.points.emplace_back(x, log2(s.state_distance));
    }
    lines.panels.front().series.push_back(gradients);
    if (!state.points.empty()) lines.panels.front().series.push_back(state);
    return FigureBlock{lines, ""};
}

BarFigure bars_of(const DiffFindings& findings, const std::string& title) {
    BarFigure bars{.title = title + ": distances",
                   .subtitle = "elements by their distance in units in the last place, rounded up to a power of two",
                   .x_label = "ulps",
                   .panels = {}};
    for (const PairedTensor* pair : findings.farthest_first()) {
        if (bars.panels.size() == panels_shown) break;
        const std::string step = pair->step ? fmt::format("step {}, ", *pair->step) : "";
        bars.panels.push_back({.name = pair->name,
                               .note = fmt::format("{}{} differ, at most {} ulps", step,
                                                   percent(pair->diff.differing(), pair->diff.elements()),
                                                   figure_text(pair->diff.max_ulps)),
                               .bins = pair->diff.ulps,
                               .elements = pair->diff.elements()});
    }
    return bars;
}

Json number(double x) { return std::isfinite(x) ? Json(x) : std::isnan(x) ? Json(nullptr) : Json("inf"); }

Json json_of(const DifferingElement& e, const PairedTensor& pair) {
    return {{"index", e.index},
            {"a", value_text(e.a_bits, pair.a_dtype, e.a)},
            {"b", value_text(e.b_bits, pair.b_dtype, e.b)},
            {"a_bits", hex(e.a_bits, pair.a_dtype)},
            {"b_bits", hex(e.b_bits, pair.b_dtype)},
            {"ulps", number(e.ulps)}};
}

Json json_of(const TensorDiff& diff) {
    Json json = {{"elements", diff.elements()}, {"differing", diff.differing()}};
    for (std::size_t c = 0; c < diff_classes; ++c) json["classes"][std::string(diff_class_names[c])] = diff.counts[c];
    json["max_ulps"] = diff.max_ulps;
    json["max_relative"] = diff.max_relative;
    json["max_absolute"] = number(diff.max_absolute);
    json["relative_norm"] = number(diff.relative_norm());
    json["ulps"] = Json::object();
    for (const auto& [k, n] : diff.ulps) json["ulps"][std::to_string(k)] = n;
    json["relative"] = Json::object();
    for (const auto& [k, n] : diff.relative) json["relative"][std::to_string(k)] = n;
    return json;
}

Json json_of(const PairedTensor& pair) {
    Json json = {{"tensor", printable(pair.name)}, {"step", or_null(pair.step)}, {"kind", name_of(pair.kind)},
                 {"a_dtype", pair.a_dtype},        {"b_dtype", pair.b_dtype},    {"shape", pair.shape}};
    json.update(json_of(pair.diff));
    json["first"] = pair.diff.first ? json_of(*pair.diff.first, pair) : Json(nullptr);
    json["worst"] = Json::array();
    for (const DifferingElement& e : pair.diff.worst) json["worst"].push_back(json_of(e, pair));
    return json;
}

} // namespace

Document document_of(const DiffFindings& findings, const DiffToolOptions& options) {
    Document document{.title = title_of(options), .subtitle = {}, .blocks = {}};
    document.add(Paragraph{verdict_of(findings), true});
    const PairedTensor* const first = findings.first();
    if (first != nullptr)
        document.add(Paragraph{fmt::format("First: {}{}", first->step ? fmt::format("step {}, ", *first->step) : "",
                                           element_text(*first->diff.first, *first)),
                               true});
    for (const DiffGateResult& g : findings.gates)
        document.add(Paragraph{.text = fmt::format("{}: gate {} ({})", g.holds ? "holds" : "DOES NOT HOLD", g.gate.text,
                                                   figure_text(g.value)),
                               .tone = g.holds ? Tone::good : Tone::bad});
    Bullets notes;
    for (const std::string& note : findings.notes) notes.items.push_back(clipped(printable(note), 200));
    add_missing(notes, findings.only_a, "A");
    add_missing(notes, findings.only_b, "B");
    document.add(std::move(notes));
    if (first == nullptr) return document;
    document.add(Heading{"Steps"});
    document.add(lines_of(findings, document.title));
    document.add(steps_table(findings, options));
    document.add(Heading{"Tensors"});
    document.add(FigureBlock{bars_of(findings, document.title), ""});
    document.add(tensors_table(findings, options));
    document.add(Paragraph{classes_text(findings.total)});
    document.add(Heading{"Farthest apart"});
    document.add(worst_list(findings, options));
    return document;
}

std::string html_report(const DiffFindings& findings, const DiffToolOptions& options) {
    return page_of(document_of(findings, options), {.command = options.command,
                                                    .errors = findings.errors,
                                                    .warnings = findings.warnings,
                                                    .inputs = {options.a, options.b}});
}

std::string json_report(const DiffFindings& findings, const DiffToolOptions& options) {
    Json json = {{"schema_version", 2},
                 {"tool", "amp-diff"},
                 {"version", AMPSCOPE_VERSION},
                 {"a", printable(options.a.string())},
                 {"b", printable(options.b.string())},
                 {"only_a", findings.only_a},
                 {"only_b", findings.only_b},
                 {"notes", findings.notes},
                 {"warnings", findings.warnings},
                 {"errors", findings.errors},
                 {"total", json_of(findings.total)}};
    const PairedTensor* const first = findings.first();
    json["first"] = nullptr;
    if (first != nullptr) {
        json["first"] = {{"tensor", printable(first->name)}, {"step", or_null(first->step)}};
        json["first"].update(json_of(*first->diff.first, *first));
    }
    json["steps"] = Json::array();
    for (const StepDiff& s : findings.steps) {
        Json step = {{"step", or_null(s.step)},
                     {"tensors", s.tensors},
                     {"differing_tensors", s.differing},
                     {"origin", name_of(s.origin)},
                     {"state_distance", number(s.state_distance)}};
        step.update(json_of(s.diff));
        json["steps"].push_back(step);
    }
    json["tensors"] = Json::array();
    for (const PairedTensor& pair : findings.pairs) json["tensors"].push_back(json_of(pair));
    json["gates"] = Json::array();
    for (const DiffGateResult& g : findings.gates)
        json["gates"].push_back({{"gate", g.gate.text}, {"value", number(g.value)}, {"holds", g.holds}});
    return json_text(json);
}

std::string svg_report(const DiffFindings& findings, const DiffToolOptions& options) {
    std::vector<Figure> figures;
    if (const auto lines = lines_of(findings, title_of(options))) figures.push_back(lines->figure);
    figures.emplace_back(bars_of(findings, title_of(options)));
    return svg_document(figures);
}

} // namespace amp::diff_tool
