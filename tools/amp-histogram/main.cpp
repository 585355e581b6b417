// amp-histogram: which recorded gradients underflow, turn subnormal or overflow in which number format, and which loss
// scale saves them. Build and run: tools/demo, or amp-histogram --help.
#include <ampscope/tools/amp-histogram/find.h>
#include <ampscope/tools/amp-histogram/recipe.h>
#include <ampscope/tools/amp-histogram/report.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <algorithm>

namespace {

using namespace amp;
using namespace amp::histogram_tool;

constexpr Complain complain{"amp-histogram"};

/// Prints the findings and writes the reports. Returns the exit code.
int publish(const HistogramFindings& findings, const HistogramToolOptions& options) {
    if (options.sample) complain("no PATH given: reading the sample gradients in " + options.paths.front().string());
    for (const std::string& warning : findings.warnings) complain("warning: " + warning);
    for (const std::string& error : findings.errors) complain(error);

    if (!options.json.empty())
        write_report(options.json, [&](const TextSink& sink) { write_json(findings, options, sink); });
    if (!options.csv.empty())
        write_report(options.csv, [&](const TextSink& sink) { write_csv(findings, options, sink); });
    if (!options.svg.empty()) write_report(options.svg, svg_report(findings, options));
    if (!options.html.empty()) write_report(options.html, html_report(findings, options));
    if (!options.blocks.empty() && !findings.tensors.empty())
        write_report(options.blocks, blocks_archive(options.blocks, findings, options));
    const bool piped = takes_standard_output({options.json, options.csv, options.svg, options.html, options.blocks});
    const bool forwarded = launched_ranks() > 1; // by mpirun, which lets programs write to a terminal of its own
    if (!piped && !findings.tensors.empty() && !findings.shards) // a shard says little by itself
        print_text(terminal_of(document_of(findings, options), wants_color(stdout) && !forwarded));

    if (!findings.errors.empty()) return 1;
    if (std::ranges::all_of(findings.gates, &GateResult::holds)) return 0;
    if (piped)
        for (const GateResult& gate : findings.gates)
            if (!gate.holds)
                complain("gate does not hold: " + gate.gate.text + (gate.empty() ? " (a share of no elements)" : ""));
    return 3;
}

int run_with_ranks(const HistogramToolOptions& options) {
    if (!options.blocks.empty()) throw UsageError("--blocks: no report of ranks holds all blocks; count with --alone");
    const std::unique_ptr<Ranks> ranks = join_ranks();
    try {
        const auto findings = find_with_ranks(options, *ranks, ranks->rank() == 0 ? progress_bars() : Watch());
        return findings ? publish(*findings, options) : 0;
    } catch (const std::exception& error) { // the others would wait for this rank
        complain(error.what());
        ranks->abort(1);
    }
}

} // namespace

int main(int argc, char** argv) {
    return exit_code(complain, [&] {
        HistogramToolOptions options;
        if (const std::optional<int> exit = parse_command_line(argc, argv, options)) return *exit;
        if (options.shard && options.json.empty()) throw UsageError("--shard needs --json, which --merge reads");
        const bool alone = options.alone || options.merge || options.shard || launched_ranks() == 1;
        return alone ? publish(find(options, progress_bars()), options) : run_with_ranks(options);
    });
}
