#include <ampscope/tools/amp-report/report.h>

#include <ampscope/sim/analysis/histogram_json.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/json_value.h>
#include <ampscope/tools/output.h>

namespace amp::report_tool {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::optional<Spread>& s) {
    return s ? Json{{"mean", s->mean}, {"deviation", s->deviation}, {"runs", s->count}} : Json(nullptr);
}

Json json_of(const std::optional<Difference>& d) {
    if (!d) return nullptr;
    return {{"mean", d->interval.mean},
            {"low", finite_or_null(d->interval.low)},
            {"high", finite_or_null(d->interval.high)},
            {"deviation", d->interval.deviation},
            {"count", d->interval.count},
            {"basis", name_of(d->basis)},
            {"independent_steps", d->basis == IntervalBasis::steps ? Json(d->independent_steps) : Json(nullptr)},
            {"standing", name_of(d->standing)},
            {"seeds_needed", or_null(d->seeds_needed)}};
}

Json json_of(const Share& s) { return {{"part", s.part}, {"whole", s.whole}}; }

Json json_of(const RecordedRun& run) {
    Json json = {{"run", run.name},
                 {"seed", or_null(run.facts.seed)},
                 {"steps", run.steps.size()},
                 {"final_loss", or_null(run.final_loss())},
                 {"not_finite_from", or_null(run.broken_at())},
                 {"skipped", run.skipped},
                 {"departures", run.result.is_object() ? run.result.value("departures", Json()) : Json()},
                 {"warnings", run.warnings},
                 {"remarks", run.remarks}};
    return json;
}

Json json_of(const Spike& s) {
    const TensorGrowth& g = s.growth;
    Json json = {{"kind", name_of(s.kind)}, {"first", s.first}, {"last", s.last}, {"steps", s.steps}};
    if (s.kind != SpikeKind::not_finite) json.update({{"peak", s.peak}, {"value", s.value}, {"level", s.level}});
    json["tensor"] = g.tensor.empty() ? Json(nullptr)
                                      : Json{{"name", printable(g.tensor)},
                                             {"evidence", g.evidence},
                                             {"step", g.step},
                                             {"since", g.since},
                                             {"factor", finite_or_null(g.factor)}};
    return json;
}

/// Adds what a run's gradients and loss did over the steps.
void add_stability(const RunSpikes& of, Json& json) {
    json["gradients"] = of.sizes.empty() ? Json(nullptr)
                                         : Json{{"of", of.norms ? "norm" : "largest"},
                                                {"level", of.reference != nullptr ? "fp32" : "own median"}};
    json["spikes"] = Json::array();
    for (const Spike& s : of.spikes) json["spikes"].push_back(json_of(s));
}

Json json_of(const RowStability& s) {
    return {{"runs_with_alarms", s.alarmed},
            {"not_finite_from", or_null(s.not_finite_from)},
            {"median_gradient", or_null(s.usual)},
            {"largest_gradient", or_null(s.largest)},
            {"largest_gradient_in", s.largest ? Json(s.largest_in) : Json(nullptr)}};
}

/// Adds the casts under a scale, by format and column of steps, and by tensor.
void add_scaled_casts(const RecordedRun& run, Json& json) {
    json["scaled_tensors"] = Json::array();
    for (std::size_t f = 0; f < run.formats.size(); ++f)
        for (const ScaledCasts& c : run.scaled[f])
            json["scaled_casts"][run.formats[f]].push_back({{"nonzero", c.nonzero},
                                                            {"underflow", c.underflow},
                                                            {"saturated", c.saturated},
                                                            {"log2_least_use", finite_or_null(c.least)},
                                                            {"log2_most_use", finite_or_null(c.most)}});
    for (const ScaledTensor& t : run.scaled_tensors)
        json["scaled_tensors"].push_back({{"tensor", t.name},
                                          {"format", t.format},
                                          {"amax", finite_or_null(t.amax)},
                                          {"nonzero", t.nonzero},
                                          {"underflow", t.underflow},
                                          {"saturated", t.saturated}});
}

Json json_of(const ComparisonRow& row) {
    Json json = {{"precision", row.label},
                 {"standing", name_of(row.standing)},
                 {"seeds", row.seeds},
                 {"diverged", row.diverged},
                 {"final_loss", json_of(row.loss)},
                 {"over", json_of(row.over)},
                 {"validation_loss", json_of(row.validation)},
                 {"validation_over", json_of(row.validation_over)},
                 {"accuracy", json_of(row.accuracy)},
                 {"accuracy_lost", json_of(row.accuracy_lost)},
                 {"skipped_a_run", row.skipped},
                 {"underflow", row.underflow ? json_of(*row.underflow) : Json(nullptr)},
                 {"lost_updates", json_of(row.lost_updates)},
                 {"bytes_per_parameter", or_null(row.bytes_per_parameter)},
                 {"distance_from_reference", or_null(row.distance)},
                 {"stability", json_of(stability_of(row))},
                 {"runs", Json::array()}};
    for (std::size_t i = 0; i < row.runs.size(); ++i) {
        json["runs"].push_back(json_of(*row.runs[i]));
        add_stability(row.stability[i], json["runs"].back());
    }
    add_scaled_casts(*row.runs.front(), json["runs"].front()); // as the page: of the first seed
    return json;
}

Json json_of(const ClassCounts& c) {
    return {{"underflow", c.underflow}, {"subnormal", c.subnormal}, {"normal", c.normal}, {"overflow", c.overflow}};
}

Json json_of(const ScaleCurve& curve) {
    const Recommendation& r = curve.recommendation;
    Json json = json_of(curve.unscaled);
    json["recommended_log2"] = or_null(r.log2_scale);
    json["window_log2"] = r.window ? Json{r.window->low, r.window->high} : Json(nullptr);
    add_known(json, r);
    return json;
}

