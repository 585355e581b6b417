#include <ampscope/tools/amp-report/standard.h>

#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/train/data/dataset.h>
#include <ampscope/sim/train/outcome.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace amp::report_tool {

namespace {

constexpr std::array precisions = {"fp32",        "amp-fp16", "amp-fp16,scaler=none", "amp-bf16", "pure-fp16",
                                   "fp8-delayed", "mxfp8"};
constexpr std::uint64_t seeds = 3;

StandardTraining training_of(const std::string& network, std::uint64_t seed) {
    StandardTraining training;
    for (const char* name : precisions)
        training.runs.push_back({.model = model(network).defaults,
                                 .precision = precision(name),
                                 .optimizer = optimizer("adamw").options,
                                 .batch = 64,
                                 .seed = seed});
    const bool records = seed == 0; // what the pictures of gradients and of Adam take
    training.experiment.record = fmt::format("{}-{}", network, seed);
    training.experiment.record_every = records ? 25 : 0;
    training.experiment.record_state = records;
    training.command = fmt::format("amp-train --model {} --precision {} --seed {} --record {} --record-every {}{}",
                                   network, fmt::join(precisions, ","), seed, training.experiment.record.string(),
                                   training.experiment.record_every, records ? " --record-state" : "");
    return training;
}

} // namespace

std::vector<StandardTraining> standard_comparison() {
    std::vector<StandardTraining> trainings;
    for (const char* network : {"cnn", "gpt"})
        for (std::uint64_t seed = 0; seed < seeds; ++seed) trainings.push_back(training_of(network, seed));
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
        const TrainOptions& first = training.runs.front();
        const Dataset data = own_data(first.model.name, first.seed);
        Experiment experiment(training.runs, data, options, origin_of("amp-train"));
        while (!experiment.finished()) {
            experiment.step();
            progress(++done, steps);
        }
        finish(experiment, options);
    }
}

} // namespace amp::report_tool
