// amp-crosscheck: models of matrix hardware against what hardware gave, and a CUDA device against the processor.
#include <ampscope/sim/analysis/recorded_products.h>
#include <ampscope/sim/io/write.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/chart/text.h>
#include <ampscope/tools/crosscheck/replay_report.h>
#include <ampscope/tools/crosscheck/report.h>
#include <ampscope/tools/process.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <unistd.h>

namespace {

using namespace amp;

constexpr const char* examples = R"(Examples:
  amp-crosscheck devices
  amp-crosscheck run                                         all of it, on the first device
  amp-crosscheck run --device host --quick                   what devices run, on the processor
  amp-crosscheck run --device host:90 --quick                and the layouts around Hopper's matrix instructions
  amp-crosscheck run --only accumulators --record vectors    tensor cores, and recordings of them
  amp-crosscheck vectors hopper-wgmma-fp8 H100_e5m2.npz --a e5m2 --b e5m2 --output d_fp32

A file of vectors has arrays a and b (cases x k), c (cases), and d_fp32 or d_fp16 (cases): 32-bit words, each the FP32
bits of a number, d = a . b + c as that hardware gave it. amp-train --list prints the rows.
Exit codes: 0 no mismatch, 1 bad input or no such device, 2 wrong usage, 3 a mismatch.)";

struct Options {
    RecordedQuestion question;
    std::vector<std::filesystem::path> files;
    bool json = false;
    std::string device;
    std::filesystem::path output = "reports";
    ReplayOptions replay;
};

int vectors(const Options& options) {
    std::vector<VectorFile> results;
    for (const auto& file : options.files) results.push_back({file, compare_recorded(file, options.question)});
    fmt::print("{}", options.json ? vectors_json(results) : vectors_table(results));
    const auto differs = [](const RecordedComparison& r) { return r.mismatches > 0; };
    const bool any =
        std::ranges::any_of(results, [&](const VectorFile& f) { return std::ranges::any_of(f.outputs, differs); });
    return any ? 3 : 0;
}

int devices() {
    const CudaDevices found = cuda_devices();
    for (const CudaDevice& d : found.devices)
        fmt::print("{}: {}, {:.0f} GiB\n", d.number, subject(d), static_cast<double>(d.memory) * 0x1p-30);
    fmt::print("host: {}\n", subject({}));
    if (found.devices.empty()) fmt::print("no CUDA device: {}\n", found.reason);
    return 0;
}

/// "host", "host:90", a number, or the first there is. Throws std::runtime_error.
CudaDevice device_of(const std::string& text) {
    if (text == "host") return {};
    for (const int capability : {80, 86, 89, 90, 100, 120})
        if (text == fmt::format("host:{}", capability)) return {.major = capability / 10, .minor = capability % 10};
    const CudaDevices found = cuda_devices();
    if (found.devices.empty())
        throw std::runtime_error("no CUDA device: " + found.reason +
                                 "; --device host runs the same functions on the processor");
    for (const CudaDevice& d : found.devices)
        if (text.empty() || text == std::to_string(d.number)) return d;
    throw std::runtime_error(fmt::format("no CUDA device '{}'; amp-crosscheck devices lists them", text));
}

/// A line on standard error for every finished row, if that is a terminal.
class Progress {
  public:
    ~Progress() { show(""); }
    void show(const std::string& line) const {
        if (terminal_) fmt::print(stderr, "\r\033[K{}", line);
    }

  private:
    bool terminal_ = isatty(STDERR_FILENO) == 1;
};

int run(Options options, const std::string& command) {
    options.replay.device = device_of(options.device);
    const CudaDevice& d = options.replay.device;
    std::string file = "crosscheck-" + (options.device.starts_with("host") ? options.device : d.name);
    std::ranges::replace_if(
        file, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '-');
    std::filesystem::create_directories(options.output);
    const AtomicFile probe(options.output / (file + ".json")); // fails now, not at the end
    Replay result;
    {
        const Progress progress;
        std::int64_t rows = 0;
        result = replay(options.replay, [&](const ReplayRow& r) {
            progress.show(fmt::format("{} rows done, {}: {}", ++rows, r.part, r.name).substr(0, 79));
        });
    }
    write_text_file(options.output / (file + ".json"), replay_json(result, command));
    write_text_file(options.output / (file + ".md"), replay_markdown(result, command));
    if (options.json) {
        fmt::print("{}", replay_json(result, command));
    } else {
        fmt::print("{}{} and .json written\n", replay_table(result, wants_color(stdout)),
                   printable((options.output / (file + ".md")).string()));
    }
    return result.agrees() ? 0 : 3;
}

void add_run(CLI::App& app, Options& options) {
    CLI::App& r = *app.add_subcommand("run", "A CUDA device against the processor, bit for bit");
    r.add_option("--device", options.device,
                 "Its number; host; or host:80, 86, 89, 90, 100, 120: the host with models for that\n"
                 "compute capability's matrix instructions; default: the first device");
    r.add_option("--only", options.replay.parts, fmt::format("Parts: {}", fmt::join(replay_parts, ", ")))
        ->delimiter(',')
        ->check(CLI::IsMember(std::vector<std::string>(replay_parts.begin(), replay_parts.end())));
    r.add_flag("--quick", options.replay.quick, "Samples, shorter runs: a minute instead of many");
    r.add_option("--steps", options.replay.steps, "Of training runs")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    r.add_option("--record", options.replay.record, "A folder for what tensor cores gave, as files for `vectors`");
    r.add_option("--output", options.output, "Folder of the report")->capture_default_str();
    r.add_flag("--json", options.json, "Print JSON");
}

} // namespace

int main(int argc, char** argv) {
    const Process process("amp-crosscheck");
    Options options;
    CLI::App app("Checks the models of matrix hardware against hardware.", "amp-crosscheck");
    app.footer(examples);
    app.set_version_flag("--version", "amp-crosscheck " AMPSCOPE_VERSION);
    app.require_subcommand(1);
    app.add_subcommand("devices", "The CUDA devices of this machine");
    add_run(app, options);
    CLI::App& v = *app.add_subcommand("vectors", "One row of the table of accumulators against recorded dot products");
    v.add_option("row", options.question.accumulator, "Such as hopper-wgmma-fp8")->required();
    v.add_option("file", options.files, ".npz files, or others with the same arrays")->required();
    v.add_option("--a", options.question.a, "Format of a; default: the row's first that holds its numbers");
    v.add_option("--b", options.question.b, "Format of b");
    v.add_option("--output", options.question.output, "d_fp32 or d_fp16; default: all that the file and the row have")
        ->check(CLI::IsMember({"d_fp32", "d_fp16"}));
    v.add_flag("--json", options.json, "Print JSON");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    std::string command = "amp-crosscheck";
    for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
    try {
        if (app.got_subcommand("devices")) return devices();
        return app.got_subcommand("run") ? run(options, command) : vectors(options);
    } catch (const std::invalid_argument& error) {
        fmt::print(stderr, "amp-crosscheck: {}\n", printable(error.what()));
        return 2;
    } catch (const std::exception& error) {
        fmt::print(stderr, "amp-crosscheck: {}\n", printable(error.what()));
        return 1;
    }
}
