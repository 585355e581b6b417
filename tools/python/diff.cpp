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
    const auto options = parsed("amp-diff", words, &parse_command_line, {"--json", "-"});
    return interruptible([&](const Watch& watch) {
        const DiffFindings findings = diff_findings(options.a, options.b, options, watch);
        if (!options.svg.empty()) write_report(options.svg, svg_report(findings, options));
        if (!options.html.empty()) write_report(options.html, html_of(document_of(findings, options)));
        std::vector<std::string> lines;
        for (const std::string& error : findings.errors) lines.push_back("amp-diff: " + printable(error));
        return Said(json_report(findings, options), std::move(lines));
    });
}

DiffFindings findings(const Words& words) {
    const auto options = parsed_alone("diff_findings", words, &parse_command_line);
    return interruptible([&](const Watch& watch) { return diff_findings(options.a, options.b, options, watch); });
}

std::map<std::string_view, std::uint64_t> counts_of(const TensorDiff& diff) {
    std::map<std::string_view, std::uint64_t> counts;
    for (std::size_t c = 0; c < diff_classes; ++c) counts[diff_class_names[c]] = diff.counts[c];
    return counts;
}

void bind_tensor_diff(nb::module_& m) {
    nb::class_<DifferingElement>(m, "DifferingElement", "An element that differs.")
        .def_ro("index", &DifferingElement::index, "In C order.")
        .def_ro("a_bits", &DifferingElement::a_bits, "As stored.")
        .def_ro("b_bits", &DifferingElement::b_bits)
        .def_ro("a", &DifferingElement::a, "The nearest double, without the recorded scale.")
        .def_ro("b", &DifferingElement::b)
        .def_ro("ulps", &DifferingElement::ulps, "Infinite where one is NaN or infinite.");
    nb::class_<TensorDiff>(m, "TensorDiff", "Two tensors, element by element.")
        .def_prop_ro("counts", &counts_of, "Elements by what is true of the pair.", InEnvironment())
        .def_ro("ulps", &TensorDiff::ulps, "Finite pairs by k: 2^(k-1) < distance in ulps <= 2^k.")
        .def_ro("relative", &TensorDiff::relative, "Finite pairs by floor(log2(|a - b| / max(|a|, |b|))).")
        .def_ro("max_ulps", &TensorDiff::max_ulps)
        .def_ro("max_relative", &TensorDiff::max_relative)
        .def_ro("max_absolute", &TensorDiff::max_absolute)
        .def_ro("first", &TensorDiff::first, "The first element that differs.")
        .def_ro("worst", &TensorDiff::worst, "The elements farthest apart.")
        .def_prop_ro("elements", &TensorDiff::elements, InEnvironment())
        .def_prop_ro("differing", &TensorDiff::differing, InEnvironment())
        .def_prop_ro("relative_norm", &TensorDiff::relative_norm, "|a - b| / |a|.", InEnvironment());
}

} // namespace

void bind_diff(nb::module_& m) {
    bind_tensor_diff(m);
    nb::class_<PairedTensor>(m, "PairedTensor", "A tensor of both recordings.")
        .def_prop_ro("name", text_of(&PairedTensor::name), InEnvironment())
        .def_ro("step", &PairedTensor::step)
        .def_prop_ro(
            "kind", [](const PairedTensor& p) { return name_of(p.kind); }, InEnvironment())
        .def_ro("a_dtype", &PairedTensor::a_dtype)
        .def_ro("b_dtype", &PairedTensor::b_dtype)
        .def_ro("shape", &PairedTensor::shape)
        .def_ro("diff", &PairedTensor::diff);
    nb::class_<StepDiff>(m, "StepDiff", "All tensors of a step.")
        .def_ro("step", &StepDiff::step)
        .def_ro("tensors", &StepDiff::tensors)
        .def_ro("differing", &StepDiff::differing, "Tensors that differ.")
        .def_ro("diff", &StepDiff::diff)
        .def_prop_ro(
            "origin", [](const StepDiff& s) { return name_of(s.origin); },
            "local: the state before the step was the same; drift: it was not; unknown: it was not recorded.",
            InEnvironment())
        .def_ro("state_distance", &StepDiff::state_distance, "|a - b| / |a| of the state before the step.");
    nb::class_<DiffFindings>(m, "DiffFindings", "Where two recordings differ: see ampscope.diff_findings().")
        .def_ro("pairs", &DiffFindings::pairs)
        .def_ro("steps", &DiffFindings::steps)
        .def_prop_ro("only_a", text_of(&DiffFindings::only_a), InEnvironment())
        .def_prop_ro("only_b", text_of(&DiffFindings::only_b), InEnvironment())
        .def_ro("total", &DiffFindings::total)
        .def_prop_ro("notes", text_of(&DiffFindings::notes), "Where configurations and metrics of runs differ.",
                     InEnvironment())
        .def_prop_ro("errors", text_of(&DiffFindings::errors), InEnvironment())
        .def_prop_ro("warnings", text_of(&DiffFindings::warnings), InEnvironment())
        .def_prop_ro("first", &DiffFindings::first, nb::rv_policy::reference_internal, "The first pair that differs.",
                     InEnvironment());
    m.def("amp_diff", &amp_diff, nb::arg("words"), InEnvironment());
    m.def("diff_findings", &findings, nb::arg("words"), InEnvironment());
}

} // namespace amp::python
