// amp-crosscheck: models of matrix hardware against what hardware gave, and a CUDA device against the processor.
#include <ampscope/sim/analysis/conformance/case_file.h>
#include <ampscope/sim/analysis/recorded_products.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/write.h>
#include <ampscope/tools/amp-crosscheck/device_report.h>
#include <ampscope/tools/amp-crosscheck/vector_report.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/command_line.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <unistd.h>

namespace {

using namespace amp;
using namespace amp::crosscheck_tool;

constexpr const char* examples = R"(Examples:
  amp-crosscheck devices
  amp-crosscheck run                                         all of it, on the first device
  amp-crosscheck vectors hopper-wgmma-fp8 H100_e5m2.npz --a e5m2 --b e5m2 --output d_fp32
  amp-crosscheck vectors cases.txt                           what amp-format vectors wrote)";

constexpr const char* device_examples = R"(Examples:
  amp-crosscheck devices)";

constexpr const char* run_examples = R"(Examples:
  amp-crosscheck run                                         all of it, on the first device
  amp-crosscheck run --device host --quick                   what devices run, on the processor
  amp-crosscheck run --device host:90 --quick                and the layouts around Hopper's matrix instructions
  amp-crosscheck run --only accumulators --record vectors    tensor cores, and recordings of them
  timeout 10m amp-crosscheck run --resume reports            as much as ten minutes allow, and the rest another day)";

constexpr const char* vector_examples = R"(Examples:
  amp-crosscheck vectors hopper-wgmma-fp8 H100_e5m2.npz --a e5m2 --b e5m2 --output d_fp32
  amp-format vectors fp16 mulAdd > cases.txt && amp-crosscheck vectors cases.txt
  amp-crosscheck vectors dot.npz --json

Files alone are those of amp-format vectors, text or .npz: each case is
computed again with exact numbers of any size, by code that has no part in
amp-format.

With a row of the table of accumulators, a file has arrays a and b (cases x k),
c (cases), and d_fp32 or d_fp16 (cases): 32-bit words, each the FP32 bits of a
number, d = a . b + c as that hardware gave it. amp-train --list prints the
rows.)";

struct Options {
    std::vector<std::string> words; ///< of the command vectors: [row] file...
    RecordedQuestion question;
    std::vector<std::filesystem::path> files;
    bool json = false;
    std::string device;
    std::filesystem::path output = "reports";
    std::vector<std::filesystem::path> earlier; ///< folders of reports to go on from
    CheckOptions check;
};

int vectors(const Options& options, const Complain& complain) {
    std::vector<VectorFile> results;
    const auto errors = for_each_input(options.files, complain, [&](const std::filesystem::path& file) {
        results.push_back({file, compare_recorded(file, options.question)});
    });
    if (!results.empty())
        print_text(options.json ? vectors_json(results) : terminal_of(document_of(results), wants_color(stdout)));
    if (!errors.empty()) return 1;
    const auto differs = [](const RecordedComparison& r) { return r.mismatches > 0; };
    const bool any =
        std::ranges::any_of(results, [&](const VectorFile& f) { return std::ranges::any_of(f.outputs, differs); });
    return any ? 3 : 0;
}

/// Files that amp-format wrote, against exact arithmetic.
int cases(const Options& options, const Complain& complain) {
    std::vector<CheckedCases> results;
    const auto errors = for_each_input(options.files, complain, [&](const std::filesystem::path& path) {
        conformance::CaseFile file = conformance::read_cases(path);
        conformance::CaseCheck check = conformance::check_cases(file.cases, progress_bars());
        results.push_back({path, std::move(file), std::move(check)});
    });
    if (!results.empty())
        print_text(options.json ? cases_json(results) : terminal_of(document_of(results), wants_color(stdout)));
    if (!errors.empty()) return 1;
    return std::ranges::any_of(results, [](const CheckedCases& c) { return c.check.mismatches > 0; }) ? 3 : 0;
}

