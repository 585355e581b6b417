// The fast matrix product with every accumulator against dot.h, which test_accumulator.cpp proves.
#include "accumulator_inputs.h"
#include "sweep.h"

#include <ampscope/formats/scaled_dot.h>
#include <ampscope/sim/backend/cpu/detail/accumulate.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>

using namespace amp;
using namespace amp::test;
using cpu::MatrixView;

namespace {

struct Case {
    std::string name, a, b;
};

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    for (const HardwareRow& row : hardware_rows) {
        const std::string name(row.name), first(row.operands.substr(0, row.operands.find(' ')));
        cases.push_back({name, first, first});
        if (!row.acc16.empty()) cases.push_back({name + "-acc16", first, first});
        cases.push_back({name + "-split2", first, first});
        if (first != row.operands && !row.acc16.empty()) {
            cases.push_back({name, "e4m3", "e5m2"});
            cases.push_back({name + "-acc16", "e5m2", "e5m2"});
            cases.push_back({name + "-promote64", "e5m2", "e4m3"});
        }
    }
    cases.push_back({"hopper-fp16", "e4m3", "fp16"});
    cases.push_back({"ampere-tf32", "fp32", "fp32"});
    cases.push_back({"ampere-fp16-promote24", "fp16", "fp16"});
    for (const char* name : {"exact",
                             "pairwise",
                             "kahan",
                             "fp32",
                             "bf16",
                             "fp32-promote16",
                             "exact-promote8",
                             "fp32-split2",
                             "kahan-split2cyclic",
                             "exact-promote8-split3pairs",
                             "bf16-split2cyclic",
                             "fp16",
                             "tf32",
                             "e8m21",
                             "e8m22",
                             "e8m1",
                             "e6m9",
                             "e5m2",
                             "e4m3",
                             "binary16p11",
                             "binary8p3se"})
        cases.push_back({name, "fp32", "fp32"});
    for (const char* name : {"bf16", "fp16", "binary16p8se"}) cases.push_back({name, name, name});
    cases.push_back({"exact", "e4m3", "e5m2"});
    cases.push_back({"ada-e4m3-promote128-split2cyclic", "e4m3", "e4m3"});
    cases.push_back({"blackwell-mxf4nvf4-promote64-split3pairs", "e2m1", "e2m1"});
    return cases;
}

struct Shape {
    std::int64_t m, n, k;
};
constexpr Shape shapes[] = {{1, 1, 1},    {3, 33, 7},  {2, 5, 70},  {5, 40, 33},
                            {1, 300, 16}, {4, 3, 129}, {2, 3, 300}, {3, 130, 40}};

/// Checks a product in a layout that follows from the seed, on every instruction set.
void check(const Case& c, Shape s, const std::vector<float>& a, const std::vector<float>& b, std::string_view kind,
           std::uint_fast32_t seed, Tally& tally) {
    const Accumulator acc = accumulator(c.name);
    const FormatSpec fa = format(c.a), fb = format(c.b);
    const bool transpose_a = seed % 2 == 0, transpose_b = seed % 3 == 0;
    const MatrixView x = transpose_a ? MatrixView{a.data(), 1, s.m} : MatrixView{a.data(), s.k, 1},
                     y = transpose_b ? MatrixView{b.data(), 1, s.k} : MatrixView{b.data(), s.n, 1};
    std::vector<float> want;
    for (std::int64_t i = 0; i < s.m; ++i)
        for (std::int64_t j = 0; j < s.n; ++j) {
            std::vector<float> row, column;
            for (std::int64_t l = 0; l < s.k; ++l) {
                row.push_back(x.data[i * x.row_stride + l * x.column_stride]);
                column.push_back(y.data[l * y.row_stride + j * y.column_stride]);
            }
            const float d = dot(acc, fa, fb, row, column);
            want.push_back(std::isnan(d) ? std::bit_cast<float>(0x7fc00000) : d);
        }
    for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set) {
        std::vector<float> out(want.size(), 42.0F);
        cpu::accumulate(acc, fa, fb, x, y, out.data(), s.m, s.n, s.k, 1, static_cast<InstructionSet>(set));
        for (std::size_t i = 0; i < want.size(); ++i)
            tally.expect(out[i], want[i], [&] {
                return fmt::format("{} {} x {}, {} x {} x {}, element {}, {}, set {}, seed {}", c.name, c.a, c.b, s.m,
                                   s.n, s.k, i, kind, set, seed);
            });
    }
}

} // namespace

