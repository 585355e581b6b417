#include <ampscope/tools/amp-train/report.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/json_value.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace amp::train_tool {

namespace {

using Json = nlohmann::ordered_json;

Cell share_cell(std::int64_t part, std::int64_t whole) {
    return amp::share_cell(static_cast<double>(part), static_cast<std::uint64_t>(whole));
}

/// A figure in the style of a fmt specification such as "{:.4f}".
Cell figure_cell(const char* style, double x) { return {fmt::format(fmt::runtime(style), x), x}; }

Cell change_cell(double share) {
    const double hundredths = std::round(1e4 * share) + 0.0; // 0, not -0, of what is hardly below it
    return std::isfinite(share) ? Cell{fmt::format("{:+.2f} %", hundredths / 100), share} : no_value();
}

/// A line for each way in which a run has left FP32.
Bullets departures_of(const Outcome& outcome, double bound) {
    Bullets list;
    const Run& run = *outcome.run;
    for (std::size_t i = 0; i < departure_names.size(); ++i) {
        const auto kind = static_cast<DepartureKind>(i);
        const auto& d = run.departures->first(kind);
        if (!d) continue;
        if (kind == DepartureKind::error && !std::isfinite(d->error)) continue; // first inf and first NaN tell
        const std::string what = kind == DepartureKind::error ? fmt::format("error above {:g}: {:.3g}", bound, d->error)
                                                              : std::string(departure_names[i]);
        list.items.push_back(fmt::format("first {}, step {}: {} ({})", what, d->step, d->tensor, d->op));
    }
    if (outcome.eps_is_zero) {
        const TrainOptions& o = run.trainer->options();
        list.items.push_back(
            fmt::format("Adam's eps, {:g}, is 0 in {}: a weight whose gradients were 0 so far gets 0 / 0",
                        o.optimizer.eps, o.precision.v.name));
    }
    return list;
}

} // namespace

std::string plan_report(const TrainOptions& options, const TrainingProgram& training) {
    std::string text = fmt::format("{}: {}\n", options.precision.name, options.model.name);
    std::string_view tape;
    for (const PlannedOp& op : plan_of(training)) {
        if (op.tape != tape) text += fmt::format("\n{}\n", tape = op.tape);
        text += fmt::format("  {}: {} -> {}\n", op.output.empty() ? op.op : op.output, op.op,
                            op.result.empty() ? "a flag" : op.result);
        constexpr std::size_t shown = 4; // of an op on all gradients
        for (std::size_t i = 0; i < std::min(op.inputs.size(), shown); ++i)
            text += fmt::format("      from {}\n", op.inputs[i]);
        if (op.inputs.size() > shown) text += fmt::format("      from {} more\n", op.inputs.size() - shown);
        if (!op.accumulate.empty()) text += fmt::format("      accumulates: {}\n", op.accumulate);
        if (!op.sends.empty()) text += fmt::format("      sends: {}\n", op.sends);
        if (!op.rule.empty()) text += fmt::format("      because: {}\n", op.rule);
        if (!op.tensor_cores.empty()) text += fmt::format("      tensor cores: {}\n", op.tensor_cores);
    }
    text += "\ntensor cores: as NVIDIA's Matrix Multiplication Background User's Guide (DU-09799-001) has it\n";
    return text;
}

