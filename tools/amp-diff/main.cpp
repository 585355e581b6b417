// amp-diff: where two recordings part. Build: tools/demo; then amp-diff --help.
#include <ampscope/tools/amp-diff/report.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <algorithm>

namespace {

using namespace amp;
using namespace amp::diff_tool;

int run(const DiffToolOptions& options, const Complain& complain) {
    const DiffFindings findings = diff_findings(options.a, options.b, options, progress_bars());
    for (const std::string& warning : findings.warnings) complain("warning: " + warning);
    for (const std::string& error : findings.errors) complain(error);
    if (!options.json.empty()) write_report(options.json, json_report(findings, options));
    if (!options.svg.empty()) write_report(options.svg, svg_report(findings, options));
    if (!options.html.empty()) write_report(options.html, html_report(findings, options));
    const bool piped = takes_standard_output({options.json, options.svg, options.html});
    if (!piped && !findings.pairs.empty()) print_text(terminal_of(document_of(findings, options), wants_color(stdout)));
    if (!findings.errors.empty()) return 1;
    if (piped)
        for (const DiffGateResult& g : findings.gates)
            if (!g.holds) complain("gate does not hold: " + g.gate.text);
    return std::ranges::all_of(findings.gates, &DiffGateResult::holds) ? 0 : 3;
}

} // namespace

int main(int argc, char** argv) {
    const Complain complain{"amp-diff"};
    return exit_code(complain, [&] {
        DiffToolOptions options;
        if (const std::optional<int> exit = parse_command_line(argc, argv, options)) return *exit;
        return run(options, complain);
    });
}
