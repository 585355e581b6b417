// Ops that move numbers without changing them.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// out is `in` under another shape: no numbers move.
struct View {
    static constexpr std::string_view name = "view";
    TensorId in, out;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId view(Graph& g, TensorId in, Shape shape);
void backward(Graph& g, const View& op);
void run(Cpu& cpu, const View& op);
void run(Cuda& cuda, const View& op);

/// Axis i of out is axis order[i] of in; up to four axes.
struct Transpose {
    static constexpr std::string_view name = "transpose";
    TensorId in, out;
    std::array<int, 4> order{0, 1, 2, 3};
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
TensorId transpose(Graph& g, TensorId in, std::array<int, 4> order);
void backward(Graph& g, const Transpose& op);
void run(Cpu& cpu, const Transpose& op);
void run(Cuda& cuda, const Transpose& op);

} // namespace amp::op