TEST_CASE("every product is the dot product of dot.h, in any shape, layout and instruction set") {
    const std::vector<Case> cases = all_cases();
    prove("matrix products of every accumulator", cases.size() * inputs_names.size() * std::size(shapes),
          [&](std::uint64_t i, Tally& tally) {
              const std::uint64_t which = i / std::size(shapes);
              const Case& c = cases[which % cases.size()];
              const Shape s = shapes[i % std::size(shapes)];
              const auto kind = static_cast<Inputs>(which / cases.size());
              const auto seed = static_cast<std::uint_fast32_t>(i);
              check(c, s, Operands(c.a, seed).make(kind, static_cast<std::size_t>(s.m * s.k)),
                    Operands(c.b, seed + 1).make(kind, static_cast<std::size_t>(s.k * s.n)),
                    inputs_names[static_cast<std::size_t>(kind)], seed, tally);
          });
}

TEST_CASE("chains whose products are near the ends of FP32's exponents, and beyond") {
    const std::vector<Case> cases = {{"bf16", "bf16", "bf16"}, {"fp16", "bf16", "bf16"}, {"tf32", "tf32", "bf16"}};
    constexpr int ends[][2] = {{0, 0}, {-64, -60}, {-63, -63}, {-66, -64}, {-120, -6}, {-130, 4}, {62, 63}, {64, 64}};
    prove("chains near the ends of FP32's exponents", cases.size() * std::size(ends) * 8,
          [&](std::uint64_t i, Tally& tally) {
              const Case& c = cases[i % cases.size()];
              const int* const exponents = ends[i / cases.size() % std::size(ends)];
              std::mt19937 random(static_cast<std::uint_fast32_t>(i));
              const auto numbers = [&](std::string_view name, std::size_t n, int exponent) {
                  std::vector<float> x(n);
                  for (float& e : x) {
                      const float significand = 1 + static_cast<float>(random() % 1024) / 1024;
                      e = std::ldexp(random() % 2 == 0 ? significand : -significand, exponent - int(random() % 4));
                      e = random() % 16 == 0 ? 0 : quantize(format(name), e);
                  }
                  return x;
              };
              const Shape s{3, 37, 50};
              check(c, s, numbers(c.a, 150, exponents[0]), numbers(c.b, 1850, exponents[1]), "near the ends",
                    static_cast<std::uint_fast32_t>(i), tally);
          });
}

TEST_CASE("chains whose sums are so little above a tie that FP32 does not tell") {
    prove("chains just above ties", 1023, [](std::uint64_t i, Tally& tally) {
        const int x = 1025 + static_cast<int>(i), y = (1 << 21) / x; // products of 22 bits, about 2^21
        const Shape s{1, 8, 2};
        const std::vector<float> a = {1 + std::ldexp(static_cast<float>(i), -10),
                                      std::ldexp(static_cast<float>(x), -16)};
        std::vector<float> b(16, 1.0F);
        for (int j = 0; j < 8; ++j) b[static_cast<std::size_t>(8 + j)] = std::ldexp(static_cast<float>(y + j - 3), -16);
        const std::vector<float> columns = {b.begin(), b.end()};
        for (const std::uint_fast32_t seed : {1U, 5U})
            check({"fp16", "fp16", "fp16"}, s, a, columns, "ties", seed, tally);
    });
}

