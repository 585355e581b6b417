#include <ampscope/sim/train/outcome.h>

#include <ampscope/formats/codec.h>
#include <ampscope/sim/io/json_value.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/train/configuration.h>
#include <ampscope/sim/train/plan.h>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const RoundingCounts& c) {
    return {{"elements", c.elements}, {"nonzero", c.nonzero}, {"underflow", c.underflow}, {"overflow", c.overflow}};
}

Json json_of(const TimeProfile& profile) {
    Json rows = Json::array();
    for (const auto& [key, op] : profile)
        rows.push_back({{"tape", key.first},
                        {"op", key.second},
                        {"runs", op.runs},
                        {"seconds", op.seconds},
                        {"multiply_adds", op.multiply_adds},
                        {"bytes", op.bytes}});
    return rows;
}

/// See Outcome::eps_is_zero.
bool eps_is_zero(const TrainOptions& o) {
    const KindFacts kind = facts_of(o.optimizer.kind);
    if (!facts_of(o.optimizer.order).rounds_each || o.optimizer.eps == 0) return false;
    if (kind.factors) return quantize(o.precision.master, o.optimizer.eps * o.optimizer.eps) == 0;
    return (kind.has_v || kind.orthogonalizes) && quantize(o.precision.v, o.optimizer.eps) == 0;
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

Json result_of(const Outcome& outcome, const ExperimentOptions& options) {
    Json json = origin_of("amp-train");
    json["steps"] = outcome.run->losses.size();
    json["reference"] = outcome.run->departures ? Json(reference_of(options)) : Json(nullptr);
    json.update(outcome_of(outcome));
    const MemoryAccount memory = memory_of(outcome.run->trainer->training());
    json["longest_sum"] = longest_sum(outcome.run->trainer->training());
    json["memory"] = {{"parameters", memory.parameters}, {"bytes_per_parameter", memory.bytes_per_parameter()}};
    return json;
}

} // namespace

Json origin_of(std::string_view program) {
    return {{"schema_version", run_layout::schema_version}, {"tool", program}, {"version", AMPSCOPE_VERSION}};
}

std::vector<Outcome> finish(Experiment& experiment, const ExperimentOptions& options) {
    std::vector<Outcome> outcomes;
    for (Run& run : experiment.runs()) {
        run.trainer->backend().profile = nullptr; // of steps alone
        outcomes.push_back({.run = &run,
                            .validation = run.trainer->evaluate(),
                            .distance = experiment.distance(run),
                            .eps_is_zero = eps_is_zero(run.trainer->options())});
        if (run.folder) run.folder->write_result(result_of(outcomes.back(), options));
    }
    return outcomes;
}

Json json_of(std::span<const Outcome> outcomes, const Dataset& data, const ExperimentOptions& options) {
    Json json = origin_of("amp-train");
    json["steps"] = options.steps;
    json["reference"] = reference_of(options);
    json["runs"] = Json::array();
    for (const Outcome& o : outcomes) {
        Json run = outcome_of(o);
        run["eps_is_zero"] = o.eps_is_zero;
        run["configuration"] = configuration_of(o.run->trainer->options(), data);
        if (o.run->profile) {
            run["profiled_steps"] = o.run->profiled_steps;
            run["profile"] = json_of(*o.run->profile);
        }
        json["runs"].push_back(run);
    }
    return json;
}

} // namespace amp
