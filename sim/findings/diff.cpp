#include <ampscope/sim/findings/diff.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/detail/recorded_state.h>
#include <ampscope/sim/findings/selection.h>
#include <ampscope/sim/io/step_log.h>
#include <ampscope/sim/train/configuration.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <tuple>

namespace amp {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t listed_differences = 8; // limit for differences between configurations

/// The two paths that are compared.
struct Paths {
    const fs::path &a, &b;
};

/// The files of one recording; only one is open at a time.
class OpenFile {
  public:
    const TensorFile& operator()(const fs::path& path, const OpenOptions& options) {
        if (!file_ || file_->path() != path) file_ = open_tensor_file(path, options);
        return *file_;
    }

  private:
    std::unique_ptr<TensorFile> file_;
};

std::string described(const RecordedTensor& t) {
    return t.step ? fmt::format("{}, step {}", t.entry.name, *t.step) : t.entry.name;
}

using Pair = std::pair<const RecordedTensor*, const RecordedTensor*>;

/// Pairs, and removes from both lists, the tensors whose key(tensor, path of their recording) occurs exactly once on
/// each side.
template <class Key>
void pair_by(const Paths& paths, std::vector<const RecordedTensor*>& a, std::vector<const RecordedTensor*>& b,
             std::vector<Pair>& pairs, const Key& key) {
    std::map<decltype(key(*a.front(), paths.a)),
             std::pair<std::vector<const RecordedTensor*>, std::vector<const RecordedTensor*>>>
        by;
    for (const RecordedTensor* t : a) by[key(*t, paths.a)].first.push_back(t);
    for (const RecordedTensor* t : b) by[key(*t, paths.b)].second.push_back(t);
    const auto pair_of = [&](const RecordedTensor* t, const fs::path& root) -> std::optional<Pair> {
        const auto& [x, y] = by[key(*t, root)];
        return x.size() == 1 && y.size() == 1 ? std::optional(Pair{x.front(), y.front()}) : std::nullopt;
    };
    for (const RecordedTensor* t : a)
        if (const std::optional<Pair> pair = pair_of(t, paths.a)) pairs.push_back(*pair);
    std::erase_if(a, [&](const RecordedTensor* t) { return pair_of(t, paths.a).has_value(); });
    std::erase_if(b, [&](const RecordedTensor* t) { return pair_of(t, paths.b).has_value(); });
}

/// What is to be said of pairs of different steps.
std::vector<std::string> notes_on_steps(std::span<const Pair> pairs) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t> counts;
    for (const auto& [a, b] : pairs)
        if (a->step && b->step && a->step != b->step) ++counts[{*a->step, *b->step}];
    std::vector<std::string> notes;
    for (const auto& [steps, n] : counts)
        notes.push_back(fmt::format("{}: A's step {} is compared with B's step {}, as neither has the other's step",
                                    plural(n, "tensor"), steps.first, steps.second));
    return notes;
}

std::vector<Pair> pair_up(const Paths& paths, const Recording& a, const Recording& b, DiffFindings& findings) {
    std::vector<const RecordedTensor*> left, right;
    for (const RecordedTensor& t : a.tensors) left.push_back(&t);
    for (const RecordedTensor& t : b.tensors) right.push_back(&t);
    std::vector<Pair> pairs;
    if (left.size() == 1 && right.size() == 1) {
        pairs.emplace_back(left.front(), right.front());
        left.clear();
        right.clear();
    }
    pair_by(paths, left, right, pairs, [](const RecordedTensor& t, const fs::path& root) {
        return std::tuple(t.file.lexically_relative(root).string(), t.entry.name, t.step);
    });
    pair_by(paths, left, right, pairs,
            [](const RecordedTensor& t, const fs::path&) { return std::pair(t.entry.name, t.step); });
    pair_by(paths, left, right, pairs, [](const RecordedTensor& t, const fs::path&) { return t.entry.name; });
    findings.notes = notes_on_steps(pairs);
    for (const RecordedTensor* t : left) findings.only_a.push_back(described(*t));
    for (const RecordedTensor* t : right) findings.only_b.push_back(described(*t));
    std::ranges::stable_sort(pairs, {}, [](const Pair& p) { return p.first->step; });
    return pairs;
}

Recording read(const fs::path& path, const DiffOptions& options, DiffFindings& findings) {
    Recording recording = find_tensors({path}, options.open);
    for (const std::string& error : recording.errors) // both sides may be the same folder
        if (std::ranges::find(findings.errors, error) == findings.errors.end()) findings.errors.push_back(error);
    findings.warnings.insert(findings.warnings.end(), recording.warnings.begin(), recording.warnings.end());
    return recording;
}

