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
    const auto options = parsed("amp-loss-scale", words, &loss_scale_tool::parse_command_line, {"--json", "-"});
    return interruptible([&](const Watch& watch) {
        Said said;
        const auto tell = [&](const std::string& line) { said.second.push_back("amp-loss-scale: " + printable(line)); };
        const LossScaleAnswer answer = ask(options, tell, watch);
        if (!options.svg.empty() && !answer.runs.empty()) write_report(options.svg, svg_report(answer.runs));
        if (!options.html.empty() && !answer.runs.empty()) write_report(options.html, html_report(answer, options));
        said.first = json_report(answer.runs, answer.errors, options);
        return said;
    });
}

LossScaleFindings loss_scale_findings_of(const Words& words) {
    const auto options = parsed_alone("loss_scale_findings", words, &loss_scale_tool::parse_command_line);
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
    nb::class_<ScaleChange>(m, "ScaleChange", "A change of the loss scale: what it is from a step on.")
        .def_ro("step", &ScaleChange::step)
        .def_ro("scale", &ScaleChange::scale);
    nb::class_<SkippedStep>(m, "SkippedStep", "A step that a loss scaler skips.")
        .def_ro("step", &SkippedStep::step)
        .def_ro("scale", &SkippedStep::scale)
        .def_prop_ro("tensor", text_of(&SkippedStep::tensor),
                     "The name of the tensor that overflows, if it is recorded.", InEnvironment())
        .def_prop_ro("known", named(&SkippedStep::known), "How it is known: exact, bound or unknown.", InEnvironment());
    nb::class_<Alarm>(m, "Alarm", "What is wrong with a replayed loss scale, from a step on.")
        .def_prop_ro("kind", named(&Alarm::kind), InEnvironment())
        .def_ro("step", &Alarm::step);
    nb::class_<Replay>(m, "Replay", "A recorded run under a loss scaler.")
        .def_ro("steps", &Replay::steps, "The number of steps replayed.")
        .def_ro("skips", &Replay::skips, "The number of steps that are skipped.")
        .def_ro("scales", &Replay::scales, "A ScaleChange for each loss scale, in order.")
        .def_ro("skipped", &Replay::skipped, "A SkippedStep for each.")
        .def_ro("first_good", &Replay::first_good, "The first step that is not skipped; None if there is none.")
        .def_ro("final_scale", &Replay::final_scale, "The loss scale after the last step.")
        .def_prop_ro("known", &known_of,
                     "The number of steps by how it is known whether they overflow: exact, bound or unknown.",
                     InEnvironment())
        .def_ro("time", &Replay::time, "The number of steps at each scale.")
        .def_ro("underflow", &Replay::underflow, "The number of elements that underflow in the steps taken.")
        .def_ro("nonzero", &Replay::nonzero, "The number of elements that are not zero in these steps.")
        .def_ro("counted", &Replay::counted, "The number of steps taken whose magnitudes were recorded.")
        .def_prop_ro("underflow_known", named(&Replay::underflow_known),
                     "How underflow is known: exact, or bound where more may underflow.", InEnvironment())
        .def_ro("alarms", &Replay::alarms, "An Alarm for each thing that is wrong.")
        .def_prop_ro("skip_rate", &Replay::skip_rate, "skips / steps.", InEnvironment())
        .def_prop_ro("underflow_rate", &Replay::underflow_rate, "underflow / nonzero.", InEnvironment());
    nb::class_<ScalerReplay>(m, "ScalerReplay", "A loss scaler, and what it would have done.")
        .def_ro("name", &ScalerReplay::name, "The scaler as on the command line: 'torch,init=2^10'.")
        .def_ro("replay", &ScalerReplay::replay, "The Replay.")
        .def_prop_ro("alarms", &alarms_of, "The alarms of the replay, in words.", InEnvironment())
        .def_prop_ro("lost", &ScalerReplay::lost,
                     "The share of steps skipped plus the share of gradients that underflow.", InEnvironment());
}

void bind_log(nb::module_& m) {
    nb::class_<GradientStep>(m, "GradientStep", "What is known of the gradients of a step, without a loss scale.")
        .def_ro("step", &GradientStep::step)
        .def_ro("amax", &GradientStep::amax, "The largest finite magnitude recorded.")
        .def_ro("clean_scale", &GradientStep::clean_scale, "A loss scale under which no gradient overflowed; 0: none.")
        .def_ro("overflow_scale", &GradientStep::overflow_scale,
                "A loss scale under which a gradient overflowed; infinite: none.")
        .def_prop_ro("largest", text_of(&GradientStep::largest),
                     "The tensor with the largest magnitude, or that overflowed.", InEnvironment())
        .def_ro("magnitudes", &GradientStep::magnitudes, "Their Histogram; empty if none was recorded.")
        .def_ro("censoring", &GradientStep::censoring, "What the record hides of them, a Censoring.")
        .def_ro("hidden", &GradientStep::hidden, "Whether its record cannot be read.");
    nb::class_<GradientLog>(m, "GradientLog", "What was recorded of a run, as loss scalers see it.")
        .def_prop_ro("name", text_of(&GradientLog::name), InEnvironment())
        .def_prop_ro("recorded", text_of(&GradientLog::recorded), "How it was recorded, in words.", InEnvironment())
        .def_prop_ro("backward", text_of(&GradientLog::backward),
                     "The format in which backward computed gradients; empty if it is not known.", InEnvironment())
        .def_ro("steps", &GradientLog::steps, "A GradientStep for each step of the record.")
        .def_ro("recorded_steps", &GradientLog::recorded_steps, "The number of steps whose record can be read.")
        .def_ro("hidden_steps", &GradientLog::hidden_steps, "The number of steps whose record cannot be read.")
        .def_prop_ro("measured_steps", &GradientLog::measured_steps, "The number of steps with recorded magnitudes.",
                     InEnvironment())
        .def_ro("scales", &GradientLog::scales, "The loss scales of the record.")
        .def_ro("skipped", &GradientLog::skipped, "The steps that overflowed, as recorded.")
        .def_prop_ro("warnings", text_of(&GradientLog::warnings), InEnvironment())
        .def_prop_ro("errors", text_of(&GradientLog::errors), InEnvironment());
}

} // namespace

void bind_loss_scale(nb::module_& m) {
    bind_replay(m);
    bind_log(m);
    nb::class_<LossScaleFindings>(m, "LossScaleFindings",
                                  "What a run says of loss scalers: see ampscope.loss_scale_findings().")
        .def_ro("log", &LossScaleFindings::log, "The GradientLog.")
        .def_ro("replays", &LossScaleFindings::replays, "A ScalerReplay for each scaler that was asked about.")
        .def_ro("swept", &LossScaleFindings::swept,
                "A ScalerReplay for each scaler of a sweep; what loses least comes first.")
        .def_prop_ro(
            "recommendation", [](const LossScaleFindings& f) { return recommendation_dict(f.recommendation); },
            "The recommended loss scale, a dict as Histogram.recommend() returns it.", InEnvironment())
        .def_prop_ro("advice", text_of(&LossScaleFindings::advice), "The scale to start with, and what scalers cost.",
                     InEnvironment())
        .def_prop_ro("alarms", text_of(&LossScaleFindings::alarms),
                     "The alarms of all replays, in words; scalers with the same alarm share a line.", InEnvironment());
    m.def("amp_loss_scale", &amp_loss_scale, nb::arg("words"), InEnvironment());
    m.def("loss_scale_findings", &loss_scale_findings_of, nb::arg("words"), InEnvironment());
}

} // namespace amp::python
