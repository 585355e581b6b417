// Where the time of a program goes, by op.
#pragma once

#include <ampscope/sim/program/ops.h>

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

namespace amp {

/// The runs of an op in one tape, and what they did.
struct OpProfile {
    std::int64_t runs = 0;
    double seconds = 0;
    double multiply_adds = 0; ///< of matrix products
    double bytes = 0;         ///< of the tensors read and written, each of them once, in FP32 as backends hold them

    /// Adds a run that took so long.
    void add(const Program& program, const Op& op, double took);
};

/// By the name of the tape (forward, backward, check, unscale, update) and that of the op.
using TimeProfile = std::map<std::pair<std::string_view, std::string_view>, OpProfile>;

} // namespace amp
