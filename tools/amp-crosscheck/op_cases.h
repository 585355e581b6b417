// Every op by itself: small programs with many shapes, formats and options, and operands full of edge values.
#pragma once

#include <ampscope/sim/backend/backend.h>

#include <functional>
#include <string>
#include <vector>

namespace amp::crosscheck_tool {

/// How an operand is filled.
enum class Fill : std::uint8_t {
    edges,    ///< normal and random-bit numbers, zeros, limits of the format, ties, infinities, NaN
    finite,   ///< like edges, without infinities and NaN
    ordinary, ///< normal numbers
    indices,  ///< whole numbers from 0 to `limit` - 1
    targets,  ///< like indices, some of them negative
    positive, ///< magnitudes of normal numbers
    mask,     ///< a third of its tiles are -infinity; elsewhere zeros, normal numbers, -infinity and what stands for it
    one,
    zero
};

struct OpCase {
    std::string name; ///< "norm layer 5x17 bf16"
    Program program;  ///< one op, in forward
    std::vector<std::pair<TensorId, Fill>> operands{};
    std::int64_t limit = 1; ///< indices are below it
    StepContext context{};
};

/// The cases; at least one for every op.
std::vector<OpCase> op_cases();

/// Fills the operands with values of their formats, which depend only on the seed.
void fill_operands(Backend& backend, const OpCase& c, std::uint64_t seed);

} // namespace amp::crosscheck_tool
