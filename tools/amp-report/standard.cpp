#include <ampscope/tools/amp-report/standard.h>

#include <ampscope/tools/amp-train/report.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace amp::report_tool {

namespace {

using namespace train_tool;

constexpr std::int64_t seeds = 3;

/// The words of one command; seed 0 records what the pictures of gradients and of Adam take.
std::vector<std::string> command_of(const std::string& model, std::int64_t seed) {
    std::vector<std::string> words = {"amp-train",
                                      "--model",
                                      model,
                                      "--precision",
                                      "fp32,amp-fp16,amp-fp16,scaler=none,amp-bf16,pure-fp16,fp8-delayed,mxfp8",
                                      "--seed",
                                      std::to_string(seed),
                                      "--record",
                                      fmt::format("{}-{}", model, seed),
                                      "--record-every",
                                      seed == 0 ? "25" : "0"};
    if (seed == 0) words.emplace_back("--record-state");
    return words;
}

} // namespace

std::vector<std::string>
train_standard_comparison(const std::filesystem::path& folder, int threads,
                          const std::function<void(std::int64_t done, std::int64_t of)>& progress) {
    std::vector<std::string> commands;
    std::vector<TrainToolOptions> trainings;
    std::int64_t steps = 0, done = 0;
    for (const char* model : {"cnn", "gpt"})
        for (std::int64_t seed = 0; seed < seeds; ++seed) {
            std::vector<std::string> words = command_of(model, seed);
            commands.push_back(fmt::format("{}", fmt::join(words, " ")));
            std::vector<char*> argv;
            for (std::string& word : words) argv.push_back(word.data());
            TrainToolOptions& options = trainings.emplace_back();
            if (parse_train_command(static_cast<int>(argv.size()), argv.data(), options))
                throw std::logic_error(commands.back());
            options.experiment.record = folder / options.experiment.record;
            options.experiment.threads = threads;
            steps += options.experiment.steps;
        }
    for (const TrainToolOptions& options : trainings) // before minutes of training
        for (const TrainOptions& run : options.runs)
            if (const auto kept = options.experiment.record / run.precision.name / "run.json";
                std::filesystem::exists(kept))
                throw FileError(kept, "holds a run already; name another folder");
    for (const TrainToolOptions& options : trainings) {
        const Dataset data = dataset_of(options, options.runs.front());
        Experiment experiment(options.runs, data, options.experiment, origin());
        while (!experiment.finished()) {
            experiment.step();
            progress(++done, steps);
        }
        finish(experiment, options.experiment);
    }
    return commands;
}

} // namespace amp::report_tool
