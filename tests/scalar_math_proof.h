// The proof of formats/scalar_math.h, for test_scalar_math (a sample) and sweep_scalar_math (all floats). The oracle is
// the C library's long double, and Boost.Multiprecision where that does not decide a rounding.
#pragma once

#include "sweep.h"

#include <ampscope/formats/codec.h>
#include <ampscope/formats/scalar_math_estimate.h>
#include <ampscope/formats/scalar_math_trig.h>

#include <boost/math/special_functions/erf.hpp>
#include <boost/multiprecision/cpp_bin_float.hpp>

#include <cmath>

namespace amp::test {

/// 300 digits: near zero tanh(x) differs from x by x^2 / 3 (relative), which can be 2^-250.
using Exact = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<300>, boost::multiprecision::et_off>;

struct Function {
    const char* name;
    double (*ours)(double);
    long double (*library)(long double);
    Exact (*exact)(const Exact&);
    long double bound = 0x1p-48L; ///< bound of the relative error
};

/// GELU, where T is long double or a Boost number.
template <class T>
struct Gelu {
    static T cdf(const T& x) {
        using std::erfc;
        return erfc(T(-x / sqrt(T(2)))) / 2;
    }

    static T density(const T& x) {
        using std::exp;
        return exp(T(-x * x / 2)) / sqrt(T(2) * boost::math::constants::pi<T>());
    }

    static T exponent(const T& x) { return sqrt(T(8) / boost::math::constants::pi<T>()) * (x + cubic() * x * x * x); }

    static T tanh_form_cdf(const T& x) {
        using std::exp;
        return 1 / (1 + exp(T(-exponent(x))));
    }

    static T derivative(const T& x) { return cdf(x) + x * density(x); }

    static T tanh_form_derivative(const T& x) {
        const T s = tanh_form_cdf(x), other = tanh_form_cdf(T(-x));
        return s + x * s * other * sqrt(T(8) / boost::math::constants::pi<T>()) * (1 + 3 * cubic() * x * x);
    }

    static T cubic() { return T(44715) / 1000000; }
};

/// SiLU, where T is long double or a Boost number.
template <class T>
struct Silu {
    static T cdf(const T& x) {
        using std::exp;
        return 1 / (1 + exp(T(-x)));
    }

