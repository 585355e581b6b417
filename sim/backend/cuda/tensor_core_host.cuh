// Models of matrix instructions, for the host in place of a device: everything around an instruction runs as on a
// device, and the instruction itself is formats/dot.h. This tests layouts and loops, not hardware.
#pragma once

#include <ampscope/formats/dot.h>
#include <ampscope/sim/backend/cuda/tile.cuh>
#include <ampscope/sim/base/parallel.h>

#include <vector>

namespace amp::cuda {

/// The numbers in the words of a step.
inline std::vector<float> numbers_of(const FormatSpec& f, const std::uint32_t* words) {
    const int bits = f.bits() == 19 ? 32 : f.bits();
    std::vector<float> x;
    for (int w = 0; w < words_per_step; ++w)
        for (int e = 0; e < 32 / bits; ++e)
            x.push_back(bits == 32 ? std::bit_cast<float>(words[w]) : decode(f, words[w] >> (e * bits)));
    return x;
}

/// d += a b for one instruction: `lines` lines of a and 8 lines of b, each of eight words; d is distributed over the
/// threads as on a device.
template <bool fp16>
void model_multiply_add(const TensorCoreInstruction& i, const Accumulator& acc,
                        const std::uint32_t (*a)[words_per_step], int lines, const std::uint32_t (*b)[words_per_step],
                        std::vector<Thread<fp16>>& threads) {
    const FormatSpec a_read = acc.reads(i.a), b_read = acc.reads(i.b);
    std::vector<std::vector<float>> columns;
    for (int c = 0; c < 8; ++c) columns.push_back(numbers_of(i.b, b[c]));
    for (int r = 0; r < lines; r += 16) // the rows of one warp, whose threads have two each
        for (int g = 0; g < 8; ++g) {
            const std::vector<float> rows[2] = {numbers_of(i.a, a[r + g]), numbers_of(i.a, a[r + g + 8])};
            for (int t = 0; t < 4; ++t) {
                Sums<fp16>& sums = threads[static_cast<std::size_t>(r / 16 * 32 + g * 4 + t)].sums;
                float d[4];
                for (int s = 0; s < 4; ++s)
                    d[s] = dot_as_read(acc, a_read, b_read, rows[s / 2],
                                       columns[static_cast<std::size_t>(2 * t + s % 2)], sums.get(s));
                sums.set(d);
            }
        }
}

template <bool fp16>
void run_on_host(const TensorCoreInstruction& i, const Tiles& t) {
    const Accumulator acc = accumulator(i.accumulator);
    const int height = i.warpgroup ? 64 : 16;
    const std::int64_t tiles = t.batch * (t.a_lines / height) * (t.b_lines / 8);
    for_each_chunk(static_cast<std::uint64_t>(tiles), 1, 0, [&](std::uint64_t at, std::uint64_t) {
        const TilePlace tile(t, height, static_cast<std::int64_t>(at));
        std::vector<Thread<fp16>> threads;
        for (int thread = 0; thread < height * 2; ++thread) threads.emplace_back(tile, thread);
        sum_tile(t, threads, [&](std::int64_t w) {
            std::uint32_t a[64][words_per_step]{}, b[8][words_per_step]{};
            if (i.warpgroup) { // operands as the matrix unit reads them from shared memory
                std::uint32_t a_shared[64 * words_per_step], b_shared[8 * words_per_step];
                for (int thread = 0; thread < 128; ++thread) {
                    bring(tile.a(t), t.words, w, 64, thread, a_shared);
                    bring(tile.b(t), t.words, w, 8, thread, b_shared);
                }
                for (int l = 0; l < 64; ++l)
                    for (int k = 0; k < words_per_step; ++k) a[l][k] = a_shared[shared_place(l, k)];
                for (int l = 0; l < 8; ++l)
                    for (int k = 0; k < words_per_step; ++k) b[l][k] = b_shared[shared_place(l, k)];
            } else { // operands as they lie in a warp's registers
                for (int lane = 0; lane < 32; ++lane) {
                    const Fragments f(t, tile, lane, w);
                    for (int r = 0; r < 4; ++r) a[lane / 4 + r % 2 * 8][lane % 4 + r / 2 * 4] = f.a[r];
                    for (int r = 0; r < 2; ++r) b[lane / 4][lane % 4 + r * 4] = f.b[r];
                }
            }
            model_multiply_add<fp16>(i, acc, a, height, b, threads);
        });
    });
}

} // namespace amp::cuda
