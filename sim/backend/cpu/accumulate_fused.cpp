// Matrix products whose sums are those of matrix hardware: operands are packed for the kernels of fused_sum.h and
// group_sum.h, which know only finite numbers; infinities and NaN are mended afterwards.
#include <ampscope/sim/backend/cpu/detail/fused_sum.h>
#include <ampscope/sim/backend/cpu/detail/group_sum.h>
#include <ampscope/sim/backend/cpu/detail/panels.h>
#include <ampscope/sim/backend/cpu/detail/product_task.h>
#include <ampscope/sim/backend/cpu/detail/transpose.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

namespace amp::cpu {

namespace {

/// An operand in the form that FusedKernel reads: in lines along k, filled up with zeros to a whole number of periods.
template <class Real, class Exponent>
struct Packed {
    template <std::size_t bytes>
    using Kernel = FusedKernel<Real, Exponent, bytes>;
    std::int64_t k = 0; ///< length of a line, with the zeros
    Panels<Real> values;
    Panels<Exponent> exponents;
    Panels<ScaleTerm> scales;          ///< scales of groups, in the order of the values; may be empty
    std::vector<std::uint8_t> special; ///< rows (columns) with an infinity or NaN, which is zero here
};

constexpr std::uint8_t nan_scale = 2;

/// Packs scales: to.scales[(line * groups + g) * width + i] belongs to the g-th `group` products of a row, or column. A
/// group that only fills up a line has the scale 0.
template <class Real, class Exponent>
void pack_scales(const Product& p, const float* scales, std::int64_t rows, int width, Packed<Real, Exponent>& to) {
    const std::int64_t group = p.accumulator.scales.group, groups = to.k / group, lines = (rows + width - 1) / width;
    const FormatSpec format = scales == nullptr ? amp::format("e8m0") : p.scales.format;
    ScaleTerm* const terms = to.scales.resize(lines * width * groups);
    for (std::int64_t row = 0; row < lines * width; ++row)
        for (std::int64_t g = 0; g < groups; ++g) {
            float scale = row < rows && g * group < p.k ? 1.0F : 0.0F;
            if (scale != 0 && scales != nullptr) scale = scales[row * p.blocks() + g * group / p.scales.block];
            if (std::isnan(scale)) to.special[static_cast<std::size_t>(row)] = nan_scale;
            terms[(row / width * groups + g) * width + row % width] = scale_term(format, scale);
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

/// x as FusedKernel reads it; as an integer where GroupKernel does, with `unit` = 1.
template <class Real>
[[gnu::always_inline]] inline Real in_units(float x, float unit) {
    if constexpr (std::is_integral_v<Real>) return static_cast<Real>(x / unit);
    else return x;
}

/// Numbers as FusedKernel reads them, which are cut off to the bits of `kept`; infinities and NaN become zeros. x and
/// values have `width` numbers for each of n places along k; exponents of `together` places lie together. The bits of
/// the largest magnitude go to `largest`.
template <class Real, class Exponent, int together>
struct PackKernel {
    AMPSCOPE_KERNEL void run(const float* x, std::int64_t n, std::int64_t width, std::uint32_t kept, int least_exponent,
                             float unit, Real* values, Exponent* exponents, std::uint32_t* largest) {
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
                    values[at + t * width + i] = in_units<Real>(std::bit_cast<float>(finite ? bits : 0), unit);
                    exponents[at + i * together + t] =
                        static_cast<Exponent>(finite && magnitude != 0 ? exponent : exponent_of_zero<Exponent>);
                }
            }
        }
        *largest = most;
    }
};

/// to[l * width + i] = x(row + i, first + l) for l < n and i < width, with zeros beyond the last row and column.
template <std::int64_t width>
void gather(InstructionSet set, const MatrixView& x, std::int64_t rows, std::int64_t columns, std::int64_t row,
            std::int64_t first, std::int64_t n, float* to) {
    const std::int64_t tall = std::min(width, rows - row), wide = std::clamp<std::int64_t>(columns - first, 0, n);
    const float* const from = x.data + row * x.row_stride + first * x.column_stride;
    if (tall < width || wide < n) std::fill_n(to, n * width, 0.0F);
    if (width == 1 && x.column_stride == 1) {
        std::copy_n(from, wide, to);
    } else if (x.row_stride == 1) {
        for (std::int64_t l = 0; l < wide; ++l) std::copy_n(from + l * x.column_stride, tall, to + l * width);
    } else if (width > 1 && x.column_stride == 1) {
        dispatch<TransposeKernel<width>>(set, from, x.row_stride, tall, wide, to);
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
    const float unit = std::ldexp(1.0F, format.min_subnormal_exponent());
    over_threads(p, lines, width * to.k, [&](std::int64_t begin, std::int64_t end) {
        constexpr std::int64_t size = 2048, depth = size / width; // of what stays in the first-level cache
        float part[size], ordered[size];
        for (std::int64_t line = begin; line < end; ++line)
            for (std::int64_t first = 0; first < to.k; first += depth) {
                const std::int64_t n = std::min(depth, to.k - first), place = (line * to.k + first) * width;
                gather<width>(p.set, x, rows, p.k, line * width, first, n, part);
                if (p.accumulator.interleaved)
                    for (std::int64_t l = 0; l < n; ++l)
                        std::copy_n(part + position_of(p.accumulator, l) * width, width, ordered + l * width);
                const float* const from = p.accumulator.interleaved ? ordered : part;
                std::uint32_t largest = 0;
                if constexpr (width == 1)
                    dispatch<PackKernel<Real, Exponent, 1>>(p.set, from, std::int64_t{1}, n, kept,
                                                            format.min_exponent(), unit, values + place,
                                                            exponents + place, &largest);
                else
                    dispatch<PackKernel<Real, Exponent, exponents_together<Exponent>>>(
                        p.set, from, n, std::int64_t{width}, kept, format.min_exponent(), unit, values + place,
                        exponents + place, &largest);
                if (largest < 0x7f800000) continue;
                for (std::int64_t i = 0; i < n * width; ++i)
                    if (!std::isfinite(from[i])) to.special[static_cast<std::size_t>(line * width + i % width)] = 1;
            }
    });
}

/// c[0 ... columns) = the sums of one row with a panel of columns, promoted or not.
template <int columns, class Real, class Exponent>
void sum_columns(const Product& p, const FusedConstants& constants, const Packed<Real, Exponent>& a, std::int64_t row,
                 const Packed<Real, Exponent>& b, std::int64_t panel, float* c) {
    const Accumulator& acc = p.accumulator;
    /// Adds products [l, l + n) to `sums`.
    const auto add_products = [&](std::int64_t l, std::int64_t n, float* sums) {
        const std::int64_t x = row * a.k + l, y = (panel * b.k + l) * columns;
        const std::int64_t group = std::max(acc.scales.group, 1), first = l / group, all = a.k / group;
        const bool scaled = p.scales.a != nullptr || acc.scales.sums_groups;
        const ScaleTerm *const s = scaled ? a.scales.data() + row * all + first : nullptr,
                               *const t = scaled ? b.scales.data() + (panel * all + first) * columns : nullptr;
        if constexpr (std::is_integral_v<Real>)
            dispatch_vectors<GroupKernel>(p.set, &constants, a.values.data() + x, b.values.data() + y, s, t,
                                          n / acc.products, sums);
        else
            dispatch_vectors<Packed<Real, Exponent>::template Kernel>(
                p.set, &constants, a.values.data() + x, a.exponents.data() + x, b.values.data() + y,
                b.exponents.data() + y, s, t, n / acc.products, sums);
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
        else add_sums(fp32_format(), c, &part[0], columns);
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

template <class Real, class Exponent, int columns>
void sum_panels(const Product& p) {
    const FusedConstants constants = fused_constants(p.accumulator, p.a_format, p.b_format);
    static thread_local Packed<Real, Exponent> own_a, own_b;
    Packed<Real, Exponent>&a = own_a, &b = own_b; // packed by this thread, read by all that work on them
    pack<1>(p, p.accumulator.reads(p.a_format), p.a, p.m, a);
    pack<columns>(p, p.accumulator.reads(p.b_format), {p.b.data, p.b.column_stride, p.b.row_stride}, p.n, b);
    if (p.scales.a != nullptr || p.accumulator.scales.sums_groups) {
        pack_scales(p, p.scales.a, p.m, 1, a);
        pack_scales(p, p.scales.b, p.n, columns, b);
    }
    const std::int64_t panels = (p.n + columns - 1) / columns;
    over_threads(p, panels * p.m, columns * a.k, [&](std::int64_t begin, std::int64_t end) {
        alignas(64) float c[columns];
        for (std::int64_t at = begin; at < end; ++at) { // a panel stays in the cache for many rows
            const std::int64_t panel = at / p.m, row = at % p.m;
            sum_columns<columns>(p, constants, a, row, b, panel, c);
            for (std::int64_t j = 0; j < std::min<std::int64_t>(columns, p.n - panel * columns); ++j)
                p.out[row * p.n + panel * columns + j] = std::isnan(c[j]) ? canonical_nan : c[j];
        }
    });
    mend_specials(p, a.special, b.special);
}

/// Panels are as wide as the kernels for the instruction set. A product of few columns fills shorter vectors.
template <class Real, class Exponent>
void fused(Product p) {
    if (p.set == InstructionSet::avx512 && p.n <= fused_columns<32>) p.set = InstructionSet::avx2;
    switch (p.set) {
    case InstructionSet::avx512: return sum_panels<Real, Exponent, fused_columns<64>>(p);
    case InstructionSet::avx2: return sum_panels<Real, Exponent, fused_columns<32>>(p);
    case InstructionSet::baseline: return sum_panels<Real, Exponent, fused_columns<16>>(p);
    }
}

} // namespace

void add_sums(const FormatSpec& f, float* to, const float* sums, std::int64_t n) {
    if (f == fp32_format())
        for (std::int64_t j = 0; j < n; ++j) to[j] += sums[j];
    else
        for (std::int64_t j = 0; j < n; ++j) to[j] = quantize(f, static_cast<double>(to[j]) + sums[j]);
}

void sum_fused(const Product& p) {
    const Accumulator& acc = p.accumulator;
    const FormatSpec a = acc.reads(p.a_format), b = acc.reads(p.b_format);
    if (acc.scales.sums_groups) return fused<std::int16_t, std::int8_t>(p);
    const bool scaled = p.scales.a != nullptr;
    if (scaled || !is_near(p.set, a, p.a, p.m, p.k) || !is_near(p.set, b, p.b, p.k, p.n))
        fused<double, std::int16_t>(p);
    else if (a.exponent_bits <= 5 && b.exponent_bits <= 5) fused<float, std::int8_t>(p);
    else fused<float, std::int16_t>(p);
}

} // namespace amp::cpu
