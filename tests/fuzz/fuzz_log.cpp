#include "harness.h"

#include <ampscope/formats/environment.h>
#include <ampscope/tools/amp-loss-scale/report.h>

#include <cstdlib>

namespace {

/// The file in memory under a name with that extension, by which readers tell the kind of file.
std::filesystem::path named(const std::filesystem::path& file, const char* extension) {
    static const std::filesystem::path folder = [] {
        std::string pattern = (std::filesystem::temp_directory_path() / "ampscope-fuzz-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) std::abort();
        return std::filesystem::path(pattern);
    }();
    const std::filesystem::path link = folder / (std::string("log") + extension);
    std::error_code none;
    std::filesystem::remove(link, none);
    std::filesystem::create_symlink(file, link);
    return link;
}

} // namespace

// A log of steps, read and replayed as by amp-loss-scale. The bits of the first byte choose the kind of file and the
// options.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    amp::loss_scale_tool::LossScaleToolOptions options;
    options.format = amp::format("fp16");
    options.scalers = {{"torch", amp::scaler_options("torch,interval=3")}};
    options.recorded_under = options.scalers.front();
    options.columns.amax_scaled = (data[0] & 4) != 0;
    const char* const extension = (data[0] & 1) != 0 ? ".csv" : (data[0] & 2) != 0 ? ".tsv" : ".jsonl";
    const amp::FloatEnvironment environment;
    try {
        const auto path = named(amp::fuzz::memory_file(data + 1, size - 1), extension);
        amp::GradientLog log = amp::read_gradient_log(path, options);
        if (log.steps.back().step - log.steps.front().step > 100'000) return 0; // correct, but slow
        const std::vector<amp::LossScaleFindings> logs = {amp::loss_scale_findings(std::move(log), options)};
        terminal_of(amp::loss_scale_tool::document_of(logs, options), false);
        amp::loss_scale_tool::json_report(logs, {}, options);
        amp::loss_scale_tool::svg_report(logs);
    } catch (const amp::FileError&) {
    }
    return 0;
}
