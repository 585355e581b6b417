// The sentence about one format for tensors that no loss scale multiplies.
#pragma once

#include <ampscope/sim/analysis/censoring.h>
#include <ampscope/sim/analysis/format_fit.h>

#include <string>
#include <string_view>

namespace amp::detail {

/// What the sentence says, besides the counts of the fit. Names are printable.
struct FitFacts {
    FormatSpec format{};
    FormatFit fit{};
    std::uint64_t nonzero = 0;    ///< elements that are finite and not zero
    Censoring censoring{};        ///< what their record hides
    std::string_view group, noun; ///< names of a KindGroup
    /// The tensor with the largest magnitude among those that overflow, and that magnitude.
    std::string largest{}, largest_value{};
    std::string worst{};        ///< the tensor that loses most elements without a scale
    std::string worst_scaled{}; ///< the tensor that loses most elements under its own scale
    double limit = 0;           ///< the limit on underflow / nonzero
    bool random = false;        ///< counts are the worst that random bits can do
};

/// "E4M3, weights: 12 % of non-zero weights become zero when cast as they are; with a scale for each tensor ..."
std::string fit_advice(const FitFacts& facts);

} // namespace amp::detail
