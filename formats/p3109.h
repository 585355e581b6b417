// The operations of IEEE P3109 (interim report v4.0, sections 4.9 to 4.11 and 5) on numbers of any formats: operands
// are taken exactly, the result is projected once. The report's Add<fx, fy, fr, (NearestTiesToEven, SatNone)>(x, y) is
//
//     amp::p3109::Projection to{amp::format("binary8p4se")};
//     std::uint32_t r = to(add(decode({fx, x}), decode({fy, y})));
//
// Formats are those that format() gives, external ones (FP32, FP16, BF16) among them: there is no -0, and NaN is NaN.
// The functions that are not rational (RSqrt, Exp, Sin ...) are those of p3109_functions.h.
#pragma once

#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/bits.h>

#include <array>
#include <span>
#include <vector>

namespace amp::p3109 {

/// A floating-point value in the report's sense: a code of a format.
struct Value {
    FormatSpec format;
    std::uint32_t code;
};

/// Section 4.13.1, in the order of its table 2.
enum class Class : std::uint8_t {
    nan,
    negative_infinity,
    negative_normal,
    negative_subnormal,
    zero,
    positive_subnormal,
    positive_normal,
    positive_infinity
};

inline constexpr Unpacked nan{.kind = Kind::nan, .significand = std::uint64_t{1} << 63};
inline constexpr Unpacked zero{};
constexpr Unpacked infinity(bool sign) { return {.kind = Kind::infinity, .sign = sign}; }

/// Section 4.7.2: the datum, a closed extended real.
constexpr Unpacked decode(const Value& x) {
    const Unpacked u = unpack(x.format, x.code);
    if (u.is_nan()) return nan;
    return u.kind == Kind::zero ? zero : u;
}

/// Section 4.7.3. Data are exact, or sums, quotients and roots of 64 bits with a sticky last one.
struct Projection {
    FormatSpec format;
    Policy policy{.overflow = Overflow::sat_none};
    std::uint32_t random = 0; ///< the word of stochastic rounding, 2^N - 1 - R in the report's terms

