#include <ampscope/tools/amp-report/standard.h>

#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/train/data/dataset.h>
#include <ampscope/sim/train/outcome.h>

#include <ampscope/formats/names.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

namespace amp::report_tool {

namespace {

// FP32 and what it is compared with: each known effect (known_effects) has both its precisions in one of these.
constexpr std::array formats_of_training = {"fp32",
                                            "amp-bf16",
                                            "amp-fp16",
                                            "amp-fp16,scaler=none",
                                            "pure-fp16",
                                            "pure-bf16",
                                            "pure-bf16-kahan",
                                            "pure-bf16-stochastic",
                                            "fp8-current,scaling-rule=one",
                                            "fp8-delayed",
                                            "mxfp8",
                                            "fp8-current,accumulate=hopper-wgmma-fp8",
                                            "fp8-current,accumulate=hopper-wgmma-fp8-promote128"};
constexpr std::array parts_of_fp4 = {"fp32",
                                     "amp-bf16",
                                     "mxfp8",
                                     "nvfp4-plain",
                                     "nvfp4-plain,scaling-hadamard=te",
                                     "nvfp4-plain,scaling-gradient-rounding=stochastic",
                                     "nvfp4-plain,scaling-weight-block=16x16",
                                     "nvfp4-plain,scaling-4over6=mae,scaling-e4m3-max=256",
                                     "nvfp4",
                                     "nvfp4,scaling-4over6=mae,scaling-e4m3-max=256",
                                     "quartet2"};

/// A comparison that the tool trains by itself.
struct Comparison {
    std::string_view name;
    std::span<const char* const> precisions;
    bool has_cnn;
};

constexpr Comparison comparisons[] = {{"standard", formats_of_training, true}, {"fp4", parts_of_fp4, false}};

constexpr std::int64_t context = 32;         // characters that the gpt sees
constexpr std::int64_t growth_interval = 25; // of the loss scale, so that it grows and overflows within a run

/// A network, and what amp-train says of it beyond its defaults.
struct StandardNetwork {
    const char *folder, *words;
    Dataset (*data)();
    TrainOptions options;
    std::int64_t steps;
};

/// A batch has 512 characters; with this weight its gradients are as small as in one of half a million, which is usual
/// for language models.
constexpr double loss_weight = 0x1p-10;

std::vector<StandardNetwork> networks(const Comparison& comparison) {
    TrainOptions cnn{.model = model("cnn").defaults, .optimizer = optimizer("adamw").options, .batch = 64};
    TrainOptions gpt{.model = model("gpt").defaults,
                     .optimizer = optimizer("adamw").options,
                     .loss_weight = loss_weight,
                     .batch = 16};
    gpt.model.width = 32;
    gpt.optimizer.learning_rate = 0.002;
    std::vector<StandardNetwork> all = {
        {"cnn", "--model cnn", digits_data, cnn, 300},
        {"gpt", "--text alice --context 32 --width 32 --batch 16 --lr 0.002 --loss-weight 0.0009765625",
         [] { return alice_data(context); }, gpt, 600}};
    std::erase_if(all,
                  [&](const StandardNetwork& n) { return n.folder == std::string_view("cnn") && !comparison.has_cnn; });
    return all;
}

StandardTraining training_of(const StandardNetwork& network, const Comparison& comparison,
                             const StandardOptions& options, int seed) {
    StandardTraining training{.command = {}, .runs = {}, .data = network.data(), .experiment = {}};
    for (const char* name : comparison.precisions) {
        TrainOptions run = network.options;
        run.precision = precision(name);
        if (run.precision.loss_scaler.options.scaling != LossScaling::off)
            run.precision.loss_scaler.options.growth_interval = growth_interval;
        run.seed = static_cast<std::uint64_t>(seed);
        training.runs.push_back(run);
    }
    const bool records = seed == 0; // what the pictures of gradients and of Adam take
    ExperimentOptions& e = training.experiment;
    e.steps = options.steps.value_or(network.steps);
    e.record = fmt::format("{}-{}", network.folder, seed);
    e.record_every = records ? 25 : 0;
    e.record_state = e.record_activations = records;
    training.command = fmt::format(
        "amp-train {} --growth-interval {} --steps {} --precision {} --seed {} --record {} --record-every {}{}",
        network.words, growth_interval, e.steps, fmt::join(comparison.precisions, ","), seed, e.record.string(),
        e.record_every, records ? " --record-state --record-activations" : "");
    return training;
}

} // namespace

std::vector<StandardTraining> standard_comparison(const StandardOptions& options) {
    std::vector<StandardTraining> trainings;
    const Comparison& comparison = find_row("comparison", comparisons, options.comparison);
    for (const StandardNetwork& network : networks(comparison))
        for (int seed = 0; seed < options.seeds; ++seed)
            trainings.push_back(training_of(network, comparison, options, seed));
    return trainings;
}

void train(const std::vector<StandardTraining>& trainings, const std::filesystem::path& folder, int threads,
           const std::function<void(std::int64_t done, std::int64_t of)>& progress) {
    std::int64_t steps = 0, done = 0;
    for (const StandardTraining& training : trainings) { // before minutes of training
        steps += training.experiment.steps;
        for (const TrainOptions& run : training.runs)
            if (const auto kept = folder / training.experiment.record / run.precision.name / run_layout::configuration;
                std::filesystem::exists(kept))
                throw FileError(kept, "holds a run already; name another folder");
    }
    for (const StandardTraining& training : trainings) {
        ExperimentOptions options = training.experiment;
        options.record = folder / options.record;
        options.threads = threads;
        Experiment experiment(training.runs, training.data, options, origin_of("amp-train"));
        while (!experiment.finished()) {
            experiment.step();
            progress(++done, steps);
        }
        finish(experiment, options);
    }
}

} // namespace amp::report_tool
