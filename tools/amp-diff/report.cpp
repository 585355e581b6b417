#include <ampscope/tools/amp-diff/report.h>

#include <ampscope/sim/analysis/count.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/chart.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>

namespace amp::diff_tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t panels_shown = 6;

std::string figure_text(double x) { return x == 0 ? "0" : fmt::format("{:.3g}", x); }
std::string step_text(const std::optional<std::int64_t>& step) { return step ? std::to_string(*step) : "-"; }

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
    return fmt::format("{}{}: {} {} and {} {}", clipped(printable(pair.name), 40), place_of(e.index, pair.shape),
                       hex(e.a_bits, pair.a_dtype), value_text(e.a_bits, pair.a_dtype, e.a),
                       hex(e.b_bits, pair.b_dtype), value_text(e.b_bits, pair.b_dtype, e.b));
}

/// Pairs that differ, the farthest apart first.
std::vector<const PairedTensor*> by_distance(const DiffFindings& findings) {
    std::vector<const PairedTensor*> pairs;
    for (const PairedTensor& pair : findings.pairs)
        if (pair.diff.differing() > 0) pairs.push_back(&pair);
    const auto rank = [](const PairedTensor* p) {
        const double worst = p->diff.worst.empty() ? p->diff.max_ulps : p->diff.worst.front().ulps;
        return std::pair(-worst, -p->diff.relative_norm());
    };
    std::ranges::stable_sort(pairs, {}, rank);
    return pairs;
}

std::string origin_text(const StepDiff& step) {
    if (step.diff.differing() == 0) return "the same";
    if (step.origin == DiffOrigin::local) return "local error";
    if (step.origin == DiffOrigin::drift) return fmt::format("drift, state {}", figure_text(step.state_distance));
    return "-";
}

/// Steps spread over all of them, the first and the last among them.
std::vector<const StepDiff*> steps_shown(const DiffFindings& findings, std::size_t most) {
    std::vector<const StepDiff*> shown;
    const std::size_t n = findings.steps.size();
    if (n <= most || most < 2)
        for (const StepDiff& s : findings.steps) shown.push_back(&s);
    else
        for (std::size_t i = 0; i < most; ++i) shown.push_back(&findings.steps[i * (n - 1) / (most - 1)]);
    return shown;
}

std::string steps_table(const DiffFindings& findings, const DiffToolOptions& options, bool color) {
    if (findings.steps.size() < 2 && (findings.steps.empty() || findings.steps.front().origin == DiffOrigin::unknown))
        return "";
    Table table({"step", "tensors", "elements", "|a-b|/|a|", "max ulps", "what it is"});
    const auto shown = steps_shown(findings, options.rows == 0 ? findings.steps.size() : options.rows);
    for (const StepDiff* s : shown)
        table.add({step_text(s->step), fmt::format("{} of {}", s->differing, s->tensors),
                   percent(s->diff.differing(), s->diff.elements()), figure_text(s->diff.relative_norm()),
                   figure_text(s->diff.max_ulps), origin_text(*s)});
    std::string text = table.text(color);
    if (shown.size() < findings.steps.size())
        text += fmt::format("{} of {} steps\n", shown.size(), findings.steps.size());
    return text + wrapped("local error: weights and optimizer were the same before the step; drift: they had parted.") +
           "\n";
}

std::string tensors_table(const DiffFindings& findings, const DiffToolOptions& options, bool color) {
    const auto pairs = by_distance(findings);
    const std::size_t shown = options.rows == 0 ? pairs.size() : std::min(options.rows, pairs.size());
    Table table({"tensor", "step", "differ", "max ulps", "max relative", "|a-b|/|a|"});
    std::set<std::string> odd;
    for (std::size_t i = 0; i < shown; ++i) {
        const PairedTensor& p = *pairs[i];
        table.add({printable(p.name), step_text(p.step), percent(p.diff.differing(), p.diff.elements()),
                   figure_text(p.diff.max_ulps), figure_text(p.diff.max_relative),
                   figure_text(p.diff.relative_norm())});
    }
    std::string text = table.text(color);
    if (shown < pairs.size()) text += fmt::format("the {} that differ most of {}\n", shown, pairs.size());
    return text;
}

/// NaN, infinities, signs and zeros that differ.
std::string classes_text(const TensorDiff& diff) {
    std::vector<std::string> parts;
    for (const auto& [c, what] : {std::pair{DiffClass::nan, "NaN in one"},
                                  {DiffClass::inf, "infinite in one"},
                                  {DiffClass::sign, "of other sign"},
                                  {DiffClass::zero, "zero in one"},
                                  {DiffClass::zero_sign, "zeros of other sign"}})
        if (diff.of(c) > 0) parts.push_back(fmt::format("{} {}", grouped(diff.of(c)), what));
    return parts.empty() ? "" : wrapped(fmt::format("Elements: {}.", fmt::join(parts, ", ")));
}

std::string worst_text(const DiffFindings& findings, const DiffToolOptions& options) {
    struct Item {
        const DifferingElement* element;
        const PairedTensor* pair;
    };
    std::vector<Item> items;
    for (const PairedTensor& pair : findings.pairs)
        for (const DifferingElement& e : pair.diff.worst) items.push_back({&e, &pair});
    std::ranges::stable_sort(items, [](const Item& a, const Item& b) { return a.element->ulps > b.element->ulps; });
    std::string text = "\nFarthest apart:\n";
    for (std::size_t i = 0; i < std::min(options.rows == 0 ? items.size() : options.rows, items.size()); ++i)
        text += wrapped(fmt::format("{} ulps, {}{}", figure_text(items[i].element->ulps),
                                    items[i].pair->step ? fmt::format("step {}, ", *items[i].pair->step) : "",
                                    element_text(*items[i].element, *items[i].pair)),
                        2);
    return text;
}

