// The operations that can be asked for by name: those of Berkeley TestFloat, with its names.
#pragma once

#include <ampscope/formats/arithmetic.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace amp::conformance {

/// The rows of `operations`, in their order, and two that take more than one format.
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
    convert, ///< one format to another
    dot,     ///< a . b + c as an accumulator adds up
};

using OperandCodes = std::array<std::uint32_t, 3>;

struct Operation {
    std::string_view name;
    std::size_t operands;
    bool to_bool; ///< the result is 1 or 0, not a code
    std::uint32_t (*run)(Arithmetic&, const OperandCodes&, bool exact);
};

/// `exact` concerns roundToInt only, which then raises inexact.
inline constexpr std::array operations = {
    Operation{"add", 2, false, [](Arithmetic& f, const OperandCodes& x, bool) { return f.add(x[0], x[1]); }},
    Operation{"sub", 2, false, [](Arithmetic& f, const OperandCodes& x, bool) { return f.sub(x[0], x[1]); }},
    Operation{"mul", 2, false, [](Arithmetic& f, const OperandCodes& x, bool) { return f.mul(x[0], x[1]); }},
    Operation{"div", 2, false, [](Arithmetic& f, const OperandCodes& x, bool) { return f.div(x[0], x[1]); }},
    Operation{"rem", 2, false, [](Arithmetic& f, const OperandCodes& x, bool) { return f.remainder(x[0], x[1]); }},
    Operation{"sqrt", 1, false, [](Arithmetic& f, const OperandCodes& x, bool) { return f.sqrt(x[0]); }},
    Operation{"mulAdd", 3, false, [](Arithmetic& f, const OperandCodes& x, bool) { return f.fma(x[0], x[1], x[2]); }},
    Operation{"roundToInt", 1, false,
              [](Arithmetic& f, const OperandCodes& x, bool exact) { return f.round_to_integral(x[0], exact); }},
    Operation{"eq", 2, true,
              [](Arithmetic& f, const OperandCodes& x, bool) { return std::uint32_t{f.eq(x[0], x[1])}; }},
    Operation{"le", 2, true,
              [](Arithmetic& f, const OperandCodes& x, bool) { return std::uint32_t{f.le(x[0], x[1])}; }},
    Operation{"lt", 2, true,
              [](Arithmetic& f, const OperandCodes& x, bool) { return std::uint32_t{f.lt(x[0], x[1])}; }},
    Operation{"eq_signaling", 2, true,
              [](Arithmetic& f, const OperandCodes& x, bool) {
                  return std::uint32_t{f.compare(x[0], x[1], true) == Order::equal};
              }},
    Operation{"le_quiet", 2, true,
              [](Arithmetic& f, const OperandCodes& x, bool) {
                  const Order order = f.compare(x[0], x[1], false);
                  return std::uint32_t{order == Order::less || order == Order::equal};
              }},
    Operation{"lt_quiet", 2, true,
              [](Arithmetic& f, const OperandCodes& x, bool) {
                  return std::uint32_t{f.compare(x[0], x[1], false) == Order::less};
              }},
};
static_assert(operations.size() == static_cast<std::size_t>(Op::convert));

} // namespace amp::conformance
