#include <ampscope/tools/amp-loss-scale/report.h>

#include <ampscope/sim/analysis/histogram_json.h>
#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/json_value.h>
#include <ampscope/tools/document/page.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace amp::loss_scale_tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t rows_of_sweep = 8;

std::uint64_t count(std::int64_t n) { return static_cast<std::uint64_t>(n); }

/// The scale at which most steps were spent.
std::string usual_scale(const Replay& r) {
    const auto most = std::ranges::max_element(r.time, {}, [](const auto& item) { return item.second; });
    return fmt::format("{} {}", scale_text(most->first), percent(count(most->second), count(r.steps)));
}

Cell underflow_cell(const Replay& r) {
    Cell cell = share_cell(static_cast<double>(r.underflow), r.nonzero);
    if (r.nonzero > 0 && r.underflow_known == Known::bound) cell.text.insert(0, ">= ");
    return cell;
}

/// How well the overflows under a scaler are known, with the words that occur explained.
std::string known_text(const ScalerReplay& scaler) {
    constexpr std::array meanings = {"the record tells whether the step overflows",
                                     "nothing that was recorded overflows, but not everything was recorded",
                                     "the record does not tell"};
    const Replay& r = scaler.replay;
    std::vector<std::string> parts;
    for (std::size_t k = 0; k < meanings.size(); ++k)
        if (r.known[k] > 0)
            parts.push_back(fmt::format("{} {} ({})", r.known[k] == r.steps ? "all" : grouped(count(r.known[k])),
                                        name_of(static_cast<Known>(k)), meanings[k]));
    return fmt::format("How well the overflows under {} are known, by steps: {}.", scaler.name, fmt::join(parts, "; "));
}

double log2_or_gap(double scale) { return scale > 0 ? std::log2(scale) : std::nan(""); }

LineSeries series_of(const std::string& name, const std::vector<ScaleChange>& scales) {
    LineSeries series{.name = name, .points = {}, .marks = {}, .holds = true};
    for (const ScaleChange& c : scales) series.points.emplace_back(static_cast<double>(c.step), log2_or_gap(c.scale));
    return series;
}

LineFigure figure_of(const LossScaleFindings& run) {
    LineFigure figure{.title = "Loss scale: " + run.log.name,
                      .subtitle = "the scale in each step under other scalers, from the recorded gradients",
                      .x_label = "step",
                      .marks = "skipped step",
                      .log2_y = true,
                      .first = static_cast<double>(run.log.steps.front().step),
                      .last = static_cast<double>(run.log.steps.back().step),
                      .panels = {}};
    for (const ScalerReplay& scaler : run.replays) {
        const Replay& r = scaler.replay;
        LinePanel panel{.name = scaler.name,
                        .note =
                            fmt::format("{} skipped, ends at {}", grouped(count(r.skips)), scale_text(r.final_scale)),
                        .series = {}};
        if (!run.log.scales.empty()) {
            panel.series.push_back(series_of("as recorded", run.log.scales));
            panel.series.back().quiet = true;
        }
        panel.series.push_back(series_of("replayed", r.scales));
        for (const SkippedStep& s : r.skipped) panel.series.back().marks.push_back(static_cast<double>(s.step));
        figure.panels.push_back(std::move(panel));
    }
    return figure;
}

TableBlock scaler_table(const LossScaleFindings& run) {
    TableBlock table{
        .caption = {}, .header = {"scaler", "skipped", "first good", "final", "mostly at", "underflow"}, .rows = {}};
    for (const ScalerReplay& scaler : run.replays) {
        const Replay& r = scaler.replay;
        table.rows.push_back(
            {{scaler.name},
             {fmt::format("{} ({})", grouped(count(r.skips)), percent(count(r.skips), count(r.steps))),
              static_cast<double>(r.skips)},
             r.first_good ? Cell{std::to_string(*r.first_good), static_cast<double>(*r.first_good)} : Cell{"none"},
             {scale_text(r.final_scale), r.final_scale},
             {usual_scale(r)},
             underflow_cell(r)});
    }
    return table;
}

