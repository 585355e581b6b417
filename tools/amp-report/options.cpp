#include <ampscope/tools/amp-report/options.h>
#include <ampscope/tools/command_line.h>

#include <algorithm>
#include <limits>

namespace amp::report_tool {

namespace {

constexpr const char* examples = R"(Examples:
  amp-report --html report.html                    trains the standard comparison and reports on it: 15 minutes
  amp-report --seeds 3 --steps 150                 the same in two minutes, with wider intervals
  amp-report --comparison fp4 --html fp4.html      which part of NVFP4's recipe buys what: 20 minutes
  amp-report runs/ --html report.html              every run folder in runs/
  amp-report runs/fp32 runs/amp-fp16 --json - --markdown report.md
  amp-report gradients/ --html report.html         gradients in files: formats, loss scale and eps, without runs
  amp-report compare.json --html layers.html       what ampscope.torch.compare saved: which layers a precision hurts
  amp-report against.json --html serving.html      what amp-train --against wrote: how far serving is from training
  amp-report --collectives runs/fp32               recorded replicas, or steps: the error of their mean gradient
  amp-train --seed 1 --record runs/seed1           runs that differ in the seed only are one row, with their spread

Runs of one network on the same data are compared; other networks get a section
of their own. Without --html, --markdown and --json the terminal shows its
tables.)";

/// Throws std::invalid_argument for options of other reports than that on collectives.
void check_collectives(const CommandLine& app) {
    constexpr std::string_view used[] = {"PATH", "--collectives", "--html", "--markdown", "--json", "--threads"};
    for (const CLI::Option* option : app.get_options())
        if (option->count() > 0 && std::ranges::find(used, option->get_name()) == std::end(used))
            throw std::invalid_argument(option->get_name() + " has no effect with --collectives");
}

void interpret(const CommandLine& app, const std::vector<std::string>& paths, ReportOptions& options) {
    options.paths.assign(paths.begin(), paths.end());
    if (!options.keep.empty() && !paths.empty())
        throw std::invalid_argument("--keep is for the runs of the standard comparison; these are kept already");
    if (options.collectives && paths.empty())
        throw std::invalid_argument("--collectives needs a PATH with recorded gradients, each step a replica");
    if ((app.count("--seeds") > 0 || app.count("--steps") > 0 || app.count("--comparison") > 0) && !paths.empty())
        throw std::invalid_argument("--comparison, --seeds and --steps are for what amp-report trains; these runs are "
                                    "trained already");
    if (app.count("--recorded-scale") > 0 && paths.empty())
        throw std::invalid_argument("--recorded-scale needs a PATH: gradients in files that still contain it");
    if (options.collectives) check_collectives(app);
}

} // namespace

std::optional<int> parse_command_line(int argc, char** argv, ReportOptions& options) {
    std::vector<std::string> paths;
    CommandLine app("amp-report",
                    "One page on what each precision did to training: which format to use, at which loss scale and "
                    "eps, and why.",
                    examples);
    app.reads(app.add_option("PATH", paths,
                             "Run folders, folders of them, or gradients in files; or a file of ampscope.torch.compare "
                             "or amp-train --against; none: trains the "
                             "standard comparison"));
    app.add_html(options.html);
    app.writes(app.add_option("--markdown", options.markdown, "Write the report as Markdown ('-': standard output)"));
    app.add_json(options.json, "Write every number ('-': standard output)");
    app.writes_into(
        app.add_option("--keep", options.keep, "Keep the run folders of the standard comparison in this folder"));
    app.add_option("--comparison", options.standard.comparison,
                   "What it trains without a PATH: standard (default; formats of training, on a gpt and a cnn), or fp4 "
                   "(which part of NVFP4's recipe buys what, on the gpt)")
        ->check(one_of(comparison_names));
    app.add_option("--seeds", options.standard.seeds, "Seeds of the standard comparison; default 8")
        ->transform(whole_number(1, 1000));
    app.add_option("--steps", options.standard.steps,
                   "Steps of each of its runs; default 600 for its gpt, 300 for its cnn")
        ->transform(whole_number(1, 1LL << 31));
    app.add_flag("--collectives", options.collectives,
                 "Report on what adding up the gradients of PATH costs, those of each replica (amp-train "
                 "--record-replicas) or else of each step: the error of their mean by algorithm, format and number "
                 "of replicas");
    app.add_option("--alpha", options.limits.alpha,
                   "The intervals of all formats hold the true differences at once with probability 1 - ALPHA; default "
                   "0.05")
        ->transform(real_number(1e-6, 0.5, Ends::both));
    app.add_option("--loss-margin", options.limits.loss_margin,
                   "How far above FP32's final loss another may end and still hold; default: what FP32 itself gains in "
                   "a tenth of its steps, by the line through the last third of its losses")
        ->transform(real_number(0, std::numeric_limits<double>::infinity(), Ends::low));
    app.add_option("--accuracy-margin", options.limits.accuracy_margin,
                   "How far below FP32's accuracy another may end and still hold; default 0.01")
        ->transform(real_number(0, 1, Ends::both));
    app.add_option("--spike-gradient", options.limits.spikes.gradient,
                   "A gradient norm so many times FP32's, or its own median, is an alarm; default 10")
        ->transform(real_number(1, std::numeric_limits<double>::infinity(), Ends::low));
    app.add_option("--spike-loss", options.limits.spikes.loss,
                   "A loss so many deviations above its median is an alarm; default 10")
        ->transform(real_number(1, std::numeric_limits<double>::infinity(), Ends::low));
    app.add_option("--spike-window", options.limits.spikes.window, "Median over this many steps before; default 50")
        ->transform(whole_number(10, 1000));
    app.add_recorded_scale(options.recorded_scale);
    app.add_recommendation(options.recommendation, "advised");
    app.add_worst(options.worst);
    app.add_threads(options.threads);
    options.command = command_text(argc, argv);
    return app.read(argc, argv, [&] { interpret(app, paths, options); });
}

} // namespace amp::report_tool
