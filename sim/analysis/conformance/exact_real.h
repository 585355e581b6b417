// Real numbers to a fixed number of binary places, for the functions of exact_functions.cpp: a second arithmetic, made
// to be obvious. Every step cuts what lies beyond the last place.
#pragma once

#include <ampscope/sim/analysis/conformance/exact_arithmetic.h>

#include <utility>

namespace amp::exact {

/// A number in units of 2^-places, with no limit above.
class Real {
  public:
    static constexpr int places = 1536;

    Real() = default;
    Real(std::uint32_t n) : magnitude_(Natural(n).shifted(places)) {} // a number is a number
    /// n 2^exponent.
    Real(const Natural& n, int exponent, bool negative)
        : negative_(negative), magnitude_(n.shifted(exponent + places)) {}
    /// A double that is neither negative nor infinite nor NaN.
    static Real of(double x);

    [[nodiscard]] bool is_zero() const { return magnitude_.is_zero(); }
    [[nodiscard]] bool is_negative() const { return negative_ && !is_zero(); }
    /// |x| in units of 2^-places.
    [[nodiscard]] const Natural& magnitude() const { return magnitude_; }
    /// |x| to about 50 bits, for a start that is improved upon. Precondition: |x| is 0 or from 2^-900 to 2^900.
    [[nodiscard]] double roughly() const;
    /// |x| without its places.
    [[nodiscard]] Natural whole() const { return magnitude_.shifted(-places); }

    Real operator-() const;
    Real operator+(const Real& x) const;
    Real operator-(const Real& x) const { return *this + -x; }
    Real operator*(const Real& x) const;
    /// Precondition: x is not zero.
    Real operator/(const Real& x) const;
    Real operator/(std::uint32_t x) const;
    /// Times 2^n.
    [[nodiscard]] Real scaled(int n) const;
    bool operator<(const Real& x) const { return (*this - x).is_negative(); }

  private:
    bool negative_ = false;
    Natural magnitude_;
};

inline Real absolute(const Real& x) { return x.is_negative() ? -x : x; }
/// Precondition: x is not negative.
Real square_root(const Real& x);

// Functions of any argument unless a line says otherwise. For arguments of at most 200 bits before the point and 200
// behind it, results have more than 1000 right places.

const Real& pi();
const Real& ln2();
/// e^x.
Real exponential(const Real& x);
/// The natural logarithm. Precondition: x is above zero.
Real logarithm(const Real& x);
struct SineCosine {
    Real sine, cosine;
};
/// Of an angle from 0 to 2.
SineCosine sine_cosine_of_small(const Real& angle);
/// Of an angle of so many quarter turns; exact where the results are -1, 0 or 1.
SineCosine sine_cosine(const Real& quarters);
/// The angle of the point (x, y), not both zero, from -pi to pi.
Real angle_of(const Real& y, const Real& x);

} // namespace amp::exact
