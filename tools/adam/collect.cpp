#include <ampscope/tools/adam/collect.h>

#include <ampscope/formats/policy.h>
#include <ampscope/sim/analysis/number_reader.h>
#include <ampscope/sim/io/step_log.h>
#include <ampscope/sim/parallel.h>
#include <ampscope/tools/chart/terminal.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace amp {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t block = 1 << 16; // elements at a time

/// The optimizer of a run, as far as run.json says.
OptimizerOptions optimizer_of(const Json& run, const AdamToolOptions& options) {
    OptimizerOptions o = options.optimizer.value_or(optimizer("adamw").options);
    const Json recorded = run.is_object() ? run.value("optimizer", Json()) : Json();
    const auto number = [&](const char* key, double& value) {
        if (recorded.is_object() && recorded.contains(key) && recorded[key].is_number()) value = recorded[key];
    };
    if (!options.optimizer && recorded.is_object() && recorded.contains("order")) {
        o.order = parse_name<OptimizerOrder>("order", optimizer_order_names, recorded.value("order", ""));
        o.kind = parse_name<OptimizerKind>("kind", optimizer_kind_names, recorded.value("kind", "adamw"));
        if (o.kind == OptimizerKind::sgd)
            throw std::invalid_argument("the run's optimizer is SGD, which has no eps: name one by --optimizer");
    }
    number("lr", o.learning_rate);
    number("beta1", o.beta1);
    number("beta2", o.beta2);
    number("eps", o.eps);
    number("weight_decay", o.weight_decay);
    if (options.learning_rate) o.learning_rate = *options.learning_rate;
    if (options.beta1) o.beta1 = *options.beta1;
    if (options.beta2) o.beta2 = *options.beta2;
    if (options.usual_eps) o.eps = *options.usual_eps;
    return o;
}

/// The gradients of one parameter, by step.
using Series = std::vector<const RecordedTensor*>;

/// Where a part of a history is read from.
struct Source {
    std::vector<std::unique_ptr<TensorFile>> files; ///< of the gradients
    std::vector<NumberReader> gradients;
    std::vector<double> scales;
    std::vector<std::int64_t> repeats;
    std::unique_ptr<TensorFile> state;
    std::vector<NumberReader> weight, m, v; ///< one each, or none
    std::int64_t first = 1;

    [[nodiscard]] bool is_stream() const {
        const auto stream = [](const NumberReader& r) { return r.is_stream(); };
        return std::ranges::any_of(gradients, stream) || std::ranges::any_of(weight, stream);
    }
};

std::vector<float> floats(const NumberReader& reader, std::uint64_t begin, std::uint64_t end, double scale) {
    std::vector<float> values;
    for (const StoredNumber& n : reader.read(begin, end)) values.push_back(static_cast<float>(n.value / scale));
    return values;
}

/// "h.0.weight" of "h.0.weight.grad".
std::string parameter_of(const std::string& gradient) {
    return gradient.ends_with(".grad") ? gradient.substr(0, gradient.size() - 5) : gradient;
}

/// The state before a step: weight, m and v of one parameter, where the folder has them.
void open_state(const fs::path& folder, std::int64_t step, const std::string& parameter, Source& source) {
    source.state = open_tensor_file(folder / fmt::format("state/step_{:06}.safetensors", step));
    const auto reader = [&](const std::string& name, std::vector<NumberReader>& to) {
        const auto& tensors = source.state->tensors();
        const auto found = std::ranges::find(tensors, name, &TensorEntry::name);
        if (found == tensors.end() || found->count != source.gradients.back().numbers()) return;
        to.emplace_back(*source.state, static_cast<std::size_t>(found - tensors.begin()));
    };
    reader(parameter, source.weight);
    reader(parameter + ".m", source.m);
    reader(parameter + ".v", source.v);
    if (source.m.empty() || source.v.empty()) throw FileError(source.state->path(), "holds no state of " + parameter);
}

class Collector {
  public:
    Collector(const fs::path& path, const AdamToolOptions& options) : path_(path), options_(options) {
        findings_.name = path.string();
        const Json run = read_run_configuration(path);
        const OptimizerOptions o = optimizer_of(run, options);
        findings_.question = {.options = o, .eps = options.eps, .states = options.states, .weights = options.weights};
        std::vector<double>& eps = findings_.question.eps;
        if (std::ranges::find(eps, o.eps) == eps.end())
            eps.insert(std::ranges::upper_bound(eps, o.eps, std::greater<>()), o.eps);
        findings_.question.usual_eps = static_cast<std::size_t>(std::ranges::find(eps, o.eps) - eps.begin());
    }

