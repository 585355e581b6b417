// Pooling over squares that do not overlap. Images are batch x height x width x channels.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

enum class PoolKind : std::uint8_t { max, average };

/// out = the largest (NaN if any is NaN) or the mean of size x size pixels; pixels left over at the border are dropped.
struct Pool {
    static constexpr std::string_view name = "pool2d";
    PoolKind kind = PoolKind::max;
    TensorId in, out;
    std::int64_t size = 2;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId pool(Graph& g, PoolKind kind, TensorId in, std::int64_t size);
void backward(Graph& g, const Pool& op);

/// max: grad_out goes to the first pixel that is the largest, +0 to the others. average: grad_out / size^2 goes to
/// each.
struct PoolBackward {
    static constexpr std::string_view name = "pool2d_backward";
    PoolKind kind = PoolKind::max;
    TensorId in, grad_out, grad_in;
    std::int64_t size = 2;
    [[nodiscard]] auto inputs() const { return std::array{in, grad_out}; }
    [[nodiscard]] auto outputs() const { return std::array{grad_in}; }
};
void run(Cpu& cpu, const PoolBackward& op);
void run(Cuda& cuda, const PoolBackward& op);

} // namespace amp::op
