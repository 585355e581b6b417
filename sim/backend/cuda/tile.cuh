// How the threads of a warp, or of a warpgroup, divide a tile of a matrix product. Operands are stored as 32-bit words
// along k, eight (32 bytes) for an instruction. A word has one FP32 number, two 16-bit numbers or four FP8 codes, so
// one layout serves all instructions.
#pragma once

#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/cuda/tensor_core.h>
#include <ampscope/sim/backend/kernels/kernel.h>

namespace amp::cuda {

inline constexpr int words_per_step = 8;

/// Operands as words, and the place for the sums. Lines are padded with zeros to whole tiles and whole steps.
struct Tiles {
    const std::uint32_t *a, *b; ///< batch x lines x words
    const float* c;
    float* out;
    std::int64_t batch, m, n, a_lines, b_lines, words, promote_words;
};

/// The place of tile number `at`, which has `height` x 8 sums: its matrix, first row and first column.
struct TilePlace {
    std::int64_t matrix, row, column;

    AMPSCOPE_DEVICE TilePlace(const Tiles& t, std::int64_t height, std::int64_t at) {
        const std::int64_t across = t.b_lines / 8, tiles = t.a_lines / height * across;
        matrix = at / tiles;
        row = at % tiles / across * height;
        column = at % across * 8;
    }
    [[nodiscard]] AMPSCOPE_DEVICE const std::uint32_t* a(const Tiles& t) const {
        return t.a + (matrix * t.a_lines + row) * t.words;
    }
    [[nodiscard]] AMPSCOPE_DEVICE const std::uint32_t* b(const Tiles& t) const {
        return t.b + (matrix * t.b_lines + column) * t.words;
    }
};

/// A thread's four sums in the form in which an instruction holds them.
template <bool fp16>
struct Sums {
    float single[4];

    AMPSCOPE_DEVICE void set(const float (&x)[4]) {
        for (int i = 0; i < 4; ++i) single[i] = x[i];
    }
    [[nodiscard]] AMPSCOPE_DEVICE float get(int i) const { return single[i]; }
};
template <>
struct Sums<true> {
    std::uint32_t half[2]; ///< two FP16 sums in each word

    AMPSCOPE_DEVICE void set(const float (&x)[4]) {
        constexpr FormatSpec f = format("fp16");
        for (int i = 0; i < 2; ++i) half[i] = encode(f, x[2 * i]) | encode(f, x[2 * i + 1]) << 16;
    }
    [[nodiscard]] AMPSCOPE_DEVICE float get(int i) const {
        constexpr FormatSpec f = format("fp16");
        return decode(f, half[i / 2] >> (i % 2 * 16) & 0xffff, NanRule::all_ones);
    }
};

/// A thread and its sums: rows g and g + 8 and columns 2 t and 2 t + 1 of its warp's 16 x 8 sums, where g = lane / 4
/// and t = lane % 4 (PTX ISA, figures of mma.m16n8k16 and wgmma .m64n8).
template <bool fp16>
struct Thread {
    std::int64_t matrix = 0, row = 0, column = 0; ///< where the first sum lies in the product
    Sums<fp16> sums{};
    float totals[4]{};

    AMPSCOPE_DEVICE Thread(const TilePlace& tile, int thread)
        : matrix(tile.matrix), row(tile.row + thread / 32 * 16 + thread % 32 / 4),
          column(tile.column + thread % 4 * 2) {}

    AMPSCOPE_DEVICE void begin(const Tiles& t) {
        float first[4];
        for (int i = 0; i < 4; ++i) first[i] = t.c != nullptr && has(t, i) ? t.c[place(t, i)] : 0.0F;
        sums.set(first);
        if (t.promote_words != 0) promote(); // totals begin at c
    }
    /// Adds the instructions' sums to the totals and sets them to zero.
    AMPSCOPE_DEVICE void promote() {
        const float zeros[4]{};
        for (int i = 0; i < 4; ++i) totals[i] += sums.get(i);
        sums.set(zeros);
    }
    AMPSCOPE_DEVICE void end(const Tiles& t) const {
        for (int i = 0; i < 4; ++i)
            if (has(t, i)) t.out[place(t, i)] = t.promote_words != 0 ? totals[i] : sums.get(i);
    }

  private:
    [[nodiscard]] AMPSCOPE_DEVICE bool has(const Tiles& t, int i) const {
        return row + i / 2 * 8 < t.m && column + i % 2 < t.n;
    }
    [[nodiscard]] AMPSCOPE_DEVICE std::int64_t place(const Tiles& t, int i) const {
        return (matrix * t.m + row + i / 2 * 8) * t.n + column + i % 2;
    }
};

/// Sums over all of k: step(w) adds the products of the eight words from word w on to the sums of `threads`, which is
/// one thread on a device, and the whole warp or warpgroup on the host.
template <class Threads, class Step>
constexpr void sum_tile(const Tiles& t, Threads& threads, const Step& step) {
    for (auto& thread : threads) thread.begin(t);
    for (std::int64_t w = 0; w < t.words; w += words_per_step) {
        step(w);
        const std::int64_t done = w + words_per_step;
        if (t.promote_words == 0 || (done % t.promote_words != 0 && done != t.words)) continue;
        for (auto& thread : threads) thread.promote();
    }
    for (auto& thread : threads) thread.end(t);
}

/// The operands of one lane for mma.sync: a[r] is word t + 4 (r / 2) of line g + 8 (r % 2), b[r] is word t + 4 r of
/// line g.
struct Fragments {
    std::uint32_t a[4], b[2];

    AMPSCOPE_DEVICE Fragments(const Tiles& t, const TilePlace& tile, int lane, std::int64_t w) {
        const std::int64_t line = lane / 4 * t.words, word = w + lane % 4, lower = 8 * t.words;
        const std::uint32_t *const x = tile.a(t) + line + word, *const y = tile.b(t) + line + word;
        a[0] = x[0];
        a[1] = x[lower];
        a[2] = x[4];
        a[3] = x[lower + 4];
        b[0] = y[0];
        b[1] = y[4];
    }
};

/// Operands of wgmma lie in shared memory without swizzling, in cores of 8 lines x 16 bytes (128 bytes). The two cores
/// along k are 128 bytes apart, those of the next 8 lines 256 bytes.
inline constexpr int core_bytes_along_k = 128, core_bytes_next_lines = 256;

/// The index in shared memory of word w of a line's step.
AMPSCOPE_INLINE int shared_place(int line, int word) {
    return line / 8 * (core_bytes_next_lines / 4) + word / 4 * (core_bytes_along_k / 4) + line % 8 * 4 + word % 4;
}

/// Copies the share of thread `thread` of a warpgroup, of one step of `lines` lines, to shared memory.
AMPSCOPE_INLINE void bring(const std::uint32_t* from, std::int64_t words, std::int64_t w, int lines, int thread,
                           std::uint32_t* shared) {
    for (int i = thread; i < lines * words_per_step; i += 128)
        shared[shared_place(i / words_per_step, i % words_per_step)] =
            from[i / words_per_step * words + w + i % words_per_step];
}

} // namespace amp::cuda
