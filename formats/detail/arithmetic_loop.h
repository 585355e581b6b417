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
#pragma once

#include <ampscope/formats/batch.h>
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

template <class Real>
struct ArithmeticKernel {
    AMPSCOPE_KERNEL void run(Operation operation, const float* a, const float* b, const float* c, float* out,
                             std::size_t n, const OperandConstants* k) {
        const auto loop = [=]<Operation op>(std::integral_constant<Operation, op>) __attribute__((always_inline)) {
            if (*k == OperandConstants{}) arithmetic_loop<op, Real>(a, b, c, out, n, {}); // two thirds of the time
            else arithmetic_loop<op, Real>(a, b, c, out, n, *k);
        };
        switch (operation) {
        case Operation::add: return loop(std::integral_constant<Operation, Operation::add>{});
        case Operation::sub: return loop(std::integral_constant<Operation, Operation::sub>{});
        case Operation::mul: return loop(std::integral_constant<Operation, Operation::mul>{});
        case Operation::div: return loop(std::integral_constant<Operation, Operation::div>{});
        case Operation::sqrt: return loop(std::integral_constant<Operation, Operation::sqrt>{});
        case Operation::fma: return loop(std::integral_constant<Operation, Operation::fma>{});
        }
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
