#include <ampscope/tools/python/tool.h>

#include <ampscope/tools/amp-report/answer.h>

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

nb::object json_object(const nlohmann::ordered_json& json) {
    return from_json(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
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
        .def_prop_ro("name", text_of(&RecordedRun::name), InEnvironment())
        .def_prop_ro("label", text_of(&RecordedRun::label), "Its precision.", InEnvironment())
        .def_prop_ro(
            "configuration", [](const RecordedRun& r) { return json_object(r.configuration); },
            "What run.json says; None without one.", InEnvironment())
        .def_prop_ro(
            "result", [](const RecordedRun& r) { return json_object(r.result); }, "Likewise of result.json.",
            InEnvironment())
        .def_prop_ro(
            "steps", [](const RecordedRun& r) { return r.steps.size(); }, "How many were logged.", InEnvironment())
        .def_ro("skipped", &RecordedRun::skipped, "Steps that did not update the weights.")
        .def_ro("lost_updates", &RecordedRun::lost_updates)
        .def_ro("magnitudes", &RecordedRun::magnitudes, "Of all gradients, as a Histogram.")
        .def_prop_ro("final_loss", &RecordedRun::final_loss, "Mean of the last tenth of the losses.", InEnvironment())
        .def_prop_ro("broken_at", &RecordedRun::broken_at, "The first step whose loss is not finite.", InEnvironment())
        .def_prop_ro("flushed", &RecordedRun::flushed, "Some gradients were recorded in a format of smaller range.",
                     InEnvironment())
        .def_prop_ro("errors", text_of(&RecordedRun::errors), InEnvironment())
        .def_prop_ro("warnings", text_of(&RecordedRun::warnings), InEnvironment())
        .def_prop_ro("remarks", text_of(&RecordedRun::remarks), "What is wrong with the training loop.",
                     InEnvironment());
}

} // namespace

void bind_comparison(nb::module_& m) {
    bind_run(m);
    nb::class_<ComparisonRow>(m, "ComparisonRow", "Runs that differ in the seed only.")
        .def_prop_ro("label", text_of(&ComparisonRow::label), InEnvironment())
        .def_ro("runs", &ComparisonRow::runs)
        .def_ro("loss", &ComparisonRow::loss, "The final loss, a Spread; None where it is not finite or not logged.")
        .def_ro("excess", &ComparisonRow::excess, "Of the final loss over FP32's of the same seeds.")
        .def_ro("validation", &ComparisonRow::validation)
        .def_ro("accuracy", &ComparisonRow::accuracy)
        .def_ro("skipped", &ComparisonRow::skipped, "Steps a run.")
        .def_ro("underflow", &ComparisonRow::underflow, "Of the gradients that training rounded, a Share.")
        .def_ro("lost_updates", &ComparisonRow::lost_updates)
        .def_ro("bytes_per_parameter", &ComparisonRow::bytes_per_parameter)
        .def_ro("distance", &ComparisonRow::distance, "Of the weights from FP32's, relative.")
        .def_ro("operand_bits", &ComparisonRow::operand_bits)
        .def_ro("scales_loss", &ComparisonRow::scales_loss)
        .def_prop_ro(
            "standing", [](const ComparisonRow& r) { return name_of(r.standing); },
            "reference, holds, worse, broken or unknown.", InEnvironment());
    nb::class_<ComparisonGroup>(m, "ComparisonGroup", "Runs of one network on the same data.")
        .def_prop_ro("name", text_of(&ComparisonGroup::name), InEnvironment())
        .def_ro("rows", &ComparisonGroup::rows)
        .def_ro("reference", &ComparisonGroup::reference, "The row of FP32; None without one.")
        .def_ro("bound", &ComparisonGroup::bound, "How much a final loss may exceed FP32's and still hold.")
        .def_ro("bound_basis", &ComparisonGroup::bound_basis)
        .def_ro("evidence", &ComparisonGroup::evidence, "The run by whose gradients the group is judged.")
        .def_ro("adam", &ComparisonGroup::adam, "AdamFindings of that run.")
        .def_prop_ro("notes", text_of(&ComparisonGroup::notes), InEnvironment());
    nb::class_<ComparisonFindings>(m, "ComparisonFindings",
                                   "What precisions did to training: see ampscope.comparison_findings().")
        .def_ro("runs", &ComparisonFindings::runs)
        .def_ro("groups", &ComparisonFindings::groups)
        .def_prop_ro("verdict", text_of(&ComparisonFindings::verdict),
                     "Which format, loss scale, eps and state to use, and why.", InEnvironment())
        .def_prop_ro("errors", text_of(&ComparisonFindings::errors), InEnvironment())
        .def_prop_ro("warnings", text_of(&ComparisonFindings::warnings), InEnvironment());
    m.def("amp_report", &amp_report, nb::arg("words"), InEnvironment());
    m.def("comparison_findings", &findings, nb::arg("words"), InEnvironment());
}

} // namespace amp::python