TEST_CASE("sums of a step that do not fit in 32 bits with the sum so far") {
    for (const auto& [name, operand] : {std::pair{"hopper-fp16", 0x1.ffcp0F}, {"hopper-bf16", 0x1.fep0F}})
        for (const float sign : {1.0F, -1.0F}) {
            const Accumulator acc = accumulator(name);
            const FormatSpec f = format(acc.operands);
            std::vector<float> a(32, 0.0F), b(32, sign * operand);
            a[0] = 1; // the sum so far, in units of 2^-25, is 2^25, and 16 products add up to nearly 2^31
            b[0] = sign;
            std::fill(a.begin() + 16, a.end(), operand);
            for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set) {
                float out = 0;
                cpu::accumulate(acc, f, f, {a.data(), 32, 1}, {b.data(), 1, 1}, &out, 1, 1, 32, 1,
                                static_cast<InstructionSet>(set));
                CHECK(out == dot(acc, f, f, a, b));
                CHECK(std::fabs(out) > 64);
            }
        }
}

namespace {

struct ScaledCase {
    Shape shape;
    Accumulator accumulator;
    FormatSpec a_format, b_format, scales;
    std::size_t block, k = 0, blocks = 0;
    std::vector<float> a{}, b{}, a_scales{}, b_scales{};
};

ScaledCase scaled_case(std::uint64_t index) {
    constexpr Shape with_blocks[] = {{1, 1, 1}, {3, 33, 64}, {2, 40, 100}, {5, 3, 33}, {2, 34, 400}, {3, 70, 64}};
    const char* const rows[] = {"blackwell-fp8",
                                "blackwell-fp8-acc16",
                                "blackwell-mxf4nvf4",
                                "blackwell-mxf4nvf4",
                                "blackwell-mxf4nvf4-promote64",
                                "blackwell-mxf4nvf4-split2cyclic",
                                "blackwell-fp8-promote64-split2"};
    const std::string row = rows[index / std::size(with_blocks) % std::size(rows)];
    const bool fp4 = row.starts_with("blackwell-mxf4nvf4"), e4m3 = fp4 && index % 3 == 0;
    ScaledCase c{.shape = with_blocks[index % std::size(with_blocks)],
                 .accumulator = accumulator(row),
                 .a_format = format(fp4 ? "e2m1" : "e4m3"),
                 .b_format = format(fp4 || index % 3 == 0 ? "e2m1" : "e5m2"),
                 .scales = format(e4m3 ? "e4m3" : "e8m0"),
                 .block = fp4 && index % 2 == 0 ? 16U : 32U};
    c.k = static_cast<std::size_t>(c.shape.k);
    c.blocks = (c.k + c.block - 1) / c.block;
    std::mt19937 random(static_cast<std::uint_fast32_t>(index));
    const auto kind = static_cast<Inputs>(random() % inputs_names.size());
    const auto m = static_cast<std::size_t>(c.shape.m), n = static_cast<std::size_t>(c.shape.n);
    c.a = Operands(c.a_format.name, random()).make(kind, m * c.k);
    c.b = Operands(c.b_format.name, random()).make(kind, n * c.k);
    const auto scales_of = [&](std::size_t lines) {
        const bool any = random() % 2 == 0;
        std::vector<float> scales(lines * c.blocks);
        for (float& x : scales) {
            const auto power = static_cast<int>(random() % (any ? 255 : 25)) - (any ? 127 : 12);
            x = e4m3 ? decode(c.scales, static_cast<std::uint32_t>(random() % 256)) : std::ldexp(1.0F, power);
        }
        if (random() % 4 == 0) scales[0] = std::numeric_limits<float>::quiet_NaN();
        return scales;
    };
    c.a_scales = scales_of(m);
    c.b_scales = scales_of(n);
    return c;
}

} // namespace

