#include <ampscope/tools/amp-report/answer.h>

#include <ampscope/sim/io/failure.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/tools/amp-report/standard.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace amp::report_tool {

namespace {

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

/// Trains the standard comparison; returns its commands.
std::vector<std::string> train_standard(const StandardOptions& options, const fs::path& folder, int threads,
                                        const Watch& watch) {
    const std::vector<StandardTraining> trainings = standard_comparison(options);
    Progress progress;
    train(trainings, folder, threads, [&](std::int64_t, std::int64_t of) {
        if (!progress) progress = begin(watch, static_cast<std::uint64_t>(of));
        if (progress) progress(1);
    });
    std::vector<std::string> commands;
    for (const StandardTraining& training : trainings) commands.push_back(training.command);
    return commands;
}

/// What is wrong with a comparison that lies in a run's folder: it is not of that run, or not of its end.
std::string staleness(const MismatchReport& against, const RecordedRun& run) {
    if (against.trained_in != run.label) return fmt::format("is of a run in {}", against.trained_in);
    const std::int64_t steps = run.steps.empty() ? 0 : run.steps.back().step + 1;
    if (against.steps && *against.steps != steps)
        return fmt::format("is of step {}, and the run has {}", *against.steps, steps);
    return {};
}

/// Reads what amp-train --against left in the folders of runs. A file that is broken is an error beside the others.
void read_against(Report& report) {
    for (const RecordedRun& run : report.findings.runs) {
        const fs::path file = run.path / run_layout::against;
        std::error_code none;
        if (!fs::exists(file, none)) continue;
        try {
            MismatchReport against = read_mismatch_report(file);
            if (const std::string wrong = staleness(against, run); !wrong.empty())
                report.findings.warnings.push_back(fmt::format("{}: {}: left out", file.string(), wrong));
            else report.against.push_back({run.name, std::move(against)});
        } catch (const FileError& error) {
            report.findings.errors.emplace_back(error.what());
        }
    }
}

} // namespace

Report ask(const ReportOptions& options, const Tell& tell, const Watch& watch) {
    Report report;
    std::optional<TemporaryFolder> scratch;
    std::vector<fs::path> paths = options.paths;
    ComparisonOptions asked{.recommendation = options.recommendation,
                            .limits = options.limits,
                            .base = {},
                            .recorded_scale = options.recorded_scale,
                            .threads = options.threads};
    if (paths.empty()) {
        asked.base = options.keep.empty() ? scratch.emplace().path() : options.keep;
        report.commands = train_standard(options.standard, asked.base, options.threads, watch);
        paths = {asked.base};
    }
    report.findings = comparison_findings(paths, asked, watch);
    read_against(report);
    for (const std::string& warning : report.findings.warnings) tell("warning: " + warning);
    std::ranges::for_each(report.findings.errors, tell);
    return report;
}

} // namespace amp::report_tool
