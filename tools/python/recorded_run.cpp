#include <ampscope/tools/python/tool.h>

#include <ampscope/sim/findings/recorded_run.h>

#include <nanobind/stl/map.h>
#include <nanobind/stl/string_view.h>
#include <nlohmann/json.hpp>

#include <map>

namespace amp::python {

namespace {

/// A member that has a value for each of these formats, as a dict.
template <class Struct, class Value, std::size_t n>
auto by_format(std::array<Value, n> Struct::*member, const std::array<std::string_view, n>& formats) {
    return [member, formats](const Struct& x) {
        std::map<std::string_view, Value> by;
        for (std::size_t i = 0; i < n; ++i) by[formats[i]] = (x.*member)[i];
        return by;
    };
}

/// A member that holds the content of a JSON file, as Python's own objects.
auto object_of(nlohmann::ordered_json RecordedRun::*member) {
    return [member](const RecordedRun& run) {
        return from_json((run.*member).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    };
}

void bind_facts(nb::module_& m) {
    nb::class_<StepMetrics>(m, "StepMetrics", "A step, as metrics.jsonl has it; None where it does not say.")
        .def_ro("step", &StepMetrics::step)
        .def_ro("loss", &StepMetrics::loss)
        .def_ro("scale", &StepMetrics::scale, "The loss scale.")
        .def_ro("amax_weight", &StepMetrics::amax_weight, "The largest magnitude of gradients of weights.")
        .def_ro("amax_activation", &StepMetrics::amax_activation, "The largest magnitude of gradients of activations.")
        .def_ro("found_inf", &StepMetrics::found_inf, "Whether some gradient overflowed.")
        .def_ro("gradient_norm", &StepMetrics::gradient_norm);
    nb::class_<RunFacts>(m, "RunFacts", "What run.json says; empty and None where it does not.")
        .def_ro("tool", &RunFacts::tool)
        .def_ro("version", &RunFacts::version)
        .def_ro("model", &RunFacts::model)
        .def_ro("data", &RunFacts::data)
        .def_ro("precision", &RunFacts::precision)
        .def_ro("recipe", &RunFacts::recipe)
        .def_ro("autocast", &RunFacts::autocast)
        .def_ro("groups", &RunFacts::groups,
                "The number of each parameter's group in the optimizer, for those that are not in the first.")
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
        .def_ro("merged_ranks", &RunFacts::merged_ranks)
        .def_ro("validation", &RunFacts::validation);
    nb::class_<SourceFile>(m, "SourceFile", "A file that a run was read from.")
        .def_prop_ro("name", text_of(&SourceFile::name), InEnvironment())
        .def_ro("bytes", &SourceFile::bytes)
        .def_ro("sha256", &SourceFile::sha256, "The hash in hex, as sha256sum prints it.");
}

void bind_gradients(nb::module_& m) {
    nb::class_<Share>(m, "Share", "A part of a whole, in elements.")
        .def_ro("part", &Share::part)
        .def_ro("whole", &Share::whole)
        .def_prop_ro("rate", &Share::rate, "part / whole.", InEnvironment());
    nb::class_<GradientCounts>(m, "GradientCounts", "Gradients without the loss scale.")
        .def_ro("binades", &GradientCounts::binades, "The BinadeCounts of their magnitudes.")
        .def_ro("nonzero", &GradientCounts::nonzero)
        .def_ro("nan", &GradientCounts::nan)
        .def_prop_ro("underflow", by_format(&GradientCounts::underflow, usual_formats),
                     "The number of elements that become zero, by format.", InEnvironment())
        .def_prop_ro("range", &GradientCounts::range, "Their magnitudes as text, such as '2^-20 to 2^3'.",
                     InEnvironment());
    nb::class_<Censoring>(m, "Censoring",
                          "Gradients that had become zero before they were recorded: each exact zero may be one.")
        .def_ro("below_log2", &Censoring::below_log2,
                "Magnitudes up to 2**below_log2 were recorded as zero; None: nothing is hidden.")
        .def_ro("zeros", &Censoring::zeros, "The exact zeros among these gradients.")
        .def_ro("elements", &Censoring::elements, "The elements of the gradients that were held so.")
        .def_ro("sums", &Censoring::sums,
                "Whether gradients of weights are among these, sums of terms that were held so without a loss scale.")
        .def_ro("terms", &Censoring::terms, "Whether gradients of activations are among these, which tell the terms.")
        .def_prop_ro("hides", &Censoring::hides, "Whether any exact zero may have underflowed.", InEnvironment())
        .def_prop_ro("hides_terms", &Censoring::hides_terms,
                     "Whether terms of the recorded sums may have underflowed, and were not recorded.",
                     InEnvironment());
    nb::class_<NonfiniteRecord>(m, "NonfiniteRecord",
                                "Gradients that are NaN or infinite as recorded, by no loss scale, in no skipped step.")
        .def_prop_ro(
            "steps", [](const NonfiniteRecord& r) { return std::vector(r.steps.begin(), r.steps.end()); },
            "Their steps.", InEnvironment())
        .def_prop_ro("first", text_of(&NonfiniteRecord::first), "The tensor, of the first step.", InEnvironment());
    nb::class_<TensorRecord>(m, "TensorRecord", "The gradients of one tensor over all steps.")
        .def_prop_ro("name", text_of(&TensorRecord::name), InEnvironment())
        .def_prop_ro("layer", text_of(&TensorRecord::layer), InEnvironment())
        .def_prop_ro("kind", named(&TensorRecord::kind), "weight_gradient or activation_gradient.", InEnvironment())
        .def_ro("censoring", &TensorRecord::censoring, "What their records hide, a Censoring.")
        .def_ro("counts", &TensorRecord::counts, "The GradientCounts.")
        .def_prop_ro("zeroed", by_format(&TensorRecord::zeroed, followed_formats),
                     "The Share of elements that become zero without a loss scale, by format and RecordedRun.columns.",
                     InEnvironment());
}

void bind_kinds(nb::module_& m) {
    nb::class_<KindFit>(m, "KindFit", "How one format holds tensors, each counted once for each recorded step.")
        .def_ro("format", &KindFit::format)
        .def_ro("fit", &KindFit::fit, "The FormatFit of all these tensors.")
        .def_prop_ro("advice", text_of(&KindFit::advice), InEnvironment());
    nb::class_<KindRecord>(m, "KindRecord",
                           "Gradients, weights or activations of a run, in the formats they are used in.")
        .def_prop_ro(
            "name", [](const KindRecord& k) { return k.group->name; }, "gradients, weights, activations or state.",
            InEnvironment())
        .def_ro("magnitudes", &KindRecord::magnitudes, "Their Histogram.")
        .def_ro("fits", &KindRecord::fits, "A KindFit for each format.");
}

void bind_casts(nb::module_& m) {
    nb::class_<StepColumns>(m, "StepColumns", "Steps, divided into at most 64 columns of a picture.")
        .def_ro("first", &StepColumns::first, "The first step.")
        .def_ro("last", &StepColumns::last, "The last step.")
        .def_prop_ro("count", &StepColumns::count, "The number of columns.", InEnvironment())
        .def("of", &StepColumns::of, nb::arg("step"), "The column of a step, from 0.", InEnvironment())
        .def("begin", &StepColumns::begin, nb::arg("column"), "The first step of a column.", InEnvironment());
    nb::class_<ScaledCasts>(m, "ScaledCasts", "Casts under a scale to one format, over one column of steps.")
        .def_ro("nonzero", &ScaledCasts::nonzero, "The number of elements that are not zero.")
        .def_ro("underflow", &ScaledCasts::underflow, "The number of those that become zero.")
        .def_ro("saturated", &ScaledCasts::saturated, "The number of those that are clipped to the largest value.")
        .def_ro("least", &ScaledCasts::least,
                "The least log2(amax * scale / largest value of the format): how much of the range tensors use.")
        .def_ro("most", &ScaledCasts::most, "The largest of these.");
    nb::class_<ScaledTensor>(m, "ScaledTensor", "The casts of one tensor under a scale, over all steps.")
        .def_prop_ro("name", text_of(&ScaledTensor::name), InEnvironment())
        .def_prop_ro("format", text_of(&ScaledTensor::format), "The name of the format.", InEnvironment())
        .def_ro("nonzero", &ScaledTensor::nonzero, "The number of elements that are not zero.")
        .def_ro("underflow", &ScaledTensor::underflow, "The number of those that become zero.")
        .def_ro("saturated", &ScaledTensor::saturated, "The number of those that are clipped to the largest value.")
        .def_ro("amax", &ScaledTensor::amax, "The largest magnitude over all steps.");
    nb::class_<RecordedDeparture>(m, "RecordedDeparture",
                                  "Where a run first left FP32's run beside it, as the trainer saw it.")
        .def_prop_ro("kind", text_of(&RecordedDeparture::kind),
                     "What happened: 'error', 'inf', 'NaN' or 'zero gradient'.", InEnvironment())
        .def_prop_ro("tensor", text_of(&RecordedDeparture::tensor), InEnvironment())
        .def_prop_ro("op", text_of(&RecordedDeparture::op), InEnvironment())
        .def_ro("step", &RecordedDeparture::step)
        .def_ro("error", &RecordedDeparture::error,
                "The error relative to FP32's tensor; None unless the kind is 'error'.");
}

void bind_run(nb::module_& m) {
    nb::class_<RecordedRun>(m, "RecordedRun", "A run, as its folder tells.")
        .def_prop_ro(
            "path", [](const RecordedRun& r) { return printed(r.path.string()); }, InEnvironment())
        .def_prop_ro("name", text_of(&RecordedRun::name), "Its name in findings.", InEnvironment())
        .def_prop_ro("label", text_of(&RecordedRun::label), "The name of its precision.", InEnvironment())
        .def_prop_ro("configuration", object_of(&RecordedRun::configuration), "What run.json says; None without one.",
                     InEnvironment())
        .def_prop_ro("result", object_of(&RecordedRun::result), "What result.json says; None without one.",
                     InEnvironment())
        .def_ro("facts", &RecordedRun::facts, "The RunFacts that run.json says.")
        .def_ro("steps", &RecordedRun::steps, "The StepMetrics of every step that was logged.")
        .def_ro("lost_updates", &RecordedRun::lost_updates,
                "The Share of weights with a gradient that an update left as they were, over all steps.")
        .def_ro("skipped", &RecordedRun::skipped, "The steps that did not update the weights.")
        .def_ro("columns", &RecordedRun::columns, "The StepColumns over which gradients and casts are counted.")
        .def_ro("recorded", &RecordedRun::recorded,
                "For each column the first step with known gradients; None without any.")
        .def_ro("tensors", &RecordedRun::tensors, "A TensorRecord for each tensor, in order of appearance.")
        .def_ro("magnitudes", &RecordedRun::magnitudes, "The Histogram of all gradients.")
        .def_ro("scale_stated", &RecordedRun::scale_stated, "False if a file of gradients states no loss scale.")
        .def_ro("recorded_scale", &RecordedRun::recorded_scale,
                "The loss scale that the caller gave for gradients in files, or None: as they state it.")
        .def_ro("nonfinite", &RecordedRun::nonfinite, "A NonfiniteRecord, without steps if all are finite.")
        .def_ro("scales", &RecordedRun::scales, "The ScaleCurves of these gradients.")
        .def_ro("kinds", &RecordedRun::kinds,
                "A KindRecord for each group of tensors, if weights or activations were recorded.")
        .def_ro("formats", &RecordedRun::formats, "The names of the formats of casts under a scale.")
        .def_ro("scaled", &RecordedRun::scaled, "For each of these formats the ScaledCasts of every column.")
        .def_ro("scaled_tensors", &RecordedRun::scaled_tensors, "A ScaledTensor for each tensor and format.")
        .def_ro("departures", &RecordedRun::departures,
                "A RecordedDeparture of each kind; empty if no FP32 run ran beside it.")
        .def_ro("files", &RecordedRun::files, "A SourceFile for each file that was read.")
        .def_prop_ro("final_loss", &RecordedRun::final_loss, "The mean of the last tenth of the losses.",
                     InEnvironment())
        .def_prop_ro("broken_at", &RecordedRun::broken_at, "The first step whose loss is infinite or NaN.",
                     InEnvironment())
        .def_prop_ro("censoring", &RecordedRun::censoring, "What the records of all gradients hide, a Censoring.",
                     InEnvironment())
        .def_prop_ro("errors", text_of(&RecordedRun::errors), InEnvironment())
        .def_prop_ro("warnings", text_of(&RecordedRun::warnings), InEnvironment())
        .def_prop_ro("remarks", text_of(&RecordedRun::remarks),
                     "What the recorder says is wrong with the training loop.", InEnvironment());
}

} // namespace

void bind_recorded_run(nb::module_& m) {
    bind_facts(m);
    bind_gradients(m);
    bind_kinds(m);
    bind_casts(m);
    bind_run(m);
}

} // namespace amp::python
