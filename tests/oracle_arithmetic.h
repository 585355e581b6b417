// The oracle of arithmetic: exact results as rational numbers or their square roots, which oracle.h stores in one
// rounding.
#pragma once

#include "oracle.h"

namespace oracle {

enum class Op : std::uint8_t {
    add,
    sub,
    mul,
    div,
    remainder,
    sqrt,
    fma,
    round,
    round_exact,
    min,
    max,
    min_number,
    max_number
};

inline constexpr std::string_view op_names[] = {"add",   "sub",         "mul", "div", "remainder",  "sqrt",      "fma",
                                                "round", "round exact", "min", "max", "min number", "max number"};

namespace detail {

/// An exact number or, with `flags`, a NaN that the operation produced.
struct Result {
    Number x;
    unsigned flags = 0;
};

inline Result invalid() { return {quiet_nan(), Flags::invalid}; }
inline bool is_nan(const Number& x) { return x.kind == Class::nan; }

/// The first operand that is a NaN; if any is signalling, the operation is invalid.
inline Result first_nan(std::initializer_list<const Number*> operands) {
    const Number* first = nullptr;
    unsigned flags = 0;
    for (const Number* x : operands) {
        if (first == nullptr && is_nan(*x)) first = x;
        if (x->signaling) flags |= Flags::invalid;
    }
    return {*first, flags};
}

/// The signed numerator in units of 2^exponent, exponent <= x.exponent. Precondition: the denominator is 1.
inline Integer in_units(const Number& x, int exponent) {
    const Integer n = x.numerator << (x.exponent - exponent);
    return x.negative ? -n : n;
}

inline Number from_units(const Integer& n, int exponent) {
    return {.kind = n == 0 ? Class::zero : Class::finite, .negative = n < 0, .numerator = abs(n), .exponent = exponent};
}

inline Result sum(const Context& c, const Number& x, const Number& y) {
    if (x.kind == Class::infinity && y.kind == Class::infinity && x.negative != y.negative) return invalid();
    if (x.kind == Class::infinity) return {x};
    if (y.kind == Class::infinity) return {y};
    if (x.kind == Class::zero && y.kind == Class::zero && x.negative == y.negative) return {x};
    const int unit = std::min(x.exponent, y.exponent);
    Number s = from_units(in_units(x, unit) + in_units(y, unit), unit);
    if (s.kind == Class::zero) s.negative = c.policy.rounding == Rounding::down; // IEEE 754-2019 section 6.3
    return {s};
}

inline Result product(const Number& x, const Number& y) {
    const bool negative = x.negative != y.negative;
    const bool infinite = x.kind == Class::infinity || y.kind == Class::infinity;
    const bool zero = x.kind == Class::zero || y.kind == Class::zero;
    if (infinite && zero) return invalid();
    if (infinite) return {{.kind = Class::infinity, .negative = negative}};
    if (zero) return {{.negative = negative}};
    return {{.kind = Class::finite,
             .negative = negative,
             .numerator = x.numerator * y.numerator,
             .exponent = x.exponent + y.exponent}};
}

inline Result quotient(const Number& x, const Number& y) {
    const bool negative = x.negative != y.negative;
    if (x.kind == y.kind && x.kind != Class::finite) return invalid();
    if (x.kind == Class::infinity) return {{.kind = Class::infinity, .negative = negative}};
    if (x.kind == Class::zero || y.kind == Class::infinity) return {{.negative = negative}};
    if (y.kind == Class::zero) return {{.kind = Class::infinity, .negative = negative}, Flags::divide_by_zero};
    return {{.kind = Class::finite,
             .negative = negative,
             .numerator = x.numerator,
             .denominator = y.numerator,
             .exponent = x.exponent - y.exponent}};
}

inline Result remainder(const Number& x, const Number& y) {
    if (x.kind == Class::infinity || y.kind == Class::zero) return invalid();
    if (x.kind == Class::zero || y.kind == Class::infinity) return {x};
    const int unit = std::min(x.exponent, y.exponent);
    const Integer a = abs(in_units(x, unit)), b = abs(in_units(y, unit));
    Integer n = a / b;
    const Integer twice = 2 * (a - n * b);
    if (twice > b || (twice == b && n % 2 == 1)) ++n;
    const Integer r = a - n * b;
    Number result = from_units(x.negative ? -r : r, unit);
    if (result.kind == Class::zero) result.negative = x.negative;
    return {result};
}

inline Result square_root(Number x) {
    if (x.kind == Class::zero) return {x};
    if (x.negative) return invalid();
    x.root = true;
    return {x};
}

/// x rounded to an integer in the rounding mode.
inline Result to_integer(const Context& c, const Number& x, bool signal_inexact) {
    if (x.kind != Class::finite) return {x};
    const Integer n = x.exponent >= 0 ? Integer(x.numerator << x.exponent) : Integer(x.numerator >> -x.exponent);
    bool exact = x.exponent >= 0;
    bool up = false;
    if (!exact) {
        const Dyadic low{static_cast<std::uint64_t>(n), 0};
        exact = low.n != 0 && compare(x, low) == 0;
        up = rounds_up(c, x, low, low.n % 2 != 0);
    }
    Number result = from_units(up ? Integer(n + 1) : n, 0);
    result.negative = x.negative;
    return {result, !exact && signal_inexact ? unsigned{Flags::inexact} : 0u};
}

/// The sign of x - y. Precondition: neither is a NaN.
inline int order(const Number& x, const Number& y) {
    const auto rank = [](const Number& n) { return n.kind == Class::infinity ? (n.negative ? -1 : 1) : 0; };
    if (rank(x) != rank(y)) return rank(x) < rank(y) ? -1 : 1;
    if (rank(x) != 0) return 0;
    const int unit = std::min(x.exponent, y.exponent);
    return in_units(x, unit).compare(in_units(y, unit));
}

inline Result extremum(const Number& x, const Number& y, bool greatest, bool number) {
    if (is_nan(x) || is_nan(y)) {
        const Result nan = first_nan({&x, &y});
        if (!number || (is_nan(x) && is_nan(y))) return nan;
        return {is_nan(x) ? y : x, nan.flags};
    }
    int o = order(x, y);
    if (o == 0) o = int{y.negative} - int{x.negative}; // -0 below +0
    return {(o > 0) == greatest ? x : y};
}

inline Result fused(const Context& c, const Number& x, const Number& y, const Number& z) {
    if (is_nan(x) || is_nan(y)) return first_nan({&x, &y, &z});
    Result xy = product(x, y);
    if (!is_nan(z)) {
        if (is_nan(xy.x)) return xy;
        return sum(c, xy.x, z);
    }
    Result nan = first_nan({&z});
    nan.flags |= xy.flags; // infinity times zero plus a quiet NaN is invalid, as in SoftFloat
    return nan;
}

inline Result compute(const Context& c, Op op, const Number& x, Number y, const Number& z) {
    if (op == Op::fma) return fused(c, x, y, z);
    if (op >= Op::min) return extremum(x, y, op == Op::max || op == Op::max_number, op >= Op::min_number);
    if (op == Op::sqrt || op == Op::round || op == Op::round_exact) {
        if (is_nan(x)) return first_nan({&x});
        return op == Op::sqrt ? square_root(x) : to_integer(c, x, op == Op::round_exact);
    }
    if (is_nan(x) || is_nan(y)) return first_nan({&x, &y});
    if (op == Op::sub) y.negative = !y.negative;
    if (op == Op::mul) return product(x, y);
    if (op == Op::div) return quotient(x, y);
    return op == Op::remainder ? remainder(x, y) : sum(c, x, y);
}

} // namespace detail

/// op(a, b, c) on codes of the context's format; unary operations ignore b and c, binary ones c.
inline Outcome apply(const Context& to, Op op, std::uint32_t a, std::uint32_t b = 0, std::uint32_t c = 0) {
    const auto operand = [&](std::uint32_t code) {
        Number x = flushed(to, read(to.format, code));
        if (x.kind == Class::zero && to.format.is_fnuz()) x.negative = false; // the format has no -0
        return x;
    };
    const detail::Result r = detail::compute(to, op, operand(a), operand(b), operand(c));
    if (r.flags == Flags::divide_by_zero) return {store(to, r.x).code, Flags::divide_by_zero}; // an exact infinity
    return store(to, r.x, r.flags);
}

/// -1, 0, 1, or 2 for unordered.
inline int compare(const Context& to, std::uint32_t a, std::uint32_t b) {
    const Number x = flushed(to, read(to.format, a)), y = flushed(to, read(to.format, b));
    if (detail::is_nan(x) || detail::is_nan(y)) return 2;
    const int o = detail::order(x, y);
    return o < 0 ? -1 : int{o > 0};
}

} // namespace oracle
