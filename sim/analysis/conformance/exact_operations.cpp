#include <ampscope/sim/analysis/conformance/exact_outcome.h>

#include <algorithm>
#include <bit>
#include <initializer_list>

namespace amp::exact {

namespace {

Outcome invalid() { return {{.kind = Class::nan}, Flags::invalid}; }

/// The first operand that is a NaN; if any is signalling, the operation is invalid.
Outcome first_nan(std::initializer_list<const Number*> operands) {
    const Number* first = nullptr;
    bool signaling = false;
    for (const Number* x : operands) {
        if (first == nullptr && x->kind == Class::nan) first = x;
        signaling |= x->signaling;
    }
    return {*first, signaling ? unsigned{Flags::invalid} : 0U};
}

/// The numerator in units of 2^unit, unit <= x.exponent. Precondition: the denominator is 1.
Natural in_units(const Number& x, int unit) { return x.numerator.shifted(x.exponent - unit); }

} // namespace

Outcome sum(const Number& x, const Number& y, Rounding rounding) {
    if (x.kind == Class::infinity && y.kind == Class::infinity && x.negative != y.negative) return invalid();
    if (x.kind == Class::infinity) return {x};
    if (y.kind == Class::infinity) return {y};
    if (x.kind == Class::zero && y.kind == Class::zero && x.negative == y.negative) return {x};
    const int unit = std::min(x.exponent, y.exponent);
    Natural a = in_units(x, unit), b = in_units(y, unit);
    Number s{.kind = Class::finite, .negative = x.negative, .exponent = unit};
    if (x.negative == y.negative) a += b;
    else if (a < b) {
        s.negative = y.negative;
        b -= a;
        a = b;
    } else {
        a -= b;
    }
    s.numerator = a;
    if (a.is_zero()) s = {.negative = rounding == Rounding::down}; // IEEE 754-2019 section 6.3
    return {s};
}

Outcome product(const Number& x, const Number& y) {
    const bool negative = x.negative != y.negative;
    const auto either = [&](Class kind) { return x.kind == kind || y.kind == kind; };
    if (either(Class::infinity)) {
        if (either(Class::zero)) return invalid();
        return {{.kind = Class::infinity, .negative = negative}};
    }
    if (either(Class::zero)) return {{.negative = negative}};
    return {{.kind = Class::finite,
             .negative = negative,
             .numerator = x.numerator.low() * y.numerator.low(), // of codes: at most 24 bits each
             .exponent = x.exponent + y.exponent}};
}

Outcome quotient(const Number& x, const Number& y) {
    const bool negative = x.negative != y.negative;
    if (x.kind == y.kind && x.kind != Class::finite) return invalid();
    if (x.kind == Class::infinity) return {{.kind = Class::infinity, .negative = negative}};
    if (x.kind == Class::zero || y.kind == Class::infinity) return {{.negative = negative}};
    if (y.kind == Class::zero) return {{.kind = Class::infinity, .negative = negative}, Flags::divide_by_zero};
    return {{.kind = Class::finite,
             .negative = negative,
             .numerator = x.numerator,
             .denominator = y.numerator.low(),
             .exponent = x.exponent - y.exponent}};
}

namespace {

/// x - n y, n the integer nearest to x / y, ties to even.
Outcome remainder(const Number& x, const Number& y) {
    if (x.kind == Class::infinity || y.kind == Class::zero) return invalid();
    if (x.kind == Class::zero || y.kind == Class::infinity) return {x};
    // 1. |x| in units, modulo 2 |y|, which keeps the last bit of n: one binary place after the other.
    const int unit = std::min(x.exponent, y.exponent);
    const Natural once = in_units(y, unit), twice = once.shifted(1), dividend = in_units(x, unit);
    Natural rest;
    for (int i = dividend.bits() - 1; i >= 0; --i) {
        rest = rest.shifted(1);
        if (dividend.shifted(-i).is_odd()) rest += 1;
        if (rest >= twice) rest -= twice;
    }
    // 2. n is odd if |y| is still in it; what exceeds half of |y|, or is half of it with n odd, goes to the next n.
    const bool odd = rest >= once;
    if (odd) rest -= once;
    const Natural doubled = rest.shifted(1);
    const bool beyond = doubled > once || (doubled == once && odd);
    if (beyond) {
        Natural other = once;
        other -= rest;
        rest = other;
    }
    return {{.kind = rest.is_zero() ? Class::zero : Class::finite,
             .negative = x.negative != (beyond && !rest.is_zero()),
             .numerator = rest,
             .exponent = unit}};
}

Outcome square_root(Number x) {
    if (x.kind == Class::zero) return {x};
    if (x.negative) return invalid();
    x.root = true;
    return {x};
}

/// x rounded to an integer in the rounding mode.
Outcome to_integer(const Number& x, Rounding rounding, bool signal_inexact) {
    if (x.kind != Class::finite || x.exponent >= 0) return {x};
    Natural n = x.numerator.shifted(x.exponent), rest = x.numerator;
    rest -= n.shifted(-x.exponent);
    const bool inexact = !rest.is_zero();
    const auto against_half = rest <=> Natural(1).shifted(-x.exponent - 1);
    bool up = false;
    switch (rounding) {
    case Rounding::nearest_even: up = against_half > 0 || (against_half == 0 && n.is_odd()); break;
    case Rounding::nearest_away: up = against_half >= 0; break;
    case Rounding::down: up = inexact && x.negative; break;
    case Rounding::up: up = inexact && !x.negative; break;
    case Rounding::to_odd: up = inexact && !n.is_odd(); break;
    case Rounding::toward_zero:
    case Rounding::stochastic: break;
    }
    if (up) n += 1;
    return {{.kind = n.is_zero() ? Class::zero : Class::finite, .negative = x.negative, .numerator = n},
            inexact && signal_inexact ? unsigned{Flags::inexact} : 0U};
}

Outcome fused_sum(const Number& x, const Number& y, const Number& z, Rounding rounding) {
    if (x.kind == Class::nan || y.kind == Class::nan) return first_nan({&x, &y, &z});
    const Outcome xy = product(x, y);
    if (z.kind == Class::nan) { // infinity times zero plus a quiet NaN is invalid, as in SoftFloat
        Outcome nan = first_nan({&z});
        nan.flags |= xy.flags;
        return nan;
    }
    return xy.x.kind == Class::nan ? xy : sum(xy.x, z, rounding);
}

/// 1 or 0 for the six comparisons of numbers that are no NaN.
bool holds(Op operation, const Number& x, const Number& y) {
    const Outcome difference =
        sum(x, {.kind = y.kind, .negative = !y.negative, .numerator = y.numerator, .exponent = y.exponent},
            Rounding::nearest_even);
    const Class kind = difference.x.kind; // a NaN: infinities of one sign
    const bool equal = kind == Class::zero || kind == Class::nan, less = !equal && difference.x.negative;
    if (operation == Op::eq || operation == Op::eq_signaling) return equal;
    return less || (equal && (operation == Op::le || operation == Op::le_quiet));
}

Result comparison(Op operation, const Number& x, const Number& y) {
    if (x.kind != Class::nan && y.kind != Class::nan) return {std::uint32_t{holds(operation, x, y)}, 0};
    const bool quiet = operation == Op::eq || operation == Op::le_quiet || operation == Op::lt_quiet;
    const bool raises = !quiet || x.signaling || y.signaling; // IEEE 754-2019 table 5.3
    return {0, raises ? std::uint8_t{Flags::invalid} : std::uint8_t{0}};
}

Outcome compute(const Policy& policy, Op operation, const Number& x, Number y, const Number& z, bool exact) {
    if (operation == Op::mul_add) return fused_sum(x, y, z, policy.rounding);
    if (operation == Op::sqrt || operation == Op::round_to_int) {
        if (x.kind == Class::nan) return first_nan({&x});
        return operation == Op::sqrt ? square_root(x) : to_integer(x, policy.rounding, exact);
    }
    if (x.kind == Class::nan || y.kind == Class::nan) return first_nan({&x, &y});
    switch (operation) {
    case Op::mul: return product(x, y);
    case Op::div: return quotient(x, y);
    case Op::rem: return remainder(x, y);
    case Op::sub: y.negative = !y.negative; break;
    default: break;
    }
    return sum(x, y, policy.rounding);
}

} // namespace

Result apply(const FormatSpec& f, const Policy& policy, Op operation, const OperandCodes& codes, bool exact) {
    const auto operand = [&](std::uint32_t code) {
        const Number x = read(f, code);
        const bool flushes = policy.subnormals == Subnormals::flush || policy.subnormals == Subnormals::flush_input;
        return x.subnormal && flushes ? Number{.negative = x.negative && f.has_negative_zero()} : x;
    };
    const Number x = operand(codes[0]), y = operand(codes[1]), z = operand(codes[2]);
    if (conformance::is_of_report(operation)) return apply_report(f, policy, operation, {x, y, z});
    const auto row = static_cast<std::size_t>(operation);
    if (conformance::operations()[row].gives == conformance::Gives::truth) return comparison(operation, x, y);
    const Outcome result = compute(policy, operation, x, y, z, exact);
    // A quotient by zero is an exact infinity, whatever the format makes of it.
    if (result.flags == Flags::divide_by_zero) return {store(f, policy, result.x).code, Flags::divide_by_zero};
    return store(f, policy, result.x, result.flags);
}

Result fused(const FormatSpec& f, const Policy& policy, const Number& a, const Number& b, const Number& c) {
    const Outcome result = fused_sum(a, b, c, policy.rounding);
    return store(f, policy, result.x, result.flags);
}

} // namespace amp::exact