TEST_CASE("scales within the sums") {
    prove("matrix products of blocks with scales", 2100, [&](std::uint64_t index, Tally& tally) {
        const ScaledCase c = scaled_case(index);
        const Shape s = c.shape;
        for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set) {
            std::vector<float> out(static_cast<std::size_t>(s.m * s.n), 42.0F);
            cpu::accumulate_scaled(c.accumulator, c.a_format, c.b_format, {c.a.data(), s.k, 1}, {c.b.data(), 1, s.k},
                                   {c.a_scales.data(), c.b_scales.data(), c.scales, static_cast<std::int64_t>(c.block)},
                                   out.data(), s.m, s.n, s.k, 1, static_cast<InstructionSet>(set));
            for (std::size_t i = 0; i < out.size(); ++i) {
                const std::size_t row = i / static_cast<std::size_t>(s.n), column = i % static_cast<std::size_t>(s.n);
                const auto line = [](const std::vector<float>& of, std::size_t n, std::size_t which) {
                    return std::span(of).subspan(which * n, n);
                };
                const float d = scaled_dot(
                    c.accumulator, c.a_format, c.b_format, {line(c.a, c.k, row), line(c.a_scales, c.blocks, row)},
                    {line(c.b, c.k, column), line(c.b_scales, c.blocks, column)}, c.block, c.scales);
                tally.expect(out[i], std::isnan(d) ? std::bit_cast<float>(0x7fc00000) : d, [&] {
                    return fmt::format("{}, case {}, set {}, element {}", c.accumulator.name, index, set, i);
                });
            }
        }
    });
}

TEST_CASE("an infinity after or before an overflow") {
    // 2^127 + 2^127 overflows in the first step or in the last; the other step has -infinity.
    const float inf = std::numeric_limits<float>::infinity();
    std::vector<float> a(48, 1.0F), b(48, 0.0F);
    const auto product = [&] {
        float out = 0;
        cpu::accumulate(accumulator("hopper-bf16"), format("bf16"), format("bf16"), {a.data(), 48, 1}, {b.data(), 1, 1},
                        &out, 1, 1, 48);
        return out;
    };
    b[20] = -inf;
    CHECK(product() == -inf);
    b[0] = b[1] = 0x1p127F;
    CHECK(std::bit_cast<std::uint32_t>(product()) == 0x7fc00000); // the first step's infinity minus infinity
    std::swap(b[0], b[40]);
    std::swap(b[1], b[41]);
    CHECK(product() == -inf); // no finite number changes it
}

TEST_CASE("exact sums of which two doubles lose what breaks a tie") {
    const float large = 0x1p50F, small = 0x1p-50F; // 24929 * 673 is 2^24 + 1, halfway between two floats
    const std::vector<std::array<float, 2>> pairs = {{large, large}, {24929, 673}, {small, small}, {large, -large}};
    std::vector<std::size_t> order = {0, 1, 2, 3};
    Tally tally;
    do {
        constexpr std::int64_t columns = 40;
        std::vector<float> a, b;
        for (const std::size_t i : order) {
            a.push_back(pairs[i][0]);
            b.insert(b.end(), columns, pairs[i][1]);
        }
        for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set) {
            std::vector<float> out(columns);
            cpu::accumulate(accumulator("exact"), format("fp32"), format("fp32"), {a.data(), 4, 1},
                            {b.data(), columns, 1}, out.data(), 1, columns, 4, 1, static_cast<InstructionSet>(set));
            for (const float sum : out)
                tally.expect(sum, 0x1p24F + 2, [&] { return fmt::format("set {}: {:a}", set, sum); });
        }
    } while (std::ranges::next_permutation(order).found);
    report("exact sums of 200 bits", tally);
}

TEST_CASE("threads change nothing") {
    const std::vector<float> x = Operands("e4m3", 1).make(Inputs::normal, 300 * 300);
    for (const char* name : {"hopper-wgmma-fp8", "exact", "bf16"}) {
        std::vector<float> one(300 * 300), three(one);
        for (auto [out, threads] : {std::pair{&one, 1}, std::pair{&three, 3}})
            cpu::accumulate(accumulator(name), format("e4m3"), format("e4m3"), {x.data(), 300, 1}, {x.data(), 1, 300},
                            out->data(), 300, 300, 300, threads);
        CHECK(one == three);
    }
}
