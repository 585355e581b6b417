// The loops behind batch.h's conversions: round_pack of codec.h without branches, over arrays. All that depends on the
// format and the policy is computed once per call.
//
// What differs from the plain code, which remains the definition:
//     1. Formats with FP32's exponents ("wide") are rounded by shifting a float's magnitude bits: within a binade these
//           bits count units of FP32's last place.
//     2. The others ("narrow") are rounded by adding: (x + c) - c rounds x to the last place of c, in the rounding mode
//   of
//           the processor that the caller of the loop has set. c ("adder") is the power of two whose FP32 last place is
//      the
//           format's last place at x. Modes that the processor does not have truncate in this way and then decide: half
//      a
//           last place is added beforehand (away), the last bit is set if anything was lost (odd), or what was lost is
//           compared with a random word (stochastic).
//     3. No loop branches on the rounding mode: a magnitude is rounded up iff its discarded fraction > threshold.
//     4. Overflow, infinity and NaN are pairs of constants computed by the plain code.
#pragma once

#include <ampscope/formats/batch.h>
#include <ampscope/formats/codec.h>
#include <ampscope/formats/detail/stream.h>
#include <ampscope/formats/instruction_set.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace amp::detail {

/// One constant for positive and one for negative operands. The argument `s` is 0 for positive, all ones for negative.
struct BySign {
    std::uint32_t positive = 0, difference = 0;
    constexpr BySign() = default;
    constexpr BySign(std::uint32_t p, std::uint32_t n) : positive(p), difference(p ^ n) {}
    [[nodiscard]] constexpr std::uint32_t negative() const { return positive ^ difference; }
    [[nodiscard]] constexpr std::uint32_t at(std::uint32_t s) const { return positive ^ (difference & s); }
};

/// The constants of a loop. "Stored" is what an element of the output holds: the bits of a float, or a code.
struct RoundingConstants {
    std::uint32_t drop = 0;           ///< number of fraction bits that FP32 has beyond the format's
    std::uint32_t fraction_bits = 0;  ///< the format's fraction bits
    std::uint32_t first_field = 0;    ///< FP32 exponent field of the format's smallest normal
    std::uint32_t beyond = 0;         ///< FP32 bits of a power of two that overflows and replaces larger operands
    BySign threshold{};               ///< fraction (0.32 fixed point) above which a magnitude is rounded up
    std::uint32_t tie = 0;            ///< 1 for nearest-even: if the kept part is odd, a tie is rounded up
    std::uint32_t odd = 0;            ///< all ones for to_odd: if the kept part is odd, it is never rounded up
    std::uint32_t fraction_shift = 0; ///< 32 minus the number of random bits
    std::uint32_t random_scale =
        0;                       ///< c's exponent field from this one gives that of 2^random_bits over its last place
    std::uint32_t flush_in = 0;  ///< smaller magnitudes of operands count as zero
    std::uint32_t flush_out = 0; ///< smaller stored magnitudes become zero
    std::uint32_t max = 0;       ///< the largest finite value, as stored
    BySign overflow{}, infinity{}, nan{}; ///< stored bits of each
    std::uint32_t payload = 0;            ///< mask of the FP32 fraction bits that a NaN keeps
    std::uint32_t payload_shift = 0;      ///< right shift that takes the payload from FP32 to its stored place
    std::uint32_t sign = 0;               ///< the stored sign bit
    std::uint32_t zero_sign = 0;          ///< sign bit that a stored zero may have
    /// Nothing is flushed, -0 stays, and there is one NaN: what most policies of formats that have -0 ask for.
    bool usual = false;
    // The short loop: nearest-even, where overflow and infinity are stored as the same magnitude with the operand's
    // sign, or as the NaN.
    bool simple = false;
    std::uint32_t overflow_from = 0; ///< operands of this magnitude or more overflow
    std::uint32_t nan_from = 0;      ///< operands of this magnitude or more give NaN
};

enum class Loop : std::uint8_t {
    wide,
    wide_random,
    wide_simple,
    adder,
    adder_away,
    adder_odd,
    adder_random,
    adder_simple
};

