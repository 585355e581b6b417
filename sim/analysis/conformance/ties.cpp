// Results halfway between two neighbours of a format, and the nearest to them, made from the result backwards: a middle
// M * 2^e with M odd is chosen, then operands that give it. p is the format's precision.
#include <ampscope/sim/analysis/conformance/detail/operands.h>

#include <ampscope/formats/codec.h>

#include <algorithm>
#include <bit>

namespace amp::conformance::detail {

namespace {

/// The middle between a number of a format and the next larger one: n * 2^exponent, n odd; p + 1 bits of n for normal
/// numbers, fewer for subnormal ones.
struct Middle {
    std::int64_t n;
    int exponent;

    [[nodiscard]] int bits() const { return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n))); }
};

/// Above any finite number, the largest included, as if the exponent had no end.
Middle any_middle(const FormatSpec& f, Draw& draw) {
    const Unpacked u = unpack(f, draw.below(std::uint64_t{f.max_code()} + 1));
    return {static_cast<std::int64_t>(2 * u.significand + 1), u.exponent - 1};
}

/// The code of n * 2^exponent, if the format has that number.
std::optional<std::uint32_t> code_of(const FormatSpec& f, std::int64_t n, int exponent) {
    if (n == 0) return 0;
    Flags flags;
    const auto magnitude = static_cast<std::uint64_t>(n < 0 ? -n : n);
    const std::uint32_t code = round_pack(f, n < 0, exponent, magnitude, {}, 0, flags);
    if (flags.bits != 0) return std::nullopt;
    return code;
}

/// Codes of x and y, if the format has both.
std::optional<OperandCodes> both(std::optional<std::uint32_t> x, std::optional<std::uint32_t> y, std::uint32_t z = 0) {
    if (!x || !y) return std::nullopt;
    return OperandCodes{*x, *y, z};
}

/// Which side of the middle a result is to lie on.
enum class Side : std::uint8_t { on, below, above };

std::uint32_t beside(const FormatSpec& f, std::uint32_t code, Side side) {
    return side == Side::on ? code : side == Side::below ? next_down(f, code) : next_up(f, code);
}

/// 1 / x modulo 2^bits, x odd: each step doubles the number of right bits.
std::uint64_t inverse(std::uint64_t x, int bits) {
    std::uint64_t y = x;
    for (int i = 0; i < 5; ++i) y *= 2 - x * y;
    return y & ((std::uint64_t{1} << bits) - 1);
}

/// x + y = M 2^e: y is an odd multiple of 2^e, so x an even one, with p bits left. Beside: the next y, which has bits
/// below 2^e, so that it moves by less than that.
std::optional<OperandCodes> add_tie(const FormatSpec& f, Side side, Draw& draw) {
    const Middle m = any_middle(f, draw);
    if (side != Side::on && m.exponent <= f.min_subnormal_exponent()) return std::nullopt;
    const int most = side == Side::on ? f.precision() : std::max(f.precision() - 1, 1);
    auto y = static_cast<std::int64_t>(draw.odd(draw.between(1, most)));
    if (draw.one_in(2)) y = -y;
    const auto found = both(code_of(f, m.n - y, m.exponent), code_of(f, y, m.exponent));
    if (!found) return std::nullopt;
    return OperandCodes{(*found)[0], beside(f, (*found)[1], side), 0};
}

/// An odd n of the bits of the middle, as the product u v of numbers of at most p bits.
struct Factors {
    std::int64_t u, v;
    int exponent;
};
std::optional<Factors> factored_middle(const FormatSpec& f, Draw& draw) {
    const Middle m = any_middle(f, draw);
    const auto u = static_cast<std::int64_t>(draw.odd(draw.between(1, std::min(m.bits(), f.precision()))));
    const std::int64_t v = m.n / u | 1;
    if (Middle{u * v, 0}.bits() != m.bits()) return std::nullopt;
    return Factors{u, v, m.exponent};
}

/// u 2^i and v 2^(exponent - i), for any i that leaves both in the format's range.
std::optional<OperandCodes> scaled_pair(const FormatSpec& f, std::int64_t u, std::int64_t v, int exponent, Draw& draw) {
    const int low = std::max(f.min_subnormal_exponent(), exponent - f.max_exponent());
    const int high = std::min(f.max_exponent(), exponent - f.min_subnormal_exponent());
    if (low > high) return std::nullopt;
    const int i = draw.between(low, high);
    return both(code_of(f, u, i), code_of(f, v, exponent - i));
}