std::string missing_text(const std::vector<std::string>& names, std::string_view side, std::size_t most) {
    if (names.empty()) return "";
    std::vector<std::string> shown;
    for (std::size_t i = 0; i < std::min(names.size(), most); ++i) shown.push_back(clipped(printable(names[i]), 50));
    return wrapped(fmt::format("Only in {}: {}{}", side, fmt::join(shown, "; "),
                               names.size() > most ? fmt::format("; and {} more", names.size() - most) : ""),
                   2);
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

Json optional_step(const std::optional<std::int64_t>& step) { return step ? Json(*step) : Json(nullptr); }

Json json_of(const PairedTensor& pair) {
    Json json = {{"tensor", printable(pair.name)}, {"step", optional_step(pair.step)}, {"kind", name_of(pair.kind)},
                 {"a_dtype", pair.a_dtype},        {"b_dtype", pair.b_dtype},          {"shape", pair.shape}};
    json.update(json_of(pair.diff));
    json["first"] = pair.diff.first ? json_of(*pair.diff.first, pair) : Json(nullptr);
    json["worst"] = Json::array();
    for (const DifferingElement& e : pair.diff.worst) json["worst"].push_back(json_of(e, pair));
    return json;
}

} // namespace

std::string terminal_report(const DiffFindings& findings, const DiffToolOptions& options, bool color) {
    std::string text;
    for (const std::string& note : findings.notes) text += wrapped(clipped(printable(note), 200), 2);
    text += missing_text(findings.only_a, "A", 5) + missing_text(findings.only_b, "B", 5);
    const TensorDiff& total = findings.total;
    const PairedTensor* const first = findings.first();
    if (!text.empty()) text += "\n";
    if (first == nullptr) {
        text += fmt::format("The same: {} of {}, bit for bit in value.\n", plural(total.elements(), "element"),
                            plural(findings.pairs.size(), "tensor"));
    } else {
        text += wrapped(fmt::format("{} of {} elements differ ({}).", grouped(total.differing()),
                                    grouped(total.elements()), percent(total.differing(), total.elements())));
        text += wrapped(fmt::format("First: {}{}", first->step ? fmt::format("step {}, ", *first->step) : "",
                                    element_text(*first->diff.first, *first)),
                        2) +
                "\n";
        text += steps_table(findings, options, color) + tensors_table(findings, options, color) + "\n" +
                classes_text(total) + worst_text(findings, options);
    }
    for (const DiffGateResult& g : judge(findings, options.gates))
        text +=
            fmt::format("{}: gate {} ({})\n", g.holds ? "holds" : "DOES NOT HOLD", g.gate.text, figure_text(g.value));
    return text;
}

std::string json_report(const DiffFindings& findings, const DiffToolOptions& options) {
    Json json = {{"schema_version", 1},
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
        json["first"] = {{"tensor", printable(first->name)}, {"step", optional_step(first->step)}};
        json["first"].update(json_of(*first->diff.first, *first));
    }
    json["steps"] = Json::array();
    for (const StepDiff& s : findings.steps) {
        Json step = {{"step", optional_step(s.step)},
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
    for (const DiffGateResult& g : judge(findings, options.gates))
        json["gates"].push_back({{"gate", g.gate.text}, {"value", number(g.value)}, {"holds", g.holds}});
    return json_text(json);
}

std::string svg_report(const DiffFindings& findings, const DiffToolOptions& options) {
    std::vector<Figure> figures;
    const std::string title = options.a.filename().string() + " and " + options.b.filename().string();
    if (findings.steps.size() > 1 && findings.steps.front().step) {
        LineFigure lines{.title = title + ": how far apart",
                         .subtitle =
                             "|a - b| / |a| of all gradients, and of the state before the step where it was recorded",
                         .x_label = "step",
                         .marks = {},
                         .log2_y = true,
                         .first = static_cast<double>(*findings.steps.front().step),
                         .last = static_cast<double>(*findings.steps.back().step),
                         .panels = {{.name = "distance", .note = {}, .series = {}}}};
        LineSeries gradients{.name = "gradients", .points = {}}, state{.name = "state", .points = {}};
        const auto log2 = [](double x) { return x > 0 ? std::log2(x) : std::nan(""); };
        for (const StepDiff& s : findings.steps) {
            const auto x = static_cast<double>(s.step.value_or(0));
            gradients.points.emplace_back(x, log2(s.diff.relative_norm()));
            if (s.origin != DiffOrigin::unknown) state.points.emplace_back(x, log2(s.state_distance));
        }
        lines.panels.front().series.push_back(gradients);
        if (!state.points.empty()) lines.panels.front().series.push_back(state);
        figures.emplace_back(lines);
    }
    BarFigure bars{.title = title + ": distances",
                   .subtitle = "elements by their distance in units in the last place, rounded up to a power of two",
                   .x_label = "ulps",
                   .panels = {}};
    for (const PairedTensor* pair : by_distance(findings)) {
        if (bars.panels.size() == panels_shown) break;
        const std::string step = pair->step ? fmt::format("step {}, ", *pair->step) : "";
        bars.panels.push_back({.name = pair->name,
                               .note = fmt::format("{}{} differ, at most {} ulps", step,
                                                   percent(pair->diff.differing(), pair->diff.elements()),
                                                   figure_text(pair->diff.max_ulps)),
                               .bins = pair->diff.ulps,
                               .elements = pair->diff.elements()});
    }
    figures.emplace_back(bars);
    return svg_document(figures);
}

} // namespace amp::diff_tool