/// A loop that rounds to nearest in few instructions, for formats and policies to which it gives their results.
struct ShortLoop {
    Loop loop;
    RoundingConstants constants;
};
std::optional<ShortLoop> short_loop(const FormatSpec& format, const Policy& policy);

inline constexpr std::uint32_t fp32_magnitude = 0x7fffffff, fp32_infinity = 0x7f800000, fp32_sign = 0x80000000;

template <bool random>
[[gnu::always_inline]] inline std::uint32_t round_kept(std::uint32_t kept, std::uint32_t fraction, std::uint32_t s,
                                                       std::uint32_t word, const RoundingConstants& k) {
    if constexpr (random) return kept + std::uint32_t{fraction >> k.fraction_shift > word};
    const std::uint32_t lsb = kept & 1;
    return kept + std::uint32_t{fraction > ((k.threshold.at(s) - (k.tie & lsb)) | (k.odd & (0 - lsb)))};
}

template <bool random>
[[gnu::always_inline]] inline std::uint32_t round_wide(std::uint32_t a, std::uint32_t s, std::uint32_t word,
                                                       const RoundingConstants& k) {
    return round_kept<random>(a >> k.drop, (a << 1) << (31 - k.drop), s, word, k);
}

/// Rounds a magnitude to a narrow format, by adding.
template <Loop loop, bool encodes>
[[gnu::always_inline]] inline std::uint32_t round_narrow(std::uint32_t a, std::uint32_t s, std::uint32_t word,
                                                         const RoundingConstants& k) {
    const std::uint32_t sign = loop == Loop::adder ? s & fp32_sign : 0; // only its direction depends on the sign
    // The short loop does not use what this makes of numbers that overflow.
    const std::uint32_t near = loop == Loop::adder_simple ? a : std::min(a, k.beyond);
    const std::uint32_t binade = std::max(near & fp32_infinity, k.first_field << 23);
    const std::uint32_t bits = (binade + (k.drop << 23)) | sign;
    const float c = std::bit_cast<float>(bits);
    float x = std::bit_cast<float>(near | sign);
    if constexpr (loop == Loop::adder_away) x += std::bit_cast<float>(bits - (24U << 23));
    float sum = x + c;
    if constexpr (loop == Loop::adder_odd)
        sum = std::bit_cast<float>(std::bit_cast<std::uint32_t>(sum) | std::uint32_t{sum - c != x});
    if constexpr (loop == Loop::adder_random) {
        // What was lost, exactly, in units of the last place divided by 2^random_bits.
        const std::uint32_t scale = (k.random_scale << 23) - bits;
        const float lost = (x - (sum - c)) * std::bit_cast<float>(scale);
        sum = std::bit_cast<float>(std::bit_cast<std::uint32_t>(sum) +
                                   std::uint32_t{static_cast<std::uint32_t>(lost) > word});
    }
    if constexpr (encodes)
        return std::bit_cast<std::uint32_t>(sum) - bits + ((binade - (k.first_field << 23)) >> k.drop);
    return std::bit_cast<std::uint32_t>(sum - c) & fp32_magnitude;
}

/// The stored bits of a rounded magnitude.
template <Loop loop, bool encodes>
[[gnu::always_inline]] inline std::uint32_t rounded(std::uint32_t a, std::uint32_t s, std::uint32_t word,
                                                    const RoundingConstants& k) {
    if constexpr (loop == Loop::wide || loop == Loop::wide_random) {
        const std::uint32_t kept = round_wide<loop == Loop::wide_random>(a, s, word, k);
        return encodes ? kept : kept << k.drop;
    } else if constexpr (loop == Loop::wide_simple) {
        const std::uint32_t last = std::uint32_t{1} << k.drop;
        const std::uint32_t raised = a + ((last - 1) >> 1) + (k.tie & (a >> k.drop));
        return encodes ? raised >> k.drop : raised & (0 - last);
    } else {
        return round_narrow<loop, encodes>(a, s, word, k);
    }
}

