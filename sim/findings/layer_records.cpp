#include <ampscope/sim/findings/layer_records.h>

#include <ampscope/sim/base/tensor_names.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace amp {

namespace {

/// Sums of the layers whose names have the same pattern.
std::vector<LayerRecord> merged_by_pattern(const std::vector<LayerRecord>& layers, NameNumbers numbers, std::size_t f) {
    std::vector<LayerRecord> merged;
    std::vector<double> worst_rates;
    std::map<std::pair<std::string, TensorKind>, std::size_t> index;
    for (const LayerRecord& layer : layers) {
        const std::string pattern = name_pattern(layer.layer, numbers);
        const auto [found, is_new] = index.try_emplace({pattern, layer.kind}, merged.size());
        const double rate = layer.zeroed_in_all(f).rate();
        if (is_new) {
            merged.push_back(layer);
            merged.back().worst = layer.layer;
            worst_rates.push_back(rate);
            continue;
        }
        LayerRecord& sum = merged[found->second];
        sum.layer = pattern; // one that is alone keeps its name
        ++sum.layers;
        sum.counts.merge(layer.counts);
        for (std::size_t i = 0; i < followed_formats.size(); ++i)
            for (std::size_t c = 0; c < layer.zeroed[i].size(); ++c) sum.zeroed[i][c] += layer.zeroed[i][c];
        if (rate <= worst_rates[found->second]) continue;
        worst_rates[found->second] = rate;
        sum.worst = layer.layer;
    }
    return merged;
}

} // namespace

std::string LayerRecord::name() const {
    return layer + (kind == TensorKind::activation_gradient ? ", activation grad" : ", weight grad");
}

Share LayerRecord::zeroed_in_all(std::size_t f) const {
    Share sum;
    for (const Share& s : zeroed[f]) sum += s;
    return sum;
}

std::vector<LayerRecord> layer_records(const RecordedRun& run) {
    std::vector<LayerRecord> layers;
    std::map<std::pair<std::string, TensorKind>, std::size_t> index;
    for (const TensorRecord& t : run.tensors) {
        const auto [found, is_new] = index.try_emplace({t.layer, t.kind}, layers.size());
        if (is_new) layers.push_back({.layer = t.layer, .kind = t.kind, .counts = {}, .zeroed = {}});
        LayerRecord& layer = layers[found->second];
        layer.counts.merge(t.counts);
        for (std::size_t f = 0; f < followed_formats.size(); ++f) {
            layer.zeroed[f].resize(run.columns.count());
            for (std::size_t c = 0; c < t.zeroed[f].size(); ++c) layer.zeroed[f][c] += t.zeroed[f][c];
        }
    }
    return layers;
}

std::vector<LayerRecord> folded_layers(const std::vector<LayerRecord>& layers, std::size_t most, std::size_t f) {
    if (layers.size() <= most) return layers;
    std::vector<LayerRecord> merged = merged_by_pattern(layers, NameNumbers::components, f);
    return merged.size() <= most ? merged : merged_by_pattern(layers, NameNumbers::all, f);
}

std::vector<LayerRecord> worst_layers(const std::vector<LayerRecord>& layers, std::size_t most, std::size_t f) {
    std::vector<std::size_t> ranked(layers.size());
    std::iota(ranked.begin(), ranked.end(), std::size_t{0});
    std::ranges::stable_sort(ranked, std::greater<>(),
                             [&](std::size_t i) { return layers[i].zeroed_in_all(f).rate(); });
    ranked.resize(std::min(most, ranked.size()));
    std::ranges::sort(ranked);
    std::vector<LayerRecord> worst;
    for (const std::size_t i : ranked) worst.push_back(layers[i]);
    return worst;
}

GradientCounts gradient_counts(const RecordedRun& run, TensorKind kind) {
    GradientCounts all;
    for (const TensorRecord& t : run.tensors)
        if (t.kind == kind) all.merge(t.counts);
    return all;
}

} // namespace amp