    constexpr std::uint32_t operator()(const Unpacked& x) const {
        Flags unused;
        return pack(format, x, policy, random, unused);
    }
};

// Section 4.10 on closed extended reals. Where the report lists patterns, the first that fits decides.

constexpr Unpacked abs(Unpacked x) {
    x.sign = false;
    return x;
}
constexpr Unpacked negate(Unpacked x) {
    if (x.kind == Kind::finite || x.kind == Kind::infinity) x.sign = !x.sign;
    return x;
}
constexpr Unpacked copy_sign(Unpacked x, const Unpacked& y) {
    if (x.is_nan() || y.is_nan()) return nan;
    return y.sign ? negate(abs(x)) : abs(x);
}

constexpr Unpacked add(const Unpacked& x, const Unpacked& y) {
    if (x.is_nan() || y.is_nan()) return nan;
    if (x.kind == Kind::infinity) return y.kind == Kind::infinity && x.sign != y.sign ? nan : x;
    if (y.kind == Kind::infinity || x.kind == Kind::zero) return y;
    return y.kind == Kind::zero ? x : detail::exact_sum(x, y, Rounding::nearest_even);
}

constexpr Unpacked multiply(const Unpacked& x, const Unpacked& y) {
    if (x.is_nan() || y.is_nan()) return nan;
    const bool sign = x.sign != y.sign, none = x.kind == Kind::zero || y.kind == Kind::zero;
    if (x.kind == Kind::infinity || y.kind == Kind::infinity) return none ? nan : infinity(sign);
    return none ? zero : detail::exact_product(x, y);
}

/// x / 0 is NaN, whatever x is (section 4.10.5, note 2).
constexpr Unpacked divide(const Unpacked& x, const Unpacked& y) {
    if (x.is_nan() || y.is_nan() || y.kind == Kind::zero) return nan;
    if (x.kind == Kind::infinity) return y.kind == Kind::infinity ? nan : infinity(x.sign != y.sign);
    if (x.kind == Kind::zero || y.kind == Kind::infinity) return zero;
    return detail::quotient(x, y);
}

constexpr Unpacked recip(const Unpacked& x) { return divide({.kind = Kind::finite, .significand = 1}, x); }
constexpr Unpacked fma(const Unpacked& x, const Unpacked& y, const Unpacked& z) { return add(multiply(x, y), z); }

constexpr Unpacked sqrt(const Unpacked& x) {
    if (x.is_nan() || (x.sign && x.kind != Kind::zero)) return nan;
    return x.kind == Kind::finite ? detail::square_root(x) : x;
}

/// The order of two that are no NaN: less than, equal to or above 0.
constexpr int compare(const Unpacked& x, const Unpacked& y) {
    const auto side = [](const Unpacked& u) { return u.kind == Kind::zero ? 0 : u.sign ? -1 : 1; };
    if (side(x) != side(y) || x.kind == Kind::zero) return side(x) - side(y);
    if (x.kind == Kind::infinity || y.kind == Kind::infinity)
        return side(x) * ((x.kind == Kind::infinity ? 1 : 0) - (y.kind == Kind::infinity ? 1 : 0));
    const int a = leading_zeros(x.significand), b = leading_zeros(y.significand);
    if (x.exponent - a != y.exponent - b) return x.exponent - a < y.exponent - b ? -side(x) : side(x);
    const std::uint64_t p = x.significand << a, q = y.significand << b;
    return p == q ? 0 : p < q ? -side(x) : side(x);
}

/// Which operand the extrema of section 4.11 prefer; without a preference, NaN gives NaN.
enum class Prefer : std::uint8_t { none, number, finite };

/// Minimum, MinimumNumber and MinimumFinite; Maximum ... if `largest`.
constexpr Unpacked extremum(const Unpacked& x, const Unpacked& y, bool largest, Prefer prefer) {
    if (x.is_nan() || y.is_nan()) return prefer == Prefer::none ? nan : x.is_nan() ? y : x;
    const bool x_infinite = x.kind == Kind::infinity, y_infinite = y.kind == Kind::infinity;
    if (prefer == Prefer::finite && x_infinite != y_infinite) return x_infinite ? y : x;
    return (compare(x, y) < 0) == largest ? y : x;
}

/// MinimumMagnitude and MinimumMagnitudeNumber; Maximum ... if `largest`. Of equal magnitudes, the extremum of both.
constexpr Unpacked extremum_magnitude(const Unpacked& x, const Unpacked& y, bool largest, Prefer prefer) {
    if (x.is_nan() || y.is_nan()) return extremum(x, y, largest, prefer);
    const int order = compare(abs(x), abs(y));
    if (order == 0) return extremum(x, y, largest, prefer);
    return (order < 0) == largest ? y : x;
}

/// Section 4.11.4.
constexpr Unpacked clamp(const Unpacked& x, const Unpacked& low, const Unpacked& high) {
    if (x.is_nan() || low.is_nan() || high.is_nan() || compare(low, high) > 0) return nan;
    return compare(x, low) <= 0 ? low : compare(x, high) >= 0 ? high : x;
}

/// Section 4.12, but TotalOrder: no comparison holds for NaN.
enum class Comparison : std::uint8_t { less, less_equal, equal, greater_equal, greater };

constexpr bool holds(Comparison comparison, const Unpacked& x, const Unpacked& y) {
    if (x.is_nan() || y.is_nan()) return false;
    const int order = compare(x, y);
    switch (comparison) {
    case Comparison::less: return order < 0;
    case Comparison::less_equal: return order <= 0;
    case Comparison::equal: return order == 0;
    case Comparison::greater_equal: return order >= 0;
    case Comparison::greater: break;
    }
    return order > 0;
}

/// Section 4.12.1: NaN comes before all others.
constexpr bool total_order(const Unpacked& x, const Unpacked& y) {
    return x.is_nan() || holds(Comparison::less_equal, x, y);
}

/// Section 4.13.1.
constexpr Class classify(const Value& x) {
    const Unpacked u = unpack(x.format, x.code);
    switch (u.kind) {
    case Kind::nan: return Class::nan;
    case Kind::zero: return Class::zero;
    case Kind::infinity: return u.sign ? Class::negative_infinity : Class::positive_infinity;
    case Kind::finite: break;
    }
    if (u.subnormal) return u.sign ? Class::negative_subnormal : Class::positive_subnormal;
    return u.sign ? Class::negative_normal : Class::positive_normal;
}

// Section 4.13.

constexpr bool is_nan(const Value& x) { return classify(x) == Class::nan; }
constexpr bool is_zero(const Value& x) { return classify(x) == Class::zero; }
constexpr bool is_one(const Value& x) {
    return holds(Comparison::equal, decode(x), {.kind = Kind::finite, .significand = 1});
}
constexpr bool is_infinite(const Value& x) {
    return classify(x) == Class::negative_infinity || classify(x) == Class::positive_infinity;
}
constexpr bool is_finite(const Value& x) { return !is_infinite(x) && !is_nan(x); }
constexpr bool is_sign_minus(const Value& x) { return !is_nan(x) && classify(x) < Class::zero; }
constexpr bool is_normal(const Value& x) {
    return classify(x) == Class::negative_normal || classify(x) == Class::positive_normal;
}
constexpr bool is_subnormal(const Value& x) { return is_finite(x) && !is_zero(x) && !is_normal(x); }

/// Section 4.16, for formats of the report: the neighbour above; NaN where there is none.
constexpr std::uint32_t next_greater_than(const Value& x) {
    const std::uint32_t next = next_up(x.format, x.code);
    return next == x.code ? x.format.nan_code() : next;
}
constexpr std::uint32_t next_less_than(const Value& x) {
    const std::uint32_t next = next_down(x.format, x.code);
    return next == x.code ? x.format.nan_code() : next;
}

/// An integer of any number of words, the lowest first, times 2^exponent: 64 bits of it, the last one sticky.
constexpr Unpacked magnitude_of(std::span<const std::uint32_t> words, bool sign, int exponent) {
    std::size_t top = words.size();
    while (top > 0 && words[top - 1] == 0) --top;
    if (top == 0) return zero;
    Uint128 head = 0; // the first three words
    bool rest = false;
    for (std::size_t i = 0; i < top; ++i)
        if (i + 3 >= top) head |= Uint128{words[i]} << (32 * (i + 3 - top));
        else rest = rest || words[i] != 0;
    Unpacked x = to_unpacked(sign, (static_cast<int>(top) - 3) * 32 + exponent, head);
    x.significand |= std::uint64_t{rest};
    return x;
}

/// The exact sum of any number of data: a fixed-point number wide enough for products of four numbers of FP32's range.
class ExactSum {
  public:
    constexpr void add(const Unpacked& x) { add(x.kind, x.sign, x.exponent, x.significand); }

