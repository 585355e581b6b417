// The optimizer's step on one parameter.
#pragma once

#include <ampscope/sim/optim/optimizer.h>
#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// What update() of backend/update.h does, with the learning rate and the number of the step that the backend is told.
struct Update {
    static constexpr std::string_view name = "update";
    OptimizerOptions options{};
    UpdateRounding rounding = UpdateRounding::nearest;
    TensorId weight, gradient, m, v, compensation; ///< the last three where the optimizer has them
    std::uint32_t stream = 0;                      ///< of stochastic rounding: the number of the parameter
    [[nodiscard]] auto inputs() const { return std::array{weight, gradient, m, v, compensation}; }
    [[nodiscard]] auto outputs() const { return std::array{weight, m, v, compensation}; }
};
void run(Cpu& cpu, const Update& op);
void run(Cuda& cuda, const Update& op);

} // namespace amp::op
