#include <ampscope/tools/amp-report/report.h>

#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace amp::report_tool {

namespace {

Cell share(const Share& s) { return share_cell(s.part, s.whole); }

Cell spread(const std::optional<Spread>& s) {
    if (!s) return no_value();
    const std::string mean = fmt::format("{:.4g}", s->mean);
    return {s->count < 2 ? mean : fmt::format("{} ± {:.2g}", mean, s->deviation), s->mean};
}

/// How many seeds were averaged; of them those that diverged are named.
Cell seeds(const ComparisonRow& row) {
    const auto n = static_cast<double>(row.seeds);
    if (row.diverged == 0) return {fmt::format("{}", row.seeds), n};
    return {fmt::format("{} of {} diverged", row.diverged, row.seeds), n - static_cast<double>(row.diverged)};
}

/// Two digits, or all before the point.
std::string short_number(double x) { return std::abs(x) < 100 ? fmt::format("{:.2g}", x) : fmt::format("{:.0f}", x); }

Cell difference(const std::optional<Difference>& d, double unit = 1) {
    if (!d) return no_value();
    const MeanInterval& x = d->interval;
    std::string text = (x.mean < 0 ? "" : "+") + short_number(unit * x.mean);
    if (std::isfinite(x.low))
        text += fmt::format(" ({} to {})", short_number(unit * x.low), short_number(unit * x.high));
    return {text, x.mean};
}

Cell answer(Standing standing) {
    const std::string words(words_of(standing));
    switch (standing) {
    case Standing::holds: return {words, 0, Tone::good};
    case Standing::unclear: return {words, 1, Tone::fair};
    case Standing::worse: return {words, 2, Tone::bad};
    case Standing::broken: return {words, 3, Tone::bad};
    default: return no_value();
    }
}

/// The answer and, if it cannot be told, how many seeds would tell.
Cell answer(const std::optional<Difference>& d) {
    if (!d) return no_value();
    Cell cell = answer(d->standing);
    if (d->standing == Standing::unclear && d->interval.count > 1)
        cell.text += d->seeds_needed ? fmt::format(": {} seeds would tell", *d->seeds_needed) : ": no number would";
    return cell;
}

/// Which columns the rows of a group have something for.
struct Columns {
    bool underflow, updates, memory, distance, scale;

    explicit Columns(const ComparisonGroup& g)
        : underflow(any(g, [](const ComparisonRow& r) { return r.underflow.has_value(); })),
          updates(any(g, [](const ComparisonRow& r) { return r.lost_updates.whole > 0; })),
          memory(any(g, [](const ComparisonRow& r) { return r.bytes_per_parameter.has_value(); })),
          distance(any(g, [](const ComparisonRow& r) { return r.distance.has_value(); })),
          scale(any(g, [](const ComparisonRow& r) { return r.scales_loss || r.skipped > 0; })) {}

  private:
    template <class Has>
    static bool any(const ComparisonGroup& g, const Has& has) {
        return std::ranges::any_of(g.rows, has);
    }
};

bool has_reference(const ComparisonGroup& group) { return group.reference != nullptr; }

bool is_known(const ComparisonGroup& group, std::optional<Spread> ComparisonRow::*quantity) {
    return std::ranges::any_of(group.rows, [&](const ComparisonRow& r) { return (r.*quantity).has_value(); });
}

std::string caption_of(const ComparisonGroup& group, const ComparisonLimits& limits) {
    std::string text = "Final loss: mean of the last tenth of the steps, ± its deviation between seeds that did not "
                       "diverge.";
    if (!has_reference(group)) return text;
    text += fmt::format(
        " Over FP32: the mean difference to FP32's run of the same seed, with its interval by Student's t; {} with "
        "probability {:g}{}. A format holds if its interval lies below the margin, does not hold if above it. The "
        "margin of losses is {:.2g}: {}.",
        group.comparisons < 2
            ? "it holds the true difference"
            : fmt::format("the {} intervals of a column hold the true differences at once", group.comparisons),
        1 - limits.alpha, group.comparisons < 2 ? "" : " (Bonferroni)", group.margin, group.margin_basis);
    text += " The verdict is that of the final loss; others are judged in the same way. Seeds that would tell: so "
            "many that their interval lies on one side of the margin with " +
            limit_percent(planned_power) + " probability, if mean and deviation of the differences are these.";
    if (is_known(group, &ComparisonRow::accuracy))
        text += fmt::format(
            " The margin of accuracy is {} of the examples (--accuracy-margin). An accuracy on n examples is "
            "a multiple of 1/n, so that seeds may agree by chance: their differences count as deviating "
            "by (1/n)/√6 at least, which is what rounding two accuracies does.",
            limit_percent(limits.accuracy_margin));
    return text;
}

} // namespace

