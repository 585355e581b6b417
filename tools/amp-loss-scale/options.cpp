#include <ampscope/tools/amp-loss-scale/options.h>
#include <ampscope/tools/command_line.h>

#include <algorithm>

namespace amp::loss_scale_tool {

namespace {

constexpr const char* examples = R"(Examples:
  amp-loss-scale runs/amp-fp16                      a run folder under every framework's scaler
  amp-loss-scale runs/* --scaler torch --sweep      and which settings would have lost least
  amp-loss-scale runs/amp-fp16 --scaler torch,init=2^13,interval=500 --scaler deepspeed
  amp-loss-scale gradients/                         gradients recorded in files: exact underflow, no log needed
  amp-loss-scale log.csv --amax grad_max --scale loss_scale --amax-scaled
  amp-loss-scale skips.jsonl --found-inf overflow --recorded-under megatron

A scaler is a row (torch, apex, deepspeed, megatron, keras3 ...; constant, none), then any key=value that differs:
)";

struct Words {
    std::vector<std::string> paths, scalers;
    std::string format = "fp16", recorded_under = "torch";
};

/// What says where things are in a log: nothing without a log, and a column is one thing.
void check_columns(const CLI::App& app, const LossScaleToolOptions& options) {
    const auto is_recording = [](const std::filesystem::path& path) {
        std::error_code none;
        return is_tensor_file(path) || std::filesystem::is_directory(path, none);
    };
    const bool any_log = !std::ranges::all_of(options.paths, is_recording);
    for (const char* option :
         {"--step-column", "--amax", "--amax-scaled", "--found-inf", "--scale", "--recorded-under"})
        if (app.count(option) > 0 && !any_log)
            throw std::invalid_argument(std::string(option) + " changes nothing: it is for logs, and no input is one");
    std::vector<std::string> columns;
    for (const auto& column :
         {options.columns.step, options.columns.amax, options.columns.found_inf, options.columns.scale})
        if (!column.empty()) columns.push_back(column);
    std::ranges::sort(columns);
    if (const auto twice = std::ranges::adjacent_find(columns); twice != columns.end())
        throw std::invalid_argument("the column '" + *twice + "' cannot be two things");
}

void interpret(const CLI::App& app, const Words& words, LossScaleToolOptions& options) {
    options.paths.assign(words.paths.begin(), words.paths.end());
    check_columns(app, options);
    options.format = format(words.format);
    check_counted(options.format, "--format", true);
    options.recorded_under = named_scaler(words.recorded_under);
    for (const std::string& name : words.scalers) options.scalers.push_back(named_scaler(name));
    if (words.scalers.empty()) options.scalers = standard_loss_scale_options().scalers;
}

} // namespace

std::optional<int> parse_command_line(int argc, char** argv, LossScaleToolOptions& options) {
    Words words;
    CommandLine app("amp-loss-scale",
                    "What other loss scalers would have done with a recorded run: skipped steps, scales, underflow.",
                    examples + scaler_option_names() + ". Numbers may be 2^13.");
    app.reads(app.add_option("PATH", words.paths,
                             "Run folders, gradients in files or folders, or logs (.csv, .tsv, .jsonl)"))
        ->required();
    app.add_option("--scaler", words.scalers,
                   "A loss scaler: a row, and what differs from it; repeatable; default: every dynamic row")
        ->allow_extra_args(false);
    app.add_flag("--sweep", options.sweep,
                 "Also replay constant scales and settings of torch's scaler, and list those that lose least");
    app.add_option("--format", words.format, "Format of gradients in backward; default fp16");
    app.add_recorded_scale(options.recorded_scale);
    app.add_recommendation(options.recommendation, "advised");
    app.add_json(options.json);
    app.add_svg(options.svg, "Draw the scales over the steps");
    app.add_html(options.html);
    app.add_threads(options.threads);
    constexpr const char* logs = "Columns of logs, where they are not found by their usual names";
    app.add_option("--step-column", options.columns.step, "Number of the step")->group(logs);
    app.add_option("--amax", options.columns.amax, "Largest magnitude of the step's gradients")->group(logs);
    app.add_flag("--amax-scaled", options.columns.amax_scaled, "That magnitude still contains the loss scale")
        ->group(logs);
    app.add_option("--found-inf", options.columns.found_inf, "Whether a gradient overflowed")->group(logs);
    app.add_option("--scale", options.columns.scale, "The loss scale in force")->group(logs);
    app.add_option("--recorded-under", words.recorded_under,
                   "The scaler that a log without scales was made under; default torch")
        ->group(logs);
    options.command = command_text(argc, argv);
    return app.read(argc, argv, [&] { interpret(app, words, options); });
}

} // namespace amp::loss_scale_tool
