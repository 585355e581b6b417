#include <ampscope/sim/findings/collective_error.h>

#include <ampscope/sim/analysis/number_reader.h>
#include <ampscope/sim/backend/cpu/all_reduce.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/step_log.h>
#include <ampscope/sim/io/text_file.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

namespace amp {

namespace {

namespace fs = std::filesystem;

/// 2, 3, 4, 6, 8, 12 ... up to `most`: powers of two, and the numbers half-way between them.
std::vector<int> numbers_of_replicas(std::size_t most) {
    std::vector<int> all;
    for (int n = 2; static_cast<std::size_t>(n) <= most; n *= 2)
        for (const int replicas : {n, n + n / 2})
            if (static_cast<std::size_t>(replicas) <= most) all.push_back(replicas);
    return all;
}

double relative_error(std::span<const float> mean, std::span<const double> exact) {
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < mean.size(); ++i) {
        const double difference = mean[i] - exact[i];
        error += difference * difference;
        norm += exact[i] * exact[i];
    }
    return std::sqrt(error / norm);
}

/// The variances of the elements, from one gradient to another, all together.
double variance_of(const std::vector<std::vector<float>>& gradients) {
    const auto number = static_cast<double>(gradients.size());
    double all = 0;
    for (std::size_t i = 0; i < gradients[0].size(); ++i) {
        double sum = 0, squares = 0;
        for (const std::vector<float>& g : gradients) sum += g[i];
        for (const std::vector<float>& g : gradients) squares += (g[i] - sum / number) * (g[i] - sum / number);
        all += squares / (number - 1);
    }
    return all;
}

/// The first number of replicas from which on the error of an all-reduce is above that part of the noise; none: it ends
/// below.
std::optional<int> above_noise(const CollectiveErrorFindings& f, const CollectiveErrors& row, double part) {
    std::optional<int> from;
    for (std::size_t i = 0; i < f.replicas.size(); ++i)
        if (row.errors[i] <= part * f.noise[i]) from.reset();
        else if (!from) from = f.replicas[i];
    return from;
}

std::string error_text(double error) {
    return error <= 1 ? percent(error) : fmt::format("{:.1f} times the mean itself", error);
}

/// The name of an all-reduce in a sentence that begins with its kind: "ring nccl-avg".
std::string name_in(const std::string& kind, const AllReduceOptions& way) {
    std::string name = name_of(way);
    if (const std::size_t at = name.find(", " + kind); at != std::string::npos) name.erase(at, kind.size() + 2);
    std::erase(name, ',');
    return name;
}

/// On each kind of all-reduce a sentence: which lose much beside what chance does, and what the others lose.
std::vector<std::string> verdict_on(const CollectiveErrorFindings& f) {
    std::vector<std::string> lines = {fmt::format(
        "Noise: the mean of {} differs by {} from that of unlimited data, by chance, if no two have an example "
        "in common. An error a tenth as large makes that half a percent larger.",
        plural(f.gradients, "gradient"), error_text(f.noise.back()))};
    std::vector<std::string> kinds;
    for (const CollectiveErrors& row : f.rows)
        if (std::ranges::find(kinds, kind_of(row.way)) == kinds.end()) kinds.push_back(kind_of(row.way));
    for (const std::string& kind : kinds) {
        std::vector<std::string> parts, little;
        double most = 0;
        for (const CollectiveErrors& row : f.rows) {
            if (kind_of(row.way) != kind) continue;
            const std::string name = name_in(kind, row.way);
            const std::optional<int> much = above_noise(f, row, 0.1), more = above_noise(f, row, 1);
            if (!much) {
                little.push_back(name);
                most = std::max(most, row.errors.back());
                continue;
            }
            std::string from = more == much ? "" : fmt::format(", above a tenth of the noise from N = {} on", *much);
            if (more) from += fmt::format(", above the noise from N = {} on", *more);
            parts.push_back(fmt::format("{} is off by {}{}", name, error_text(row.errors.back()), from));
        }
        if (!little.empty())
            parts.push_back(fmt::format("{} {} off by at most {}", fmt::join(little, " and "),
                                        little.size() == 1 ? "is" : "are", error_text(most)));
        lines.push_back(fmt::format("{}: {}.", kind, fmt::join(parts, "; ")));
    }
    return lines;
}

/// The slope of the line through (log N, log error), of N in these limits.
std::optional<double> exponent_of(const std::vector<int>& replicas, const std::vector<double>& errors, int least,
                                  int most) {
    std::vector<std::pair<double, double>> points;
    for (std::size_t i = 0; i < errors.size(); ++i)
        if (replicas[i] >= least && replicas[i] <= most && errors[i] > 0 && std::isfinite(errors[i]))
            points.emplace_back(std::log2(replicas[i]), std::log2(errors[i]));
    if (points.size() < 3) return std::nullopt;
    double x_mean = 0, y_mean = 0, xx = 0, xy = 0;
    for (const auto& [x, y] : points) {
        x_mean += x / static_cast<double>(points.size());
        y_mean += y / static_cast<double>(points.size());
    }
    for (const auto& [x, y] : points) {
        xx += (x - x_mean) * (x - x_mean);
        xy += (x - x_mean) * (y - y_mean);
    }
    return xy / xx;
}

/// Reads recorded tensors, and opens a file once for those that follow each other.
class Reader {
  public:
    /// Appends a tensor's numbers, without the loss scale that they still contain. Throws std::invalid_argument for
    /// numbers that are not finite.
    void append(const RecordedTensor& tensor, std::vector<float>& all) {
        if (file_ == nullptr || path_ != tensor.file) {
            file_ = open_tensor_file(tensor.file);
            path_ = tensor.file;
        }
        const NumberReader reader(*file_, tensor.index);
        for (const StoredNumber& n : reader.read(0, reader.numbers())) {
            all.push_back(static_cast<float>(n.value() / tensor.recorded_scale));
            if (!std::isfinite(all.back()))
                throw std::invalid_argument(fmt::format("{}: {} is not finite everywhere, and so no mean is",
                                                        tensor.file.string(), tensor.entry.name));
        }
    }

