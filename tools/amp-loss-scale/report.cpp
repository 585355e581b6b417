#include <ampscope/tools/amp-loss-scale/report.h>

#include <ampscope/sim/analysis/measure.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/step_log.h>
#include <ampscope/tools/chart/chart.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace amp::loss_scale_tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t rows_of_sweep = 8;

std::uint64_t count(std::int64_t n) { return static_cast<std::uint64_t>(n); }

std::string scale_text(double scale) {
    const std::optional<int> log2 = scale > 0 && std::isfinite(scale) ? exact_log2(scale) : std::nullopt;
    return log2 ? power_of_two(*log2) : fmt::format("{:.4g}", scale);
}

/// The scale at which most steps were spent.
std::string usual_scale(const Replay& r) {
    const auto most = std::ranges::max_element(r.time, {}, [](const auto& item) { return item.second; });
    return fmt::format("{} {}", scale_text(most->first), percent(count(most->second), count(r.steps)));
}

std::string underflow_text(const Replay& r) {
    if (r.nonzero == 0) return "-";
    return (r.underflow_known == Known::bound ? ">= " : "") + percent(r.underflow, r.nonzero);
}

/// "all exact", "97 % exact, 3 % bound".
std::string known_text(const Replay& r) {
    std::vector<std::string> parts;
    for (std::size_t k = 0; k < 3; ++k)
        if (r.known[k] > 0)
            parts.push_back(fmt::format("{} {}",
                                        r.known[k] == r.steps ? "all" : percent(count(r.known[k]), count(r.steps)),
                                        name_of(static_cast<Known>(k))));
    return fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<std::string> row_of(const std::string& name, const Replay& r) {
    return {name,
            fmt::format("{} ({})", r.skips, percent(count(r.skips), count(r.steps))),
            r.first_good ? std::to_string(*r.first_good) : "none",
            scale_text(r.final_scale),
            usual_scale(r),
            underflow_text(r)};
}

/// How often each tensor is what overflows, most often first.
std::vector<std::pair<std::string, std::int64_t>> causes_of(const Replay& r) {
    std::map<std::string, std::int64_t> counts;
    for (const SkippedStep& s : r.skipped) ++counts[s.tensor.empty() ? "not recorded" : s.tensor];
    std::vector<std::pair<std::string, std::int64_t>> causes(counts.begin(), counts.end());
    std::ranges::stable_sort(causes, [](const auto& a, const auto& b) { return a.second > b.second; });
    return causes;
}

std::string alarm_text(const Alarm& alarm, const LossScalerOptions& o) {
    switch (alarm.kind) {
    case AlarmKind::zero_scale:
        return fmt::format(
            "reaches scale 0 in step {}: gradients are 0 / 0 = NaN from then on, and every step is skipped; "
            "a minimum prevents it",
            alarm.step);
    case AlarmKind::below_one:
        return fmt::format(
            "falls below 1 in step {}: the gradients themselves leave the format, or are not finite at any "
            "scale",
            alarm.step);
    case AlarmKind::stuck_at_minimum:
        return fmt::format("overflows at its minimum of {} from step {} on", scale_text(o.min_scale), alarm.step);
    case AlarmKind::never_grows: return "never grows: no growth interval passes without an overflow";
    case AlarmKind::shorter_than_interval:
        return fmt::format("cannot grow: there are fewer steps than its growth interval of {}", o.growth_interval);
    case AlarmKind::aborts: return fmt::format("ends the run in step {}: an overflow at its minimum", alarm.step);
    case AlarmKind::poisons: return fmt::format("lets what overflows reach the weights, in step {} first", alarm.step);
    }
    return "";
}

std::string span_of(const GradientLog& log) {
    const std::int64_t first = log.steps.front().step, last = log.steps.back().step;
    std::string steps = plural(count(log.recorded_steps), "step");
    if (log.hidden_steps > 0) steps += fmt::format(" and {} unknown", log.hidden_steps);
    return first == last ? fmt::format("{} ({})", steps, first) : fmt::format("{} ({} to {})", steps, first, last);
}

std::size_t measured_steps(const GradientLog& log) {
    return static_cast<std::size_t>(
        std::ranges::count_if(log.steps, [](const GradientStep& s) { return s.magnitudes.nonzero() > 0; }));
}

/// Alarms of all scalers, those that say the same in one line.
std::string alarms_text(const ReplayedLog& log, const LossScaleOptions& options) {
    std::vector<std::pair<std::string, std::vector<std::string>>> lines;
    for (std::size_t i = 0; i < log.replays.size(); ++i)
        for (const Alarm& alarm : log.replays[i].alarms) {
            const std::string text = alarm_text(alarm, options.scalers[i].options);
            auto found = std::ranges::find(lines, text, &std::pair<std::string, std::vector<std::string>>::first);
            if (found == lines.end()) found = lines.insert(lines.end(), {text, {}});
            found->second.push_back(options.scalers[i].name);
        }
    std::string out;
    for (const auto& [text, names] : lines) out += wrapped(fmt::format("! {} {}", fmt::join(names, ", "), text), 2);
    return out;
}

std::string sweep_text(const ReplayedLog& log, bool color) {
    if (log.swept.empty()) return "";
    Table table({"settings", "lost", "skipped", "underflow"});
    for (std::size_t i = 0; i < std::min(rows_of_sweep, log.swept.size()); ++i) {
        const SweptScaler& s = log.swept[i];
        table.add({s.name, percent(s.lost()), std::to_string(s.replay.skips), underflow_text(s.replay)});
    }
    return "\n" +
           wrapped(fmt::format("The best of {} settings. lost: the share of steps skipped and that of gradients that "
                               "underflow.",
                               log.swept.size())) +
           table.text(color);
}

std::string report_of(const ReplayedLog& log, const LossScaleOptions& options, bool color) {
    const std::string name = options.format.name;
    std::string text = inked(clipped(printable(log.log.name), 44), Ink::bold, color) + ": " + span_of(log.log) + "\n";
    const std::size_t measured = measured_steps(log.log);
    text += wrapped(fmt::format("Recorded: {}; gradients in {}; magnitudes of {}.",
                                log.log.recorded.empty() ? "a log" : printable(log.log.recorded), name,
                                measured == 0 ? "no step: underflow is not known" : plural(measured, "step")));
    text += "\n";
    Table table({"scaler", "skipped", "first good", "final", "mostly at", "underflow"});
    for (std::size_t i = 0; i < log.replays.size(); ++i) table.add(row_of(options.scalers[i].name, log.replays[i]));
    text += table.text(color) + "\n";
    const Replay& first = log.replays.front();
    text += wrapped(fmt::format("Known of {}'s overflows: {}. exact: follows from the record; bound: nothing recorded "
                                "overflows, what was not recorded might; unknown: the record hides it.",
                                options.scalers.front().name, known_text(first)));
    if (const auto causes = causes_of(first); !causes.empty()) {
        std::vector<std::string> parts;
        for (std::size_t i = 0; i < std::min<std::size_t>(3, causes.size()); ++i)
            parts.push_back(fmt::format("{} ({})", clipped(printable(causes[i].first), 40), causes[i].second));
        text += wrapped(fmt::format("What overflows under {}: {}{}.", options.scalers.front().name,
                                    fmt::join(parts, ", "), causes.size() > 3 ? ", ..." : ""));
    }
    return text + alarms_text(log, options) + sweep_text(log, color) + "\n" + wrapped(advice(log, options));
}

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json json_of(const Replay& r, const LossScalerOptions& o) {
    Json json = {{"steps", r.steps},
                 {"skipped", r.skips},
                 {"first_good_step", r.first_good ? Json(*r.first_good) : Json(nullptr)},
                 {"final_scale", number(r.final_scale)}};
    for (std::size_t k = 0; k < 3; ++k) json["known"][std::string(name_of(static_cast<Known>(k)))] = r.known[k];
    json["underflow"] = {
        {"steps", r.counted}, {"elements", r.underflow}, {"nonzero", r.nonzero}, {"known", name_of(r.underflow_known)}};
    json["time"] = Json::array();
    for (const auto& [scale, steps] : r.time) json["time"].push_back({{"scale", number(scale)}, {"steps", steps}});
    json["alarms"] = Json::array();
    for (const Alarm& a : r.alarms)
        json["alarms"].push_back({{"kind", name_of(a.kind)}, {"step", a.step}, {"text", alarm_text(a, o)}});
    json["scales"] = Json::array();
    for (const ScaleChange& c : r.scales) json["scales"].push_back({{"step", c.step}, {"scale", number(c.scale)}});
    json["skipped_steps"] = Json::array();
    for (const SkippedStep& s : r.skipped)
        json["skipped_steps"].push_back({{"step", s.step},
                                         {"scale", number(s.scale)},
                                         {"tensor", printable(s.tensor)},
                                         {"known", name_of(s.known)}});
    return json;
}

Json json_of(const ReplayedLog& log, const LossScaleOptions& options) {
    Json json = {
        {"input", printable(log.log.name)},
        {"recorded", log.log.recorded},
        {"first_step", log.log.steps.front().step},
        {"last_step", log.log.steps.back().step},
        {"steps", log.log.recorded_steps},
        {"hidden_steps", log.log.hidden_steps},
        {"steps_with_magnitudes", measured_steps(log.log)},
        {"recorded_skips", log.log.skipped},
        {"warnings", log.log.warnings},
        {"highest_safe_log2", log.recommendation.highest_safe},
        {"recommended_log2", log.recommendation.log2_scale ? Json(*log.recommendation.log2_scale) : Json(nullptr)},
        {"advice", advice(log, options)}};
    json["replays"] = Json::array();
    for (std::size_t i = 0; i < log.replays.size(); ++i) {
        Json replay = {{"scaler", options.scalers[i].name}};
        replay.update(json_of(log.replays[i], options.scalers[i].options));
        json["replays"].push_back(replay);
    }
    if (log.swept.empty()) return json;
    json["sweep"] = Json::array();
    for (const SweptScaler& s : log.swept)
        json["sweep"].push_back({{"scaler", s.name},
                                 {"lost", s.lost()},
                                 {"skipped", s.replay.skips},
                                 {"underflow", s.replay.underflow_rate()},
                                 {"final_scale", number(s.replay.final_scale)}});
    return json;
}

double log2_or_gap(double scale) { return scale > 0 ? std::log2(scale) : std::nan(""); }

LineSeries series_of(const std::string& name, const std::vector<ScaleChange>& scales) {
    LineSeries series{.name = name, .points = {}, .marks = {}, .holds = true};
    for (const ScaleChange& c : scales) series.points.emplace_back(static_cast<double>(c.step), log2_or_gap(c.scale));
    return series;
}

LineFigure figure_of(const ReplayedLog& log, const LossScaleOptions& options) {
    LineFigure figure{.title = "Loss scale: " + log.log.name,
                      .subtitle = "the scale in each step under other scalers, from the recorded gradients",
                      .x_label = "step",
                      .marks = "skipped step",
                      .log2_y = true,
                      .first = static_cast<double>(log.log.steps.front().step),
                      .last = static_cast<double>(log.log.steps.back().step),
                      .panels = {}};
    for (std::size_t i = 0; i < log.replays.size(); ++i) {
        const Replay& r = log.replays[i];
        LinePanel panel{.name = options.scalers[i].name,
                        .note = fmt::format("{} skipped, ends at {}", r.skips, scale_text(r.final_scale)),
                        .series = {}};
        if (!log.log.scales.empty()) {
            panel.series.push_back(series_of("as recorded", log.log.scales));
            panel.series.back().quiet = true;
        }
        panel.series.push_back(series_of("replayed", r.scales));
        for (const SkippedStep& s : r.skipped) panel.series.back().marks.push_back(static_cast<double>(s.step));
        figure.panels.push_back(std::move(panel));
    }
    return figure;
}

} // namespace

