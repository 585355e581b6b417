// The steps of hardware other than fused sums, once more with exact numbers: AMD's, which floor, and those of FP32
// operations that flush subnormals. MMA-Sim (amd.py) and Intel's manual say what they are.
#include <ampscope/sim/analysis/conformance/exact_steps.h>

#include <algorithm>
#include <utility>

namespace amp::exact {

namespace {

constexpr int no_exponent = Accumulator::no_zero_exponent;

/// x rounded down to a multiple of 2^unit.
Number floored(const Number& x, int unit) {
    Number y = x;
    y.numerator = x.numerator.shifted(x.exponent - unit);
    y.exponent = unit;
    if (x.negative && y.numerator.shifted(unit - x.exponent) != x.numerator) y.numerator += Natural(1);
    y.kind = y.numerator.is_zero() ? Class::zero : Class::finite;
    return y;
}

Number sum_of_two(const Number& x, const Number& y) {
    Natural sums[2];
    const int unit = std::min(x.exponent, y.exponent);
    for (const Number* n : {&x, &y}) sums[n->negative ? 1 : 0] += n->numerator.shifted(n->exponent - unit);
    return difference(sums[0], sums[1], unit);
}

/// Products cut off below the largest of them, and its exponent, or no_exponent.
std::pair<Number, int> cut_off(std::span<const Term> products, std::size_t first, std::size_t stride, int bits) {
    int largest = no_exponent;
    for (std::size_t i = first; i < products.size(); i += stride)
        if (products[i].kind == Class::finite) largest = std::max(largest, products[i].exponent);
    const int unit = largest == no_exponent ? 0 : largest - bits;
    Natural sums[2];
    for (std::size_t i = first; i < products.size(); i += stride)
        if (const Term& t = products[i]; t.kind == Class::finite)
            sums[t.negative ? 1 : 0] += t.n.shifted(t.unit - unit);
    return {difference(sums[0], sums[1], unit), largest};
}

std::uint32_t flushed_code(std::uint32_t code) {
    return (code & fp32.magnitude_mask()) < fp32.min_normal_code() ? code & fp32.sign_mask() : code;
}

std::uint32_t flushed_fma(std::uint32_t a, std::uint32_t b, std::uint32_t s) {
    return flushed_code(fused(fp32, {}, read(fp32, a), read(fp32, b), read(fp32, s)).code);
}

std::uint32_t flushed_add(std::uint32_t a, std::uint32_t b) {
    return flushed_code(apply(fp32, {}, Op::add, {a, b, 0}).code);
}

} // namespace

std::uint32_t floored_step(const Accumulator& acc, std::span<const Term> products, const Term& addend,
                           std::uint32_t code) {
    const Number c = read(fp32, code);
    bool nan = c.kind == Class::nan, infinite[2] = {}, large[2] = {};
    if (c.kind == Class::infinity) infinite[c.negative ? 1 : 0] = true;
    for (const Term& t : products) {
        if (t.kind == Class::nan) nan = true;
        if (t.kind == Class::infinity) infinite[t.negative ? 1 : 0] = true;
        if (t.kind == Class::finite && t.n.bits() - 1 + t.unit >= 128) large[t.negative ? 1 : 0] = true;
    }
    const bool* const which = infinite[0] || infinite[1] ? infinite : large;
    if (nan || (which[0] && which[1])) return fp32.nan_code();
    if (which[0] || which[1]) return fp32.infinity_code() | (which[1] ? fp32.sign_mask() : 0);
    const bool halves = acc.method == Accumulation::floored_halves;
    auto [sum, exponent] = cut_off(products, 0, halves ? 2 : 1, acc.fraction_bits);
    if (halves) {
        const auto [odd, of_odd] = cut_off(products, 1, 2, acc.fraction_bits);
        exponent = std::max(exponent, of_odd);
        const int unit = exponent == no_exponent ? 0 : exponent - acc.fraction_bits;
        sum = sum_of_two(floored(sum, unit), floored(odd, unit));
    }
    const int largest = c.kind == Class::zero ? exponent : std::max(exponent, addend.exponent);
    if (largest == no_exponent) return 0;
    Number total = floored(sum, largest - 31);
    if (c.kind == Class::finite && (!halves || addend.exponent >= largest - 25))
        total = sum_of_two(total, floored(c, largest - acc.fraction_bits));
    return total.kind == Class::zero ? 0 : store(fp32, {}, total).code;
}

std::uint32_t flushed_operand(const FormatSpec& of, const FormatSpec& reads, std::uint32_t code) {
    const Number x = read(of, code);
    const bool subnormal = x.kind == Class::finite && x.numerator.bits() - 1 + x.exponent < 1 - reads.bias();
    return subnormal ? (x.negative ? fp32.sign_mask() : 0) : store(fp32, {}, x).code;
}

std::uint32_t flushed_step(const Accumulator& acc, std::span<const std::uint32_t> x, std::span<const std::uint32_t> y,
                           std::uint32_t c) {
    c = flushed_code(c);
    if (acc.method == Accumulation::flushed_pairs) return flushed_fma(x[0], y[0], flushed_fma(x[1], y[1], c));
    if (acc.method == Accumulation::flushed_tree) {
        const auto pair = [&](std::size_t i) {
            return flushed_add(flushed_fma(x[i], y[i], 0), flushed_fma(x[i + 1], y[i + 1], 0));
        };
        return flushed_add(c, x.size() == 2 ? pair(0) : flushed_add(pair(0), pair(2)));
    }
    std::uint32_t even = 0, odd = 0;
    for (std::size_t i = 0; i < x.size(); i += 2) {
        even = flushed_fma(x[i], y[i], even);
        odd = flushed_fma(x[i + 1], y[i + 1], odd);
    }
    return flushed_add(c, flushed_add(even, odd));
}

} // namespace amp::exact