  private:
    fs::path path_;
    std::unique_ptr<TensorFile> file_;
};

/// What the gradients of a replica are of. `number`: of the replica, where a run recorded several; else 0.
struct ReplicaKey {
    fs::path run;
    std::int64_t step = 0;
    int number = 0;
    auto operator<=>(const ReplicaKey&) const = default;
};

/// The tensors of replicas, by name.
using RecordedReplicas = std::map<ReplicaKey, std::map<std::string, const RecordedTensor*>>;

/// Splits "replica_12.fc1.weight.grad" into 12 and the rest; any other name is that of a tensor of replica 0.
std::pair<int, std::string> split_name(const std::string& name) {
    constexpr std::string_view prefix = "replica_";
    int number = 0;
    if (!name.starts_with(prefix)) return {0, name};
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, number);
    if (error != std::errc() || rest == end || *rest != '.') return {0, name};
    return {number, std::string(rest + 1, end)};
}

/// The run that a file belongs to: the nearest folder above it with a run.json. A file that is in no run belongs to the
/// folder in `paths` that it was found in; one that was named itself belongs to its own folder.
fs::path recorded_run_of(const fs::path& file, const std::vector<fs::path>& paths) {
    for (fs::path folder = file.parent_path();; folder = folder.parent_path()) {
        if (is_there(folder / run_layout::configuration)) return folder.empty() ? "." : folder;
        if (folder == folder.parent_path()) break;
    }
    fs::path found;
    for (const fs::path& path : paths) {
        const fs::path folder = path.has_filename() ? path : path.parent_path();
        const bool is_above =
            folder != file &&
            std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
        if (is_above && folder.native().size() > found.native().size()) found = folder;
    }
    return found.empty() ? file.parent_path() : found;
}

std::string replica_name(const RecordedReplicas::value_type& replica) {
    const auto& [run, step, number] = replica.first;
    const std::string of_step =
        run.empty() ? fmt::format("step {}", step) : fmt::format("step {} of {}", step, run.string());
    return number == 0 ? of_step : fmt::format("replica {} in {}", number, of_step);
}

/// Throws std::invalid_argument where two files hold the same tensor of a replica: one would be lost.
RecordedReplicas replicas_in(const Recording& recording, const std::vector<fs::path>& paths) {
    RecordedReplicas replicas;
    std::map<fs::path, fs::path> runs; // by the folder of a file
    for (const RecordedTensor& t : recording.tensors) {
        if (t.kind != TensorKind::weight_gradient || !t.step) continue;
        fs::path& run = runs.try_emplace(t.file.parent_path()).first->second;
        if (run.empty()) run = recorded_run_of(t.file, paths);
        const auto [number, name] = split_name(t.entry.name);
        const auto replica = replicas.try_emplace({run, *t.step, number}).first;
        const RecordedTensor*& known = replica->second.try_emplace(name, &t).first->second;
        if (known->file != t.file || known->index != t.index)
            throw std::invalid_argument(fmt::format("{} has {} twice, in {} and in {}: name the folder of each replica",
                                                    replica_name(*replica), t.entry.name, known->file.string(),
                                                    t.file.string()));
    }
    return replicas;
}

