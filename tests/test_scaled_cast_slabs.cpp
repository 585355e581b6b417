// Casts with scales of a tensor whose slabs are rows of tiles: the blocks are those of the same numbers in FP32, whose
// slabs hold a row each.
#include "io_files.h"

#include <ampscope/sim/analysis/scaled_cast.h>
#include <ampscope/sim/io/tensor_file.h>

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

using namespace amp;
using namespace amp::test;

namespace {

auto facts_of_block(const ScaledBlock& b) {
    return std::tuple(b.row, b.column, b.scale, b.amax, b.least, b.elements, b.nonzero, b.underflow, b.saturated,
                      b.signal, b.noise);
}

} // namespace

TEST_CASE("packed numbers, of which a slab has whole rows of several tiles") {
    constexpr std::uint64_t rows = 17, columns = 40010; // of blocks in rows, no whole number
    constexpr std::array<float, 16> values = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0F, -0.5, -1, -1.5, -2, -3, -4, -6};
    std::vector<float> numbers;
    std::string packed;
    std::uint32_t random = 5;
    for (std::uint64_t i = 0; i < rows * columns; ++i) {
        const std::uint32_t code = (random = random * 1664525 + 1013904223) >> 28;
        numbers.push_back(values[code]);
        if (i % 2 == 0) packed.push_back(static_cast<char>(code));
        else packed.back() = static_cast<char>(packed.back() | static_cast<char>(code << 4));
    }
    const auto bytes = std::as_bytes(std::span(numbers));
    const Scratch scratch;
    const auto narrow =
        open_tensor_file(write_file(scratch / "narrow.bin", packed), {.dtype = DType::f4, .shape = {rows, columns}});
    const auto wide = open_tensor_file(
        write_file(scratch / "wide.bin", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())),
        {.dtype = DType::f32, .shape = {rows, columns}});
    const UpperScales line{.level = UpperLevel::line};
    for (const BlockScaling& scaling : {BlockScaling{format("e2m1"), 1, 32, ScaleRule::mx_te},
                                        BlockScaling{format("e2m1"), 1, 16, ScaleRule::nvfp4, line},
                                        BlockScaling{format("e2m1"), 16, 1, ScaleRule::nvfp4, line},
                                        BlockScaling{format("e2m1"), 2, 2, ScaleRule::nvfp4}})
        for (const Rounding rounding : {Rounding::nearest_even, Rounding::stochastic})
            for (const int threads : {1, 3}) {
                CAPTURE(scaling.rows);
                CAPTURE(scaling.columns);
                const ScaledCast cast{.scaling = scaling, .rounding = rounding};
                const ScaledResult got = measure_scaled(*narrow, 0, cast, {.blocks = true, .threads = threads}),
                                   want = measure_scaled(*wide, 0, cast, {.blocks = true, .threads = 1});
                REQUIRE(got.blocks.size() == want.blocks.size());
                for (std::size_t i = 0; i < want.blocks.size(); ++i)
                    REQUIRE(facts_of_block(got.blocks[i]) == facts_of_block(want.blocks[i]));
            }
}
