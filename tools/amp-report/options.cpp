#include <ampscope/tools/amp-report/options.h>
#include <ampscope/tools/command_line.h>

#include <algorithm>

namespace amp::report_tool {

namespace {

constexpr const char* examples = R"(Examples:
  amp-report --html report.html                    trains the standard comparison and reports on it: two minutes
  amp-report runs/ --html report.html              every run folder in runs/
  amp-report runs/fp32 runs/amp-fp16 --json - --markdown report.md
  amp-report gradients/ --html report.html         gradients in files: formats, loss scale and eps, without runs
  amp-train --seed 1 --record runs/seed1           runs that differ in the seed only are one row, with their spread

Runs of one network on the same data are compared; other networks get a section
of their own. Without --html, --markdown and --json the terminal shows its
tables.)";

void interpret(const std::vector<std::string>& paths, ReportOptions& options) {
    options.paths.assign(paths.begin(), paths.end());
    if (!options.keep.empty() && !paths.empty())
        throw std::invalid_argument("--keep is for the runs of the standard comparison; these are kept already");
}

} // namespace

std::optional<int> parse_command_line(int argc, char** argv, ReportOptions& options) {
    std::vector<std::string> paths;
    CommandLine app("amp-report",
                    "One page on what each precision did to training: which format to use, at which loss scale and "
                    "eps, and why.",
                    examples);
    app.reads(app.add_option(
        "PATH", paths, "Run folders, folders of them, or gradients in files; none: trains the standard comparison"));
    app.add_html(options.html);
    app.writes(app.add_option("--markdown", options.markdown, "Write the same as Markdown"));
    app.add_json(options.json, "Write every number");
    app.writes_into(
        app.add_option("--keep", options.keep, "Keep the run folders of the standard comparison in this folder"));
    app.add_recommendation(options.recommendation, "advised");
    app.add_worst(options.worst);
    app.add_threads(options.threads);
    options.command = command_text(argc, argv);
    return app.read(argc, argv, [&] { interpret(paths, options); });
}

} // namespace amp::report_tool
