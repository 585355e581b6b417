// Products by strips: some columns of b are packed, and the rows of a pass along them, one sum a column, which stays in
// registers while k passes.
#pragma once

#include <ampscope/formats/dot.h>
#include <ampscope/sim/backend/cpu/detail/panels.h>
#include <ampscope/sim/backend/cpu/detail/product_task.h>
#include <ampscope/sim/backend/kernels/fma.h>

#include <array>
#include <cmath>
#include <cstring>

namespace amp::cpu {

/// Columns from j on of b, `width` of them or zeros, one row of them after the other.
template <class Number>
const Number* pack_strip(const Product& p, std::int64_t j, std::int64_t width) {
    static thread_local Panels<Number> panels;
    Number* const strip = panels.resize(p.k * width);
    const std::int64_t n = std::min(width, p.n - j);
    for (std::int64_t l = 0; l < p.k; ++l) {
        Number* const line = strip + l * width;
        if (p.b.column_stride == 1) std::copy_n(p.b.data + l * p.b.row_stride + j, n, line);
        else
            for (std::int64_t c = 0; c < n; ++c) line[c] = at(p.b, l, j + c);
        std::fill(line + n, line + width, Number{0});
    }
    return strip;
}

/// Calls row(a, strip, n, out, lost) for each row of a and each strip of columns: it adds up p.k products for each of
/// `width` columns, of which n are needed, and sets lost[c] of a sum that it cannot tell, which is then computed by the
/// definition.
template <std::int64_t width, class Number = float, class Row>
void by_strips(const Product& p, const Row& row) {
    // A strip is packed for so many rows, or for fewer, so that each thread has some.
    const std::int64_t strips = (p.n + width - 1) / width, parts = (thread_count(p.threads) + strips - 1) / strips;
    const std::int64_t tall = std::min<std::int64_t>(128, share_of(p.m, parts)), blocks = (p.m + tall - 1) / tall;
    over_threads(p, strips * blocks, tall * width * p.k, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t j = t / blocks * width, first = t % blocks * tall, n = std::min(width, p.n - j);
            const Number* const strip = pack_strip<Number>(p, j, width);
            for (std::int64_t i = first; i < std::min(p.m, first + tall); ++i) {
                alignas(64) float out[width];
                alignas(64) std::uint64_t lost[width]{};
                row(p.a.data + i * p.a.row_stride, strip, n, &out[0], &lost[0]);
                for (std::int64_t c = 0; c < n; ++c) {
                    const float sum = lost[c] == 0 ? out[c] : plain(p, i, j + c);
                    p.out[i * p.n + j + c] = std::isnan(sum) ? canonical_nan : sum;
                }
            }
        }
    });
}

/// FP32 products added as a tree: level i holds a sum of 2^i products if bit i of their count is set. The sums of eight
/// are made in registers.
struct PairwiseStrip {
    static constexpr std::int64_t width = 64;
    using Line = std::array<float, width>;

    AMPSCOPE_KERNEL void run(const float* a, std::int64_t stride, const float* strip, std::int64_t k, float* out) {
        alignas(64) Line levels[48];
        std::uint64_t count = 0;
        const auto carry = [&](Line & sum, std::size_t level) __attribute__((always_inline)) {
            for (; (count >> level & 1) != 0; ++level)
                for (std::size_t c = 0; c < width; ++c) sum[c] = levels[level][c] + sum[c];
            levels[level] = sum;
        };
        alignas(64) Line sum;
        std::int64_t l = 0;
        for (; l + 8 <= k; l += 8, count += 8) {
            float x[8];
            for (std::int64_t i = 0; i < 8; ++i) x[i] = a[(l + i) * stride];
            const float* const b = strip + l * width;
            for (std::int64_t c = 0; c < width; ++c) {
                const auto product = [&](std::int64_t i) { return x[i] * b[i * width + c]; };
                const float low = (product(0) + product(1)) + (product(2) + product(3));
                const float high = (product(4) + product(5)) + (product(6) + product(7));
                sum[static_cast<std::size_t>(c)] = low + high;
            }
            carry(sum, 3);
        }
        for (; l < k; ++l, ++count) {
            for (std::size_t c = 0; c < width; ++c)
                sum[c] = a[l * stride] * strip[static_cast<std::size_t>(l * width) + c];
            carry(sum, 0);
        }
        bool first = true;
        for (std::size_t level = 0; count >> level != 0; ++level) {
            if ((count >> level & 1) == 0) continue;
            for (std::size_t c = 0; c < width; ++c) sum[c] = first ? levels[level][c] : levels[level][c] + sum[c];
            first = false;
        }
        for (std::size_t c = 0; c < width; ++c) out[c] = 0.0F + sum[c]; // added to the sum so far, which is +0
    }
};

