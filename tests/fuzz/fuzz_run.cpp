#include "harness.h"

#include <ampscope/tools/amp-report/report.h>

#include <cstdlib>
#include <fstream>

namespace {

/// A run folder whose files are the parts of the input, separated by byte 0x1e. An empty part means that the file is
/// missing, since after an empty, so damaged, run.json nothing else would be read.
std::filesystem::path run_folder(std::string_view input) {
    static const std::filesystem::path folder = [] {
        std::string pattern = (std::filesystem::temp_directory_path() / "ampscope-fuzz-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) std::abort();
        return std::filesystem::path(pattern);
    }();
    for (const char* name : {"metrics.jsonl", "histograms.jsonl", "run.json", "result.json"}) {
        const std::size_t end = std::min(input.find('\x1e'), input.size());
        std::filesystem::remove(folder / name);
        if (end > 0) std::ofstream(folder / name, std::ios::binary) << input.substr(0, end);
        input.remove_prefix(std::min(end + 1, input.size()));
    }
    return folder;
}

} // namespace

// A run folder, read as by amp-report twice, with an FP32 run for comparison: everything that a page may say about it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::filesystem::path folder = run_folder({reinterpret_cast<const char*>(data), size});
    const amp::report_tool::ReportOptions options;
    amp::report_tool::Report report;
    try {
        for (const char* name : {"run", "other"})
            report.findings.runs.push_back(amp::read_run(folder, name, {.threads = 1}));
    } catch (const amp::FileError&) {
        return 0;
    } catch (const amp::RecordingError&) {
        return 0;
    }
    report.findings.runs.back().label = "fp32";
    if (report.findings.runs.back().configuration.is_object())
        report.findings.runs.back().configuration["precision"] = "fp32";
    amp::compare(report.findings, {});
    const amp::Document document = amp::report_tool::document_of(report, options);
    amp::html_of(document);
    amp::markdown_of(document);
    amp::report_tool::json_report(report, options);
    return 0;
}
