// What runs do over the steps: losses, their differences to FP32, gradients, loss scales.
#include <ampscope/tools/amp-report/report.h>

#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace amp::report_tool {

namespace {

constexpr std::int64_t loss_points = 80, difference_points = 30; // of a curve

/// The steps that a figure shows.
struct StepRange {
    std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = std::numeric_limits<std::int64_t>::min();

    void include(std::int64_t begin, std::int64_t end) {
        first = std::min(first, begin);
        last = std::max(last, end);
    }
    [[nodiscard]] bool empty() const { return first > last; }
    /// How many steps one of so many points stands for.
    [[nodiscard]] std::int64_t stretch(std::int64_t points) const {
        return std::max<std::int64_t>(1, (last - first + 1) / points);
    }
};

/// Means of stretches of steps, so that curves can be told apart.
LineSeries loss_series(const ComparisonRow& row, std::int64_t stretch) {
    LineSeries series{.name = row.label, .points = {}};
    const RecordedRun& run = *row.runs.front();
    for (const auto& [step, mean] : loss_curve(run, stretch))
        series.points.emplace_back(static_cast<double>(step) + static_cast<double>(stretch - 1) / 2, mean);
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
    StepRange range;
    for (const ComparisonRow& row : group.rows)
        if (const std::vector<StepMetrics>& steps = row.runs.front()->steps; !steps.empty())
            range.include(steps.front().step, steps.back().step);
    if (range.empty()) return std::nullopt;
    const std::int64_t stretch = range.stretch(loss_points);
    LineFigure figure{.title = "Loss: " + group.name,
                      .subtitle = fmt::format("of the first seed of each run{}",
                                              stretch > 1 ? fmt::format(", means of {} steps", stretch) : ""),
                      .x_label = "step",
                      .marks = {},
                      .first = static_cast<double>(range.first),
                      .last = static_cast<double>(range.last),
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
    StepRange range;
    range.include(steps.front().step, steps.back().step);
    const std::int64_t stretch = range.stretch(difference_points);
    LineFigure figure{.title = "Loss over FP32: " + group.name,
                      .subtitle =
                          fmt::format("loss minus FP32's of the same seed, mean of {}; each on a scale of its own, "
                                      "of at most {:g} margins",
                                      plural(static_cast<std::uint64_t>(stretch), "step"), margins),
                      .x_label = "step",
                      .marks = {},
                      .first = static_cast<double>(range.first),
                      .last = static_cast<double>(range.last),
                      .panels = {}};
    for (const ComparisonRow& row : group.rows) {
        if (!row.over) continue;
        LineSeries line{.name = "difference", .points = {}, .band = {}};
        LineSeries margin{.name = fmt::format("the margin, {:.2g}", group.margin), .points = {}, .quiet = true};
        const double alpha = limits.alpha / static_cast<double>(group.comparisons);
        double reach = 1.2 * group.margin;
        for (const auto& [step, interval] : difference_curve(row, *group.reference, stretch, alpha)) {
            line.points.emplace_back(static_cast<double>(step) + static_cast<double>(stretch - 1) / 2, interval.mean);
            line.band.emplace_back(interval.low, interval.high);
            for (const double y : {interval.mean, interval.low, interval.high})
                if (std::isfinite(y)) reach = std::max(reach, std::min(std::abs(y), margins * group.margin));
        }
        if (line.points.empty()) continue;
        for (const double x : {figure.first, figure.last}) margin.points.emplace_back(x, group.margin);
        const MeanInterval& end = row.over->interval;
        figure.panels.push_back({.name = row.label,
                                 .note = fmt::format("ends at {:+.2g}", end.mean),
                                 .series = {std::move(line), std::move(margin)},
                                 .range = {{-reach, reach}}});
    }
    if (figure.panels.empty()) return std::nullopt;
    return FigureBlock{figure, fmt::format("Band: the interval of the mean over seeds, of the level that the verdict "
                                           "uses, {:.3g} %; with one seed there is none.",
                                           100 * (1 - limits.alpha / static_cast<double>(group.comparisons)))};
}

std::optional<FigureBlock> gradient_figure(const ComparisonGroup& group, const SpikeLimits& limits) {
    constexpr double farthest = 8; // binades shown on either side
    StepRange range;
    for (const ComparisonRow& row : group.rows)
        for (const RunSpikes& run : row.stability)
            if (!run.sizes.empty()) range.include(run.sizes.front().first, run.sizes.back().first);
    if (range.empty()) return std::nullopt;
    const std::int64_t stretch = range.stretch(loss_points);
    const double limit = std::log2(limits.gradient);
    LineFigure figure{.title = "Gradients over their level: " + group.name,
                      .subtitle = fmt::format("median of all runs in {}; the level is {}",
                                              plural(static_cast<std::uint64_t>(stretch), "step"),
                                              group.reference != nullptr ? "FP32's of the same seed"
                                                                         : "the run's own median of the steps before"),
                      .x_label = "step",
                      .marks = {},
                      .log2_y = true,
                      .first = static_cast<double>(range.first),
                      .last = static_cast<double>(range.last),
                      .range = {{-2, limit + 1}},
                      .panel_height = 52,
                      .panels = {}};
    for (const ComparisonRow& row : group.rows) {
        LineSeries line{.name = "gradients", .points = {}, .band = {}, .marks = {}};
        LineSeries bound{.name = fmt::format("the limit, {:g} times", limits.gradient), .points = {}, .quiet = true};
        const auto binade = [&](double size) { return std::clamp(std::log2(size), -farthest, farthest); };
        for (const StretchSizes& s : gradient_curve(row, stretch)) {
            line.points.emplace_back(static_cast<double>(s.step) + static_cast<double>(stretch - 1) / 2,
                                     binade(s.median));
            line.band.emplace_back(binade(s.least), binade(s.largest));
            figure.range = {{std::min(figure.range->first, line.band.back().first),
                             std::max(figure.range->second, line.band.back().second)}};
        }
        for (const RunSpikes& run : row.stability)
            for (const Spike& s : run.spikes) line.marks.push_back(static_cast<double>(s.first));
        std::ranges::sort(line.marks);
        if (line.points.empty()) continue;
        if (!line.marks.empty()) figure.marks = "alarm";
        for (const double x : {figure.first, figure.last}) bound.points.emplace_back(x, limit);
        const RowStability of = stability_of(row);
        figure.panels.push_back(
            {.name = row.label,
             .note = fmt::format("at most {:.3g} times, in step {}", of.largest.value_or(0), of.largest_in),
             .series = {std::move(line), std::move(bound)}});
    }
    return FigureBlock{figure, "Band: from the least to the largest of all runs. All lie below 1 where FP32's norms "
                               "fall below their median of the steps before."};
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

} // namespace amp::report_tool
