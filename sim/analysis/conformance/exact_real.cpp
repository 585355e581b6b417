#include <ampscope/sim/analysis/conformance/exact_real.h>

#include <cmath>

namespace amp::exact {

namespace {

/// A number above zero as m 2^exponent with m from 1 to below 2, or to below 4 if the exponent is to be even.
struct Scientific {
    Real m;
    int exponent;
};
Scientific scientific(const Real& x, bool even) {
    int exponent = x.magnitude().bits() - 1 - Real::places;
    if (even && exponent % 2 != 0) --exponent;
    return {x.scaled(-exponent), exponent};
}

/// A start from below for Newton's steps, each of which doubles the number of right bits: 48, 96 ... 1536.
constexpr int newton_steps = 6;
Real start_below(double x) { return Real::of(x * (1 - 0x1p-46)); }

/// 1 / m for m from 1 to 2.
Real reciprocal(const Real& m) {
    Real x = start_below(1 / m.roughly());
    for (int i = 0; i < newton_steps; ++i) x = x * (Real(2) - m * x);
    return x;
}

/// x - x^3 / 3 + x^5 / 5 ... for a small x, the arctangent; if not `alternates`, the area hyperbolic tangent.
Real odd_series(const Real& x, bool alternates) {
    const Real square = alternates ? -(x * x) : x * x;
    Real power = x, sum;
    for (std::uint32_t i = 1; !power.is_zero(); i += 2, power = power * square) sum = sum + power / i;
    return sum;
}

/// e^x for 0 <= x < 1: the series for x 2^-24, squared 24 times.
Real exponential_of_small(const Real& x) {
    constexpr int halvings = 24;
    const Real small = x.scaled(-halvings);
    Real term(1), sum;
    for (std::uint32_t i = 1; !term.is_zero(); ++i) {
        sum = sum + term;
        term = term * small / i;
    }
    for (int i = 0; i < halvings; ++i) sum = sum * sum;
    return sum;
}

/// ln m for 1 <= m <= 2. For any y, ln m = y + ln(m / e^y), and ln q = 2 artanh((q - 1) / (q + 1)): a double's
/// logarithm is y, and the rest a short series.
Real logarithm_of_small(const Real& m) {
    const Real y = Real::of(std::log(m.roughly())), e = exponential_of_small(y);
    return y + odd_series((m - e) / (m + e), false).scaled(1);
}

/// The arctangent of t for 0 <= t <= 1, in the same way: it is y + arctan of tan(arctan t - y).
Real arctangent_of_small(const Real& t) {
    const Real y = Real::of(std::atan(t.roughly()));
    const auto [s, c] = sine_cosine_of_small(y);
    return y + odd_series((t * c - s) / (c + t * s), true);
}

} // namespace

Real Real::of(double x) {
    int exponent = 0;
    const double fraction = std::frexp(x, &exponent);
    return {Natural(static_cast<std::uint64_t>(std::ldexp(fraction, 53))), exponent - 53, false};
}

double Real::roughly() const {
    const int cut = std::max(magnitude_.bits() - 53, 0);
    return std::ldexp(static_cast<double>(magnitude_.shifted(-cut).low()), cut - places);
}

Real Real::operator-() const {
    Real x = *this;
    x.negative_ = !negative_;
    return x;
}

Real Real::operator+(const Real& x) const {
    Real sum = *this;
    if (negative_ == x.negative_) {
        sum.magnitude_ += x.magnitude_;
    } else if (magnitude_ < x.magnitude_) {
        sum = x;
        sum.magnitude_ -= magnitude_;
    } else {
        sum.magnitude_ -= x.magnitude_;
    }
    return sum;
}

Real Real::operator*(const Real& x) const {
    Real product;
    product.negative_ = negative_ != x.negative_;
    product.magnitude_ = (magnitude_ * x.magnitude_).shifted(-places);
    return product;
}

Real Real::operator/(const Real& x) const {
    const Scientific divisor = scientific(absolute(x), false);
    const Real quotient = (*this * reciprocal(divisor.m)).scaled(-divisor.exponent);
    return x.is_negative() ? -quotient : quotient;
}

Real Real::operator/(std::uint32_t x) const {
    Real quotient = *this;
    quotient.magnitude_ = magnitude_ / x;
    return quotient;
}

Real Real::scaled(int n) const {
    Real x = *this;
    x.magnitude_ = magnitude_.shifted(n);
    return x;
}

/// m / sqrt(m), the root by Newton's steps as well.
Real square_root(const Real& x) {
    if (x.is_zero()) return x;
    const auto [m, exponent] = scientific(x, true);
    Real inverse = start_below(1 / std::sqrt(m.roughly()));
    for (int i = 0; i < newton_steps; ++i) inverse = (inverse * (Real(3) - m * inverse * inverse)).scaled(-1);
    return (m * inverse).scaled(exponent / 2);
}

const Real& pi() {
    static const Real value = arctangent_of_small(Real(1)).scaled(2);
    return value;
}

const Real& ln2() {
    static const Real value = logarithm_of_small(Real(2));
    return value;
}

/// 2^k e^r with 0 <= r < ln 2.
Real exponential(const Real& x) {
    auto k = static_cast<int>((absolute(x) / ln2()).whole().low());
    if (x.is_negative()) k = -k - 1;
    const Real whole = ln2() * Real(static_cast<std::uint32_t>(std::abs(k)));
    return exponential_of_small(k < 0 ? x + whole : x - whole).scaled(k);
}

/// ln of m 2^k.
Real logarithm(const Real& x) {
    const auto [m, k] = scientific(x, false);
    const Real whole = ln2() * Real(static_cast<std::uint32_t>(std::abs(k))), part = logarithm_of_small(m);
    return k < 0 ? part - whole : part + whole;
}

/// The series of e^(i x 2^-16), squared 16 times.
SineCosine sine_cosine_of_small(const Real& angle) {
    constexpr int halvings = 16;
    const Real small = angle.scaled(-halvings);
    Real term(1), s, c;
    for (std::uint32_t i = 1; !term.is_zero(); ++i) {
        Real& sum = i % 2 != 0 ? c : s; // the terms are 1, x, -x^2 / 2, -x^3 / 6, x^4 / 24 ...
        sum = (i - 1) % 4 < 2 ? sum + term : sum - term;
        term = term * small / i;
    }
    for (int i = 0; i < halvings; ++i) {
        const Real sine = (s * c).scaled(1);
        c = c * c - s * s;
        s = sine;
    }
    return {s, c};
}

SineCosine sine_cosine(const Real& quarters) {
    const Natural whole = quarters.whole();
    const auto [s, c] = sine_cosine_of_small((absolute(quarters) - Real(whole, 0, false)) * pi().scaled(-1));
    const std::uint64_t quadrant = whole.low() % 4;
    SineCosine result = quadrant == 0   ? SineCosine{s, c}
                        : quadrant == 1 ? SineCosine{c, -s}
                        : quadrant == 2 ? SineCosine{-s, -c}
                                        : SineCosine{-c, s};
    if (quarters.is_negative()) result.sine = -result.sine;
    return result;
}

Real angle_of(const Real& y, const Real& x) {
    const Real a = absolute(x), b = absolute(y);
    Real angle = a < b ? pi().scaled(-1) - arctangent_of_small(a / b) : arctangent_of_small(b / a);
    if (x.is_negative()) angle = pi() - angle;
    return y.is_negative() ? -angle : angle;
}

} // namespace amp::exact
