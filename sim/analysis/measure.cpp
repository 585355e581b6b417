#include <ampscope/sim/analysis/measure.h>

#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/environment.h>

#include <cmath>

namespace amp {

namespace {

ExactMagnitudes measure_stored(const TensorFile& file, std::size_t tensor, int threads, const Progress& progress) {
    const FloatEnvironment environment;
    const DistinctElements elements(file, tensor);
    const DType dtype = elements.tensors()[0].dtype;
    const auto workers = detail::for_each_block<MagnitudeCounter>(
        elements, 0, bytes_of(dtype, sum_block), threads, progress,
        [&] { return std::make_unique<MagnitudeCounter>(dtype); },
        [&](MagnitudeCounter& counter, std::uint64_t, std::span<const std::byte> bytes) { counter.add(bytes); });
    if (workers.empty()) return {};
    for (std::size_t i = 1; i < workers.size(); ++i) workers.front()->merge(*workers[i]);
    return workers.front()->magnitudes(elements.repeats());
}

} // namespace

MagnitudeStatistics measure(const TensorFile& file, std::size_t tensor, int threads, const Progress& progress) {
    return measure_stored(file, tensor, threads, progress).statistics();
}

MagnitudeStatistics measure_divided(const TensorFile& file, std::size_t tensor, double recorded_scale, int threads,
                                    const Progress& progress) {
    return measure_exactly(file, tensor, recorded_scale, threads, progress).statistics();
}

ExactMagnitudes measure_exactly(const TensorFile& file, std::size_t tensor, double recorded_scale, int threads,
                                const Progress& progress) {
    const FloatEnvironment environment;
    if (const std::optional<int> k = exact_log2(recorded_scale))
        return measure_stored(file, tensor, threads, progress).scaled(-*k);
    const DistinctElements elements(file, tensor);
    const DType dtype = elements.tensors()[0].dtype;
    const auto workers = detail::for_each_block<ExactMagnitudes>(
        elements, 0, bytes_of(dtype, sum_block), threads, progress, [] { return std::make_unique<ExactMagnitudes>(); },
        [&](ExactMagnitudes& all, std::uint64_t, std::span<const std::byte> bytes) {
            MagnitudeSums part;
            for_each_number(dtype, bytes, [&](std::size_t, std::uint64_t bits) {
                const Unpacked x = unpack_number(dtype, bits);
                const Unpacked y = x.kind == Kind::finite ? scaled(x, 1, recorded_scale) : x;
                all.rounded.histogram.add(y);
                if (y.kind != Kind::finite) return;
                const double magnitude = std::ldexp(static_cast<double>(y.significand), y.exponent);
                all.rounded.include(magnitude);
                part += {magnitude, magnitude * magnitude};
            });
            all.add(part);
        });
    ExactMagnitudes result;
    for (const auto& worker : workers) result.merge(*worker);
    result.repeat(elements.repeats());
    return result;
}

namespace {

/// How often each code of a type of at most 16 bits occurs.
std::vector<std::uint64_t> count_codes(const TensorFile& elements, DType dtype, int threads, const Progress& progress) {
    using Counts = std::vector<std::uint64_t>;
    const std::size_t codes = std::size_t{1} << info(dtype).number_bits();
    const auto workers = detail::for_each_block<Counts>(
        elements, 0, bytes_of(dtype, sum_block), threads, progress, [&] { return std::make_unique<Counts>(codes); },
        [&](Counts& counts, std::uint64_t, std::span<const std::byte> bytes) {
            for_each_number(dtype, bytes, [&](std::size_t, std::uint64_t bits) { ++counts[bits]; });
        });
    Counts sum(codes);
    for (const auto& worker : workers)
        for (std::size_t i = 0; i < codes; ++i) sum[i] += (*worker)[i];
    return sum;
}

} // namespace

FineHistogram measure_fine(const TensorFile& file, std::size_t tensor, double recorded_scale, const FineNeeds& needs,
                           int threads, const Progress& progress) {
    const DistinctElements elements(file, tensor);
    const DType dtype = elements.tensors()[0].dtype;
    FineHistogram result;
    const auto add = [&](FineHistogram& histogram, std::uint64_t bits, std::uint64_t times) {
        const Unpacked x = unpack_number(dtype, bits);
        if (x.kind == Kind::finite) histogram.add(scaled(x, 1, recorded_scale), needs, times);
    };
    if (info(dtype).number_bits() <= 16) {
        const std::vector<std::uint64_t> counts = count_codes(elements, dtype, threads, progress);
        for (std::size_t code = 0; code < counts.size(); ++code)
            if (counts[code] > 0) add(result, code, counts[code]);
    } else {
        const auto workers = detail::for_each_block<FineHistogram>(
            elements, 0, bytes_of(dtype, sum_block), threads, progress,
            [] { return std::make_unique<FineHistogram>(); },
            [&](FineHistogram& histogram, std::uint64_t, std::span<const std::byte> bytes) {
                for_each_number(dtype, bytes, [&](std::size_t, std::uint64_t bits) { add(histogram, bits, 1); });
            });
        for (const auto& worker : workers) result.merge(*worker);
    }
    result.repeat(elements.repeats());
    return result;
}

Unpacked scaled(const Unpacked& x, double scale, double recorded_scale) {
    const Unpacked s = unpack(scale), r = unpack(recorded_scale);
    Uint128 product = Uint128{x.significand} * s.significand;
    const auto high = static_cast<std::uint64_t>(product >> 64);
    const int shift = high != 0 ? std::countl_zero(high) : 64 + std::countl_zero(static_cast<std::uint64_t>(product));
    product <<= shift;
    const bool exact = product % r.significand == 0; // the quotient keeps at least 75 bits
    return to_unpacked(x.sign, x.exponent + s.exponent - shift - r.exponent, product / r.significand | Uint128{!exact});
}

std::optional<int> exact_log2(double scale) {
    int exponent = 0;
    return std::frexp(scale, &exponent) == 0.5 ? std::optional(exponent - 1) : std::nullopt;
}

} // namespace amp