/// The exact sum, rounded once to FP32. It is kept in two doubles, which hold it unless something is lost from the
/// second, or is not finite.
template <std::size_t bytes>
struct ExactStrip {
    static constexpr std::int64_t width = 32, lanes = bytes / sizeof(double), vectors = 4;
    using Doubles = typename Vector<double, bytes>::Type;
    using Words = typename Vector<std::uint64_t, bytes>::Type;

    AMPSCOPE_KERNEL void run(const float* a, std::int64_t stride, const double* strip, std::int64_t k, float* out,
                             std::uint64_t* unknown) {
        for (std::int64_t c = 0; c < width; c += vectors * lanes)
            columns(a, stride, strip + c, k, out + c, unknown + c);
    }

  private:
    /// The sums of as many columns as registers hold.
    AMPSCOPE_KERNEL void columns(const float* a, std::int64_t stride, const double* strip, std::int64_t k, float* out,
                                 std::uint64_t* unknown) {
        Doubles high[vectors]{}, low[vectors]{};
        Words lost[vectors]{};
        for (std::int64_t l = 0; l < k; ++l) {
            const double x = a[l * stride];
#pragma GCC unroll 4
            for (std::int64_t v = 0; v < vectors; ++v) {
                Doubles b;
                std::memcpy(&b, strip + l * width + v * lanes, sizeof b);
                const Doubles product = b * x, sum = high[v] + product;
                const Doubles part = sum - high[v], error = (high[v] - (sum - part)) + (product - part); // exact: Knuth
                const Doubles next = low[v] + error;
                // The difference to the larger of two numbers is exact (Dekker), and tells whether their sum is.
                lost[v] |= reinterpret_cast<Words>(next - low[v]) ^ reinterpret_cast<Words>(error);
                lost[v] |= reinterpret_cast<Words>(next - error) ^ reinterpret_cast<Words>(low[v]);
                high[v] = sum;
                low[v] = next;
            }
        }
        for (std::int64_t c = 0; c < vectors * lanes; ++c) {
            const double upper = high[c / lanes][c % lanes], lower = low[c / lanes][c % lanes];
            out[c] = static_cast<float>(amp::detail::add_to_odd(upper, lower));
            unknown[c] =
                lost[c / lanes][c % lanes] << 1 | std::uint64_t{std::isnan(lower)}; // signs differ of zeros only
        }
    }
};

/// FP32 with Kahan's compensation: what an addition lost is subtracted from the next product.
template <std::size_t bytes>
struct KahanStrip {
    static constexpr std::int64_t width = 128, lanes = bytes / sizeof(float);
    static constexpr std::int64_t vectors = bytes == 64 ? 8 : 4; ///< two registers each
    using Floats = typename Vector<float, bytes>::Type;

    AMPSCOPE_KERNEL void run(const float* a, std::int64_t stride, const float* strip, std::int64_t k, float* out) {
        for (std::int64_t c = 0; c < width; c += vectors * lanes) columns(a, stride, strip + c, k, out + c);
    }

  private:
    AMPSCOPE_KERNEL void columns(const float* a, std::int64_t stride, const float* strip, std::int64_t k, float* out) {
        Floats sums[vectors]{}, lost[vectors]{};
        for (std::int64_t l = 0; l < k; ++l) {
            const float x = a[l * stride];
#pragma GCC unroll 8
            for (std::int64_t v = 0; v < vectors; ++v) {
                Floats b;
                std::memcpy(&b, strip + l * width + v * lanes, sizeof b);
                const Floats term = b * x - lost[v], next = sums[v] + term;
                lost[v] = (next - sums[v]) - term;
                sums[v] = next;
            }
        }
        std::memcpy(out, sums, sizeof sums);
    }
};

} // namespace amp::cpu
