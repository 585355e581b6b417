// Sums of products with exact numbers. The parameters of an accumulator are those of its row; what they mean is written
// here once more, from the papers that formats/accumulator.h names.
#include <ampscope/sim/analysis/conformance/exact_steps.h>

#include <algorithm>
#include <cstdlib>

namespace amp::exact {

namespace {

constexpr Policy nearest{}, hardware_nearest{.nan = NanRule::all_ones};

/// A number as hardware reads it in the format f: 1 <= significand < 2, or less at the format's least exponent. FP32
/// words lose the bits that TF32 does not have.
Term term(const FormatSpec& from, const FormatSpec& f, std::uint32_t code) {
    const Number whole = read(from, code);
    const int lost = whole.kind == Class::finite ? std::max(from.fraction_bits - f.fraction_bits, 0) : 0;
    const Number x = read(from, code >> lost << lost);
    Term t{x.kind, x.negative, x.numerator, x.exponent, 0};
    if (x.kind == Class::finite) t.exponent = std::max(x.numerator.bits() - 1 + x.exponent, 1 - f.bias());
    return t;
}

Term product(const Term& a, const Term& b) {
    Term t{Class::finite, a.negative != b.negative, a.n.low() * b.n.low(), a.unit + b.unit, a.exponent + b.exponent};
    const auto either = [&](Class kind) { return a.kind == kind || b.kind == kind; };
    if (either(Class::nan) || (either(Class::zero) && either(Class::infinity))) t.kind = Class::nan;
    else if (either(Class::infinity)) t.kind = Class::infinity;
    else if (either(Class::zero)) t = {Class::zero, t.negative};
    return t;
}

/// The sum of a step in the row's register. Too large a sum is infinite in every rounding mode.
std::uint32_t in_register(const Accumulator& acc, const Number& sum) {
    const FormatSpec result = acc.result();
    if (sum.kind == Class::finite && sum.numerator.bits() - 1 + sum.exponent > acc.sum.max_exponent())
        return result.infinity_code() | (sum.negative ? result.sign_mask() : 0);
    const std::uint32_t code = store(acc.sum, {.rounding = acc.rounding}, sum).code;
    return code << (result.fraction_bits - acc.sum.fraction_bits); // e8m13 fills the upper part of an FP32 word
}

/// One step: c and a few products, aligned to the largest exponent, cut off, added.
std::uint32_t step(const Accumulator& acc, const std::vector<Term>& products, std::uint32_t c) {
    std::vector<Term> terms = products;
    terms.push_back(term(acc.result(), acc.result(), c));
    bool infinite[2] = {false, false};
    int largest = Accumulator::no_zero_exponent;
    for (const Term& t : terms) {
        if (t.kind == Class::nan) return acc.result().magnitude_mask();
        if (t.kind == Class::infinity) infinite[t.negative ? 1 : 0] = true;
        largest = std::max(largest, t.kind == Class::zero ? acc.zero_exponent : t.exponent);
    }
    if (infinite[0] && infinite[1]) return acc.result().magnitude_mask();
    if (infinite[0] || infinite[1]) return acc.result().infinity_code() | (infinite[1] ? acc.result().sign_mask() : 0);
    const int unit = largest - acc.fraction_bits;
    Natural sums[2];
    for (const Term& t : terms) sums[t.negative ? 1 : 0] += t.n.shifted(t.unit - unit);
    const Number sum = difference(sums[0], sums[1], unit);
    const std::uint32_t code = in_register(acc, sum);
    return code == acc.result().sign_mask() ? 0 : code; // no sum is -0
}

/// The exact sum of a group without scales as one term, aligned by the exponent 0 even if it is zero.
Term sum_of_group(std::span<const Term> products) {
    constexpr int unit = -300;
    Natural sums[2];
    for (const Term& t : products)
        if (t.kind == Class::finite) sums[t.negative ? 1 : 0] += t.n.shifted(t.unit - unit);
    const Number sum = difference(sums[0], sums[1], unit);
    return {Class::finite, sum.negative, sum.numerator, unit, 0};
}

/// A scale as a term: hardware ignores its sign. E8M0 has no subnormal numbers.
Term scale_term(const FormatSpec& f, std::uint32_t code) {
    const Number x = read(f, code);
    Term t{x.kind, false, x.numerator, x.exponent, x.exponent};
    if (x.kind == Class::finite && !f.is_scale())
        t.exponent = std::max(x.numerator.bits() - 1 + x.exponent, 1 - f.bias());
    return t;
}

/// A product, or the sum of a group of them, times its scales.
Term scaled(Term t, const Term& scale) {
    if (t.kind != Class::finite) return t;
    if (scale.kind == Class::zero) return {};
    return {t.kind, t.negative, t.n * scale.n, t.unit + scale.unit, t.exponent + scale.exponent};
}

/// Steps of a fused sum over part of a dot product, filled up with zeros.
std::uint32_t steps(const Accumulator& acc, const std::vector<Term>& products, std::span<const Term> scales,
                    std::uint32_t c) {
    const auto size = static_cast<std::size_t>(acc.products),
               group = acc.scales.sums_groups ? static_cast<std::size_t>(acc.scales.group) : 1;
    for (std::size_t begin = 0; begin < products.size(); begin += size) {
        std::vector<Term> some;
        for (std::size_t i = begin; i < begin + size; i += group) {
            const std::size_t n = i < products.size() ? std::min(group, products.size() - i) : 0;
            if (n == 0) some.emplace_back();
            else some.push_back(group == 1 ? products[i] : sum_of_group(std::span(products).subspan(i, n)));
            if (n != 0 && !scales.empty()) some.back() = scaled(some.back(), scales[i]);
        }
        c = step(acc, some, c);
    }
    return c;
}

/// x + y to nearest-even in a format, of codes of it.
std::uint32_t add(const Accumulator& acc, const FormatSpec& f, std::uint32_t x, std::uint32_t y) {
    return apply(f, acc.method == Accumulation::fused ? hardware_nearest : nearest, Op::add, {x, y, 0}).code;
}

/// The terms of a sum: codes, and for each product that of its scales, unless there are none.
struct Products {
    Codes a, b;
    std::span<const Term> scales{};