/// The gradients of each replica as one bucket: its tensors, one after the other, in the order of their names.
std::vector<std::vector<float>> buckets_of(const RecordedReplicas& replicas) {
    std::vector<std::vector<float>> gradients;
    Reader reader;
    std::map<std::int64_t, std::vector<std::pair<std::size_t, std::string>>> of_step; // index and name
    const auto& first = *replicas.begin();
    for (const auto& replica : replicas) {
        std::vector<float> all;
        for (const auto& [name, tensor] : replica.second) {
            const auto twin = first.second.find(name);
            if (replica.second.size() != first.second.size() || twin == first.second.end() ||
                twin->second->entry.count != tensor->entry.count)
                throw std::invalid_argument(fmt::format("{} does not have the tensors of {}: {}", replica_name(replica),
                                                        replica_name(first), name));
            reader.append(*tensor, all);
        }
        auto& others = of_step[replica.first.step];
        for (const auto& [index, name] : others)
            if (std::ranges::equal(std::as_bytes(std::span(gradients[index])), std::as_bytes(std::span(all))))
                throw std::invalid_argument(fmt::format(
                    "{} has the gradients of {}: a copy would count as one more replica", replica_name(replica), name));
        others.emplace_back(gradients.size(), replica_name(replica));
        gradients.push_back(std::move(all));
    }
    return gradients;
}

/// Of a run whose weights change between its steps, or may do so, as no run.json tells its learning rate, the replicas
/// of one step stay: of the last of those with most. If it has no replicas, its steps stand for them. Returns a line on
/// each such run.
std::vector<std::string> keep_one_step_of_moving(RecordedReplicas& replicas) {
    std::vector<std::string> lines;
    std::map<fs::path, std::map<std::int64_t, std::size_t>> counts; // of each step
    for (const auto& [key, tensors] : replicas) ++counts[key.run][key.step];
    for (const auto& item : counts) {
        const fs::path& run = item.first;
        const std::optional<double> rate = facts_of_run(run).lr;
        if (item.second.size() < 2 || rate == 0.0) continue;
        const auto most = std::ranges::max_element(item.second.rbegin(), item.second.rend(), {},
                                                   [](const auto& step) { return step.second; });
        const std::int64_t kept = most->first;
        const bool of_replicas = most->second > 1;
        if (of_replicas)
            std::erase_if(replicas, [&](const auto& r) { return r.first.run == run && r.first.step != kept; });
        lines.push_back(fmt::format(
            "{}: {}: its steps {}differ in their weights, too, and not only in their batches, as replicas do; {}",
            run.string(),
            rate ? fmt::format("its learning rate is {:g}", *rate) : "no run.json tells its learning rate",
            rate ? "" : "may ",
            of_replicas ? fmt::format("the replicas of step {} are measured", kept)
                        : "amp-train --lr 0 keeps the weights, and --record-replicas records replicas of one step"));
    }
    return lines;
}

/// A line if the replicas come from runs that differ in their weights, as far as each run.json tells; or none.
std::vector<std::string> about_unlike_runs(const RecordedReplicas& replicas) {
    std::set<fs::path> runs;
    std::set<std::optional<double>> seeds;
    bool moving = false;
    for (const auto& [key, tensors] : replicas) {
        if (runs.contains(key.run)) continue;
        const RunFacts facts = facts_of_run(key.run);
        if (!facts.lr) continue;
        runs.insert(key.run);
        seeds.insert(facts.seed);
        moving = moving || *facts.lr != 0;
    }
    if (runs.size() < 2 || (seeds.size() == 1 && !moving)) return {};
    return {
        fmt::format("{} and {}: they differ in their {}, and so in their weights: the noise between their gradients "
                    "is more than that of replicas, which differ in their batches alone",
                    runs.begin()->string(), plural(runs.size() - 1, "more run"),
                    seeds.size() > 1 ? "seeds" : "steps at a learning rate above 0")};
}

} // namespace

