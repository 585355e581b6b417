#include <ampscope/tools/python/tool.h>

#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/write.h>
#include <ampscope/tools/amp-report/step_comparison.h>
#include <ampscope/tools/output.h>

#include <nanobind/stl/map.h>

namespace amp::python {

namespace {

using report_tool::document_of, report_tool::figures_of;

StepComparison from_text(const std::string& text) {
    return step_comparison_of(parse_json(text, "measured", {}, Nonfinite::refused), "measured");
}

void bind_errors(nb::module_& m) {
    nb::class_<RelativeError>(m, "RelativeError", "How far tensors are from FP32's: |x - x32| / |x32|.")
        .def_ro("relative", &RelativeError::relative,
                "The error over the elements that are finite in both; None where FP32's are zero and these are not.")
        .def_ro("elements", &RelativeError::elements, "The number of all elements.")
        .def_ro("nonfinite", &RelativeError::nonfinite,
                "The number of elements that are NaN or infinite where FP32's are not.");
    nb::class_<StepCasts>(m, "StepCasts", "What became of elements that were cast.")
        .def_ro("nonzero", &StepCasts::nonzero, "The number of elements that were finite and not zero.")
        .def_ro("underflow", &StepCasts::underflow, "The number of those that became zero.")
        .def_ro("saturated", &StepCasts::saturated, "The number of those beyond the format's largest value.");
    nb::class_<StepModule>(m, "StepModule", "A module that computes something itself.")
        .def_prop_ro("name", text_of(&StepModule::name), "Its name in the model, which is empty for the model itself.",
                     InEnvironment())
        .def_prop_ro("type", text_of(&StepModule::type), "The name of its class.", InEnvironment())
        .def_ro("calls", &StepModule::calls, "The number of its calls in the step.")
        .def_ro("parameters", &StepModule::parameters, "The number of its weights.");
    nb::class_<ModuleErrors>(m, "ModuleErrors", "A module in one precision; errors that are not known are None.")
        .def_ro("output", &ModuleErrors::output, "The RelativeError of its outputs in the step.")
        .def_ro("output_gradient", &ModuleErrors::output_gradient, "The RelativeError of the gradients of these.")
        .def_ro("weight_gradient", &ModuleErrors::weight_gradient, "The RelativeError of its weights' gradients.")
        .def_ro("own_output", &ModuleErrors::own_output, "The RelativeError of its outputs if its inputs are FP32's.")
        .def_ro("own_input_gradient", &ModuleErrors::own_input_gradient,
                "The RelativeError of the gradients of its inputs if what comes in, forward and back, is FP32's.")
        .def_ro("own_weight_gradient", &ModuleErrors::own_weight_gradient,
                "The RelativeError of its weights' gradients if what comes in, forward and back, is FP32's.")
        .def_ro("effect", &ModuleErrors::effect,
                "The RelativeError of all weights' gradients if only this module is in the precision.")
        .def_ro(
            "casts", &ModuleErrors::casts,
            "The StepCasts of 'input', 'weight' and 'gradient' of a layer that is cast with scales, and of 'output' "
            "and 'output_gradient' in half precision.")
        .def_prop_ro("own", &ModuleErrors::own, "The own errors together: the root of the sum of their squares.",
                     InEnvironment());
}

void bind_steps(nb::module_& m) {
    nb::class_<RankedModule>(m, "RankedModule", "A module's place among those that add errors.")
        .def_ro("module", &RankedModule::module, "Its index.")
        .def_ro("error", &RankedModule::error, "Its effect, or its own error where effects were not measured.")
        .def_ro("share", &RankedModule::share, "The part of the sum of all squares of these.")
        .def_ro("stands_out", &RankedModule::stands_out, "Whether it is to be kept in higher precision.");
    nb::class_<KeptStep>(m, "KeptStep", "The step once more, with the modules that stand out not cast with scales.")
        .def_prop_ro("modules", text_of(&KeptStep::modules), "The names of these modules.", InEnvironment())
        .def_ro("gradient", &KeptStep::gradient, "The RelativeError of the model's gradient then.");
    nb::class_<PrecisionStep>(m, "PrecisionStep", "The step in one precision.")
        .def_prop_ro("precision", text_of(&PrecisionStep::precision), InEnvironment())
        .def_ro("loss", &PrecisionStep::loss, "The loss; None if it is infinite or NaN.")
        .def_ro("loss_scale", &PrecisionStep::loss_scale)
        .def_ro("steps", &PrecisionStep::steps,
                "How often the step was repeated until scales had settled, or gradients were finite.")
        .def_ro("gradient", &PrecisionStep::gradient, "The RelativeError of the gradients of all weights together.")
        .def_ro("modules", &PrecisionStep::modules, "The ModuleErrors of each of StepComparison.modules.")
        .def_ro("kept", &PrecisionStep::kept, "The KeptStep; None if no module stands out that is cast with scales.")
        .def_ro("by_effect", &PrecisionStep::by_effect,
                "Whether modules are ranked by their effects; else by their own errors.")
        .def_ro("ranking", &PrecisionStep::ranking, "The RankedModules, the largest error first.")
        .def_ro("median", &PrecisionStep::median, "The error of the middle one of those that can stand out.")
        .def_prop_ro("verdict", text_of(&PrecisionStep::verdict),
                     "What it does to the gradient, and which modules to keep in higher precision.", InEnvironment());
}

} // namespace

void bind_step_comparison(nb::module_& m) {
    bind_errors(m);
    bind_steps(m);
    nb::class_<StepComparison>(m, "StepComparison", "One step of a model in several precisions beside FP32's.")
        .def(
            "__init__",
            [](StepComparison* self, const std::string& text) { new (self) StepComparison(from_text(text)); },
            nb::arg("text"), "From the text of a file that ampscope.torch.compare saves.", InEnvironment())
        .def_prop_ro("model", text_of(&StepComparison::model), "The name of its class.", InEnvironment())
        .def_ro("loss", &StepComparison::loss, "The loss in FP32; None if it is infinite or NaN.")
        .def_ro("modules", &StepComparison::modules, "The StepModules in the order of their first calls.")
        .def_ro("precisions", &StepComparison::precisions, "A PrecisionStep for each.")
        .def_prop_ro("warnings", text_of(&StepComparison::warnings), "What is not known, and why.", InEnvironment())
        .def("standing_out", &StepComparison::standing_out, nb::arg("step"),
             "The names of the modules that stand out in a PrecisionStep, the largest error first.", InEnvironment())
        .def(
            "save",
            [](const StepComparison& c, const nb::bytes& path) {
                write_text_file(std::string(path.c_str(), path.size()), json_text(json_of(c)));
            },
            nb::arg("path"), "Writes its file.", InEnvironment())
        .def(
            "json", [](const StepComparison& c) { return json_text(json_of(c)); }, "The text of its file.",
            InEnvironment())
        .def(
            "text",
            [](const StepComparison& c, std::size_t worst) { return terminal_of(document_of(c, worst), false); },
            nb::arg("worst") = 10, "What amp-report prints of it.", InEnvironment())
        .def(
            "html", [](const StepComparison& c, std::size_t worst) { return html_of(document_of(c, worst)); },
            nb::arg("worst") = 10, "The page that amp-report writes.", InEnvironment())
        .def(
            "svg", [](const StepComparison& c) { return svg_document(figures_of(c)); },
            "The pictures of that page, as SVG text.", InEnvironment());
}

} // namespace amp::python
