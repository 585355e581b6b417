// The op that casts with scales, on a tensor that several threads share: every number and every count is that of the
// definition.
#include "sweep.h"

#include <ampscope/formats/block.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/program/graph.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>

using namespace amp;
using namespace amp::test;

namespace {

constexpr std::int64_t rows = 197, columns = 416; // neither of blocks of 32, nor of slabs, a whole number

std::vector<float> numbers(bool specials) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> x;
    for (std::int64_t i = 0; i < rows * columns; ++i)
        x.push_back(std::ldexp(normal(random), static_cast<int>(i / columns % 40) - 20));
    if (specials) { // in the last slab, so that their maximum meets those of others
        x[rows * columns - 5] = std::numeric_limits<float>::quiet_NaN();
        x[rows * columns - columns - 70] = -std::numeric_limits<float>::infinity();
    }
    return x;
}

/// The scale of each block, by its row and column in the grid.
std::map<std::pair<std::int64_t, std::int64_t>, BlockScale> scales_of(const BlockScaling& s,
                                                                      const std::vector<float>& x) {
    const std::int64_t height = s.rows == 0 ? rows : s.rows, width = s.columns == 0 ? columns : s.columns;
    std::map<std::pair<std::int64_t, std::int64_t>, float> amax;
    float whole = 0;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
        float& most = amax[{i / columns / height, i % columns / width}];
        const float magnitude = std::fabs(x[static_cast<std::size_t>(i)]);
        const bool counts = !std::isnan(magnitude) || amax_keeps_nan(s.rule);
        if (counts && !std::isnan(most) && !(magnitude <= most)) most = magnitude;
        if (!std::isnan(magnitude)) whole = std::max(whole, magnitude);
    }
    std::map<std::pair<std::int64_t, std::int64_t>, BlockScale> scales;
    const float tensor_scale = s.rule == ScaleRule::nvfp4 ? nvfp4_tensor_scale(whole) : 1;
    for (const auto& [place, most] : amax) scales[place] = block_scale(s.rule, s.element, most, tensor_scale);
    return scales;
}

/// `saturated`: how many of their elements were.
void check(const OperandScaling& scaling, bool specials, Tally& tally, std::int64_t& saturated) {
    Program program;
    Graph g(program, precision("fp32"));
    const TensorId x = g.input("x", {rows, columns});
    const BlockScaling blocks = scaling.blocks(false);
    const std::vector<float> in = numbers(specials);
    const auto scales = scales_of(blocks, in);
    g.through(scaling, x);
    const auto* const op = std::get_if<op::Quantize>(&program.forward.front().op);
    REQUIRE(op != nullptr);
    REQUIRE(op->scaling == blocks);
    const std::int64_t height = blocks.rows == 0 ? rows : blocks.rows,
                       width = blocks.columns == 0 ? columns : blocks.columns;
    for (const int threads : {1, 5}) {
        Cpu cpu(program, threads);
        cpu.context = {.seed = 11, .step = 3, .micro_batch = 2, .micro_batches = 4};
        cpu.counts_roundings = cpu.counts_scalings = true;
        RoundingCounts counts; // of the definition
        std::ranges::copy(in, cpu[x].begin());
        replay(cpu, program.forward);
        const RandomKey key{.seed = 11, .stream = op->stream, .step = 3};
        for (std::int64_t i = 0; i < rows * columns; ++i) {
            const BlockScale& scale = scales.at({i / columns / height, i % columns / width});
            const auto at = static_cast<std::size_t>(i);
            tally.expect(cpu[op->out][at],
                         quantize_scaled(blocks.element, in[at], scale, scaling.rounding,
                                         key.word((cpu.context.part() << 40) + at)),
                         [&] { return fmt::format("{}, number {}, {} threads", name_of(scaling.rule), i, threads); });
            ++counts.elements;
            if (in[at] == 0 || !std::isfinite(in[at])) continue;
            ++counts.nonzero;
            counts.underflow += scale.decode == 0 || cpu[op->out][at] == 0;
            counts.overflow += scale.decode != 0 && is_clipped(blocks.element, scale.scaled(in[at]), scale);
        }
        const auto index = static_cast<std::size_t>(op->out.index);
        CHECK(cpu.roundings()[index] == counts);
        const ScalingCounts& c = cpu.scalings()[index];
        CHECK(std::array{c.elements, c.nonzero, c.underflow, c.saturated} ==
              std::array{counts.elements, counts.nonzero, counts.underflow, counts.overflow});
        saturated += counts.overflow;
    }
}

} // namespace

TEST_CASE("a cast with scales is that of the definition on any number of threads") {
    Tally tally;
    std::int64_t saturated = 0;
    for (const auto& [along, across, rule] : {std::tuple(0, 0, ScaleRule::te),
                                              {0, 1, ScaleRule::torchao},
                                              {32, 1, ScaleRule::mx_floor},
                                              {32, 1, ScaleRule::mx_te},
                                              {128, 128, ScaleRule::te_pow2},
                                              {16, 1, ScaleRule::nvfp4},
                                              {16, 16, ScaleRule::nvfp4}})
        for (const Rounding rounding : {Rounding::nearest_even, Rounding::stochastic})
            for (const bool by_columns : {false, true})
                check({.element = format(rule == ScaleRule::nvfp4 ? "e2m1" : "e4m3"),
                       .along = by_columns ? across : along,
                       .across = by_columns ? along : across,
                       .rule = rule,
                       .rounding = rounding},
                      rounding == Rounding::nearest_even, tally, saturated);
    CHECK(saturated > 0);
    report("casts with scales", tally);
}
