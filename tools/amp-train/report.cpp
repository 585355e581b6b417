#include <ampscope/tools/amp-train/report.h>

#include <ampscope/formats/codec.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/json_value.h>
#include <ampscope/sim/train/configuration.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace amp::train_tool {

namespace {

using Json = nlohmann::ordered_json;

std::string rate(const RoundingCounts& c) {
    return percent(static_cast<std::uint64_t>(c.underflow), static_cast<std::uint64_t>(c.nonzero));
}

/// Lines of columns, each as wide as its widest cell; the first to the left, the others to the right.
std::string table(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths(rows.front().size());
    for (const auto& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    std::string text;
    for (const auto& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string space(widths[i] - width(row[i]), ' ');
            line += i == 0 ? row[i] + space : "  " + space + row[i];
        }
        text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
}

/// PyTorch's optimizers take eps in the type of v.
bool eps_is_zero(const TrainOptions& o) {
    return facts_of(o.optimizer.order).rounds_each && o.optimizer.kind != OptimizerKind::sgd && o.optimizer.eps > 0 &&
           quantize(o.precision.v, o.optimizer.eps) == 0;
}

/// A sentence for each way in which a run has left FP32.
std::string departures_of(const Run& run, double bound) {
    std::string text;
    for (std::size_t i = 0; i < departure_names.size(); ++i) {
        const auto kind = static_cast<DepartureKind>(i);
        const auto& d = run.departures->first(kind);
        if (!d) continue;
        if (kind == DepartureKind::error && !std::isfinite(d->error)) continue; // first inf and first NaN tell
        const std::string what = kind == DepartureKind::error ? fmt::format("error above {:g}: {:.3g}", bound, d->error)
                                                              : std::string(departure_names[i]);
        text += fmt::format("  first {}, step {}: {} ({})\n", what, d->step, printable(d->tensor), d->op);
    }
    if (const TrainOptions& o = run.trainer->options(); eps_is_zero(o))
        text += fmt::format("  Adam's eps, {:g}, is 0 in {}: a weight whose gradients were 0 so far gets 0 / 0\n",
                            o.optimizer.eps, o.precision.v.name);
    return text;
}

Json json_of(const RoundingCounts& c) {
    return {{"elements", c.elements}, {"nonzero", c.nonzero}, {"underflow", c.underflow}, {"overflow", c.overflow}};
}

Json outcome_of(const Outcome& o) {
    const Run& run = *o.run;
    Json departures = Json::object();
    for (std::size_t i = 0; run.departures && i < departure_names.size(); ++i)
        if (const auto& d = run.departures->first(static_cast<DepartureKind>(i)))
            departures[std::string(departure_names[i])] = {
                {"step", d->step}, {"op", d->op}, {"tensor", d->tensor}, {"error", finite_or_null(d->error)}};
    return {{"precision", run.precision().name},
            {"final_loss", finite_or_null(run.final_loss())},
            {"validation_loss", finite_or_null(o.validation.loss)},
            {"accuracy", or_null(o.validation.accuracy)},
            {"skipped", run.skipped},
            {"scale", run.trainer->state().scaler.scale},
            {"roundings",
             {{"gradients", json_of(run.gradients)},
              {"activations", json_of(run.activations)},
              {"weights", json_of(run.weights)}}},
            {"updates",
             {{"lost", run.updates.lost}, {"changed", run.updates.changed}, {"nonfinite", run.updates.nonfinite}}},
            {"gradient_error", or_null(run.gradient_error)},
            {"distance_from_reference", or_null(o.distance)},
            {"departures", departures},
            {"stopped", run.stopped},
            {"fingerprint", fingerprint_of(*run.trainer)}};
}

std::string reference_of(const ExperimentOptions& options) {
    return options.reference.empty() ? "fp32" : options.reference;
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
        if (!op.rule.empty()) text += fmt::format("      because: {}\n", op.rule);
        if (!op.tensor_cores.empty()) text += fmt::format("      tensor cores: {}\n", op.tensor_cores);
    }
    text += "\ntensor cores: as NVIDIA's Matrix Multiplication Background User's Guide (DU-09799-001) has it\n";
    return text;
}

std::string memory_report(const TrainingProgram& training) {
    const MemoryAccount account = memory_of(training);
    std::vector<std::vector<std::string>> rows = {{"kept", "format", "bytes", "bytes a parameter"}};
    for (const MemoryAccount::Row& row : account.rows)
        rows.push_back(
            {row.purpose, row.format.name, grouped(static_cast<std::uint64_t>(row.bytes())),
             row.per_parameter ? fmt::format("{:.3g}", row.bytes() / static_cast<double>(account.parameters)) : ""});
    rows.push_back({"without activations", "", "", fmt::format("{:.3g}", account.bytes_per_parameter())});
    return fmt::format("{}\n{}", plural(static_cast<std::uint64_t>(account.parameters), "parameter"), table(rows));
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

std::string outcome_table(std::span<const Outcome> outcomes, const ExperimentOptions& options) {
    const bool classifies = outcomes.front().validation.accuracy.has_value(),
               compares = outcomes.front().distance.has_value();
    const std::string reference = options.reference.empty() ? "FP32" : "reference";
    std::vector<std::vector<std::string>> rows = {{"precision", "loss", "validation"}};
    if (classifies) rows[0].push_back("accuracy");
    for (const char* head : {"skipped", "scale", "grad underflow", "lost updates"}) rows[0].emplace_back(head);
    if (compares) rows[0].insert(rows[0].end(), {"gradient error", "from " + reference});
    for (const Outcome& o : outcomes) {
        const Run& run = *o.run;
        const bool scales = run.precision().loss_scaler.options.scaling != LossScaling::off;
        std::vector<std::string> row = {run.precision().name, fmt::format("{:.4f}", run.final_loss()),
                                        fmt::format("{:.4f}", o.validation.loss)};
        if (classifies) row.push_back(percent(o.validation.accuracy.value_or(0)));
        row.push_back(scales ? std::to_string(run.skipped) : "-");
        row.push_back(scales ? scale_text(run.trainer->state().scaler.scale) : "-");
        row.push_back(rate(run.gradients));
        row.push_back(percent(static_cast<std::uint64_t>(run.updates.lost),
                              static_cast<std::uint64_t>(run.updates.lost + run.updates.changed)));
        if (compares)
            row.insert(row.end(), {run.gradient_error ? fmt::format("{:.2g}", *run.gradient_error) : "-",
                                   fmt::format("{:.3g}", o.distance.value_or(0))});
        rows.push_back(std::move(row));
    }
    std::string text = table(rows);
    text += "loss: mean of the last tenth of the steps. grad underflow: of non-zero gradients, rounded to zero.\n"
            "lost updates: of weights with a gradient, left as they were by a step.";
    text += compares
                ? fmt::format(" gradient error: |g - g0| / |g0| in the first step,\nwhere all weights are the same. "
                              "from {}: |w - w0| / |w0|, all weights.",
                              reference)
                : " No run is in FP32 throughout: with one (fp32), the others are compared with it.";
    text += "\n";
    for (const Outcome& o : outcomes) {
        if (!o.run->stopped.empty())
            text += fmt::format("\n{} stopped at {}\n", o.run->precision().name, o.run->stopped);
        if (!o.run->departures) continue;
        const std::string left = departures_of(*o.run, options.departure_bound);
        text += fmt::format("\n{} {}\n{}", o.run->precision().name,
                            left.empty() ? fmt::format("never left {}", reference) : fmt::format("left {}:", reference),
                            left);
    }
    return text;
}

std::string served_table(const std::filesystem::path& run, std::span<const ServedResult> results) {
    const double reference = results.front().validation.loss;
    const bool caches = results.front().kv_bytes_per_token > 0;
    std::vector<std::vector<std::string>> rows = {
        {"served in FP8", "loss", "perplexity", "change", "accuracy", "weights"}};
    if (caches) rows[0].emplace_back("KV cache a token");
    for (const ServedResult& r : results) {
        const double change = std::exp(r.validation.loss - reference) - 1;
        rows.push_back({r.name, fmt::format("{:.4f}", r.validation.loss),
                        fmt::format("{:.4f}", std::exp(r.validation.loss)), fmt::format("{:+.2f} %", 100 * change),
                        r.validation.accuracy ? percent(*r.validation.accuracy) : "-",
                        fmt::format("{:.0f} B", r.weight_bytes)});
        if (caches) rows.back().push_back(fmt::format("{:.0f} B", r.kv_bytes_per_token));
    }
    return fmt::format("{}\n\n{}perplexity: e to the loss, on all validation data. Bytes include scales.\n",
                       printable(run.string()), table(rows));
}

std::string served_json(const std::filesystem::path& run, std::span<const ServedResult> results) {
    Json json = origin();
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

std::string outcome_json(std::span<const Outcome> outcomes, const Dataset& data, const ExperimentOptions& options) {
    Json json = origin();
    json["steps"] = options.steps;
    json["reference"] = reference_of(options);
    json["runs"] = Json::array();
    for (const Outcome& o : outcomes) {
        Json run = outcome_of(o);
        run["configuration"] = configuration_of(o.run->trainer->options(), data);
        json["runs"].push_back(run);
    }
    return json_text(json);
}

Json result_json(const Outcome& outcome, const ExperimentOptions& options) {
    Json json = origin();
    json["steps"] = outcome.run->losses.size();
    json["reference"] = outcome.run->departures ? Json(reference_of(options)) : Json(nullptr);
    json.update(outcome_of(outcome));
    const MemoryAccount memory = memory_of(outcome.run->trainer->training());
    json["memory"] = {{"parameters", memory.parameters}, {"bytes_per_parameter", memory.bytes_per_parameter()}};
    return json;
}

std::vector<Outcome> finish(Experiment& experiment, const ExperimentOptions& options) {
    std::vector<Outcome> outcomes;
    for (Run& run : experiment.runs()) {
        outcomes.push_back({&run, run.trainer->evaluate(), experiment.distance(run)});
        if (run.folder) run.folder->write_result(result_json(outcomes.back(), options));
    }
    return outcomes;
}

} // namespace amp::train_tool
