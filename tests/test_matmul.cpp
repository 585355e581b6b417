// The matrix product against its definition: a chain of the C library's correctly rounded fma, element by element.
#include "sweep.h"

#include <ampscope/formats/codec.h>
#include <ampscope/formats/names.h>
#include <ampscope/sim/backend/cpu/detail/matmul.h>

#include <doctest/doctest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace amp;
using namespace amp::test;
using cpu::MatrixView;

namespace {

struct Shape {
    std::int64_t m, n, k;
};

/// Numbers of widely different magnitudes, so that the order of additions matters; with some zeros, subnormals and, if
/// asked for, infinities and NaN of either sign.
std::vector<float> numbers(std::int64_t count, std::uint32_t seed, bool specials) {
    std::mt19937 random(seed);
    std::vector<float> x(static_cast<std::size_t>(count));
    for (float& v : x) {
        const auto word = static_cast<std::uint32_t>(random());
        const auto kind = random() % 64;
        v = std::ldexp(1.0F + static_cast<float>(word & 0x7fffff) * 0x1p-23F, static_cast<int>(word >> 23 & 31) - 16);
        if (kind == 0) v = 0;
        if (kind == 1) v = std::ldexp(v, -130);
        if (kind == 2) v = std::ldexp(v, 90);
        if (specials && kind == 3 && random() % 16 == 0) v = std::numeric_limits<float>::infinity();
        if (specials && kind == 4 && random() % 16 == 0) v = std::numeric_limits<float>::quiet_NaN();
        if (word >> 31 != 0) v = -v;
    }
    return x;
}

float at(const MatrixView& x, std::int64_t i, std::int64_t j) { return x.data[i * x.row_stride + j * x.column_stride]; }

/// The definition: chains of blocks, each times its scales.
float element(const MatrixView& a, const MatrixView& b, const cpu::BlockScales& scales, std::int64_t k, std::int64_t i,
              std::int64_t j) {
    float total = 0, sum = 0;
    for (std::int64_t l = 0; l < k; ++l) {
        sum = std::fma(at(a, i, l), at(b, l, j), sum);
        if (scales.block == 0 || ((l + 1) % scales.block != 0 && l + 1 < k)) continue;
        const std::int64_t c = l / scales.block;
        const float scale = at(scales.a, i, c) * at(scales.b, c, j);
        total = c == 0 ? sum * scale : std::fma(sum, scale, total);
        sum = 0;
    }
    const float result = scales.block == 0 ? sum : total;
    return std::isnan(result) ? std::bit_cast<float>(0x7fc00000) : result;
}

/// Checks every element, in every layout and on every instruction set, against the definition; with scales for blocks
/// of `block` numbers, or without any.
Tally check(Shape s, int threads, bool specials, std::int64_t block = 0) {
    Tally tally;
    const std::vector<float> a = numbers(s.m * s.k, 1, specials), b = numbers(s.k * s.n, 2, specials);
    const std::int64_t blocks = block == 0 ? 0 : (s.k + block - 1) / block;
    const std::vector<float> of_a = numbers(s.m * blocks, 3, specials), of_b = numbers(s.n * blocks, 4, specials);
    const cpu::BlockScales scales{block, {of_a.data(), blocks, 1}, {of_b.data(), 1, blocks}};
    for (const bool transpose_a : {false, true})
        for (const bool transpose_b : {false, true}) {
            const MatrixView x = transpose_a ? MatrixView{a.data(), 1, s.m} : MatrixView{a.data(), s.k, 1};
            const MatrixView y = transpose_b ? MatrixView{b.data(), 1, s.k} : MatrixView{b.data(), s.n, 1};
            std::vector<float> want;
            for (std::int64_t i = 0; i < s.m; ++i)
                for (std::int64_t j = 0; j < s.n; ++j) want.push_back(element(x, y, scales, s.k, i, j));
            for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set) {
                std::vector<float> out(want.size(), 42.0F);
                cpu::matmul(x, y, out.data(), s.m, s.n, s.k, threads, static_cast<InstructionSet>(set), scales);
                for (std::size_t i = 0; i < want.size(); ++i)
                    tally.expect(out[i], want[i], [&] {
                        return fmt::format("{} x {} x {}, element {}, set {}, transposed {} {}, blocks of {}", s.m, s.n,
                                           s.k, i, set, transpose_a, transpose_b, block);
                    });
            }
        }
    return tally;
}

} // namespace

TEST_CASE("every element is the chain of fused multiply-adds, whatever the shape, layout, vector width and threads") {
    Tally tally;
    for (const Shape s : {Shape{1, 1, 1},
                          {1, 7, 3},
                          {5, 1, 9},
                          {8, 48, 16},
                          {9, 49, 17},
                          {16, 96, 255},
                          {23, 31, 257},
                          {64, 64, 64},
                          {64, 32, 300},
                          {1040, 64, 9},
                          {24, 32, 600},
                          {8, 160, 9},
                          {70, 200, 5},
                          {200, 60, 33},
                          {193, 50, 20},
                          {3, 1030, 7},
                          {17, 3, 600}})
        for (const bool specials : {false, true})
            for (const int threads : {1, 3}) tally.merge(check(s, threads, specials));
    report("matrix products against chains of fma", tally);
}