std::vector<TableBlock> comparison_tables(const ComparisonGroup& group, const ReportOptions& options) {
    struct Quantity {
        const char* name;
        std::optional<Spread> ComparisonRow::*value;
        std::optional<Difference> ComparisonRow::*difference;
        const char* against;
        double unit;
    };
    std::vector<TableBlock> tables;
    for (const Quantity& q :
         {Quantity{"final loss", &ComparisonRow::loss, &ComparisonRow::over, "over FP32", 1},
          {"validation loss", &ComparisonRow::validation, &ComparisonRow::validation_over, "over FP32", 1},
          {"accuracy, %", &ComparisonRow::accuracy, &ComparisonRow::accuracy_lost, "points below FP32", 100}}) {
        const bool decides = q.value == &ComparisonRow::loss;
        if (!decides && !is_known(group, q.value)) continue;
        TableBlock& table = tables.emplace_back(TableBlock{.caption = {}, .header = {"precision"}, .rows = {}});
        if (decides) table.header.emplace_back("seeds");
        table.header.emplace_back(q.name);
        if (has_reference(group)) table.header.insert(table.header.end(), {q.against, "answer"});
        for (const ComparisonRow& row : group.rows) {
            std::vector<Cell>& cells = table.rows.emplace_back(std::vector<Cell>{{row.label}});
            if (decides) cells.push_back(seeds(row));
            std::optional<Spread> value = row.*q.value;
            if (value) value = Spread{q.unit * value->mean, q.unit * value->deviation, value->count};
            cells.push_back(spread(value));
            if (!has_reference(group)) continue;
            cells.push_back(difference(row.*q.difference, q.unit));
            const bool by_interval = !decides || (row.over && row.standing == row.over->standing);
            cells.push_back(by_interval ? answer(row.*q.difference) : answer(row.standing));
        }
        if (decides) table.caption = caption_of(group, options.limits);
    }
    return tables;
}

std::optional<TableBlock> cost_table(const ComparisonGroup& group, const ReportOptions& options) {
    const double limit = options.recommendation.limit;
    const Columns columns(group);
    TableBlock table{.caption = {}, .header = {"precision"}, .rows = {}};
    if (columns.scale) table.header.emplace_back("skipped");
    if (columns.underflow) table.header.emplace_back("underflow");
    if (columns.updates) table.header.emplace_back("lost updates");
    if (columns.memory) table.header.emplace_back("bytes per parameter");
    if (columns.distance) table.header.emplace_back("off FP32");
    if (table.header.size() == 1) return std::nullopt;
    for (const ComparisonRow& row : group.rows) {
        std::vector<Cell>& cells = table.rows.emplace_back(std::vector<Cell>{{row.label}});
        if (columns.scale)
            cells.push_back(row.scales_loss || row.skipped > 0 ? Cell{fmt::format("{:.3g}", row.skipped), row.skipped}
                                                               : no_value());
        if (columns.underflow) {
            cells.push_back(row.underflow ? share(*row.underflow) : no_value());
            if (row.underflow && row.underflow->rate() >= limit) cells.back().tone = Tone::fair;
        }
        if (columns.updates) cells.push_back(share(row.lost_updates));
        if (columns.memory)
            cells.push_back(row.bytes_per_parameter ? number_cell(*row.bytes_per_parameter, 3) : no_value());
        if (columns.distance) cells.push_back(row.distance ? number_cell(*row.distance, 2) : no_value());
    }
    if (columns.scale) table.caption += "Skipped: steps of a run that its loss scaler left out. ";
    if (columns.underflow)
        table.caption += fmt::format("Underflow: of the non-zero gradients that training rounded, those that became "
                                     "zero; yellow from {} on, the limit of the safe window. ",
                                     limit_percent(limit));
    if (columns.updates)
        table.caption += "Lost updates: of weights with a gradient, those that a step left as they were. ";
    if (columns.memory) table.caption += "Bytes: weights, gradients and optimizer, without activations. ";
    if (columns.distance) table.caption += "Off FP32: |w - w0| / |w0| at the end, of the first seed. ";
    if (!table.caption.empty()) table.caption.pop_back();
    return table;
}

