// amp-train: trains small networks in emulated precision, several side by side, and tells where each left FP32.
#include <ampscope/sim/base/ranks.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/served_mismatch.h>
#include <ampscope/tools/amp-train/precisions.h>
#include <ampscope/tools/amp-train/report.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/document/mismatch.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
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
auto as_asked(const TrainToolOptions& options, const Make& make) {
    try {
        return make();
    } catch (const std::invalid_argument& error) {
        throw UsageError(options.wording(error.what()));
    }
}

void print_document(const Document& document) {
    const bool forwarded = launched_ranks() > 1; // by mpirun, which lets programs write to a terminal of its own
    print_text(terminal_of(document, wants_color(stdout) && !forwarded));
}

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

int compare_with_serving(const TrainToolOptions& options, const TrainedNetwork& trained) {
    const Precision &own = trained.options.precision, training = options.trained_as.value_or(own);
    MismatchReport report{trained.path.string(), trained.steps, own.name, training.name, trained.options.batch, {}};
    check_precision(trained, training);
    std::vector<ServingSetting> settings;
    for (const std::string& text : options.against) {
        const Precision precision = precision_against(text, own);
        check_precision(trained, precision);
        settings.push_back({text + options.serving_words, with_serving(precision, options.serving),
                            options.against_batch, options.attention});
    }
    const auto batches = static_cast<std::uint64_t>(validation_batches(trained.data, trained.options.batch));
    const Progress progress = begin(until_stopped(progress_bars()), batches * settings.size());
    for (const ServingSetting& setting : settings)
        report.servings.push_back(measure_mismatch(trained, training, setting, options.experiment.threads, progress));
    if (!options.json.empty()) write_report(options.json, json_text(json_of(report)));
    if (options.json != "-") print_document(document_of(report, options.worst));
    return 0;
}

int evaluate(const TrainToolOptions& options) {
    const TrainOptions own = trained_options(options.evaluate);
    const Dataset data = dataset_of(options, own);
    if (!options.exported.empty()) export_trained(options.evaluate, own, data, options.exported);
    const Serving& serving = options.serving;
    const bool otherwise = serving.weights || serving.activations || serving.kv_cache || !options.attention.empty();
    if (!otherwise && options.against.empty()) return 0;
    check_serving(options.evaluate, own, serving);
    const TrainedNetwork trained = read_trained(options.evaluate, own, data);
    if (!options.against.empty()) return compare_with_serving(options, trained);
    const std::vector<ServedResult> results =
        evaluate_served(trained, serving, options.attention, options.experiment.threads);
    if (!options.json.empty()) write_report(options.json, served_json(options.evaluate, results));
    if (options.json != "-") print_document(document_of(options.evaluate, results));
    return 0;
}

/// What is trained, on its data.
struct Job {
    explicit Job(const TrainToolOptions& o)
        : data(dataset_of(o, o.runs.front())), experiment(o.runs, data, o.experiment, origin_of("amp-train")) {}
    Dataset data;
    Experiment experiment;
};

/// Trains. `quiet`: of several ranks only the first shows progress.
void train(const TrainToolOptions& options, Job& job, bool quiet) {
    const TrainOptions& o = options.runs.front();
    ProgressLine progress(job.experiment.steps());
    const std::int64_t examples = o.batch * o.micro_batches * o.replicas;
    const bool tokens = job.data.vocabulary > 0;
    while (!job.experiment.finished()) {
        job.experiment.step();
        if (!quiet)
            progress.show(job.experiment, options.experiment.steps,
                          tokens ? examples * element_count(job.data.input) : examples, tokens ? "tokens" : "examples");
    }
}

int report(const TrainToolOptions& options, Job& job) {
    const TrainOptions& o = options.runs.front();
    const std::vector<Outcome> outcomes = finish(job.experiment, options.experiment);
    if (!options.json.empty()) write_report(options.json, json_text(json_of(outcomes, job.data, options.experiment)));
    if (options.json != "-")
        print_document(document_of(outcomes, options.experiment,
                                   fmt::format("{} on {}: {}, batches of {}, seed {}", o.model.name, job.data.name,
                                               plural(static_cast<std::uint64_t>(options.experiment.steps), "step"),
                                               o.batch * o.micro_batches * o.replicas, o.seed)));
    return 0;
}

void warn(const Job& job) {
    for (const std::string& warning : job.experiment.warnings()) complain("warning: " + warning);
}

int train_alone(const TrainToolOptions& options) {
    Job job = as_asked(options, [&] { return Job(options); });
    warn(job);
    train(options, job, false);
    return report(options, job);
}

/// Makes the job of one of several ranks. Throws UsageError, or what dataset_of() and Experiment throw.
void make_job(const TrainToolOptions& options, const RankGroup& group, std::optional<Job>& job) {
    if (options.runs.front().replicas != group.replicas())
        throw UsageError(
            fmt::format("started as {0} ranks: expected --replicas {0}, one on each, or --alone", group.replicas()));
    as_asked(options, [&] { return job.emplace(options).experiment.steps(); });
}

/// Tells what is wrong on which ranks, each thing once. Returns whether something is.
bool tell_problems(const std::vector<std::string>& of_ranks, bool quiet) {
    std::set<std::string> told = {""};
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
        if (told.insert(of_ranks[rank]).second && !quiet)
            complain(rank == 0 ? of_ranks[rank] : fmt::format("rank {}: {}", rank, of_ranks[rank]));
    return told.size() > 1;
}

/// Trains with one replica on each of the ranks that mpirun or srun has started.
int train_with_ranks(TrainToolOptions options) {
    const std::unique_ptr<Ranks> ranks = join_ranks();
    const bool first = ranks->rank() == 0;
    RankGroup group(*ranks);
    options.experiment.group = &group;
    options.experiment.group_records = !options.experiment.record.empty();
    if (!first) options.experiment.record.clear();
    std::optional<Job> job;
    std::string problem;
    int code = 1; // of all ranks, if one of them has a problem
    try {
        make_job(options, group, job);
    } catch (const UsageError& error) {
        problem = error.what();
        code = 2;
    } catch (const std::exception& error) {
        problem = error.what();
    }
    if (tell_problems(group.gather(problem), !first)) return code;
    try {
        if (first) warn(*job);
        job->experiment.begin_together();
        train(options, *job, !first);
        return first ? report(options, *job) : 0;
    } catch (const std::exception& error) { // the others would wait for this rank
        complain(error.what());
        ranks->abort(1);
    }
}

int run(const TrainToolOptions& options) {
    const bool alone = options.alone || launched_ranks() == 1, first = alone || launched_rank() == 0;
    for (const std::string& line : options.notes)
        if (first) complain("warning: " + line);
    if (!first && (!options.evaluate.empty() || options.explain || options.memory)) return 0; // the first rank answers
    if (!options.evaluate.empty()) return as_asked(options, [&] { return evaluate(options); });
    if (options.explain || options.memory)
        return as_asked(options, [&] { return explain(options, dataset_of(options, options.runs.front())); });
    return alone ? train_alone(options) : train_with_ranks(options);
}

} // namespace

int main(int argc, char** argv) {
    return exit_code(complain, [&] {
        TrainToolOptions options;
        if (const std::optional<int> exit = parse_train_command(argc, argv, options)) return *exit;
        return run(options);
    });
}
