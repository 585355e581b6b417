// One dot product with an accumulator, term by term: the definition of every row of accumulator.h. The trainer's fast
// version for whole matrices is sim/backend/cpu/detail/accumulate.h.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/bits.h>
#include <ampscope/formats/codec.h>
#include <ampscope/formats/fused_dot.h>
#include <ampscope/formats/integer_dot.h>
#include <ampscope/formats/step_dot.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace amp {

namespace detail {

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

    /// The sum rounded once, to nearest-even unless the policy says otherwise. An empty sum is +0.
    [[nodiscard]] constexpr float rounded(const FormatSpec& f, const Policy& policy = {}) const {
        if (nan_ || (infinite_[0] && infinite_[1])) return decode(f, f.nan_code());
        Flags flags;
        if (infinite_[0] || infinite_[1]) return decode(f, pack_infinity(f, infinite_[1], policy, flags));
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
        const int shift = leading_zeros(magnitude[top]);
        std::uint64_t significand = magnitude[top] << shift;
        std::uint64_t rest = 0;
        if (top > 0) {
            if (shift > 0) significand |= magnitude[top - 1] >> (64 - shift);
            rest = magnitude[top - 1] << shift;
        }
        for (std::size_t i = 0; i + 1 < top; ++i) rest |= magnitude[i];
        significand |= rest != 0 ? 1 : 0;
        const int exponent = lowest + 64 * static_cast<int>(top) - shift;
        return decode(f, round_pack(f, sign, exponent, significand, policy, 0, flags));
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
constexpr std::uint32_t pairwise_sum(Arithmetic& math, const Numbers& a, const Numbers& b) {
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

constexpr float pairwise_dot(const Numbers& a, const Numbers& b, float c) {
    Arithmetic math{fp32_format()};
    if (a.size() == 0) return c;
    return std::bit_cast<float>(math.add(std::bit_cast<std::uint32_t>(c), pairwise_sum(math, a, b)));
}

constexpr float kahan_dot(const Numbers& a, const Numbers& b, float c) {
    Arithmetic math{fp32_format()};
    std::uint32_t sum = std::bit_cast<std::uint32_t>(c), lost = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const std::uint32_t product = math.mul(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]));
        const std::uint32_t term = math.sub(product, lost), next = math.add(sum, term);
        lost = math.sub(math.sub(next, sum), term);
        sum = next;
    }
    return std::bit_cast<float>(sum);
}

constexpr float chain_dot(const FormatSpec& sum, const Numbers& a, const Numbers& b, float c) {
    Arithmetic math{sum};
    std::uint32_t s = encode(sum, c);
    for (std::size_t i = 0; i < a.size(); ++i) s = math.fma(unpack(a[i]), unpack(b[i]), unpack(sum, s));
    return decode(sum, s);
}

constexpr float exact_dot(const Numbers& a, const Numbers& b, float c) {
    ExactSum sum;
    for (std::size_t i = 0; i < a.size(); ++i) sum.add(unpack(a[i]), unpack(b[i]));
    sum.add(unpack(c), unpack(1.0F));
    return sum.rounded(fp32_format());
}

/// x + y to nearest-even, as two sums are added. Not inlined, for the sake of devices' compilers.
[[gnu::noinline]] constexpr float add_sums(const Accumulator& acc, const FormatSpec& f, float x, float y) {
    Arithmetic math{f, {.nan = acc.method == Accumulation::fused ? NanRule::all_ones : NanRule::canonical}};
    const NanRule nan = math.policy.nan;
    return decode(f, math.add(encode(f, x, math.policy), encode(f, y, math.policy)), nan);
}

