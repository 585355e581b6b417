#include <ampscope/tools/python/tool.h>

#include <ampscope/tools/amp-loss-scale/answer.h>
#include <ampscope/tools/amp-loss-scale/report.h>

#include <nanobind/stl/map.h>
#include <nanobind/stl/string_view.h>

namespace amp::python {

namespace {

using namespace loss_scale_tool;

/// What amp-loss-scale says of these words.
Said amp_loss_scale(const Words& words) {
    const auto options = parsed("amp-loss-scale", words, &parse_command_line, {"--json", "-"});
    return interruptible([&](const Watch& watch) {
        Said said;
        const auto tell = [&](const std::string& line) { said.second.push_back("amp-loss-scale: " + printable(line)); };
        const auto [logs, errors] = ask(options, tell, watch);
        if (!options.svg.empty() && !logs.empty()) write_report(options.svg, svg_report(logs));
        if (!options.html.empty() && !logs.empty()) write_report(options.html, html_of(document_of(logs, options)));
        said.first = json_report(logs, errors, options);
        return said;
    });
}

LossScaleFindings findings(const Words& words) {
    const auto options = parsed_alone("loss_scale_findings", words, &parse_command_line);
    return interruptible(
        [&](const Watch& watch) { return loss_scale_findings(options.paths.front(), options, watch); });
}

std::map<std::string, std::int64_t> known_of(const Replay& r) {
    std::map<std::string, std::int64_t> known;
    for (std::size_t k = 0; k < std::size(r.known); ++k)
        known[std::string(name_of(static_cast<Known>(k)))] = r.known[k];
    return known;
}

std::vector<std::string> alarms_of(const ScalerReplay& s) {
    std::vector<std::string> texts;
    for (const Alarm& alarm : s.replay.alarms) texts.push_back(alarm_text(alarm, s.options));
    return texts;
}

void bind_replay(nb::module_& m) {
    nb::class_<ScaleChange>(m, "ScaleChange", "The loss scale from a step on.")
        .def_ro("step", &ScaleChange::step)
        .def_ro("scale", &ScaleChange::scale);
    nb::class_<SkippedStep>(m, "SkippedStep", "A step that is skipped, and the tensor that overflows.")
        .def_ro("step", &SkippedStep::step)
        .def_ro("scale", &SkippedStep::scale)
        .def_prop_ro("tensor", text_of(&SkippedStep::tensor), InEnvironment())
        .def_prop_ro(
            "known", [](const SkippedStep& s) { return name_of(s.known); }, InEnvironment());
    nb::class_<Alarm>(m, "Alarm", "What is wrong with a scaler, from a step on.")
        .def_prop_ro(
            "kind", [](const Alarm& a) { return name_of(a.kind); }, InEnvironment())
        .def_ro("step", &Alarm::step);
    nb::class_<Replay>(m, "Replay", "A recorded run under a loss scaler.")
        .def_ro("steps", &Replay::steps)
        .def_ro("skips", &Replay::skips, "Steps that are skipped.")
        .def_ro("scales", &Replay::scales)
        .def_ro("skipped", &Replay::skipped, "The skipped steps.")
        .def_ro("first_good", &Replay::first_good, "The first step that is taken.")
        .def_ro("final_scale", &Replay::final_scale)
        .def_prop_ro("known", &known_of, "Steps by how it is known whether they overflow.", InEnvironment())
        .def_ro("time", &Replay::time, "Steps at each scale.")
        .def_ro("underflow", &Replay::underflow, "Elements that underflow in the steps taken.")
        .def_ro("nonzero", &Replay::nonzero, "The elements that are not zero in these steps.")
        .def_ro("counted", &Replay::counted, "The steps taken whose magnitudes were recorded.")
        .def_prop_ro(
            "underflow_known", [](const Replay& r) { return name_of(r.underflow_known); }, InEnvironment())
        .def_ro("alarms", &Replay::alarms)
        .def_prop_ro("skip_rate", &Replay::skip_rate, InEnvironment())
        .def_prop_ro("underflow_rate", &Replay::underflow_rate, InEnvironment());
    nb::class_<ScalerReplay>(m, "ScalerReplay", "A loss scaler, and what it would have done.")
        .def_ro("name", &ScalerReplay::name)
        .def_ro("replay", &ScalerReplay::replay)
        .def_prop_ro("alarms", &alarms_of, "Those of the replay, in words.", InEnvironment())
        .def_prop_ro("lost", &ScalerReplay::lost, "The shares of steps skipped and of gradients that underflow, added.",
                     InEnvironment());
}

void bind_log(nb::module_& m) {
    nb::class_<GradientStep>(m, "GradientStep", "What is known of the gradients of a step, without a loss scale.")
        .def_ro("step", &GradientStep::step)
        .def_ro("amax", &GradientStep::amax, "The largest finite magnitude recorded.")
        .def_ro("clean_scale", &GradientStep::clean_scale, "No gradient overflowed under it.")
        .def_ro("overflow_scale", &GradientStep::overflow_scale, "One did under it; else infinite.")
        .def_prop_ro("largest", text_of(&GradientStep::largest),
                     "The tensor with the largest magnitude, or that overflowed.", InEnvironment())
        .def_ro("magnitudes", &GradientStep::magnitudes)
        .def_ro("flushed", &GradientStep::flushed, "Recorded in a format that had lost small ones.")
        .def_ro("hidden", &GradientStep::hidden, "Its record cannot be read.");
    nb::class_<GradientLog>(m, "GradientLog", "A run, as loss scalers see it.")
        .def_prop_ro("name", text_of(&GradientLog::name), InEnvironment())
        .def_prop_ro("recorded", text_of(&GradientLog::recorded), "How, in words.", InEnvironment())
        .def_ro("steps", &GradientLog::steps)
        .def_ro("recorded_steps", &GradientLog::recorded_steps)
        .def_ro("hidden_steps", &GradientLog::hidden_steps)
        .def_prop_ro("measured_steps", &GradientLog::measured_steps, InEnvironment())
        .def_ro("scales", &GradientLog::scales)
        .def_ro("skipped", &GradientLog::skipped, "Steps that overflowed, as recorded.")
        .def_prop_ro("warnings", text_of(&GradientLog::warnings), InEnvironment())
        .def_prop_ro("errors", text_of(&GradientLog::errors), InEnvironment());
}

} // namespace

void bind_loss_scale(nb::module_& m) {
    bind_replay(m);
    bind_log(m);
    nb::class_<LossScaleFindings>(m, "LossScaleFindings",
                                  "What a run says of loss scalers: see ampscope.loss_scale_findings().")
        .def_ro("log", &LossScaleFindings::log)
        .def_ro("replays", &LossScaleFindings::replays, "A ScalerReplay for each scaler that was asked about.")
        .def_ro("swept", &LossScaleFindings::swept, "The same of a sweep, what loses least first.")
        .def_prop_ro(
            "recommendation", [](const LossScaleFindings& f) { return recommendation_dict(f.recommendation); },
            "As Histogram.recommend() gives it.", InEnvironment())
        .def_prop_ro("advice", text_of(&LossScaleFindings::advice), InEnvironment())
        .def_prop_ro("alarms", text_of(&LossScaleFindings::alarms),
                     "Those of all replays; scalers of which the same is true share a line.", InEnvironment());
    m.def("amp_loss_scale", &amp_loss_scale, nb::arg("words"), InEnvironment());
    m.def("loss_scale_findings", &findings, nb::arg("words"), InEnvironment());
}

} // namespace amp::python
