#include <ampscope/tools/python/tool.h>

#include <ampscope/tools/amp-report/answer.h>

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

#include <nlohmann/json.hpp>
#include <tuple>

namespace amp::python {

namespace {

using namespace report_tool;

/// What amp-report says of these words, and its page.
std::tuple<std::string, std::vector<std::string>, std::string> amp_report(const Words& words) {
    const auto options = parsed("amp-report", words, &parse_command_line, {"--json", "-"});
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

ComparisonFindings findings(const Words& words) {
    const auto options = parsed("comparison_findings", words, &parse_command_line);
    if (!options.json.empty() || !options.html.empty() || !options.markdown.empty())
        throw std::invalid_argument("comparison_findings: json, html and markdown are the command's alone");
    return interruptible([&](const Watch& watch) {
        return ask(
                   options, [](const std::string&) {}, watch)
            .findings; // errors and warnings are among them
    });
}

std::map<std::string, std::uint64_t> by_usual_format(const std::array<std::uint64_t, usual_formats.size()>& counts) {
    std::map<std::string, std::uint64_t> by;
    for (std::size_t i = 0; i < counts.size(); ++i) by[std::string(usual_formats[i])] = counts[i];
    return by;
}

nb::object json_object(const nlohmann::ordered_json& json) {
    return from_json(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void bind_facts(nb::module_& m) {
    nb::class_<StepMetrics>(m, "StepMetrics", "A step, as metrics.jsonl has it.")
        .def_ro("step", &StepMetrics::step)
        .def_ro("loss", &StepMetrics::loss)
        .def_ro("scale", &StepMetrics::scale)
        .def_ro("amax_weight", &StepMetrics::amax_weight)
        .def_ro("amax_activation", &StepMetrics::amax_activation)
        .def_ro("found_inf", &StepMetrics::found_inf)
        .def_ro("gradient_norm", &StepMetrics::gradient_norm);
    nb::class_<RunFacts>(m, "RunFacts", "What run.json says; empty and None where it does not.")
        .def_ro("tool", &RunFacts::tool)
        .def_ro("version", &RunFacts::version)
        .def_ro("model", &RunFacts::model)
        .def_ro("data", &RunFacts::data)
        .def_ro("precision", &RunFacts::precision)
        .def_ro("recipe", &RunFacts::recipe)
        .def_ro("autocast", &RunFacts::autocast)
        .def_ro("activation_format", &RunFacts::activation_format)
        .def_ro("gradient_format", &RunFacts::gradient_format)
        .def_ro("operands", &RunFacts::operands)
        .def_ro("loss_scaler", &RunFacts::loss_scaler)
        .def_ro("optimizer", &RunFacts::optimizer)
        .def_ro("optimizer_order", &RunFacts::optimizer_order)
        .def_ro("lr", &RunFacts::lr)
        .def_ro("beta1", &RunFacts::beta1)
        .def_ro("beta2", &RunFacts::beta2)
        .def_ro("eps", &RunFacts::eps)
        .def_ro("weight_decay", &RunFacts::weight_decay)
        .def_ro("seed", &RunFacts::seed)
        .def_ro("validation", &RunFacts::validation);
    nb::class_<GradientCounts>(m, "GradientCounts", "Gradients without the loss scale.")
        .def_ro("nonzero", &GradientCounts::nonzero)
        .def_ro("nan", &GradientCounts::nan)
        .def_prop_ro(
            "underflow", [](const GradientCounts& c) { return by_usual_format(c.underflow); },
            "Elements that become zero, by format.", InEnvironment())
        .def_prop_ro("range", &GradientCounts::range, "Such as '2^-20 to 2^3'.", InEnvironment());
    nb::class_<TensorRecord>(m, "TensorRecord", "The gradients of one tensor over all steps.")
        .def_prop_ro("name", text_of(&TensorRecord::name), InEnvironment())
        .def_prop_ro("layer", text_of(&TensorRecord::layer), InEnvironment())
        .def_prop_ro(
            "kind", [](const TensorRecord& t) { return name_of(t.kind); }, InEnvironment())
        .def_ro("flushed", &TensorRecord::flushed, "Recorded in a format of smaller range: small ones are lost.")
        .def_ro("counts", &TensorRecord::counts);
}

void bind_kinds(nb::module_& m) {
    nb::class_<KindFit>(m, "KindFit", "How one format holds tensors, each counted once for each recorded step.")
        .def_ro("format", &KindFit::format)
        .def_ro("fit", &KindFit::fit, "A FormatFit.")
        .def_prop_ro("advice", text_of(&KindFit::advice), InEnvironment());
    nb::class_<KindRecord>(m, "KindRecord",
                           "Gradients, weights or activations of a run, in the formats they are used in.")
        .def_prop_ro(
            "name", [](const KindRecord& k) { return k.group->name; }, InEnvironment())
        .def_ro("magnitudes", &KindRecord::magnitudes)
        .def_ro("fits", &KindRecord::fits, "A KindFit for each format.");
}

void bind_run(nb::module_& m) {
    nb::class_<Share>(m, "Share", "So many of a whole.")
        .def_ro("part", &Share::part)
        .def_ro("whole", &Share::whole)
        .def_prop_ro("rate", &Share::rate, InEnvironment());
    nb::class_<Spread>(m, "Spread", "Mean and standard deviation between seeds.")
        .def_ro("mean", &Spread::mean)
        .def_ro("deviation", &Spread::deviation)
        .def_ro("count", &Spread::count);
    nb::class_<RecordedRun>(m, "RecordedRun", "A run, as its folder tells.")
        .def_prop_ro(
            "path", [](const RecordedRun& r) { return printed(r.path.string()); }, InEnvironment())
        .def_prop_ro("name", text_of(&RecordedRun::name), InEnvironment())
        .def_prop_ro("label", text_of(&RecordedRun::label), "Its precision.", InEnvironment())
        .def_prop_ro(
            "configuration", [](const RecordedRun& r) { return json_object(r.configuration); },
            "What run.json says; None without one.", InEnvironment())
        .def_prop_ro(
            "result", [](const RecordedRun& r) { return json_object(r.result); }, "Likewise of result.json.",
            InEnvironment())
        .def_ro("facts", &RecordedRun::facts)
        .def_ro("steps", &RecordedRun::steps, "StepMetrics of the steps that were logged.")
        .def_ro("tensors", &RecordedRun::tensors, "TensorRecord of each, in order of appearance.")
        .def_ro("skipped", &RecordedRun::skipped, "Steps that did not update the weights.")
        .def_ro("lost_updates", &RecordedRun::lost_updates)
        .def_ro("magnitudes", &RecordedRun::magnitudes, "Of all gradients, as a Histogram.")
        .def_ro("kinds", &RecordedRun::kinds, "A KindRecord each where weights or activations were recorded.")
        .def_prop_ro("final_loss", &RecordedRun::final_loss, "Mean of the last tenth of the losses.", InEnvironment())
        .def_prop_ro("broken_at", &RecordedRun::broken_at, "The first step whose loss is not finite.", InEnvironment())
        .def_prop_ro("flushed", &RecordedRun::flushed, "Some gradients were recorded in a format of smaller range.",
                     InEnvironment())
        .def_prop_ro("errors", text_of(&RecordedRun::errors), InEnvironment())
        .def_prop_ro("warnings", text_of(&RecordedRun::warnings), InEnvironment())
        .def_prop_ro("remarks", text_of(&RecordedRun::remarks), "What is wrong with the training loop.",
                     InEnvironment());
}

void bind_stability(nb::module_& m) {
    nb::class_<TensorGrowth>(m, "TensorGrowth", "The tensor whose largest magnitude grew most before a spike.")
        .def_prop_ro("tensor", text_of(&TensorGrowth::tensor), "Empty: not recorded.", InEnvironment())
        .def_ro("evidence", &TensorGrowth::evidence, "What tells, such as 'histograms.jsonl'.")
        .def_ro("step", &TensorGrowth::step, "The first step of the spike that is recorded there.")
        .def_ro("since", &TensorGrowth::since, "The recorded step before it.")
        .def_ro("factor", &TensorGrowth::factor, "By how much it grew; inf: it became infinite or NaN.");
    nb::class_<Spike>(m, "Spike", "Steps whose gradients or loss leap, or are not finite.")
        .def_prop_ro(
            "kind", [](const Spike& s) { return name_of(s.kind); }, "not finite, gradient or loss.", InEnvironment())
        .def_ro("first", &Spike::first)
        .def_ro("last", &Spike::last)
        .def_ro("peak", &Spike::peak, "The step with the largest value.")
        .def_ro("steps", &Spike::steps, "Number of steps above the limit.")
        .def_ro("value", &Spike::value, "The gradient norm or the loss, at the peak.")
        .def_ro("level", &Spike::level, "What it is compared with: FP32's, or its median before.")
        .def_ro("growth", &Spike::growth);
    nb::class_<RunSpikes>(m, "RunSpikes", "How stable a run was.")
        .def_ro("run", &RunSpikes::run)
        .def_ro("reference", &RunSpikes::reference, "FP32's run whose gradients are its level; None: its own median.")
        .def_ro("norms", &RunSpikes::norms, "Sizes are of gradient norms; else of the largest gradient.")
        .def_ro("sizes", &RunSpikes::sizes, "(step, size of the gradients over their level).")
        .def_ro("spikes", &RunSpikes::spikes);
}

} // namespace

void bind_comparison(nb::module_& m) {
    bind_facts(m);
    bind_kinds(m);
    bind_run(m);
    nb::class_<MeanInterval>(m, "MeanInterval", "A mean with its confidence interval.")
        .def_ro("mean", &MeanInterval::mean)
        .def_ro("low", &MeanInterval::low)
        .def_ro("high", &MeanInterval::high)
        .def_ro("deviation", &MeanInterval::deviation)
        .def_ro("count", &MeanInterval::count);
    nb::class_<Difference>(m, "Difference", "How much worse than FP32: loss above its, accuracy below its.")
        .def_ro("interval", &Difference::interval)
        .def_prop_ro(
            "standing", [](const Difference& d) { return name_of(d.standing); }, "holds, worse or unclear.",
            InEnvironment())
        .def_ro("seeds_needed", &Difference::seeds_needed, "If unclear: seeds that would tell; None: too many.")
        .def_ro("independent_steps", &Difference::independent_steps,
                "One pair: as many independent steps would tell as much as its own.");
    bind_stability(m);
    nb::class_<ComparisonRow>(m, "ComparisonRow", "Runs that differ in the seed only.")
        .def_prop_ro("label", text_of(&ComparisonRow::label), InEnvironment())
        .def_ro("runs", &ComparisonRow::runs)
        .def_ro("seeds", &ComparisonRow::seeds)
        .def_ro("diverged", &ComparisonRow::diverged, "Seeds whose final loss is infinite or NaN.")
        .def_ro("loss", &ComparisonRow::loss, "The final loss of the other seeds, a Spread; None without any.")
        .def_ro("over", &ComparisonRow::over, "Final loss above FP32's of the same seeds, a Difference.")
        .def_ro("validation_over", &ComparisonRow::validation_over)
        .def_ro("accuracy_lost", &ComparisonRow::accuracy_lost)
        .def_ro("validation", &ComparisonRow::validation)
        .def_ro("accuracy", &ComparisonRow::accuracy)
        .def_ro("skipped", &ComparisonRow::skipped, "Steps a run.")
        .def_ro("underflow", &ComparisonRow::underflow, "Of the gradients that training rounded, a Share.")
        .def_ro("lost_updates", &ComparisonRow::lost_updates)
        .def_ro("bytes_per_parameter", &ComparisonRow::bytes_per_parameter)
        .def_ro("distance", &ComparisonRow::distance, "Of the weights from FP32's, relative.")
        .def_ro("operand_bits", &ComparisonRow::operand_bits)
        .def_ro("scales_loss", &ComparisonRow::scales_loss)
        .def_ro("stability", &ComparisonRow::stability, "RunSpikes of each of its runs.")
        .def_prop_ro(
            "standing", [](const ComparisonRow& r) { return name_of(r.standing); },
            "reference, holds, worse, unclear, broken or unknown.", InEnvironment());
    nb::class_<ComparisonGroup>(m, "ComparisonGroup", "Runs of one network on the same data.")
        .def_prop_ro("name", text_of(&ComparisonGroup::name), InEnvironment())
        .def_ro("rows", &ComparisonGroup::rows)
        .def_ro("reference", &ComparisonGroup::reference, "The row of FP32; None without one.")
        .def_ro("margin", &ComparisonGroup::margin, "How much a final loss may exceed FP32's and still hold.")
        .def_ro("margin_basis", &ComparisonGroup::margin_basis)
        .def_ro("evidence", &ComparisonGroup::evidence, "The run by whose gradients the group is judged.")
        .def_ro("adam", &ComparisonGroup::adam, "AdamFindings of that run.")
        .def_prop_ro("notes", text_of(&ComparisonGroup::notes), InEnvironment());
    nb::class_<ComparisonFindings>(m, "ComparisonFindings",
                                   "What precisions did to training: see ampscope.comparison_findings().")
        .def_ro("runs", &ComparisonFindings::runs)
        .def_ro("groups", &ComparisonFindings::groups)
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
    m.def("comparison_findings", &findings, nb::arg("words"), InEnvironment());
}

} // namespace amp::python
