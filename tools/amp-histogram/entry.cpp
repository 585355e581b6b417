#include <ampscope/tools/amp-histogram/entry.h>

#include <algorithm>
#include <cmath>

namespace amp::histogram_tool {

namespace {

std::string group_name(const Entry& entry, Grouping by) {
    switch (by) {
    case Grouping::tensor: break;
    case Grouping::layer: return entry.layer;
    case Grouping::step: return entry.step ? "step " + std::to_string(*entry.step) : "no step";
    case Grouping::file: return entry.file;
    case Grouping::all: return "all";
    }
    return entry.name;
}

} // namespace

ClassCounts classes_at(const Entry& entry, const FormatSpec& format, int log2_scale, const HistogramOptions& options) {
    return classify(entry.magnitudes.histogram, entry.directed, format, log2_scale, options.rule());
}

Recommendation recommendation(const Entry& entry, const FormatSpec& format, const HistogramOptions& options) {
    return recommend(entry.magnitudes.histogram, entry.directed, format, options.rule(), options.recommendation);
}

CastCounts counts_at(const Entry& entry, const FormatSpec& format, double scale, const HistogramOptions& options) {
    if (!options.from_histogram(scale)) return entry.own.at({format.name, scale});
    const ClassCounts n = classes_at(entry, format, *exact_log2(scale), options);
    const auto count = [](std::uint64_t x) { return static_cast<double>(x); };
    return {count(n.underflow), count(n.subnormal), count(n.normal), count(n.overflow)};
}

bool knows(const Entry& entry, const FormatSpec& format, double scale, const HistogramOptions& options) {
    return options.from_histogram(scale) || entry.own.contains({format.name, scale});
}

std::vector<std::pair<FormatSpec, double>> wanted_counts(const HistogramOptions& options) {
    std::vector<std::pair<FormatSpec, double>> wanted;
    const auto want = [&](const FormatSpec& format, double scale) {
        if (std::ranges::find(wanted, std::pair(format, scale)) == wanted.end()) wanted.emplace_back(format, scale);
    };
    for (const FormatSpec& f : options.formats) {
        want(f, 1);
        for (const double scale : options.scales) want(f, scale);
    }
    for (const Gate& gate : options.gates) want(format(gate.format), gate.scale);
    return wanted;
}

FormatResult format_result(const Entry& entry, const FormatSpec& format, const HistogramOptions& options) {
    FormatResult result{{}, recommendation(entry, format, options)};
    std::vector<double> scales = options.scales;
    scales.push_back(1);
    if (const auto& log2 = result.recommendation.log2_scale) scales.push_back(std::ldexp(1.0, *log2));
    std::ranges::sort(scales);
    scales.erase(std::unique(scales.begin(), scales.end()), scales.end());
    for (const double scale : scales)
        if (knows(entry, format, scale, options))
            result.scales.push_back({scale, counts_at(entry, format, scale, options)});
    return result;
}

void merge_into(Entry& sum, const Entry& other) {
    if (sum.tensors == 0) {
        sum.dtype = other.dtype;
        sum.recorded_scale = other.recorded_scale;
        sum.kind = other.kind;
    }
    if (sum.dtype != other.dtype) sum.dtype.clear();
    if (sum.recorded_scale != other.recorded_scale) sum.recorded_scale.reset();
    sum.tensors += other.tensors;
    sum.magnitudes.merge(other.magnitudes);
    sum.directed.merge(other.directed);
    for (const auto& [key, counts] : other.own) sum.own[key].merge(counts);
    for (const auto& [key, error] : other.errors) sum.errors[key].merge(error);
    sum.blocks.merge(other.blocks);
}

std::vector<Entry> grouped_entries(const std::vector<Entry>& tensors, Grouping by) {
    if (by == Grouping::tensor) return tensors;
    std::vector<Entry> groups;
    std::map<std::string, std::size_t> index;
    for (const Entry& tensor : tensors) {
        const std::string name = group_name(tensor, by);
        const auto [it, fresh] = index.try_emplace(name, groups.size());
        if (fresh) {
            groups.emplace_back();
            groups.back().name = name;
            groups.back().tensors = 0;
            if (by == Grouping::step) groups.back().step = tensor.step;
            if (by == Grouping::file) groups.back().file = tensor.file;
            if (by == Grouping::layer) groups.back().layer = tensor.layer;
        }
        merge_into(groups[it->second], tensor);
    }
    for (Entry& group : groups) group.shape = {group.magnitudes.histogram.count()};
    return groups;
}

Entry total_of(const std::vector<Entry>& tensors) {
    Entry total;
    total.tensors = 0;
    for (const Entry& tensor : tensors) merge_into(total, tensor);
    total.name = "all";
    total.shape = {total.magnitudes.histogram.count()};
    return total;
}

} // namespace amp::histogram_tool
