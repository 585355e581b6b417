// Correctly rounded arithmetic on codes: unpack, compute exactly (or to 64 bits and a sticky bit), round_pack once.
// No operation rounds twice, fma included. The five IEEE 754 exceptions accumulate in `flags`.
//
//     amp::Arithmetic fp16{amp::format("fp16")};
//     std::uint32_t sum = fp16.add(0x3c00, 0x0001);   // codes in, code out
//     bool lost = fp16.flags.test(amp::Flags::inexact);
#pragma once

#include <ampscope/formats/bits.h>
#include <ampscope/formats/codec.h>

namespace amp {

__extension__ typedef unsigned __int128 Uint128;

constexpr Uint128 shift_right_sticky(Uint128 x, int n) {
    if (n <= 0) return x;
    if (n >= 128) return Uint128{x != 0};
    return x >> n | Uint128{(x << (128 - n)) != 0};
}

/// x * 2^exponent with x reduced to 64 bits; the last bit is sticky, so it is set if a bit below it was dropped.
constexpr Unpacked to_unpacked(bool sign, int exponent, Uint128 x) {
    const auto high = static_cast<std::uint64_t>(x >> 64);
    const int excess = high == 0 ? 0 : 64 - leading_zeros(high);
    return {.kind = x == 0 ? Kind::zero : Kind::finite,
            .sign = sign,
            .exponent = exponent + excess,
            .significand = static_cast<std::uint64_t>(shift_right_sticky(x, excess))};
}

namespace detail {

/// The sum of two finite non-zero numbers of at most 62 significant bits.
constexpr Unpacked exact_sum(const Unpacked& a, const Unpacked& b, Rounding rounding) {
    // Leading bits at 125 of 128 leave room for a carry. What a far smaller operand loses goes to its sticky bit, and
    // more than one leading bit cancels only where nothing was lost.
    const auto widen = [](const Unpacked& u, int& exponent) {
        const int shift = leading_zeros(u.significand) - 2;
        exponent = u.exponent - shift - 64;
        return Uint128{u.significand << shift} << 64;
    };
    int ea = 0, eb = 0;
    Uint128 x = widen(a, ea), y = widen(b, eb);
    const int exponent = ea > eb ? ea : eb;
    x = shift_right_sticky(x, exponent - ea);
    y = shift_right_sticky(y, exponent - eb);
    if (a.sign == b.sign) return to_unpacked(a.sign, exponent, x + y);
    if (x == y) return {.sign = rounding == Rounding::down}; // IEEE 754 section 6.3: x - x is +0, -0 when rounding down
    return x > y ? to_unpacked(a.sign, exponent, x - y) : to_unpacked(b.sign, exponent, y - x);
}

/// The product of two finite non-zero numbers of at most 32 significant bits, exactly.
constexpr Unpacked exact_product(const Unpacked& a, const Unpacked& b) {
    return {.kind = Kind::finite,
            .sign = a.sign != b.sign,
            .exponent = a.exponent + b.exponent,
            .significand = a.significand * b.significand};
}

/// floor(sqrt(x)) and whether it is exact; digit by digit, one bit a step.
constexpr std::uint64_t integer_sqrt(Uint128 x, bool& exact) {
    std::uint64_t root = 0;
    Uint128 rest = 0;
    for (int i = 63; i >= 0; --i) {
        rest = rest << 2 | (x >> (2 * i) & 3);
        const Uint128 trial = Uint128{root} << 2 | 1;
        root <<= 1;
        if (rest >= trial) {
            rest -= trial;
            root |= 1;
        }
    }
    exact = rest == 0;
    return root;
}

/// The quotient of two finite non-zero numbers, of 64 bits with a sticky last one.
constexpr Unpacked quotient(const Unpacked& a, const Unpacked& b) {
    const int sa = leading_zeros(a.significand), sb = leading_zeros(b.significand);
    const Uint128 numerator = Uint128{a.significand << sa} << 63;
    const std::uint64_t denominator = b.significand << sb;
    const bool exact = numerator % denominator == 0;
    return {.kind = Kind::finite,
            .sign = a.sign != b.sign,
            .exponent = a.exponent - sa - b.exponent + sb - 63,
            .significand = static_cast<std::uint64_t>(numerator / denominator) | std::uint64_t{!exact}};
}

/// The square root of a finite number above zero, of 64 bits with a sticky last one.
constexpr Unpacked square_root(const Unpacked& a) {
    // An even exponent and a radicand of 127 or 128 bits, so that the root has 64.
    int shift = leading_zeros(a.significand) + 64;
    if (((a.exponent - shift) & 1) != 0) --shift;
    bool exact = true;
    const std::uint64_t root = integer_sqrt(Uint128{a.significand} << shift, exact);
    return {.kind = Kind::finite, .exponent = (a.exponent - shift) / 2, .significand = root | std::uint64_t{!exact}};
}

} // namespace detail

/// The outcome of a comparison; NaN is unordered with everything, itself included.
enum class Order : std::uint8_t { less, equal, greater, unordered };

/// The operations of one format under one policy. Operands and results are codes of `format`.
struct Arithmetic {
    FormatSpec format;
    Policy policy{};
    std::uint32_t random = 0; ///< random word that the next stochastic rounding uses
    Flags flags{};

