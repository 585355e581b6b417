#include <ampscope/tools/python/tool.h>

#include <ampscope/tools/amp-adam/answer.h>
#include <ampscope/tools/amp-adam/report.h>

#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

namespace amp::python {

namespace {

using namespace adam_tool;

/// What amp-adam says of these words.
Said amp_adam(const Words& words) {
    const auto options = parsed("amp-adam", words, &adam_tool::parse_command_line, {"--json", "-"});
    return interruptible([&](const Watch& watch) {
        Said said;
        const auto tell = [&](const std::string& line) { said.second.push_back("amp-adam: " + printable(line)); };
        const AdamAnswer answer = ask(options, tell, watch);
        if (!options.svg.empty() && !answer.inputs.empty()) write_report(options.svg, svg_report(answer.inputs));
        if (!options.html.empty() && !answer.inputs.empty()) write_report(options.html, html_report(answer, options));
        write_json(answer.inputs, answer.errors, [&](std::string_view piece) { said.first += piece; });
        return said;
    });
}

AdamFindings adam_findings_of(const Words& words) {
    auto options = parsed_alone("adam_findings", words, &adam_tool::parse_command_line);
    options.tensor_ratios = true;
    return interruptible([&](const Watch& watch) { return adam_findings(options.paths.front(), options, watch); });
}

void bind_adam_effects(nb::module_& m) {
    nb::class_<BinadeCounts>(m, "BinadeCounts", "Counts of elements by powers of two.")
        .def_ro("bins", &BinadeCounts::bins, "Pairs of floor(log2 x) and a count, ascending.")
        .def_ro("zero", &BinadeCounts::zero, "The number of elements that are 0.")
        .def_ro("infinite", &BinadeCounts::infinite, "The number of elements that are infinite.")
        .def("count", &BinadeCounts::count, "The number of all elements.", InEnvironment());
    nb::class_<EpsEffects>(m, "EpsEffects", "What one format of m and v does at one eps.")
        .def_ro("dominated", &EpsEffects::dominated,
                "The number of elements with a gradient whose sqrt(v_hat) is below eps.")
        .def_ro("nonfinite", &EpsEffects::nonfinite, "The number of elements whose step is NaN or infinite.")
        .def_ro("ratio", &EpsEffects::ratio, "The BinadeCounts of sqrt(v_hat) / eps of elements with a gradient.");
    nb::class_<StateEffects>(m, "StateEffects", "What one format of m and v does.")
        .def_ro("held", &StateEffects::held,
                "The number of elements whose m and v are kept so; under scales, those of small tensors are not.")
        .def_ro("m_underflow", &StateEffects::m_underflow,
                "The number of elements whose m is zero though the gradient is not.")
        .def_ro("v_underflow", &StateEffects::v_underflow,
                "The number of elements whose v is zero though the gradient is not.")
        .def_ro("v_stuck", &StateEffects::v_stuck,
                "The number of elements whose v times beta2 rounds to v: it cannot decay.")
        .def_ro("stretch", &StateEffects::stretch,
                "The BinadeCounts of the step's length, divided by that with m and v in FP32, at the usual eps.")
        .def_prop_ro("longer", &StateEffects::longer,
                     "The number of elements whose step is at least twice as long as with m and v in FP32.",
                     InEnvironment())
        .def_prop_ro("shorter", &StateEffects::shorter,
                     "The number of elements whose step is less than half as long as with m and v in FP32.",
                     InEnvironment())
        .def_ro("eps", &StateEffects::eps, "An EpsEffects for each eps of the question.");
    nb::class_<AdamEffects>(m, "AdamEffects", "What eps and formats do to the elements of a tensor, or of several.")
        .def_ro("elements", &AdamEffects::elements)
        .def_ro("nonzero", &AdamEffects::nonzero, "The number of elements with a gradient.")
        .def_ro("least_log2", &AdamEffects::least_log2,
                "floor(log2) of the least magnitude of these; None if no element has a gradient.")
        .def_ro("root", &AdamEffects::root,
                "The BinadeCounts of sqrt(v_hat) of elements with a gradient; m and v are in FP32.")
        .def_ro("rate", &AdamEffects::rate,
                "The BinadeCounts of learning rate / (sqrt(v_hat) + eps) of elements with a gradient.")
        .def_ro("states", &AdamEffects::states, "A StateEffects for each format of m and v in the question.")
        .def_ro("updated", &AdamEffects::updated, "The number of elements with a gradient whose weight is known.")
        .def_ro("lost", &AdamEffects::lost,
                "For each format of weights in the question: the number of these elements whose weight the step leaves "
                "as it is.")
        .def_ro("decaying", &AdamEffects::decaying,
                "The number of weights that are not zero, if weight decay multiplies and rounds them before the step.")
        .def_ro("undecayed", &AdamEffects::undecayed,
                "For each format of weights in the question: the number of these that the decay leaves as they are.");
}

} // namespace

void bind_adam(nb::module_& m) {
    bind_adam_effects(m);
    nb::class_<AdamState>(m, "AdamState", "How m and v are kept.")
        .def_prop_ro("name", &AdamState::name, "What --state calls it.", InEnvironment())
        .def("__str__", &AdamState::name, InEnvironment())
        .def_ro("format", &AdamState::format, "The format of tensors that no scales hold.")
        .def_ro("m", &AdamState::m, "The ScaledFormat of m, or None.")
        .def_ro("v", &AdamState::v, "The ScaledFormat of v, or None.");
    nb::class_<AdamQuestion>(m, "AdamQuestion", "What was asked of every element.")
        .def_ro("options", &AdamQuestion::options, "The OptimizerOptions.")
        .def_ro("eps", &AdamQuestion::eps, "The values of eps, descending.")
        .def_ro("states", &AdamQuestion::states, "An AdamState for each format of m and v; the first is FP32.")
        .def_ro("weights", &AdamQuestion::weights, "The formats of the weights, in which small updates may be lost.")
        .def_ro("usual_eps", &AdamQuestion::usual_eps, "The index in eps of the eps in use.")
        .def("stored_eps", &AdamQuestion::stored_eps, nb::arg("state"), nb::arg("eps"),
             "The eps of that index as the state format of that index holds it.", InEnvironment());
    nb::class_<AdamTensor>(m, "AdamTensor", "What eps and formats do to one parameter.")
        .def_prop_ro("name", text_of(&AdamTensor::name), "The name of its gradient.", InEnvironment())
        .def_ro("settings", &AdamTensor::settings, "The OptimizerOptions of its parameter group in the examined step.")
        .def_ro("usual_eps", &AdamTensor::usual_eps, "The index in the question's eps of the eps in use.")
        .def_ro("effects", &AdamTensor::effects, "The AdamEffects.")
        .def_ro("muted_from", &AdamTensor::muted_from, "The smallest eps that decides more than half of the steps.");
    nb::class_<NonfiniteGradient>(m, "NonfiniteGradient", "The first gradient that is NaN or infinite itself.")
        .def_prop_ro("tensor", text_of(&NonfiniteGradient::tensor), "Its name, as recorded.", InEnvironment())
        .def_ro("step", &NonfiniteGradient::step, "None where files do not name steps.");
    nb::class_<AdamFindings>(m, "AdamFindings", "What a recording says of Adam: see ampscope.adam_findings().")
        .def_prop_ro("name", text_of(&AdamFindings::name), "The path as given.", InEnvironment())
        .def_prop_ro("basis", named(&AdamFindings::basis),
                     "How the state before the step is known: recorded, contiguous, checkpoint, unnumbered, held or "
                     "stationary.",
                     InEnvironment())
        .def_prop_ro("is_exact", &AdamFindings::is_exact, "Whether the state before the step is known, not estimated.",
                     InEnvironment())
        .def_ro("step", &AdamFindings::step, "The step that is examined; None where files do not name steps.")
        .def_ro("question", &AdamFindings::question, "The AdamQuestion.")
        .def_prop_ro("usual_eps", &AdamFindings::usual_eps, "The eps in use.", InEnvironment())
        .def_ro("tensors", &AdamFindings::tensors, "An AdamTensor for each parameter.")
        .def_ro("total", &AdamFindings::total, "The AdamEffects on all tensors together.")
        .def_ro("muted_from", &AdamFindings::muted_from,
                "The smallest eps that decides more than half of the steps of all tensors.")
        .def_ro("censoring", &AdamFindings::censoring, "What the records of the examined gradients hide, a Censoring.")
        .def_ro("nonfinite_gradient", &AdamFindings::nonfinite_gradient,
                "A NonfiniteGradient; None if all gradients that were used are finite.")
        .def_prop_ro(
            "known", [](const AdamFindings& f) { return name_of(f.known()); },
            "Whether what eps decides is exact, or unknown: it depends on gradients that were recorded as "
            "zero.",
            InEnvironment())
        .def_prop_ro("differing_settings", &AdamFindings::differing_settings,
                     "The optimizer's settings that differ from tensor to tensor: tuples of name, least and largest.",
                     InEnvironment())
        .def_prop_ro("advice", text_of(&AdamFindings::advice), "Which eps and formats to use, in sentences.",
                     InEnvironment())
        .def_prop_ro("unmatched", text_of(&AdamFindings::unmatched),
                     "The parameters of a checkpoint that has weights, but none known to be theirs.", InEnvironment())
        .def_prop_ro("warnings", text_of(&AdamFindings::warnings), InEnvironment())
        .def_prop_ro("errors", text_of(&AdamFindings::errors), InEnvironment());
    m.def("amp_adam", &amp_adam, nb::arg("words"), InEnvironment());
    m.def("adam_findings", &adam_findings_of, nb::arg("words"), InEnvironment());
}

} // namespace amp::python
