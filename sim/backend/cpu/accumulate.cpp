#include <ampscope/sim/backend/cpu/detail/accumulate.h>

#include <ampscope/formats/block.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/detail/column_sums.h>
#include <ampscope/sim/backend/cpu/detail/fused_sum.h>
#include <ampscope/sim/backend/cpu/detail/panels.h>
#include <ampscope/sim/backend/cpu/detail/transpose.h>
#include <ampscope/sim/base/parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

namespace amp::cpu {

namespace {

constexpr float canonical_nan = std::bit_cast<float>(0x7fc00000);

/// Least number of products for a thread; fewer are not worth waking one.
constexpr std::int64_t products_at_once = 1 << 18;

struct Product {
    const Accumulator& accumulator;
    FormatSpec a_format, b_format;
    MatrixView a, b;
    float* out;
    std::int64_t m, n, k;
    int threads;
    InstructionSet set;
    const float *a_scales = nullptr, *b_scales = nullptr; ///< MX scales; a row's (a column's) are contiguous
    [[nodiscard]] std::int64_t blocks() const { return (k + accumulator.products - 1) / accumulator.products; }
};

float at(const MatrixView& x, std::int64_t i, std::int64_t j) { return x.data[i * x.row_stride + j * x.column_stride]; }

/// Calls body(begin, end) for parts of [0, count), each element of which costs `cost` products.
template <class Body>
void over_threads(const Product& p, std::int64_t count, std::int64_t cost, const Body& body) {
    const std::int64_t share = std::max<std::int64_t>(1, products_at_once / std::max<std::int64_t>(cost, 1));
    for_each_chunk(static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(share), p.threads,
                   [&](std::uint64_t begin, std::uint64_t end) {
                       body(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
                   });
}

/// One element, computed by the definition.
float plain(const Product& p, std::int64_t i, std::int64_t j) {
    std::vector<float> x, y;
    for (std::int64_t l = 0; l < p.k; ++l) {
        x.push_back(at(p.a, i, l));
        y.push_back(at(p.b, l, j));
    }
    const auto scales = [&](const float* of, std::int64_t line) {
        return std::span(of + line * p.blocks(), static_cast<std::size_t>(p.blocks()));
    };
    const float d = p.a_scales == nullptr ? dot(p.accumulator, p.a_format, p.b_format, x, y)
                                          : scaled_dot(p.accumulator, p.a_format, p.b_format,
                                                       {x, scales(p.a_scales, i)}, {y, scales(p.b_scales, j)},
                                                       static_cast<std::size_t>(p.accumulator.products), true);
    return std::isnan(d) ? canonical_nan : d;
}

// Fused sums.

/// An operand in the form that FusedKernel reads: in lines along k, filled up with zeros to a whole number of periods.
template <class Real, class Exponent>
struct Packed {
    std::int64_t k = 0; ///< length of a line, with the zeros
    Panels<Real> values;
    Panels<Exponent> exponents;
    Panels<std::int16_t> scales;       ///< exponents of the scales of steps, in the order of the values; may be empty
    std::vector<std::uint8_t> special; ///< rows (columns) with an infinity or NaN, which is zero here
};

constexpr std::uint8_t nan_scale = 2;

/// Packs the exponents of MX scales: to.scales[(line * steps + s) * width + i].
template <class Operand>
void pack_scales(const float* scales, std::int64_t steps, std::int64_t rows, int width, Operand& to) {
    const std::int64_t lines = (rows + width - 1) / width;
    std::int16_t* const exponents = to.scales.resize(lines * width * steps);
    for (std::int64_t row = 0; row < lines * width; ++row)
        for (std::int64_t s = 0; s < steps; ++s) {
            const float scale = row < rows ? scales[row * steps + s] : 1.0F;
            exponents[(row / width * steps + s) * width + row % width] =
                static_cast<std::int16_t>(std::isnan(scale) ? 0 : binade_of(scale).exponent);
            if (std::isnan(scale)) to.special[static_cast<std::size_t>(row)] = nan_scale;
        }
}

std::int64_t position_of(const Accumulator& acc, std::int64_t l) {
    return acc.interleaved ? static_cast<std::int64_t>(interleaved_order(static_cast<std::size_t>(l))) : l;
}

/// Mask of the bits that are read of a number.
std::uint32_t kept_bits(const FormatSpec& f) { return ~std::uint32_t{0} << (23 - f.fraction_bits); }

/// Counts numbers that are neither near, zero, infinite nor NaN.
struct FarKernel {
    AMPSCOPE_KERNEL void run(const float* x, std::int64_t n, std::uint32_t kept, std::int32_t* count) {
        std::int32_t far = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & kept & 0x7fffffff;
            const auto exponent = static_cast<std::int32_t>(magnitude >> 23) - 127;
            const bool near = (exponent >= -near_exponent) & (exponent <= near_exponent);
            far += static_cast<std::int32_t>(!near & (magnitude != 0) & (exponent != 128));
        }
        *count = far;
    }
};

/// Whether FusedKernel<float> can read the operand.
bool is_near(InstructionSet set, const FormatSpec& f, const MatrixView& x, std::int64_t rows, std::int64_t columns) {
    if (f.exponent_bits <= 5) return true;
    if (x.row_stride == 1 && x.column_stride != 1) return is_near(set, f, {x.data, x.column_stride, 1}, columns, rows);
    const std::int64_t together = x.column_stride == 1 ? columns : 1;
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; j += together) {
            std::int32_t far = 0;
            dispatch<FarKernel>(set, x.data + i * x.row_stride + j * x.column_stride, together, kept_bits(f), &far);
            if (far > 0) return false;
        }
    return true;
}

/// Numbers as FusedKernel reads them, which are cut off to the bits of `kept`; infinities and NaN become zeros. x and
/// values have `width` numbers for each of n places along k; exponents of `together` places lie together. The bits of
/// the largest magnitude go to `largest`.
template <class Real, class Exponent, int together>
struct PackKernel {
    AMPSCOPE_KERNEL void run(const float* x, std::int64_t n, std::int64_t width, std::uint32_t kept, int least_exponent,
                             Real* values, Exponent* exponents, std::uint32_t* largest) {
        std::uint32_t most = 0;
        for (std::int64_t l = 0; l < n; l += together) {
            const std::int64_t at = l * width;
            AMPSCOPE_INDEPENDENT
            for (std::int64_t i = 0; i < width; ++i) {
#pragma GCC unroll 4
                for (int t = 0; t < together; ++t) {
                    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x[at + t * width + i]) & kept;
                    const std::uint32_t magnitude = bits & 0x7fffffff;
                    const bool finite = magnitude < 0x7f800000;
                    const int exponent = std::max(static_cast<int>(magnitude >> 23) - 127, least_exponent);
                    most = most > magnitude ? most : magnitude;
                    values[at + t * width + i] = std::bit_cast<float>(finite ? bits : 0);
                    exponents[at + i * together + t] =
                        static_cast<Exponent>(finite && magnitude != 0 ? exponent : exponent_of_zero<Exponent>);
                }
            }
        }
        *largest = most;
    }
};