ReplayedLog replay_log(GradientLog log, const LossScaleOptions& options) {
    ReplayedLog result{.log = std::move(log), .replays = {}, .swept = {}, .recommendation = {}};
    const std::span<const GradientStep> steps = result.log.steps;
    if (steps.back().step - steps.front().step >= longest_run)
        throw FileError(result.log.name,
                        fmt::format("more than {} steps to replay ({} to {}): is one of the two wrong?",
                                    longest_run, steps.front().step, steps.back().step));
    for (const NamedScaler& scaler : options.scalers)
        result.replays.push_back(replay_scaler(scaler.options, steps, options.format));
    if (options.sweep) result.swept = sweep_scalers(steps, options.format);
    MagnitudeHistogram all;
    for (const GradientStep& s : steps) {
        all.merge(s.magnitudes);
        if (s.amax > 0) all.add(unpack(s.amax)); // what was not measured still must not overflow
    }
    result.recommendation = recommend(all, options.format, options.recommendation);
    return result;
}

std::string advice(const ReplayedLog& log, const LossScaleOptions& options) {
    const Recommendation& r = log.recommendation;
    const bool measured = measured_steps(log.log) > 0;
    const std::string format = options.format.name, limit = percent(options.recommendation.limit);
    const std::string highest = power_of_two(r.highest_safe), lowest = power_of_two(r.lowest_enough);
    const bool overflowed =
        std::ranges::any_of(log.log.steps, [](const GradientStep& s) { return s.amax == 0 && !s.hidden; });
    std::string text;
    if (!measured && std::ranges::all_of(log.log.steps, [](const GradientStep& s) { return s.amax == 0; }))
        return "Advice: the log holds no magnitudes, so overflow is known only under the scales that were in force; "
               "log "
               "the largest gradient of each step (amax), or record histograms.";
    if (measured && !r.window)
        text =
            fmt::format("No scale holds these gradients in {}: above {} some overflow, below {} more than {} of the "
                        "non-zero ones underflow. A format with more range (bf16) or unequal scales are the way out.",
                        format, highest, lowest, limit);
    else if (measured && r.log2_scale == 0)
        text = fmt::format("These gradients need no loss scaling in {}: at scale 1 less than {} of the non-zero ones "
                           "underflow, and none overflows.",
                           format, limit);
    else if (r.highest_safe < 0)
        text = fmt::format("Gradients overflow in {} at scale 1 already: no loss scale helps.", format);
    else {
        const int start =
            measured && r.log2_scale ? *r.log2_scale : std::max(0, r.highest_safe - options.recommendation.margin);
        text = fmt::format(
            "Start at {}: nothing recorded overflows up to {}{}.", power_of_two(start), highest,
            measured ? fmt::format(", and from {} on less than {} of the non-zero gradients underflow", lowest, limit)
                     : std::string());
        if (!measured) text += " How much underflows is not known: record gradients or their histograms.";
    }
    if (overflowed && measured) text += " Some steps have no finite magnitude.";
    const auto by_skips = [](const Replay& a, const Replay& b) { return a.skips < b.skips; };
    const auto [least, most] = std::ranges::minmax_element(log.replays, by_skips);
    const auto name = [&](auto at) { return options.scalers[static_cast<std::size_t>(at - log.replays.begin())].name; };
    if (most->skips > least->skips)
        text += fmt::format(" Of these scalers {} skips most ({}), {} least ({}).", name(most),
                            plural(count(most->skips), "step"), name(least), least->skips);
    if (!log.swept.empty()) text += fmt::format(" Least is lost by {}.", log.swept.front().name);
    return "Advice: " + text +
           " Once settled, a dynamic scaler skips about one step in each growth interval: it tries the next scale.";
}

std::string terminal_report(const std::vector<ReplayedLog>& logs, const LossScaleOptions& options, bool color) {
    std::string text;
    for (const ReplayedLog& log : logs) text += (text.empty() ? "" : "\n") + report_of(log, options, color);
    return text;
}

std::string json_report(const std::vector<ReplayedLog>& logs, const std::vector<std::string>& errors,
                        const LossScaleOptions& options) {
    Json json = {{"schema_version", 1},
                 {"tool", "amp-loss-scale"},
                 {"version", AMPSCOPE_VERSION},
                 {"format", options.format.name},
                 {"margin", options.recommendation.margin},
                 {"limit", options.recommendation.limit},
                 {"errors", errors}};
    json["inputs"] = Json::array();
    for (const ReplayedLog& log : logs) json["inputs"].push_back(json_of(log, options));
    return json_text(json);
}

std::string svg_report(const std::vector<ReplayedLog>& logs, const LossScaleOptions& options) {
    std::vector<Figure> figures;
    for (const ReplayedLog& log : logs) figures.emplace_back(figure_of(log, options));
    return svg_document(figures);
}

} // namespace amp::loss_scale_tool