void compare(const std::vector<Pair>& pairs, const DiffOptions& options, const Watch& watch, DiffFindings& findings) {
    std::uint64_t numbers = 0;
    for (const auto& [a, b] : pairs) numbers += a->entry.count;
    const Progress progress = begin(watch, numbers);
    OpenFile open_a, open_b;
    for (const auto& [a, b] : pairs) {
        try {
            const DiffSide x{open_a(a->file, options.open), a->index, options.a_scale.value_or(a->recorded_scale)};
            const DiffSide y{open_b(b->file, options.open), b->index, options.b_scale.value_or(b->recorded_scale)};
            PairedTensor pair{.name = a->entry.name,
                              .step = a->step,
                              .kind = a->kind,
                              .a_dtype = std::string(a->entry.stored().name),
                              .b_dtype = std::string(b->entry.stored().name),
                              .shape = a->entry.shape,
                              .diff = compare_tensors(x, y, options.worst, options.threads, progress)};
            if (a->entry.shape != b->entry.shape)
                findings.warnings.push_back(pair.name + ": shapes differ; compared element by element");
            findings.pairs.push_back(std::move(pair));
        } catch (const FileError& error) {
            add_error(findings.errors, error);
        }
    }
}

/// Compares the states before a step, tensor by tensor; std::nullopt if one of the runs did not record it.
std::optional<TensorDiff> state_diff(const Paths& paths, std::int64_t step, int threads, const Watch& watch) {
    const fs::path at_a = detail::recorded_state(paths.a, step), at_b = detail::recorded_state(paths.b, step);
    std::error_code none;
    if (!fs::exists(at_a, none) || !fs::exists(at_b, none)) return std::nullopt;
    const auto a = open_tensor_file(at_a), b = open_tensor_file(at_b);
    std::uint64_t numbers = 0;
    for (const TensorEntry& t : a->tensors()) numbers += t.count;
    const Progress progress = begin(watch, numbers);
    TensorDiff total;
    for (std::size_t i = 0; i < a->tensors().size(); ++i) {
        const auto other = std::ranges::find(b->tensors(), a->tensors()[i].name, &TensorEntry::name);
        if (other == b->tensors().end()) continue; // another optimizer's state
        const auto j = static_cast<std::size_t>(other - b->tensors().begin());
        total.merge(compare_tensors({*a, i}, {*b, j}, 0, threads, progress), 0);
    }
    return total;
}

void sum_up_steps(const Paths& paths, int threads, const Watch& watch, DiffFindings& findings) {
    for (const PairedTensor& pair : findings.pairs) {
        if (findings.steps.empty() || findings.steps.back().step != pair.step)
            findings.steps.push_back({.step = pair.step, .diff = {}});
        StepDiff& step = findings.steps.back();
        ++step.tensors;
        step.differing += pair.diff.differing() > 0 ? 1 : 0;
        step.diff.merge(pair.diff, 0);
        findings.total.merge(pair.diff, 0);
    }
    for (StepDiff& step : findings.steps) {
        if (!step.step) continue;
        try {
            const std::optional<TensorDiff> state = state_diff(paths, *step.step, threads, watch);
            if (!state) continue;
            step.origin = state->differing() == 0 ? DiffOrigin::local : DiffOrigin::drift;
            step.state_distance = state->relative_norm();
        } catch (const FileError& error) {
            add_error(findings.errors, error);
        }
    }
}

/// Reports where two run.json differ.
void compare_configurations(const Json& a, const Json& b, DiffFindings& findings) {
    std::size_t different = 0;
    for_each_difference(a, b, [&](const std::string& at, const Json* x, const Json* y) {
        const auto text = [](const Json* value) {
            return value == nullptr
                       ? std::string("nothing")
                       : clipped(printable(value->dump(-1, ' ', false, Json::error_handler_t::replace)), 50);
        };
        if (++different <= listed_differences)
            findings.notes.push_back(fmt::format("run.json {}: {} and {}", printable(at), text(x), text(y)));
    });
    if (different > listed_differences)
        findings.notes.push_back(fmt::format("run.json: {} further differences", different - listed_differences));
}

/// Reports from which step on two metrics.jsonl differ.
void compare_logs(const StepLog& x, const StepLog& y, DiffFindings& findings) {
    findings.warnings.insert(findings.warnings.end(), x.warnings.begin(), x.warnings.end());
    findings.warnings.insert(findings.warnings.end(), y.warnings.begin(), y.warnings.end());
    const auto is_nan = [](const auto& value) { return value && std::isnan(static_cast<double>(*value)); };
    const auto first = [&](const char* what, auto member, const auto& show) {
        for (const StepMetrics& m : x.steps) {
            const auto other = std::ranges::lower_bound(y.steps, m.step, {}, &StepMetrics::step);
            if (other == y.steps.end() || other->step != m.step) continue;
            if (m.*member == (*other).*member || (is_nan(m.*member) && is_nan((*other).*member))) continue;
            findings.notes.push_back(fmt::format("{} first differs in step {}: {} and {}", what, m.step,
                                                 show(m.*member), show((*other).*member)));
            return;
        }
        findings.notes.push_back(fmt::format("{} never differs", what));
    };
    const auto number = [](const std::optional<double>& v) { return v ? fmt::format("{}", *v) : std::string("none"); };
    first("loss", &StepMetrics::loss, number);
    first("loss scale", &StepMetrics::scale, number);
    first("found_inf", &StepMetrics::found_inf, [](const std::optional<bool>& v) {
        return !v ? "none" : *v ? "true" : "false";
    });
}