std::vector<AllReduceOptions> usual_all_reduces() {
    std::vector<AllReduceOptions> all;
    for (std::size_t order = 0; order < all_reduce_rows.size(); ++order) {
        all.push_back({.order = static_cast<AllReduceOrder>(order), .transport = format("bf16")});
        if (order == 0) all.push_back({.division = AllReduceDivision::nccl_avg, .transport = format("bf16")});
    }
    all.push_back({.transport = format("fp16")});
    all.push_back({});
    all.push_back({.order = AllReduceOrder::tree});
    all.push_back({.transport = format("e4m3"), .scaled = true});
    all.push_back({.blocks = &block_format("fp8-tensor")});
    all.push_back({.blocks = &block_format("mxfp8")});
    all.push_back({.order = AllReduceOrder::all_to_all, .blocks = &block_format("mxfp8")});
    all.push_back({.blocks = &block_format("nvfp4")});
    return all;
}

std::string name_of(const AllReduceOptions& o) {
    std::string name = fmt::format("{}, {}", row_of(o.order).name, o.payload().name());
    if (o.scaled) name += ", ms-amp";
    else if (o.division != AllReduceDivision::before)
        name += fmt::format(", {}", all_reduce_division_names[static_cast<std::size_t>(o.division)]);
    return name;
}

std::string kind_of(const AllReduceOptions& o) {
    return o.blocks != nullptr || o.scaled ? "messages with scales" : std::string(o.transport.name);
}

CollectiveErrorFindings collective_errors(const std::vector<std::vector<float>>& gradients,
                                          const CollectiveErrorOptions& options) {
    if (gradients.size() < 2) throw std::invalid_argument("expected gradients of at least two replicas");
    CollectiveErrorFindings findings{.gradients = gradients.size(),
                                     .tensors = 1,
                                     .elements = gradients[0].size(),
                                     .steps = 1,
                                     .replicas = numbers_of_replicas(gradients.size()),
                                     .rows = {},
                                     .noise = {},
                                     .verdict = {},
                                     .warnings = {}};
    const double variance = variance_of(gradients);
    const std::vector<std::span<const float>> all(gradients.begin(), gradients.end());
    for (const AllReduceOptions& way : options.ways) findings.rows.push_back({way, {}, {}, {}});
    std::vector<double> sum(gradients[0].size()), exact(sum.size());
    std::size_t added = 0;
    for (const int replicas : findings.replicas) {
        const auto number = static_cast<std::size_t>(replicas);
        for (; added < number; ++added)
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients[added][i];
        double norm = 0;
        for (std::size_t i = 0; i < sum.size(); ++i) {
            exact[i] = sum[i] / replicas;
            norm += exact[i] * exact[i];
        }
        if (norm == 0)
            throw std::invalid_argument(
                fmt::format("the mean of {} gradients is zero, beside which no error can be told", replicas));
        findings.noise.push_back(std::sqrt(variance / replicas / norm));
        for (CollectiveErrors& row : findings.rows)
            row.errors.push_back(
                relative_error(all_reduced(row.way, std::span(all).first(number), options.threads), exact));
    }
    constexpr int from = CollectiveErrorFindings::fitted_from, to = CollectiveErrorFindings::fitted_to;
    for (CollectiveErrors& row : findings.rows) {
        row.exponent = exponent_of(findings.replicas, row.errors, from, to);
        row.beyond = exponent_of(findings.replicas, row.errors, to, std::numeric_limits<int>::max());
    }
    findings.verdict = verdict_on(findings);
    return findings;
}

CollectiveErrorFindings recorded_collective_errors(const std::vector<fs::path>& paths,
                                                   const CollectiveErrorOptions& options) {
    Recording recording = find_tensors(paths, {}, {.replicas = true, .repeats = true});
    if (!recording.errors.empty()) throw RecordingError(recording.errors);
    RecordedReplicas replicas = replicas_in(recording, paths);
    std::vector<std::string> lines = keep_one_step_of_moving(replicas);
    std::ranges::move(about_unlike_runs(replicas), std::back_inserter(lines));
    if (replicas.size() < 2)
        throw std::invalid_argument(
            "expected gradients of weights of at least two replicas, or of two steps to stand for them");
    CollectiveErrorFindings findings = collective_errors(buckets_of(replicas), options);
    findings.tensors = replicas.begin()->second.size();
    std::set<std::pair<fs::path, std::int64_t>> steps;
    for (const auto& [key, tensors] : replicas) steps.emplace(key.run, key.step);
    findings.steps = steps.size();
    findings.warnings = std::move(recording.warnings);
    std::ranges::move(lines, std::back_inserter(findings.warnings));
    return findings;
}

} // namespace amp