int devices() {
    const CudaDevices found = cuda_devices();
    std::string text;
    for (const CudaDevice& d : found.devices)
        text += fmt::format("{}: {}, {:.0f} GiB\n", d.number, subject(d), static_cast<double>(d.memory) * 0x1p-30);
    text += fmt::format("host: {}\n", subject({}));
    if (found.devices.empty()) text += fmt::format("no CUDA device: {}\n", found.reason);
    print_text(text);
    return 0;
}

/// Compute capabilities of which the host models the matrix instructions.
constexpr std::array modelled_capabilities = {80, 86, 89, 90, 100, 120};
std::string capabilities() { return fmt::format("{}", fmt::join(modelled_capabilities, ", ")); }

/// The processor, "host" or "host:90".
std::optional<CudaDevice> host_of(const std::string& text) {
    if (text == "host") return CudaDevice{};
    for (const int capability : modelled_capabilities)
        if (text == fmt::format("host:{}", capability))
            return CudaDevice{.major = capability / 10, .minor = capability % 10};
    return std::nullopt;
}

/// A host, a number, or the first there is. Throws std::runtime_error.
CudaDevice device_of(const std::string& text) {
    if (const std::optional<CudaDevice> host = host_of(text)) return *host;
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
        if (terminal_) print_error("\r\033[K" + line);
    }

  private:
    bool terminal_ = isatty(STDERR_FILENO) == 1;
};

int run(Options options, const std::string& command) {
    options.check.device = device_of(options.device);
    const CudaDevice& d = options.check.device;
    std::string file = "crosscheck-" + (options.device.starts_with("host") ? options.device : d.name);
    std::ranges::replace_if(
        file, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '-');
    std::filesystem::create_directories(options.output);
    const auto path = [&](const char* ending) { return options.output / (file + ending); };
    const AtomicFile probe(path(".json")); // fails now, not at the end
    std::vector<CheckRow> earlier;
    for (const std::filesystem::path& folder : options.earlier)
        for (CheckRow& row : agreeing_rows(folder / (file + ".json"), options.check))
            if (std::ranges::none_of(earlier,
                                     [&](const CheckRow& e) { return e.part == row.part && e.name == row.name; }))
                earlier.push_back(std::move(row));
    const auto write = [&](const DeviceCheck& check) { // after each row: a run that is stopped loses one
        write_text_file(path(".json"), check_json(check, command));
        write_text_file(path(".md"), markdown_of(document_of(check, command)));
    };
    DeviceCheck result;
    {
        const Progress progress;
        result = check_device(options.check, earlier, [&](const DeviceCheck& check) {
            write(check);
            const CheckRow& last = check.rows.back();
            progress.show(fmt::format("{} rows done, {}: {}", check.rows.size(), last.part, last.name).substr(0, 79));
        });
    }
    write(result);
    if (options.json) print_text(check_json(result, command));
    else
        print_text(fmt::format("{}{} and .json written\n",
                               terminal_of(document_of(result, command), wants_color(stdout)),
                               printable(path(".md").string())));
    return result.agrees() ? 0 : 3;
}