    /// Adds (-1)^sign significand 2^exponent. Precondition of finite ones: -lowest <= exponent < lowest.
    constexpr void add(Kind kind, bool sign, int exponent, Uint128 significand) {
        is_nan_ = is_nan_ || kind == Kind::nan;
        if (kind == Kind::infinity) (sign ? below_ : above_) = true;
        if (kind != Kind::finite) return;
        const auto place = static_cast<unsigned>(exponent + lowest);
        std::size_t word = place / 32;
        Uint128 low = significand << place % 32, carry = 0; // the significand has at most 96 bits
        for (; word < words_.size() && (low != 0 || carry != 0); ++word, low >>= 32) {
            const Uint128 part = low & 0xffffffff;
            const Uint128 next = sign ? Uint128{words_[word]} - part - carry : Uint128{words_[word]} + part + carry;
            words_[word] = static_cast<std::uint32_t>(next);
            carry = sign ? next >> 127 : next >> 32;
        }
    }

    /// The sum, of 64 bits with a sticky last one; zero has no sign.
    [[nodiscard]] constexpr Unpacked total() const {
        if (is_nan_ || (above_ && below_)) return nan;
        if (above_ || below_) return infinity(below_);
        std::array<std::uint32_t, count> magnitude = words_;
        const bool sign = magnitude.back() >> 31 != 0;
        if (sign) {
            std::uint64_t carry = 1;
            for (std::uint32_t& word : magnitude) {
                carry += static_cast<std::uint32_t>(~word);
                word = static_cast<std::uint32_t>(carry);
                carry >>= 32;
            }
        }
        return magnitude_of(magnitude, sign, -lowest);
    }

  private:
    static constexpr int lowest = 640;       ///< 4 * 149, rounded up to whole words
    static constexpr std::size_t count = 44; ///< up to 2^768: 2^32 products below 2^512, and a sign

