// amp-train: trains small networks in emulated precision, several side by side, and tells where each left FP32.
#include <ampscope/sim/io/write.h>
#include <ampscope/tools/chart/text.h>
#include <ampscope/tools/train/report.h>

#include <fmt/format.h>

#include <chrono>
#include <unistd.h>

namespace {

using namespace amp;

/// A line on a terminal, rewritten now and then.
class ProgressLine {
  public:
    void show(const Experiment& experiment, std::int64_t steps, double examples_a_step) {
        const auto now = Clock::now();
        if (!terminal_ || now - shown_ < std::chrono::milliseconds(200)) return;
        shown_ = now;
        const double seconds = std::chrono::duration<double>(now - begin_).count();
        const std::int64_t done = experiment.steps() - first_;
        fmt::print(
            stderr, "\r\x1b[K{}",
            clipped(progress_line(experiment, steps, seconds, examples_a_step * static_cast<double>(done)), 160));
    }
    void begin(std::int64_t first) { first_ = first; }
    void end() const {
        if (terminal_) fmt::print(stderr, "\r\x1b[K");
    }

  private:
    using Clock = std::chrono::steady_clock;
    bool terminal_ = ::isatty(STDERR_FILENO) != 0;
    Clock::time_point begin_ = Clock::now(), shown_{};
    std::int64_t first_ = 0;
};

int explain(const TrainToolOptions& options, const Dataset& data) {
    for (const TrainOptions& run : options.runs) {
        const TrainingProgram training = build_training_program(run, data);
        if (options.explain) fmt::print("{}\n", plan_report(run, training));
        if (options.memory) fmt::print("{}: {}\n", run.precision.name, memory_report(training));
    }
    if (options.memory)
        fmt::print(
            "For comparison: FP32 with Adam keeps 16 bytes a parameter (weight, gradient, m, v: 4 each). FP16 weights\n"
            "and gradients beside FP32 master weights, m and v keep 16 too (2 + 2 + 4 + 4 + 4, the ZeRO paper), and "
            "18\n"
            "where gradients are FP32 (Megatron-LM).\n");
    return 0;
}

int run(const TrainToolOptions& options) {
    const Dataset data = dataset_of(options);
    if (options.explain || options.memory) return explain(options, data);
    Experiment experiment(options.runs, data, options.experiment, origin());
    const TrainOptions& o = options.runs.front();
    ProgressLine progress;
    progress.begin(experiment.steps());
    while (!experiment.finished()) {
        experiment.step();
        progress.show(experiment, options.experiment.steps,
                      static_cast<double>(o.batch * o.micro_batches * o.replicas));
    }
    progress.end();
    std::vector<Outcome> outcomes;
    for (Run& r : experiment.runs()) outcomes.push_back({&r, r.trainer->evaluate(), experiment.distance(r)});
    if (options.json == "-") fmt::print("{}", outcome_json(outcomes, data, options.experiment));
    else if (!options.json.empty()) write_text_file(options.json, outcome_json(outcomes, data, options.experiment));
    if (options.json != "-")
        fmt::print("{} on {}: {}, batches of {}, seed {}\n\n{}", o.model.name, printable(data.name),
                   plural(static_cast<std::uint64_t>(options.experiment.steps), "step"),
                   o.batch * o.micro_batches * o.replicas, o.seed, outcome_table(outcomes, options.experiment));
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    TrainToolOptions options;
    if (const std::optional<int> exit = parse_train_command(argc, argv, options)) return *exit;
    try {
        return run(options);
    } catch (const std::exception& error) {
        fmt::print(stderr, "amp-train: {}\n", printable(error.what()));
        return 1;
    }
}
