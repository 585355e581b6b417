// The options of stochastic rounding that tools have in common.
#pragma once

#include <ampscope/tools/command_line.h>

#include <string>

namespace amp {

/// --random-bits and --stochastic-variant: the words of stochastic rounding.
struct RandomOptions {
    int bits = 32;
    std::string variant = "a";

    void add_to(CLI::App& app);
    /// What they mean for a policy. Throws std::invalid_argument where one is given and the policy does not round so.
    void apply_to(Policy& policy, const CLI::App& app) const;
};

} // namespace amp
