// amp-format vectors: cases of an operation in a number format, for people who build hardware.
#pragma once

#include <ampscope/sim/analysis/conformance/cases.h>
#include <ampscope/tools/command_line.h>

namespace amp::format_tool {

/// The words of the command line, and what they mean.
struct VectorOptions {
    std::string format, operation, to, b, accumulator, scale, tininess = "after", out = "-";
    std::vector<std::string> kinds;
    std::uint64_t block = 0;
    conformance::Question question;
};

/// The command with all options but those of a policy.
CLI::App& add_vectors(CommandLine& app, VectorOptions& options);

/// What the words mean; `policy` is what those of the policy mean. Throws std::invalid_argument.
void interpret(const CLI::App& command, VectorOptions& options, const std::string& profile, const Policy& policy);

/// Writes the cases. Throws FileError.
void write_vectors(const VectorOptions& options);

} // namespace amp::format_tool
