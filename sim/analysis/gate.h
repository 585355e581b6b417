// Gates: conditions on counts that make a tool exit with 3, for use in scripts and continuous integration.
//
//   FORMAT[@SCALE].CLASS[/all|/nonzero] < LIMIT      or <=
//
// FORMAT: a name of the format table, or eXmY. SCALE: 2^K or a positive number; 1 if left out. CLASS: underflow,
// subnormal, normal, overflow, zero, nan or inf. LIMIT: a rate, "0.5%" or "0.005", of the finite non-zero elements
// unless /all is said (zero, nan and inf: of all). An integer without % and without / is a number of elements.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace amp {

/// What became of an element, by the definitions of histogram.h.
enum class NumberClass : std::uint8_t { underflow, subnormal, normal, overflow, zero, nan, inf };
std::string_view name_of(NumberClass c);

enum class Denominator : std::uint8_t { none, all, nonzero }; ///< none: the limit is a number of elements

struct Gate {
    std::string text;   ///< as the user wrote it
    std::string format; ///< a name that amp::format() accepts
    double scale = 1;   ///< positive and finite
    NumberClass number_class = NumberClass::underflow;
    Denominator denominator = Denominator::nonzero;
    bool or_equal = false;
    std::uint64_t limit_digits = 0; ///< the limit is limit_digits / 10^limit_decimals, exactly as it was written
    int limit_decimals = 0;         ///< 0 ... 18
};

/// A gate that cannot be read. what() names the text and the place in it.
class GateError : public std::invalid_argument {
  public:
    GateError(std::string_view text, std::size_t position, const std::string& expected);
};

/// Throws GateError.
Gate parse_gate(std::string_view text);

/// "2^10", "2^-3", "1024" or "3.5" as a positive finite number. Throws std::invalid_argument.
double parse_scale(std::string_view text);

/// Whether part / whole (or `part` alone, where the gate counts elements) keeps the limit; in exact integers. A share
/// of no elements does not hold: gradients that are all zero or all NaN are what a gate should catch. `fraction` of 0
/// ... 1 is what an expectation has besides `part`.
bool holds(const Gate& gate, std::uint64_t part, std::uint64_t whole, double fraction = 0);

} // namespace amp