    static T derivative(const T& x) {
        const T s = cdf(x), other = cdf(T(-x));
        return s + x * s * other;
    }
};

/// Near the derivatives' zeros long double has too few digits; 50 suffice.
template <class F>
long double near_zeros(long double x, F&& derivative, long double end = 50, long double zero = -0.752L) {
    using Digits =
        boost::multiprecision::number<boost::multiprecision::cpp_bin_float<50>, boost::multiprecision::et_off>;
    if (std::fabs(x) > end) return x > 0 ? 1 : -0.0L; // beyond FP32, and soon beyond long double
    if (std::fabs(x - zero) < 0x1p-9L) return derivative(Digits(x)).template convert_to<long double>();
    return derivative(x);
}

/// x cdf(x). Beyond `far`, cdf is one but for less than 2^-860, and is replaced by 1 - 2^-900. Near zero both forms are
/// 1/2 + x / sqrt(2 pi) but for x^2 of that: an odd subnormal is halved to a tie, and the second term decides it.
inline Exact times_cdf(const Exact& x, Exact (*cdf)(const Exact&), int far) {
    static const Exact slope = 1 / sqrt(2 * boost::math::constants::pi<Exact>());
    if (fabs(x) < 0x1p-120) return Exact(x * (0.5 + x * slope));
    return x > far ? Exact(x - ldexp(x, -900)) : Exact(x * cdf(x));
}

inline const Function functions[] = {
    {"exp", [](double x) { return math::exp(x); }, [](long double x) { return std::exp(x); },
     [](const Exact& x) { return Exact(exp(x)); }},
    {"exp2", [](double x) { return math::exp2(x); }, [](long double x) { return std::exp2(x); },
     [](const Exact& x) { return Exact(pow(Exact(2), x)); }},
    {"expm1", [](double x) { return math::expm1(x); }, [](long double x) { return std::expm1(x); },
     [](const Exact& x) { return Exact(expm1(x)); }},
    {"log", [](double x) { return math::log(x); }, [](long double x) { return std::log(x); },
     [](const Exact& x) { return Exact(log(x)); }},
    {"tanh", [](double x) { return math::tanh(x); }, [](long double x) { return std::tanh(x); },
     [](const Exact& x) { return Exact(tanh(x)); }},
    {"sigmoid", [](double x) { return math::sigmoid(x); }, [](long double x) { return 1 / (1 + std::exp(-x)); },
     [](const Exact& x) { return Exact(1 / (1 + exp(-x))); }},
    {"gelu", [](double x) { return math::gelu(x); }, [](long double x) { return x * Gelu<long double>::cdf(x); },
     [](const Exact& x) { return times_cdf(x, Gelu<Exact>::cdf, 36); }},
    {"gelu_derivative", [](double x) { return math::gelu_derivative(x); },
     [](long double x) {
         return near_zeros(x, [](const auto& y) { return Gelu<std::decay_t<decltype(y)>>::derivative(y); });
     },
     Gelu<Exact>::derivative},
    {"gelu_tanh", [](double x) { return math::gelu_tanh(x); },
     [](long double x) { return x * Gelu<long double>::tanh_form_cdf(x); },
     [](const Exact& x) { return times_cdf(x, Gelu<Exact>::tanh_form_cdf, 20); }, 0x1p-42L},
    {"gelu_tanh_derivative", [](double x) { return math::gelu_tanh_derivative(x); },
     [](long double x) {
         return near_zeros(x, [](const auto& y) { return Gelu<std::decay_t<decltype(y)>>::tanh_form_derivative(y); });
     },
     Gelu<Exact>::tanh_form_derivative, 0x1p-42L},
    {"silu", [](double x) { return math::silu(x); }, [](long double x) { return x / (1 + std::exp(-x)); },
     [](const Exact& x) { return times_cdf(x, Silu<Exact>::cdf, 650); }},
    {"silu_derivative", [](double x) { return math::silu_derivative(x); },
     [](long double x) {
         return near_zeros(
             x, [](const auto& y) { return Silu<std::decay_t<decltype(y)>>::derivative(y); }, 700, -1.2785L);
     },
     Silu<Exact>::derivative},
};

/// Whether a number of 12 significant bits lies in [low, high], positive or negative, within a factor of 2. Only there
/// can a 16- or 8-bit format change from one value to the next, since its boundaries lie halfway between numbers of 11
/// bits.
inline bool boundary_between(double low, double high) {
    const auto a = std::bit_cast<std::uint64_t>(std::fabs(low)), b = std::bit_cast<std::uint64_t>(std::fabs(high));
    return (std::max(a, b) >> 41) != ((std::min(a, b) - 1) >> 41);
}

/// Checks f at the float with these bits: the relative error of the double, and its rounding to each format.
/// `misrounded` counts FP32 results that are not the value nearest to the exact result.
inline void check_function(const Function& f, std::uint32_t bits, Tally& tally,
                           std::atomic<std::uint64_t>& misrounded) {
    static const FormatSpec formats[] = {format("fp16"), format("bf16"), format("e4m3"), format("e5m2")};
    const long double bound = f.bound;
    const float x = std::bit_cast<float>(bits);
    const double wide = f.ours(x);
    const long double value = f.library(x);
    const auto where = [&] { return fmt::format("{}({:a})", f.name, x); };
    if (std::isnan(value) || std::isinf(value) || value == 0) {
        const bool same = std::isnan(value)
                              ? std::isnan(wide)
                              : wide == static_cast<double>(value) && std::signbit(wide) == std::signbit(value);
        return tally.expect(std::uint32_t{same}, 1U, where);
    }
    // Far below and above FP32's range the double may be zero or infinite.
    if (std::fabs(value) < 0x1p-1000L || std::fabs(value) > 0x1p1000L)
        return tally.expect(static_cast<float>(wide), static_cast<float>(value), where);
    tally.expect(std::uint32_t{std::fabs(wide - value) <= bound * std::fabs(value)}, 1U, where);
    const auto low = static_cast<double>(value * (1 - 2 * bound)), high = static_cast<double>(value * (1 + 2 * bound));
    if (static_cast<float>(low) != static_cast<float>(high)) { // a boundary is near: which side is the exact value on?
        const Exact exact = f.exact(Exact(x));
        const float near = static_cast<float>(wide), nearest = exact.convert_to<float>();
        if (near != nearest) misrounded += 1;
    }
    static thread_local std::pair<double, double> alike; // half of all floats have the same exp
    if (!boundary_between(low, high) || alike == std::pair{low, high}) return;
    bool all_alike = true;
    for (const FormatSpec& to : formats) {
        if (quantize(to, low) == quantize(to, high)) continue; // then all values between them do, too
        all_alike = false;
        const Exact exact = f.exact(Exact(x));
        // Compares both sides with the boundary between the two neighbours.
        const double a = quantize(to, low), b = quantize(to, high), middle = (a + b) / 2;
        if (std::isnan(a) || std::isnan(b) || std::isinf(a) || std::isinf(b)) continue;
        const auto side = [](bool below, bool above) { return static_cast<std::uint32_t>(below ? 0 : above ? 2 : 1); };
        tally.expect(side(wide<middle, wide> middle), side(exact<Exact(middle), exact> Exact(middle)), where);
    }
    if (all_alike) alike = {low, high};
}

/// An estimate beside the function that it may stand for.
struct Estimate {
    const char* name;
    double (*quick)(double);
    double (*ours)(double);
    bool all_values = false; ///< what they are multiplied by decides a rounding, so that all count
    double error = 0x1p-38;  ///< at most half of what is left to the nearest boundary
};

inline const Estimate estimates[] = {
    {"gelu", [](double x) { return math::estimate::gelu(x); }, [](double x) { return math::gelu(x); }},
    {"gelu_derivative", [](double x) { return math::estimate::gelu_derivative(x); },
     [](double x) { return math::gelu_derivative(x); }, true},
    {"gelu_tanh", [](double x) { return math::estimate::gelu_tanh(x); }, [](double x) { return math::gelu_tanh(x); }},
    {"gelu_tanh_derivative", [](double x) { return math::estimate::gelu_tanh_derivative(x); },
     [](double x) { return math::gelu_tanh_derivative(x); }, true},
    {"silu", [](double x) { return math::estimate::silu(x); }, [](double x) { return math::silu(x); }},
    {"silu_derivative", [](double x) { return math::estimate::silu_derivative(x); },
     [](double x) { return math::silu_derivative(x); }, true},
    {"exp", [](double x) { return math::estimate::exp(x); }, [](double x) { return math::exp(x); }, true, 0x1p-44},
};

/// Checks an estimate at the float with these bits, if it may decide a rounding there: its error is so small that no
/// rounding can tell it from the function.
inline void check_estimate(const Estimate& f, std::uint32_t bits, Tally& tally) {
    const float x = std::bit_cast<float>(bits);
    const double quick = f.quick(x), ours = f.ours(x);
    if (f.all_values ? quick == quick : math::estimate::decides_rounding(quick))
        tally.expect(std::fabs(quick - ours) <= f.error * std::fabs(ours), true,
                     [&] { return fmt::format("{}({:a}) = {:a}, estimated as {:a}", f.name, x, ours, quick); });
}

} // namespace amp::test
