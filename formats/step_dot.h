// The steps of matrix hardware whose sums are not fused as NVIDIA's are: AMD's, which floor, and those of FP32
// operations that flush subnormals.
#pragma once

#include <ampscope/formats/bits.h>
#include <ampscope/formats/fused_dot.h>

namespace amp::detail {

/// x * 2^shift, rounded down.
constexpr std::int64_t floored(std::int64_t x, int shift) {
    return shift >= 0 ? x << shift : shift > -63 ? x >> -shift : x < 0 ? -1 : 0;
}

/// A sum of products in units of 2^(exponent - bits), each cut off there. If all are zero, `exponent` is
/// no_zero_exponent.
struct AlignedSum {
    int exponent = Accumulator::no_zero_exponent;
    std::int64_t units = 0;
};
constexpr AlignedSum aligned_sum(std::span<const Term> products, std::size_t first, std::size_t stride, int bits) {
    AlignedSum sum;
    for (std::size_t i = first; i < products.size(); i += stride)
        if (products[i].kind != Kind::zero) sum.exponent = std::max(sum.exponent, products[i].exponent);
    for (std::size_t i = first; i < products.size(); i += stride) {
        const Term& t = products[i];
        if (t.kind == Kind::zero) continue;
        const int shift = t.exponent - t.point - (sum.exponent - bits);
        const std::uint64_t units = shift >= 0 ? t.significand << shift : shift > -64 ? t.significand >> -shift : 0;
        sum.units += t.sign ? -static_cast<std::int64_t>(units) : static_cast<std::int64_t>(units);
    }
    return sum;
}

/// One step of AMD's CDNA3 (MMA-Sim, amd_fused_dot_rd_add).
constexpr float floored_step(const Accumulator& acc, std::span<const Term> products, float c) {
    // 1. Special values: those of IEEE arithmetic first; then products from 2^128 on count as infinities.
    const Term addend = term(fp32_format(), c);
    bool nan = addend.kind == Kind::nan;
    bool infinite[2] = {addend.kind == Kind::infinity && !addend.sign, addend.kind == Kind::infinity && addend.sign},
         large[2] = {false, false};
    for (const Term& p : products) {
        nan |= p.kind == Kind::nan;
        if (p.kind == Kind::infinity) infinite[p.sign ? 1 : 0] = true;
        const int leading = p.exponent - p.point + bit_length(p.significand) - 1;
        if (p.kind == Kind::finite && leading >= 128) large[p.sign ? 1 : 0] = true;
    }
    if (!nan && !infinite[0] && !infinite[1])
        for (int i = 0; i < 2; ++i) infinite[i] = large[i];
    const std::uint32_t infinity = fp32_format().infinity_code();
    if (nan || (infinite[0] && infinite[1])) return decode(fp32_format(), fp32_format().nan_code());
    if (infinite[0] || infinite[1])
        return decode(fp32_format(), infinity | (infinite[1] ? fp32_format().sign_mask() : 0));
    // 2. Products aligned and cut off, all together or even and odd ones apart, whose sums are floored alike.
    const bool halves = acc.method == Accumulation::floored_halves;
    const int bits = acc.fraction_bits;
    AlignedSum sum = aligned_sum(products, 0, halves ? 2 : 1, bits);
    if (halves) {
        const AlignedSum odd = aligned_sum(products, 1, 2, bits);
        const int both = std::max(sum.exponent, odd.exponent);
        sum = {both, floored(sum.units, sum.exponent - both) + floored(odd.units, odd.exponent - both)};
    }
    // 3. Their sum and c, floored at their own places below the larger exponent; then added and rounded once.
    constexpr int finest = 31;
    const bool zero = addend.kind == Kind::zero;
    const int largest = zero ? sum.exponent : std::max(sum.exponent, addend.exponent);
    if (largest == Accumulator::no_zero_exponent) return 0;
    std::int64_t total = floored(sum.units, finest - bits + sum.exponent - largest);
    if (!zero && (!halves || addend.exponent >= largest - 25)) {
        const auto magnitude = static_cast<std::int64_t>(addend.significand);
        const int places = bits - addend.point + addend.exponent - largest;
        total += floored(addend.sign ? -magnitude : magnitude, places) << (finest - bits);
    }
    return round_sum(acc, total, largest - finest);
}

constexpr float floored_dot(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb, const Numbers& a,
                            const Numbers& b, float c) {
    std::array<Term, 16> products;
    const auto step = static_cast<std::size_t>(acc.products);
    for (std::size_t begin = 0; begin < a.size(); begin += step) {
        for (std::size_t i = 0; i < step; ++i) {
            const bool inside = begin + i < a.size();
            products[i] = product(term(fa, inside ? a[begin + i] : 0.0F), term(fb, inside ? b[begin + i] : 0.0F));
        }
        c = floored_step(acc, std::span(products).first(step), c);
    }
    return c;
}

/// FP32 arithmetic whose results are zeros of the same sign where they are subnormal.
class FlushedMath {
  public:
    static constexpr float flushed(float x, int least_exponent = -126) {
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
        return (bits & 0x7fffffff) < static_cast<std::uint32_t>(least_exponent + 127) << 23
                   ? std::bit_cast<float>(bits & 0x80000000)
                   : x;
    }
    constexpr float fma(float x, float y, float z) {
        return flushed(std::bit_cast<float>(math_.fma(code(x), code(y), code(z))));
    }
    constexpr float add(float x, float y) { return flushed(std::bit_cast<float>(math_.add(code(x), code(y)))); }

  private:
    static constexpr std::uint32_t code(float x) { return std::bit_cast<std::uint32_t>(x); }
    Arithmetic math_{fp32_format()};
};

/// A step of flushed sums; x and y are its operands, subnormal ones already zero.
constexpr float flushed_step(const Accumulator& acc, std::span<float> x, std::span<const float> y, float c) {
    FlushedMath math;
    if (acc.method == Accumulation::flushed_pairs) {
        for (std::size_t i = 0; i < x.size(); i += 2) {
            c = math.fma(x[i + 1], y[i + 1], c);
            c = math.fma(x[i], y[i], c);
        }
        return c;
    }
    if (acc.method == Accumulation::flushed_chains) {
        float chains[2] = {0, 0};
        for (std::size_t i = 0; i < x.size(); ++i) chains[i % 2] = math.fma(x[i], y[i], chains[i % 2]);
        return math.add(c, math.add(chains[0], chains[1]));
    }
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = math.fma(x[i], y[i], 0);
    for (std::size_t n = x.size(); n > 1; n /= 2) // of neighbours; sizes are powers of two
        for (std::size_t i = 0; i < n / 2; ++i) x[i] = math.add(x[2 * i], x[2 * i + 1]);
    return math.add(c, x[0]);
}

constexpr float flushed_dot(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb, const Numbers& a,
                            const Numbers& b, float c) {
    std::array<float, 32> x, y;
    const auto step = static_cast<std::size_t>(acc.products);
    c = FlushedMath::flushed(c);
    for (std::size_t begin = 0; begin < a.size(); begin += step) {
        for (std::size_t i = 0; i < step; ++i) {
            const bool inside = begin + i < a.size();
            x[i] = inside ? FlushedMath::flushed(a[begin + i], fa.min_exponent()) : 0;
            y[i] = inside ? FlushedMath::flushed(b[begin + i], fb.min_exponent()) : 0;
        }
        c = flushed_step(acc, std::span(x).first(step), std::span(y).first(step), c);
    }
    return c;
}

} // namespace amp::detail
