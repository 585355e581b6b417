// The functions of IEEE P3109 v4.0, sections 4.10.8 to 4.10.16, a second time: as the report writes them, in numbers of
// 1536 binary places, where formats/p3109_functions.h has case distinctions and bounds.
//
// Why that decides every rounding. Operands and results are numbers of FP32, so nothing is rounded or compared at a
// place behind the 160th. What is computed is wrong by less than 2^-1100, and a result within 2^-1000 of a number of
// 160 places is taken for that number. None comes so near without being it: where a series brings a result close to a
// number, such as cos x to 1 - x^2 / 2, the next term is above 2^-840, which is about x^3 / 3 for the angle of a ratio
// of 2^-277; and of 2^40 results that only chance brings close to one, the closest is expected at 2^-200.
#include <ampscope/sim/analysis/conformance/exact_outcome.h>
#include <ampscope/sim/analysis/conformance/exact_real.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace amp::exact {

namespace {

/// A real result as a number: itself if it has at most 160 places, or else the middle between two of them.
Number number_of(const Real& x) {
    constexpr int kept = 160, sure = 1000;
    const bool negative = x.is_negative();
    Natural rounded = x.magnitude();
    rounded += Natural(1).shifted(Real::places - sure - 1);
    const Natural near = rounded.shifted(sure - Real::places), whole = near.shifted(kept - sure);
    if (whole.shifted(sure - kept) == near) {
        if (whole.is_zero()) return {};
        return {.kind = Class::finite, .negative = negative, .numerator = whole, .exponent = -kept};
    }
    Natural middle = x.magnitude().shifted(kept - Real::places).shifted(1);
    middle += 1;
    return {.kind = Class::finite, .negative = negative, .numerator = middle, .exponent = -kept - 1};
}

/// Precondition: x is finite.
Real real_of(const Number& x) { return {x.numerator, x.exponent, x.negative}; }

Number no_number() { return {.kind = Class::nan}; }
Number infinite(bool negative) { return {.kind = Class::infinity, .negative = negative}; }

/// An exponent cut to a size from which on results are beyond all formats or, relatively, 2^-288 from a limit.
Real bounded(const Real& x) {
    constexpr std::uint32_t most = 200;
    if (absolute(x) < Real(most)) return x;
    return x.is_negative() ? -Real(most) : Real(most);
}

Real power_of_two(const Real& exponent) {
    const Real x = bounded(exponent);
    const Natural whole = x.whole();
    const auto k = static_cast<int>(whole.low());
    const Real fraction = absolute(x) - Real(whole, 0, false);
    return exponential((x.is_negative() ? -fraction : fraction) * ln2()).scaled(x.is_negative() ? -k : k);
}

/// ln(1 + e^x).
Real softplus(const Real& x) {
    const Real y = bounded(x), value = logarithm(Real(1) + exponential(y));
    return x.is_negative() ? value : value + (x - y);
}

Number log_of(const Real& x, const Real& base) {
    if (x.is_negative()) return no_number();
    return x.is_zero() ? infinite(true) : number_of(logarithm(x) / base);
}

SineCosine of_radians(const Real& x) { return sine_cosine(x / pi().scaled(-1)); }
SineCosine of_half_turns(const Real& x) { return sine_cosine(x.scaled(1)); }
Number tangent(const SineCosine& of) { return of.cosine.is_zero() ? no_number() : number_of(of.sine / of.cosine); }

Number arc(const Real& x, bool of_cosine, const Real& unit) {
    if (Real(1) < absolute(x)) return no_number();
    const Real other = square_root(Real(1) - x * x);
    return number_of((of_cosine ? angle_of(other, x) : angle_of(x, other)) / unit);
}

/// e^x - e^-x and e^x + e^-x.
struct Hyperbolic {
    Real difference, sum;
    explicit Hyperbolic(const Real& x) {
        const Real up = exponential(bounded(x)), down = exponential(-bounded(x));
        difference = up - down;
        sum = up + down;
    }
};

Number arc_sinh(const Real& x) {
    const Real y = logarithm(absolute(x) + square_root(x * x + Real(1)));
    return number_of(x.is_negative() ? -y : y);
}
Number arc_cosh(const Real& x) {
    return x < Real(1) ? no_number() : number_of(logarithm(x + square_root(x * x - Real(1))));
}
Number arc_tanh(const Real& x) {
    const Real rest = Real(1) - absolute(x);
    if (rest.is_negative()) return no_number();
    if (rest.is_zero()) return infinite(x.is_negative());
    return number_of(logarithm((Real(1) + x) / (Real(1) - x)).scaled(-1));
}

/// A function: of any finite number, and its limits, in units of pi if `of_pi`.
struct FunctionRow {
    std::string_view name;
    Number (*at)(const Real&);
    double at_infinity, at_minus_infinity;
    bool of_pi = false;
};

constexpr double inf = std::numeric_limits<double>::infinity(), none = std::numeric_limits<double>::quiet_NaN();
using X = const Real&;

constexpr FunctionRow function_rows[] = {
    {"RSqrt", [](X x) { return Real() < x ? number_of(square_root(Real(1) / x)) : no_number(); }, 0, none},
    {"Exp", [](X x) { return number_of(exponential(bounded(x))); }, inf, 0},
    {"Exp2", [](X x) { return number_of(power_of_two(x)); }, inf, 0},
    {"ExpMinusOne", [](X x) { return number_of(exponential(bounded(x)) - Real(1)); }, inf, -1},
    {"Log", [](X x) { return log_of(x, Real(1)); }, inf, none},
    {"Log2", [](X x) { return log_of(x, ln2()); }, inf, none},
    {"LogOnePlus", [](X x) { return log_of(Real(1) + x, Real(1)); }, inf, none},
    {"Softplus", [](X x) { return number_of(softplus(x)); }, inf, 0},
    {"Sin", [](X x) { return number_of(of_radians(x).sine); }, none, none},
    {"Cos", [](X x) { return number_of(of_radians(x).cosine); }, none, none},
    {"Tan", [](X x) { return tangent(of_radians(x)); }, none, none},
    {"ArcSin", [](X x) { return arc(x, false, Real(1)); }, none, none},
    {"ArcCos", [](X x) { return arc(x, true, Real(1)); }, none, none},
    {"ArcTan", [](X x) { return number_of(angle_of(x, Real(1))); }, 0.5, -0.5, true},
    {"SinPi", [](X x) { return number_of(of_half_turns(x).sine); }, none, none},
    {"CosPi", [](X x) { return number_of(of_half_turns(x).cosine); }, none, none},
    {"TanPi", [](X x) { return tangent(of_half_turns(x)); }, none, none},
    {"ArcSinPi", [](X x) { return arc(x, false, pi()); }, none, none},
    {"ArcCosPi", [](X x) { return arc(x, true, pi()); }, none, none},
    {"ArcTanPi", [](X x) { return number_of(angle_of(x, Real(1)) / pi()); }, 0.5, -0.5},
    {"Sinh", [](X x) { return number_of(Hyperbolic(x).difference.scaled(-1)); }, inf, -inf},
    {"Cosh", [](X x) { return number_of(Hyperbolic(x).sum.scaled(-1)); }, inf, inf},
    {"Tanh", [](X x) { return number_of(Hyperbolic(x).difference / Hyperbolic(x).sum); }, 1, -1},
    {"ArcSinh", arc_sinh, inf, -inf},
    {"ArcCosh", arc_cosh, inf, none},
    {"ArcTanh", arc_tanh, none, none},
};

Number limit(double x, bool of_pi) {
    if (std::isnan(x)) return no_number();
    if (std::isinf(x)) return infinite(x < 0);
    const Real size = Real::of(std::abs(x)), value = of_pi ? size * pi() : size;
    return number_of(x < 0 ? -value : value);
}

} // namespace

Number function(std::string_view name, const Number& x) {
    const FunctionRow& row = *std::ranges::find(function_rows, name, &FunctionRow::name);
    if (x.kind != Class::infinity) return row.at(real_of(x));
    return limit(x.negative ? row.at_minus_infinity : row.at_infinity, row.of_pi);
}

Number angle(const Number& y, const Number& x, bool over_pi) {
    const Real value = angle_of(real_of(y), real_of(x));
    return number_of(over_pi ? value / pi() : value);
}

} // namespace amp::exact
