// In which formats a network is trained: the presets, and any combination of one's own.
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
/// format of its tensor. Without, `weights`, `activations`, `gradients` and `loss` do.
struct Precision {
    std::string name = "fp32";
    Autocast autocast{};
    bool weight_cache = true; ///< autocast casts a weight once a step: its gradients add up in low precision
    bool backward_under_autocast = false;    ///< what PyTorch advises against: the ops of backward are cast as well
    std::vector<std::string> autocast_off{}; ///< modules (and what is in them) outside autocast
    FormatSpec weights = format("fp32");     ///< parameters are cast to it where they are used
    FormatSpec activations = format("fp32"), gradients = format("fp32"), loss = format("fp32");
    FormatSpec master = format("fp32"); ///< of the parameters and their gradients
    FormatSpec m = format("fp32"), v = format("fp32");
    ScaledState scaled_state{}; ///< kept so under a scale of each tensor (MS-AMP); weights: those that layers scale
    FormatSpec operands = format("fp32"); ///< of matrix products: see MatmulArithmetic
    Rounding operand_rounding = Rounding::nearest_even;
    /// Of matrix products, in forward and in backward: the first that takes both operands, else FP32 chains.
    std::vector<Accumulator> accumulators{}, backward_accumulators{};
    std::optional<ScalingRecipe> scaling{};       ///< of linear layers and convolutions; none: they are not scaled
    std::vector<std::string> unscaled = {"head"}; ///< modules (and what is in them) whose layers are not
    Serving serving{};                            ///< of networks that are not trained
    UpdateRounding update = UpdateRounding::nearest;
    LossScalerRow loss_scaler = amp::loss_scaler("none");

    [[nodiscard]] op::MatmulArithmetic product(const FormatSpec& a, const FormatSpec& b, bool backward) const;
    /// Whether layers of that module ("h.0.mlp.up.") stay as they are.
    [[nodiscard]] bool is_unscaled(std::string_view scope) const;
    [[nodiscard]] bool scales(std::string_view scope) const { return scaling && !is_unscaled(scope); }
    /// Whether some product of the network may use it, as far as formats tell.
    [[nodiscard]] bool may_use(const Accumulator& accumulator) const;
    /// What sums that are no matrix product are rounded to at every addition: the format of a chain, if one is named.
    [[nodiscard]] FormatSpec sums() const;
};

struct PrecisionRow {
    std::string_view name, meaning;
    Precision (*make)();
};

std::span<const PrecisionRow> precisions();

/// A preset's name, or "[PRESET,]key=value,..." with the keys weights, activations, gradients, loss, master, m, v,
/// operands (a format each; master, m and v also FORMAT:tensor, under a scale of the tensor), accumulate,
/// accumulate-forward, accumulate-backward (accumulators, joined by +), update (nearest, stochastic, kahan), scaling (a
/// row of scaling_recipes, or none), scaling-forward, scaling-backward, scaling-rule, scaling-margin, scaling-history,
/// scaling-amax and scaling-reduce (what differs from that row) and scaler (a row of loss_scalers); without a preset
/// fp32 is the base. Throws std::invalid_argument, naming what is known.
Precision precision(std::string_view text);

/// Accumulators by name, joined by +. Throws std::invalid_argument.
std::vector<Accumulator> accumulators(std::string_view text);
std::string names_of(std::span<const Accumulator> accumulators);

} // namespace amp