Json gradients_of(const RecordedRun& run) {
    Json json = {{"run", run.name},
                 {"flushed", run.censoring().hides()},
                 {"formats", Json::object()},
                 {"tensors", Json::array()}};
    for (const ScaleCurve& curve : run.scales.curves) json["formats"][curve.format.name] = json_of(curve);
    json["columns"] = Json::array(); // of steps: the first recorded one of each
    for (const std::optional<std::int64_t>& step : run.recorded) json["columns"].push_back(or_null(step));
    for (const TensorRecord& t : run.tensors) {
        Json tensor = {{"tensor", t.name},
                       {"kind", name_of(t.kind)},
                       {"nonzero", t.counts.nonzero},
                       {"zero", t.counts.binades.zero},
                       {"nan", t.counts.nan},
                       {"inf", t.counts.binades.infinite}};
        for (std::size_t f = 0; f < usual_formats.size(); ++f)
            tensor["underflow"][usual_formats[f]] = t.counts.underflow[f];
        for (std::size_t f = 0; f < followed_formats.size(); ++f)
            for (const Share& s : t.zeroed[f])
                tensor["underflow_by_column"][std::string(followed_formats[f])].push_back({s.part, s.whole});
        json["tensors"].push_back(tensor);
    }
    return json;
}

/// How formats hold weights, activations and gradients; `log2_scales`: of the tensors' own scales.
Json kinds_of(const RecordedRun& run) {
    Json json = Json::array();
    for (const KindRecord& kind : run.kinds) {
        Json formats = Json::object();
        for (const KindFit& of : kind.fits)
            formats[of.format.name] = {{"tensors", of.fit.tensors},
                                       {"overflowing", of.fit.overflowing},
                                       {"held", of.fit.held},
                                       {"held_scaled", of.fit.held_scaled},
                                       {"log2_scales", of.fit.log2_scales},
                                       {"unscaled", json_of(of.fit.unscaled)},
                                       {"scaled", json_of(of.fit.scaled)},
                                       {"advice", of.advice}};
        json.push_back({{"name", kind.group->name}, {"nonzero", kind.magnitudes.nonzero()}, {"formats", formats}});
    }
    return json;
}

Json json_of(const ComparisonGroup& group) {
    Json json = {{"name", group.name},
                 {"margin", group.reference != nullptr ? Json(group.margin) : Json(nullptr)},
                 {"margin_basis", group.margin_basis},
                 {"effects", Json::array()},
                 {"notes", group.notes},
                 {"rows", Json::array()}};
    for (const EffectFinding& e : group.effects) {
        json["effects"].push_back({{"claim", e.effect->claim},
                                   {"loses", e.effect->loses},
                                   {"recovers", e.effect->recovers},
                                   {"appears", e.appears},
                                   {"difference", json_of(e.difference)},
                                   {"gradient_error", json_of(e.gradient_error)},
                                   {"longest_sum", or_null(e.longest_sum)}});
        if (!e.effect->reported_by.empty()) json["effects"].back()["reported_by"] = e.effect->reported_by;
    }
    for (const ComparisonRow& row : group.rows) json["rows"].push_back(json_of(row));
    json["gradients"] = group.evidence != nullptr ? gradients_of(*group.evidence) : Json(nullptr);
    if (group.evidence != nullptr && !group.evidence->kinds.empty()) json["kinds"] = kinds_of(*group.evidence);
    json["adam"] = group.adam ? Json{{"basis", name_of(group.adam->basis)},
                                     {"known", name_of(group.adam->known())},
                                     {"advice", group.adam->advice},
                                     {"warnings", group.adam->warnings}}
                              : Json(nullptr);
    return json;
}

} // namespace

std::string json_rows(const ComparisonFindings& findings) {
    Json rows = Json::array();
    for (const ComparisonGroup& group : findings.groups)
        for (const ComparisonRow& row : group.rows) {
            rows.push_back({{"group", group.name}});
            rows.back().update(json_of(row));
        }
    return json_text(rows);
}

std::string json_report(const Report& report, const ReportOptions& options) {
    Json json = {{"schema_version", 3},
                 {"tool", "amp-report"},
                 {"version", AMPSCOPE_VERSION},
                 {"command", options.command},
                 {"answers", Json::array()},
                 {"verdict", report.findings.verdict},
                 {"precisions", report.findings.precisions},
                 {"effects", report.findings.effects},
                 {"alarms", report.findings.alarms},
                 {"alpha", report.findings.limits.alpha},
                 {"accuracy_margin", report.findings.limits.accuracy_margin},
                 {"spikes",
                  {{"gradient", report.findings.limits.spikes.gradient},
                   {"loss", report.findings.limits.spikes.loss},
                   {"window", report.findings.limits.spikes.window}}},
                 {"errors", report.findings.errors},
                 {"groups", Json::array()},
                 {"against", Json::array()},
                 {"trained_by", report.commands},
                 {"files", Json::array()}};
    for (const ShortAnswer& a : report.findings.answers)
        json["answers"].push_back(
            {{"question", a.question}, {"words", a.words}, {"reason", a.reason}, {"state", name_of(a.state)}});
    for (const ComparisonGroup& group : report.findings.groups) json["groups"].push_back(json_of(group));
    for (const Report::Against& a : report.against)
        json["against"].push_back({{"run", a.run}, {"report", amp::json_of(a.report)}});
    for (const RecordedRun& run : report.findings.runs)
        for (const SourceFile& file : run.files)
            json["files"].push_back({{"file", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
    return json_text(json);
}

} // namespace amp::report_tool