    constexpr std::uint32_t add(std::uint32_t a, std::uint32_t b) {
        const Unpacked x = operand(a), y = operand(b);
        return x.is_nan() || y.is_nan() ? nan(x, y) : finish(sum(x, y));
    }

    constexpr std::uint32_t sub(std::uint32_t a, std::uint32_t b) {
        const Unpacked x = operand(a);
        Unpacked y = operand(b);
        if (x.is_nan() || y.is_nan()) return nan(x, y);
        y.sign = !y.sign;
        return finish(sum(x, y));
    }

    constexpr std::uint32_t mul(std::uint32_t a, std::uint32_t b) {
        const Unpacked x = operand(a), y = operand(b);
        return x.is_nan() || y.is_nan() ? nan(x, y) : finish(product(x, y));
    }

    constexpr std::uint32_t div(std::uint32_t a, std::uint32_t b) {
        const Unpacked x = operand(a), y = operand(b);
        if (x.is_nan() || y.is_nan()) return nan(x, y);
        const bool sign = x.sign != y.sign;
        if (x.kind == y.kind && x.kind != Kind::finite) return finish(invalid()); // 0/0, inf/inf
        if (x.kind == Kind::zero || y.kind == Kind::infinity) return finish({.sign = sign});
        if (x.kind == Kind::infinity) return finish({.kind = Kind::infinity, .sign = sign});
        if (y.kind == Kind::zero) {
            flags.raise(Flags::divide_by_zero);
            Flags unused; // the infinity is exact, whatever the format makes of it
            return pack(format, {.kind = Kind::infinity, .sign = sign}, policy, random, unused);
        }
        return finish(detail::quotient(x, y));
    }

    constexpr std::uint32_t sqrt(std::uint32_t a) {
        const Unpacked x = operand(a);
        if (x.is_nan()) return nan(x, x);
        if (x.kind == Kind::zero) return finish(x);
        if (x.sign) return finish(invalid());
        if (x.kind == Kind::infinity) return finish(x);
        return finish(detail::square_root(x));
    }

    /// a * b + c with one rounding. 0 * infinity is invalid whatever c is, even NaN, as in SoftFloat.
    constexpr std::uint32_t fma(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
        return fma(operand(a), operand(b), operand(c));
    }
    /// The same for operands of any format, each of at most 32 significant bits.
    constexpr std::uint32_t fma(const Unpacked& x, const Unpacked& y, const Unpacked& z) {
        if (x.is_nan() || y.is_nan()) {
            if (z.is_signaling()) flags.raise(Flags::invalid);
            return nan(x, y);
        }
        const Unpacked xy = product(x, y);
        return xy.is_nan() || z.is_nan() ? nan(z, xy) : finish(sum(xy, z));
    }

    /// IEEE 754 remainder: a - n * b, n the integer nearest a / b, ties to even. Always exact.
    constexpr std::uint32_t remainder(std::uint32_t a, std::uint32_t b) {
        const Unpacked x = operand(a), y = operand(b);
        if (x.is_nan() || y.is_nan()) return nan(x, y);
        if (x.kind == Kind::infinity || y.kind == Kind::zero) return finish(invalid());
        if (x.kind == Kind::zero || y.kind == Kind::infinity || y.exponent - x.exponent > 26) return finish(x);
        // In units of the smaller exponent; modulo 2b keeps the parity of the quotient.
        const int unit = x.exponent < y.exponent ? x.exponent : y.exponent;
        const std::uint64_t divisor = y.significand << (y.exponent - unit);
        std::uint64_t rest = x.significand % (2 * divisor);
        for (int left = x.exponent - unit; left > 0;) {
            const int step = left < 32 ? left : 32;
            rest = (rest << step) % (2 * divisor);
            left -= step;
        }
        const bool odd = rest >= divisor;
        if (odd) rest -= divisor;
        if (rest == 0) return finish({.sign = x.sign});
        const bool beyond_half = 2 * rest > divisor || (2 * rest == divisor && odd);
        return finish({.kind = Kind::finite,
                       .sign = x.sign != beyond_half,
                       .exponent = unit,
                       .significand = beyond_half ? divisor - rest : rest});
    }

    /// Rounds to an integral value by the policy's rounding; raises inexact only if `signal_inexact`.
    constexpr std::uint32_t round_to_integral(std::uint32_t a, bool signal_inexact = false) {
        const Unpacked x = operand(a);
        if (x.is_nan()) return nan(x, x);
        if (x.kind != Kind::finite || x.exponent >= 0) return finish(x);
        const int shift = leading_zeros(x.significand);
        bool exact = true;
        const std::uint64_t integer =
            detail::round_significand(x.significand << shift, shift - x.exponent, x.sign, policy, random, exact);
        if (!exact && signal_inexact) flags.raise(Flags::inexact);
        return round_pack(format, x.sign, 0, integer, policy, random, flags);
    }

