#include <ampscope/sim/findings/recorded_run.h>

#include <ampscope/sim/analysis/measure.h>
#include <ampscope/sim/findings/detail/kind_records.h>
#include <ampscope/sim/io/failure.h>
#include <ampscope/sim/io/folder.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/train/configuration.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

namespace amp {

namespace {

namespace fs = std::filesystem;
namespace layout = run_layout;
using Json = nlohmann::ordered_json;

constexpr std::int64_t most_columns = 64;

/// The format in the name of a cast: "e4m3" for "h.0.mlp.up.weight:e4m3_2".
std::string format_of_cast(const std::string& tensor) {
    const std::string last = tensor.substr(tensor.rfind(':') + 1);
    return last.substr(0, last.find('_'));
}

std::uint64_t count_at(const Json& json, const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

class RunReader {
  public:
    RunReader(const fs::path& path, const std::string& name, const ReadRunOptions& options, const Watch& watch)
        : path_(path), options_(options), watch_(watch), kinds_(options.limit) {
        run_.path = path;
        run_.name = name;
    }

    RecordedRun read_folder() {
        const Progress progress =
            begin(watch_, file_bytes(path_ / layout::metrics) + file_bytes(path_ / layout::histograms));
        attempt([&] { run_.configuration = as_written_now(read_run_configuration(path_)); });
        run_.facts = run_facts(run_.configuration);
        run_.label = run_.facts.precision;
        if (run_.label.empty()) run_.label = (fs::path(run_.name) / "").parent_path().filename();
        if (!is_there(path_ / layout::configuration))
            run_.warnings.push_back(
                fmt::format("{}: has no run.json, which says what was trained and how: its folder's name, {}, is taken "
                            "for its precision; it is compared only with others that have none, as if trained alike",
                            run_.name, run_.label));
        if (options_.recorded_scale)
            run_.warnings.push_back(run_.name + ": states its loss scales itself; --recorded-scale is for gradients in "
                                                "files without a run");
        attempt([&] { read_result(); });
        attempt([&] { read_steps(progress); });
        if (is_there(path_ / layout::histograms))
            attempt([&] { read_histogram_log(path_ / layout::histograms, sink(), run_.warnings, progress); });
        else if (is_there(path_ / layout::gradients)) measure();
        for (const char* file : {layout::configuration, layout::metrics, layout::histograms, layout::result})
            if (std::error_code none; fs::is_regular_file(path_ / file, none))
                run_.files.push_back(hashed(path_ / file, (fs::path(run_.name) / file).string()));
        run_.kinds = kinds_.records(run_.magnitudes, run_.censoring());
        if (run_.steps.empty() && run_.tensors.empty() && !run_.errors.empty()) throw RecordingError(run_.errors);
        if (run_.steps.empty() && run_.tensors.empty())
            throw FileError(run_.name, "holds neither steps nor gradients" +
                                           (run_.warnings.empty() ? "" : " (" + run_.warnings.front() + ")"));
        return std::move(run_);
    }

    RecordedRun read_gradients() {
        run_.label = run_.name;
        run_.recorded_scale = options_.recorded_scale;
        measure();
        run_.kinds = kinds_.records(run_.magnitudes, run_.censoring());
        if (run_.tensors.empty() && !run_.errors.empty()) throw RecordingError(run_.errors);
        if (run_.tensors.empty()) throw FileError(run_.name, "holds no gradients");
        return std::move(run_);
    }

  private:
    template <class Body>
    void attempt(const Body& body) {
        try {
            body();
        } catch (const std::exception&) { // other exceptions of a watch end the work
            run_.errors.push_back(failure_text(path_));
        }
    }

    /// Adds warnings that are not said yet, be it as errors, as of a broken run.json.
    void warn(const std::vector<std::string>& warnings) {
        for (const std::string& warning : warnings)
            if (std::ranges::find(run_.errors, warning) == run_.errors.end() &&
                std::ranges::find(run_.warnings, warning) == run_.warnings.end())
                run_.warnings.push_back(warning);
    }

    void read_result() {
        if (!is_there(path_ / layout::result)) {
            if (run_.facts.tool == "amp-train")
                run_.warnings.push_back(
                    run_.name + ": has no result.json: it has not ended, or was cut off; reported as far as it got");
            return;
        }
        run_.result = read_json_object(path_ / layout::result);
        if (const auto said = run_.result.find("warnings"); said != run_.result.end() && said->is_array())
            for (const Json& line : *said)
                if (line.is_string()) run_.remarks.push_back(run_.name + ": " + line.get<std::string>());
        if (const auto found = run_.result.find("departures"); found != run_.result.end() && found->is_object())
            for (const auto& [kind, d] : found->items()) {
                const std::optional<double> error = number_at(d, "/error");
                if (kind == "error" && !error) continue; // the first inf and NaN tell
                run_.departures.push_back({kind, text_at(d, "/tensor"), text_at(d, "/op"), number_at(d, "/step"),
                                           kind == "error" ? error : std::nullopt});
            }
    }

    void read_steps(const Progress& progress) {
        if (!is_there(path_ / layout::metrics)) {
            run_.warnings.push_back((path_ / layout::metrics).string() + ": does not exist");
            return;
        }
        LogColumns columns;
        columns.losses_suffice = true;
        std::vector<std::pair<std::int64_t, std::vector<ScaledCasts>>> casts; // the columns are only known at the end
        StepLog log = read_step_log(path_, columns, progress, [&](const StepMetrics& step, const Json& line) {
            if (was_skipped(step, line)) run_.skipped.push_back(step.step);
            if (const auto updates = line.find("updates"); updates != line.end() && updates->is_object()) {
                const std::uint64_t lost = count_at(*updates, "lost");
                if (count_at(*updates, "nonfinite") == 0) // else what still changes tells nothing of the format
                    run_.lost_updates += {lost, lost + count_at(*updates, "changed")};
            }
            if (const auto scaling = line.find("scaling"); scaling != line.end() && scaling->is_object())
                casts.emplace_back(step.step, casts_of(*scaling));
        });
        warn(log.warnings);
        run_.steps = std::move(log.steps);
        run_.columns = {run_.steps.front().step, run_.steps.back().step};
        run_.scaled.assign(run_.formats.size(), std::vector<ScaledCasts>(run_.columns.count()));
        for (const auto& [step, by_format] : casts)
            for (std::size_t f = 0; f < by_format.size(); ++f)
                run_.scaled[f][run_.columns.of(step)].merge(by_format[f]);
    }

    /// Counts of the casts with a scale in one step, by format; adds them to the sums of each tensor.
    std::vector<ScaledCasts> casts_of(const Json& scaling) {
        std::vector<ScaledCasts> by_format(run_.formats.size());
        for (const auto& [tensor, values] : scaling.items()) {
            if (!values.is_object()) continue;
            ScaledTensor& sum = scaled_tensor(tensor);
            const auto at = std::ranges::find(run_.formats, sum.format) - run_.formats.begin();
            by_format.resize(run_.formats.size());
            ScaledCasts casts{.nonzero = count_at(values, "nonzero"),
                              .underflow = count_at(values, "underflow"),
                              .saturated = count_at(values, "saturated")};
            const double amax = number_at(values, "/amax").value_or(0);
            const std::optional<double> least = number_at(values, "/least_scale");
            const double scale = least ? *least : number_at(values, "/scale").value_or(0);
            if (amax > 0 && scale > 0)
                casts.least = casts.most = std::log2(amax) + std::log2(scale) - largest_log2_[sum.format];
            by_format[static_cast<std::size_t>(at)].merge(casts);
            sum.nonzero += casts.nonzero;
            sum.underflow += casts.underflow;
            sum.saturated += casts.saturated;
            sum.amax = std::max(sum.amax, amax);
        }
        return by_format;
    }

    ScaledTensor& scaled_tensor(const std::string& name) {
        const auto [found, is_new] = scaled_index_.try_emplace(name, run_.scaled_tensors.size());
        if (!is_new) return run_.scaled_tensors[found->second];
        const std::string cast = format_of_cast(name);
        const auto known =
            std::ranges::find(formats, cast, [](const FormatSpec& f) { return std::string_view(f.name); });
        if (std::ranges::find(run_.formats, cast) == run_.formats.end()) {
            run_.formats.push_back(cast);
            largest_log2_[cast] = known == formats.end() ? 0 : std::log2(double{decode(*known, known->max_code())});
        }
        return run_.scaled_tensors.emplace_back(ScaledTensor{.name = name, .format = cast});
    }

    MagnitudesSink sink() {
        return [this](const RecordedMagnitudes& m) { add(m); };
    }

    void add(const RecordedMagnitudes& m) {
        const std::optional<int> log2 = exact_log2(m.scale);
        if (!log2) {
            if (!std::exchange(scale_is_odd_, true))
                run_.warnings.push_back(
                    fmt::format("{}: step {}, {}: recorded under {}, no power of two; left out, as are others like it",
                                run_.name, m.step, m.tensor, m.scale));
            return;
        }
        const MagnitudeHistogram magnitudes = *log2 == 0 ? m.magnitudes : m.magnitudes.scaled(-*log2);
        kinds_.add(m.kind, m.tensor, magnitudes);
        if (is_gradient(m.kind)) add_gradient(m, magnitudes);
    }

    void add_gradient(const RecordedMagnitudes& m, const MagnitudeHistogram& magnitudes) {
        const auto [found, is_new] = index_.try_emplace(m.tensor, run_.tensors.size());
        if (is_new)
            run_.tensors.push_back(
                {.name = m.tensor, .layer = layer_of(m.tensor), .kind = m.kind, .counts = {}, .zeroed = {}});
        TensorRecord& tensor = run_.tensors[found->second];
        tensor.counts.add(magnitudes);
        run_.magnitudes.merge(magnitudes);
        tensor.censoring.merge(m.censoring);
        if (magnitudes.nan + magnitudes.inf > 0 && m.scale * m.divided <= 1) note_nonfinite(m);
        run_.recorded.resize(run_.columns.count());
        std::optional<std::int64_t>& first = run_.recorded[run_.columns.of(m.step)];
        first = std::min(m.step, first.value_or(m.step));
        for (std::size_t f = 0; f < followed_formats.size(); ++f) {
            std::vector<Share>& shares = tensor.zeroed[f];
            shares.resize(run_.columns.count());
            shares[run_.columns.of(m.step)] +=
                {magnitudes.classify(format(followed_formats[f]), 0).underflow, magnitudes.nonzero()};
        }
    }

    void note_nonfinite(const RecordedMagnitudes& m) {
        if (std::ranges::binary_search(run_.skipped, m.step)) return;
        NonfiniteRecord& all = run_.nonfinite;
        const bool is_first = all.steps.empty() || m.step < *all.steps.begin();
        if (is_first || (m.step == *all.steps.begin() && m.tensor < all.first)) all.first = m.tensor;
        all.steps.insert(m.step);
    }

    void measure() {
        const Recording recording = find_tensors({path_}, {}, {.recorded_scale = run_.recorded_scale});
        run_.errors.insert(run_.errors.end(), recording.errors.begin(), recording.errors.end());
        warn(recording.warnings);
        run_.scale_stated = std::ranges::all_of(recording.tensors, &RecordedTensor::scale_stated);
        std::uint64_t bytes = 0;
        for (const RecordedTensor& t : recording.tensors) bytes += t.entry.bytes;
        if (run_.steps.empty() && !recording.tensors.empty()) {
            const auto step = [](const RecordedTensor& t) { return t.step.value_or(0); };
            const auto [first, last] = std::ranges::minmax(recording.tensors, {}, step);
            run_.columns = {step(first), step(last)};
        }
        measure_gradients(recording, options_.threads, sink(), run_.errors, begin(watch_, bytes));
        fs::path last;
        for (const RecordedTensor& t : recording.tensors) {
            if (t.file == std::exchange(last, t.file)) continue;
            const fs::path below = t.file == path_ ? fs::path() : t.file.lexically_relative(path_);
            run_.files.push_back(hashed(t.file, (fs::path(run_.name) / below).lexically_normal().string()));
        }
    }

    fs::path path_;
    const ReadRunOptions& options_;
    const Watch& watch_;
    detail::KindRecords kinds_;
    RecordedRun run_;
    bool scale_is_odd_ = false; ///< a histogram was left out because of its scale
    std::unordered_map<std::string, std::size_t> index_, scaled_index_;
    std::unordered_map<std::string, double> largest_log2_; ///< log2 of the largest value, by format
};

} // namespace

void GradientCounts::add(const MagnitudeHistogram& magnitudes) {
    for (const auto& [exponent, n] : magnitudes.exponents()) binades.add(exponent, n);
    binades.zero += magnitudes.zero;
    binades.infinite += magnitudes.inf;
    nonzero += magnitudes.nonzero();
    nan += magnitudes.nan;
    for (std::size_t f = 0; f < underflow.size(); ++f) underflow[f] += magnitudes.classify(usual_specs[f], 0).underflow;
}

void GradientCounts::merge(const GradientCounts& other) {
    binades.merge(other.binades);
    nonzero += other.nonzero;
    nan += other.nan;
    for (std::size_t f = 0; f < underflow.size(); ++f) underflow[f] += other.underflow[f];
}

void ScaledCasts::merge(const ScaledCasts& other) {
    nonzero += other.nonzero;
    underflow += other.underflow;
    saturated += other.saturated;
    least = std::min(least, other.least);
    most = std::max(most, other.most);
}

std::string GradientCounts::range() const {
    const auto& bins = binades.bins;
    return bins.empty() ? "-" : fmt::format("2^{} to 2^{}", bins.front().first, bins.back().first + 1);
}

std::size_t StepColumns::count() const { return static_cast<std::size_t>(std::min(most_columns, last - first + 1)); }

std::size_t StepColumns::of(std::int64_t step) const {
    const std::int64_t at = std::clamp(step, first, last) - first;
    const auto column = static_cast<std::size_t>(static_cast<double>(at) * static_cast<double>(count()) /
                                                 static_cast<double>(last - first + 1));
    return std::min(column, count() - 1); // the quotient may have been rounded up
}

std::int64_t StepColumns::begin(std::size_t column) const {
    const double span = static_cast<double>(last - first + 1);
    return first +
           static_cast<std::int64_t>(std::ceil(static_cast<double>(column) * span / static_cast<double>(count())));
}

std::optional<double> RecordedRun::final_loss() const {
    std::vector<double> losses;
    for (const StepMetrics& m : steps)
        if (m.loss) losses.push_back(*m.loss);
    if (losses.empty()) return std::nullopt;
    return final_loss_of(losses);
}

std::optional<std::int64_t> RecordedRun::broken_at() const {
    const auto found =
        std::ranges::find_if(steps, [](const StepMetrics& m) { return m.loss && !std::isfinite(*m.loss); });
    return found == steps.end() ? std::nullopt : std::optional(found->step);
}

ScaledCasts RecordedRun::all_scaled(std::size_t f) const {
    ScaledCasts sum;
    for (const ScaledCasts& casts : scaled[f]) sum.merge(casts);
    return sum;
}

std::vector<const TensorRecord*> RecordedRun::most_underflow_first() const {
    std::vector<const TensorRecord*> ranked;
    for (const TensorRecord& t : tensors) ranked.push_back(&t);
    std::ranges::stable_sort(ranked, std::greater<>(),
                             [](const TensorRecord* t) { return t->counts.zeroed(0).rate(); });
    return ranked;
}

std::vector<const ScaledTensor*> RecordedRun::most_saturated_first() const {
    std::vector<const ScaledTensor*> ranked;
    for (const ScaledTensor& t : scaled_tensors)
        if (t.saturated + t.underflow > 0) ranked.push_back(&t);
    std::ranges::stable_sort(ranked, std::greater<>(), [](const ScaledTensor* t) {
        return std::pair(Share{t->saturated, t->nonzero}.rate(), Share{t->underflow, t->nonzero}.rate());
    });
    return ranked;
}

Censoring RecordedRun::censoring() const {
    Censoring all;
    for (const TensorRecord& tensor : tensors) all.merge(tensor.censoring);
    return all;
}

std::vector<fs::path> find_runs(const fs::path& path, std::vector<std::string>& errors) {
    require_there(path);
    const auto is_run = [](const fs::path& p) {
        return is_there(p / layout::configuration) || is_there(p / layout::metrics);
    };
    if (is_run(path)) return {path};
    std::vector<fs::path> runs;
    const auto visit = [&](const fs::path& below, bool is_folder) {
        if (!is_folder || !is_run(below)) return true;
        runs.push_back(below);
        return false;
    };
    const std::size_t before = errors.size();
    if (std::error_code none; fs::is_directory(path, none)) walk_folder(path, visit, errors);
    if (!runs.empty()) return runs;
    errors.resize(before); // reading the gradients will report them again
    return {path};
}

fs::path only_run(const fs::path& path) {
    std::vector<std::string> unlisted; // reading the folder will report these
    const std::vector<fs::path> runs = find_runs(path, unlisted);
    if (runs.size() == 1) return runs.front();
    std::vector<std::string> names;
    for (const fs::path& run : runs) names.push_back(run.lexically_relative(path).string());
    constexpr std::size_t most = 6;
    if (names.size() > most) {
        names.resize(most);
        names.emplace_back("...");
    }
    throw FileError(path,
                    fmt::format("holds {} runs, each of its own; name one: {}", runs.size(), fmt::join(names, ", ")));
}

RecordedRun read_run(const fs::path& path, const std::string& name, const ReadRunOptions& options, const Watch& watch) {
    RunReader reader(path, name, options, watch);
    const bool folder = is_there(path / layout::configuration) || is_there(path / layout::metrics);
    return folder ? reader.read_folder() : reader.read_gradients();
}

} // namespace amp
