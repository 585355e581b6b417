// The loops behind apply(): the exact result is reduced to a float that still rounds correctly, then converted.
//
// The processor truncates (HostRounding::toward_zero, set by the caller of the loop), and the last bit of a truncated
// result is set if anything was lost: this is rounding to odd. A result rounded to odd at P bits gives, when rounded to
// p bits in any mode, what the exact one gives if P >= p + 2 (Boldo and Melquiond 2008). Whether anything was lost is
// found without an exact remainder:
//     add   s = x + y is exact iff s - x == y and s - y == x: the subtraction of the larger operand is itself exact
//                 (Sterbenz), also when truncating.
//     mul   exact, if P >= 2p and the exponents have room.
//     div   x / y of p-bit operands either ends within p bits, or differs by more than 2^-2p (relative) from every
//                 number of p + 1 bits: truncated to P >= 2p + 2 bits, its bits beyond p + 1 tell which.
//     sqrt  the same argument, for a root and its square.
//
// To nearest, FP32's own result can be rounded again where FP32 has 2p + 2 bits: no rounding of it makes a tie
// (Figueroa 1995). That does not hold for fma, whose sum is rounded to odd.
#pragma once

#include <ampscope/formats/batch.h>
#include <ampscope/formats/detail/rounding_loop.h>
#include <ampscope/formats/instruction_set.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace amp::detail {

struct OperandConstants {
    std::uint32_t zero_below = 0;      ///< magnitude bits below which an operand counts as zero
    std::uint32_t zero_sign = 0;       ///< mask of the sign bit that such a zero keeps
    std::uint32_t exact_zero_sign = 0; ///< sign bit of x - x: set when rounding down

    constexpr bool operator==(const OperandConstants&) const = default;
};

template <class Real>
using BitsOf = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;

/// x with its last bit set if `lost`; infinities and NaN stay.
template <class Real>
[[gnu::always_inline]] inline Real with_sticky(Real x, bool lost) {
    using Bits = BitsOf<Real>;
    const Bits finite = static_cast<Bits>(std::fabs(x) < std::numeric_limits<Real>::infinity());
    return std::bit_cast<Real>(std::bit_cast<Bits>(x) | (static_cast<Bits>(lost) & finite));
}

template <class Real>
[[gnu::always_inline]] inline Real add_to_odd(Real x, Real y, std::uint32_t exact_zero_sign) {
    using Bits = BitsOf<Real>;
    const Real sum = x + y;
    const bool lost = static_cast<unsigned>(sum - x != y) | static_cast<unsigned>(sum - y != x);
    const Bits signs =
        (std::bit_cast<Bits>(x) | std::bit_cast<Bits>(y)) & (Bits{exact_zero_sign} << (8 * sizeof(Bits) - 32));
    const Real odd = with_sticky(sum, lost);
    return std::bit_cast<Real>(std::bit_cast<Bits>(odd) | (sum == 0 ? signs : 0));
}

template <Operation operation, class Real>
[[gnu::always_inline]] inline Real compute(Real x, Real y, Real z, std::uint32_t exact_zero_sign) {
    switch (operation) {
    case Operation::add: return add_to_odd(x, y, exact_zero_sign);
    case Operation::sub: return add_to_odd(x, -y, exact_zero_sign);
    case Operation::mul: return x * y;
    case Operation::div: return x / y;
    case Operation::sqrt: return std::sqrt(x);
    case Operation::fma: return add_to_odd(x * y, z, exact_zero_sign);
    }
}

[[gnu::always_inline]] inline float narrow_to_odd(float x) { return x; }
[[gnu::always_inline]] inline float narrow_to_odd(double x) {
    const auto truncated = static_cast<float>(x);
    return with_sticky(truncated, static_cast<double>(truncated) != x);
}

template <Operation operation, class Real>
[[gnu::always_inline]] inline void arithmetic_loop(const float* a, const float* b, const float* c, float* out,
                                                   std::size_t n, const OperandConstants k) {
    const auto operand = [&](float x) {
        const auto u = std::bit_cast<std::uint32_t>(x);
        return static_cast<Real>(std::bit_cast<float>((u & 0x7fffffff) < k.zero_below ? u & k.zero_sign : u));
    };
    AMPSCOPE_INDEPENDENT
    for (std::size_t i = 0; i < n; ++i) {
        const Real y = operation == Operation::sqrt ? Real{0} : operand(b[i]);
        const Real z = operation == Operation::fma ? operand(c[i]) : Real{0};
        const float result = narrow_to_odd(compute<operation>(operand(a[i]), y, z, k.exact_zero_sign));
        out[i] = result == result ? result : std::numeric_limits<float>::quiet_NaN();
    }
}

