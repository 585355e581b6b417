// The formats in which a network is trained: presets, and any combination of a user's own.
#pragma once

#include <ampscope/sim/optim/loss_scaler.h>
#include <ampscope/sim/optim/optimizer.h>
#include <ampscope/sim/program/autocast.h>
#include <ampscope/sim/program/ops/matmul.h>
#include <ampscope/sim/program/scaling_recipe.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// With autocast, PyTorch's tables decide the formats of ops, parameters are kept in `master`, and a gradient has the
/// format of its tensor. Without autocast, `weights`, `activations`, `gradients` and `loss` are the formats.
struct Precision {
    std::string name = "fp32";
    Autocast autocast{};
    bool weight_cache = true; ///< autocast casts a weight once a step, so its gradients are added in low precision
    bool backward_under_autocast = false;    ///< the ops of backward are cast as well, which PyTorch advises against
    std::vector<std::string> autocast_off{}; ///< modules (and all in them) outside autocast
    FormatSpec weights = format("fp32");     ///< format to which parameters are cast where they are used
    FormatSpec activations = format("fp32"), gradients = format("fp32"), loss = format("fp32");
    FormatSpec master = format("fp32"); ///< format of parameters and their gradients
    FormatSpec m = format("fp32"), v = format("fp32");
    ScaledState scaled_state{}; ///< kept under a scale of each tensor (MS-AMP); weights: those that layers scale
    FormatSpec operands = format("fp32"); ///< format that matrix products round their operands to: see MatmulArithmetic
    Rounding operand_rounding = Rounding::nearest_even;
    /// Accumulators of matrix products in forward and backward: the first that takes both operands, else FP32 chains.
    std::vector<Accumulator> accumulators{}, backward_accumulators{};
    std::optional<ScalingRecipe> scaling{};       ///< recipe of linear layers and convolutions; none: not scaled
    std::vector<std::string> unscaled = {"head"}; ///< modules (and all in them) whose layers are not scaled
    Serving serving{};                            ///< formats for serving; used by networks that are not trained
    UpdateRounding update = UpdateRounding::nearest;
    LossScalerRow loss_scaler = amp::loss_scaler("none");

    [[nodiscard]] op::MatmulArithmetic product(const FormatSpec& a, const FormatSpec& b, bool backward) const;
    /// Whether layers of that module ("h.0.mlp.up.") are excluded from scaling.
    [[nodiscard]] bool is_unscaled(std::string_view scope) const;
    [[nodiscard]] bool scales(std::string_view scope) const { return scaling && !is_unscaled(scope); }
    /// Whether some product of the network may use the accumulator, judged by formats alone.
    [[nodiscard]] bool may_use(const Accumulator& accumulator) const;
    /// The format to which sums other than matrix products are rounded at every addition: that of the first chain among
    /// `accumulators`, else FP32.
    [[nodiscard]] FormatSpec sums() const;
};

struct PrecisionRow {
    std::string_view name, meaning;
    Precision (*make)();
};

std::span<const PrecisionRow> precisions();

/// Reads a preset's name, or "[PRESET,]key=value,..." with the keys weights, activations, gradients, loss, master, m,
/// v, operands (a format each; master, m and v also FORMAT:tensor, with a scale for each tensor), accumulate,
/// accumulate-forward, accumulate-backward (accumulators, joined by +), update (nearest, stochastic, kahan), scaling (a
/// row of scaling_recipes, or none), scaling-forward, scaling-backward, scaling-rule, scaling-margin, scaling-history,
/// scaling-amax and scaling-reduce (changes to that row) and scaler (a row of loss_scalers). Without a preset fp32 is
/// the base. Throws std::invalid_argument, listing what is known.
Precision precision(std::string_view text);

/// Reads names of accumulators, joined by +. Throws std::invalid_argument.
std::vector<Accumulator> accumulators(std::string_view text);
std::string names_of(std::span<const Accumulator> accumulators);

} // namespace amp