/// Beside: u v has 2^(s-1) +- 1 in its last s bits, which are cut off; v is +-1 / u modulo 2^s, moved by 2^(s-1).
std::optional<OperandCodes> mul_tie(const FormatSpec& f, Side side, Draw& draw) {
    if (side == Side::on) {
        const auto product = factored_middle(f, draw);
        return product ? scaled_pair(f, product->u, product->v, product->exponent, draw) : std::nullopt;
    }
    const int p = f.precision(), s = std::max(p - (draw.one_in(2) ? 1 : 0), 2);
    const std::uint64_t modulus = std::uint64_t{1} << s, half = modulus / 2, leading = std::uint64_t{1} << (p - 1);
    const std::uint64_t u = draw.odd(p), rest = side == Side::above ? half + 1 : half - 1;
    std::uint64_t v = inverse(u, s) * rest % modulus;
    if (s < p) v |= leading;
    if (v < leading || std::bit_width(u * v) != static_cast<unsigned>(p + s)) return std::nullopt;
    const int top = draw.between(f.min_exponent(), f.max_exponent()); // of the product
    return scaled_pair(f, static_cast<std::int64_t>(u), static_cast<std::int64_t>(v), top - (p + s - 1), draw);
}

/// x y + z: a product that is an odd multiple of 2^e and a z that is an even one. Beside: a product halfway, and a z
/// that is smaller than half a unit of its last place.
std::optional<OperandCodes> fma_tie(const FormatSpec& f, Side side, Draw& draw) {
    if (side == Side::on) {
        const Middle m = any_middle(f, draw);
        const int bits = draw.between(1, f.precision());
        const auto u = static_cast<std::int64_t>(draw.odd(bits));
        const auto v = static_cast<std::int64_t>(draw.odd(draw.between(1, f.precision() + 1 - bits)));
        const auto found = scaled_pair(f, u, draw.one_in(2) ? -v : v, m.exponent, draw);
        if (!found) return std::nullopt;
        const bool negative = ((*found)[1] & f.sign_mask()) != 0;
        const auto z = code_of(f, m.n - (negative ? -u * v : u * v), m.exponent);
        return z ? both((*found)[0], (*found)[1], *z) : std::nullopt;
    }
    const auto product = factored_middle(f, draw);
    if (!product || product->exponent - 1 < f.min_subnormal_exponent()) return std::nullopt;
    const auto found = scaled_pair(f, product->u, product->v, product->exponent, draw);
    const auto most = code_of(f, 1, product->exponent - 1);
    if (!found || !most) return std::nullopt;
    const std::uint32_t z = draw.one_in(2) ? 1 : 1 + draw.below(*most);
    return OperandCodes{(*found)[0], (*found)[1], z | (side == Side::below ? f.sign_mask() : 0)};
}

/// A quotient x / y of normal numbers is never halfway: x = M y has more than p bits. Halfway are only some subnormal
/// ones. Beside: x 2^s = M y +- 1, so that y is +-1 / M modulo 2^s.
std::optional<OperandCodes> div_tie(const FormatSpec& f, Side side, Draw& draw) {
    const int p = f.precision();
    if (side == Side::on) {
        const auto m = static_cast<std::int64_t>(draw.odd(draw.between(1, p)));
        const auto y = static_cast<std::int64_t>(draw.odd(draw.between(1, p)));
        const int e = draw.between(f.min_subnormal_exponent(), f.max_exponent());
        return both(code_of(f, m * y, e + f.min_subnormal_exponent() - 1), code_of(f, y, e));
    }
    const int s = p + (draw.one_in(2) ? 1 : 0);
    const std::uint64_t m = draw.odd(p + 1), modulus = std::uint64_t{1} << s;
    const std::uint64_t unit = side == Side::above ? modulus - 1 : 1; // M y = -1 or 1 modulo 2^s
    const std::uint64_t y = inverse(m, s) * unit % modulus;
    const std::uint64_t x = (m * y + (side == Side::above ? 1 : 0)) >> s;
    if (std::bit_width(y) != static_cast<unsigned>(p) || std::bit_width(x) != static_cast<unsigned>(p))
        return std::nullopt;
    const int ey = draw.between(f.min_exponent() - p + 1, f.max_exponent() - p + 1);
    const int top = draw.between(f.min_exponent(), f.max_exponent()); // of the quotient M 2^(top - p)
    return both(code_of(f, static_cast<std::int64_t>(x), ey + s + top - p),
                code_of(f, static_cast<std::int64_t>(y), ey));
}

