// amp-adam: what eps and the formats of its state do to Adam. Build: tools/demo; then amp-adam --help.
#include <ampscope/tools/amp-adam/answer.h>
#include <ampscope/tools/amp-adam/report.h>
#include <ampscope/tools/chart/terminal.h>

namespace {

using namespace amp;
using namespace amp::adam_tool;

int run(const AdamToolOptions& options, const Complain& complain) {
    const AdamAnswer answer = ask(options, complain, progress_bars());
    const std::vector<AdamFindings>& inputs = answer.inputs;
    if (!options.json.empty())
        write_report(options.json, [&](const TextSink& sink) { write_json(inputs, answer.errors, sink); });
    if (!options.svg.empty() && !inputs.empty()) write_report(options.svg, svg_report(inputs));
    if (!options.html.empty() && !inputs.empty()) write_report(options.html, html_report(answer, options));
    if (!inputs.empty() && !takes_standard_output({options.json, options.svg, options.html}))
        print_text(terminal_of(document_of(inputs, options), wants_color(stdout)));
    return answer.errors.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    const Complain complain{"amp-adam"};
    return exit_code(complain, [&] {
        AdamToolOptions options;
        if (const std::optional<int> exit = parse_command_line(argc, argv, options)) return *exit;
        return run(options, complain);
    });
}
