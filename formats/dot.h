// One dot product with an accumulator, term by term: the definition of every row of accumulator.h. The trainer's fast
// version for whole matrices is sim/backend/cpu/detail/accumulate.h.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/codec.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace amp {

/// x without the bits below the last place of the format's normal numbers, as hardware reads FP32 as TF32.
constexpr float truncated(const FormatSpec& f, float x) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) >> (23 - f.fraction_bits) << (23 - f.fraction_bits));
}

/// Which of the products comes l-th when an instruction's 32 are interleaved.
constexpr std::size_t interleaved_order(std::size_t l) { return l / 32 * 32 + l % 16 / 2 * 4 + l % 2 + l / 16 % 2 * 2; }

namespace detail {

/// A term of a fused sum: (-1)^sign * significand * 2^(exponent - point), not normalised. A subnormal has its format's
/// least exponent and a significand below one.
struct Term {
    Kind kind;
    bool sign;
    int exponent, point;
    std::uint64_t significand;
};

/// x as a term, read in the format f.
constexpr Term term(const FormatSpec& f, float x) {
    const Unpacked u = unpack(truncated(f, x));
    Term t{.kind = u.kind, .sign = u.sign, .exponent = 0, .point = f.fraction_bits, .significand = 0};
    if (u.kind != Kind::finite) return t;
    const int leading = u.exponent + static_cast<int>(std::bit_width(u.significand)) - 1;
    t.exponent = std::max(leading, f.min_exponent());
    const int shift = u.exponent - (t.exponent - f.fraction_bits); // from FP32's last place to the format's
    t.significand = shift >= 0 ? u.significand << shift : shift > -64 ? u.significand >> -shift : 0;
    if (t.significand == 0) t.kind = Kind::zero;
    return t;
}

/// The exact product times 2^scale; 0 * infinity is NaN.
constexpr Term product(const Term& a, const Term& b, int scale) {
    Term t{.kind = Kind::zero,
           .sign = a.sign != b.sign,
           .exponent = a.exponent + b.exponent + scale,
           .point = a.point + b.point,
           .significand = 0};
    const bool zero = a.kind == Kind::zero || b.kind == Kind::zero;
    const bool infinite = a.kind == Kind::infinity || b.kind == Kind::infinity;
    if (a.kind == Kind::nan || b.kind == Kind::nan || (zero && infinite)) t.kind = Kind::nan;
    else if (infinite) t.kind = Kind::infinity;
    else if (!zero) {
        t.kind = Kind::finite;
        t.significand = a.significand * b.significand;
    }
    return t;
}

/// The NaN of matrix hardware: positive, every fraction bit set; for FP16 sums, too.
constexpr float hardware_nan() { return std::bit_cast<float>(0x7fffffff); }

/// units * 2^last, rounded as the row rounds the sum of a step; too large a sum becomes infinite in every rounding.
constexpr float round_sum(const Accumulator& acc, std::int64_t units, int last, bool negative_zero) {
    const bool sign = units < 0 || (units == 0 && negative_zero);
    const std::uint64_t magnitude =
        units < 0 ? 0 - static_cast<std::uint64_t>(units) : static_cast<std::uint64_t>(units);
    const int leading = last + static_cast<int>(std::bit_width(magnitude)) - 1;
    Flags flags;
    const std::uint32_t code = magnitude != 0 && leading > acc.sum.max_exponent()
                                   ? acc.sum.infinity_code() | (sign ? acc.sum.sign_mask() : 0)
                                   : round_pack(acc.sum, sign, last, magnitude, {.rounding = acc.rounding}, 0, flags);
    return decode(acc.sum, code);
}

/// One step of a fused sum: c plus as many products as the row adds at once.
constexpr float fused_step(const Accumulator& acc, std::span<const Term> products, float c) {
    // 1. Special values decide, whatever the other terms are.
    const Term addend = term(acc.result(), c);
    bool nan = addend.kind == Kind::nan, negative_zero = acc.keeps_negative_zero && addend.sign;
    bool infinite[2] = {addend.kind == Kind::infinity && !addend.sign, addend.kind == Kind::infinity && addend.sign};
    // 2. The largest exponent among all terms.
    int largest = addend.kind == Kind::zero ? acc.zero_exponent : addend.exponent;
    for (const Term& p : products) {
        nan |= p.kind == Kind::nan;
        infinite[p.sign ? 1 : 0] |= p.kind == Kind::infinity;
        negative_zero &= p.sign;
        largest = std::max(largest, p.kind == Kind::zero ? acc.zero_exponent : p.exponent);
    }
    if (nan || (infinite[0] && infinite[1])) return hardware_nan();
    if (infinite[0] || infinite[1])
        return decode(acc.result(), acc.result().infinity_code() | (infinite[1] ? acc.result().sign_mask() : 0));
    // 3. Magnitudes in units of the last place kept, what lies below it cut off; their sum is exact.
    const int last = largest - acc.fraction_bits;
    std::int64_t sum = 0;
    const auto add = [&](const Term& t) {
        if (t.kind == Kind::zero) return;
        const int shift = t.exponent - t.point - last;
        const std::uint64_t units = shift >= 0 ? t.significand << shift : shift > -64 ? t.significand >> -shift : 0;
        sum += t.sign ? -static_cast<std::int64_t>(units) : static_cast<std::int64_t>(units);
    };
    add(addend);
    for (const Term& p : products) add(p);
    // 4. Normalised and rounded once.
    return round_sum(acc, sum, last, negative_zero);
}

/// A fused sum over all of a and b, step by step; the last step is filled up with zeros. The products of a step are
/// multiplied by 2^scale_of(step). Operands are read in the formats fa and fb.
template <class Scale>
constexpr float fused_dot(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb, std::span<const float> a,
                          std::span<const float> b, float c, const Scale& scale_of) {
    std::array<Term, 64> products; // as many as a step of any row has, or more
    const auto step = static_cast<std::size_t>(acc.products);
    const std::size_t period = acc.interleaved ? 32 : step, end = (a.size() + period - 1) / period * period;
    for (std::size_t begin = 0; begin < end; begin += step) {
        const int scale = scale_of(begin / step);
        for (std::size_t i = 0; i < step; ++i) {
            const std::size_t l = acc.interleaved ? interleaved_order(begin + i) : begin + i;
            const bool inside = l < a.size();
            products[i] = product(term(fa, inside ? a[l] : 0.0F), term(fb, inside ? b[l] : 0.0F), scale);
        }
        c = fused_step(acc, std::span(products).first(step), c);
    }
    return c;
}

/// An exact sum of floats and products of floats: a two's complement integer in units of 2^-300.
class ExactSum {
  public:
    /// Adds a * b; NaN and infinities are remembered, not added.
    constexpr void add(const Unpacked& a, const Unpacked& b) {
        const bool sign = a.sign != b.sign;
        const bool zero = a.kind == Kind::zero || b.kind == Kind::zero;
        const bool infinite = a.kind == Kind::infinity || b.kind == Kind::infinity;
        if (a.is_nan() || b.is_nan() || (zero && infinite)) nan_ = true;
        else if (infinite) infinite_[sign ? 1 : 0] = true;
        else if (!zero) add(sign, a.significand * b.significand, a.exponent + b.exponent);
    }

