#include <ampscope/tools/command_line.h>
#include <ampscope/tools/loss-scale/options.h>

namespace amp {

namespace {

constexpr const char* examples = R"(Examples:
  amp-loss-scale runs/amp-fp16                      a run folder under every framework's scaler
  amp-loss-scale runs/* --scaler torch --sweep      and which settings would have lost least
  amp-loss-scale runs/amp-fp16 --scaler torch,init=2^13,interval=500 --scaler deepspeed
  amp-loss-scale gradients/                         gradients recorded in files: exact underflow, no log needed
  amp-loss-scale log.csv --amax grad_max --scale loss_scale --amax-scaled
  amp-loss-scale skips.jsonl --found-inf overflow --recorded-under megatron

A scaler is a row (torch, apex, deepspeed, megatron, keras3 ...; constant, none), then any key=value that differs:
init, growth, backoff, interval, hysteresis, min, max. Numbers may be 2^13.
Exit codes: 0 fine, 1 an input could not be read, 2 wrong usage.)";

NamedScaler named(const std::string& name) { return {name, scaler_options(name)}; }

struct Words {
    std::vector<std::string> paths, scalers;
    std::string format = "fp16", recorded_under = "torch";
};

void interpret(const Words& words, LossScaleOptions& options) {
    options.paths.assign(words.paths.begin(), words.paths.end());
    options.format = format(words.format);
    if (options.format.is_scale())
        throw std::invalid_argument("--format: '" + words.format + "' holds scales, not gradients");
    options.recorded_under = named(words.recorded_under);
    for (const std::string& name : words.scalers) options.scalers.push_back(named(name));
    if (words.scalers.empty())
        for (const LossScalerRow& row : loss_scalers)
            if (row.options.scaling == LossScaling::dynamic) options.scalers.push_back(named(std::string(row.name)));
    check_outputs(options.json, options.svg);
    if (!(options.recommendation.limit > 0 && options.recommendation.limit <= 1))
        throw std::invalid_argument("--limit: expected a rate in (0, 1], such as 0.001");
}

} // namespace

std::optional<int> parse_command_line(int argc, char** argv, LossScaleOptions& options) {
    Words words;
    CLI::App app("What other loss scalers would have done with a recorded run: skipped steps, scales, underflow.",
                 "amp-loss-scale");
    app.footer(examples);
    app.set_version_flag("--version", "amp-loss-scale " AMPSCOPE_VERSION);
    app.add_option("PATH", words.paths, "Run folders, gradients in files or folders, or logs (.csv, .tsv, .jsonl)")
        ->required();
    app.add_option("--scaler", words.scalers, "A row and what differs from it; repeatable; default: every dynamic one")
        ->allow_extra_args(false);
    app.add_flag("--sweep", options.sweep, "Also constant scales and settings of torch's, by what they lose");
    app.add_option("--format", words.format, "Of gradients in backward; default fp16");
    app.add_option("--margin", options.recommendation.margin,
                   "Binades between the advised scale and overflow; default 2")
        ->check(CLI::Range(0, 200));
    app.add_option("--limit", options.recommendation.limit, "Tolerated underflow of non-zero elements; default 0.001");
    app.add_option("--json", options.json, "Write the full report ('-': standard output)");
    app.add_option("--svg", options.svg, "Draw the scales over the steps ('-': standard output)");
    app.add_option("--threads", options.threads, "0: all cores; results do not depend on it")
        ->check(CLI::Range(0, 4096));
    constexpr const char* logs = "Columns of logs, where they are not found by their usual names";
    app.add_option("--step-column", options.columns.step, "Number of the step")->group(logs);
    app.add_option("--amax", options.columns.amax, "Largest magnitude of the step's gradients")->group(logs);
    app.add_flag("--amax-scaled", options.columns.amax_scaled, "It still contains the loss scale")->group(logs);
    app.add_option("--found-inf", options.columns.found_inf, "Whether a gradient overflowed")->group(logs);
    app.add_option("--scale", options.columns.scale, "The loss scale in force")->group(logs);
    app.add_option("--recorded-under", words.recorded_under,
                   "The scaler that a log without scales was made under; default torch")
        ->group(logs);
    return parse_with(app, argc, argv, [&] { interpret(words, options); });
}

} // namespace amp
