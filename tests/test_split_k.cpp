// Sums in parts against exact integers, whose parts are gathered product by product.
#include "accumulator_inputs.h"
#include "oracle_accumulator.h"
#include "sweep.h"

#include <ampscope/formats/scaled_dot.h>

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <string>
#include <vector>

using namespace amp;
using namespace amp::test;

namespace {

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

/// Which of k products belong to which part, found by asking of each product where it goes.
std::vector<std::vector<std::size_t>> parts_of(const std::string& order, std::size_t parts, std::size_t k) {
    std::vector<std::vector<std::size_t>> all(parts);
    const std::size_t tile = order.empty() ? 128 : 64, tiles = (k + tile - 1) / tile;
    const std::size_t in_a_row = (tiles + parts - 1) / parts;
    for (std::size_t i = 0; i < k; ++i) all[order.empty() ? i / (tile * in_a_row) : i / tile % parts].push_back(i);
    return all;
}

} // namespace

TEST_CASE("split-K") {
    std::vector<oracle::Matrix> some;
    for (const oracle::Matrix& m : oracle::matrices())
        for (const char* name : {"hopper-wgmma-fp8", "ada-e4m3", "hopper-mma-fp8", "hopper-fp16-acc16",
                                 "blackwell-bf16", "blackwell-mxf4nvf4"})
            if (m.name == name) some.push_back(m);
    prove("dot products in parts", 6000, [&](std::uint64_t index, Tally& tally) {
        std::mt19937 random(static_cast<std::uint32_t>(index));
        const oracle::Matrix& m = some[index % some.size()];
        const std::string order = std::array{"", "cyclic", "pairs"}[index / some.size() % 3];
        const std::size_t parts = 2 + random() % 7, k = random() % 1500;
        const bool promotes = m.result != "fp16" && random() % 2 == 0;
        const std::string name = fmt::format("{}{}-split{}{}", m.name, promotes ? "-promote128" : "", parts, order);
        const std::vector<float> a = Operands(m.a, random()).make(Inputs::scaled, k),
                                 b = Operands(m.b, random()).make(Inputs::scaled, k);
        RandomScales scales("e4m3", 16, (k + 15) / 16, random);
        const bool scaled = m.group != 0 && random() % 2 == 0;
        std::vector<float> sums;
        for (const std::vector<std::size_t>& part : parts_of(order, parts, k)) {
            float total = 0;
            const std::size_t chunk = promotes ? 128 : std::max<std::size_t>(part.size(), 1);
            for (std::size_t first = 0; first < part.size(); first += chunk) {
                std::vector<float> x, y;
                oracle::Scales some_scales;
                some_scales.block = 16;
                for (std::size_t i = first; i < std::min(first + chunk, part.size()); ++i) {
                    x.push_back(a[part[i]]);
                    y.push_back(b[part[i]]);
                    if (scaled && i % 16 == 0) some_scales.products.push_back(scales.products.products[part[i] / 16]);
                }
                total = std::bit_cast<float>(oracle::add(m.result == "fp16" ? "fp16" : "fp32", total,
                                                         std::bit_cast<float>(oracle::dot(m, x, y, 0, some_scales))));
            }
            sums.push_back(total);
        }
        const auto add = [&](float x, float y) {
            return std::bit_cast<float>(oracle::add(m.result == "fp16" ? "fp16" : "fp32", x, y));
        };
        float want = scaled ? 0 : 0.25F; // the sum so far
        const float c = want;
        if (order == "pairs") {
            want = add(want, sums[parts - 1]);
            const std::size_t half = (parts + 1) / 2;
            for (std::size_t i = 0; i < half; ++i)
                want = add(want, i + half < parts - 1 ? add(sums[i], sums[i + half]) : sums[i]);
        } else {
            for (const float sum : sums) want = add(want, sum);
        }
        const float got = scaled ? scaled_dot(accumulator(name), format(m.a), format(m.b), {a, scales.a}, {b, scales.b},
                                              16, format("e4m3"))
                                 : dot(accumulator(name), format(m.a), format(m.b), a, b, c);
        tally.expect(bits(got), bits(want), [&] { return fmt::format("{}, k {}, case {}", name, k, index); });
    });
    // A part's sum begins anew: the total is that of the parts.
    const std::vector<float> ones(256, 1.0F);
    CHECK(dot(accumulator("e6m4-split2"), format("fp32"), format("fp32"), ones, ones) == 64); // each part stops at 32
    CHECK(dot(accumulator("fp32-split3"), format("fp32"), format("fp32"), ones, ones, 1) == 257);
}
