// Fused sums of matrix hardware, term by term, and the numbers that a dot product reads: the part of dot.h that knows
// the steps of an instruction.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/bits.h>
#include <ampscope/formats/codec.h>
#include <ampscope/formats/split_k.h>

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

/// Some of the numbers of an operand, in the order in which they are multiplied: those of a part of the sum, or a run
/// of them.
struct Numbers {
    std::span<const float> all;
    PartOfSum part{};
    std::size_t first = 0, count = 0; ///< positions in the part

    constexpr explicit Numbers(std::span<const float> x) : all(x), part{.count = x.size()}, count(x.size()) {}
    constexpr Numbers(std::span<const float> x, const PartOfSum& p) : all(x), part(p), count(p.count) {}

    [[nodiscard]] constexpr std::size_t size() const { return count; }
    /// Where the i-th number lies among all.
    [[nodiscard]] constexpr std::size_t place(std::size_t i) const { return part.at(first + i); }
    constexpr float operator[](std::size_t i) const { return all[place(i)]; }
    [[nodiscard]] constexpr Numbers subspan(std::size_t begin, std::size_t n) const {
        Numbers some = *this;
        some.first += begin;
        some.count = n;
        return some;
    }
};

/// The product of the two scales of a product: significand * 2^(exponent - point).
struct TermScale {
    int exponent = 0, point = 0;
    std::uint64_t significand = 1;
};

/// No scales.
struct Unscaled {
    constexpr TermScale operator()(std::size_t) const { return {}; }
};

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
    const int leading = u.exponent + bit_length(u.significand) - 1;
    t.exponent = std::max(leading, f.min_exponent());
    const int shift = u.exponent - (t.exponent - f.fraction_bits); // from FP32's last place to the format's
    t.significand = shift >= 0 ? u.significand << shift : shift > -64 ? u.significand >> -shift : 0;
    if (t.significand == 0) t.kind = Kind::zero;
    return t;
}

/// The exact product; 0 * infinity is NaN.
constexpr Term product(const Term& a, const Term& b) {
    Term t{.kind = Kind::zero,
           .sign = a.sign != b.sign,
           .exponent = a.exponent + b.exponent,
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

constexpr Term scaled(Term t, const TermScale& scale) {
    t.exponent += scale.exponent;
    t.point += scale.point;
    t.significand *= scale.significand;
    return t;
}

/// The exact sum of finite products as one term, whose exponent is 0 whatever the sum is: the scales alone align it.
/// `least` is the least exponent of a product.
constexpr Term sum_of_group(std::span<const Term> products, int least) {
    std::int64_t sum = 0;
    for (const Term& p : products) {
        if (p.kind == Kind::zero) continue;
        const auto units = static_cast<std::int64_t>(p.significand << (p.exponent - least));
        sum += p.sign ? -units : units;
    }
    return {.kind = Kind::finite,
            .sign = sum < 0,
            .exponent = 0,
            .point = products.front().point - least,
            .significand = static_cast<std::uint64_t>(sum < 0 ? -sum : sum)};
}

/// The NaN of matrix hardware: positive, every fraction bit set; for FP16 sums, too.
constexpr float hardware_nan() { return std::bit_cast<float>(0x7fffffff); }

/// units * 2^last, rounded as the row rounds the sum of a step; too large a sum becomes infinite in every rounding.
constexpr float round_sum(const Accumulator& acc, std::int64_t units, int last) {
    const bool sign = units < 0;
    const std::uint64_t magnitude =
        units < 0 ? 0 - static_cast<std::uint64_t>(units) : static_cast<std::uint64_t>(units);
    const int leading = last + bit_length(magnitude) - 1;
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
    bool nan = addend.kind == Kind::nan;
    bool infinite[2] = {addend.kind == Kind::infinity && !addend.sign, addend.kind == Kind::infinity && addend.sign};
    // 2. The largest exponent among all terms.
    int largest = addend.kind == Kind::zero ? acc.zero_exponent : addend.exponent;
    for (const Term& p : products) {
        nan |= p.kind == Kind::nan;
        infinite[p.sign ? 1 : 0] |= p.kind == Kind::infinity;
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
    // 4. Normalised and rounded once. What is zero then is +0, negative sums that are too small, too: seen on an H200,
    // assumed of the others.
    return round_sum(acc, sum, last) + 0.0F;
}

/// A fused sum over all of a and b, step by step; the last step is filled up with zeros. The product at place k has the
/// scales scale_of(k). Operands are read in the formats fa and fb.
template <class Scale>
constexpr float fused_dot(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb, const Numbers& a,
                          const Numbers& b, float c, const Scale& scale_of) {
    std::array<Term, 64> terms; // as many as a step of any row has, or more
    const auto step = static_cast<std::size_t>(acc.products);
    const auto group = acc.scales.group == 0 ? step : static_cast<std::size_t>(acc.scales.group);
    const std::size_t period = acc.interleaved ? 32 : step, end = (a.size() + period - 1) / period * period;
    for (std::size_t begin = 0; begin < end; begin += step) {
        std::size_t count = 0;
        for (std::size_t first = begin; first < begin + step; first += group) {
            for (std::size_t i = 0; i < group; ++i) {
                const std::size_t l = acc.interleaved ? interleaved_order(first + i) : first + i;
                const bool inside = l < a.size();
                terms[count + i] = product(term(fa, inside ? a[l] : 0.0F), term(fb, inside ? b[l] : 0.0F));
            }
            const bool filled_up = first >= a.size();
            const TermScale scale = filled_up ? TermScale{} : scale_of(a.place(first));
            const std::span products(terms.data() + count, group);
            if (acc.scales.sums_groups) {
                Term sum = sum_of_group(products, fa.min_exponent() + fb.min_exponent());
                // A scale of zero has an exponent like any zero; it is too small to cut off a bit of another term.
                if (filled_up || scale.significand == 0) sum.kind = Kind::zero;
                terms[count++] = scaled(sum, scale);
            } else {
                for (Term& p : products) p = scaled(p, scale);
                count += group;
            }
        }
        c = fused_step(acc, std::span(terms).first(count), c);
    }
    return c;
}

} // namespace detail

} // namespace amp