TableBlock memory_table(const TrainOptions& options, const TrainingProgram& training) {
    const MemoryAccount account = memory_of(training);
    TableBlock table{.caption = fmt::format("{}: {}.", options.precision.name,
                                            plural(static_cast<std::uint64_t>(account.parameters), "parameter")),
                     .header = {"kept", "format", "bytes", "bytes a parameter"},
                     .rows = {}};
    for (const MemoryAccount::Row& row : account.rows)
        table.rows.push_back(
            {{row.purpose},
             {row.format.name},
             {grouped(static_cast<std::uint64_t>(row.bytes())), static_cast<double>(row.bytes())},
             row.per_parameter ? number_cell(row.bytes() / static_cast<double>(account.parameters), 3) : Cell{""}});
    table.rows.push_back({{"without activations"}, {""}, {""}, number_cell(account.bytes_per_parameter(), 3)});
    std::vector<std::string_view> computed;
    for (const MemoryAccount::Row& row : account.computed_gradients) computed.push_back(row.format.name);
    table.rows.push_back({{"with gradients as computed"},
                          {fmt::format("{}", fmt::join(computed, ", "))},
                          {""},
                          number_cell(account.bytes_with_computed_gradients(), 3)});
    return table;
}

TableBlock profile_table(const Run& run) {
    const auto steps = static_cast<double>(std::max<std::int64_t>(run.profiled_steps, 1));
    using Row = std::pair<std::pair<std::string_view, std::string_view>, OpProfile>;
    std::vector<Row> rows(run.profile->begin(), run.profile->end());
    std::ranges::stable_sort(rows, std::greater{}, [](const Row& row) { return row.second.seconds; });
    double all = 0;
    for (const Row& row : rows) all += row.second.seconds;
    std::erase_if(rows, [&](const Row& row) { return row.second.seconds < all / 1000; });
    TableBlock table{.caption =
                         fmt::format("{}: {} ms of ops in a step; runs and ms are those of a step. rate, a second: "
                                     "multiply-adds of products, else bytes of the tensors that an op reads and "
                                     "writes. Ops below 0.1 % are left out.",
                                     run.precision().name, number_cell(1e3 * all / steps, 3).text),
                     .header = {"op", "runs", "ms", "share", "rate"},
                     .rows = {}};
    for (const auto& [key, op] : rows) {
        const bool product = op.multiply_adds > 0;
        const double rate = (product ? op.multiply_adds : op.bytes) / std::max(op.seconds, 1e-9) / 1e9;
        table.rows.push_back({{fmt::format("{}: {}", key.first, key.second)},
                              number_cell(static_cast<double>(op.runs) / steps, 3),
                              number_cell(1e3 * op.seconds / steps, 3),
                              {percent(op.seconds / all), op.seconds / all},
                              {fmt::format("{} {}", number_cell(rate, 3).text, product ? "GMAC/s" : "GB/s"), rate}});
    }
    return table;
}

std::string progress_line(const Experiment& experiment, std::int64_t of, std::string_view speed) {
    std::string text = fmt::format("{}/{} {}", experiment.steps(), of, speed);
    for (const Run& run : experiment.runs()) {
        text += fmt::format("  {} {:.4g}", run.precision().name, run.last.loss);
        if (run.precision().loss_scaler.options.scaling != LossScaling::off)
            text += fmt::format(" {} {} skipped", scale_text(run.last.scale), run.skipped);
    }
    return text;
}