/// What is stored for the operand with the FP32 bits u; `usual`: k.usual.
template <Loop loop, bool usual, bool encodes>
[[gnu::always_inline]] inline std::uint32_t stored(std::uint32_t u, std::uint32_t word, const RoundingConstants& k) {
    constexpr bool simple = loop == Loop::wide_simple || loop == Loop::adder_simple;
    const std::uint32_t s = 0 - (u >> 31);
    std::uint32_t a = u & fp32_magnitude;
    if constexpr (simple) {
        std::uint32_t r = rounded<loop, encodes>(a, s, 0, k);
        r = a >= k.overflow_from ? k.overflow.positive : r;
        r |= encodes ? s & k.sign : u & fp32_sign;
        return a >= k.nan_from ? k.nan.positive : r;
    } else if constexpr (usual) {
        const std::uint32_t magnitude = rounded<loop, encodes>(a, s, word, k);
        const std::uint32_t overflow = k.overflow.at(s), infinity = k.infinity.at(s);
        std::uint32_t r = magnitude | (encodes ? s & k.sign : u & fp32_sign);
        r = magnitude > k.max ? overflow : r;
        r = a == fp32_infinity ? infinity : r;
        return a > fp32_infinity ? k.nan.positive : r;
    } else {
        a = a < k.flush_in ? 0 : a;
        std::uint32_t r = rounded<loop, encodes>(a, s, word, k);
        r &= 0 - std::uint32_t{r >= k.flush_out}; // as a choice, g++ would make a branch of this and the next line
        const std::uint32_t sign = r == 0 ? s & k.zero_sign : s & k.sign;
        const std::uint32_t nan = k.nan.at(s) | ((u & k.payload) >> k.payload_shift);
        const std::uint32_t overflow = k.overflow.at(s), finite = r | sign;
        r = r > k.max ? overflow : finite;
        const std::uint32_t infinity = k.infinity.at(s);
        r = a == fp32_infinity ? infinity : r;
        return a > fp32_infinity ? nan : r;
    }
}

template <Loop loop, bool usual, class Out>
[[gnu::always_inline]] inline void round_loop(const float* in, Out* out, std::size_t n, bool streams,
                                              const std::uint32_t* words, const RoundingConstants& constants) {
    constexpr bool encodes = !std::is_same_v<Out, float>;
    constexpr bool random = loop == Loop::wide_random || loop == Loop::adder_random;
    const RoundingConstants k = constants; // a copy, which no store to `out` can change
    transform(
        in, out, n, streams, [&](float x, [[maybe_unused]] std::size_t i) __attribute__((always_inline)) {
            const std::uint32_t r =
                stored<loop, usual, encodes>(std::bit_cast<std::uint32_t>(x), random ? words[i] : 0, k);
            if constexpr (encodes) return static_cast<Out>(r);
            else return std::bit_cast<float>(r);
        });
}

template <class Out, bool usual>
struct RoundKernel {
    AMPSCOPE_KERNEL void run(Loop loop, const float* in, Out* out, std::size_t n, bool streams,
                             const std::uint32_t* words, const RoundingConstants* k) {
        switch (loop) {
        case Loop::wide: return round_loop<Loop::wide, usual>(in, out, n, streams, words, *k);
        case Loop::wide_random: return round_loop<Loop::wide_random, usual>(in, out, n, streams, words, *k);
        case Loop::wide_simple: return round_loop<Loop::wide_simple, true>(in, out, n, streams, words, *k);
        case Loop::adder: return round_loop<Loop::adder, usual>(in, out, n, streams, words, *k);
        case Loop::adder_away: return round_loop<Loop::adder_away, usual>(in, out, n, streams, words, *k);
        case Loop::adder_odd: return round_loop<Loop::adder_odd, usual>(in, out, n, streams, words, *k);
        case Loop::adder_random: return round_loop<Loop::adder_random, usual>(in, out, n, streams, words, *k);
        case Loop::adder_simple: return round_loop<Loop::adder_simple, true>(in, out, n, streams, words, *k);
        }
    }
};

} // namespace amp::detail