    std::array<std::uint32_t, count> words_{}; ///< two's complement, lowest word first
    bool is_nan_ = false, above_ = false, below_ = false;
};

/// Fused add-add (section 4.10.7).
constexpr Unpacked faa(const Unpacked& x, const Unpacked& y, const Unpacked& z) {
    ExactSum sum;
    for (const Unpacked* term : {&x, &y, &z}) sum.add(*term);
    return sum.total();
}

// Section 5: blocks.

/// A block: a scale factor and elements of one format.
struct Block {
    Value scale;
    FormatSpec format;
    std::span<const std::uint32_t> elements;
};

/// Section 5.1.1: the datum of an element.
constexpr Unpacked decode(const Block& x, std::size_t i) {
    return multiply(decode(x.scale), decode({x.format, x.elements[i]}));
}

/// Section 5.1.2: an element of a block with that scale.
constexpr std::uint32_t project(const Value& scale, const Unpacked& x, const Projection& to) {
    const Unpacked s = decode(scale);
    if (s.is_nan() || x.is_nan()) return to(nan);
    if (s.kind == Kind::zero || x.kind == Kind::zero) return to(zero);
    if (s.kind == Kind::infinity) return to({.kind = Kind::finite, .sign = x.sign != s.sign, .significand = 1});
    return to(divide(x, s));
}

/// Section 5.4: an operation on the elements of blocks of one size, projected to a block with that scale. Convert is an
/// operation, too, which gives its operand.
template <class Operation, class... Blocks>
constexpr void block_operation(const Operation& operation, const Value& scale, const Projection& to,
                               std::span<std::uint32_t> out, const Blocks&... x) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = project(scale, operation(decode(x, i)...), to);
}

/// Section 5.2.1, ConvertFromBlock.
constexpr void convert_from_block(const Block& x, const Projection& to, std::span<std::uint32_t> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = to(decode(x, i));
}

/// Section 5.2.2, ConvertToBlock.
constexpr void convert_to_block(const FormatSpec& from, std::span<const std::uint32_t> in, const Value& scale,
                                const Projection& element, std::span<std::uint32_t> out) {
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = project(scale, decode({from, in[i]}), element);
}

/// Section 5.2.3, ConvertToBlockMaxAbsFinite: returns the scale; `out` gets the elements.
constexpr std::uint32_t convert_to_block(const FormatSpec& from, std::span<const std::uint32_t> in,
                                         const Projection& scale, const Projection& element,
                                         std::span<std::uint32_t> out) {
    Unpacked largest = nan;
    for (const std::uint32_t x : in) largest = extremum(largest, abs(decode({from, x})), true, Prefer::finite);
    const std::uint32_t s = scale(largest);
    convert_to_block(from, in, {scale.format, s}, element, out);
    return s;
}

/// Section 5.3.1, BlockReduceAdd: the exact sum, to be projected once.
constexpr Unpacked reduce_add(const Block& x) {
    ExactSum sum;
    for (std::size_t i = 0; i < x.elements.size(); ++i) sum.add(decode(x, i));
    return sum.total();
}

/// Section 5.3.1, BlockReduceMultiply: the exact product, to be projected once.
inline Unpacked reduce_multiply(const Block& x) {
    std::vector<std::uint32_t> words{1}; // of the product of the odd parts, lowest first
    Unpacked rest{.kind = Kind::finite, .significand = 1};
    for (std::size_t i = 0; i < x.elements.size(); ++i) {
        const Unpacked factor = decode(x, i);
        const bool finite = factor.kind == Kind::finite;
        const int zeros = finite ? trailing_zeros(factor.significand) : 0;
        rest = multiply(rest, {.kind = factor.kind, .sign = factor.sign, .significand = 1}); // kind and sign
        rest.exponent += finite ? factor.exponent + zeros : 0;
        Uint128 carry = 0;
        for (std::uint32_t& word : words) {
            carry += Uint128{finite ? factor.significand >> zeros : 1} * word;
            word = static_cast<std::uint32_t>(carry);
            carry >>= 32;
        }
        for (; carry != 0; carry >>= 32) words.push_back(static_cast<std::uint32_t>(carry));
    }
    return rest.kind == Kind::finite ? magnitude_of(words, rest.sign, rest.exponent) : rest;
}

/// Section 5.3.2, BlockDotProduct: the same of products. The blocks are of the same size.
constexpr Unpacked dot_product(const Block& x, const Block& y) {
    ExactSum sum;
    for (std::size_t i = 0; i < x.elements.size(); ++i) {
        const Unpacked a = decode(x, i), b = decode(y, i);
        const Unpacked product = multiply(a, b); // of kind and sign; its significand may need 96 bits
        sum.add(product.kind, product.sign, a.exponent + b.exponent, Uint128{a.significand} * b.significand);
    }
    return sum.total();
}

} // namespace amp::p3109