std::optional<TableBlock> stability_table(const ComparisonGroup& group, const ComparisonLimits& limits) {
    TableBlock table{.caption = {},
                     .header = {"precision", "runs with alarms", "not finite from step", "median gradient",
                                "largest gradient", "in step"},
                     .rows = {}};
    const auto times = [](double size) { return Cell{fmt::format("{:.3g} x", size), size}; };
    const auto step = [](std::int64_t s) { return Cell{fmt::format("{}", s), static_cast<double>(s)}; };
    for (const ComparisonRow& row : group.rows) {
        const RowStability of = stability_of(row);
        if (!of.largest && of.alarmed == 0 && row.runs.front()->steps.empty()) continue;
        table.rows.push_back({{row.label},
                              {fmt::format("{} of {}", of.alarmed, row.runs.size()), static_cast<double>(of.alarmed)},
                              of.not_finite_from ? step(*of.not_finite_from) : no_value(),
                              of.usual ? times(*of.usual) : no_value(),
                              of.largest ? times(*of.largest) : no_value(),
                              of.largest ? step(of.largest_in) : no_value()});
        std::vector<Cell>& cells = table.rows.back();
        if (of.alarmed > 0) cells[1].tone = Tone::fair;
        if (of.not_finite_from) cells[2].tone = Tone::bad;
        if (of.largest.value_or(0) > limits.spikes.gradient) cells[4].tone = Tone::bad;
    }
    if (table.rows.empty()) return std::nullopt;
    table.caption = fmt::format(
        "Gradients: their norm over its level (the largest gradient, where no norm is logged). The level is {}; FP32 "
        "itself, and runs that have none of their seed, are compared with their own median of the {} steps before. "
        "Alarms: a gradient above {:g} times its level (--spike-gradient), a loss above its median of the steps before "
        "by {:g} of their deviations and a tenth of it where FP32's in the same step is not (--spike-loss), and what "
        "is NaN or infinite in a step that no loss scaler skips.",
        has_reference(group) ? fmt::format("FP32's in the same step of the same seed, but at least FP32's median of "
                                           "the {} steps before (--spike-window)",
                                           limits.spikes.window)
                             : "FP32's of the same seed, which is not among these runs",
        limits.spikes.window, limits.spikes.gradient, limits.spikes.loss);
    return table;
}

std::optional<TableBlock> departure_table(const ComparisonGroup& group) {
    TableBlock table{.caption =
                         "The first tensor, in the order of the ops of a step, that is far from FP32's in the same "
                         "step, infinite, NaN, or a gradient of zeros where FP32's is not, in the run of the first "
                         "seed. error: |x - y| / |y|, gradients unscaled. A tensor is far from FP32's where that is "
                         "above the bound that the run was recorded with (recording.departure in its run.json).",
                     .header = {"precision", "what", "tensor", "op", "step", "error"},
                     .rows = {},
                     .text_columns = 4,
                     .groups = true};
    std::vector<std::string> tensors;
    for (const ComparisonRow& row : group.rows)
        for (const RecordedDeparture& d : row.runs.front()->departures) tensors.push_back(d.tensor);
    const NamesBelow names(tensors);
    if (const std::string below = names.heading("Tensors"); below != "Tensors") table.caption += " " + sentence(below);
    for (const ComparisonRow& row : group.rows)
        for (const RecordedDeparture& d : row.runs.front()->departures)
            table.rows.push_back({{row.label},
                                  {d.kind},
                                  {names.of(d.tensor)},
                                  {d.op},
                                  d.step ? Cell{fmt::format("{:.0f}", *d.step), *d.step} : no_value(),
                                  d.error ? number_cell(*d.error, 3) : no_value()});
    return table.rows.empty() ? std::nullopt : std::optional(table);
}

