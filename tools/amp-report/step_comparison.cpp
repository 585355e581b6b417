#include <ampscope/tools/amp-report/step_comparison.h>

#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace amp::report_tool {

namespace {

constexpr std::size_t most_drawn = 40; // modules of a figure: more cannot be read
constexpr std::size_t brief_name = 20; // columns of a name where the table is too wide

Cell error_cell(double error) {
    if (std::isfinite(error)) return {error_text(error), error};
    return {error_text(error), error, Tone::bad, "inf"};
}

Cell error_cell(const std::optional<RelativeError>& error) {
    if (!error || (!error->relative && error->nonfinite == 0)) return no_value();
    return error_cell(error->nonfinite > 0 ? std::numeric_limits<double>::infinity() : *error->relative);
}

/// The modules of a table: those that add an error in their order, then the others.
std::vector<std::size_t> rows_of(const PrecisionStep& step) {
    std::vector<std::size_t> rows;
    for (const RankedModule& r : step.ranking) rows.push_back(r.module);
    for (std::size_t i = 0; i < step.modules.size(); ++i)
        if (std::ranges::find(rows, i) == rows.end()) rows.push_back(i);
    return rows;
}

/// Whether there is something for a column in some module.
template <class Has>
bool any_module(const PrecisionStep& step, const Has& has) {
    return std::ranges::any_of(step.modules, has);
}

TableBlock table_of(const StepComparison& c, const PrecisionStep& step, const NamesBelow& names, std::size_t worst) {
    const std::vector<std::size_t> rows = rows_of(step);
    const std::size_t shown = rows_shown(worst, rows.size());
    const bool casts = any_module(step, [](const ModuleErrors& m) { return m.all_casts().nonzero > 0; });
    const bool clipped = any_module(step, [](const ModuleErrors& m) { return m.all_casts().saturated > 0; });
    const bool nonfinite = any_module(step, [](const ModuleErrors& m) { return m.nonfinite() > 0; });
    TableBlock table{.caption = fmt::format("{}, the largest {} first.", shown_of(shown, rows.size(), "module"),
                                            step.by_effect ? "effect" : "own error"),
                     .header = {"module", "effect", "share", "own", "output", "gradient", "weights"},
                     .rows = {}};
    if (casts) table.header.emplace_back("to zero");
    if (clipped) table.header.emplace_back("clipped");
    if (nonfinite) table.header.emplace_back("inf, NaN");
    for (std::size_t i = 0; i < shown; ++i) {
        const ModuleErrors& m = step.modules[rows[i]];
        const RankedModule rank = i < step.ranking.size() ? step.ranking[i] : RankedModule{};
        const std::string name = printable(names.of(shown_name(c.modules[rows[i]].name)));
        std::vector<Cell> row = {
            {name, {}, rank.stands_out ? Tone::bad : Tone::plain, shortened_name(name, brief_name)},
            error_cell(m.effect),
            {percent(rank.share), rank.share},
            error_cell(m.own()),
            error_cell(m.output),
            error_cell(m.output_gradient),
            error_cell(m.weight_gradient)};
        if (casts) row.push_back(share_cell(m.all_casts().underflow, m.all_casts().nonzero));
        if (clipped) row.push_back(share_cell(m.all_casts().saturated, m.all_casts().nonzero));
        if (nonfinite) row.push_back(count_cell(m.nonfinite()));
        table.rows.push_back(std::move(row));
    }
    return table;
}

/// The modules that a figure shows, in the order of the model: those that add most in some precision.
std::vector<std::size_t> drawn(const StepComparison& c) {
    std::vector<std::pair<double, std::size_t>> most;
    for (std::size_t i = 0; i < c.modules.size(); ++i) {
        double own = 0;
        for (const PrecisionStep& step : c.precisions) own = std::max(own, step.modules[i].own());
        if (own > 0) most.emplace_back(-own, i);
    }
    std::ranges::sort(most);
    if (most.size() > most_drawn) most.resize(most_drawn);
    std::vector<std::size_t> modules;
    for (const auto& entry : most) modules.push_back(entry.second);
    std::ranges::sort(modules);
    return modules;
}

template <class Value>
DotFigure figure_of(const StepComparison& c, const std::string& title, const std::string& subtitle,
                    const Value& value) {
    std::vector<std::string> all;
    for (const std::size_t i : drawn(c)) all.push_back(shown_name(c.modules[i].name));
    const NamesBelow names(all);
    DotFigure figure{
        .title = names.heading(title), .subtitle = subtitle, .x_label = "relative error", .series = {}, .rows = {}};
    for (const PrecisionStep& step : c.precisions) figure.series.push_back(step.precision);
    for (const std::size_t i : drawn(c)) {
        DotRow row{.name = names.of(shown_name(c.modules[i].name)), .values = {}};
        for (const PrecisionStep& step : c.precisions) row.values.push_back(value(step.modules[i]));
        if (std::ranges::any_of(row.values, [](double x) { return !std::isnan(x); })) figure.rows.push_back(row);
    }
    return figure;
}

double number_of(const std::optional<RelativeError>& e) {
    if (e && e->nonfinite > 0) return std::numeric_limits<double>::infinity();
    return e && e->relative ? *e->relative : std::nan("");
}

} // namespace

