// Gates: conditions on counts that make a tool exit with status 3, for scripts and continuous integration.
//
//   FORMAT[@SCALE].CLASS[/all|/nonzero] < LIMIT      or <=
//
// FORMAT: a name of the format table, or eXmY. SCALE: 2^K or a positive number; 1 if omitted. CLASS: underflow,
// subnormal, normal, overflow, zero, nan or inf. LIMIT: a share of the finite non-zero elements, "0.5%" or "0.005";
// with /all, and always for zero, nan and inf, of all elements. An integer without % and without / is a number of
// elements.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace amp {

/// What became of an element; histogram.h defines the classes.
enum class NumberClass : std::uint8_t { underflow, subnormal, normal, overflow, zero, nan, inf };
std::string_view name_of(NumberClass c);

enum class Denominator : std::uint8_t { none, all, nonzero }; ///< none: the limit is a number of elements
std::string_view name_of(Denominator denominator);

struct Gate {
    std::string text;   ///< the gate in the user's words
    std::string format; ///< a name that amp::format() accepts
    double scale = 1;   ///< positive and finite
    NumberClass number_class = NumberClass::underflow;
    Denominator denominator = Denominator::nonzero;
    bool or_equal = false;
    std::uint64_t limit_digits = 0; ///< the limit is exactly limit_digits / 10^limit_decimals
    int limit_decimals = 0;         ///< 0 ... 18
};

/// A gate that cannot be parsed. what() names the text and the place in it.
class GateError : public std::invalid_argument {
  public:
    GateError(std::string_view text, std::size_t position, const std::string& expected);
};

/// Throws GateError.
Gate parse_gate(std::string_view text);

/// A scale such as "2^10", "2^-3", "1024" or "3.5", positive and finite. Throws std::invalid_argument.
double parse_scale(std::string_view text);

/// Whether part / whole (or `part` alone, if the gate counts elements) is within the limit, decided in exact integers.
/// A share of no elements is never within it: a gate should catch gradients that are all zero or all NaN. `fraction`,
/// in 0 ... 1, is added to `part`: expectations need not be integers.
bool holds(const Gate& gate, std::uint64_t part, std::uint64_t whole, double fraction = 0);

} // namespace amp
