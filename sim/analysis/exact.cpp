#include <ampscope/sim/analysis/exact.h>

#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/base/number.h>

#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace amp {

Unpacked normalised(Unpacked x) {
    if (x.kind != Kind::finite) return x;
    const int shift = std::countl_zero(x.significand);
    x.significand <<= shift;
    x.exponent -= shift;
    return x;
}

bool is_smaller(const Unpacked& x, const Unpacked& y) {
    if (x.kind == Kind::zero || y.kind == Kind::zero) return x.kind == Kind::zero && y.kind != Kind::zero;
    const Unpacked a = normalised(x), b = normalised(y);
    return a.exponent != b.exponent ? a.exponent < b.exponent : a.significand < b.significand;
}

Unpacked distance(const Unpacked& x, const Unpacked& y) {
    const bool swap = is_smaller(x, y);
    Unpacked large = normalised(swap ? y : x), small = normalised(swap ? x : y);
    const bool apart = large.sign != small.sign;
    large.sign = false;
    if (small.kind == Kind::zero) return large;
    // Leading bits at 125 of 128 leave room for a carry. The smaller number loses bits only if it is more than 62
    // places lower, and then the difference has at least 124 places, of which 64 are kept.
    const Uint128 a = Uint128{large.significand} << 62;
    const Uint128 b = shift_right_sticky(Uint128{small.significand} << 62, large.exponent - small.exponent);
    return normalised(to_unpacked(false, large.exponent - 62, apart ? a + b : a - b));
}

double ratio(const Unpacked& x, const Unpacked& y) {
    return std::ldexp(static_cast<double>(x.significand) / static_cast<double>(y.significand), x.exponent - y.exponent);
}

SquareSum::SquareSum(double sum) {
    int exponent = 0;
    const double m = std::frexp(sum, &exponent);
    if (std::isfinite(sum)) *this = from_parts(m, exponent);
    else sum_of(0) = sum;
}

SquareSum SquareSum::from_parts(double m, int exponent) {
    SquareSum result;
    if (m == 0) return result;
    // Ranges are chosen by the exponent of the root, which is half that of the square.
    const int range = range_of(exponent >> 1);
    result.sum_of(range) = std::ldexp(m, exponent - 2 * range * width);
    return result;
}

void SquareSum::add_anywhere(double x, int exponent) {
    if (x == 0) return;
    const int leading = std::ilogb(x) + exponent, range = range_of(leading);
    const double part = std::ldexp(x, exponent - range * width);
    sum_of(range) += part * part;
}

SquareSum& SquareSum::operator+=(const SquareSum& later) {
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += later.sums_[i];
    return *this;
}

SquareSum& SquareSum::operator*=(double factor) {
    for (double& sum : sums_) sum *= factor;
    return *this;
}

std::pair<double, int> SquareSum::parts() const {
    const FloatEnvironment environment;
    std::size_t top = sums_.size() - 1;
    while (top > 0 && sums_[top] == 0) --top;
    // Sums two ranges lower are too small to change the last place.
    const double sum = sums_[top] + (top > 0 ? std::ldexp(sums_[top - 1], -2 * width) : 0);
    int exponent = 0;
    const double m = std::frexp(sum, &exponent);
    return {m, m == 0 ? 0 : exponent + 2 * width * (static_cast<int>(top) - middle)};
}

std::pair<double, int> SquareSum::root() const {
    const auto [m, exponent] = parts();
    return {std::sqrt(std::ldexp(m, exponent & 1)), exponent >> 1};
}

double SquareSum::value() const {
    const FloatEnvironment environment;
    const auto [m, exponent] = parts();
    return std::ldexp(m, exponent);
}

std::string SquareSum::text() const {
    const auto [m, exponent] = parts();
    return fmt::format("0x{:x}p{}", static_cast<std::uint64_t>(std::ldexp(m, 53)), exponent - 53);
}

std::optional<SquareSum> SquareSum::read(std::string_view text) {
    if (!text.starts_with("0x")) return std::nullopt;
    const char* const last = text.data() + text.size();
    std::uint64_t significand = 0;
    const auto [p, problem] = std::from_chars(text.data() + 2, last, significand, 16);
    if (problem != std::errc{} || p == last || *p != 'p' || significand >> 53 != 0) return std::nullopt;
    constexpr int farthest = 2 * width * middle;
    const std::optional<int> exponent = number_of({p + 1, last}, -farthest, farthest);
    if (!exponent) return std::nullopt;
    int shift = 0;
    const double m = std::frexp(static_cast<double>(significand), &shift);
    return from_parts(m, *exponent + shift);
}

} // namespace amp