    /// The sum rounded once to nearest-even. An empty sum is +0.
    [[nodiscard]] constexpr float rounded(const FormatSpec& f) const {
        if (nan_ || (infinite_[0] && infinite_[1])) return decode(f, f.nan_code());
        Flags flags;
        if (infinite_[0] || infinite_[1]) return decode(f, pack_infinity(f, infinite_[1], {}, flags));
        std::array<std::uint64_t, count> magnitude = words_;
        const bool sign = words_[count - 1] >> 63 != 0;
        if (sign) {
            std::uint64_t carry = 1;
            for (std::uint64_t& w : magnitude) {
                w = ~w + carry;
                carry = carry != 0 && w == 0 ? 1 : 0;
            }
        }
        std::size_t top = count - 1;
        while (top > 0 && magnitude[top] == 0) --top;
        if (magnitude[top] == 0) return 0;
        // The leading 64 bits; if anything lies below them, the last one is set.
        const int shift = std::countl_zero(magnitude[top]);
        std::uint64_t significand = magnitude[top] << shift;
        std::uint64_t rest = 0;
        if (top > 0) {
            if (shift > 0) significand |= magnitude[top - 1] >> (64 - shift);
            rest = magnitude[top - 1] << shift;
        }
        for (std::size_t i = 0; i + 1 < top; ++i) rest |= magnitude[i];
        significand |= rest != 0 ? 1 : 0;
        const int exponent = lowest + 64 * static_cast<int>(top) - shift;
        return decode(f, round_pack(f, sign, exponent, significand, {}, 0, flags));
    }

  private:
    static constexpr int lowest = -300;
    static constexpr std::size_t count = 11; // up to 2^404: room for 2^147 products of the largest floats

    constexpr void add(bool sign, std::uint64_t significand, int exponent) {
        const auto at = static_cast<unsigned>(exponent - lowest);
        const std::size_t word = at / 64;
        const unsigned shift = at % 64;
        const std::uint64_t parts[2] = {significand << shift, shift == 0 ? 0 : significand >> (64 - shift)};
        std::uint64_t carry = 0;
        for (std::size_t i = word; i < count; ++i) {
            const std::uint64_t part = i - word < 2 ? parts[i - word] : 0, old = words_[i];
            words_[i] = sign ? old - part - carry : old + part + carry;
            carry = sign ? std::uint64_t{old < part || (old == part && carry != 0)}
                         : std::uint64_t{words_[i] < old || (words_[i] == old && carry != 0)};
            if (carry == 0 && i > word) break;
        }
    }

