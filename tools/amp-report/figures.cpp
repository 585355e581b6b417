#include <ampscope/tools/amp-report/report.h>

#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/layer_records.h>
#include <ampscope/tools/chart/figure.h>
#include <ampscope/tools/chart/loss_scale_figure.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace amp::report_tool {

namespace {

constexpr std::size_t most_rows = 24; // of a heat map: more cannot be told apart
const std::vector<double> zeroed_levels = {0.001, 0.01, 0.1, 0.5, 0.9};
const std::vector<double> binade_levels = {0.001, 0.01, 0.03, 0.1, 0.2};

/// The rows of a heat map: each layer or, where they are too many, sums of those that differ only in their number.
struct HeatRows {
    std::vector<LayerRecord> layers;
    NamesBelow names;
    std::string note; ///< what the subtitle says of sums, and of rows that are left out

    /// `f`: the followed format by which the worst rows are chosen.
    HeatRows(const std::vector<LayerRecord>& folded, std::size_t f)
        : layers(worst_layers(folded, most_rows, f)), names(layers, &LayerRecord::name) {
        if (std::ranges::any_of(layers, [](const LayerRecord& layer) { return layer.layers > 1; }))
            note = "; a row with * sums all layers of that name";
        if (folded.size() > most_rows)
            note += fmt::format("; {} of {} rows, those that {} zeroes most", most_rows, folded.size(),
                                upper_case(followed_formats[f]));
    }
};

HeatRows heat_rows(const std::vector<LayerRecord>& layers, std::size_t f) {
    return {folded_layers(layers, most_rows, f), f};
}

/// A row with its name and what its tooltip says, of a sum where it is worst, too.
HeatRow row_of(const LayerRecord& layer, const NamesBelow& names, const std::string& note, std::size_t f) {
    HeatRow row{.name = names.of(layer.name()), .note = note, .values = {}};
    if (layer.layers > 1)
        row.note = fmt::format("sum of {}{}{}; {} zeroes most in {}", plural(layer.layers, "layer"),
                               note.empty() ? "" : ", ", note, upper_case(followed_formats[f]), layer.worst);
    return row;
}

MagnitudeFigure magnitude_figure(const RecordedRun& run, TensorKind kind) {
    MagnitudeFigure figure{.title = kind == TensorKind::weight_gradient ? "Gradients of weights"
                                                                        : "Gradients of activations",
                           .exponents = {},
                           .formats = {usual_specs.begin(), usual_specs.end()}};
    const GradientCounts all = gradient_counts(run, kind);
    figure.exponents = {all.binades.bins.begin(), all.binades.bins.end()};
    figure.zero = all.binades.zero;
    figure.nan = all.nan;
    figure.inf = all.binades.infinite;
    return figure;
}

HeatFigure layer_figure(const RecordedRun& run) {
    const HeatRows drawn = heat_rows(layer_records(run), 0);
    const std::vector<LayerRecord>& rows = drawn.layers;
    HeatFigure figure{.title = drawn.names.heading("Magnitudes of gradients by layer"),
                      .subtitle = "share of each row's non-zero gradients by binade" + drawn.note,
                      .x_label = "magnitude",
                      .columns = {},
                      .rows = {},
                      .levels = binade_levels};
    int low = std::numeric_limits<int>::max(), high = std::numeric_limits<int>::min();
    for (const LayerRecord& row : rows) {
        if (row.counts.nonzero == 0) continue;
        low = std::min(low, row.counts.binades.bins.front().first);
        high = std::max(high, row.counts.binades.bins.back().first);
    }
    if (low > high) low = high = 0;
    constexpr int most = 80;              // binades shown
    low = std::max(low, high - most + 1); // what lies below counts in the first
    for (int e = low; e <= high; ++e) figure.columns.push_back(svg::power_label(e));
    for (const LayerRecord& row : rows) {
        std::string note;
        if (const Share fp16 = row.counts.zeroed(0); fp16.whole > 0)
            note = fmt::format("{}, FP16 zeroes {}", row.counts.range(), percent(fp16.part, fp16.whole));
        HeatRow shown = row_of(row, drawn.names, note, 0);
        shown.values.resize(figure.columns.size());
        for (const auto& [exponent, n] : row.counts.binades.bins)
            shown.values[static_cast<std::size_t>(std::max(exponent, low) - low)] +=
                static_cast<double>(n) / static_cast<double>(row.counts.nonzero);
        figure.rows.push_back(std::move(shown));
    }
    for (const FormatSpec& f : usual_formats_by_range()) {
        const int edge = static_cast<int>(zones_of(f).subnormal);
        if (edge > low && edge <= high)
            figure.guides.emplace_back(static_cast<std::size_t>(edge - low), upper_case(f.name) + ": zero to the left");
    }
    return figure;
}

HeatFigure zeroed_figure(const RecordedRun& run, const std::vector<LayerRecord>& layers, std::size_t f) {
    const std::string name = upper_case(followed_formats[f]);
    const HeatRows drawn = heat_rows(layers, f);
    const std::vector<LayerRecord>& rows = drawn.layers;
    HeatFigure figure{.title = drawn.names.heading(fmt::format("What {} zeroes, by layer and step", name)),
                      .subtitle = fmt::format(
                          "share of the non-zero gradients that become zero in {} at loss scale 1{}", name, drawn.note),
                      .x_label = "step",
                      .columns = {},
                      .rows = {},
                      .levels = zeroed_levels};
    std::vector<std::size_t> columns; // those with a recorded step
    for (std::size_t c = 0; c < run.columns.count(); ++c) {
        if (std::ranges::none_of(rows, [&](const LayerRecord& r) { return r.zeroed[f][c].whole > 0; })) continue;
        columns.push_back(c);
        figure.columns.push_back(std::to_string(run.recorded[c].value_or(run.columns.begin(c))));
    }
    for (const LayerRecord& row : rows) {
        const Share all = row.zeroed_in_all(f);
        HeatRow shown = row_of(row, drawn.names, fmt::format("{} of all steps", percent(all.part, all.whole)), f);
        for (const std::size_t c : columns)
            shown.values.push_back(row.zeroed[f][c].whole == 0 ? std::nan("") : row.zeroed[f][c].rate());
        figure.rows.push_back(std::move(shown));
    }
    return figure;
}

} // namespace