std::vector<Figure> figures_of(const StepComparison& c) {
    const DotFigure effects =
        figure_of(c, "What each module alone does to the model's gradient", "Only that module is in the precision.",
                  [](const ModuleErrors& m) { return number_of(m.effect); });
    std::vector<Figure> figures;
    if (!effects.rows.empty()) figures.emplace_back(effects);
    figures.emplace_back(figure_of(c, "Errors that modules add by themselves",
                                   "Inputs, and the gradient that comes back, are FP32's.",
                                   [](const ModuleErrors& m) { return m.own(); }));
    figures.emplace_back(figure_of(c, "Errors of the gradients of weights", "In the step, with all that is inherited.",
                                   [](const ModuleErrors& m) { return number_of(m.weight_gradient); }));
    return figures;
}

Document document_of(const StepComparison& c, std::size_t worst) {
    Document document{.title = "Which layers does it hurt?",
                      .subtitle =
                          fmt::format("One step of {} in {} beside FP32's. Made by ampscope {}.", printable(c.model),
                                      plural(c.precisions.size(), "precision"), AMPSCOPE_VERSION),
                      .blocks = {}};
    document.add(Paragraph{
        "Effect: the error of the gradient of all weights if only this module is in the precision, and all others are "
        "in FP32. Share: of the sum of all squared effects. Own: the error of the module's output and of the gradients "
        "of its inputs and weights (the root of the sum of their squares), where its inputs and the gradient of its "
        "output are FP32's. Output, gradient (of the output) and weights (their gradients) are errors in the step, "
        "with "
        "what is inherited. All errors are |x - x32| / |x32|. To zero and clipped: elements that casts make zero, or "
        "that exceed the format."});
    std::vector<std::string> all;
    for (const StepModule& m : c.modules) all.push_back(shown_name(m.name));
    const NamesBelow names(all);
    for (const PrecisionStep& step : c.precisions) {
        document.add(Heading{names.heading(printable(step.precision))});
        document.add(Paragraph{printable(step.verdict), true});
        document.add(table_of(c, step, names, worst));
    }
    if (!c.warnings.empty()) {
        document.add(Heading{"What is not known"});
        Bullets list;
        for (const std::string& warning : c.warnings) list.items.push_back(printable(warning));
        document.add(list);
    }
    for (Figure& figure : figures_of(c))
        document.add(
            FigureBlock{std::move(figure), "0 is drawn at the left end, what is infinite or NaN at the right."});
    return document;
}

} // namespace amp::report_tool
