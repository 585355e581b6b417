#include <ampscope/tools/amp-train/options.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/sim/train/data/tokens.h>
#include <ampscope/tools/amp-train/network.h>
#include <ampscope/tools/amp-train/precisions.h>
#include <ampscope/tools/amp-train/replica_options.h>
#include <ampscope/tools/amp-train/serving_options.h>
#include <ampscope/tools/amp-train/unused.h>
#include <ampscope/tools/command_line.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace amp::train_tool {

namespace {

constexpr const char* examples = R"(Examples:
  amp-train                                        a small GPT in six precisions, in under a minute
  amp-train --model cnn --precision fp32,amp-fp16,amp-bf16,pure-bf16 --steps 500
  amp-train --precision fp32,amp-fp16 --loss-scale deepspeed --clip 1.0 --record runs --record-every 50
  amp-train --precision fp32,fp32,v=bf16            FP32, and the same but for Adam's second moment
  amp-train --precision fp32,fp32,weights=e4m3,activations=e4m3,gradients=e5m2
  amp-train --text book.txt --context 128 --width 128 --depth 4 --steps 2000 --record runs --checkpoint-every 100
  amp-train --model mlp --data mine.npz             arrays x and y
  amp-train --explain --precision amp-fp16          every op of a step, its formats and why
  amp-train --evaluate runs/amp-bf16 --kv-cache e4m3 --weights-as e4m3 --activations-as e4m3:tensor
  amp-train --evaluate runs/amp-bf16 --against amp-fp16,fp8-current --json against.json

Precisions: a preset, then any key=format that differs, all separated by commas; see --list.)";

// Groups of the help that several functions add to.
constexpr const char *training_group = "Training", *precision_group = "Precision", *output_group = "Output";

/// The words of the command line, before they mean anything.
struct Words {
    PrecisionWords precision{};
    std::string optimizer = "adamw", loss_scale, policy = "cuda";
    std::optional<double> init_scale, growth_factor, backoff_factor, beta1, beta2, eps, weight_decay, momentum,
        adamw_lr;
    std::optional<std::int64_t> growth_interval, hysteresis;
    bool nesterov = false, contract = false, no_weight_cache = false, backward_under_autocast = false, list = false;
    bool unscale_late = false;
    ServingWords serving{};
    NetworkWords network{};
    ReplicaWords replicas{};
    TrainOptions common{};
};

CLI::Validator positive() { return real_number(0, std::numeric_limits<double>::infinity(), Ends::high); }
CLI::Validator not_negative() { return real_number(0, std::numeric_limits<double>::infinity()); }
CLI::Validator fraction() { return real_number(0, 1, Ends::low); }

/// The loss scaler of a precision, unless another one is wanted; none stays none.
LossScalerRow loss_scaler_of(const Words& w, std::string_view precision_text, const LossScalerRow& own) {
    const bool named = precision_text.find("scaler=") != std::string_view::npos;
    if (own.options.scaling == LossScaling::off) return own;
    LossScalerRow row =
        named || w.loss_scale.empty() ? own : of_option("--loss-scale", [&] { return loss_scaler(w.loss_scale); });
    if (row.options.scaling == LossScaling::off) return row;
    LossScalerOptions& o = row.options;
    if (w.init_scale) o.init_scale = *w.init_scale;
    if (w.growth_factor) o.growth_factor = *w.growth_factor;
    if (w.backoff_factor) o.backoff_factor = *w.backoff_factor;
    if (w.growth_interval) o.growth_interval = *w.growth_interval;
    if (w.hysteresis) o.hysteresis = *w.hysteresis;
    o.unscale_by_updated_scale = o.unscale_by_updated_scale || w.unscale_late;
    return row;
}

OptimizerOptions optimizer_of(const Words& w) {
    OptimizerOptions o = of_option("--optimizer", [&] { return optimizer(w.optimizer).options; });
    o.learning_rate = w.common.optimizer.learning_rate;
    if (w.beta1) o.beta1 = *w.beta1;
    if (w.beta2) o.beta2 = *w.beta2;
    if (w.eps) o.eps = *w.eps;
    if (w.weight_decay) o.weight_decay = *w.weight_decay;
    if (w.momentum) o.momentum = *w.momentum;
    if (w.adamw_lr) o.adamw_learning_rate = *w.adamw_lr;
    o.nesterov = o.nesterov || w.nesterov;
    o.contract = w.contract;
    return o;
}