std::vector<FigureBlock> magnitude_figures(const RecordedRun& run) {
    const Censoring hidden = run.censoring();
    std::vector<FigureBlock> figures;
    for (const TensorKind kind : {TensorKind::weight_gradient, TensorKind::activation_gradient})
        if (MagnitudeFigure figure = magnitude_figure(run, kind); figure.count() > 0)
            figures.push_back({std::move(figure), counted_text(hidden)});
    if (!figures.empty())
        figures.back().caption = with_counted_text("Below each histogram the range of each format, unscaled: a loss "
                                                   "scale of 2^k moves the histogram k binades to the right.",
                                                   hidden);
    figures.push_back(
        {layer_figure(run), with_counted_text("Layers whose gradients lie left of a format's line need a loss scale "
                                              "there, or a scale of their own.",
                                              hidden)});
    return figures;
}

std::vector<FigureBlock> forward_figures(const RecordedRun& run) {
    std::vector<FigureBlock> figures;
    for (const KindRecord& kind : run.kinds) {
        if (kind.group->kinds == gradient_kinds) continue; // they have their own figures
        const MagnitudeHistogram& all = kind.magnitudes;
        MagnitudeFigure figure{.title = fmt::format("Magnitudes of {}", kind.group->name),
                               .exponents = all.exponents(),
                               .zero = all.zero,
                               .nan = all.nan,
                               .inf = all.inf,
                               .formats = {usual_specs.begin(), usual_specs.end()}};
        figures.push_back({std::move(figure), ""});
    }
    return figures;
}

std::vector<FigureBlock> zeroed_figures(const RecordedRun& run) {
    std::vector<FigureBlock> figures;
    const std::vector<LayerRecord> layers = layer_records(run);
    const Censoring hidden = run.censoring();
    for (std::size_t f = 0; f < followed_formats.size(); ++f)
        figures.push_back({zeroed_figure(run, layers, f), counted_text(hidden)});
    return figures;
}

FigureBlock rate_figure(const RecordedRun& run, const RecommendationOptions& options) {
    return {loss_scale_figure(run.scales, options.limit),
            with_counted_text("The safe window is where nothing overflows and underflow stays below the limit.",
                              run.censoring())};
}

std::vector<FigureBlock> scaled_cast_figures(const RecordedRun& run) {
    LineFigure usage{.title = "Use of the range: " + run.label,
                     .subtitle =
                         "amax x scale / largest value, of the tensors of each stretch of steps; above 1 they saturate",
                     .x_label = "step",
                     .marks = {},
                     .log2_y = true,
                     .first = static_cast<double>(run.columns.first),
                     .last = static_cast<double>(run.columns.last),
                     .panels = {}};
    LineFigure rates = usage;
    rates.log2_y = false;
    rates.title = "Underflow and saturation under a scale: " + run.label;
    rates.subtitle = "percent of the non-zero elements that are cast";
    for (std::size_t f = 0; f < run.formats.size(); ++f) {
        LineSeries most{.name = "largest", .points = {}}, least{.name = "smallest", .points = {}},
            underflow{.name = "underflow", .points = {}}, saturated{.name = "saturated", .points = {}};
        for (std::size_t c = 0; c < run.scaled[f].size(); ++c) {
            const ScaledCasts& casts = run.scaled[f][c];
            if (casts.nonzero == 0) continue;
            const auto step = static_cast<double>(run.columns.begin(c));
            most.points.emplace_back(step, std::isfinite(casts.most) ? casts.most : std::nan(""));
            least.points.emplace_back(step, std::isfinite(casts.least) ? casts.least : std::nan(""));
            underflow.points.emplace_back(step, 100 * Share{casts.underflow, casts.nonzero}.rate());
            saturated.points.emplace_back(step, 100 * Share{casts.saturated, casts.nonzero}.rate());
        }
        const ScaledCasts all = run.all_scaled(f);
        usage.panels.push_back({.name = run.formats[f], .note = {}, .series = {most, least}});
        rates.panels.push_back(
            {.name = run.formats[f],
             .note = fmt::format("{} underflow, {} saturate in all", percent(all.underflow, all.nonzero),
                                 percent(all.saturated, all.nonzero)),
             .series = {underflow, saturated}});
    }
    return {{usage, ""}, {rates, ""}};
}

} // namespace amp::report_tool
