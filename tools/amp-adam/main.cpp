// amp-adam: what eps and the formats of its state do to Adam. Build: tools/demo; then amp-adam --help.
#include <ampscope/tools/amp-adam/report.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <algorithm>

namespace {

using namespace amp;
using namespace amp::adam_tool;

int run(const AdamToolOptions& options, const Complain& complain) {
    std::vector<AdamFindings> inputs;
    std::vector<std::string> errors;
    const auto unread = for_each_input(options.paths, complain, [&](const std::filesystem::path& path) {
        inputs.push_back(adam_findings(path, options, progress_bars()));
        for (const std::string& warning : inputs.back().warnings) complain("warning: " + warning);
        for (const std::string& error : inputs.back().errors) complain(error);
        errors.insert(errors.end(), inputs.back().errors.begin(), inputs.back().errors.end());
    });
    errors.insert(errors.end(), unread.begin(), unread.end());
    const auto is_single = [](const AdamFindings& f) { return f.basis == AdamBasis::stationary; };
    if (options.assumes && errors.empty() && std::ranges::none_of(inputs, is_single))
        complain("warning: --assume-steps changes nothing: it is for a single gradient, and no input is one");
    if (!options.json.empty())
        write_report(options.json, [&](const TextSink& sink) { write_json(inputs, errors, sink); });
    if (!options.svg.empty() && !inputs.empty()) write_report(options.svg, svg_report(inputs));
    if (options.json != "-" && options.svg != "-") print_text(terminal_report(inputs, options, wants_color(stdout)));
    return errors.empty() ? 0 : 1;
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
