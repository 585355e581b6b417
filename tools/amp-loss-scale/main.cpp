// amp-loss-scale: what other loss scalers would have done with a recorded run. Build: tools/demo; then --help.
#include <ampscope/tools/amp-loss-scale/answer.h>
#include <ampscope/tools/amp-loss-scale/report.h>
#include <ampscope/tools/chart/terminal.h>

namespace {

using namespace amp;
using namespace amp::loss_scale_tool;

int run(const LossScaleToolOptions& options, const Complain& complain) {
    const LossScaleAnswer answer = ask(options, complain, progress_bars());
    const auto& [logs, errors] = answer;
    if (!options.json.empty()) write_report(options.json, json_report(logs, errors, options));
    if (!options.svg.empty() && !logs.empty()) write_report(options.svg, svg_report(logs));
    if (!options.html.empty() && !logs.empty()) write_report(options.html, html_report(answer, options));
    if (!logs.empty() && !takes_standard_output({options.json, options.svg, options.html}))
        print_text(terminal_of(document_of(logs, options), wants_color(stdout)));
    return errors.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    const Complain complain{"amp-loss-scale"};
    return exit_code(complain, [&] {
        LossScaleToolOptions options;
        if (const std::optional<int> exit = parse_command_line(argc, argv, options)) return *exit;
        return run(options, complain);
    });
}