void interpret(const CLI::App& app, const Words& w, TrainToolOptions& options) {
    interpret_serving(app, w.serving, w.precision, w.network.model.attention, options);
    refuse_unused(app, options);
    if (!options.evaluate.empty()) return;
    if (!options.text.empty() && !model(w.network.model.name).reads_tokens)
        throw std::invalid_argument("--text is for the models gpt and llama");
    for (const Precision& precision : precisions_of(w.precision)) {
        TrainOptions o = w.common;
        o.model = model_of(w.network);
        o.precision = precision;
        o.precision.autocast.policy =
            enumerator_of<AutocastPolicy>("--autocast-policy", "device", autocast_policy_names, w.policy);
        o.precision.weight_cache = !w.no_weight_cache;
        o.precision.backward_under_autocast = w.backward_under_autocast;
        o.optimizer = optimizer_of(w);
        o.precision.loss_scaler = loss_scaler_of(w, precision.name, precision.loss_scaler);
        o.all_reduce = all_reduce_of(w.replicas);
        o.shard = shard_of(w.replicas);
        check_sharding(o);
        check(o.precision.loss_scaler.options);
        check(o.optimizer);
        options.runs.push_back(o);
    }
    note_unused(app, options);
}

void add_data_options(CLI::App& app, TrainToolOptions& options) {
    constexpr const char* group = NetworkWords::group;
    app.add_option(
           "--text", options.text,
           "Train a decoder on the characters of this file; alice: Alice in Wonderland, which comes with ampscope")
        ->group(group);
    app.add_option("--context", options.context, "Characters or tokens that it sees at once; default 64")
        ->transform(whole_number(1, 65536))
        ->group(group);
    app.add_option("--modulus", options.modulus, "Without --text a decoder learns (a + b) mod this number; default 31")
        ->transform(whole_number(2, 4096))
        ->group(group);
    app.add_option("--data", options.npz,
                   "Train on the arrays x and y of an .npz, or a decoder on its array tokens, of token numbers")
        ->group(group);
}

void add_training_options(CLI::App& app, Words& w, TrainToolOptions& options) {
    constexpr const char* group = training_group;
    TrainOptions& o = w.common;
    app.add_option("--steps", options.experiment.steps, "Steps of training; default 300")
        ->transform(whole_number(1, std::uint64_t{1} << 31))
        ->group(group);
    app.add_option("--batch", o.batch, "Examples in a batch; default 64")
        ->transform(whole_number(1, 1 << 20))
        ->group(group);
    app.add_option("--micro-batches", o.micro_batches, "Batches whose gradients add up to a step; default 1")
        ->transform(whole_number(1, 65536))
        ->group(group);
    app.add_option("--loss-weight", o.loss_weight,
                   "Factor W of the loss: gradients become as small as in a batch 1/W times as large; default 1")
        ->transform(positive())
        ->group(group);
    app.add_option("--clip", o.clip,
                   "Largest norm of all gradients together; larger ones are scaled down to it; default 0: no clipping")
        ->transform(not_negative())
        ->group(group);
    app.add_option("--seed", o.seed, "Seed of weights, order of the data, dropout and stochastic rounding; default 0")
        ->transform(whole_number(0, UINT64_MAX))
        ->group(group);
}

void add_optimizer_options(CLI::App& app, Words& w) {
    const OptimizerOptions& adamw = optimizer(w.optimizer).options;
    const auto usual = [&](double x) { return fmt::format("default: the optimizer's own, {} for {}", x, w.optimizer); };
    constexpr const char* group = training_group;
    app.add_option("--optimizer", w.optimizer, "See --list; default adamw")->group(group);
    app.add_option("--lr", w.common.optimizer.learning_rate, "Learning rate; default 0.001")
        ->transform(not_negative())
        ->group(group);
    app.add_option("--warmup", w.common.warmup, "Steps in which the learning rate rises to --lr; default 0")
        ->transform(whole_number(0, 1 << 30))
        ->group(group);
    app.add_option("--beta1", w.beta1, "beta1 of Adam and Lion, by which m decays; " + usual(adamw.beta1))
        ->transform(fraction())
        ->group(group);
    app.add_option("--beta2", w.beta2,
                   "Adam's beta2, by which v decays; Lion's, by which m does; " + usual(adamw.beta2))
        ->transform(fraction())
        ->group(group);
    app.add_option("--eps", w.eps,
                   "Adam's eps, or Adafactor's first, where 0 stands for that of the weights' format; " +
                       usual(adamw.eps))
        ->transform(not_negative())
        ->group(group);
    app.add_option("--weight-decay", w.weight_decay,
                   "Added to the gradient (sgd, adam) or taken from the weight (adamw, lion, muon, adafactor); " +
                       usual(adamw.weight_decay))
        ->transform(not_negative())
        ->group(group);
    app.add_option("--adamw-lr", w.adamw_lr, "Learning rate of what muon leaves to AdamW; default: --lr")
        ->transform(positive())
        ->group(group);
    app.add_option("--momentum", w.momentum,
                   fmt::format("Momentum of sgd and muon; default {} and {}", optimizer("sgd").options.momentum,
                               optimizer("muon").options.momentum))
        ->transform(not_negative())
        ->group(group);
    app.add_flag("--nesterov", w.nesterov, "Nesterov's momentum in sgd")->group(group);
}

