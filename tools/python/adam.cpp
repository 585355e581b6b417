#include <ampscope/tools/python/tool.h>

#include <ampscope/tools/amp-adam/answer.h>
#include <ampscope/tools/amp-adam/report.h>

#include <nanobind/stl/string_view.h>

namespace amp::python {

namespace {

using namespace adam_tool;

/// What amp-adam says of these words.
Said amp_adam(const Words& words) {
    const auto options = parsed("amp-adam", words, &parse_command_line, {"--json", "-"});
    return interruptible([&](const Watch& watch) {
        Said said;
        const auto tell = [&](const std::string& line) { said.second.push_back("amp-adam: " + printable(line)); };
        const AdamAnswer answer = ask(options, tell, watch);
        if (!options.svg.empty() && !answer.inputs.empty()) write_report(options.svg, svg_report(answer.inputs));
        if (!options.html.empty() && !answer.inputs.empty())
            write_report(options.html, html_of(document_of(answer.inputs, options)));
        write_json(answer.inputs, answer.errors, [&](std::string_view piece) { said.first += piece; });
        return said;
    });
}

AdamFindings findings(const Words& words) {
    auto options = parsed_alone("adam_findings", words, &parse_command_line);
    options.tensor_ratios = true;
    return interruptible([&](const Watch& watch) { return adam_findings(options.paths.front(), options, watch); });
}

void bind_effects(nb::module_& m) {
    nb::class_<BinadeCounts>(m, "BinadeCounts", "Counts of elements by powers of two.")
        .def_ro("bins", &BinadeCounts::bins, "Pairs of floor(log2 x) and a count, ascending.")
        .def_ro("zero", &BinadeCounts::zero)
        .def_ro("infinite", &BinadeCounts::infinite)
        .def("count", &BinadeCounts::count, InEnvironment());
    nb::class_<EpsEffects>(m, "EpsEffects", "One state format at one eps.")
        .def_ro("dominated", &EpsEffects::dominated, "Elements with a gradient whose sqrt(v_hat) is below eps.")
        .def_ro("nonfinite", &EpsEffects::nonfinite, "Steps that are NaN or infinite.")
        .def_ro("ratio", &EpsEffects::ratio, "sqrt(v_hat) / eps of elements with a gradient.");
    nb::class_<StateEffects>(m, "StateEffects", "One format of m and v.")
        .def_ro("v_underflow", &StateEffects::v_underflow, "Elements whose v is zero though the gradient is not.")
        .def_ro("v_stuck", &StateEffects::v_stuck, "Elements whose v times beta2 rounds to v.")
        .def_ro("eps", &StateEffects::eps, "EpsEffects, one for each eps of the question.");
    nb::class_<AdamEffects>(m, "AdamEffects", "What eps and formats do in a tensor, or in several.")
        .def_ro("elements", &AdamEffects::elements)
        .def_ro("nonzero", &AdamEffects::nonzero, "Elements with a gradient.")
        .def_ro("root", &AdamEffects::root, "sqrt(v_hat) of those, with state in FP32.")
        .def_ro("rate", &AdamEffects::rate, "Learning rate / (sqrt(v_hat) + eps) of those.")
        .def_ro("states", &AdamEffects::states, "StateEffects, one for each format of the question.")
        .def_ro("updated", &AdamEffects::updated, "Elements with a gradient whose weight is known.")
        .def_ro("lost", &AdamEffects::lost, "Of these, weights that stay, for each weights' format of the question.");
}

} // namespace

void bind_adam(nb::module_& m) {
    bind_effects(m);
    nb::class_<AdamQuestion>(m, "AdamQuestion", "What was asked of every element.")
        .def_ro("options", &AdamQuestion::options)
        .def_ro("eps", &AdamQuestion::eps)
        .def_ro("states", &AdamQuestion::states)
        .def_ro("weights", &AdamQuestion::weights)
        .def_ro("usual_eps", &AdamQuestion::usual_eps, "The index of the eps in use.");
    nb::class_<AdamTensor>(m, "AdamTensor", "One parameter, by the name of its gradient.")
        .def_prop_ro("name", text_of(&AdamTensor::name), InEnvironment())
        .def_ro("effects", &AdamTensor::effects)
        .def_ro("muted_from", &AdamTensor::muted_from, "The smallest eps that decides more than half of the steps.");
    nb::class_<AdamFindings>(m, "AdamFindings", "What a recording says of Adam: see ampscope.adam_findings().")
        .def_prop_ro("name", text_of(&AdamFindings::name), InEnvironment())
        .def_prop_ro(
            "basis", [](const AdamFindings& f) { return name_of(f.basis); },
            "How the state before the step is known: recorded, contiguous, held or stationary.", InEnvironment())
        .def_prop_ro("is_exact", &AdamFindings::is_exact, InEnvironment())
        .def_ro("step", &AdamFindings::step, "The step that is asked about.")
        .def_ro("question", &AdamFindings::question)
        .def_prop_ro("usual_eps", &AdamFindings::usual_eps, "The eps in use.", InEnvironment())
        .def_ro("tensors", &AdamFindings::tensors)
        .def_ro("total", &AdamFindings::total)
        .def_ro("muted_from", &AdamFindings::muted_from)
        .def_prop_ro("advice", text_of(&AdamFindings::advice), InEnvironment())
        .def_prop_ro("warnings", text_of(&AdamFindings::warnings), InEnvironment())
        .def_prop_ro("errors", text_of(&AdamFindings::errors), InEnvironment());
    m.def("amp_adam", &amp_adam, nb::arg("words"), InEnvironment());
    m.def("adam_findings", &findings, nb::arg("words"), InEnvironment());
}

} // namespace amp::python
