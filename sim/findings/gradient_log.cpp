#include <ampscope/sim/findings/gradient_log.h>

#include <ampscope/formats/codec.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/analysis/measure.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/folder.h>
#include <ampscope/sim/io/recording.h>
#include <ampscope/sim/io/run_facts.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/text_file.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace amp {

namespace {

namespace fs = std::filesystem;

std::string described(const RunFacts& run) {
    if (run.loss_scaler.empty()) return run.precision;
    return run.precision + (run.precision.empty() ? "" : ", ") + "loss scaler " + run.loss_scaler;
}

/// Whether a loss of NaN is that of its step alone: a running mean stays NaN while gradients are finite again.
bool losses_are_of_steps(const std::vector<StepMetrics>& steps) {
    return std::ranges::none_of(
        steps, [](const StepMetrics& m) { return m.loss && std::isnan(*m.loss) && m.found_inf == false; });
}

/// What the log says about one step. `same_format`: gradients were recorded in the format of the replay. `own_loss`:
/// the loss is that of the step.
GradientStep step_of(const StepMetrics& m, bool same_format, bool own_loss) {
    GradientStep step;
    step.step = m.step;
    step.hidden = !m.found_inf && !m.amax_weight && !m.amax_activation; // the line says nothing about gradients
    const double weight = m.amax_weight.value_or(0), activation = m.amax_activation.value_or(0);
    step.amax = std::max(weight, activation);
    if (m.amax_activation) step.largest = activation > weight ? "activations' gradients" : "weights' gradients";
    constexpr double some_scale = std::numeric_limits<double>::max(); // it overflowed, but under an unknown scale
    if (m.found_inf && *m.found_inf) step.overflow_scale = m.scale.value_or(some_scale);
    if (m.found_inf && *m.found_inf && own_loss && m.loss && std::isnan(*m.loss)) step.overflow_scale = 0;
    if (m.found_inf && !*m.found_inf && m.scale && same_format) step.clean_scale = *m.scale;
    return step;
}

/// For a log with overflows but no scale: the scales of the scaler it was recorded under.
void reconstruct_scales(std::vector<StepMetrics>& steps, const NamedScaler& under, GradientLog& log) {
    LossScalerState state = initial_state(under.options);
    for (StepMetrics& m : steps) {
        m.scale = state.scale;
        state = update_scale(under.options, state, m.found_inf.value_or(false)).state;
    }
    log.warnings.push_back(
        fmt::format("{}: has no loss scale; taken for that of {} over these overflows", log.name, under.name));
}

/// Adds a tensor's recorded magnitudes to those of its step.
void add_histogram(GradientStep& step, const RecordedMagnitudes& h, double& most, GradientLog& log) {
    const std::optional<int> log2 = exact_log2(h.scale);
    if (!log2) {
        log.warnings.push_back(
            fmt::format("{}: step {}, {}: recorded under {}, no power of two: its histogram is left out", log.name,
                        step.step, h.tensor, h.scale));
        return;
    }
    step.hidden = false;
    const MagnitudeHistogram magnitudes = h.magnitudes.scaled(-*log2);
    step.magnitudes.merge(magnitudes);
    step.censoring.merge(h.censoring);
    // The largest tensor, compared by binades; one that overflowed is larger than all others.
    const double top = h.magnitudes.inf + h.magnitudes.nan > 0 ? HUGE_VAL
                       : magnitudes.rows.empty()               ? 0
                                                               : std::ldexp(1.0, magnitudes.rows.rbegin()->first);
    if (top <= most) return;
    most = top;
    step.largest = h.tensor;
}

/// Inserts the steps of which nothing is known, since their lines cannot be read.
void add_hidden(const std::vector<std::int64_t>& hidden, GradientLog& log) {
    const auto lines = static_cast<std::ptrdiff_t>(log.steps.size());
    const std::ptrdiff_t silent = std::ranges::count_if(log.steps, &GradientStep::hidden);
    log.recorded_steps = lines - silent;
    if (silent > 0)
        log.warnings.push_back(fmt::format("{}: {} without a word of gradients, the first is step {}: whether they "
                                           "overflowed is unknown",
                                           log.name, plural(static_cast<std::uint64_t>(silent), "step"),
                                           std::ranges::find_if(log.steps, &GradientStep::hidden)->step));
    for (const std::int64_t step : hidden) log.steps.push_back({.step = step, .hidden = true});
    std::ranges::inplace_merge(log.steps, log.steps.begin() + lines, {}, &GradientStep::step);
    for (std::size_t i = 0; i < log.steps.size(); ++i) {
        const std::int64_t next = i + 1 < log.steps.size() ? log.steps[i + 1].step : log.steps[i].step + 1;
        if (log.steps[i].hidden) log.hidden_steps += next - log.steps[i].step;
    }
}

void read_histograms(const fs::path& folder, GradientLog& log, const Progress& progress) {
    std::map<std::int64_t, double> most;
    const auto add = [&](const RecordedMagnitudes& h) {
        if (!is_gradient(h.kind)) return;
        const auto at = std::ranges::lower_bound(log.steps, h.step, {}, &GradientStep::step);
        if (at != log.steps.end() && at->step == h.step) add_histogram(*at, h, most[at->step], log);
    };
    try {
        read_histogram_log(folder / run_layout::histograms, add, log.warnings, progress);
    } catch (const FileError& error) {
        log.errors.emplace_back(error.what());
    }
}

void note_scales(const std::vector<StepMetrics>& steps, GradientLog& log) {
    for (const StepMetrics& m : steps) {
        if (m.scale && (log.scales.empty() || log.scales.back().scale != *m.scale))
            log.scales.push_back({m.step, *m.scale});
        if (m.found_inf.value_or(false)) log.skipped.push_back(m.step);
    }
}

GradientLog read_log(const fs::path& path, const GradientLogOptions& options, const Watch& watch) {
    GradientLog log;
    log.name = path.string();
    std::error_code none;
    const bool folder = fs::is_directory(path, none);
    const RunFacts run = folder ? run_facts(read_run_configuration(path)) : RunFacts();
    const Progress progress =
        begin(watch, folder ? file_bytes(path / run_layout::metrics) + file_bytes(path / run_layout::histograms)
                            : file_bytes(path));
    StepLog read = read_step_log(path, options.columns, progress);
    log.warnings = std::move(read.warnings);
    log.recorded = described(run);
    const bool has_inf = std::ranges::any_of(read.steps, [](const StepMetrics& m) { return m.found_inf.has_value(); });
    const bool has_scale = std::ranges::any_of(read.steps, [](const StepMetrics& m) { return m.scale.has_value(); });
    if (has_inf && !has_scale) reconstruct_scales(read.steps, options.recorded_under, log);
    log.backward = run.backward_format();
    const bool same = folder ? log.backward == options.format.name : has_scale || has_inf;
    const bool own_loss = losses_are_of_steps(read.steps);
    for (const StepMetrics& m : read.steps) log.steps.push_back(step_of(m, same, own_loss));
    const auto contradicts = [&](const GradientStep& step) {
        return step.clean_scale > 0 && !std::isfinite(quantize(options.format, step.clean_scale * step.amax));
    };
    if (const auto found = std::ranges::find_if(log.steps, contradicts); found != log.steps.end())
        log.warnings.push_back(fmt::format("{}: step {}: {} times the scale overflows, but the step did not: do the "
                                           "magnitudes still contain the scale (--amax-scaled)?",
                                           log.name, found->step, found->amax));
    note_scales(read.steps, log);
    if (folder) read_histograms(path, log, progress);
    add_hidden(read.hidden, log);
    return log;
}

/// Measures gradients in files.
GradientLog read_recording(const fs::path& path, const GradientLogOptions& options, const Watch& watch) {
    GradientLog log;
    log.name = path.string();
    Recording recording = find_tensors({path}, {}, {.recorded_scale = options.recorded_scale});
    std::erase_if(recording.tensors, [](const RecordedTensor& t) { return !is_gradient(t.kind); });
    std::set<std::string_view> stored;
    for (const RecordedTensor& t : recording.tensors) stored.insert(t.entry.stored().format);
    log.recorded = fmt::format("gradients in files, stored in {}", fmt::join(stored, " and "));
    log.warnings = recording.warnings;
    log.errors = recording.errors;
    std::uint64_t bytes = 0;
    for (const RecordedTensor& t : recording.tensors) bytes += t.entry.bytes;
    const Progress progress = begin(watch, bytes);
    std::map<std::int64_t, GradientStep> steps;
    std::unique_ptr<TensorFile> file;
    for (const RecordedTensor& t : recording.tensors) {
        try {
            if (!file || file->path() != t.file) file = open_tensor_file(t.file);
            const MagnitudeStatistics m = measure_divided(*file, t.index, t.recorded_scale, options.threads, progress);
            GradientStep& step = steps[t.step.value_or(0)];
            step.step = t.step.value_or(0);
            step.magnitudes.merge(m.histogram);
            step.censoring.merge(censoring_of(t, m.histogram, t.recorded_scale));
            const bool overflowed = m.histogram.inf + m.histogram.nan > 0;
            if (overflowed && t.recorded_scale < step.overflow_scale) {
                step.overflow_scale = t.recorded_scale;
                step.largest = t.entry.name;
            }
            if (m.max <= step.amax) continue;
            step.amax = m.max;
            if (!std::isfinite(step.overflow_scale)) step.largest = t.entry.name;
        } catch (const FileError& error) {
            add_error(log.errors, error);
        }
    }
    for (auto& [number, step] : steps) log.steps.push_back(std::move(step));
    log.recorded_steps = static_cast<std::int64_t>(log.steps.size());
    if (log.steps.empty() && !log.errors.empty()) throw RecordingError(log.errors);
    if (log.steps.empty()) throw FileError(path, "holds no gradients and no log of steps");
    return log;
}

} // namespace

