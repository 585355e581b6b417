// The optimizer's step on one parameter.
#pragma once

#include <ampscope/sim/optim/optimizer.h>
#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// Calls update() of backend/update.h, with the step number that the backend was given, and the learning rate of
/// `options` times the factor that it was given.
struct Update {
    static constexpr std::string_view name = "update";
    OptimizerOptions options{};
    UpdateRounding rounding = UpdateRounding::nearest;
    std::uint8_t random_bits = 32;                 ///< stochastic rounding draws so many for each weight
    TensorId weight, gradient, m, v, compensation; ///< m, v and compensation only if the optimizer has them
    double rate_factor = 1;                        ///< Muon's, by the shape of the matrix
    std::uint32_t stream = 0;                      ///< stream of stochastic rounding: the parameter's number
    TensorId weight_norm{}, direction_norm{};      ///< Adafactor's: of the weight before the step, and of `gradient`
    [[nodiscard]] auto inputs() const {
        return std::array{weight, gradient, m, v, compensation, weight_norm, direction_norm};
    }
    [[nodiscard]] auto outputs() const { return std::array{weight, m, v, compensation}; }
};
void run(Cpu& cpu, const Update& op);
void run(Cuda& cuda, const Update& op);

} // namespace amp::op