std::string span_of(const GradientLog& log) {
    const std::int64_t first = log.steps.front().step, last = log.steps.back().step;
    std::string steps = plural(count(log.recorded_steps), "step");
    if (log.hidden_steps > 0) steps += fmt::format(" and {} unknown", grouped(count(log.hidden_steps)));
    if (first == last) return fmt::format("{} ({})", steps, first);
    const bool gaps = last - first + 1 > log.recorded_steps + log.hidden_steps;
    return fmt::format("{} ({}{} to {})", steps, gaps ? "from " : "", first, last);
}

TableBlock sweep_table(const LossScaleFindings& run) {
    TableBlock table{.caption = fmt::format("The best of {} settings. lost: the share of steps skipped and that of "
                                            "gradients that underflow.",
                                            run.swept.size()),
                     .header = {"settings", "lost", "skipped", "underflow"},
                     .rows = {}};
    for (std::size_t i = 0; i < std::min(rows_of_sweep, run.swept.size()); ++i) {
        const ScalerReplay& s = run.swept[i];
        table.rows.push_back(
            {{s.name}, {percent(s.lost()), s.lost()}, count_cell(count(s.replay.skips)), underflow_cell(s.replay)});
    }
    return table;
}

void add_findings(Document& document, const LossScaleFindings& run, const LossScaleToolOptions& options) {
    document.add(Heading{clipped(printable(run.log.name), 44) + ": " + span_of(run.log)});
    document.add(Paragraph{run.advice, true});
    document.add(Bullets{run.alarms});
    const std::size_t measured = run.log.measured_steps();
    const std::string& backward = run.log.backward;
    const std::string of = backward.empty() ? "" : fmt::format("in {}, ", backward);
    const bool other = backward != options.format.name;
    document.add(Paragraph{fmt::format("Recorded: {}; gradients {}; magnitudes of {}.",
                                       run.log.recorded.empty() ? "a log" : run.log.recorded,
                                       other ? fmt::format("{}replayed as if they were in {}", of, options.format.name)
                                             : fmt::format("in {}", options.format.name),
                                       measured == 0 ? "no step: underflow is not known" : plural(measured, "step"))});
    document.add(FigureBlock{figure_of(run), ""});
    document.add(scaler_table(run));
    const ScalerReplay& first = run.replays.front();
    document.add(Paragraph{known_text(first)});
    if (const auto causes = overflow_causes(first.replay); !causes.empty()) {
        std::vector<std::string> parts;
        for (std::size_t i = 0; i < std::min<std::size_t>(3, causes.size()); ++i)
            parts.push_back(fmt::format("{} ({})", shortened_name(printable(causes[i].first), 40),
                                        grouped(count(causes[i].second))));
        document.add(Paragraph{fmt::format("What overflows under {}: {}{}.", first.name, fmt::join(parts, ", "),
                                           causes.size() > 3 ? ", ..." : "")});
    }
    if (run.swept.empty()) return;
    document.add(Heading{"Other settings", 3});
    document.add(sweep_table(run));
}

