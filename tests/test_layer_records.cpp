// A run's gradients by layer: sums over its tensors, and the layers that FP16 zeroes most.
#include <ampscope/sim/findings/layer_records.h>

#include <doctest/doctest.h>

#include <algorithm>

using namespace amp;

namespace {

TensorRecord tensor(const std::string& layer, const std::string& name, TensorKind kind, std::uint64_t zeroed) {
    MagnitudeHistogram magnitudes;
    magnitudes.rows[0][0] = 100;
    TensorRecord t{.name = layer + name, .layer = layer, .kind = kind, .counts = {}, .zeroed = {}};
    t.counts.add(magnitudes);
    t.zeroed[0] = {{zeroed, 100}, {0, 100}};
    t.zeroed[1] = {{0, 100}, {1, 100}};
    return t;
}

RecordedRun run_of(std::vector<TensorRecord> tensors) {
    RecordedRun run;
    run.columns = {0, 1};
    run.tensors = std::move(tensors);
    return run;
}

std::vector<std::string> names_of(const std::vector<LayerRecord>& layers) {
    std::vector<std::string> names;
    for (const LayerRecord& layer : layers) names.push_back(layer.name());
    return names;
}

constexpr TensorKind weight = TensorKind::weight_gradient, activation = TensorKind::activation_gradient;

} // namespace

TEST_CASE("a layer sums its tensors, and its activations are a row of their own") {
    const std::vector<LayerRecord> layers =
        layer_records(run_of({tensor("c1", ".weight.grad", weight, 3), tensor("c1", ".out.grad", activation, 5),
                              tensor("c2", ".weight.grad", weight, 0), tensor("c1", ".bias.grad", weight, 4)}));
    CHECK(names_of(layers) == std::vector<std::string>{"c1, weight grad", "c1, activation grad", "c2, weight grad"});
    CHECK(layers[0].counts.nonzero == 200);
    CHECK(layers[0].zeroed[0][0].part == 7);
    CHECK(layers[0].zeroed[0][0].whole == 200);
    CHECK(layers[0].zeroed_in_all(0).part == 7);
    CHECK(layers[0].zeroed_in_all(0).whole == 400);
    CHECK(layers[0].zeroed_in_all(1).part == 2);
    CHECK(layers[1].zeroed_in_all(0).part == 5);
    CHECK(gradient_counts(run_of({tensor("a", "", weight, 0), tensor("b", "", activation, 0)}), weight).nonzero == 100);
}

TEST_CASE("the worst layers are kept in their order, whoever comes first among equals") {
    const std::vector<LayerRecord> layers =
        layer_records(run_of({tensor("a", "", weight, 2), tensor("b", "", weight, 2), tensor("c", "", weight, 1),
                              tensor("d", "", weight, 9), tensor("e", "", weight, 2)}));
    const auto worst = [&](std::size_t most) {
        std::string names;
        for (const LayerRecord& layer : worst_layers(layers, most)) names += layer.layer;
        return names;
    };
    CHECK(worst(0).empty());
    CHECK(worst(1) == "d");
    CHECK(worst(2) == "ad"); // a, b and e are equal: who takes all that are as bad as the second loses d
    CHECK(worst(3) == "abd");
    CHECK(worst(4) == "abde");
    CHECK(worst(9) == "abcde");
}

TEST_CASE("layers that differ only in their number are summed where they are too many") {
    std::vector<TensorRecord> tensors = {tensor("wte", ".weight.grad", weight, 1)};
    for (int i = 0; i < 48; ++i)
        for (const char* part : {"attn", "mlp.fc1", "mlp.fc2"})
            tensors.push_back(tensor("h." + std::to_string(i) + "." + part, ".weight.grad", weight,
                                     static_cast<std::uint64_t>(i == 7 ? 60 : i % 5)));
    tensors.push_back(tensor("h.0.attn", ".out.grad", activation, 3));
    const std::vector<LayerRecord> layers = layer_records(run_of(tensors)), folded = folded_layers(layers, 24);
    CHECK(names_of(folded) == std::vector<std::string>{"wte, weight grad", "h.*.attn, weight grad",
                                                       "h.*.mlp.fc1, weight grad", "h.*.mlp.fc2, weight grad",
                                                       "h.0.attn, activation grad"});
    CHECK(folded[0].layers == 1);
    CHECK(folded[1].layers == 48);
    CHECK(folded[1].worst == "h.7.attn");
    CHECK(folded[1].counts.nonzero == 4800);
    std::uint64_t zeroed = 0;
    for (const LayerRecord& layer : layers)
        if (layer.kind == weight && layer.layer.ends_with("attn")) zeroed += layer.zeroed[0][0].part;
    CHECK(folded[1].zeroed[0][0].part == zeroed);
    CHECK(folded[1].zeroed[0][0].whole == 4800);
    CHECK(names_of(folded_layers(layers, layers.size())) == names_of(layers)); // there is room for all
    CHECK(folded_layers(layers, 4).size() == 4); // fc1 and fc2 are one row where there is no room for two
    CHECK(folded_layers(layers, 4)[2].layer == "h.*.mlp.fc*");
    CHECK(folded_layers(layers, 4)[2].layers == 96);
}
