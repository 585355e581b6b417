// Computes one operation on lines of hexadecimal operands, in the layout of Berkeley TestFloat 3 (testfloat_gen and
// testfloat_ver), so that TestFloat can test every format here.
#pragma once

#include <ampscope/sim/analysis/conformance/operations.h>

#include <string>
#include <string_view>

namespace amp::format_tool {

struct EvalOptions {
    std::string function; ///< "f16_mulAdd", "e4m3_eq", "f32_to_bf16", "f16_to_i32", "binary8p3_Exp"
    Policy policy{};      ///< does not round stochastically
    bool exact = false;   ///< roundToInt and conversions to integers raise inexact
};

/// What function names are made of, for help and errors.
std::string testfloat_functions();

/// Throws std::invalid_argument for an unknown function.
void check(const EvalOptions& options);

/// Reads operands line by line and prints each line with result and flags appended. Throws FileError for a malformed
/// line, which it names, and if standard input or output fails.
void evaluate(const EvalOptions& options);

} // namespace amp::format_tool