Json json_of(const Replay& r, const LossScalerOptions& o) {
    Json json = {{"steps", r.steps},
                 {"skipped", r.skips},
                 {"first_good_step", or_null(r.first_good)},
                 {"final_scale", finite_or_null(r.final_scale)}};
    for (std::size_t k = 0; k < 3; ++k) json["known"][std::string(name_of(static_cast<Known>(k)))] = r.known[k];
    json["underflow"] = {
        {"steps", r.counted}, {"elements", r.underflow}, {"nonzero", r.nonzero}, {"known", name_of(r.underflow_known)}};
    json["time"] = Json::array();
    for (const auto& [scale, steps] : r.time)
        json["time"].push_back({{"scale", finite_or_null(scale)}, {"steps", steps}});
    json["alarms"] = Json::array();
    for (const Alarm& a : r.alarms)
        json["alarms"].push_back({{"kind", name_of(a.kind)}, {"step", a.step}, {"text", alarm_text(a, o)}});
    json["scales"] = Json::array();
    for (const ScaleChange& c : r.scales)
        json["scales"].push_back({{"step", c.step}, {"scale", finite_or_null(c.scale)}});
    json["skipped_steps"] = Json::array();
    for (const SkippedStep& s : r.skipped)
        json["skipped_steps"].push_back({{"step", s.step},
                                         {"scale", finite_or_null(s.scale)},
                                         {"tensor", printable(s.tensor)},
                                         {"known", name_of(s.known)}});
    return json;
}

Json json_of(const LossScaleFindings& run) {
    Json json = {
        {"input", printable(run.log.name)},
        {"recorded", run.log.recorded},
        {"first_step", run.log.steps.front().step},
        {"last_step", run.log.steps.back().step},
        {"steps", run.log.recorded_steps},
        {"hidden_steps", run.log.hidden_steps},
        {"steps_with_magnitudes", run.log.measured_steps()},
        {"recorded_skips", run.log.skipped},
        {"warnings", run.log.warnings},
        {"highest_safe_log2", run.log.has_magnitudes() ? Json(run.recommendation.highest_safe) : Json(nullptr)},
        {"recommended_log2", or_null(run.recommendation.log2_scale)},
        {"advice", run.advice},
        {"alarms", run.alarms}};
    add_known(json, run.recommendation);
    json["replays"] = Json::array();
    for (const ScalerReplay& scaler : run.replays) {
        Json replay = {{"scaler", scaler.name}};
        replay.update(json_of(scaler.replay, scaler.options));
        json["replays"].push_back(replay);
    }
    if (run.swept.empty()) return json;
    json["sweep"] = Json::array();
    for (const ScalerReplay& s : run.swept)
        json["sweep"].push_back({{"scaler", s.name},
                                 {"lost", s.lost()},
                                 {"skipped", s.replay.skips},
                                 {"underflow", s.replay.underflow_rate()},
                                 {"final_scale", finite_or_null(s.replay.final_scale)}});
    return json;
}

} // namespace

Document document_of(const std::vector<LossScaleFindings>& runs, const LossScaleToolOptions& options) {
    Document document{.title = "What loss scalers do with recorded gradients", .subtitle = {}, .blocks = {}};
    for (const LossScaleFindings& run : runs) add_findings(document, run, options);
    return document;
}

std::string html_report(const LossScaleAnswer& answer, const LossScaleToolOptions& options) {
    PageFacts facts{.command = options.command, .errors = answer.errors};
    facts.inputs.insert(options.paths.begin(), options.paths.end());
    for (const LossScaleFindings& run : answer.runs)
        facts.warnings.insert(facts.warnings.end(), run.log.warnings.begin(), run.log.warnings.end());
    return page_of(document_of(answer.runs, options), facts);
}

std::string json_report(const std::vector<LossScaleFindings>& runs, const std::vector<std::string>& errors,
                        const LossScaleToolOptions& options) {
    Json json = {{"schema_version", 1},
                 {"tool", "amp-loss-scale"},
                 {"version", AMPSCOPE_VERSION},
                 {"format", options.format.name},
                 {"margin", options.recommendation.margin},
                 {"limit", options.recommendation.limit},
                 {"errors", errors}};
    json["inputs"] = Json::array();
    for (const LossScaleFindings& run : runs) json["inputs"].push_back(json_of(run));
    return json_text(json);
}

std::string svg_report(const std::vector<LossScaleFindings>& runs) {
    std::vector<Figure> figures;
    for (const LossScaleFindings& run : runs) figures.emplace_back(figure_of(run));
    return svg_document(figures);
}

} // namespace amp::loss_scale_tool