NamedScaler named_scaler(const std::string& text) { return {text, scaler_options(text)}; }

std::size_t GradientLog::measured_steps() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(steps, [](const GradientStep& s) { return s.magnitudes.nonzero() > 0; }));
}

bool GradientLog::has_magnitudes() const {
    return std::ranges::any_of(steps, [](const GradientStep& s) { return s.amax > 0 || s.magnitudes.nonzero() > 0; });
}

GradientLog read_gradient_log(const fs::path& path, const GradientLogOptions& options, const Watch& watch) {
    const FloatEnvironment environment;
    require_there(path);
    const std::string extension = path.extension();
    const bool text = extension == ".csv" || extension == ".tsv" || extension == ".jsonl" || extension == ".json" ||
                      extension == ".ndjson" || is_pipe(path);
    if (text || is_there(path / run_layout::metrics)) {
        if (options.recorded_scale)
            throw std::invalid_argument(fmt::format(
                "[loss_scale] recorded_scale: is for gradients in files; {} is a log of its own", path.string()));
        return read_log(path, options, watch);
    }
    return read_recording(path, options, watch);
}

std::vector<fs::path> logged_runs(const fs::path& path, std::vector<std::string>& errors) {
    std::vector<fs::path> runs;
    const auto visit = [&](const fs::path& below, bool is_folder) {
        std::error_code denied;
        const bool is_run = fs::exists(fs::symlink_status(below / run_layout::metrics, denied));
        if (is_folder && denied == std::errc::permission_denied)
            errors.push_back(below.string() + ": cannot be searched: " + denied.message());
        else if (is_folder && is_run) runs.push_back(below);
        return false;
    };
    std::error_code none;
    if (fs::is_directory(path, none) && !is_there(path / run_layout::metrics)) {
        std::vector<std::string> unlisted; // reading the folder itself will report these
        walk_folder(path, visit, unlisted);
    }
    if (runs.empty()) runs.push_back(path);
    return runs;
}

} // namespace amp
