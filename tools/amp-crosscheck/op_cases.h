// Every op on its own: small programs over shapes, formats and options, with operands full of edge values.
#pragma once

#include <ampscope/sim/backend/backend.h>

#include <functional>
#include <string>
#include <vector>

namespace amp::crosscheck_tool {

/// What fills an operand.
enum class Fill : std::uint8_t {
    edges,    ///< normal and random-bit numbers, zeros, limits of the format, ties, infinities, NaN
    finite,   ///< the same without infinities and NaN
    ordinary, ///< normal numbers
    indices,  ///< whole numbers from 0 up to `limit`, below
    targets,  ///< the same, and some below zero
    positive, ///< magnitudes of normal numbers
    one,
    zero
};

struct OpCase {
    std::string name; ///< "norm layer 5x17 bf16"
    Program program;  ///< one op, in forward
    std::vector<std::pair<TensorId, Fill>> operands{};
    std::int64_t limit = 1; ///< of indices
    StepContext context{};
};

/// The cases; at least one of every op.
std::vector<OpCase> op_cases();

/// Gives the operands their numbers, values of the operands' formats that depend on the seed alone.
void fill_operands(Backend& backend, const OpCase& c, std::uint64_t seed);

} // namespace amp::crosscheck_tool