/// to[l * width + i] = x(row + i, first + l) for l < n and i < width, with zeros beyond the last row and column.
void gather(InstructionSet set, const MatrixView& x, std::int64_t rows, std::int64_t columns, std::int64_t row,
            std::int64_t first, std::int64_t n, std::int64_t width, float* to) {
    const std::int64_t tall = std::min(width, rows - row), wide = std::clamp<std::int64_t>(columns - first, 0, n);
    const float* const from = x.data + row * x.row_stride + first * x.column_stride;
    if (tall < width || wide < n) std::fill_n(to, n * width, 0.0F);
    if (width == 1 && x.column_stride == 1) {
        std::copy_n(from, wide, to);
    } else if (x.row_stride == 1) {
        for (std::int64_t l = 0; l < wide; ++l) std::copy_n(from + l * x.column_stride, tall, to + l * width);
    } else if (x.column_stride == 1 && width == fused_columns && tall == width) {
        dispatch<TransposeKernel<fused_columns>>(set, from, x.row_stride, wide, to);
    } else {
        for (std::int64_t i = 0; i < tall; ++i)
            for (std::int64_t l = 0; l < wide; ++l) to[l * width + i] = from[i * x.row_stride + l * x.column_stride];
    }
}

/// Packs lines of `width` rows of x (columns, for the transpose) side by side: values[(line * k + l) * width + i].
template <int width, class Real, class Exponent>
void pack(const Product& p, const FormatSpec& format, const MatrixView& x, std::int64_t rows,
          Packed<Real, Exponent>& to) {
    const std::int64_t period = p.accumulator.interleaved ? 32 : p.accumulator.products;
    to.k = (p.k + period - 1) / period * period;
    const std::int64_t lines = (rows + width - 1) / width;
    Real* const values = to.values.resize(lines * width * to.k);
    Exponent* const exponents = to.exponents.resize(lines * width * to.k);
    to.special.assign(static_cast<std::size_t>(lines * width), 0);
    const std::uint32_t kept = kept_bits(format);
    over_threads(p, lines, width * to.k, [&](std::int64_t begin, std::int64_t end) {
        constexpr std::int64_t size = 2048, depth = size / width; // of what stays in the first-level cache
        float part[size], ordered[size];
        for (std::int64_t line = begin; line < end; ++line)
            for (std::int64_t first = 0; first < to.k; first += depth) {
                const std::int64_t n = std::min(depth, to.k - first), place = (line * to.k + first) * width;
                gather(p.set, x, rows, p.k, line * width, first, n, width, part);
                if (p.accumulator.interleaved)
                    for (std::int64_t l = 0; l < n; ++l)
                        std::copy_n(part + position_of(p.accumulator, l) * width, width, ordered + l * width);
                const float* const from = p.accumulator.interleaved ? ordered : part;
                std::uint32_t largest = 0;
                if constexpr (width == 1)
                    dispatch<PackKernel<Real, Exponent, 1>>(p.set, from, std::int64_t{1}, n, kept,
                                                            format.min_exponent(), values + place, exponents + place,
                                                            &largest);
                else
                    dispatch<PackKernel<Real, Exponent, exponents_together<Exponent>>>(
                        p.set, from, n, std::int64_t{width}, kept, format.min_exponent(), values + place,
                        exponents + place, &largest);
                if (largest < 0x7f800000) continue;
                for (std::int64_t i = 0; i < n * width; ++i)
                    if (!std::isfinite(from[i])) to.special[static_cast<std::size_t>(line * width + i % width)] = 1;
            }
    });
}