void add_precision_options(CLI::App& app, Words& w) {
    constexpr const char* group = precision_group;
    app.add_option("--precision", w.precision.precisions,
                   fmt::format("Presets and combinations, side by side; see --list; default {}",
                               fmt::join(precision_texts("--precision", w.precision.precisions), ", ")))
        ->group(group);
    app.add_option("--accumulate", w.precision.accumulate,
                   "Accumulator of matrix products (hopper-wgmma-fp8, exact ...), in the runs whose operands it takes; "
                   "several are joined by +; see --list")
        ->group(group);
    app.add_option(
           "--autocast-policy", w.policy,
           "Device whose lists autocast follows: cuda (default), cpu, mps or xpu; an op on none of them runs in the "
           "formats of its operands")
        ->group(group);
    app.add_option("--layer", w.precision.layers,
                   "MODULES:TEXT, a module or pattern of modules and what differs in all their layers: head:fp32, "
                   "'h.*.mlp:fp8-current,accumulate=exact'; repeatable, later ones win; see --list")
        ->group(group);
    app.add_option("--autocast-off", w.precision.autocast_off,
                   "A module outside autocast, such as head or h.0.attn; repeatable; short for --layer "
                   "MODULE:autocast=off before all --layer")
        ->group(group);
    app.add_option(
           "--scaling-off", w.precision.scaling_off,
           "A module whose layers a recipe (fp8-current ...) leaves as they are; repeatable; default head; short "
           "for --layer MODULE:scaling=none before all others")
        ->group(group);
    app.add_flag("--no-weight-cache", w.no_weight_cache, "Autocast casts a weight anew at each use")->group(group);
    app.add_flag("--contract", w.contract, "Fuse the optimizer's multiply-adds")->group(group);
}

void add_loss_scale_options(CLI::App& app, Words& w) {
    const LossScalerOptions& torch = loss_scaler("torch").options;
    const auto by_scaler = [](const auto& of_torch) {
        return fmt::format("default: the scaler's own, for torch {}", of_torch);
    };
    constexpr const char* group = precision_group;
    app.add_option("--loss-scale", w.loss_scale,
                   "Loss scaler of the runs that scale the loss; see --list; default: the precision's own")
        ->group(group);
    app.add_option("--init-scale", w.init_scale,
                   "The loss scaler's first scale; " + by_scaler(scale_text(torch.init_scale)))
        ->transform(positive())
        ->group(group);
    app.add_option("--growth-factor", w.growth_factor,
                   "Factor by which the scale grows, above 1; " + by_scaler(torch.growth_factor))
        ->transform(real_number(1, std::numeric_limits<double>::infinity(), Ends::high))
        ->group(group);
    app.add_option("--backoff-factor", w.backoff_factor,
                   "Factor by which an overflow shrinks the scale, below 1; " + by_scaler(torch.backoff_factor))
        ->transform(real_number(0, 1, Ends::none))
        ->group(group);
    app.add_option("--growth-interval", w.growth_interval,
                   "Steps without overflow before the scale grows; " + by_scaler(torch.growth_interval))
        ->transform(whole_number(1, INT64_MAX))
        ->group(group);
    app.add_option("--hysteresis", w.hysteresis,
                   "Overflows that it takes to shrink the scale; 2: the first one does nothing; 0, 1: each does; " +
                       by_scaler(torch.hysteresis))
        ->transform(whole_number(0, INT64_MAX))
        ->group(group);
}

void add_mistakes(CLI::App& app, Words& w) {
    constexpr const char* group = "Mistakes, to see what they do";
    app.add_flag("--backward-under-autocast", w.backward_under_autocast, "Run backward inside the autocast region")
        ->group(group);
    app.add_flag("--clip-before-unscale", w.common.clip_before_unscale, "Clip gradients that still contain the scale")
        ->group(group);
    app.add_flag("--unscale-late", w.unscale_late, "Unscale by the scale after its update (DeepSpeed issue 2686)")
        ->group(group);
}

