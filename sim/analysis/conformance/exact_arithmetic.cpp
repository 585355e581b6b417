#include <ampscope/sim/analysis/conformance/exact_arithmetic.h>

#include <algorithm>
#include <bit>

namespace amp::exact {

namespace {

/// n * 2^exponent.
struct Dyadic {
    std::uint64_t n;
    int exponent;
};

/// How a call rounds.
struct Target {
    const FormatSpec& format;
    const Policy& policy;
};

/// The sign of |x| - d. Precondition: x is finite and not zero.
int compare(const Number& x, const Dyadic& d) {
    if (d.n == 0) return 1;
    const std::uint64_t right = x.root ? d.n * d.n : x.denominator * d.n; // at most 54 bits
    const int shift = x.exponent - (x.root ? 2 : 1) * d.exponent;
    const int left_bits = x.numerator.bits() + shift, right_bits = static_cast<int>(std::bit_width(right));
    if (left_bits != right_bits) return left_bits < right_bits ? -1 : 1;
    const Natural left = x.numerator.shifted(std::max(shift, 0)), scaled = Natural(right).shifted(std::max(-shift, 0));
    return left < scaled ? -1 : left == scaled ? 0 : 1;
}

/// The k-th non-negative value in order, as if the exponent field had no end.
Dyadic magnitude(const FormatSpec& f, std::uint64_t k) {
    const std::uint64_t implicit = std::uint64_t{1} << f.fraction_bits;
    const int field = static_cast<int>(k / implicit);
    if (field == 0 && f.has_zero) return {k, 1 - f.bias() - f.fraction_bits};
    return {implicit + k % implicit, field - f.bias() - f.fraction_bits};
}

/// The first k in the binade of 2^exponent; 0 below the smallest normal.
std::uint64_t first_of_binade(const FormatSpec& f, int exponent) {
    const int field = exponent + f.bias();
    return field <= 0 ? 0 : static_cast<std::uint64_t>(field) << f.fraction_bits;
}

/// The largest k whose value is at most |x|. Precondition: one exists.
std::uint64_t index_below(const FormatSpec& f, const Number& x) {
    // Significands are 1 to 2, so their quotient is 1/2 to 2, and a root's exponent is half of the number's.
    int exponent = x.numerator.bits() - static_cast<int>(std::bit_width(x.denominator)) + x.exponent;
    if (x.root) exponent = (exponent - (exponent < 0 ? 1 : 0)) / 2;
    std::uint64_t low = first_of_binade(f, exponent - 1);
    std::uint64_t high = std::max(first_of_binade(f, exponent + 2), std::uint64_t{2} << f.fraction_bits);
    while (high - low > 1) {
        const std::uint64_t middle = (low + high) / 2;
        (compare(x, magnitude(f, middle)) >= 0 ? low : high) = middle;
    }
    return low;
}

std::uint32_t with_sign(const FormatSpec& f, std::uint64_t k, bool negative) {
    if (f.negatives == Negatives::sign_and_magnitude)
        return static_cast<std::uint32_t>(k) | (negative ? f.sign_mask() : 0);
    return static_cast<std::uint32_t>(negative ? 0 - k : k) & f.code_mask();
}

/// The code of the end of the range.
std::uint32_t end_of_range(const FormatSpec& f, bool negative) {
    const bool one_more = negative && f.negatives == Negatives::twos_complement;
    return with_sign(f, f.max_code() + std::uint64_t{one_more}, negative);
}

bool has_signed_nan(const FormatSpec& f) { return !f.nan_is_negative_zero(); }

bool has_infinity(const FormatSpec& f) {
    return f.nonfinite == NonFinite::ieee || f.nonfinite == NonFinite::infinity_and_nan_is_negative_zero ||
           f.nonfinite == NonFinite::infinity_below_nan;
}

/// Whether the policy is one of IEEE P3109, which has no -0 and, but for infinities, knows the ends of the range only.
bool projects(const Policy& p) {
    return p.overflow == Overflow::sat_finite || p.overflow == Overflow::sat_propagate ||
           p.overflow == Overflow::sat_none;
}

Result store_nan(const Target& to, const Number& x, unsigned flags) {
    const FormatSpec& f = to.format;
    if (x.signaling) flags |= Flags::invalid;
    if (f.nonfinite == NonFinite::none)
        return {f.max_code(), static_cast<std::uint8_t>(flags | unsigned{Flags::invalid})};
    const bool negative = x.negative && has_signed_nan(f) && f.is_signed;
    std::uint32_t code = f.nan_code();
    switch (to.policy.nan) {
    case NanRule::canonical: break;
    case NanRule::keep_sign: code = with_sign(f, code, negative); break;
    case NanRule::payload:
        if (f.nonfinite == NonFinite::ieee) {
            const int drop = x.nan_bits - f.fraction_bits;
            code |= drop >= 0 ? x.nan >> drop : x.nan << -drop;
        }
        code = with_sign(f, code, negative);
        break;
    case NanRule::all_ones:
    case NanRule::all_ones_keep_sign:
        if (f.nonfinite == NonFinite::ieee) code = f.magnitude_mask();
        if (to.policy.nan == NanRule::all_ones_keep_sign) code = with_sign(f, code, negative);
        break;
    }
    return {code, static_cast<std::uint8_t>(flags)};
}

/// The NaN that stands for an infinity: it has the sign unless NaNs are canonical.
std::uint32_t nan_for_infinity(const Target& to, bool negative) {
    const FormatSpec& f = to.format;
    return with_sign(f, f.nan_code(), negative && has_signed_nan(f) && to.policy.nan != NanRule::canonical);
}

/// What lies below the range of a format without sign, after rounding (IEEE P3109 v4.0 section 4.7.5).
Result store_negative(const Target& to, bool infinite) {
    const Rounding rounding = to.policy.rounding;
    const bool none = to.policy.overflow == Overflow::sat_none;
    const bool inwards = rounding == Rounding::toward_zero || rounding == Rounding::up;
    if (!projects(to.policy) || (none && (infinite || !inwards))) return {to.format.nan_code(), Flags::invalid};
    return {0, Flags::overflow | Flags::inexact};
}

Result store_infinity(const Target& to, bool negative, unsigned flags) {
    const FormatSpec& f = to.format;
    const Overflow overflow = to.policy.overflow;
    const auto raised = static_cast<std::uint8_t>(flags), invalid = static_cast<std::uint8_t>(flags | Flags::invalid);
    if (negative && !f.is_signed) return store_negative(to, true);
    if (overflow == Overflow::saturate_all || overflow == Overflow::sat_finite)
        return {end_of_range(f, negative), raised};
    if (has_infinity(f)) return {with_sign(f, f.infinity_code(), negative), raised};
    if (f.nonfinite == NonFinite::none || projects(to.policy)) return {end_of_range(f, negative), invalid};
    return {nan_for_infinity(to, negative), invalid};
}

Result store_overflow(const Target& to, bool negative) {
    const FormatSpec& f = to.format;
    constexpr std::uint8_t flags = Flags::overflow | Flags::inexact;
    const Rounding rounding = to.policy.rounding;
    const bool even = has_infinity(f) && f.max_code() % 2 == 0; // then rounding to odd goes to infinity
    const bool outwards = rounding == Rounding::nearest_even || rounding == Rounding::nearest_away ||
                          rounding == (negative ? Rounding::down : Rounding::up) || // IEEE 754-2019 section 7.4
                          (rounding == Rounding::to_odd && even);
    const bool saturates = to.policy.overflow != Overflow::infinity && to.policy.overflow != Overflow::sat_none;
    if (!saturates && outwards && has_infinity(f)) return {with_sign(f, f.infinity_code(), negative), flags};
    if (saturates || !outwards || f.nonfinite == NonFinite::none || projects(to.policy))
        return {end_of_range(f, negative), flags};
    return {nan_for_infinity(to, negative), flags};
}

/// Whether x, from `low` up to one unit of low's last place, is rounded away from zero. `odd`: low's last bit.
bool rounds_up(const Target& to, const Number& x, const Dyadic& low, bool odd) {
    if (compare(x, low) == 0) return false;
    const int against_middle = compare(x, {2 * low.n + 1, low.exponent - 1});
    switch (to.policy.rounding) {
    case Rounding::nearest_even: return against_middle > 0 || (against_middle == 0 && odd);
    case Rounding::nearest_away: return against_middle >= 0;
    case Rounding::down: return x.negative;
    case Rounding::up: return !x.negative;
    case Rounding::to_odd: return !odd;
    case Rounding::toward_zero:
    case Rounding::stochastic: break;
    }
    return false;
}

/// Whether x, in the end inexact, is tiny (IEEE 754-2019 section 7.5).
bool is_tiny(const Target& to, const Number& x) {
    const FormatSpec& f = to.format;
    if (f.is_integer()) return false;
    const Dyadic normal = magnitude(f, f.has_zero ? std::uint64_t{1} << f.fraction_bits : 0);
    if (compare(x, normal) >= 0) return false;
    if (to.policy.tininess == Tininess::before_rounding || !f.has_zero) return true;
    if (compare(x, {normal.n, normal.exponent - 1}) < 0) return true;
    // x is in the binade below the smallest normal: there full precision is one bit more than subnormals have.
    Dyadic low = magnitude(f, index_below(f, x));
    low = {2 * low.n, low.exponent - 1};
    if (compare(x, {low.n + 1, low.exponent}) >= 0) ++low.n;
    // Of one significant bit, the power of two there would have the code of zero, which is even.
    const bool odd = f.fraction_bits > 0 && low.n % 2 != 0;
    return low.n + std::uint64_t{rounds_up(to, x, low, odd)} < 2 * normal.n;
}

bool flushes_input(const Policy& p) {
    return p.subnormals == Subnormals::flush || p.subnormals == Subnormals::flush_input;
}
bool flushes_output(const Policy& p) {
    return p.subnormals == Subnormals::flush || p.subnormals == Subnormals::flush_output;
}

Number operand(const Policy& policy, const Number& x) {
    return x.subnormal && flushes_input(policy) ? Number{.negative = x.negative} : x;
}

} // namespace

Number read(const FormatSpec& f, std::uint32_t code) {
    const bool negative = (code & f.sign_mask()) != 0;
    const std::uint32_t complement = (0 - code) & f.code_mask();
    const std::uint32_t k =
        negative && f.negatives != Negatives::sign_and_magnitude ? complement : code & (f.code_mask() ^ f.sign_mask());
    if (f.nan_is_negative_zero() && negative && k == 0) return {.kind = Class::nan, .negative = true};
    const bool top = k == f.magnitude_mask(), below_top = k + 1 == f.magnitude_mask();
    if (f.nonfinite == NonFinite::nan_only || f.nonfinite == NonFinite::infinity_below_nan) {
        if (top) return {.kind = Class::nan, .negative = negative};
        if (below_top && f.nonfinite == NonFinite::infinity_below_nan) return {.kind = Class::infinity};
    }
    if (f.nonfinite == NonFinite::infinity_and_nan_is_negative_zero && top)
        return {.kind = Class::infinity, .negative = negative};
    const std::uint32_t fraction = k & f.fraction_mask();
    if (f.nonfinite == NonFinite::ieee && k - fraction == f.magnitude_mask() - f.fraction_mask()) {
        if (fraction == 0) return {.kind = Class::infinity, .negative = negative};
        return {.kind = Class::nan,
                .negative = negative,
                .signaling = fraction >> (f.fraction_bits - 1) == 0,
                .nan = fraction,
                .nan_bits = f.fraction_bits};
    }
    const Dyadic value = magnitude(f, k);
    return {.kind = value.n == 0 ? Class::zero : Class::finite,
            .negative = negative,
            .subnormal = !f.is_integer() && f.has_zero && value.n != 0 && value.n >> f.fraction_bits == 0,
            .numerator = value.n,
            .exponent = value.exponent};
}

Result store(const FormatSpec& f, const Policy& policy, const Number& x, unsigned flags) {
    const Target to{f, policy};
    const std::uint32_t zero = f.has_negative_zero() && x.negative && !projects(policy) ? f.sign_mask() : 0;
    if (x.kind == Class::nan) return store_nan(to, x, flags);
    if (x.kind == Class::infinity) return store_infinity(to, x.negative, flags);
    if (x.kind == Class::zero) return {zero, static_cast<std::uint8_t>(flags)};
    if (x.negative && !f.is_signed && !projects(policy)) return store_negative(to, false);
    if (!f.has_zero && compare(x, magnitude(f, 0)) < 0) // the smallest value stands for zero
        return {0, static_cast<std::uint8_t>(flags | Flags::inexact | Flags::underflow)};

    const std::uint64_t below = index_below(f, x);
    // With one significant bit, the exponent says which code is even: the code is the exponent there, too.
    const std::uint64_t k = below + std::uint64_t{rounds_up(to, x, magnitude(f, below), below % 2 != 0)};
    if (x.negative && !f.is_signed && k != 0) return store_negative(to, false);
    const bool one_more = x.negative && f.negatives == Negatives::twos_complement;
    if (k > f.max_code() + std::uint64_t{one_more}) return store_overflow(to, x.negative);
    if (compare(x, magnitude(f, below)) != 0)
        flags |= Flags::inexact | (is_tiny(to, x) ? unsigned{Flags::underflow} : 0U);
    if (flushes_output(policy) && f.has_zero && !f.is_integer() && k >> f.fraction_bits == 0 && k != 0)
        return {zero, static_cast<std::uint8_t>(flags | Flags::inexact | Flags::underflow)};
    if (k == 0 && f.has_zero) return {zero, static_cast<std::uint8_t>(flags)};
    return {with_sign(f, k, x.negative), static_cast<std::uint8_t>(flags)};
}

Result convert(const FormatSpec& from, std::uint32_t code, const FormatSpec& to, const Policy& policy) {
    return store(to, policy, operand(policy, read(from, code)));
}

} // namespace amp::exact