/// to += sums, rounded to the format.
void add_sums(const FormatSpec& f, float* to, const float* sums, int n) {
    if (f == format("fp32"))
        for (int j = 0; j < n; ++j) to[j] += sums[j];
    else
        for (int j = 0; j < n; ++j) to[j] = quantize(f, static_cast<double>(to[j]) + sums[j]);
}

/// c[0 ... columns) = the sums of one row with 32 columns, promoted or not.
template <class Real, class Exponent>
void sum_columns(const Product& p, const FusedConstants& constants, const Packed<Real, Exponent>& a, std::int64_t row,
                 const Packed<Real, Exponent>& b, std::int64_t panel, float* c) {
    constexpr int columns = fused_columns;
    const Accumulator& acc = p.accumulator;
    /// Adds products [l, l + n) to `sums`.
    const auto add_products = [&](std::int64_t l, std::int64_t n, float* sums) {
        const std::int64_t x = row * a.k + l, y = (panel * b.k + l) * columns;
        const std::int64_t first = l / acc.products, all = a.k / acc.products;
        const bool scaled = p.a_scales != nullptr;
        dispatch<FusedKernel<Real, Exponent>>(
            p.set, &constants, a.values.data() + x, a.exponents.data() + x, b.values.data() + y, b.exponents.data() + y,
            scaled ? a.scales.data() + row * all + first : nullptr,
            scaled ? b.scales.data() + (panel * all + first) * columns : nullptr, n / acc.products, sums);
    };
    const std::int64_t segment = acc.promote_every == 0 ? a.k : acc.promote_every;
    std::fill_n(c, columns, 0.0F);
    for (std::int64_t l = 0; l < a.k; l += segment) {
        const std::int64_t end = std::min(l + segment, a.k), instruction = acc.interleaved ? 32 : end - l;
        float part[columns]{};
        for (std::int64_t i = l; i < end; i += instruction) {
            if (!acc.interleaved) {
                add_products(i, instruction, &part[0]);
                continue;
            }
            float own[columns]{}; // each interleaved instruction begins with its own sum
            add_products(i, instruction, &own[0]);
            add_sums(acc.result(), &part[0], &own[0], columns);
        }
        if (acc.promote_every == 0) std::copy_n(part, columns, c);
        else add_sums(format("fp32"), c, &part[0], columns);
    }
}

