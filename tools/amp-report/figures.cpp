#include <ampscope/tools/amp-report/report.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/figure.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>

namespace amp::report_tool {

namespace {

constexpr std::size_t most_rows = 48;   // of a heat map
constexpr std::size_t loss_points = 80; // of a loss curve
constexpr std::int64_t difference_points = 30;
const std::vector<double> zeroed_levels = {0.001, 0.01, 0.1, 0.5, 0.9};
const std::vector<double> binade_levels = {0.001, 0.01, 0.03, 0.1, 0.2};

/// Tensors of one layer and kind.
struct LayerRow {
    std::string name;
    GradientCounts counts;
    std::array<std::vector<Share>, followed_formats.size()> zeroed;
};

std::vector<LayerRow> layers_of(const RecordedRun& run) {
    std::vector<LayerRow> rows;
    std::unordered_map<std::string, std::size_t> index;
    for (const TensorRecord& t : run.tensors) {
        const std::string name = t.layer + (t.kind == TensorKind::activation_gradient ? ", activations" : ", weights");
        const auto [found, is_new] = index.try_emplace(name, rows.size());
        if (is_new) rows.push_back({.name = name, .counts = {}, .zeroed = {}});
        LayerRow& row = rows[found->second];
        row.counts.merge(t.counts);
        for (std::size_t f = 0; f < followed_formats.size(); ++f) {
            row.zeroed[f].resize(run.columns.count());
            for (std::size_t c = 0; c < t.zeroed[f].size(); ++c) row.zeroed[f][c] += t.zeroed[f][c];
        }
    }
    return rows;
}

Share sum_of(const std::vector<Share>& shares) {
    Share sum;
    for (const Share& s : shares) sum += s;
    return sum;
}

/// Of too many rows those that FP16 zeroes most, in their order. Returns what the subtitle says of it.
std::string keep_worst(std::vector<LayerRow>& rows) {
    if (rows.size() <= most_rows) return "";
    const std::size_t all = rows.size();
    std::vector<double> rates;
    for (const LayerRow& row : rows) rates.push_back(sum_of(row.zeroed.front()).rate());
    std::vector<double> sorted = rates;
    std::ranges::sort(sorted, std::greater<>());
    std::vector<LayerRow> kept;
    for (std::size_t i = 0; i < all && kept.size() < most_rows; ++i)
        if (rates[i] >= sorted[most_rows - 1]) kept.push_back(std::move(rows[i]));
    rows = std::move(kept);
    return fmt::format("; {} of {} rows, those with most", most_rows, all);
}

MagnitudeFigure magnitude_figure(const RecordedRun& run, TensorKind kind) {
    MagnitudeFigure figure{.title = kind == TensorKind::weight_gradient ? "Gradients of weights"
                                                                        : "Gradients of activations",
                           .exponents = {},
                           .formats = {}};
    for (const std::string_view name : usual_formats) figure.formats.push_back(format(name));
    GradientCounts all;
    for (const TensorRecord& t : run.tensors)
        if (t.kind == kind) all.merge(t.counts);
    figure.exponents = {all.binades.bins.begin(), all.binades.bins.end()};
    figure.zero = all.binades.zero;
    figure.nan = all.nan;
    figure.inf = all.binades.infinite;
    return figure;
}

HeatFigure layer_figure(const RecordedRun& run) {
    std::vector<LayerRow> rows = layers_of(run);
    const std::string left_out = keep_worst(rows);
    HeatFigure figure{.title = "Magnitudes by layer",
                      .subtitle = "share of each row's non-zero gradients by binade" + left_out,
                      .x_label = "magnitude",
                      .columns = {},
                      .rows = {},
                      .levels = binade_levels};
    int low = std::numeric_limits<int>::max(), high = std::numeric_limits<int>::min();
    for (const LayerRow& row : rows) {
        if (row.counts.nonzero == 0) continue;
        low = std::min(low, row.counts.binades.bins.front().first);
        high = std::max(high, row.counts.binades.bins.back().first);
    }
    if (low > high) low = high = 0;
    constexpr int most = 80;              // binades shown
    low = std::max(low, high - most + 1); // what lies below counts in the first
    for (int e = low; e <= high; ++e) figure.columns.push_back(svg::power_label(e));
    for (const LayerRow& row : rows) {
        HeatRow shown{.name = row.name, .note = {}, .values = std::vector<double>(figure.columns.size())};
        for (const auto& [exponent, n] : row.counts.binades.bins)
            shown.values[static_cast<std::size_t>(std::max(exponent, low) - low)] +=
                static_cast<double>(n) / static_cast<double>(row.counts.nonzero);
        if (const Share fp16 = row.counts.zeroed(0); fp16.whole > 0)
            shown.note = fmt::format("{}, FP16 zeroes {}", row.counts.range(), percent(fp16.part, fp16.whole));
        figure.rows.push_back(std::move(shown));
    }
    for (const FormatSpec& f : usual_formats_by_range()) {
        const int edge = static_cast<int>(zones_of(f).subnormal);
        if (edge > low && edge <= high)
            figure.guides.emplace_back(static_cast<std::size_t>(edge - low), upper_case(f.name) + ": zero to the left");
    }
    return figure;
}

HeatFigure zeroed_figure(const RecordedRun& run, std::vector<LayerRow> rows, std::size_t f) {
    const std::string name = upper_case(followed_formats[f]), left_out = keep_worst(rows);
    HeatFigure figure{.title = fmt::format("What {} zeroes, by layer and step", name),
                      .subtitle = fmt::format(
                          "share of the non-zero gradients that become zero in {} at loss scale 1{}", name, left_out),
                      .x_label = "step",
                      .columns = {},
                      .rows = {},
                      .levels = zeroed_levels};
    std::vector<std::size_t> columns; // those with a recorded step
    for (std::size_t c = 0; c < run.columns.count(); ++c) {
        if (std::ranges::none_of(rows, [&](const LayerRow& r) { return r.zeroed[f][c].whole > 0; })) continue;
        columns.push_back(c);
        figure.columns.push_back(std::to_string(run.recorded[c].value_or(run.columns.begin(c))));
    }
    for (const LayerRow& row : rows) {
        HeatRow shown{.name = row.name, .note = {}, .values = {}};
        for (const std::size_t c : columns)
            shown.values.push_back(row.zeroed[f][c].whole == 0 ? std::nan("") : row.zeroed[f][c].rate());
        const Share all = sum_of(row.zeroed[f]);
        shown.note = fmt::format("{} of all steps", percent(all.part, all.whole));
        figure.rows.push_back(std::move(shown));
    }
    return figure;
}

/// Means of stretches of steps, so that curves can be told apart.
LineSeries loss_series(const ComparisonRow& row, std::int64_t stretch) {
    LineSeries series{.name = row.label, .points = {}};
    const RecordedRun& run = *row.runs.front();
    for (std::size_t i = 0; i < run.steps.size();) {
        const std::int64_t begin = run.steps[i].step;
        double sum = 0, count = 0;
        for (; i < run.steps.size() && run.steps[i].step < begin + stretch; ++i)
            if (run.steps[i].loss) {
                sum += *run.steps[i].loss;
                ++count;
            }
        if (count > 0)
            series.points.emplace_back(static_cast<double>(begin) + static_cast<double>(stretch - 1) / 2, sum / count);
    }
    if (const auto broken = run.broken_at()) series.marks.push_back(static_cast<double>(*broken));
    return series;
}

/// Losses that differ by orders of magnitude are shown by their binary logarithm.
void use_log_axis(LineFigure& figure) {
    constexpr double orders = 30;
    double low = std::numeric_limits<double>::infinity(), high = 0;
    for (const LineSeries& series : figure.panels.front().series)
        for (const auto& [x, y] : series.points)
            if (std::isfinite(y)) {
                low = std::min(low, y);
                high = std::max(high, y);
            }
    if (!(low > 0) || high < orders * low) return;
    figure.log2_y = true;
    for (LineSeries& series : figure.panels.front().series)
        for (auto& [x, y] : series.points) y = std::isfinite(y) ? std::log2(y) : y;
}

} // namespace

std::optional<FigureBlock> loss_figure(const ComparisonGroup& group) {
    std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = std::numeric_limits<std::int64_t>::min();
    for (const ComparisonRow& row : group.rows) {
        if (row.runs.front()->steps.empty()) continue;
        first = std::min(first, row.runs.front()->steps.front().step);
        last = std::max(last, row.runs.front()->steps.back().step);
    }
    if (first > last) return std::nullopt;
    const std::int64_t stretch = std::max<std::int64_t>(1, (last - first + 1) / static_cast<std::int64_t>(loss_points));
    LineFigure figure{.title = "Loss: " + group.name,
                      .subtitle = fmt::format("of the first seed of each run{}",
                                              stretch > 1 ? fmt::format(", means of {} steps", stretch) : ""),
                      .x_label = "step",
                      .marks = {},
                      .first = static_cast<double>(first),
                      .last = static_cast<double>(last),
                      .panel_height = 230,
                      .panels = {{.name = "loss", .note = {}, .series = {}}}};
    for (const ComparisonRow& row : group.rows)
        if (LineSeries series = loss_series(row, stretch); !series.points.empty()) {
            if (!series.marks.empty()) figure.marks = "not finite from here on";
            figure.panels.front().series.push_back(std::move(series));
        }
    if (figure.panels.front().series.empty()) return std::nullopt;
    use_log_axis(figure);
    return FigureBlock{figure, "Curves that lie on each other train alike; a curve that ends lost its loss to NaN."};
}

std::optional<FigureBlock> difference_figure(const ComparisonGroup& group, const ComparisonLimits& limits) {
    if (group.reference == nullptr || group.comparisons == 0) return std::nullopt;
    constexpr double margins = 3; // shown above and below FP32
    const std::vector<StepMetrics>& steps = group.reference->runs.front()->steps;
    const std::int64_t first = steps.front().step, last = steps.back().step;
    const std::int64_t stretch = std::max<std::int64_t>(1, (last - first + 1) / difference_points);
    const double reach = margins * group.margin;
    LineFigure figure{.title = "Loss over FP32: " + group.name,
                      .subtitle =
                          fmt::format("loss minus FP32's of the same seed, mean of {}; drawn from {:.2g} to {:.2g}",
                                      plural(static_cast<std::uint64_t>(stretch), "step"), -reach, reach),
                      .x_label = "step",
                      .marks = {},
                      .first = static_cast<double>(first),
                      .last = static_cast<double>(last),
                      .range = {{-reach, reach}},
                      .panels = {}};
    for (const ComparisonRow& row : group.rows) {
        if (!row.over) continue;
        LineSeries line{.name = "difference", .points = {}, .band = {}};
        LineSeries margin{.name = fmt::format("the margin, {:.2g}", group.margin), .points = {}, .quiet = true};
        const double alpha = limits.alpha / static_cast<double>(group.comparisons);
        for (const auto& [step, interval] : difference_curve(row, *group.reference, stretch, alpha)) {
            line.points.emplace_back(static_cast<double>(step) + static_cast<double>(stretch - 1) / 2, interval.mean);
            line.band.emplace_back(interval.low, interval.high);
        }
        if (line.points.empty()) continue;
        for (const double x : {figure.first, figure.last}) margin.points.emplace_back(x, group.margin);
        const MeanInterval& end = row.over->interval;
        figure.panels.push_back({.name = row.label,
                                 .note = fmt::format("ends at {:+.2g}", end.mean),
                                 .series = {std::move(line), std::move(margin)}});
    }
    if (figure.panels.empty()) return std::nullopt;
    return FigureBlock{figure, fmt::format("Band: the interval of the mean over seeds, of the level that the verdict "
                                           "uses, {:.3g} %; with one seed there is none.",
                                           100 * (1 - limits.alpha / static_cast<double>(group.comparisons)))};
}

std::optional<FigureBlock> scale_figure(const ComparisonGroup& group) {
    LineFigure figure{.title = "Loss scale: " + group.name,
                      .subtitle = "as recorded, of the first seed of each run that scales its loss",
                      .x_label = "step",
                      .marks = "skipped step",
                      .log2_y = true,
                      .panels = {}};
    bool first = true;
    for (const ComparisonRow& row : group.rows) {
        const RecordedRun& run = *row.runs.front();
        LineSeries series{.name = "scale", .points = {}, .marks = {}, .holds = true};
        for (const StepMetrics& m : run.steps) {
            const double log2 = m.scale && *m.scale > 0 ? std::log2(*m.scale) : std::nan("");
            if (m.scale && (series.points.empty() || series.points.back().second != log2))
                series.points.emplace_back(static_cast<double>(m.step), log2);
        }
        series.marks.assign(run.skipped.begin(), run.skipped.end());
        if (series.points.empty() || (!row.scales_loss && series.points.size() == 1)) continue;
        const auto begin = static_cast<double>(run.steps.front().step),
                   end = static_cast<double>(run.steps.back().step);
        figure.first = first ? begin : std::min(figure.first, begin);
        figure.last = first ? end : std::max(figure.last, end);
        first = false;
        figure.panels.push_back({.name = row.label,
                                 .note = fmt::format("{} skipped, ends at 2^{:g}", plural(run.skipped.size(), "step"),
                                                     series.points.back().second),
                                 .series = {std::move(series)}});
    }
    if (figure.panels.empty()) return std::nullopt;
    return FigureBlock{figure, "amp-loss-scale replays these runs under any other scaler."};
}

std::vector<FigureBlock> magnitude_figures(const RecordedRun& run) {
    std::vector<FigureBlock> figures;
    for (const TensorKind kind : {TensorKind::weight_gradient, TensorKind::activation_gradient})
        if (MagnitudeFigure figure = magnitude_figure(run, kind); figure.count() > 0)
            figures.push_back({std::move(figure), ""});
    if (!figures.empty())
        figures.back().caption =
            "Below each histogram the range of each format, unscaled: a loss scale of 2^k moves the "
            "histogram k binades to the right.";
    figures.push_back({layer_figure(run), "Layers whose gradients lie left of a format's line need a loss scale there, "
                                          "or a scale of their own."});
    return figures;
}

std::vector<FigureBlock> forward_figures(const RecordedRun& run) {
    std::vector<FigureBlock> figures;
    for (const KindRecord& kind : run.kinds) {
        if (kind.group->kinds == gradient_kinds) continue; // they have their own figures
        const MagnitudeHistogram& all = kind.magnitudes;
        MagnitudeFigure figure{.title = fmt::format("Magnitudes of {}", kind.group->name),
                               .exponents = {},
                               .zero = all.zero,
                               .nan = all.nan,
                               .inf = all.inf,
                               .formats = {}};
        for (const std::string_view name : usual_formats) figure.formats.push_back(format(name));
        for (const auto& [exponent, row] : all.rows)
            figure.exponents[exponent] = std::accumulate(row.begin(), row.end(), std::uint64_t{0});
        figures.push_back({std::move(figure), ""});
    }
    return figures;
}

std::vector<FigureBlock> zeroed_figures(const RecordedRun& run) {
    std::vector<FigureBlock> figures;
    const std::vector<LayerRow> rows = layers_of(run);
    for (std::size_t f = 0; f < followed_formats.size(); ++f) figures.push_back({zeroed_figure(run, rows, f), ""});
    return figures;
}

FigureBlock rate_figure(const RecordedRun& run, const RecommendationOptions& options) {
    const MagnitudeHistogram& all = run.magnitudes;
    const auto nonzero = static_cast<double>(std::max<std::uint64_t>(all.nonzero(), 1));
    int low = -4, high = 8;
    RateFigure figure{.title = "What a loss scale loses and saves", .limit = options.limit, .curves = {}};
    for (const std::string_view name : usual_formats) {
        const FormatSpec spec = format(name);
        const Recommendation r = recommend(all, spec, options);
        figure.curves.push_back({spec, {}, {}, std::nullopt, r.log2_scale});
        if (r.window) figure.curves.back().window = {r.window->low, r.window->high};
        if (spec.exponent_bits >= 8) continue; // BF16's window reaches far beyond all others
        high = std::clamp(std::max(r.highest_safe, r.lowest_enough) + 3, high, 60);
    }
    figure.first_log2 = low;
    for (RateCurve& curve : figure.curves)
        for (int k = low; k <= high; ++k) {
            const ClassCounts counts = all.classify(curve.format, k);
            curve.underflow.push_back(static_cast<double>(counts.underflow) / nonzero);
            curve.overflow.push_back(static_cast<double>(counts.overflow) / nonzero);
        }
    return {figure, "The safe window is where nothing overflows and underflow stays below the limit."};
}

std::vector<FigureBlock> scaled_cast_figures(const RecordedRun& run) {
    LineFigure usage{.title = "Use of the range: " + run.label,
                     .subtitle =
                         "log2 of amax x scale / largest value, of the tensors of each stretch of steps; above 0 "
                         "they saturate",
                     .x_label = "step",
                     .marks = {},
                     .first = static_cast<double>(run.columns.first),
                     .last = static_cast<double>(run.columns.last),
                     .panels = {}};
    LineFigure rates = usage;
    rates.title = "Underflow and saturation under a scale: " + run.label;
    rates.subtitle = "percent of the non-zero elements that are cast";
    for (std::size_t f = 0; f < run.formats.size(); ++f) {
        LineSeries most{.name = "largest", .points = {}}, least{.name = "smallest", .points = {}},
            underflow{.name = "underflow", .points = {}}, saturated{.name = "saturated", .points = {}};
        ScaledCasts sum;
        for (std::size_t c = 0; c < run.scaled[f].size(); ++c) {
            const ScaledCasts& casts = run.scaled[f][c];
            if (casts.nonzero == 0) continue;
            const auto step = static_cast<double>(run.columns.begin(c));
            most.points.emplace_back(step, std::isfinite(casts.most) ? casts.most : std::nan(""));
            least.points.emplace_back(step, std::isfinite(casts.least) ? casts.least : std::nan(""));
            underflow.points.emplace_back(step, 100 * Share{casts.underflow, casts.nonzero}.rate());
            saturated.points.emplace_back(step, 100 * Share{casts.saturated, casts.nonzero}.rate());
            sum.nonzero += casts.nonzero;
            sum.underflow += casts.underflow;
            sum.saturated += casts.saturated;
        }
        usage.panels.push_back({.name = run.formats[f], .note = {}, .series = {most, least}});
        rates.panels.push_back(
            {.name = run.formats[f],
             .note = fmt::format("{} underflow, {} saturate in all", percent(sum.underflow, sum.nonzero),
                                 percent(sum.saturated, sum.nonzero)),
             .series = {underflow, saturated}});
    }
    return {{usage, ""}, {rates, ""}};
}

} // namespace amp::report_tool
