#include <ampscope/tools/python/tool.h>

#include <ampscope/tools/amp-report/answer.h>
#include <ampscope/tools/amp-report/saved.h>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

namespace amp::python {

namespace {

using namespace report_tool;

/// What amp-report says of these words, and its page.
std::tuple<std::string, std::vector<std::string>, std::string> amp_report(const Words& words) {
    const auto options = parsed("amp-report", words, &report_tool::parse_command_line, {"--json", "-"});
    if (const auto saved = saved_report_among(options)) {
        if (!options.html.empty()) write_report(options.html, html_of(saved->document));
        if (!options.markdown.empty()) write_report(options.markdown, markdown_of(saved->document));
        return {saved->json(), {}, html_of(saved->document)};
    }
    return interruptible([&](const Watch& watch) {
        std::vector<std::string> lines;
        const auto tell = [&](const std::string& line) { lines.push_back("amp-report: " + printable(line)); };
        const Report report = ask(options, tell, watch);
        const Document document = document_of(report, options);
        const std::string page = html_of(document);
        if (!options.html.empty() && !report.findings.runs.empty()) write_report(options.html, page);
        if (!options.markdown.empty() && !report.findings.runs.empty())
            write_report(options.markdown, markdown_of(document));
        return std::tuple(json_report(report, options), lines, page);
    });
}

ComparisonFindings comparison_findings_of(const Words& words) {
    const auto options = parsed("comparison_findings", words, &report_tool::parse_command_line);
    if (!options.json.empty() || !options.html.empty() || !options.markdown.empty())
        throw std::invalid_argument("comparison_findings: json, html and markdown are the command's alone");
    return interruptible([&](const Watch& watch) {
        return ask(
                   options, [](const std::string&) {}, watch)
            .findings; // errors and warnings are among them
    });
}

void bind_stability(nb::module_& m) {
    nb::class_<TensorGrowth>(m, "TensorGrowth", "The tensor whose largest magnitude grew most before a spike.")
        .def_prop_ro("tensor", text_of(&TensorGrowth::tensor), "Its name; empty if no tensor that grew is recorded.",
                     InEnvironment())
        .def_ro("evidence", &TensorGrowth::evidence, "The file that tells it, such as 'histograms.jsonl'.")
        .def_ro("step", &TensorGrowth::step, "The first step of the spike that this file has.")
        .def_ro("since", &TensorGrowth::since, "The step before it that this file has.")
        .def_ro("recorded", &TensorGrowth::recorded,
                "Whether single tensors were recorded in a step of the spike, grown or not.")
        .def_ro("factor", &TensorGrowth::factor,
                "The factor by which it grew between these steps; inf where it became infinite or NaN.");
    nb::class_<Spike>(m, "Spike", "Steps whose gradients or loss leap, or are not finite.")
        .def_prop_ro("kind", named(&Spike::kind), "What leaps: 'gradient' or 'loss'; or 'not finite'.", InEnvironment())
        .def_ro("first", &Spike::first, "The first step above the limit.")
        .def_ro("last", &Spike::last, "The last step above the limit.")
        .def_ro("peak", &Spike::peak, "The step with the largest value.")
        .def_ro("steps", &Spike::steps, "The number of steps above the limit.")
        .def_ro("value", &Spike::value, "The gradient norm or the loss, at the peak.")
        .def_ro("level", &Spike::level, "What the value is compared with: FP32's, or its own median of earlier steps.")
        .def_ro("lasts", &Spike::lasts, "Whether the spike lasts up to the last step of the log.")
        .def_ro("growth", &Spike::growth, "The TensorGrowth before it.");
    nb::class_<RunSpikes>(m, "RunSpikes", "How stable a run was.")
        .def_ro("run", &RunSpikes::run)
        .def_ro("reference", &RunSpikes::reference,
                "FP32's run whose gradients are the level; None where the level is the run's own median.")
        .def_ro("norms", &RunSpikes::norms, "Whether sizes are those of gradient norms; else of the largest gradient.")
        .def_ro("sizes", &RunSpikes::sizes, "Pairs of a step and the size of its gradients over their level.")
        .def_ro("spikes", &RunSpikes::spikes, "Every Spike, by kind and step.");
}

void bind_limits(nb::module_& m) {
    nb::class_<SpikeLimits>(m, "SpikeLimits", "What counts as a spike.")
        .def_ro("gradient", &SpikeLimits::gradient, "A gradient norm above so many times its level is one.")
        .def_ro("loss", &SpikeLimits::loss, "A loss above its median by so many deviations is one.")
        .def_ro("window", &SpikeLimits::window, "The number of earlier steps of which medians are taken.");
    nb::class_<ComparisonLimits>(m, "ComparisonLimits", "What runs are judged by.")
        .def_ro("alpha", &ComparisonLimits::alpha,
                "The intervals of a group hold all true differences at once with probability 1 - alpha or more.")
        .def_ro("loss_margin", &ComparisonLimits::loss_margin,
                "How much a final loss may exceed FP32's; None: see ComparisonGroup.margin.")
        .def_ro("accuracy_margin", &ComparisonLimits::accuracy_margin, "How far an accuracy may lie below FP32's.")
        .def_ro("spikes", &ComparisonLimits::spikes);
}

void bind_difference(nb::module_& m) {
    nb::class_<Spread>(m, "Spread", "Mean and standard deviation between seeds.")
        .def_ro("mean", &Spread::mean)
        .def_ro("deviation", &Spread::deviation, "The standard deviation; 0 for a single seed.")
        .def_ro("count", &Spread::count, "The number of seeds.");
    nb::class_<MeanInterval>(m, "MeanInterval", "A mean with its confidence interval.")
        .def_ro("mean", &MeanInterval::mean)
        .def_ro("low", &MeanInterval::low)
        .def_ro("high", &MeanInterval::high)
        .def_ro("deviation", &MeanInterval::deviation, "The standard deviation of the samples.")
        .def_ro("count", &MeanInterval::count, "The number of samples.");
    nb::class_<Difference>(m, "Difference", "How much worse than FP32: loss above its, accuracy below its.")
        .def_ro("interval", &Difference::interval)
        .def_prop_ro("basis", named(&Difference::basis),
                     "What the interval is based on: seeds (pairs of runs of one seed), means (runs of other seeds), "
                     "steps (one pair, along its steps) or none (one pair without both losses).",
                     InEnvironment())
        .def_prop_ro("standing", named(&Difference::standing), "holds, worse or unclear.", InEnvironment())
        .def_ro("seeds_needed", &Difference::seeds_needed,
                "The number of seeds that would tell with 80 % probability, if these do not; None where 1,000 would "
                "not suffice.")
        .def_ro("independent_steps", &Difference::independent_steps,
                "For one pair of runs: as many independent steps would tell as much as its own.");
}

void bind_known_effects(nb::module_& m) {
    nb::class_<KnownEffect>(m, "KnownEffect", "A mistake of low precision that is known in the field, and its remedy.")
        .def_ro("claim", &KnownEffect::claim, "A sentence that says what is lost, and how it is recovered.")
        .def_ro("loses", &KnownEffect::loses, "The name of the precision that makes the mistake.")
        .def_ro("recovers", &KnownEffect::recovers, "The name of the precision with the remedy.")
        .def_ro("reported_by", &KnownEffect::reported_by, "Who reports it, and in which paper; empty: it is known.")
        .def_prop_ro("shows", named(&KnownEffect::shows),
                     "Where it shows: in losses only, in gradients of the first step, or there if sums are long "
                     "enough: losses, gradients or sums.",
                     InEnvironment());
    nb::class_<EffectFinding>(m, "EffectFinding", "A known effect in the runs of one group.")
        .def_ro("effect", &EffectFinding::effect, "The KnownEffect.")
        .def_ro("loses", &EffectFinding::loses, "The ComparisonRow of the precision that makes the mistake.")
        .def_ro("recovers", &EffectFinding::recovers, "The ComparisonRow of the precision with the remedy.")
        .def_ro("difference", &EffectFinding::difference,
                "The Difference by which the first ends above the second; None if the first diverged.")
        .def_ro("appears", &EffectFinding::appears,
                "Whether the interval lies above 0, or only the first of the two diverged.")
        .def_ro("gradient_error", &EffectFinding::gradient_error,
                "The Difference of how far the gradients of the first step lie from FP32's, relative; None if the "
                "effect shows in losses only, or if that was not recorded.")
        .def_ro("longest_sum", &EffectFinding::longest_sum,
                "The number of products in the longest sum of the first precision; None if sums do not matter.");
}

void bind_row(nb::module_& m) {
    nb::class_<ComparisonRow>(m, "ComparisonRow", "Runs that differ in the seed only.")
        .def_prop_ro("label", text_of(&ComparisonRow::label), "The name of their precision.", InEnvironment())
        .def_ro("runs", &ComparisonRow::runs, "A RecordedRun for each.")
        .def_ro("seeds", &ComparisonRow::seeds, "The number of seeds.")
        .def_ro("diverged", &ComparisonRow::diverged, "The number of seeds whose final loss is infinite or NaN.")
        .def_ro("loss", &ComparisonRow::loss, "The Spread of the final losses of all other seeds; None without any.")
        .def_ro("over", &ComparisonRow::over, "The Difference of final losses from FP32's.")
        .def_ro("validation_over", &ComparisonRow::validation_over, "The Difference of validation losses from FP32's.")
        .def_ro("accuracy_lost", &ComparisonRow::accuracy_lost,
                "The Difference of validation accuracies: how far they lie below FP32's.")
        .def_ro("validation", &ComparisonRow::validation, "The Spread of validation losses.")
        .def_ro("accuracy", &ComparisonRow::accuracy, "The Spread of validation accuracies.")
        .def_ro("skipped", &ComparisonRow::skipped, "The mean number of skipped steps of a run.")
        .def_ro("underflow", &ComparisonRow::underflow,
                "The Share of gradient elements that became zero when training rounded them.")
        .def_ro("lost_updates", &ComparisonRow::lost_updates,
                "The Share of weights with a gradient that an update left as they were.")
        .def_ro("bytes_per_parameter", &ComparisonRow::bytes_per_parameter)
        .def_ro("distance", &ComparisonRow::distance, "The relative distance of the weights from those of FP32.")
        .def_ro("operand_bits", &ComparisonRow::operand_bits,
                "The bits of the operands of matrix products; 0 if unknown.")
        .def_ro("scales_loss", &ComparisonRow::scales_loss, "Whether a loss scaler is used.")
        .def_ro("stability", &ComparisonRow::stability, "The RunSpikes of each of its runs.")
        .def_prop_ro("standing", named(&ComparisonRow::standing),
                     "reference, holds, worse, unclear, broken or unknown.", InEnvironment());
}

} // namespace

void bind_comparison(nb::module_& m) {
    bind_limits(m);
    bind_difference(m);
    bind_stability(m);
    bind_row(m);
    bind_known_effects(m);
    nb::class_<ComparisonGroup>(m, "ComparisonGroup", "Runs of one network on the same data.")
        .def_prop_ro("name", text_of(&ComparisonGroup::name), InEnvironment())
        .def_ro("rows", &ComparisonGroup::rows, "A ComparisonRow for each precision, in order of appearance.")
        .def_ro("reference", &ComparisonGroup::reference, "The row of FP32; None without one.")
        .def_ro("margin", &ComparisonGroup::margin, "How much a final loss may exceed FP32's and still hold.")
        .def_ro("margin_basis", &ComparisonGroup::margin_basis, "How the margin was chosen, in words.")
        .def_ro("comparisons", &ComparisonGroup::comparisons, "The number of rows that are compared with FP32's.")
        .def_ro("effects", &ComparisonGroup::effects,
                "An EffectFinding for each known effect of which both precisions are here.")
        .def_ro("evidence", &ComparisonGroup::evidence, "The run by whose gradients the group is judged.")
        .def_ro("adam", &ComparisonGroup::adam, "AdamFindings of that run.")
        .def_prop_ro("notes", text_of(&ComparisonGroup::notes), "What its runs differ in besides precision and seed.",
                     InEnvironment());
    nb::class_<ShortAnswer>(m, "ShortAnswer", "What a comparison answers to one question.")
        .def_prop_ro("question", text_of(&ShortAnswer::question),
                     "Format, Loss scale, Adam's eps, Training loop or Stability.", InEnvironment())
        .def_prop_ro("words", text_of(&ShortAnswer::words), "The answer in a few words; 'unknown' is one.",
                     InEnvironment())
        .def_prop_ro("reason", text_of(&ShortAnswer::reason), "Why, in a sentence.", InEnvironment())
        .def_prop_ro("state", named(&ShortAnswer::state), "settled, open or alarm.", InEnvironment());
    nb::class_<ComparisonFindings>(m, "ComparisonFindings",
                                   "What precisions did to training: see ampscope.comparison_findings().")
        .def_ro("limits", &ComparisonFindings::limits, "The ComparisonLimits that differences were judged by.")
        .def_ro("runs", &ComparisonFindings::runs, "A RecordedRun for each run.")
        .def_ro("groups", &ComparisonFindings::groups, "A ComparisonGroup for each network and its data.")
        .def_ro("answers", &ComparisonFindings::answers,
                "The verdict at a glance: a ShortAnswer on format, loss scale and eps each, then alarms.")
        .def_prop_ro("verdict", text_of(&ComparisonFindings::verdict),
                     "Which format, loss scale, eps and state to use, and why.", InEnvironment())
        .def_prop_ro("precisions", text_of(&ComparisonFindings::precisions), "A sentence on each precision.",
                     InEnvironment())
        .def_prop_ro("effects", text_of(&ComparisonFindings::effects), "A sentence on each known effect.",
                     InEnvironment())
        .def_prop_ro("alarms", text_of(&ComparisonFindings::alarms), "Where training became unstable, in words.",
                     InEnvironment())
        .def_prop_ro("errors", text_of(&ComparisonFindings::errors), InEnvironment())
        .def_prop_ro("warnings", text_of(&ComparisonFindings::warnings), InEnvironment());
    m.def("amp_report", &amp_report, nb::arg("words"), InEnvironment());
    m.def("comparison_rows", &json_rows, nb::arg("findings"), InEnvironment());
    m.def("comparison_findings", &comparison_findings_of, nb::arg("words"), InEnvironment());
}

} // namespace amp::python