void add_recording_options(CLI::App& app, ExperimentOptions& e) {
    constexpr const char* group = output_group;
    CLI::Option* const record =
        app.add_option("--record", e.record,
                       "Record each run in a folder of its own below this one: metrics, gradients, histograms")
            ->group(group);
    app.add_option("--record-every", e.record_every, "Steps between recorded gradients; default 50; 0: none")
        ->transform(whole_number(0, 1 << 30))
        ->needs(record)
        ->group(group);
    app.add_flag("--record-activations", e.record_activations,
                 "Record outputs of layers, and the weights, with the gradients")
        ->needs(record)
        ->group(group);
    app.add_flag("--record-replicas", e.record_replicas, "Record the gradients of each replica with their mean")
        ->needs(record)
        ->group(group);
    app.add_flag("--record-state", e.record_state, "Record weights and optimizer state with the gradients")
        ->needs(record)
        ->group(group);
    app.add_option("--checkpoint-every", e.checkpoint_every, "Steps between checkpoints; default 0: none")
        ->transform(whole_number(0, 1 << 30))
        ->needs(record)
        ->group(group);
    app.add_flag("--resume", e.resume,
                 "Continue from the last checkpoint in --record, with the same bits as without the break")
        ->needs(record)
        ->group(group);
}

void add_output_options(CommandLine& app, Words& w, TrainToolOptions& options) {
    constexpr const char* group = output_group;
    ExperimentOptions& e = options.experiment;
    app.add_option("--statistics-every", e.statistics_every,
                   "Steps between counts of underflow and comparisons; default 10")
        ->transform(whole_number(0, 1 << 30))
        ->group(group);
    app.add_option("--reference", e.reference,
                   "Precision, as given, of the run that the others are compared with; default: the one in FP32")
        ->group(group);
    app.add_option("--departure", e.departure_bound,
                   "Relative error beyond which a tensor has left the reference; default 0.1")
        ->transform(positive())
        ->group(group);
    app.add_flag("--explain", options.explain,
                 "Print the ops of a step with formats, accumulators and rules; train nothing")
        ->group(group);
    app.add_flag("--memory", options.memory, "Print the bytes that each run keeps; train nothing")->group(group);
    app.add_flag("--profile", e.profile, "Print where the time of each run's steps goes, by op")->group(group);
    app.add_json(options.json, "Write the results ('-': standard output)")->group(group);
    app.add_threads(e.threads)->group(group);
    app.add_flag("--alone", options.alone,
                 "Train alone, though mpirun or srun has started this as one of several processes")
        ->group(group);
    app.add_flag("--list", w.list, "Print the names of precisions, models, optimizers, loss scalers and accumulators")
        ->group(group);
}

} // namespace

std::optional<int> parse_train_command(int argc, char** argv, TrainToolOptions& options) {
    Words words;
    words.common.batch = 64;
    CommandLine app(
        "amp-train",
        "Trains small networks in emulated precision, side by side, as the frameworks do it step for step, and tells "
        "where each run left FP32.",
        examples);
    app.add_config("Read options from a TOML file: model = \"gpt\" ...");
    app.allow_config_extras(CLI::config_extras_mode::error);
    add_network_options(app, words.network);
    add_data_options(app, options);
    add_precision_options(app, words);
    add_loss_scale_options(app, words);
    add_mistakes(app, words);
    add_replica_options(app, words.replicas, words.common);
    add_training_options(app, words, options);
    add_optimizer_options(app, words);
    add_serving_options(app, words.serving, options);
    add_recording_options(app, options.experiment);
    add_output_options(app, words, options);
    for (const char* list : {"--precision", "--against", "--layer", "--autocast-off", "--scaling-off"})
        app.get_option(list)->allow_extra_args(false);
    for (const char* input : {"--text", "--data", "--evaluate", "--config"}) app.reads(app.get_option(input));
    for (const char* folder : {"--record", "--export"}) app.writes_into(app.get_option(folder));
    const auto exit = app.read(argc, argv, [&] {
        options.wording = app.wording(argc, argv);
        if (words.list) refuse_reports(app, "--list");
        else interpret(app, words, options);
    });
    if (exit || !words.list) return exit;
    print_text(list_of_names());
    return 0;
}

Dataset dataset_of(const TrainToolOptions& options, const TrainOptions& run) {
    if (!options.npz.empty())
        return model(run.model.name).reads_tokens ? tokens_data(options.npz, options.context) : npz_data(options.npz);
    if (options.text == "alice") return alice_data(options.context);
    if (!options.text.empty()) return text_data(options.text, options.context);
    return own_data(run.model.name, run.seed, options.modulus);
}

} // namespace amp::train_tool