TEST_CASE("with scales, every element is the sum of chains times their scales") {
    Tally tally;
    for (const Shape s :
         {Shape{1, 1, 1}, {9, 49, 17}, {23, 31, 257}, {70, 200, 64}, {3, 40, 1030}, {193, 50, 20}, {50, 1, 70}})
        for (const std::int64_t block : {1, 16, 32, 128, 600, 2000}) // one block: complete sums are scaled
            for (const bool specials : {false, true}) tally.merge(check(s, specials ? 1 : 3, specials, block));
    report("scaled matrix products against their definition", tally);
}

TEST_CASE("operands in 16 bits are the numbers that their codes stand for") {
    Tally tally;
    const auto view = [](const auto& from, std::int64_t rows, std::int64_t columns, bool transposed) {
        return transposed ? MatrixView{from.data(), 1, rows} : MatrixView{from.data(), columns, 1};
    };
    for (const FormatSpec format : {amp::format("bf16"), amp::format("fp16"), amp::format("e8m3")})
        for (const Shape s : {Shape{1, 1, 1}, {9, 49, 17}, {23, 31, 257}, {70, 200, 5}, {200, 60, 700}, {3, 1030, 40}})
            for (int layout = 0; layout < 16; ++layout) {
                std::mt19937 random(7);
                const auto make = [&](std::int64_t count, std::vector<std::uint16_t>& codes) {
                    std::vector<float> values;
                    for (std::int64_t i = 0; i < count; ++i) {
                        codes.push_back(static_cast<std::uint16_t>(random() >> (i % 9 == 0 ? 16 : 18))); // many below 2
                        values.push_back(decode(format, codes.back()));
                    }
                    return values;
                };
                std::vector<std::uint16_t> a_codes, b_codes;
                const std::vector<float> a = make(s.m * s.k, a_codes), b = make(s.k * s.n, b_codes);
                const MatrixView x = view(a, s.m, s.k, (layout & 1) != 0), y = view(b, s.k, s.n, (layout & 2) != 0);
                std::vector<float> want;
                for (std::int64_t i = 0; i < s.m; ++i)
                    for (std::int64_t j = 0; j < s.n; ++j) want.push_back(element(x, y, {}, s.k, i, j));
                const auto encoded = [&](MatrixView v, const std::vector<std::uint16_t>& codes) {
                    return MatrixView{nullptr, v.row_stride, v.column_stride, codes.data(), format};
                };
                for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set) {
                    std::vector<float> out(want.size(), 42.0F);
                    cpu::matmul((layout & 4) != 0 ? x : encoded(x, a_codes),
                                (layout & 8) != 0 ? y : encoded(y, b_codes), out.data(), s.m, s.n, s.k, layout % 3,
                                static_cast<InstructionSet>(set));
                    for (std::size_t i = 0; i < want.size(); ++i)
                        tally.expect(out[i], want[i], [&] {
                            return fmt::format("{} {} x {} x {}, element {}, set {}, layout {}", format.name, s.m, s.n,
                                               s.k, i, set, layout);
                        });
                }
            }
    report("products of codes against the products of their values", tally);
}

TEST_CASE("each element belongs to one part, which is complete when it is called done") {
    for (const Shape s : {Shape{1, 1, 1}, {200, 300, 64}, {70, 900, 33}, {200, 300, 700}, {5, 4, 0}}) {
        const std::vector<float> a = numbers(s.m * s.k, 1, false), b = numbers(s.k * s.n, 2, false);
        std::vector<float> want(static_cast<std::size_t>(s.m * s.n)), out(want.size()), seen(want.size(), 42.0F);
        std::vector<std::atomic<int>> calls(want.size());
        cpu::matmul({a.data(), s.k, 1}, {b.data(), s.n, 1}, want.data(), s.m, s.n, s.k, 1);
        cpu::matmul({a.data(), s.k, 1}, {b.data(), s.n, 1}, out.data(), s.m, s.n, s.k, 3, best_instruction_set(), {},
                    nullptr, [&](std::int64_t row, std::int64_t column, cpu::ProductPart part) {
                        for (std::int64_t i = row; i < row + part.rows; ++i)
                            for (std::int64_t j = column; j < column + part.columns; ++j) {
                                const auto at = static_cast<std::size_t>(i * s.n + j);
                                ++calls[at];
                                seen[at] = out[at];
                            }
                    });
        for (std::size_t i = 0; i < want.size(); ++i) {
            CHECK(calls[i] == 1);
            CHECK(seen[i] == want[i]);
        }
    }
}

