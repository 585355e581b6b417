// The operations that can be asked for by name: those of Berkeley TestFloat and those of IEEE P3109, with their names.
#pragma once

#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/p3109.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

namespace amp::conformance {

/// The rows of operations() by their number, and two that take more than one format.
enum class Op : std::uint8_t {
    add,
    sub,
    mul,
    div,
    rem,
    sqrt,
    mul_add,
    round_to_int,
    eq,
    le,
    lt,
    eq_signaling,
    le_quiet,
    lt_quiet,
    first_of_report, ///< the first operation of IEEE P3109; the others follow without names here
    convert = 254,   ///< one format to another
    dot = 255,       ///< a . b + c as an accumulator adds up
};

using OperandCodes = std::array<std::uint32_t, 3>;

/// What an operation gives.
enum class Gives : std::uint8_t {
    number,       ///< a code
    truth,        ///< 1 or 0
    number_class, ///< 0 to 7: p3109::Class
    neighbour,    ///< a code of a format that has one NaN and no -0
};

/// One of TestFloat's: the policy and the flags are the unit's. `exact` concerns roundToInt only, which then raises
/// inexact.
using OnCodes = std::uint32_t (*)(Arithmetic&, const OperandCodes&, bool exact);
/// One of the report's (section 4.10 or 4.11): an exact result, or 64 bits of it, which is then projected.
using OnData = Unpacked (*)(const Unpacked&, const Unpacked&, const Unpacked&);
/// One of the report's that rounds nothing: comparisons, classes, neighbours.
using OnValues = std::uint32_t (*)(const p3109::Value&, const p3109::Value&);

struct Operation {
    std::string_view name;
    std::size_t operands;
    Gives gives;
    std::variant<OnCodes, OnData, OnValues> definition;
    std::optional<Op> like{}; ///< TestFloat's operation of the same numbers, by which results halfway are made
};

/// All of them: TestFloat's, and then the report's.
std::span<const Operation> operations();
std::span<const Operation> testfloat_operations();

/// Throws std::invalid_argument for a scale, which only converts.
void refuse_scale(const FormatSpec& format, std::string_view operation);
/// Throws std::invalid_argument for a format whose numbers the operation does not take.
void check_format(const Operation& operation, const FormatSpec& format);

/// Whether it is one of the report's. They take NaN for NaN and -0 for 0, and signal by IEEE 754's flags, though the
/// report has none: invalid for a NaN from operands that are none, divide by zero for an infinity from finite operands.
constexpr bool is_of_report(Op op) { return op >= Op::first_of_report && op < Op::convert; }

/// The row's result for codes of the unit's format.
std::uint32_t run(const Operation& operation, Arithmetic& unit, const OperandCodes& codes, bool exact);

} // namespace amp::conformance
