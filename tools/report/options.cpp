#include <ampscope/tools/command_line.h>
#include <ampscope/tools/report/options.h>

#include <algorithm>

namespace amp {

namespace {

constexpr const char* examples = R"(Examples:
  amp-report --html report.html                    trains the standard comparison and reports on it: two minutes
  amp-report runs/ --html report.html              every run folder in runs/
  amp-report runs/fp32 runs/amp-fp16 --json - --markdown report.md
  amp-report gradients/ --html report.html         gradients in files: formats, loss scale and eps, without runs
  amp-train --seed 1 --record runs/seed1           runs that differ in the seed only are one row, with their spread

Runs of one network on the same data are compared; other networks get a section of their own. Without --html, --markdown
and --json the report is printed as Markdown.
Exit codes: 0 fine, 1 an input could not be read (the report holds the others), 2 wrong usage.)";

void interpret(const std::vector<std::string>& paths, ReportOptions& options) {
    options.paths.assign(paths.begin(), paths.end());
    if (std::ranges::count(std::array{options.html, options.markdown, options.json}, "-") > 1)
        throw std::invalid_argument("only one of --html, --markdown and --json can be standard output");
    if (!(options.recommendation.limit > 0 && options.recommendation.limit <= 1))
        throw std::invalid_argument("--limit: expected a rate in (0, 1], such as 0.001");
    if (!options.keep.empty() && !paths.empty())
        throw std::invalid_argument("--keep is for the runs of the standard comparison; these are kept already");
}

} // namespace

std::optional<int> parse_command_line(int argc, char** argv, ReportOptions& options) {
    std::vector<std::string> paths;
    CLI::App app("One page on what each precision did to training: which format to use, at which loss scale and eps,\n"
                 "and why.",
                 "amp-report");
    app.footer(examples);
    app.set_version_flag("--version", "amp-report " AMPSCOPE_VERSION);
    app.add_option("PATH", paths,
                   "Run folders, folders of them, or gradients in files; none: trains the standard comparison");
    app.add_option("--html", options.html, "Write the page, one self-contained file ('-': standard output)");
    app.add_option("--markdown", options.markdown, "Write the same as Markdown");
    app.add_option("--json", options.json, "Write every number");
    app.add_option("--keep", options.keep, "Keep the run folders of the standard comparison in this folder");
    app.add_option("--margin", options.recommendation.margin,
                   "Binades between the advised scale and overflow; default 2")
        ->check(CLI::Range(0, 200));
    app.add_option("--limit", options.recommendation.limit, "Tolerated underflow of non-zero elements; default 0.001");
    app.add_option("--worst", options.worst, "Rows in tables of tensors; 0: all; default 10")
        ->check(CLI::Range(0, 1'000'000));
    app.add_option("--threads", options.threads, "0: all cores; results do not depend on it")
        ->check(CLI::Range(0, 4096));
    const auto exit = parse_with(app, argc, argv, [&] { interpret(paths, options); });
    options.command = command_text(argc, argv);
    return exit;
}

} // namespace amp
