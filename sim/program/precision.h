// The formats in which a network is trained: presets, and any combination of a user's own.
#pragma once

#include <ampscope/sim/optim/loss_scaler.h>
#include <ampscope/sim/optim/optimizer.h>
#include <ampscope/sim/program/autocast.h>
#include <ampscope/sim/program/layer_arithmetic.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// How the layers of some modules differ from the rest of the network.
struct LayerPolicy {
    /// A module and all in it, "head"; a shell's pattern of such, "h.*.mlp" (* spans dots, too); a regular expression
    /// between slashes that matches the whole name, "/h\\.[0-3]/"; or "first-N", "last-N": blocks, see expand_blocks().
    std::string modules;
    /// "[BASE,]key=value,...": the keys of LayerArithmetic::set, and autocast (off, on). BASE is how operands are read:
    /// in a format and without scales; by a preset with a scaling recipe; or by fp32, tf32 or tf32-truncate, outside
    /// autocast. It leaves accumulators as they are, unless the preset has its own.
    std::string text;

    bool operator==(const LayerPolicy&) const = default;
};

/// The policy that every precision begins with. It is meant for networks that have this module.
inline LayerPolicy last_layer_unscaled() { return {"head", "scaling=none"}; }

/// With autocast, PyTorch's tables decide the formats of ops, parameters are kept in `master`, and a gradient has the
/// format of its tensor. Without autocast, `weights`, `activations`, `gradients` and `loss` are the formats.
struct Precision : LayerArithmetic {
    std::string name = "fp32";
    Autocast autocast{};
    bool weight_cache = true; ///< autocast casts a weight once a step, so its gradients are added in low precision
    bool backward_under_autocast = false; ///< the ops of backward are cast as well, which PyTorch advises against
    FormatSpec weights = format("fp32");  ///< format to which parameters are cast where they are used
    FormatSpec activations = format("fp32"), gradients = format("fp32"), loss = format("fp32");
    FormatSpec master = format("fp32"); ///< format of parameters and their gradients
    FormatSpec m = format("fp32"), v = format("fp32");
    /// Kept under scales. Weights: those that layers scale. Where m and v are in blocks, `m` and `v` above are for
    /// tensors that those do not hold, which torchao keeps in the format of the weights.
    ScaledState scaled_state{};
    /// What differs by layer. Where several name a layer, later ones win for the keys that they set.
    std::vector<LayerPolicy> layers = {last_layer_unscaled()};
    Serving serving{}; ///< formats for serving; used by networks that are not trained
    UpdateRounding update = UpdateRounding::nearest;
    std::uint8_t update_random_bits = 32; ///< stochastic updates draw so many for each weight, 1 to 32
    LossScalerRow loss_scaler = amp::loss_scaler("none");

    /// The arithmetic of a layer in that scope ("h.0.mlp.up."). Throws std::invalid_argument, naming the policy.
    [[nodiscard]] LayerArithmetic at(std::string_view scope) const;
    /// Adds a policy. Throws std::invalid_argument, naming it, if its text makes no sense.
    void add_layer(std::string modules, std::string text);
    /// Whether a layer of some module, or else those of no policy, have a recipe.
    [[nodiscard]] bool has_recipe() const;
    /// Whether some product of the network may use the accumulator, judged by formats alone.
    [[nodiscard]] bool may_use(const Accumulator& accumulator) const;
    /// What is in force of `layers`: not "autocast=off" without autocast, say.
    [[nodiscard]] std::vector<LayerPolicy> layers_in_force() const;
};

struct PrecisionRow {
    std::string_view name, meaning;
    Precision (*make)();
};

std::span<const PrecisionRow> precisions();

/// Reads a preset's name, or "[PRESET,]key=value,..." with the keys weights, activations, gradients, loss, master, m,
/// v, operands (a format each; master, m and v also FORMAT:tensor, with a scale for each tensor; m and v also
/// dynamic8:N, dynamic4:N and FORMAT:N, with a scale for each N elements: see scaled_format()), operand-rounding,
/// accumulate, accumulate-forward, accumulate-backward (accumulators, joined by +), update (nearest, stochastic,
/// kahan), update-random-bits (1 to 32), scaling (a row of scaling_recipes, or none), scaling-forward,
/// scaling-backward, scaling-rule, scaling-margin, scaling-history, scaling-amax and scaling-reduce (changes to that
/// row) and scaler (a row of loss_scalers). Without a preset fp32 is the base. Throws std::invalid_argument, listing
/// what is known.
Precision precision(std::string_view text);

/// A precision with more "key=value,..." set, as after a preset; its policies of layers stay. Throws
/// std::invalid_argument.
Precision changed(const Precision& base, std::string_view keys);

/// The modules that a policy's "first-N" or "last-N" names among these: the first or last N of every list of numbered
/// modules that lies in no other ("h.0", "encoder.layers.3"). Any other `modules` by itself. Throws
/// std::invalid_argument where there are no numbered modules.
std::vector<std::string> expand_blocks(const std::string& modules, std::span<const std::string> known);

/// Whether a policy's `modules` names this module itself, by its name or as a pattern.
bool names_module(const std::string& modules, const std::string& module);

/// Throws std::invalid_argument for policies that name none of these modules, but for last_layer_unscaled(), and for
/// those that make no sense in one of them.
void check_layers(const Precision& precision, std::span<const std::string> modules);

} // namespace amp
