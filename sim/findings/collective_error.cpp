#include <ampscope/sim/findings/collective_error.h>

#include <ampscope/sim/analysis/number_reader.h>
#include <ampscope/sim/backend/cpu/all_reduce.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/step_log.h>
#include <ampscope/sim/io/text_file.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
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

/// A tensor's numbers, without the loss scale that they still contain.
void append_values(const RecordedTensor& tensor, std::vector<float>& all) {
    const auto file = open_tensor_file(tensor.file);
    const NumberReader reader(*file, tensor.index);
    for (const StoredNumber& n : reader.read(0, reader.numbers()))
        all.push_back(static_cast<float>(n.value() / tensor.recorded_scale));
}

/// The recorded gradients of a replica: the run that they are of and the step; its tensors by name.
using RecordedReplicas = std::map<std::pair<fs::path, std::int64_t>, std::map<std::string, const RecordedTensor*>>;

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
    const auto& [run, step] = replica.first;
    return run.empty() ? fmt::format("step {}", step) : fmt::format("step {} of {}", step, run.string());
}

/// Throws std::invalid_argument where two files hold the same tensor of a replica: one would be lost.
RecordedReplicas replicas_in(const Recording& recording, const std::vector<fs::path>& paths) {
    RecordedReplicas replicas;
    std::map<fs::path, fs::path> runs; // by the folder of a file
    for (const RecordedTensor& t : recording.tensors) {
        if (t.kind != TensorKind::weight_gradient || !t.step) continue;
        fs::path& run = runs.try_emplace(t.file.parent_path()).first->second;
        if (run.empty()) run = recorded_run_of(t.file, paths);
        const auto replica = replicas.try_emplace({run, *t.step}).first;
        const RecordedTensor*& known = replica->second.try_emplace(t.entry.name, &t).first->second;
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
            append_values(*tensor, all);
        }
        auto& others = of_step[replica.first.second];
        for (const auto& [index, name] : others)
            if (std::ranges::equal(std::as_bytes(std::span(gradients[index])), std::as_bytes(std::span(all))))
                throw std::invalid_argument(fmt::format(
                    "{} has the gradients of {}: a copy would count as one more replica", replica_name(replica), name));
        others.emplace_back(gradients.size(), replica_name(replica));
        gradients.push_back(std::move(all));
    }
    return gradients;
}

/// A line on each run whose weights change between its steps, as far as its run.json tells.
std::vector<std::string> moving_weights(const RecordedReplicas& replicas) {
    std::vector<std::string> lines;
    std::map<fs::path, std::size_t> steps;
    for (const auto& [key, tensors] : replicas) ++steps[key.first];
    for (const auto& [run, number] : steps) {
        const double rate = facts_of_run(run).lr.value_or(0);
        if (number < 2 || rate == 0) continue;
        lines.push_back(
            fmt::format("{}: its learning rate is {:g}: its steps differ in their weights, too, and not only "
                        "in their batches, as replicas do; amp-train --lr 0 keeps the weights",
                        run.string(), rate));
    }
    return lines;
}

} // namespace

std::vector<AllReduceOptions> usual_all_reduces() {
    const AllReduceOptions bf16{.transport = format("bf16")};
    std::vector<AllReduceOptions> all(13, bf16);
    all[1].division = AllReduceDivision::nccl_avg;
    all[2].order = AllReduceOrder::tree;
    all[3].order = AllReduceOrder::halving_doubling;
    all[4].order = AllReduceOrder::all_to_all;
    all[5].order = AllReduceOrder::exact;
    all[6].transport = format("fp16");
    all[7].transport = all[8].transport = format("fp32");
    all[8].order = AllReduceOrder::tree;
    all[9] = {.transport = format("e4m3"), .scaled = true};
    all[10] = {.blocks = &block_format("mxfp8")};
    all[11] = {.order = AllReduceOrder::all_to_all, .blocks = &block_format("mxfp8")};
    all[12] = {.blocks = &block_format("nvfp4")};
    return all;
}

std::string name_of(const AllReduceOptions& o) {
    std::string name = fmt::format("{}, {}", row_of(o.order).name, o.payload().name());
    if (o.scaled) name += ", ms-amp";
    else if (o.division != AllReduceDivision::before)
        name += fmt::format(", {}", all_reduce_division_names[static_cast<std::size_t>(o.division)]);
    return name;
}

CollectiveErrorFindings collective_errors(const std::vector<std::vector<float>>& gradients,
                                          const CollectiveErrorOptions& options) {
    if (gradients.size() < 2) throw std::invalid_argument("expected gradients of at least two replicas");
    CollectiveErrorFindings findings{.steps = gradients.size(),
                                     .tensors = 1,
                                     .elements = gradients[0].size(),
                                     .replicas = numbers_of_replicas(gradients.size()),
                                     .rows = {},
                                     .warnings = {}};
    const std::vector<std::span<const float>> all(gradients.begin(), gradients.end());
    for (const AllReduceOptions& way : options.ways) findings.rows.push_back({way, {}, {}, {}});
    std::vector<double> sum(gradients[0].size()), exact(sum.size());
    std::size_t added = 0;
    for (const int replicas : findings.replicas) {
        const auto number = static_cast<std::size_t>(replicas);
        for (; added < number; ++added)
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients[added][i];
        for (std::size_t i = 0; i < sum.size(); ++i) exact[i] = sum[i] / replicas;
        for (CollectiveErrors& row : findings.rows)
            row.errors.push_back(
                relative_error(all_reduced(row.way, std::span(all).first(number), options.threads), exact));
    }
    constexpr int from = CollectiveErrorFindings::fitted_from, to = CollectiveErrorFindings::fitted_to;
    for (CollectiveErrors& row : findings.rows) {
        row.exponent = exponent_of(findings.replicas, row.errors, from, to);
        row.beyond = exponent_of(findings.replicas, row.errors, to, std::numeric_limits<int>::max());
    }
    return findings;
}

CollectiveErrorFindings recorded_collective_errors(const std::vector<fs::path>& paths,
                                                   const CollectiveErrorOptions& options) {
    Recording recording = find_tensors(paths, {}, {.repeats = true});
    if (!recording.errors.empty()) throw RecordingError(recording.errors);
    const RecordedReplicas replicas = replicas_in(recording, paths);
    if (replicas.size() < 2)
        throw std::invalid_argument("expected gradients of weights of at least two steps, each of which is a replica");
    CollectiveErrorFindings findings = collective_errors(buckets_of(replicas), options);
    findings.tensors = replicas.begin()->second.size();
    findings.warnings = std::move(recording.warnings);
    for (std::string& warning : moving_weights(replicas)) findings.warnings.push_back(std::move(warning));
    return findings;
}

} // namespace amp
