// Casts with scales of a tensor whose slabs are rows of tiles: the blocks are those of the whole matrix.
#include "io_files.h"

#include <ampscope/formats/block.h>
#include <ampscope/sim/analysis/scaled_cast.h>
#include <ampscope/sim/io/tensor_file.h>

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

using namespace amp;
using namespace amp::test;

TEST_CASE("packed numbers, of which a slab has whole rows of several tiles") {
    constexpr std::uint64_t rows = 17, columns = 40010; // of blocks in rows, no whole number
    constexpr std::array<float, 16> values = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0F, -0.5, -1, -1.5, -2, -3, -4, -6};
    std::vector<float> numbers;
    std::string packed;
    std::uint32_t random = 5;
    for (std::uint64_t i = 0; i < rows * columns; ++i) {
        const std::uint32_t code = (random = random * 1664525 + 1013904223) >> 28;
        numbers.push_back(values[code] / 3); // so that random words decide how they round
        if (i % 2 == 0) packed.push_back(static_cast<char>(code));
        else packed.back() = static_cast<char>(packed.back() | static_cast<char>(code << 4));
    }
    const Scratch scratch;
    const auto file =
        open_tensor_file(write_file(scratch / "x.bin", packed), {.dtype = DType::f4, .shape = {rows, columns}});
    const UpperScales line{.level = UpperLevel::line};
    for (const BlockScaling& scaling : {BlockScaling{format("e2m1"), 1, 32, ScaleRule::mx_te},
                                        BlockScaling{format("e2m1"), 1, 16, ScaleRule::nvfp4, line},
                                        BlockScaling{format("e2m1"), 16, 1, ScaleRule::nvfp4, line},
                                        BlockScaling{format("e2m1"), 2, 2, ScaleRule::nvfp4}})
        for (const Rounding rounding : {Rounding::nearest_even, Rounding::stochastic}) {
            CAPTURE(scaling.rows);
            CAPTURE(scaling.columns);
            const std::vector<float> amax = block_amax(scaling, numbers, rows, columns);
            const std::vector<BlockScale> scales =
                block_scales(scaling, numbers, rows, columns, amax, upper_scales(scaling, amax, rows, columns));
            std::vector<float> q(numbers.size());
            quantize_blocks(scaling, numbers, rows, columns, scales, q, {.policy = {.rounding = rounding}});
            const BlockGrid grid = scaling.grid(rows, columns);
            std::vector<std::uint64_t> nonzero(scales.size()), underflow(scales.size());
            for (std::size_t i = 0; i < q.size(); ++i) {
                const auto block = static_cast<std::size_t>(grid.of(static_cast<std::int64_t>(i)));
                nonzero[block] += numbers[i] != 0;
                underflow[block] += numbers[i] != 0 && q[i] == 0;
            }
            for (const int threads : {1, 3}) {
                const ScaledResult got =
                    measure_scaled(*file, 0, {.scaling = scaling, .rounding = rounding, .recorded_scale = 3},
                                   {.blocks = true, .threads = threads});
                REQUIRE(got.blocks.size() == scales.size());
                for (std::size_t i = 0; i < scales.size(); ++i) {
                    const ScaledBlock& b = got.blocks[i];
                    REQUIRE(std::tuple(b.scale, b.amax, b.nonzero, b.underflow) ==
                            std::tuple(scales[i].decode, amax[i], nonzero[i], underflow[i]));
                }
            }
        }
}
