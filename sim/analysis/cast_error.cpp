#include <ampscope/sim/analysis/cast_error.h>

#include <ampscope/sim/analysis/count.h>

#include <ampscope/formats/batch.h>

#include <cmath>

namespace amp {

namespace {

CastError errors_of(const Cast& cast, std::span<const double> values, std::span<double> scaled,
                    std::span<float> rounded, std::uint64_t first_index) {
    for (std::size_t i = 0; i < values.size(); ++i) scaled[i] = values[i] * cast.scale / cast.recorded_scale;
    quantize(cast.format, scaled, rounded, {.policy = cast.policy, .key = {}, .first_index = first_index});
    CastError result;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i])) continue;
        if (!std::isfinite(rounded[i])) {
            ++result.excluded;
            continue;
        }
        const double x = values[i] / cast.recorded_scale;
        const double error = std::fabs(static_cast<double>(rounded[i]) / cast.scale - x);
        ++result.compared;
        result.signal += x * x;
        result.noise += error * error;
        if (x == 0) continue;
        ++result.nonzero;
        result.sum_relative += error / std::fabs(x);
        result.max_relative = std::max(result.max_relative, error / std::fabs(x));
    }
    return result;
}

} // namespace

double CastError::sqnr() const { return noise == 0 && signal > 0 ? INFINITY : 10 * std::log10(signal / noise); }

void CastError::merge(const CastError& later) {
    compared += later.compared;
    excluded += later.excluded;
    signal += later.signal;
    noise += later.noise;
    max_relative = std::max(max_relative, later.max_relative);
    sum_relative += later.sum_relative;
    nonzero += later.nonzero;
}

std::vector<CastError> measure_errors(const TensorFile& file, std::size_t tensor, std::span<const Cast> casts,
                                      int threads, const Progress& progress) {
    const DType dtype = file.tensors()[tensor].dtype;
    struct Worker {
        std::vector<double> values, scaled;
        std::vector<float> rounded;
    };
    std::vector<std::vector<CastError>> blocks; // by block, then cast
    std::mutex mutex;
    detail::for_each_block<Worker>(
        file, tensor, bytes_of(dtype, sum_block), threads, progress, [] { return std::make_unique<Worker>(); },
        [&](Worker& worker, std::uint64_t index, std::span<const std::byte> data) {
            worker.values.clear();
            for_each_number(dtype, data, [&](std::size_t, std::uint64_t bits) {
                worker.values.push_back(value_of(unpack_number(dtype, bits)));
            });
            worker.scaled.resize(worker.values.size());
            worker.rounded.resize(worker.values.size());
            std::vector<CastError> errors;
            for (const Cast& cast : casts)
                errors.push_back(errors_of(cast, worker.values, worker.scaled, worker.rounded, index * sum_block));
            const std::lock_guard lock(mutex);
            if (blocks.size() <= index) blocks.resize(index + 1);
            blocks[index] = std::move(errors);
        });
    std::vector<CastError> result(casts.size());
    for (const auto& block : blocks)
        for (std::size_t k = 0; k < casts.size(); ++k) result[k].merge(block[k]);
    return result;
}

} // namespace amp