/// Calls loop(std::integral_constant) for an operation.
[[gnu::always_inline]] inline void for_operation(Operation operation, const auto& loop) {
    switch (operation) {
    case Operation::add: return loop(std::integral_constant<Operation, Operation::add>{});
    case Operation::sub: return loop(std::integral_constant<Operation, Operation::sub>{});
    case Operation::mul: return loop(std::integral_constant<Operation, Operation::mul>{});
    case Operation::div: return loop(std::integral_constant<Operation, Operation::div>{});
    case Operation::sqrt: return loop(std::integral_constant<Operation, Operation::sqrt>{});
    case Operation::fma: return loop(std::integral_constant<Operation, Operation::fma>{});
    }
}

template <class Real>
struct ArithmeticKernel {
    AMPSCOPE_KERNEL void run(Operation operation, const float* a, const float* b, const float* c, float* out,
                             std::size_t n, const OperandConstants* k) {
        const auto loop = [=]<Operation op>(std::integral_constant<Operation, op>) __attribute__((always_inline)) {
            if (*k == OperandConstants{}) arithmetic_loop<op, Real>(a, b, c, out, n, {}); // two thirds of the time
            else arithmetic_loop<op, Real>(a, b, c, out, n, *k);
        };
        for_operation(operation, loop);
    }
};

/// x + y rounded to odd, where the processor rounds to nearest; infinities and NaN stay. What the sum lost is exact
/// (Knuth): if its last bit is even, it was rounded, and the odd neighbour lies on the side of what was lost.
[[gnu::always_inline]] inline float add_to_odd_from_nearest(float x, float y) {
    const float sum = x + y, part = sum - x;
    const float lost = (x - (sum - part)) + (y - part);
    const auto bits = std::bit_cast<std::uint32_t>(sum);
    const std::uint32_t apart = 0 - ((std::bit_cast<std::uint32_t>(lost) ^ bits) >> 31); // all ones: signs differ
    const std::uint32_t was_rounded = static_cast<unsigned>(lost < 0) | static_cast<unsigned>(lost > 0);
    const std::uint32_t moves = was_rounded & ~bits & 1; // as a choice, AVX2 would take three times as long for it
    return std::bit_cast<float>(bits + ((moves ^ apart) - apart));
}

/// The results of FP32, rounded to nearest again; `loop` is a short one. Formats with FP32's exponents have products
/// and quotients that FP32 cannot hold: then `outside` becomes 1, and other results must be made.
struct TwiceRoundedKernel {
    AMPSCOPE_KERNEL void run(Operation operation, Loop loop, const float* a, const float* b, const float* c, float* out,
                             std::size_t n, const RoundingConstants* constants, std::uint32_t* outside) {
        const auto each = [=]<Operation op>(std::integral_constant<Operation, op>) __attribute__((always_inline)) {
            if (loop == Loop::wide_simple) *outside = round_each<op, Loop::wide_simple>(a, b, c, out, n, *constants);
            else *outside = round_each<op, Loop::adder_simple>(a, b, c, out, n, *constants);
        };
        for_operation(operation, each);
    }

  private:
    template <Operation operation, Loop loop>
    AMPSCOPE_KERNEL std::uint32_t round_each(const float* a, const float* b, const float* c, float* out, std::size_t n,
                                             const RoundingConstants k) {
        constexpr bool multiplies = operation == Operation::mul || operation == Operation::fma;
        constexpr bool checks = loop == Loop::wide_simple && (multiplies || operation == Operation::div);
        std::uint32_t outside = 0;
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) {
            const float x = a[i], y = operation == Operation::sqrt ? 1 : b[i];
            float result = operation == Operation::add    ? x + y
                           : operation == Operation::sub  ? x - y
                           : operation == Operation::div  ? x / y
                           : operation == Operation::sqrt ? std::sqrt(x)
                                                          : x * y;
            if constexpr (checks) {
                const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(result) & fp32_magnitude;
                const bool leaves = static_cast<unsigned>(magnitude < 0x800000) |
                                    static_cast<unsigned>(operation == Operation::fma && magnitude == fp32_infinity);
                const bool not_zero = static_cast<unsigned>(x != 0) & static_cast<unsigned>(!multiplies || y != 0);
                outside |= static_cast<unsigned>(leaves) & static_cast<unsigned>(not_zero);
            }
            if constexpr (operation == Operation::fma) result = add_to_odd_from_nearest(result, c[i]);
            out[i] = std::bit_cast<float>(stored<loop, true, false>(std::bit_cast<std::uint32_t>(result), 0, k));
        }
        return outside;
    }
};

/// Doubles to floats, rounded to odd; subnormal doubles count as zero if `flush`.
struct NarrowKernel {
    AMPSCOPE_KERNEL void run(const double* in, float* out, std::size_t n, bool flush) {
        const std::uint64_t zero_below = flush ? std::uint64_t{1} << 52 : 0;
        constexpr std::uint64_t sign = std::uint64_t{1} << 63;
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) {
            const auto u = std::bit_cast<std::uint64_t>(in[i]);
            out[i] = narrow_to_odd(std::bit_cast<double>((u & ~sign) < zero_below ? u & sign : u));
        }
    }
};

} // namespace amp::detail
