#include <ampscope/sim/train/evaluate.h>

#include <ampscope/formats/environment.h>

#include <algorithm>

namespace amp {

namespace {

/// The number of targets, without ignored ones, whose class has the largest output.
std::int64_t count_right(std::span<const float> outputs, std::span<const float> targets, std::size_t classes) {
    std::int64_t right = 0;
    for (std::size_t i = 0; i < targets.size(); ++i) {
        const auto row = outputs.subspan(i * classes, classes);
        right +=
            targets[i] >= 0 && std::ranges::max_element(row) - row.begin() == static_cast<std::int64_t>(targets[i]);
    }
    return right;
}

} // namespace

void load_batch(Backend& backend, const Network& network, const Dataset& data, std::int64_t first, std::int64_t batch,
                Shuffle* shuffle) {
    read_batch(data, first, batch, shuffle, backend[network.inputs].data(), backend[network.targets].data());
}

std::int64_t validation_batches(const Dataset& data, std::int64_t batch) {
    // Negative classes are ignored, so the last batch may be filled up with them; real-number targets have no such
    // value.
    return data.classes > 0 ? (data.validation + batch - 1) / batch
                            : std::max<std::int64_t>(1, data.validation / batch);
}

std::int64_t load_validation_batch(Backend& backend, const Network& network, const Dataset& data, std::int64_t b,
                                   std::int64_t batch) {
    load_batch(backend, network, data, b * batch, batch, nullptr);
    const std::int64_t left = data.validation - b * batch;
    if (data.classes == 0 || left >= batch) return batch;
    const std::int64_t per_example = backend.info(network.targets).count() / batch;
    std::ranges::fill(backend[network.targets].subspan(static_cast<std::size_t>(left * per_example)), -1.0F);
    return left;
}

Evaluation evaluate_network(Backend& backend, const Network& network, const Dataset& data, std::int64_t batch) {
    const FloatEnvironment environment;
    const bool classifies = data.classes > 0;
    std::int64_t right = 0, counted = 0;
    double loss = 0;
    for (std::int64_t b = 0; b < validation_batches(data, batch); ++b) {
        load_validation_batch(backend, network, data, b, batch);
        replay(backend, backend.program().forward);
        const std::span<const float> outputs = backend.read(network.outputs), targets = backend.read(network.targets);
        const std::int64_t count = classifies ? std::ranges::count_if(targets, [](float t) { return t >= 0; }) : 1;
        loss += backend.read(network.loss)[0] * static_cast<double>(count);
        counted += count;
        if (classifies) right += count_right(outputs, targets, static_cast<std::size_t>(data.classes));
    }
    const auto total = static_cast<double>(counted);
    return {.loss = loss / total,
            .accuracy = classifies ? std::optional(static_cast<double>(right) / total) : std::nullopt};
}

} // namespace amp
