#include <ampscope/tools/amp-report/report.h>

#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>

namespace amp::report_tool {

namespace {

Cell share(const Share& s) { return share_cell(s.part, s.whole); }

Cell spread(const std::optional<Spread>& s, Tone tone) {
    if (!s) return {"not finite", std::nullopt, tone};
    const std::string mean = fmt::format("{:.4g}", s->mean);
    return {s->count < 2 ? mean : fmt::format("{} ± {:.2g}", mean, s->deviation), s->mean, tone};
}

Tone tone_of(const ComparisonRow& row) {
    switch (row.standing) {
    case Standing::holds: return Tone::good;
    case Standing::worse:
    case Standing::broken: return Tone::bad;
    default: return Tone::plain;
    }
}

/// Which columns the rows of a group have something for.
struct Columns {
    bool accuracy, validation, underflow, updates, memory, distance, scale;

    explicit Columns(const ComparisonGroup& g)
        : accuracy(any(g, [](const ComparisonRow& r) { return r.accuracy.has_value(); })),
          validation(any(g, [](const ComparisonRow& r) { return r.validation.has_value(); })),
          underflow(any(g, [](const ComparisonRow& r) { return r.underflow.has_value(); })),
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

std::vector<Cell> cells_of(const ComparisonRow& row, const Columns& columns, const ComparisonGroup& group,
                           double limit) {
    const bool logged = row.runs.front()->final_loss().has_value();
    std::vector<Cell> cells = {{row.label}};
    cells.push_back(logged ? spread(row.loss, tone_of(row)) : no_value());
    if (group.reference != nullptr) {
        const bool compared = row.standing == Standing::holds || row.standing == Standing::worse;
        cells.push_back(compared ? Cell{fmt::format("{:+.2g}", row.excess), row.excess} : no_value());
    }
    if (columns.validation) cells.push_back(row.validation ? spread(row.validation, Tone::plain) : no_value());
    if (columns.accuracy)
        cells.push_back(row.accuracy ? Cell{percent(row.accuracy->mean), row.accuracy->mean} : no_value());
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
    return cells;
}

} // namespace

TableBlock comparison_table(const ComparisonGroup& group, const ReportOptions& options) {
    const double limit = options.recommendation.limit;
    const Columns columns(group);
    TableBlock table{.caption = {}, .header = {"precision", "final loss"}, .rows = {}};
    if (group.reference != nullptr) table.header.emplace_back("over FP32");
    if (columns.validation) table.header.emplace_back("validation");
    if (columns.accuracy) table.header.emplace_back("accuracy");
    if (columns.scale) table.header.emplace_back("skipped");
    if (columns.underflow) table.header.emplace_back("underflow");
    if (columns.updates) table.header.emplace_back("lost updates");
    if (columns.memory) table.header.emplace_back("bytes per parameter");
    if (columns.distance) table.header.emplace_back("off FP32");
    std::size_t seeds = 0;
    for (const ComparisonRow& row : group.rows) {
        table.rows.push_back(cells_of(row, columns, group, limit));
        seeds = std::max(seeds, row.runs.size());
    }
    table.caption = fmt::format("Final loss: mean of the last tenth of the steps{}.",
                                seeds > 1 ? fmt::format(", and ± its deviation between seeds (up to {})", seeds) : "");
    if (group.reference != nullptr)
        table.caption += fmt::format(" A run holds (green) if it ends less than {:.2g} over FP32's loss of the same "
                                     "seeds, and fails (red) if by more, or not finite. The bound is {}.",
                                     group.bound, group.bound_basis);
    if (columns.underflow)
        table.caption += fmt::format(" Underflow: of the non-zero gradients that training rounded, those that became "
                                     "zero; yellow from {} on, the limit of the safe window.",
                                     fmt::format("{:g} %", 100 * limit));
    if (columns.updates)
        table.caption += " Lost updates: of weights with a gradient, those that a step left as they were.";
    if (columns.memory) table.caption += " Bytes: weights, gradients and optimizer, without activations.";
    if (columns.distance) table.caption += " Off FP32: |w - w0| / |w0| at the end, of the first seed.";
    return table;
}

std::optional<TableBlock> departure_table(const ComparisonGroup& group) {
    TableBlock table{.caption =
                         "The first tensor, in the order of the ops of a step, that is far from FP32's in the same "
                         "step, infinite, NaN, or a gradient of zeros where FP32's is not. error: |x - y| / |y|, "
                         "gradients unscaled; the bound is that of run.json (departure). Of the first seed.",
                     .header = {"precision", "what", "tensor", "op", "step", "error"},
                     .rows = {},
                     .text_columns = 4,
                     .groups = true};
    for (const ComparisonRow& row : group.rows)
        for (const RecordedDeparture& d : row.runs.front()->departures)
            table.rows.push_back({{row.label},
                                  {d.kind},
                                  {d.tensor},
                                  {d.op},
                                  d.step ? Cell{fmt::format("{:.0f}", *d.step), *d.step} : no_value(),
                                  d.error ? number_cell(*d.error, 3) : no_value()});
    return table.rows.empty() ? std::nullopt : std::optional(table);
}

TableBlock worst_tensor_table(const RecordedRun& run, const ReportOptions& options) {
    const std::vector<const TensorRecord*> tensors = run.most_underflow_first();
    TableBlock table{.caption = {}, .header = {"tensor", "non-zero", "magnitudes"}, .rows = {}};
    for (const std::string_view name : usual_formats) table.header.emplace_back(name);
    const std::size_t rows = options.worst == 0 ? tensors.size() : std::min(options.worst, tensors.size());
    for (std::size_t i = 0; i < rows; ++i) {
        const TensorRecord& t = *tensors[i];
        table.rows.push_back({{t.name}, count_cell(t.counts.nonzero), {t.counts.range()}});
        for (std::size_t f = 0; f < usual_formats.size(); ++f) table.rows.back().push_back(share(t.counts.zeroed(f)));
    }
    table.caption =
        fmt::format("Non-zero elements that become zero unscaled, over all recorded steps. {}, those that lose most in "
                    "FP16 first.",
                    shown_of(rows, tensors.size(), "tensor"));
    return table;
}

std::optional<TableBlock> scaled_tensor_table(const RecordedRun& run, const ReportOptions& options) {
    const std::vector<const ScaledTensor*> tensors = run.most_saturated_first();
    if (tensors.empty()) return std::nullopt;
    TableBlock table{.caption = {}, .header = {"cast", "amax", "saturated", "underflow"}, .rows = {}};
    const std::size_t rows = options.worst == 0 ? tensors.size() : std::min(options.worst, tensors.size());
    for (std::size_t i = 0; i < rows; ++i)
        table.rows.push_back({{tensors[i]->name},
                              number_cell(tensors[i]->amax, 3),
                              share({tensors[i]->saturated, tensors[i]->nonzero}),
                              share({tensors[i]->underflow, tensors[i]->nonzero})});
    table.caption = fmt::format("{}: casts that saturate or lose elements, of the non-zero ones of all steps. {}, the "
                                "worst first.",
                                run.label, shown_of(rows, tensors.size(), "cast"));
    return table;
}

} // namespace amp::report_tool
