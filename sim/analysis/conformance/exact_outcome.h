// Operations on exact numbers, for the files that define TestFloat's operations and those of IEEE P3109 by them.
#pragma once

#include <ampscope/sim/analysis/conformance/exact_arithmetic.h>

namespace amp::exact {

/// An exact number or, with `flags`, what the operation raised by itself.
struct Outcome {
    Number x;
    unsigned flags = 0;
};

// These take operands that are no NaN.

Outcome sum(const Number& x, const Number& y, Rounding rounding);
Outcome product(const Number& x, const Number& y);
Outcome quotient(const Number& x, const Number& y);

/// An operation of IEEE P3109 on numbers read in the format, in which the result is stored.
Result apply_report(const FormatSpec& format, const Policy& policy, Op operation, std::array<Number, 3> operands);

/// A function of one operand of IEEE P3109 that is not rational, "Exp" or "ArcTan". The result is exact if it is a
/// number of few bits, and else one that rounds in the same way. Precondition: x is no NaN, and has no root.
Number function(std::string_view name, const Number& x);
/// The angle of the point (x, y), not both zero, both finite; in units of pi if `over_pi`.
Number angle(const Number& y, const Number& x, bool over_pi);

} // namespace amp::exact