TableBlock worst_tensor_table(const RecordedRun& run, const NamesBelow& names, const ReportOptions& options) {
    const std::vector<const TensorRecord*> tensors = run.most_underflow_first();
    TableBlock table{.caption = {}, .header = {"tensor", "non-zero", "magnitudes"}, .rows = {}};
    for (const std::string_view name : usual_formats) table.header.emplace_back(name);
    const std::size_t rows = rows_shown(options.worst, tensors.size());
    for (std::size_t i = 0; i < rows; ++i) {
        const TensorRecord& t = *tensors[i];
        table.rows.push_back({{names.of(t.name)}, count_cell(t.counts.nonzero), {t.counts.range()}});
        for (std::size_t f = 0; f < usual_formats.size(); ++f) table.rows.back().push_back(share(t.counts.zeroed(f)));
    }
    table.caption = with_counted_text(
        fmt::format("Non-zero elements that become zero unscaled, over all recorded steps. {}, those that lose most in "
                    "FP16 first.",
                    shown_of(rows, tensors.size(), "tensor")),
        run.censoring());
    return table;
}

TableBlock fit_table(const RecordedRun& run, double limit) {
    TableBlock table{.caption = with_counted_text(
                         fmt::format("Underflow, overflow: of the non-zero elements of all recorded steps, in a cast "
                                     "without a scale; scaled: with a scale for each tensor and step, the largest "
                                     "power of two without overflow. Held: tensors, each counted once a step, of which "
                                     "no element overflows and less than {} of the non-zero ones underflow.",
                                     limit_percent(limit)),
                         run.censoring()),
                     .header = {"tensors", "format", "underflow", "overflow", "held", "scaled: underflow", "held"},
                     .rows = {},
                     .text_columns = 2,
                     .groups = true};
    for (const KindRecord& kind : run.kinds)
        for (const KindFit& of : kind.fits) {
            const FormatFit& fit = of.fit;
            const std::uint64_t nonzero = kind.magnitudes.nonzero();
            table.rows.push_back(
                {{std::string(kind.group->name)},
                 {of.format.name},
                 share_cell(fit.unscaled.underflow, nonzero),
                 share_cell(fit.unscaled.overflow, nonzero),
                 {fmt::format("{} of {}", grouped(fit.held), grouped(fit.tensors)), static_cast<double>(fit.held)},
                 share_cell(fit.scaled.underflow, nonzero),
                 {fmt::format("{} of {}", grouped(fit.held_scaled), grouped(fit.tensors)),
                  static_cast<double>(fit.held_scaled)}});
        }
    return table;
}

std::optional<TableBlock> scaled_tensor_table(const RecordedRun& run, const ReportOptions& options) {
    const std::vector<const ScaledTensor*> tensors = run.most_saturated_first();
    if (tensors.empty()) return std::nullopt;
    TableBlock table{.caption = {}, .header = {"cast", "amax", "saturated", "underflow"}, .rows = {}};
    const std::size_t rows = rows_shown(options.worst, tensors.size());
    const NamesBelow names(tensors, &ScaledTensor::name);
    for (std::size_t i = 0; i < rows; ++i)
        table.rows.push_back({{names.of(tensors[i]->name)},
                              number_cell(tensors[i]->amax, 3),
                              share({tensors[i]->saturated, tensors[i]->nonzero}),
                              share({tensors[i]->underflow, tensors[i]->nonzero})});
    table.caption =
        fmt::format("{}: casts that saturate or lose elements, of the non-zero ones of all steps. {}", run.label,
                    sentence(names.heading(shown_of(rows, tensors.size(), "cast") + ", the worst first")));
    return table;
}

} // namespace amp::report_tool