/// Corrects elements whose products or sums involve infinities or NaN: whatever the finite numbers are, the result is
/// NaN, an infinity or a number.
void mend_specials(const Product& p, const std::vector<std::uint8_t>& rows, const std::vector<std::uint8_t>& columns) {
    const auto any = [](const std::vector<std::uint8_t>& v) { return std::ranges::any_of(v, std::identity{}); };
    if (!any(rows) && !any(columns)) return;
    const auto signs = [&](const FormatSpec& f, const MatrixView& x, std::int64_t height, std::int64_t width) {
        std::vector<float> s;
        for (std::int64_t i = 0; i < height; ++i)
            for (std::int64_t j = 0; j < width; ++j) {
                const float v = truncated(f, at(x, i, j));
                s.push_back(std::isfinite(v) && v != 0 ? std::copysign(1.0F, v) : v);
            }
        return s;
    };
    const std::vector<float> x = signs(p.accumulator.reads(p.a_format), p.a, p.m, p.k),
                             y = signs(p.accumulator.reads(p.b_format), p.b, p.k, p.n);
    std::vector<float> sums(static_cast<std::size_t>(p.m * p.n));
    matmul({x.data(), p.k, 1}, {y.data(), p.n, 1}, sums.data(), p.m, p.n, p.k, p.threads, p.set);
    for (std::int64_t i = 0; i < p.m; ++i)
        for (std::int64_t j = 0; j < p.n; ++j) {
            const float s = sums[static_cast<std::size_t>(i * p.n + j)];
            float& d = p.out[i * p.n + j];
            const auto row = static_cast<std::size_t>(i), column = static_cast<std::size_t>(j);
            if (std::isnan(s) || rows[row] == nan_scale || columns[column] == nan_scale) d = canonical_nan;
            // The sum overflowed before or after the infinity was added: the order decides.
            else if (std::isinf(s)) d = std::isfinite(d) ? s : plain(p, i, j);
        }
}

template <class Real, class Exponent>
void fused(const Product& p) {
    constexpr int columns = fused_columns;
    const auto bits = [&](const FormatSpec& f) {
        return std::min(f.fraction_bits, p.accumulator.reads(f).fraction_bits);
    };
    const FusedConstants constants = fused_constants(p.accumulator, bits(p.a_format), bits(p.b_format));
    static thread_local Packed<Real, Exponent> own_a, own_b;
    Packed<Real, Exponent>&a = own_a, &b = own_b; // packed by this thread, read by all that work on them
    pack<1>(p, p.accumulator.reads(p.a_format), p.a, p.m, a);
    pack<columns>(p, p.accumulator.reads(p.b_format), {p.b.data, p.b.column_stride, p.b.row_stride}, p.n, b);
    if (p.a_scales != nullptr) {
        pack_scales(p.a_scales, p.blocks(), p.m, 1, a);
        pack_scales(p.b_scales, p.blocks(), p.n, columns, b);
    }
    const std::int64_t panels = (p.n + columns - 1) / columns;
    over_threads(p, panels * p.m, columns * a.k, [&](std::int64_t begin, std::int64_t end) {
        alignas(64) float c[columns];
        for (std::int64_t at = begin; at < end; ++at) { // a panel stays in the cache for many rows
            const std::int64_t panel = at / p.m, row = at % p.m;
            sum_columns(p, constants, a, row, b, panel, c);
            for (std::int64_t j = 0; j < std::min<std::int64_t>(columns, p.n - panel * columns); ++j)
                p.out[row * p.n + panel * columns + j] = std::isnan(c[j]) ? canonical_nan : c[j];
        }
    });
    mend_specials(p, a.special, b.special);
}

