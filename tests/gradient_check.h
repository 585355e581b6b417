// An op's result and gradient in FP32 against its definition in numbers of 60 digits.
#pragma once

#include "reference_ops.h"

#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/base/noise.h>
#include <ampscope/sim/program/graph.h>

#include <doctest/doctest.h>

#include <functional>

namespace amp::test {

using reference::Real;
using reference::Reals;

/// An op, and its definition in numbers of 60 digits.
struct GradientCase {
    const char* name;
    std::vector<Shape> shapes; ///< shapes of the operands that have gradients
    std::function<TensorId(Graph&, const std::vector<TensorId>&)> build;
    std::function<Reals(const std::vector<Reals>&)> reference;
    std::vector<float> tokens{}; ///< elements of the input `tokens`
};

/// The sum of the reference's results, each multiplied by its weight.
inline Real weighted(const GradientCase& c, const std::vector<Reals>& operands, const Reals& weights) {
    const Reals out = c.reference(operands);
    Real sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * weights[i];
    return sum;
}

inline Real derivative(const GradientCase& c, std::vector<Reals> operands, const Reals& weights, std::size_t operand,
                       std::size_t i) {
    const Real h = 1e-20, x = operands[operand][i];
    operands[operand][i] = x + h;
    const Real above = weighted(c, operands, weights);
    operands[operand][i] = x - h;
    return (above - weighted(c, operands, weights)) / (2 * h);
}

/// The result in FP32 and the gradient of a weighted sum of it against the definition, by central differences.
inline void check_case(const GradientCase& c, std::uint64_t seed) {
    CAPTURE(c.name);
    Program program;
    Graph g(program, precision("fp32"));
    std::vector<TensorId> operands;
    for (std::size_t i = 0; i < c.shapes.size(); ++i)
        operands.push_back(g.parameter("x" + std::to_string(i), c.shapes[i], {}));
    const TensorId out = c.build(g, operands), weight = g.input("weights", g[out].shape);
    const TensorId loss = op::sum(g, op::mul(g, out, weight));
    g.differentiate(loss);

    Cpu cpu(program, 1);
    std::vector<Reals> exact(operands.size());
    Reals weights;
    for (std::size_t i = 0; i < operands.size(); ++i)
        for (std::size_t j = 0; j < cpu[operands[i]].size(); ++j) {
            cpu[operands[i]][j] = static_cast<float>(normal(seed, static_cast<std::uint32_t>(i), j));
            exact[i].emplace_back(cpu[operands[i]][j]);
        }
    for (std::size_t j = 0; j < cpu[weight].size(); ++j) {
        cpu[weight][j] = static_cast<float>(normal(seed, 1000, j));
        weights.emplace_back(cpu[weight][j]);
    }
    for (std::size_t i = 0; i < program.tensors.size(); ++i)
        if (program.tensors[i].name == "tokens")
            std::ranges::copy(c.tokens, cpu[{static_cast<std::int32_t>(i)}].begin());
    replay(cpu, program.forward);
    replay(cpu, program.backward);

    const Reals want = c.reference(exact);
    REQUIRE(want.size() == cpu[out].size());
    double largest = 0;
    for (const Real& x : want) largest = std::max(largest, std::abs(static_cast<double>(x)));
    for (std::size_t i = 0; i < want.size(); ++i)
        CHECK(std::abs(cpu[out][i] - static_cast<double>(want[i])) <= 1e-6 * largest);
    for (std::size_t i = 0; i < operands.size(); ++i) {
        CAPTURE(i);
        const TensorId gradient = g.gradient(operands[i]);
        REQUIRE(gradient);
        std::vector<double> slopes;
        double steepest = 0;
        for (std::size_t j = 0; j < exact[i].size(); ++j) {
            slopes.push_back(static_cast<double>(derivative(c, exact, weights, i, j)));
            steepest = std::max(steepest, std::abs(slopes.back()));
        }
        CHECK(steepest > 0);
        for (std::size_t j = 0; j < slopes.size(); ++j)
            CHECK(std::abs(cpu[gradient][j] - slopes[j]) <= 1e-6 * steepest);
    }
}

} // namespace amp::test