    /// Raises invalid for a signalling NaN, and for a quiet one too if `signaling` (IEEE 754 table 5.3).
    constexpr Order compare(std::uint32_t a, std::uint32_t b, bool signaling) {
        const Unpacked x = operand(a), y = operand(b);
        if (x.is_nan() || y.is_nan()) {
            if (signaling || x.is_signaling() || y.is_signaling()) flags.raise(Flags::invalid);
            return Order::unordered;
        }
        const std::int64_t p = ordinal(x, a), q = ordinal(y, b);
        return p < q ? Order::less : p > q ? Order::greater : Order::equal;
    }
    constexpr bool eq(std::uint32_t a, std::uint32_t b) { return compare(a, b, false) == Order::equal; }
    constexpr bool lt(std::uint32_t a, std::uint32_t b) { return compare(a, b, true) == Order::less; }
    constexpr bool le(std::uint32_t a, std::uint32_t b) {
        const Order order = compare(a, b, true);
        return order == Order::less || order == Order::equal;
    }

    /// IEEE 754-2019 minimum and maximum: NaN if either operand is, and -0 < +0.
    constexpr std::uint32_t min(std::uint32_t a, std::uint32_t b) { return extremum(a, b, false, false); }
    constexpr std::uint32_t max(std::uint32_t a, std::uint32_t b) { return extremum(a, b, true, false); }
    /// IEEE 754-2019 minimumNumber and maximumNumber: the number, where one operand is a NaN.
    constexpr std::uint32_t min_number(std::uint32_t a, std::uint32_t b) { return extremum(a, b, false, true); }
    constexpr std::uint32_t max_number(std::uint32_t a, std::uint32_t b) { return extremum(a, b, true, true); }

  private:
    [[nodiscard]] constexpr Unpacked operand(std::uint32_t code) const {
        const Unpacked u = unpack(format, code);
        return u.subnormal && policy.flushes_input() ? Unpacked{.sign = u.sign && format.has_negative_zero()} : u;
    }

    constexpr Unpacked invalid() {
        flags.raise(Flags::invalid);
        return {.kind = Kind::nan, .significand = std::uint64_t{1} << 63};
    }

    constexpr std::uint32_t finish(const Unpacked& exact) { return pack(format, exact, policy, random, flags); }

    /// The NaN of an operation: its first NaN operand by the policy's rule; any signalling operand is invalid.
    constexpr std::uint32_t nan(const Unpacked& x, const Unpacked& y) {
        if (x.is_signaling() || y.is_signaling()) flags.raise(Flags::invalid);
        return finish(x.is_nan() ? x : y);
    }

    constexpr Unpacked sum(const Unpacked& x, const Unpacked& y) {
        if (x.kind == Kind::infinity) return y.kind == Kind::infinity && x.sign != y.sign ? invalid() : x;
        if (y.kind == Kind::infinity) return y;
        if (x.kind == Kind::zero && y.kind == Kind::zero)
            return {.sign = x.sign == y.sign ? x.sign : policy.rounding == Rounding::down};
        if (x.kind == Kind::zero) return y;
        if (y.kind == Kind::zero) return x;
        return detail::exact_sum(x, y, policy.rounding);
    }

    constexpr Unpacked product(const Unpacked& x, const Unpacked& y) {
        const bool sign = x.sign != y.sign;
        if (x.kind == Kind::infinity || y.kind == Kind::infinity)
            return x.kind == Kind::zero || y.kind == Kind::zero ? invalid()
                                                                : Unpacked{.kind = Kind::infinity, .sign = sign};
        if (x.kind == Kind::zero || y.kind == Kind::zero) return {.sign = sign};
        return detail::exact_product(x, y);
    }

    /// The position of a number in the order of values; 0 for both zeros.
    [[nodiscard]] constexpr std::int64_t ordinal(const Unpacked& u, std::uint32_t code) const {
        if (u.kind == Kind::zero) return 0;
        const auto magnitude = static_cast<std::int64_t>(format.magnitude_of(code)) + std::int64_t{!format.has_zero};
        return u.sign ? -magnitude : magnitude;
    }

    constexpr std::uint32_t extremum(std::uint32_t a, std::uint32_t b, bool greatest, bool number) {
        const Unpacked x = operand(a), y = operand(b);
        if (x.is_nan() || y.is_nan()) {
            if (!number || (x.is_nan() && y.is_nan())) return nan(x, y);
            if (x.is_signaling() || y.is_signaling()) flags.raise(Flags::invalid);
            return finish(x.is_nan() ? y : x);
        }
        const std::int64_t p = ordinal(x, a), q = ordinal(y, b);
        const bool x_below = p != q ? p < q : x.sign && !y.sign; // -0 below +0
        return finish(x_below != greatest ? x : y);
    }
};

} // namespace amp