    AdamFindings run() {
        const Recording recording = find_tensors({path_});
        findings_.warnings = recording.warnings;
        findings_.warnings.insert(findings_.warnings.end(), recording.errors.begin(), recording.errors.end());
        std::map<std::string, Series> by_name;
        std::vector<std::string> names;
        for (const RecordedTensor& t : recording.tensors) {
            const bool asked = !options_.tensor || std::regex_search(t.entry.name.substr(0, 1000), *options_.tensor);
            if (t.kind != GradientKind::weight || !asked || (options_.step && t.step && *t.step > *options_.step))
                continue;
            if (by_name[t.entry.name].empty()) names.push_back(t.entry.name);
            by_name[t.entry.name].push_back(&t);
        }
        if (names.empty()) throw FileError(path_, "holds no weights' gradients that the options select");
        judge(by_name);
        std::uint64_t work = 0;
        for (const auto& [name, series] : by_name) work += series.back()->entry.count;
        ProgressBar bar(work);
        for (const std::string& name : names) {
            try {
                measure(name, by_name[name], bar);
            } catch (const FileError& error) {
                findings_.warnings.emplace_back(error.what());
            }
        }
        if (findings_.tensors.empty()) throw std::runtime_error(findings_.warnings.back());
        return std::move(findings_);
    }

  private:
    /// How the state is known: alike for all tensors.
    void judge(std::map<std::string, Series>& by_name) {
        std::int64_t last = -1;
        for (auto& [name, series] : by_name) {
            std::ranges::stable_sort(series, {}, [](const RecordedTensor* t) { return t->step; });
            last = std::max(last, series.back()->step.value_or(-1));
        }
        if (last >= 0) findings_.step = last;
        const Series& series = by_name.begin()->second;
        const auto count = static_cast<std::int64_t>(series.size());
        std::error_code none;
        if (last >= 0 && fs::exists(path_ / fmt::format("state/step_{:06}.safetensors", last), none))
            findings_.basis = AdamBasis::recorded;
        else if (series.front()->step == 0 && last == count - 1) findings_.basis = AdamBasis::contiguous;
        else findings_.basis = count > 1 ? AdamBasis::held : AdamBasis::stationary;
    }

    Source open(const std::string& name, const Series& series) const {
        Source source;
        const bool recorded = findings_.basis == AdamBasis::recorded;
        for (std::size_t i = recorded ? series.size() - 1 : 0; i < series.size(); ++i) {
            const RecordedTensor& t = *series[i];
            if (t.entry.count != series.back()->entry.count)
                throw FileError(t.file, name + ": its size changes from step to step");
            source.files.push_back(open_tensor_file(t.file));
            source.gradients.emplace_back(*source.files.back(), t.index);
            source.scales.push_back(t.recorded_scale);
            const bool last = i + 1 == series.size();
            source.repeats.push_back(findings_.basis == AdamBasis::stationary ? options_.assumed_steps
                                     : last                                   ? 1
                                                                              : *series[i + 1]->step - *t.step);
        }
        if (recorded) {
            source.first = updates_before(*findings_.step) + 1;
            open_state(path_, *findings_.step, parameter_of(name), source);
        }
        return source;
    }

    /// Steps that were not skipped before one.
    [[nodiscard]] std::int64_t updates_before(std::int64_t step) const {
        std::int64_t skipped = 0;
        try {
            for (const StepMetrics& m : read_step_log(path_).steps)
                skipped += m.step < step && m.found_inf.value_or(false);
        } catch (const FileError&) { // no log: no step was skipped as far as is known
        }
        return step - skipped;
    }

    void measure(const std::string& name, const Series& series, ProgressBar& bar) {
        const Source source = open(name, series);
        const std::uint64_t numbers = source.gradients.back().numbers();
        std::vector<AdamEffects> parts((numbers + block - 1) / block);
        for_each_chunk(numbers, block, source.is_stream() ? 1 : options_.threads,
                       [&](std::uint64_t begin, std::uint64_t end) {
                           AdamHistory h;
                           h.first = source.first;
                           h.repeats = source.repeats;
                           for (std::size_t i = 0; i < source.gradients.size(); ++i)
                               h.gradients.push_back(floats(source.gradients[i], begin, end, source.scales[i]));
                           if (!source.weight.empty()) h.weight = floats(source.weight.front(), begin, end, 1);
                           if (!source.m.empty()) h.m = floats(source.m.front(), begin, end, 1);
                           if (!source.v.empty()) h.v = floats(source.v.front(), begin, end, 1);
                           parts[begin / block] = adam_effects(findings_.question, h);
                           bar.add(end - begin);
                       });
        AdamTensor tensor{name, {}};
        for (const AdamEffects& part : parts) tensor.effects.merge(part);
        findings_.total.merge(tensor.effects);
        findings_.tensors.push_back(std::move(tensor));
    }

    fs::path path_;
    const AdamToolOptions& options_;
    AdamFindings findings_;
};

} // namespace

std::string_view name_of(AdamBasis basis) {
    constexpr std::array<std::string_view, 4> names = {"recorded", "contiguous", "held", "stationary"};
    return names[static_cast<std::size_t>(basis)];
}

AdamFindings collect(const fs::path& path, const AdamToolOptions& options) {
    std::error_code none;
    if (!fs::exists(path, none)) throw FileError(path, "does not exist");
    return Collector(path, options).run();
}

} // namespace amp
