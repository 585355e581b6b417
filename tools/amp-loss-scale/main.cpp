// amp-loss-scale: what other loss scalers would have done with a recorded run. Build: tools/demo; then --help.
#include <ampscope/tools/amp-loss-scale/answer.h>
#include <ampscope/tools/amp-loss-scale/report.h>
#include <ampscope/tools/chart/terminal.h>

namespace {

using namespace amp;
using namespace amp::loss_scale_tool;

int run(const LossScaleToolOptions& options, const Complain& complain) {
    const LossScaleAnswer answer = ask(options, complain, progress_bars());
    const auto& [runs, errors] = answer;
    if (!options.json.empty()) write_report(options.json, json_report(runs, errors, options));
    if (!options.svg.empty() && !runs.empty()) write_report(options.svg, svg_report(runs));
    if (!options.html.empty() && !runs.empty()) write_report(options.html, html_report(answer, options));
    if (!runs.empty() && !takes_standard_output({options.json, options.svg, options.html}))
        print_text(terminal_of(document_of(runs, options), wants_color(stdout)));
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