/// Reports where the files of two run folders differ, other than those with tensors.
void compare_runs(const Paths& paths, DiffFindings& findings) {
    const Json a = read_run_configuration(paths.a), b = read_run_configuration(paths.b);
    if (a.is_null() || b.is_null()) return;
    compare_configurations(a, b, findings);
    const StepLog x = read_step_log(paths.a), y = read_step_log(paths.b);
    compare_logs(x, y, findings);
}

double figure_of(const DiffFindings& findings, DiffGate::Figure figure) {
    const TensorDiff& d = findings.total;
    const bool odd = d.of(DiffClass::nan) + d.of(DiffClass::inf) > 0; // then distances are infinite
    switch (figure) {
    case DiffGate::Figure::differ:
        return static_cast<double>(d.differing()) / static_cast<double>(std::max<std::uint64_t>(d.elements(), 1));
    case DiffGate::Figure::max_ulps: return odd ? HUGE_VAL : d.max_ulps;
    case DiffGate::Figure::max_relative: return odd ? HUGE_VAL : d.max_relative;
    case DiffGate::Figure::norm: return odd ? HUGE_VAL : d.relative_norm();
    case DiffGate::Figure::nan: return static_cast<double>(d.of(DiffClass::nan));
    case DiffGate::Figure::inf: return static_cast<double>(d.of(DiffClass::inf));
    case DiffGate::Figure::sign: return static_cast<double>(d.of(DiffClass::sign));
    case DiffGate::Figure::zero: return static_cast<double>(d.of(DiffClass::zero) + d.of(DiffClass::zero_sign));
    case DiffGate::Figure::missing: return static_cast<double>(findings.only_a.size() + findings.only_b.size());
    }
    return HUGE_VAL;
}

DiffGateResult judge(const DiffGate& gate, const DiffFindings& findings) {
    const double value = figure_of(findings, gate.figure);
    const bool below = gate.or_equal ? value <= gate.limit : value < gate.limit;
    return {.gate = gate, .value = value, .holds = below && findings.total.elements() > 0};
}

} // namespace

std::string_view name_of(DiffOrigin origin) {
    constexpr std::array<std::string_view, 3> names = {"unknown", "local", "drift"};
    return names[static_cast<std::size_t>(origin)];
}

std::vector<const PairedTensor*> DiffFindings::farthest_first() const {
    std::vector<const PairedTensor*> ranked;
    for (const PairedTensor& pair : pairs)
        if (pair.diff.differing() > 0) ranked.push_back(&pair);
    std::ranges::stable_sort(ranked, {}, [](const PairedTensor* p) {
        const double worst = p->diff.worst.empty() ? p->diff.max_ulps : p->diff.worst.front().ulps;
        return std::pair(-worst, -p->diff.relative_norm());
    });
    return ranked;
}

const PairedTensor* DiffFindings::first() const {
    const auto found = std::ranges::find_if(pairs, [](const PairedTensor& p) { return p.diff.differing() > 0; });
    return found == pairs.end() ? nullptr : &*found;
}

DiffFindings diff_findings(const fs::path& a, const fs::path& b, const DiffOptions& options, const Watch& watch) {
    const FloatEnvironment environment;
    DiffFindings findings;
    const Paths paths{a, b};
    Recording x = read(a, options, findings), y = read(b, options, findings);
    const std::vector<std::string> unneeded = unneeded_options(options.open, {&x, &y});
    findings.warnings.insert(findings.warnings.end(), unneeded.begin(), unneeded.end());
    for (Recording* recording : {&x, &y})
        std::erase_if(recording->tensors,
                      [&](const RecordedTensor& t) { return !matches(options.tensor, t.entry.name); });
    compare(pair_up(paths, x, y, findings), options, watch, findings);
    sum_up_steps(paths, options.threads, watch, findings);
    try {
        compare_runs(paths, findings);
    } catch (const FileError& error) {
        add_error(findings.errors, error);
    }
    if (findings.pairs.empty() && findings.errors.empty())
        findings.errors.push_back(fmt::format("{} and {} have no tensor of one name and step", a.string(), b.string()));
    for (const DiffGate& gate : options.gates) findings.gates.push_back(judge(gate, findings));
    return findings;
}

} // namespace amp