    [[nodiscard]] std::size_t size() const { return a.size(); }
    [[nodiscard]] Products subspan(std::size_t begin, std::size_t n) const {
        return {a.subspan(begin, n), b.subspan(begin, n), scales.empty() ? scales : scales.subspan(begin, n)};
    }
};

std::uint32_t hardware_sum(const Accumulator& acc, const Formats& of, const Products& x, std::uint32_t c) {
    const FormatSpec fa = acc.reads(of.a), fb = acc.reads(of.b);
    std::vector<Term> products;
    for (std::size_t i = 0; i < x.size(); ++i)
        products.push_back(product(term(of.a, fa, x.a[i]), term(of.b, fb, x.b[i])));
    if (!acc.interleaved) return steps(acc, products, x.scales, c);
    for (std::size_t begin = 0; begin < products.size(); begin += 32) {
        std::vector<Term> halves[2] = {}; // k mod 4 in {0, 1}, then in {2, 3}
        for (std::size_t k = 0; k < 32; ++k)
            halves[k % 4 / 2].push_back(begin + k < products.size() ? products[begin + k] : Term{});
        c = add(acc, acc.result(), c, steps(acc, halves[1], {}, steps(acc, halves[0], {}, 0)));
    }
    return c;
}

std::uint32_t floored_sum(const Accumulator& acc, const Formats& of, Codes a, Codes b, std::uint32_t c) {
    const FormatSpec fa = acc.reads(of.a), fb = acc.reads(of.b);
    const auto size = static_cast<std::size_t>(acc.products);
    for (std::size_t begin = 0; begin < a.size(); begin += size) {
        std::vector<Term> products(size);
        for (std::size_t i = 0; i < size && begin + i < a.size(); ++i)
            products[i] = product(term(of.a, fa, a[begin + i]), term(of.b, fb, b[begin + i]));
        c = floored_step(acc, products, term(fp32, fp32, c), c);
    }
    return c;
}

std::uint32_t flushed_sum(const Accumulator& acc, const Formats& of, Codes a, Codes b, std::uint32_t c) {
    const FormatSpec fa = acc.reads(of.a), fb = acc.reads(of.b);
    const auto size = static_cast<std::size_t>(acc.products);
    if (a.empty()) return flushed_operand(fp32, fp32, c);
    for (std::size_t begin = 0; begin < a.size(); begin += size) {
        std::vector<std::uint32_t> x(size), y(size);
        for (std::size_t i = 0; i < size && begin + i < a.size(); ++i) {
            x[i] = flushed_operand(of.a, fa, a[begin + i]);
            y[i] = flushed_operand(of.b, fb, b[begin + i]);
        }
        c = flushed_step(acc, x, y, c);
    }
    return c;
}

/// An integer, which a number of an integer format is; 2^40 stands for larger ones, and a fraction is left out.
std::int64_t integer(const Number& x) {
    const bool large = x.kind == Class::infinity || x.numerator.bits() + x.exponent > 40;
    const auto magnitude =
        large ? std::int64_t{1} << 40 : static_cast<std::int64_t>(x.numerator.shifted(x.exponent).low());
    if (large) return x.negative ? -magnitude : magnitude;
    return x.kind != Class::finite ? 0 : x.negative ? -magnitude : magnitude;
}

std::uint32_t integer_sum(const Accumulator& acc, const Formats& of, Codes a, Codes b, std::uint32_t c) {
    constexpr std::int64_t modulus = std::int64_t{1} << 32, half = modulus / 2;
    const auto step = static_cast<std::size_t>(acc.products);
    std::int64_t sum = std::clamp(integer(read(fp32, c)), -half, half - 1);
    for (std::size_t i = 0; i < a.size(); ++i) {
        sum += integer(read(of.a, a[i])) * integer(read(of.b, b[i]));
        if ((i + 1) % step != 0 && i + 1 != a.size()) continue;
        if (acc.method == Accumulation::clamped) sum = std::max(std::min(sum, half - 1), -half);
        else sum = ((sum + half) % modulus + modulus) % modulus - half;
    }
    if (sum == 0) return 0;
    const Number whole{
        .kind = Class::finite, .negative = sum < 0, .numerator = static_cast<std::uint64_t>(std::abs(sum))};
    return store(fp32, nearest, whole).code;
}

std::uint32_t exact_sum(const Formats& of, Codes a, Codes b, std::uint32_t c) {
    bool infinite[2] = {false, false};
    std::vector<Term> terms = {term(fp32, fp32, c)};
    for (std::size_t i = 0; i < a.size(); ++i) terms.push_back(product(term(of.a, of.a, a[i]), term(of.b, of.b, b[i])));
    Natural sums[2];
    constexpr int unit = -300; // below the product of the least FP32 numbers
    for (const Term& t : terms) {
        if (t.kind == Class::nan) return fp32.nan_code();
        if (t.kind == Class::infinity) infinite[t.negative ? 1 : 0] = true;
        if (t.kind == Class::finite) sums[t.negative ? 1 : 0] += t.n.shifted(t.unit - unit);
    }
    if (infinite[0] && infinite[1]) return fp32.nan_code();
    if (infinite[0] || infinite[1]) return fp32.infinity_code() | (infinite[1] ? fp32.sign_mask() : 0);
    return store(fp32, nearest, difference(sums[0], sums[1], unit)).code;
}

/// A product in FP32.
std::uint32_t rounded_product(const Formats& of, std::uint32_t a, std::uint32_t b) {
    const Number zero{.negative = true}; // the sum with it has the product's sign
    Number x = read(of.a, a), y = read(of.b, b);
    if (x.kind == Class::zero || y.kind == Class::zero) {
        const bool special = x.kind >= Class::infinity || y.kind >= Class::infinity;
        if (!special) return x.negative != y.negative ? fp32.sign_mask() : 0;
    }
    return fused(fp32, nearest, x, y, zero).code;
}

/// The sum of a tree whose left part is the largest power of two below the count.
std::uint32_t tree(const std::vector<std::uint32_t>& x, std::size_t begin, std::size_t count) {
    if (count == 1) return x[begin];
    std::size_t left = 1;
    while (2 * left < count) left *= 2;
    return apply(fp32, nearest, Op::add, {tree(x, begin, left), tree(x, begin + left, count - left), 0}).code;
}

std::uint32_t kahan_sum(const std::vector<std::uint32_t>& products, std::uint32_t sum) {
    const auto math = [](Op op, std::uint32_t x, std::uint32_t y) { return apply(fp32, nearest, op, {x, y, 0}).code; };
    std::uint32_t lost = 0;
    for (const std::uint32_t product : products) {
        const std::uint32_t next_term = math(Op::sub, product, lost), next = math(Op::add, sum, next_term);
        lost = math(Op::sub, math(Op::sub, next, sum), next_term);
        sum = next;
    }
    return sum;
}

std::uint32_t sum_of(const Accumulator& acc, const Formats& of, const Products& x, std::uint32_t c) {
    const Codes a = x.a, b = x.b;
    std::vector<std::uint32_t> products;
    switch (acc.method) {
    case Accumulation::fused: return hardware_sum(acc, of, x, c);
    case Accumulation::floored:
    case Accumulation::floored_halves: return floored_sum(acc, of, a, b, c);
    case Accumulation::flushed_tree:
    case Accumulation::flushed_pairs:
    case Accumulation::flushed_chains: return flushed_sum(acc, of, a, b, c);
    case Accumulation::exact: return exact_sum(of, a, b, c);
    case Accumulation::wrapped:
    case Accumulation::clamped: return integer_sum(acc, of, a, b, c);
    case Accumulation::chain:
        for (std::size_t i = 0; i < a.size(); ++i)
            c = fused(acc.sum, nearest, read(of.a, a[i]), read(of.b, b[i]), read(acc.sum, c)).code;
        return c;
    case Accumulation::pairwise:
    case Accumulation::kahan: break;
    }
    for (std::size_t i = 0; i < a.size(); ++i) products.push_back(rounded_product(of, a[i], b[i]));
    if (acc.method == Accumulation::kahan) return kahan_sum(products, c);
    return products.empty() ? c : apply(fp32, nearest, Op::add, {c, tree(products, 0, products.size()), 0}).code;
}

/// A sum that is not split: promoted or not.
std::uint32_t promoted(const Accumulator& acc, const Formats& of, const Products& x, std::uint32_t c) {
    if (acc.promote_every == 0) return sum_of(acc, of, x, c);
    const auto every = static_cast<std::size_t>(acc.promote_every);
    const FormatSpec result = acc.result();
    for (std::size_t begin = 0; begin < x.size(); begin += every) {
        std::uint32_t part = sum_of(acc, of, x.subspan(begin, std::min(every, x.size() - begin)), 0);
        if (const Number sum = read(result, part); !(result == fp32)) // every number of the register is one of FP32
            part = store(fp32, acc.method == Accumulation::fused ? hardware_nearest : nearest, sum).code;
        c = add(acc, fp32, c, part);
    }
    return c;
}

/// For each of k products the product of its scales; that of a NaN is one.
std::vector<Term> scale_terms(const Scales& scales, std::size_t k) {
    std::vector<Term> terms;
    for (std::size_t i = 0; !scales.a.empty() && i < k; ++i) {
        const std::size_t block = i / scales.block;
        terms.push_back(
            product(scale_term(scales.format, scales.a[block]), scale_term(scales.format, scales.b[block])));
    }
    return terms;
}

} // namespace

std::uint32_t dot(const Accumulator& acc, const Formats& of, Codes a, Codes b, std::uint32_t c, const Scales& scales) {
    const std::vector<Term> terms = scale_terms(scales, a.size());
    for (const Term& t : terms)
        if (t.kind == Class::nan) return acc.total().magnitude_mask();
    if (acc.parts == 1) return promoted(acc, of, {a, b, terms}, c);
    // Every tile goes to its part; then the parts are added in their order.
    const auto tile = static_cast<std::size_t>(acc.tile), n = static_cast<std::size_t>(acc.parts),
               tiles = (a.size() + tile - 1) / tile, in_a_row = (tiles + n - 1) / n;
    std::vector<std::vector<std::uint32_t>> x(n), y(n);
    std::vector<std::vector<Term>> z(n);
    for (std::size_t k = 0; k < a.size(); ++k) {
        const std::size_t part = acc.split == SplitOrder::runs ? k / tile / in_a_row : k / tile % n;
        x[part].push_back(a[k]);
        y[part].push_back(b[k]);
        if (!terms.empty()) z[part].push_back(terms[k]);
    }
    std::vector<std::uint32_t> sums;
    for (std::size_t i = 0; i < n; ++i) sums.push_back(promoted(acc, of, {x[i], y[i], z[i]}, 0));
    if (acc.split == SplitOrder::cyclic_pairs) { // the last one, then pairs
        std::vector<std::uint32_t> pairs = {sums.back()};
        sums.pop_back();
        for (std::size_t i = 0, half = (n + 1) / 2; i < half; ++i)
            pairs.push_back(i + half < n - 1 ? add(acc, acc.total(), sums[i], sums[i + half]) : sums[i]);
        sums = pairs;
    }
    for (const std::uint32_t sum : sums) c = add(acc, acc.total(), c, sum);
    return c;
}

std::uint32_t dot_of_blocks(const Accumulator& acc, const Formats& of, Codes a, Codes b, std::uint32_t c,
                            const Scales& scales) {
    const FormatSpec total = acc.total();
    for (std::size_t begin = 0; begin < a.size(); begin += scales.block) {
        const std::size_t n = std::min(scales.block, a.size() - begin), i = begin / scales.block;
        const std::uint32_t sum = dot(acc, of, a.subspan(begin, n), b.subspan(begin, n), 0),
                            scale = rounded_product({scales.format, scales.format}, scales.a[i], scales.b[i]);
        c = fused(fp32, nearest, read(total, sum), read(fp32, scale), read(fp32, c)).code;
    }
    return c;
}

} // namespace amp::exact
