// From run folders and recorded gradients to what the optimizer makes of every tensor.
#pragma once

#include <ampscope/sim/findings/adam_effects.h>
#include <ampscope/tools/amp-adam/options.h>

namespace amp::adam_tool {

/// How the state before the step that is asked about is known.
enum class AdamBasis : std::uint8_t {
    recorded,   ///< exact: it was recorded
    contiguous, ///< exact: every gradient from step 0 on was
    held,       ///< an estimate: gradients are taken to stay until the next recorded one
    stationary  ///< an estimate: there is one gradient, taken for that of every step
};
std::string_view name_of(AdamBasis basis);

struct AdamTensor {
    std::string name;
    AdamEffects effects; ///< without the ratios to eps where options ask for no JSON: dozens of histograms a tensor
};

/// One input.
struct AdamFindings {
    std::string name;
    AdamBasis basis = AdamBasis::stationary;
    std::optional<std::int64_t> step; ///< that is asked about
    AdamQuestion question;
    std::vector<AdamTensor> tensors;
    AdamEffects total;
    std::vector<std::string> warnings;
    std::vector<std::string> errors; ///< files that cannot be read, and are left out
};

/// Throws FileError or std::invalid_argument for an input of which nothing can be said.
AdamFindings collect(const std::filesystem::path& path, const AdamToolOptions& options);

} // namespace amp::adam_tool
