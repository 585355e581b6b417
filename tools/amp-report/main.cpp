// amp-report: one page on what each precision did to training. Build: tools/demo; then amp-report --help.
#include <ampscope/sim/io/failure.h>
#include <ampscope/tools/amp-report/report.h>
#include <ampscope/tools/amp-report/standard.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace {

using namespace amp;
using namespace amp::report_tool;
namespace fs = std::filesystem;

/// A folder that is gone with this object.
class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string name = fs::temp_directory_path() / "amp-report-XXXXXX";
        if (::mkdtemp(name.data()) == nullptr)
            throw FileError(name, std::string("cannot be made: ") + std::strerror(errno));
        path_ = name;
    }
    ~TemporaryFolder() {
        std::error_code none;
        fs::remove_all(path_, none);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    [[nodiscard]] const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

std::vector<std::string> train(const fs::path& folder, int threads) {
    std::optional<ProgressBar> bar;
    return train_standard_comparison(folder, threads, [&](std::int64_t, std::int64_t of) {
        if (!bar) bar.emplace(static_cast<std::uint64_t>(of));
        bar->add(1);
    });
}

/// Adds what is below `path` to the report; runs are called by their paths from `base`, without one as they are given.
void read(const fs::path& path, const fs::path& base, const ReportOptions& options, const Complain& complain,
          Report& report) {
    const std::size_t before = report.errors.size();
    const auto found = find_runs(path, report.errors);
    for (std::size_t i = before; i < report.errors.size(); ++i) complain(report.errors[i]);
    const auto errors = for_each_input(found, complain, [&](const fs::path& run) {
        const std::string name = base.empty() ? run : run.lexically_relative(base);
        report.runs.push_back(read_run(run, name, options.threads));
        const RecordedRun& last = report.runs.back();
        for (const std::string& warning : last.warnings) complain("warning: " + warning);
        for (const std::string& error : last.errors) complain(error);
        report.errors.insert(report.errors.end(), last.errors.begin(), last.errors.end());
    });
    report.errors.insert(report.errors.end(), errors.begin(), errors.end());
}

void ask_adam(Group& group, const ReportOptions& options) {
    if (group.evidence == nullptr) return;
    AdamOptions asked = standard_adam_options();
    asked.threads = options.threads;
    try {
        group.adam = adam_findings(group.evidence->path, asked, progress_bars());
        group.adam->name = group.evidence->name;
        std::ranges::copy_if(group.adam->errors, std::back_inserter(group.adam->warnings), [&](const std::string& e) {
            return std::ranges::find(group.evidence->errors, e) == group.evidence->errors.end(); // that is said
        });
    } catch (...) {
        group.notes.push_back("Adam is left out: " + failure_text());
    }
}

int run(const ReportOptions& options, const Complain& complain) {
    Report report;
    std::optional<TemporaryFolder> scratch;
    if (options.paths.empty()) {
        const fs::path folder = options.keep.empty() ? scratch.emplace().path() : options.keep;
        report.commands = train(folder, options.threads);
        read(folder, folder, options, complain, report);
    }
    const auto errors = for_each_input(options.paths, complain,
                                       [&](const fs::path& path) { read(path, {}, options, complain, report); });
    report.errors.insert(report.errors.begin(), errors.begin(), errors.end());
    if (report.runs.empty()) return 1;
    for (const std::string& warning : drop_repeats(report.runs)) complain("warning: " + warning);
    report.groups = compare(report.runs);
    for (Group& group : report.groups) ask_adam(group, options);
    const Document document = document_of(report, options);
    if (!options.html.empty()) write_report(options.html, html_of(document));
    if (!options.markdown.empty()) write_report(options.markdown, markdown_of(document));
    if (!options.json.empty()) write_report(options.json, json_report(report, options));
    if (options.html.empty() && options.markdown.empty() && options.json.empty()) print_text(markdown_of(document));
    return report.errors.empty() ? 0 : 1;
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