// Other sums.

template <class Sums>
void by_columns(const Product& p, const Sums& prototype) {
    over_threads(p, p.m, p.n * p.k, [&](std::int64_t begin, std::int64_t end) {
        Sums sums = prototype;
        for (std::int64_t i = begin; i < end; ++i)
            for (std::int64_t j = 0; j < p.n; j += sum_width) {
                const std::int64_t n = std::min(sum_width, p.n - j);
                sums.begin();
                for (std::int64_t l = 0; l < p.k; ++l)
                    sums.add(p.set, at(p.a, i, l), p.b.data + l * p.b.row_stride + j * p.b.column_stride,
                             p.b.column_stride, n);
                for (std::int64_t c = 0; c < n; ++c) {
                    float sum = 0;
                    if constexpr (requires { sums.holds(c); }) sum = sums.holds(c) ? sums.end(c) : plain(p, i, j + c);
                    else sum = sums.end(c);
                    p.out[i * p.n + j + c] = std::isnan(sum) ? canonical_nan : sum;
                }
            }
    });
}

/// A sum without promotion.
void sum(const Product& p) {
    const Accumulator& acc = p.accumulator;
    switch (acc.method) {
    case Accumulation::chain:
        if (acc.sum == format("fp32")) return matmul(p.a, p.b, p.out, p.m, p.n, p.k, p.threads, p.set);
        return by_columns(p, ChainSums(acc.sum));
    case Accumulation::exact: return by_columns(p, ExactSums());
    case Accumulation::pairwise: return by_columns(p, PairwiseSums());
    case Accumulation::kahan: return by_columns(p, KahanSums());
    case Accumulation::fused: break;
    }
    const FormatSpec a = acc.reads(p.a_format), b = acc.reads(p.b_format);
    if (!is_near(p.set, a, p.a, p.m, p.k) || !is_near(p.set, b, p.b, p.k, p.n)) fused<double, std::int16_t>(p);
    else if (a.exponent_bits <= 5 && b.exponent_bits <= 5) fused<float, std::int8_t>(p);
    else fused<float, std::int16_t>(p);
}

} // namespace

void accumulate(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format, MatrixView a,
                MatrixView b, float* out, std::int64_t m, std::int64_t n, std::int64_t k, int threads,
                InstructionSet set) {
    const FloatEnvironment environment;
    if (k == 0) std::fill_n(out, m * n, 0.0F);
    if (m == 0 || n == 0 || k == 0) return;
    Product p{accumulator, a_format, b_format, a, b, out, m, n, k, threads, set};
    if (accumulator.promote_every == 0 || accumulator.method == Accumulation::fused) return sum(p);
    std::vector<float> part(static_cast<std::size_t>(m * n));
    p.out = part.data();
    std::fill_n(out, m * n, 0.0F);
    for (std::int64_t l = 0; l < k; l += accumulator.promote_every) {
        p.a.data = a.data + l * a.column_stride;
        p.b.data = b.data + l * b.row_stride;
        p.k = std::min<std::int64_t>(accumulator.promote_every, k - l);
        sum(p);
        for (std::size_t i = 0; i < part.size(); ++i) out[i] += part[i];
    }
    for (std::int64_t i = 0; i < m * n; ++i)
        if (std::isnan(out[i])) out[i] = canonical_nan;
}

void accumulate_mx(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format, MatrixView a,
                   MatrixView b, const float* a_scales, const float* b_scales, float* out, std::int64_t m,
                   std::int64_t n, std::int64_t k, int threads, InstructionSet set) {
    const FloatEnvironment environment;
    if (k == 0) std::fill_n(out, m * n, 0.0F);
    if (m == 0 || n == 0 || k == 0) return;
    fused<double, std::int16_t>(
        {accumulator, a_format, b_format, a, b, out, m, n, k, threads, set, a_scales, b_scales});
}

} // namespace amp::cpu
