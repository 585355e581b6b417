#include <ampscope/sim/backend/cpu/product.h>

#include <ampscope/sim/backend/cpu/detail/accumulate.h>
#include <ampscope/sim/base/parallel.h>

namespace amp::cpu {

void product(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format,
             std::span<const float> a, std::span<const float> b, std::span<float> out, const ProductShape& shape,
             int threads) {
    const auto [batch, m, n, k] = shape;
    const bool together = batch > 1; // one thread for each pair, several pairs at once
    const auto multiply = [&, m = m, n = n, k = k](std::uint64_t begin, std::uint64_t end) {
        for (auto i = static_cast<std::int64_t>(begin); i < static_cast<std::int64_t>(end); ++i)
            accumulate(accumulator, a_format, b_format, {a.data() + i * m * k, k, 1}, {b.data() + i * k * n, n, 1},
                       out.data() + i * m * n, m, n, k, together ? 1 : threads);
    };
    if (together) for_each_chunk(static_cast<std::uint64_t>(batch), 1, threads, multiply);
    else multiply(0, static_cast<std::uint64_t>(batch));
}

void product(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format,
             std::span<const float> a, std::span<const float> b, std::span<float> out, const ProductShape& shape,
             const Epilogue& epilogue, std::span<const float> bias, int threads) {
    product(accumulator, a_format, b_format, a, b, out, shape, threads);
    const auto n = static_cast<std::uint64_t>(shape.n), rows = static_cast<std::uint64_t>(shape.batch * shape.m);
    for_each_chunk(rows, 16, threads, [&](std::uint64_t begin, std::uint64_t end) {
        for (std::uint64_t at = begin * n; at < end * n; ++at)
            out[at] = finish(epilogue, out[at], bias.empty() ? 0.0F : bias[at % n]);
    });
}

void scaled_product(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format,
                    std::span<const float> a, std::span<const float> b, const BlockScalesOfProduct& scales,
                    std::span<float> out, const ProductShape& shape, int threads) {
    const auto [batch, m, n, k] = shape;
    accumulate_scaled(accumulator, a_format, b_format, {a.data(), k, 1}, {b.data(), n, 1},
                      {scales.a.data(), scales.b.data(), scales.format, scales.block}, out.data(), m, n, k, threads);
}

} // namespace amp::cpu
