// amp-report: one page on what each precision did to training. Build: tools/demo; then amp-report --help.
#include <ampscope/tools/amp-report/answer.h>
#include <ampscope/tools/amp-report/collectives.h>
#include <ampscope/tools/amp-report/saved.h>
#include <ampscope/tools/chart/terminal.h>

#include <nlohmann/json.hpp>

namespace {

using namespace amp;
using namespace amp::report_tool;

/// Writes what the options ask for; json() is called for --json.
void write(const Document& document, const ReportOptions& options, const std::function<std::string()>& json) {
    if (!options.html.empty()) write_report(options.html, html_of(document));
    if (!options.markdown.empty()) write_report(options.markdown, markdown_of(document));
    if (!options.json.empty()) write_report(options.json, json());
    if (options.html.empty() && options.markdown.empty() && options.json.empty())
        print_text(terminal_of(document, wants_color(stdout)));
}

int run(const ReportOptions& options, const Complain& complain) {
    if (const auto saved = saved_report_among(options)) {
        write(saved->document, options, saved->json);
        return 0;
    }
    if (options.collectives) {
        const CollectiveErrorFindings errors =
            recorded_collective_errors(options.paths, {usual_all_reduces(), options.threads});
        for (const std::string& warning : errors.warnings) complain("warning: " + warning);
        write(document_of(errors, options.command), options, [&] { return json_text(json_of(errors)); });
        return 0;
    }
    const Report report = ask(options, complain, until_stopped(progress_bars()));
    if (report.findings.runs.empty()) return 1;
    write(document_of(report, options), options, [&] { return json_report(report, options); });
    return report.findings.errors.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    const Complain complain{"amp-report"};
    return exit_code(complain, [&] {
        ReportOptions options;
        if (const std::optional<int> exit = parse_command_line(argc, argv, options)) return *exit;
        return run(options, complain);
    });
}
