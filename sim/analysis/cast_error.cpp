#include <ampscope/sim/analysis/cast_error.h>

#include <ampscope/sim/analysis/count.h>

#include <ampscope/formats/batch.h>
#include <ampscope/formats/environment.h>

#include <cmath>

namespace amp {

namespace {

bool fits_double(const Unpacked& x, double value) {
    return x.kind != Kind::finite ||
           (x.significand >> 53 == 0 && std::fabs(value) >= 0x1p-600 && std::fabs(value) <= 0x1p600);
}

struct ErrorSums {
    std::vector<Unpacked> numbers;
    bool fits_double = true; ///< every finite number is zero or a double in 2^-600 ... 2^600
    std::vector<double> values, scaled;
    std::vector<float> rounded;

    void fill(DType dtype, std::span<const std::byte> data) {
        numbers.clear();
        values.clear();
        fits_double = true;
        for_each_number(dtype, data, [&](std::size_t, std::uint64_t bits) {
            numbers.push_back(unpack_number(dtype, bits));
            values.push_back(value_of(numbers.back()));
            fits_double = fits_double && amp::fits_double(numbers.back(), values.back());
        });
        scaled.resize(values.size());
        rounded.resize(values.size());
    }
};

/// The definition: the exact product and quotient (to 64 bits if a scale is not a power of two) are rounded once.
void add_errors(const Cast& cast, std::span<const Unpacked> numbers, std::uint64_t first_index, CastError& result) {
    int r = 0, s = 0;
    const double recorded = std::frexp(cast.recorded_scale, &r), scale = std::frexp(cast.scale, &s);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const Unpacked& x = numbers[i];
        if (x.kind == Kind::infinity || x.kind == Kind::nan) continue;
        const Unpacked exact = x.kind == Kind::zero ? x : amp::scaled(x, cast.scale, cast.recorded_scale);
        const Unpacked taken = x.subnormal && cast.policy.flushes_input() ? Unpacked{.sign = x.sign} : exact;
        const bool random = cast.policy.rounding == Rounding::stochastic;
        Flags unused;
        const Unpacked y =
            unpack(cast.format, pack(cast.format, taken, cast.policy,
                                     random ? RandomKey{}.word(first_index + i, cast.policy.random_bits) : 0, unused));
        if (y.kind == Kind::infinity || y.kind == Kind::nan) {
            ++result.excluded;
            continue;
        }
        const Unpacked error = distance(y, exact);
        result.signal.add(static_cast<double>(x.significand) / recorded, x.exponent - r);
        result.noise.add(static_cast<double>(error.significand) / scale, error.exponent - s);
        result.add(x.kind == Kind::zero ? std::nullopt : std::optional(ratio(error, exact)));
    }
}

bool fits_double(const Cast& cast) {
    const auto moderate = [](double scale) {
        const std::optional<int> k = exact_log2(scale);
        return k && std::abs(*k) <= 150;
    };
    return moderate(cast.scale) && moderate(cast.recorded_scale);
}

/// The fast version for numbers and scales that fit doubles: then products and values are exact doubles, and every
/// error is rounded to double once.
void add_errors(const Cast& cast, ErrorSums& worker, std::uint64_t first_index, CastError& result) {
    const std::vector<double>& values = worker.values;
    const bool flush = cast.policy.flushes_input();
    for (std::size_t i = 0; i < values.size(); ++i)
        worker.scaled[i] =
            flush && worker.numbers[i].subnormal ? 0 * values[i] : values[i] * cast.scale / cast.recorded_scale;
    quantize(cast.format, worker.scaled, worker.rounded,
             {.policy = cast.policy, .key = {}, .first_index = first_index});
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i])) continue;
        if (!std::isfinite(worker.rounded[i])) {
            ++result.excluded;
            continue;
        }
        const double x = values[i] / cast.recorded_scale;
        const double error = std::fabs(static_cast<double>(worker.rounded[i]) / cast.scale - x);
        result.signal.add(x);
        result.noise.add(error);
        result.add(x == 0 ? std::nullopt : std::optional(error / std::fabs(x)));
    }
}

} // namespace

double CastError::sqnr() const {
    const FloatEnvironment environment;
    if (noise.is_zero() && !signal.is_zero()) return INFINITY;
    const auto [s, i] = signal.parts();
    const auto [n, j] = noise.parts();
    if (std::abs(i - j) < 1000) return 10 * std::log10(std::ldexp(s / n, i - j));
    return 10 * (std::log10(s / n) + (i - j) * std::log10(2.0)); // a ratio of more than 3000 dB does not fit a double
}

void CastError::add(std::optional<double> relative) {
    ++compared;
    if (!relative) return;
    ++nonzero;
    sum_relative += *relative;
    max_relative = std::max(max_relative, *relative);
}

void CastError::merge(const CastError& later) {
    const FloatEnvironment environment;
    compared += later.compared;
    excluded += later.excluded;
    signal += later.signal;
    noise += later.noise;
    max_relative = std::max(max_relative, later.max_relative);
    sum_relative += later.sum_relative;
    nonzero += later.nonzero;
}

void CastError::repeat(std::uint64_t times) {
    const FloatEnvironment environment;
    compared *= times;
    excluded *= times;
    nonzero *= times;
    const auto factor = static_cast<double>(times);
    signal *= factor;
    noise *= factor;
    sum_relative *= factor;
}

std::vector<CastError> measure_errors(const TensorFile& file, std::size_t tensor, std::span<const Cast> casts,
                                      int threads, const Progress& progress) {
    const FloatEnvironment environment;
    const bool random =
        std::ranges::any_of(casts, [](const Cast& c) { return c.policy.rounding == Rounding::stochastic; });
    const DistinctElements once(file, tensor);
    if (once.repeats() > 1 && !random) { // with random words, repeated elements may be rounded differently
        std::vector<CastError> result = measure_errors(once, 0, casts, threads, progress);
        for (CastError& error : result) error.repeat(once.repeats());
        return result;
    }
    const DType dtype = file.tensors()[tensor].dtype;
    std::vector<CastError> result(casts.size());
    BlockParts<std::vector<CastError>> parts;
    detail::for_each_block<ErrorSums>(
        file, tensor, bytes_of(dtype, sum_block), threads, progress, [] { return std::make_unique<ErrorSums>(); },
        [&](ErrorSums& worker, std::uint64_t index, std::span<const std::byte> data) {
            worker.fill(dtype, data);
            std::vector<CastError> errors(casts.size());
            for (std::size_t k = 0; k < casts.size(); ++k)
                if (worker.fits_double && fits_double(casts[k]))
                    add_errors(casts[k], worker, index * sum_block, errors[k]);
                else add_errors(casts[k], worker.numbers, index * sum_block, errors[k]);
            parts.add(index, std::move(errors));
        },
        [&] {
            parts.take([&](const std::vector<CastError>& errors) {
                for (std::size_t k = 0; k < casts.size(); ++k) result[k].merge(errors[k]);
            });
        });
    return result;
}

} // namespace amp
