#include <ampscope/sim/findings/collective_error.h>

#include <ampscope/sim/analysis/number_reader.h>
#include <ampscope/sim/backend/cpu/all_reduce.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>

namespace amp {

namespace {

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
                                     .rows = {}};
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

CollectiveErrorFindings recorded_collective_errors(const std::vector<std::filesystem::path>& paths,
                                                   const CollectiveErrorOptions& options) {
    const Recording recording = find_tensors(paths);
    if (!recording.errors.empty()) throw RecordingError(recording.errors);
    std::map<std::int64_t, std::map<std::string, const RecordedTensor*>> steps;
    for (const RecordedTensor& t : recording.tensors)
        if (t.kind == TensorKind::weight_gradient && t.step) steps[*t.step][t.entry.name] = &t;
    if (steps.size() < 2)
        throw std::invalid_argument("expected gradients of weights of at least two steps, each of which is a replica");
    std::vector<std::vector<float>> gradients;
    const auto& first = *steps.begin();
    for (const auto& [step, tensors] : steps) {
        std::vector<float>& all = gradients.emplace_back();
        for (const auto& [name, tensor] : tensors) {
            const auto twin = first.second.find(name);
            if (tensors.size() != first.second.size() || twin == first.second.end() ||
                twin->second->entry.count != tensor->entry.count)
                throw std::invalid_argument(
                    fmt::format("step {} does not have the tensors of step {}: {}", step, first.first, name));
            append_values(*tensor, all);
        }
    }
    CollectiveErrorFindings findings = collective_errors(gradients, options);
    findings.tensors = first.second.size();
    return findings;
}

} // namespace amp
