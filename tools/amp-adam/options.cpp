#include <ampscope/sim/findings/selection.h>
#include <ampscope/tools/amp-adam/options.h>
#include <ampscope/tools/command_line.h>

#include <limits>

namespace amp::adam_tool {

namespace {

constexpr const char* examples = R"(Examples:
  amp-adam runs/fp32                            a run folder; exact if it recorded its state (amp-train --record-state)
  amp-adam gradients/                           gradients in files: exact from step 0 on without gaps, else an estimate
  amp-adam gradient.safetensors --lr 3e-4       one gradient, taken to be that of every step
  amp-adam checkpoint/step-1000                 the optimizer's state in a checkpoint: exact, for its last step
  amp-adam runs/fp32 --at 1e-6 --state fp32,bf16 --weights bf16 --tensor 'h\.0'
  amp-adam runs/fp32 --state dynamic8:256,e4m3:256   what 8-bit Adam's state does to the steps
  amp-adam runs/fp32 --eps 1e-5,1e-8 --json -
  amp-adam runs/fp32 --optimizer torchao-adamw  the same gradients, in the order of another implementation

Each state format holds Adam's m and v; weights are the formats in which an
update or weight decay may be lost, m and v then in FP32.
dynamic8:256 is torchao's 8-bit Adam: codes of a table, a scale for 256
elements; dynamic4:128 its 4-bit, e4m3:256 its FP8 state; bnb8:256
bitsandbytes' on the processor. e4m3:tensor: a scale a tensor.
They round m and v after the step: it is said what is lost of these, and how
much longer or shorter than with FP32 state that makes the steps.)";

std::vector<FormatSpec> formats_of(const char* option, const std::vector<std::string>& names) {
    std::vector<FormatSpec> specs;
    for (const std::string& name : names) {
        specs.push_back(format(name));
        if (specs.back().is_scale())
            throw std::invalid_argument(std::string(option) + ": '" + name + "' holds scales, not tensors");
    }
    return specs;
}

std::vector<AdamState> states_of(const std::vector<std::string>& names) {
    std::vector<AdamState> states;
    for (const std::string& name : names) {
        try {
            states.push_back(adam_state(name));
        } catch (const std::invalid_argument& error) {
            throw std::invalid_argument(std::string("--state: ") + error.what());
        }
    }
    return states;
}

/// The same names as a command line has them.
std::string list_of(const std::vector<FormatSpec>& formats) {
    std::string list;
    for (const FormatSpec& f : formats) list += (list.empty() ? "" : ",") + std::string(f.name);
    return list;
}

struct Words {
    std::vector<std::string> paths, states, weights;
    std::string optimizer, tensor;
};

void interpret(const Words& words, AdamToolOptions& options) {
    options.paths.assign(words.paths.begin(), words.paths.end());
    const AdamOptions standard = standard_adam_options();
    options.states = words.states.empty() ? standard.states : states_of(words.states);
    options.weights = words.weights.empty() ? standard.weights : formats_of("--weights", words.weights);
    if (!words.optimizer.empty()) {
        options.optimizer = optimizer(words.optimizer).options;
        if (!options.optimizer->has_v())
            throw std::invalid_argument("--optimizer: " + words.optimizer + " has no eps of Adam's");
    }
    if (options.eps.empty()) options.eps = standard.eps;
    options.tensor = tensor_pattern(words.tensor);
    options.tensor_ratios = !options.json.empty(); // nothing else shows them
}

} // namespace

std::optional<int> parse_command_line(int argc, char** argv, AdamToolOptions& options) {
    Words words;
    const AdamOptions standard = standard_adam_options();
    CommandLine app("amp-adam", "What eps and the formats of its state do to Adam, on recorded gradients.", examples);
    app.reads(app.add_option("PATH", words.paths,
                             "Run folders, gradients in files or folders, or checkpoints with Adam's m and v")
                  ->required());
    app.add_option("--eps", options.eps, "Values of eps to try, separated by commas; default 1e-4 to 1e-15")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->transform(real_number(0, 1));
    app.add_option("--at", options.usual_eps, "The eps that advice is about; default: the run's, else 1e-8")
        ->transform(real_number(0, 1));
    app.add_option("--state", words.states,
                   "Formats of m and v, as m= of amp-train's precision has them; default " + list_of(standard.weights))
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option("--weights", words.weights, "Formats of the weights; default " + list_of(standard.weights))
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option(
        "--optimizer", words.optimizer,
        "A row of amp-train --list with Adam's eps and v, so none of sgd, lion, muon and adafactor; default: "
        "the run's, else adamw");
    app.add_option("--lr", options.learning_rate, "Learning rate; default: the run's, else 1e-3")
        ->transform(real_number(0, std::numeric_limits<double>::infinity(), Ends::high));
    app.add_option("--beta1", options.beta1, "Adam's beta1; default: the run's, else 0.9")
        ->transform(real_number(0, 1, Ends::low));
    app.add_option("--beta2", options.beta2, "Adam's beta2; default: the run's, else 0.999")
        ->transform(real_number(0, 1, Ends::low));
    app.add_option("--step", options.step,
                   "Examine the last recorded step up to this one; a warning says which, if it is an earlier one; "
                   "default: the last one recorded that was not skipped")
        ->transform(whole_number(0, std::numeric_limits<std::int64_t>::max()));
    app.add_option("--assume-steps", options.assumed_steps,
                   "Number of steps that a single recorded gradient is taken to last; default 200")
        ->transform(whole_number(1, 1'000'000));
    app.add_recorded_scale(options.recorded_scale);
    app.add_tensor(words.tensor);
    app.add_worst(options.worst);
    app.add_json(options.json);
    app.add_svg(options.svg, "Draw sqrt(v_hat) / eps and the sweep of eps");
    app.add_html(options.html);
    app.add_threads(options.threads);
    options.command = command_text(argc, argv);
    return app.read(argc, argv, [&] {
        options.assumes = app.count("--assume-steps") > 0;
        interpret(words, options);
    });
}

} // namespace amp::adam_tool