TEST_CASE("a bias is added to complete sums, which may be scaled, and rounded once") {
    Tally tally;
    for (const Shape s : {Shape{1, 1, 1}, {1, 70, 3}, {50, 1, 7}, {9, 49, 17}, {64, 64, 600}, {4, 3, 0}})
        for (const std::int64_t block : {0, 16, 1000})
            for (const int threads : {1, 3})
                for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set) {
                    const std::int64_t blocks = block == 0 ? 0 : (s.k + block - 1) / block;
                    const std::vector<float> a = numbers(s.m * s.k, 1, true), b = numbers(s.k * s.n, 2, true),
                                             of_a = numbers(s.m * blocks, 4, true),
                                             of_b = numbers(s.n * blocks, 5, true);
                    std::vector<float> bias = numbers(s.n, 3, true);
                    bias.back() = -0.0F;
                    const MatrixView x{a.data(), s.k, 1}, y{b.data(), s.n, 1};
                    const cpu::BlockScales scales{block, {of_a.data(), blocks, 1}, {of_b.data(), 1, blocks}};
                    std::vector<float> out(static_cast<std::size_t>(s.m * s.n));
                    cpu::matmul(x, y, out.data(), s.m, s.n, s.k, threads, static_cast<InstructionSet>(set), scales,
                                bias.data());
                    for (std::int64_t i = 0; i < s.m * s.n; ++i) {
                        const float sum =
                            element(x, y, scales, s.k, i / s.n, i % s.n) + bias[static_cast<std::size_t>(i % s.n)];
                        tally.expect(out[static_cast<std::size_t>(i)],
                                     std::isnan(sum) ? std::bit_cast<float>(0x7fc00000) : sum, [&] {
                                         return fmt::format("{} x {} x {}, element {}, set {}, blocks of {}", s.m, s.n,
                                                            s.k, i, set, block);
                                     });
                    }
                }
    report("products with a bias against chains of fma and an addition", tally);
}

TEST_CASE("a first block of negative zeros stays one") {
    const float a[2] = {-1, 1}, b[2] = {0, 0}, scale[2] = {1, 1};
    for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set) {
        float out = 0;
        cpu::matmul({a, 1, 1}, {b, 1, 1}, &out, 1, 1, 1, 1, static_cast<InstructionSet>(set),
                    {1, {scale, 1, 1}, {scale, 1, 1}});
        CHECK(std::bit_cast<std::uint32_t>(out) == 0); // the chain begins at +0
        const float minus = -1;
        cpu::matmul({a, 1, 1}, {b, 1, 1}, &out, 1, 1, 1, 1, static_cast<InstructionSet>(set),
                    {1, {&minus, 1, 1}, {scale, 1, 1}});
        CHECK(std::bit_cast<std::uint32_t>(out) == 0x80000000); // and is multiplied, not added to +0
    }
}

TEST_CASE("nothing to add is +0, nothing to make is nothing") {
    float out[4] = {1, 2, 3, 4};
    cpu::matmul({nullptr, 0, 1}, {nullptr, 2, 1}, out, 2, 2, 0);
    for (const float x : out) CHECK(std::bit_cast<std::uint32_t>(x) == 0);
    cpu::matmul({out, 1, 1}, {out, 1, 1}, nullptr, 0, 4, 1);
}

TEST_CASE("the order of additions is the one stated: another order gives other bits") {
    // 1 + 2^-24 twice: in order, each is a tie that rounds down; if the small ones were added first, the last place
    // would change.
    const float a[3] = {1, 1, 1}, b[3] = {1, 0x1p-24F, 0x1p-24F}, c[3] = {0x1p-24F, 0x1p-24F, 1};
    float out = 0;
    cpu::matmul({a, 3, 1}, {b, 1, 1}, &out, 1, 1, 3);
    CHECK(out == 1.0F);
    cpu::matmul({a, 3, 1}, {c, 1, 1}, &out, 1, 1, 3);
    CHECK(out == 1.0F + 0x1p-23F);
}

TEST_CASE("products are not rounded before they are added") {
    const float x = 1 + 0x1p-12F; // x * x = 1 + 2^-11 + 2^-24
    const float a[2] = {-1 - 0x1p-11F, x}, b[2] = {1, x};
    for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set) {
        float out = 0;
        cpu::matmul({a, 2, 1}, {b, 1, 1}, &out, 1, 1, 2, 1, static_cast<InstructionSet>(set));
        CHECK(out == 0x1p-24F);
    }
}

TEST_CASE("a sum next to a tie is not taken for one") {
    // (1 + u)(1 - u) = 1 - u^2, so c + product is a tie of FP32 but for a part far below the last place of FP64.
    for (int k = 15; k <= 22; ++k)
        for (const float c : {1 + 0x1p-23F, 1 + 3 * 0x1p-23F, 1 + 0x1p-22F})
            for (const float sign_c : {1.0F, -1.0F})
                for (const float sign_product : {1.0F, -1.0F}) {
                    const float u = std::ldexp(1.0F, -k);
                    const float a[2] = {sign_c * c, sign_product * 0x1p-12F * (1 + u)}, b[2] = {1, 0x1p-12F * (1 - u)};
                    for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set) {
                        CAPTURE(set);
                        float out = 0;
                        cpu::matmul({a, 2, 1}, {b, 1, 1}, &out, 1, 1, 2, 1, static_cast<InstructionSet>(set));
                        CHECK(out == std::fma(a[1], b[1], a[0]));
                    }
                }
}