/// A root is never halfway: the square of an odd M of p + 1 bits has more than p. Beside: x 2^s = M^2 - d with a small
/// d, which must be 1 modulo 8; M is a root of d modulo 2^s, found one bit after the other.
std::optional<OperandCodes> sqrt_tie(const FormatSpec& f, Side side, Draw& draw) {
    if (side == Side::on) return std::nullopt;
    const int p = f.precision(), s = p + draw.between(1, 2);
    const std::int64_t step = 8 * std::int64_t{draw.below(p >= 6 ? 4 : p >= 4 ? 2 : 1)}; // small beside M
    const std::int64_t d = side == Side::below ? 1 + step : -7 - step;
    std::int64_t root = 1;
    for (int bit = 3; bit < s; ++bit)
        if (((root * root - d) >> bit & 1) != 0) root += std::int64_t{1} << (bit - 1);
    const std::int64_t leading = std::int64_t{1} << p;
    std::int64_t m = (draw.one_in(2) ? root : -root) & (2 * leading - 1);
    if (s == p + 1 && m < leading) m += leading;
    const std::int64_t rest = m * m - d, modulus = std::int64_t{1} << s;
    if (m < leading || rest <= 0 || rest % modulus != 0 || Middle{rest / modulus, 0}.bits() != p) return std::nullopt;
    const int low = f.min_exponent() / 2 - p, high = f.max_exponent() / 2 - p;
    return both(code_of(f, rest / modulus, 2 * draw.between(low, high) + s), 0);
}

/// n + 1/2.
std::optional<OperandCodes> integral_tie(const FormatSpec& f, Side side, Draw& draw) {
    const int most = f.precision() - (side == Side::on ? 0 : 1); // with all bits taken, the next number is an integer
    const auto x = code_of(f, static_cast<std::int64_t>(draw.odd(draw.between(1, most))), -1);
    if (!x || (side != Side::on && f.min_subnormal_exponent() >= -1)) return std::nullopt;
    return OperandCodes{beside(f, *x, side), 0, 0};
}

std::optional<OperandCodes> convert_tie(const FormatSpec& from, const FormatSpec& to, Side side, Draw& draw) {
    const Middle m = any_middle(to, draw);
    const auto x = code_of(from, m.n, m.exponent);
    const bool has_next = m.bits() < from.precision() && m.exponent > from.min_subnormal_exponent();
    if (!x || (side != Side::on && !has_next)) return std::nullopt; // the next number would be one of `to`
    return OperandCodes{beside(from, *x, side), 0, 0};
}

/// The operation as which results halfway are made: TestFloat's of the same numbers for one of IEEE P3109.
Op made_as(Op op) {
    if (!is_of_report(op)) return op;
    return operations()[static_cast<std::size_t>(op)].like.value_or(op);
}

std::optional<OperandCodes> attempt(const Question& q, Side side, Draw& draw) {
    const FormatSpec& f = q.format;
    switch (made_as(q.op)) {
    case Op::add:
    case Op::sub: return add_tie(f, side, draw);
    case Op::mul: return mul_tie(f, side, draw);
    case Op::mul_add: return fma_tie(f, side, draw);
    case Op::div: return div_tie(f, side, draw);
    case Op::sqrt: return sqrt_tie(f, side, draw);
    case Op::round_to_int: return integral_tie(f, side, draw);
    case Op::convert: return convert_tie(f, *q.to, side, draw);
    default: return std::nullopt; // exact, or a comparison
    }
}

/// The same case with the other sign of its result, or of the operands that leave it as it is.
OperandCodes with_signs(const Question& q, OperandCodes x, Draw& draw) {
    const auto flip = [&](std::size_t i) {
        if (q.format.has_negative_zero() || (x[i] & q.format.magnitude_mask()) != 0) x[i] ^= q.format.sign_mask();
    };
    const Op op = made_as(q.op);
    if (op == Op::sub) flip(1); // x - y was made as x + y
    if (!q.format.is_signed || (op == Op::convert && !q.to->is_signed) || op == Op::sqrt) return x;
    const bool product = op == Op::mul || op == Op::div || op == Op::mul_add;
    if (draw.one_in(2)) { // all of the result
        flip(0);
        if (op == Op::add || op == Op::sub) flip(1);
        if (op == Op::mul_add) flip(2);
    }
    if (product && draw.one_in(2)) {
        flip(0);
        flip(1);
    }
    return x;
}

} // namespace

std::optional<OperandCodes> tie(const Question& q, const RandomKey& key, std::uint64_t at) {
    constexpr int attempts = 1000; // a few are enough but in the smallest formats
    Draw draw(key, at);
    for (std::uint64_t turn = 0; turn < 3; ++turn) {
        const Side side{static_cast<std::uint8_t>((at + turn) % 3)};
        for (int i = 0; i < attempts; ++i)
            if (const auto found = attempt(q, side, draw)) return with_signs(q, *found, draw);
    }
    return std::nullopt;
}

} // namespace amp::conformance::detail
