// In which formats a network is trained: the presets, and any combination of one's own.
#pragma once

#include <ampscope/sim/autocast.h>
#include <ampscope/sim/ops/matmul.h>
#include <ampscope/sim/optimizer.h>

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
    MatmulArithmetic matmul{};
    UpdateRounding update = UpdateRounding::nearest;
    std::string_view loss_scaler = "none"; ///< a row of loss_scalers
};

struct PrecisionRow {
    std::string_view name, meaning;
    Precision (*make)();
};

std::span<const PrecisionRow> precisions();

/// A preset's name, or "[PRESET,]key=value,..." with the keys weights, activations, gradients, loss, master, m, v,
/// accumulate, operands (a format each), update (nearest, stochastic, kahan) and scaler (a row of loss_scalers);
/// without a preset fp32 is the base.
/// Throws std::invalid_argument, naming what is known.
Precision precision(std::string_view text);

} // namespace amp