void add_run(CommandLine& app, Options& options) {
    CLI::App& r = app.add_command("run", "Compare a CUDA device with the processor, bit for bit", run_examples);
    r.add_option("--device", options.device,
                 "The number of a device; host; or host:N (" + capabilities() +
                     "), the host with models of the matrix instructions of that compute capability; default: the "
                     "first device");
    r.add_option("--only", options.check.parts, "Parts to compare, separated by commas; default all")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(one_of(check_parts));
    r.add_flag("--quick", options.check.quick, "Samples, shorter runs: a minute instead of many");
    r.add_option("--steps", options.check.steps, "Steps of each training")
        ->capture_default_str()
        ->transform(whole_number(1, 1'000'000'000));
    r.add_option("--record", options.check.record,
                 "Record the results of tensor cores in this folder, as files for `vectors`");
    r.add_option("--resume", options.earlier,
                 "Take rows without mismatches from the reports of earlier runs in these folders; a run may have been "
                 "stopped")
        ->option_text("FOLDER,...")
        ->delimiter(',')
        ->allow_extra_args(false);
    r.add_option("--output", options.output, "Folder of the report")->capture_default_str();
    r.add_flag("--json", options.json,
               "Print the report to standard output in JSON; unlike other tools' --json it takes no file name, because "
               "--output names the folder of the file");
}

void add_vectors(CommandLine& app, Options& options) {
    CLI::App& v = app.add_command("vectors",
                                  "Check test vectors of amp-format, or compare a row of the table of accumulators "
                                  "with recorded dot products",
                                  vector_examples);
    v.add_option("FILE", options.words,
                 "Files of amp-format vectors; or a row of the table of accumulators, such as hopper-wgmma-fp8, and "
                 ".npz files of recordings, or others with the same arrays")
        ->option_text("[ROW] FILE...")
        ->required();
    v.add_option("--a", options.question.a, "Format of a; default: the row's first that holds its numbers");
    v.add_option("--b", options.question.b, "The same for b");
    v.add_option("--output", options.question.output, "d_fp32 or d_fp16; default: all that the file and the row have")
        ->check(one_of(std::array<std::string_view, 2>{"d_fp32", "d_fp16"}));
    v.add_flag("--json", options.json,
               "Print JSON to standard output; unlike other tools' --json it takes no file name, because the word "
               "after it may be a row or a FILE");
}

/// Takes the words of the command vectors for a row and files, or for files alone: what has a dot or a slash in it, or
/// is there, is a file, and so is a single word that names no row. Throws std::invalid_argument.
void interpret_vectors(const CLI::App& command, Options& options) {
    const std::string& first = options.words.front();
    std::error_code ignored;
    const bool row = first.find_first_of("./") == std::string::npos && !std::filesystem::exists(first, ignored) &&
                     (options.words.size() > 1 || is_accumulator(first));
    if (row) {
        options.question.accumulator = first;
        check(options.question);
        if (options.words.size() == 1) throw std::invalid_argument("a file is required after the row");
    } else {
        for (const char* option : {"--a", "--b", "--output"})
            if (command.count(option) > 0)
                throw std::invalid_argument(std::string(option) + " goes with a row of the table of accumulators");
    }
    options.files.assign(options.words.begin() + (row ? 1 : 0), options.words.end());
}

/// Throws std::invalid_argument for words that mean nothing.
void interpret(const CLI::App& app, Options& options) {
    if (app.got_subcommand("vectors")) interpret_vectors(*app.get_subcommand("vectors"), options);
    if (!app.got_subcommand("run")) return;
    const std::string& device = options.device;
    if (!host_of(device) && !std::ranges::all_of(device, [](unsigned char c) { return std::isdigit(c) != 0; }))
        throw std::invalid_argument("--device: '" + device +
                                    "' is neither the number of a device, nor host, nor host:N with N one of " +
                                    capabilities());
    const auto runs = [&](std::string_view part) {
        return options.check.parts.empty() || std::ranges::count(options.check.parts, part) > 0;
    };
    if (app.get_subcommand("run")->count("--steps") > 0 && !runs("training"))
        throw std::invalid_argument("--steps changes nothing without the part training");
    if (!options.check.record.empty() && (device == "host" || !runs("accumulators")))
        throw std::invalid_argument("--record needs a device with matrix instructions, and the part accumulators");
}

int main_of(int argc, char** argv, const Complain& complain) {
    Options options;
    CommandLine app("amp-crosscheck", "Checks the models of matrix hardware against hardware.", examples);
    app.require_subcommand(1);
    app.add_command("devices", "List the CUDA devices of this machine", device_examples);
    add_run(app, options);
    add_vectors(app, options);
    if (const auto exit = app.read(argc, argv, [&] { interpret(app, options); })) return *exit;
    if (app.got_subcommand("devices")) return devices();
    if (app.got_subcommand("run")) return run(options, command_text(argc, argv));
    return options.question.accumulator.empty() ? cases(options, complain) : vectors(options, complain);
}

} // namespace

int main(int argc, char** argv) {
    const Complain complain{"amp-crosscheck"};
    return exit_code(complain, [&] { return main_of(argc, argv, complain); });
}
