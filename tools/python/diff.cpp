#include <ampscope/tools/python/tool.h>

#include <ampscope/tools/amp-diff/report.h>
#include <ampscope/tools/output.h>

#include <nanobind/stl/map.h>
#include <nanobind/stl/string_view.h>

namespace amp::python {

namespace {

using namespace diff_tool;

/// What amp-diff says of these words.
Said amp_diff(const Words& words) {
    const auto options = parsed("amp-diff", words, &diff_tool::parse_command_line, {"--json", "-"});
    return interruptible([&](const Watch& watch) {
        const DiffFindings findings = diff_findings(options.a, options.b, options, watch);
        if (!options.svg.empty()) write_report(options.svg, svg_report(findings, options));
        if (!options.html.empty()) write_report(options.html, html_report(findings, options));
        std::vector<std::string> lines;
        for (const std::string& error : findings.errors) lines.push_back("amp-diff: " + printable(error));
        return Said(json_report(findings, options), std::move(lines));
    });
}

DiffFindings diff_findings_of(const Words& words) {
    const auto options = parsed_alone("diff_findings", words, &diff_tool::parse_command_line);
    return interruptible([&](const Watch& watch) { return diff_findings(options.a, options.b, options, watch); });
}

std::map<std::string_view, std::uint64_t> counts_of(const TensorDiff& diff) {
    std::map<std::string_view, std::uint64_t> counts;
    for (std::size_t c = 0; c < diff_classes; ++c) counts[diff_class_names[c]] = diff.counts[c];
    return counts;
}

void bind_tensor_diff(nb::module_& m) {
    nb::class_<DifferingElement>(m, "DifferingElement", "An element that differs.")
        .def_ro("index", &DifferingElement::index, "Its index in C order.")
        .def_ro("a_bits", &DifferingElement::a_bits, "Its bits in A, as stored.")
        .def_ro("b_bits", &DifferingElement::b_bits, "Its bits in B, as stored.")
        .def_ro("a", &DifferingElement::a, "Its value in A without the recorded scale, as the nearest double.")
        .def_ro("b", &DifferingElement::b, "Its value in B without the recorded scale, as the nearest double.")
        .def_ro("ulps", &DifferingElement::ulps,
                "The distance in units in the last place; inf where one is NaN or infinite.");
    nb::class_<TensorDiff>(m, "TensorDiff", "What differs between two tensors, element by element.")
        .def_prop_ro("counts", &counts_of,
                     "The number of elements by what is true of the pair: equal, nan, inf, sign ...", InEnvironment())
        .def_ro("ulps", &TensorDiff::ulps,
                "The number of finite pairs that differ, by k: 2^(k-1) < distance in ulps <= 2^k.")
        .def_ro("relative", &TensorDiff::relative,
                "The number of finite pairs that differ, by floor(log2(|a - b| / max(|a|, |b|))).")
        .def_ro("max_ulps", &TensorDiff::max_ulps, "The largest distance of finite pairs in ulps.")
        .def_ro("max_relative", &TensorDiff::max_relative, "The largest |a - b| / max(|a|, |b|) of finite pairs.")
        .def_ro("max_absolute", &TensorDiff::max_absolute, "The largest |a - b| of finite pairs.")
        .def_prop_ro("difference_squares", value_of(&TensorDiff::difference_squares),
                     "The sum of (a - b)^2 over finite pairs.", InEnvironment())
        .def_prop_ro("a_squares", value_of(&TensorDiff::a_squares), "The sum of a^2 over finite pairs.",
                     InEnvironment())
        .def_prop_ro("b_squares", value_of(&TensorDiff::b_squares), "The sum of b^2 over finite pairs.",
                     InEnvironment())
        .def_ro("first", &TensorDiff::first, "The first element that differs, a DifferingElement.")
        .def_ro("worst", &TensorDiff::worst, "The elements farthest apart, a DifferingElement each.")
        .def_prop_ro("elements", &TensorDiff::elements, "The number of pairs.", InEnvironment())
        .def_prop_ro("differing", &TensorDiff::differing, "The number of pairs that differ.", InEnvironment())
        .def_prop_ro("relative_norm", &TensorDiff::relative_norm, "|a - b| / |a| in Euclidean norms.", InEnvironment());
}

void bind_gates(nb::module_& m) {
    nb::class_<DiffGate>(m, "DiffGate", "A limit on one figure of the whole comparison.")
        .def_ro("text", &DiffGate::text, "The gate as it was asked for: 'max-ulps<=1'.")
        .def_prop_ro("figure", named(&DiffGate::figure),
                     "differ, max-ulps, max-relative, norm, nan, inf, sign, zero or missing.", InEnvironment())
        .def_ro("or_equal", &DiffGate::or_equal, "Whether the limit itself is allowed.")
        .def_ro("limit", &DiffGate::limit);
    nb::class_<DiffGateResult>(m, "DiffGateResult", "What became of a DiffGate.")
        .def_ro("gate", &DiffGateResult::gate)
        .def_ro("value", &DiffGateResult::value, "The value of the gate's figure.")
        .def_ro("holds", &DiffGateResult::holds, "False for every gate if nothing could be compared.");
}

} // namespace

void bind_diff(nb::module_& m) {
    bind_tensor_diff(m);
    bind_gates(m);
    nb::class_<PairedTensor>(m, "PairedTensor", "A tensor of both recordings.")
        .def_prop_ro("name", text_of(&PairedTensor::name), "Its name in A.", InEnvironment())
        .def_ro("step", &PairedTensor::step, "Its step in A; None where the file names no step.")
        .def_prop_ro("kind", named(&PairedTensor::kind), InEnvironment())
        .def_ro("a_dtype", &PairedTensor::a_dtype, "The name of its element type in A.")
        .def_ro("b_dtype", &PairedTensor::b_dtype, "The name of its element type in B.")
        .def_ro("shape", &PairedTensor::shape, "Its shape in A.")
        .def_ro("diff", &PairedTensor::diff, "The TensorDiff.");
    nb::class_<StepDiff>(m, "StepDiff", "The comparison of all tensors of a step.")
        .def_ro("step", &StepDiff::step)
        .def_ro("tensors", &StepDiff::tensors, "The number of tensors.")
        .def_ro("differing", &StepDiff::differing, "The number of tensors that differ.")
        .def_ro("diff", &StepDiff::diff, "The TensorDiff of them all, without lists of elements.")
        .def_prop_ro("origin", named(&StepDiff::origin),
                     "local: the state before the step was the same; drift: it was not; unknown: it was not recorded.",
                     InEnvironment())
        .def_ro("state_distance", &StepDiff::state_distance,
                "|a - b| / |a| of the states before the step, if the origin is drift.");
    nb::class_<DiffFindings>(m, "DiffFindings", "Where two recordings differ: see ampscope.diff_findings().")
        .def_ro("pairs", &DiffFindings::pairs, "A PairedTensor for each tensor of both recordings.")
        .def_ro("steps", &DiffFindings::steps, "A StepDiff for each step, ascending.")
        .def_prop_ro("only_a", text_of(&DiffFindings::only_a), "The tensors that only A has.", InEnvironment())
        .def_prop_ro("only_b", text_of(&DiffFindings::only_b), "The tensors that only B has.", InEnvironment())
        .def_ro("total", &DiffFindings::total, "The TensorDiff of all pairs, without lists of elements.")
        .def_ro("gates", &DiffFindings::gates, "A DiffGateResult for each gate that was asked for.")
        .def_prop_ro("notes", text_of(&DiffFindings::notes), "Where configurations and metrics of runs differ.",
                     InEnvironment())
        .def_prop_ro("errors", text_of(&DiffFindings::errors), InEnvironment())
        .def_prop_ro("warnings", text_of(&DiffFindings::warnings), InEnvironment())
        .def_prop_ro("first", &DiffFindings::first, nb::rv_policy::reference_internal,
                     "The first PairedTensor that differs; None if none does.", InEnvironment());
    m.def("amp_diff", &amp_diff, nb::arg("words"), InEnvironment());
    m.def("diff_findings", &diff_findings_of, nb::arg("words"), InEnvironment());
}

} // namespace amp::python
