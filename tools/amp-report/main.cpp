// amp-report: one page on what each precision did to training. Build: tools/demo; then amp-report --help.
#include <ampscope/tools/amp-report/report.h>
#include <ampscope/tools/amp-report/standard.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <cstdlib>
#include <cstring>

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

int run(const ReportOptions& options, const Complain& complain) {
    Report report;
    std::optional<TemporaryFolder> scratch;
    std::vector<fs::path> paths = options.paths;
    ComparisonOptions asked{.recommendation = options.recommendation, .base = {}, .threads = options.threads};
    if (paths.empty()) {
        asked.base = options.keep.empty() ? scratch.emplace().path() : options.keep;
        report.commands = train(asked.base, options.threads);
        paths = {asked.base};
    }
    report.findings = comparison_findings(paths, asked, progress_bars());
    for (const std::string& warning : report.findings.warnings) complain("warning: " + warning);
    for (const std::string& error : report.findings.errors) complain(error);
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
