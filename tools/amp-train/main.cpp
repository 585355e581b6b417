// amp-train: trains small networks in emulated precision, several side by side, and tells where each left FP32.
#include <ampscope/sim/base/ranks.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/tools/amp-train/report.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <unistd.h>
#include <utility>

namespace {

using namespace amp;
using namespace amp::train_tool;

/// A line on a terminal, rewritten now and then.
class ProgressLine {
  public:
    explicit ProgressLine(std::int64_t first_step) : first_(first_step) {}
    ~ProgressLine() { end(); }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    /// A step is so many of the things that a training run counts.
    void show(const Experiment& experiment, std::int64_t steps, std::int64_t a_step, std::string_view things) {
        const auto now = Clock::now();
        if (!terminal_ || now - shown_ < std::chrono::milliseconds(200)) return;
        shown_ = now;
        const double seconds = std::max(std::chrono::duration<double>(now - begin_).count(), 1e-9);
        const auto done = static_cast<double>((experiment.steps() - first_) * a_step);
        const std::string speed = fmt::format("{:.0f} {}/s", done / seconds, things);
        print_error("\r\x1b[K" + clipped(progress_line(experiment, steps, speed), columns_of_terminal() - 1));
    }
    void end() {
        if (std::exchange(terminal_, false)) print_error("\r\x1b[K");
    }

  private:
    using Clock = std::chrono::steady_clock;
    bool terminal_ = ::isatty(STDERR_FILENO) != 0;
    Clock::time_point begin_ = Clock::now(), shown_{};
    std::int64_t first_;
};

constexpr Complain complain{"amp-train"};

/// make(), in which std::invalid_argument speaks of options that do not fit together, or the model: wrong usage. Later
/// on it would be our own fault.
template <class Make>
auto as_asked(const Make& make) {
    try {
        return make();
    } catch (const std::invalid_argument& error) {
        throw UsageError(error.what());
    }
}

void print_document(const Document& document) { print_text(terminal_of(document, wants_color(stdout))); }

int explain(const TrainToolOptions& options, const Dataset& data) {
    Document memory;
    for (const TrainOptions& run : options.runs) {
        const TrainingProgram training = build_training_program(run, data);
        if (options.explain) print_text(plan_report(run, training) + "\n");
        if (options.memory) memory.add(memory_table(run, training));
    }
    if (!options.memory) return 0;
    memory.add(Paragraph{
        "The last row is for frameworks that keep gradients as backward computes them and widen them only while they "
        "are applied. For comparison: FP32 with Adam keeps 16 bytes a parameter (weight, gradient, m, v: 4 each); FP16 "
        "beside FP32 master weights 16 in the ZeRO paper, which keeps gradients as computed, and 18 in Megatron-LM, "
        "which keeps them in FP32."});
    print_document(memory);
    return 0;
}

int evaluate(const TrainToolOptions& options) {
    const TrainOptions trained = trained_options(options.evaluate);
    const Dataset data = dataset_of(options, trained);
    const std::vector<ServedResult> results =
        evaluate_served(options.evaluate, trained, data, options.serving, options.experiment.threads);
    if (!options.json.empty()) write_report(options.json, served_json(options.evaluate, results));
    if (options.json != "-") print_document(document_of(options.evaluate, results));
    return 0;
}

/// Trains and reports. `quiet`: of several ranks only the first prints and writes.
int train(const TrainToolOptions& options, bool quiet) {
    const Dataset data = as_asked([&] { return dataset_of(options, options.runs.front()); });
    Experiment experiment =
        as_asked([&] { return Experiment(options.runs, data, options.experiment, origin_of("amp-train")); });
    for (const std::string& warning : experiment.warnings())
        if (!quiet) complain("warning: " + warning);
    const TrainOptions& o = options.runs.front();
    ProgressLine progress(experiment.steps());
    const std::int64_t examples = o.batch * o.micro_batches * o.replicas;
    const bool tokens = data.vocabulary > 0;
    while (!experiment.finished()) {
        experiment.step();
        if (!quiet)
            progress.show(experiment, options.experiment.steps,
                          tokens ? examples * element_count(data.input) : examples, tokens ? "tokens" : "examples");
    }
    progress.end();
    if (quiet) return 0;
    const std::vector<Outcome> outcomes = finish(experiment, options.experiment);
    if (!options.json.empty()) write_report(options.json, json_text(json_of(outcomes, data, options.experiment)));
    if (options.json != "-")
        print_document(document_of(outcomes, options.experiment,
                                   fmt::format("{} on {}: {}, batches of {}, seed {}", o.model.name, data.name,
                                               plural(static_cast<std::uint64_t>(options.experiment.steps), "step"),
                                               examples, o.seed)));
    return 0;
}

/// Trains with one replica on each of the ranks that mpirun or srun has started.
int train_with_ranks(TrainToolOptions options) {
    const std::unique_ptr<Ranks> ranks = join_ranks();
    const bool first = ranks->rank() == 0;
    try {
        if (options.runs.front().replicas != ranks->size())
            throw UsageError(
                fmt::format("started as {0} ranks: expected --replicas {0}, one on each, or --alone", ranks->size()));
        RankGroup group(*ranks);
        options.experiment.group = &group;
        options.experiment.group_records = !options.experiment.record.empty();
        if (!first) options.experiment.record.clear();
        return train(options, !first);
    } catch (const UsageError& error) { // of all ranks alike
        if (first) complain(error.what());
        ranks->abort(2);
    } catch (const std::exception& error) { // the others would wait for this rank
        complain(error.what());
        ranks->abort(1);
    }
}

int run(const TrainToolOptions& options) {
    const bool alone = options.alone || launched_ranks() == 1;
    for (const std::string& line : options.notes) complain("warning: " + line);
    if (!options.evaluate.empty()) return as_asked([&] { return evaluate(options); });
    if (options.explain || options.memory)
        return as_asked([&] { return explain(options, dataset_of(options, options.runs.front())); });
    return alone ? train(options, false) : train_with_ranks(options);
}

} // namespace

int main(int argc, char** argv) {
    return exit_code(complain, [&] {
        TrainToolOptions options;
        if (const std::optional<int> exit = parse_train_command(argc, argv, options)) return *exit;
        return run(options);
    });
}
