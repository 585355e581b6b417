// amp-report: one page on what each precision did to training. Build: tools/demo; then amp-report --help.
#include <ampscope/tools/amp-report/answer.h>
#include <ampscope/tools/chart/terminal.h>

namespace {

using namespace amp;
using namespace amp::report_tool;

int run(const ReportOptions& options, const Complain& complain) {
    const Report report = ask(options, complain, until_stopped(progress_bars()));
    if (report.findings.runs.empty()) return 1;
    const Document document = document_of(report, options);
    if (!options.html.empty()) write_report(options.html, html_of(document));
    if (!options.markdown.empty()) write_report(options.markdown, markdown_of(document));
    if (!options.json.empty()) write_report(options.json, json_report(report, options));
    if (options.html.empty() && options.markdown.empty() && options.json.empty())
        print_text(terminal_of(document, wants_color(stdout)));
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