/// A fused sum without promotion: all of it at once or, if interleaved, one instruction of 32 products after another.
template <class Scale>
constexpr float instructions_dot(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb, const Numbers& a,
                                 const Numbers& b, float c, const Scale& scale_of) {
    const std::size_t instruction = acc.interleaved ? 32 : a.size();
    for (std::size_t begin = 0; begin < a.size(); begin += instruction) {
        const std::size_t n = std::min(instruction, a.size() - begin);
        const float sum =
            fused_dot(acc, fa, fb, a.subspan(begin, n), b.subspan(begin, n), acc.interleaved ? 0 : c, scale_of);
        c = acc.interleaved ? add_sums(acc, acc.result(), c, sum) : sum;
    }
    return c;
}

/// A sum without promotion.
template <class Scale>
constexpr float plain_dot(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb, const Numbers& a,
                          const Numbers& b, float c, const Scale& scale_of) {
    switch (acc.method) {
    case Accumulation::chain: return chain_dot(acc.sum, a, b, c);
    case Accumulation::exact: return exact_dot(a, b, c);
    case Accumulation::pairwise: return pairwise_dot(a, b, c);
    case Accumulation::kahan: return kahan_dot(a, b, c);
    case Accumulation::floored:
    case Accumulation::floored_halves: return floored_dot(acc, fa, fb, a, b, c);
    case Accumulation::flushed_tree:
    case Accumulation::flushed_pairs:
    case Accumulation::flushed_chains: return flushed_dot(acc, fa, fb, a, b, c);
    case Accumulation::wrapped:
    case Accumulation::clamped: return integer_dot(acc, a, b, c);
    case Accumulation::fused: break;
    }
    return instructions_dot(acc, fa, fb, a, b, c, scale_of);
}

/// A sum without split-K. One call for both kinds of sums, since devices inline it.
template <class Scale>
constexpr float promoted_dot(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb, const Numbers& a,
                             const Numbers& b, float c, const Scale& scale_of) {
    const bool promotes = acc.promote_every != 0;
    const std::size_t every = promotes ? static_cast<std::size_t>(acc.promote_every) : a.size();
    for (std::size_t begin = 0; !promotes || begin < a.size(); begin += every) {
        const std::size_t n = std::min(every, a.size() - begin);
        const float sum = plain_dot(acc, fa, fb, a.subspan(begin, n), b.subspan(begin, n), promotes ? 0 : c, scale_of);
        if (!promotes) return sum;
        c = add_sums(acc, acc.total(), c, sum);
    }
    return c;
}

/// The whole sum; the product at place k has the scales scale_of(k), which a row with scales applies.
template <class Scale>
constexpr float whole_dot(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb, std::span<const float> a,
                          std::span<const float> b, float c, const Scale& scale_of) {
    return sum_of_parts(
        acc, c,
        [&](std::size_t i) {
            const PartOfSum part = part_of_sum(acc, i, a.size());
            return promoted_dot(acc, fa, fb, Numbers(a, part), Numbers(b, part), acc.parts == 1 ? c : 0, scale_of);
        },
        [&](float x, float y) { return add_sums(acc, acc.total(), x, y); });
}

} // namespace detail

/// dot() for a device, which cannot look up names: fa and fb are what acc.reads() gives.
constexpr float dot_as_read(const Accumulator& acc, const FormatSpec& fa, const FormatSpec& fb,
                            std::span<const float> a, std::span<const float> b, float c) {
    return detail::whole_dot(acc, fa, fb, a, b, c, detail::Unscaled());
}

/// a . b + c as the accumulator adds up. The spans have the same length; their numbers are values of a_format and
/// b_format, which the accumulator takes; c is a value of acc.total(). A NaN of matrix hardware is 0x7fffffff (for FP16
/// sums, too), any other NaN is canonical; infinity - infinity and 0 * infinity are NaN. Sources: accumulator.h.
constexpr float dot(const Accumulator& acc, const FormatSpec& a_format, const FormatSpec& b_format,
                    std::span<const float> a, std::span<const float> b, float c = 0) {
    return dot_as_read(acc, acc.reads(a_format), acc.reads(b_format), a, b, c);
}

} // namespace amp