    std::array<std::uint64_t, count> words_{};
    bool nan_ = false, infinite_[2] = {false, false};
};

/// A tree of sums: the left part is the largest power of two below the count. A finished part waits until one of its
/// size is finished.
constexpr std::uint32_t pairwise_sum(Arithmetic& math, std::span<const float> a, std::span<const float> b) {
    std::array<std::uint32_t, 64> parts{};
    std::size_t count = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::uint32_t sum = math.mul(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]));
        for (std::size_t n = i + 1; n % 2 == 0; n /= 2) sum = math.add(parts[--count], sum);
        parts[count++] = sum;
    }
    std::uint32_t sum = parts[--count];
    while (count > 0) sum = math.add(parts[--count], sum);
    return sum;
}

constexpr float pairwise_dot(std::span<const float> a, std::span<const float> b, float c) {
    Arithmetic math{fp32_format};
    if (a.empty()) return c;
    return std::bit_cast<float>(math.add(std::bit_cast<std::uint32_t>(c), pairwise_sum(math, a, b)));
}

constexpr float kahan_dot(std::span<const float> a, std::span<const float> b, float c) {
    Arithmetic math{fp32_format};
    std::uint32_t sum = std::bit_cast<std::uint32_t>(c), lost = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const std::uint32_t product = math.mul(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]));
        const std::uint32_t term = math.sub(product, lost), next = math.add(sum, term);
        lost = math.sub(math.sub(next, sum), term);
        sum = next;
    }
    return std::bit_cast<float>(sum);
}

constexpr float chain_dot(const FormatSpec& sum, std::span<const float> a, std::span<const float> b, float c) {
    Arithmetic math{sum};
    std::uint32_t s = encode(sum, c);
    for (std::size_t i = 0; i < a.size(); ++i) s = math.fma(unpack(a[i]), unpack(b[i]), unpack(sum, s));
    return decode(sum, s);
}

constexpr float exact_dot(std::span<const float> a, std::span<const float> b, float c) {
    ExactSum sum;
    for (std::size_t i = 0; i < a.size(); ++i) sum.add(unpack(a[i]), unpack(b[i]));
    sum.add(unpack(c), unpack(1.0F));
    return sum.rounded(fp32_format);
}

/// x + y to nearest-even, as two sums are added.
constexpr float add_sums(const Accumulator& acc, const FormatSpec& f, float x, float y) {
    Arithmetic math{f, {.nan = acc.method == Accumulation::fused ? NanRule::all_ones : NanRule::canonical}};
    const NanRule nan = math.policy.nan;
    return decode(f, math.add(encode(f, x, math.policy), encode(f, y, math.policy)), nan);
}

/// A fused sum without promotion: all of it at once or, if interleaved, one instruction of 32 products after another.
constexpr float instructions_dot(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb,
                                 std::span<const float> a, std::span<const float> b, float c) {
    const std::size_t instruction = acc.interleaved ? 32 : a.size();
    for (std::size_t begin = 0; begin < a.size(); begin += instruction) {
        const std::size_t n = std::min(instruction, a.size() - begin);
        const float sum = fused_dot(acc, fa, fb, a.subspan(begin, n), b.subspan(begin, n), acc.interleaved ? 0 : c,
                                    [](std::size_t) { return 0; });
        c = acc.interleaved ? add_sums(acc, acc.result(), c, sum) : sum;
    }
    return c;
}

/// A sum without promotion.
constexpr float plain_dot(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb, std::span<const float> a,
                          std::span<const float> b, float c) {
    switch (acc.method) {
    case Accumulation::chain: return chain_dot(acc.sum, a, b, c);
    case Accumulation::exact: return exact_dot(a, b, c);
    case Accumulation::pairwise: return pairwise_dot(a, b, c);
    case Accumulation::kahan: return kahan_dot(a, b, c);
    case Accumulation::fused: break;
    }
    return instructions_dot(acc, fa, fb, a, b, c);
}

} // namespace detail

/// dot() for a device, which cannot look up names: fa and fb are what acc.reads() gives.
constexpr float dot_as_read(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb,
                            std::span<const float> a, std::span<const float> b, float c) {
    const bool promotes = acc.promote_every != 0;
    const std::size_t every =
        promotes ? static_cast<std::size_t>(acc.promote_every) : std::max<std::size_t>(a.size(), 1);
    for (std::size_t begin = 0; begin < a.size() || (begin == 0 && !promotes); begin += every) {
        const std::size_t n = std::min(every, a.size() - begin);
        const float sum = detail::plain_dot(acc, fa, fb, a.subspan(begin, n), b.subspan(begin, n), promotes ? 0 : c);
        c = promotes ? detail::add_sums(acc, acc.total(), c, sum) : sum;
    }
    return c;
}

/// a . b + c as the accumulator adds up. The spans have the same length; their numbers are values of a_format and
/// b_format, which the accumulator takes; c is a value of acc.total(). A NaN of matrix hardware is 0x7fffffff (for FP16
/// sums, too), any other NaN is canonical; infinity - infinity and 0 * infinity are NaN. Sources: accumulator.h.
constexpr float dot(const Accumulator& acc, const FormatSpec& a_format, const FormatSpec& b_format,
                    std::span<const float> a, std::span<const float> b, float c = 0) {
    return dot_as_read(acc, acc.reads(a_format), acc.reads(b_format), a, b, c);
}

} // namespace amp