namespace {

TableBlock outcome_table(std::span<const Outcome> outcomes, const std::string& reference) {
    const bool classifies = outcomes.front().validation.accuracy.has_value(),
               compares = outcomes.front().distance.has_value();
    TableBlock table{.caption = "loss: mean of the last tenth of the steps. grad underflow: of non-zero gradients, "
                                "rounded to zero. lost updates: of weights with a gradient, left as they were by a "
                                "step.",
                     .header = {"precision", "loss", "validation"},
                     .rows = {}};
    if (classifies) table.header.emplace_back("accuracy");
    table.header.insert(table.header.end(), {"skipped", "scale", "grad underflow", "lost updates"});
    if (compares) table.header.insert(table.header.end(), {"gradient error", "from " + reference});
    table.caption += compares
                         ? fmt::format(" gradient error: |g - g0| / |g0| in the first step, where all weights are the "
                                       "same. from {}: |w - w0| / |w0|, all weights.",
                                       reference)
                         : " No run is in FP32 throughout: with one (fp32), the others are compared with it.";
    for (const Outcome& o : outcomes) {
        const Run& run = *o.run;
        const bool scales = run.precision().loss_scaler.options.scaling != LossScaling::off;
        const double scale = run.trainer->state().scaler.scale;
        std::vector<Cell> row = {
            {run.precision().name}, figure_cell("{:.4f}", run.final_loss()), figure_cell("{:.4f}", o.validation.loss)};
        if (classifies) row.push_back({percent(o.validation.accuracy.value_or(0)), o.validation.accuracy});
        row.push_back(scales ? Cell{std::to_string(run.skipped), static_cast<double>(run.skipped)} : no_value());
        row.push_back(scales ? Cell{scale_text(scale), scale} : no_value());
        row.push_back(share_cell(run.gradients.underflow, run.gradients.nonzero));
        row.push_back(share_cell(run.updates.lost, run.updates.lost + run.updates.changed));
        if (compares)
            row.insert(row.end(), {run.gradient_error ? number_cell(*run.gradient_error, 2) : no_value(),
                                   number_cell(o.distance.value_or(0), 3)});
        table.rows.push_back(std::move(row));
    }
    return table;
}

} // namespace

Document document_of(std::span<const Outcome> outcomes, const ExperimentOptions& options, const std::string& title) {
    const std::string reference = options.reference.empty() ? "FP32" : "reference";
    Document document{.title = title, .subtitle = {}, .blocks = {outcome_table(outcomes, reference)}};
    for (const Outcome& o : outcomes) {
        const std::string& name = o.run->precision().name;
        if (!o.run->stopped.empty()) document.add(Paragraph{fmt::format("{} stopped at {}", name, o.run->stopped)});
        if (!o.run->departures) continue;
        Bullets left = departures_of(o, options.departure_bound);
        if (left.items.empty()) {
            document.add(Paragraph{fmt::format("{} never left {}", name, reference)});
            continue;
        }
        document.add(Heading{fmt::format("{} left {}:", name, reference), 3});
        document.add(std::move(left));
    }
    for (const Outcome& o : outcomes)
        if (o.run->profile) document.add(profile_table(*o.run));
    return document;
}

Document document_of(const std::filesystem::path& run, std::span<const ServedResult> results) {
    const double reference = results.front().validation.loss;
    const bool caches = results.front().kv_bytes_per_token > 0;
    TableBlock table{.caption = "perplexity: e to the loss, on all validation data. Bytes include scales.",
                     .header = {"served as", "loss", "perplexity", "change", "accuracy", "weights"},
                     .rows = {}};
    if (caches) table.header.emplace_back("KV cache a token");
    for (const ServedResult& r : results) {
        table.rows.push_back(
            {{r.name},
             figure_cell("{:.4f}", r.validation.loss),
             figure_cell("{:.4f}", std::exp(r.validation.loss)),
             change_cell(std::exp(r.validation.loss - reference) - 1),
             r.validation.accuracy ? Cell{percent(*r.validation.accuracy), r.validation.accuracy} : no_value(),
             figure_cell("{:.0f} B", r.weight_bytes)});
        if (caches) table.rows.back().push_back(figure_cell("{:.0f} B", r.kv_bytes_per_token));
    }
    return {.title = run.string(), .subtitle = {}, .blocks = {std::move(table)}};
}

std::string served_json(const std::filesystem::path& run, std::span<const ServedResult> results) {
    Json json = origin_of("amp-train");
    json["run"] = run.string();
    for (const ServedResult& r : results)
        json["served"].push_back({{"narrow", r.name},
                                  {"loss", finite_or_null(r.validation.loss)},
                                  {"perplexity", finite_or_null(std::exp(r.validation.loss))},
                                  {"accuracy", or_null(r.validation.accuracy)},
                                  {"weight_bytes", r.weight_bytes},
                                  {"kv_bytes_per_token", r.kv_bytes_per_token}});
    return json_text(json);
}

} // namespace amp::train_tool
