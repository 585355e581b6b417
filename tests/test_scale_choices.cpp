// Scales that depend on more than an amax: 4-over-6, upper scales of lines, MS-EDEN. The ways to compute them agree
// (whole tensors, slabs of a file, a device's block after block), and what is random has no bias.
// tests/test_fp4_references.cpp compares them with their sources.
#include "io_files.h"
#include "oracle_scaled_cast.h"
#include "sweep.h"

#include <ampscope/sim/analysis/scaled_cast.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/backend/kernels/quantize.h>
#include <ampscope/sim/io/write.h>
#include <ampscope/sim/program/graph.h>

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

using namespace amp;
using namespace amp::test;

namespace {

std::vector<BlockScaling> choices() {
    std::vector<BlockScaling> all;
    for (const ScaleRule rule : {ScaleRule::nvfp4, ScaleRule::quartet})
        for (const FourOverSix chooses : {FourOverSix::off, FourOverSix::mae, FourOverSix::mse})
            for (const bool lines : {false, true})
                for (const auto& [rows, columns] : {std::pair(1, 16), std::pair(16, 1), std::pair(16, 16)})
                    if (!lines || rows != columns)
                        all.push_back({format("e2m1"),
                                       rows,
                                       columns,
                                       rule,
                                       {.e4m3_max = chooses == FourOverSix::mse ? 256 : 448,
                                        .level = lines ? UpperLevel::line : UpperLevel::tensor,
                                        .four_over_six = chooses}});
    all.push_back({.element = format("e2m1"), .rows = 1, .columns = 16, .rule = ScaleRule::ms_eden});
    all.push_back({.element = format("e2m1"), .rows = 16, .columns = 1, .rule = ScaleRule::ms_eden});
    for (const auto& [scale, level] : {std::pair("e8m0", UpperLevel::none), std::pair("e4m3", UpperLevel::tensor),
                                       std::pair("e5m2", UpperLevel::line), std::pair("fp16", UpperLevel::tensor)})
        for (const auto& [rows, columns] : {std::pair(1, 16), std::pair(32, 1)})
            all.push_back({.element = format("e2m1"),
                           .rows = rows,
                           .columns = columns,
                           .rule = ScaleRule::amax,
                           .upper = {.level = level},
                           .scale = format(scale)});
    return all;
}

std::string name_of(const BlockScaling& s) {
    return fmt::format("{} {}x{} {} {} {} {}", name_of(s.rule), s.rows, s.columns, int(s.upper.four_over_six),
                       s.upper.lines(), s.upper.e4m3_max, s.scale_format().name);
}

/// What quantize_blocks does to a whole tensor, and what it is made of.
struct Whole {
    BlockGrid grid;
    std::vector<float> amax, upper;
    std::vector<BlockScale> scales;

    Whole(const BlockScaling& s, const Matrix& x, const RandomKey& key = {})
        : grid(s.grid(static_cast<std::int64_t>(x.values.size()) / x.columns(), x.columns())),
          amax(block_amax(s, x.values, rows(x), x.columns())), upper(upper_scales(s, amax, rows(x), x.columns())),
          scales(block_scales(s, x.values, rows(x), x.columns(), amax, upper, key)) {}
    static std::int64_t rows(const Matrix& x) { return static_cast<std::int64_t>(x.values.size()) / x.columns(); }
    [[nodiscard]] float upper_of(const BlockScaling& s, std::size_t block) const {
        return upper[static_cast<std::size_t>(s.upper_of(grid, static_cast<std::int64_t>(block)))];
    }
};

} // namespace

TEST_CASE("a file's blocks have the scales and errors of the whole tensor's") {
    Tally tally;
    const Scratch scratch;
    for (const std::vector<std::uint64_t>& shape :
         {std::vector<std::uint64_t>{64, 96}, {70, 50}, {1500, 33}, {3, 40000}, {300}}) {
        const Matrix x = matrix_of(shape, 7, false);
        const std::int64_t rows = Whole::rows(x), columns = x.columns();
        TensorWriter writer =
            create_tensor_file(scratch / "x.safetensors", {{.name = "x", .dtype = DType::f32, .shape = x.shape}});
        writer.append(std::as_bytes(std::span(x.values)));
        writer.commit();
        const auto file = open_tensor_file(scratch / "x.safetensors");
        const auto compare = [&](const BlockScaling& s, Rounding rounding) {
            const Whole whole(s, x);
            std::vector<float> q(x.values.size());
            quantize_blocks(s, x.values, rows, columns, whole.scales, q, {.policy = {.rounding = rounding}});
            const ScaledResult got =
                measure_scaled(*file, 0, {.scaling = s, .rounding = rounding}, {.blocks = true, .threads = 2});
            REQUIRE(got.blocks.size() == whole.scales.size());
            std::vector<double> noise(got.blocks.size());
            for (std::size_t i = 0; i < q.size(); ++i) {
                const auto b = static_cast<std::size_t>(whole.grid.of(static_cast<std::int64_t>(i)));
                const float factor = s.factor(whole.scales[b].decode, whole.upper_of(s, b));
                const double error = x.values[i] - static_cast<double>(q[i]) * factor;
                noise[b] += error * error;
            }
            for (std::size_t b = 0; b < noise.size(); ++b) {
                const auto where = [&] { return fmt::format("{} of {} x {}: {}", name_of(s), rows, columns, b); };
                tally.expect(std::bit_cast<std::uint32_t>(got.blocks[b].scale),
                             std::bit_cast<std::uint32_t>(whole.scales[b].decode), where);
                tally.expect(std::uint32_t{std::fabs(got.blocks[b].noise - noise[b]) <= 1e-12 * noise[b]}, 1U, where);
            }
        };
        for (const BlockScaling& s : choices())
            for (const Rounding rounding : {Rounding::nearest_even, Rounding::stochastic})
                if (rounding == Rounding::nearest_even || columns > 10000) compare(s, rounding); // cast part by part
    }
    report("blocks of files whose scales depend on more than amaxes", tally);
}

TEST_CASE("NaN and infinities in a file choose no other scales than in a tensor") {
    Tally tally;
    const Scratch scratch;
    const Matrix x = matrix_of({150, 96}, 8, true);
    TensorWriter writer =
        create_tensor_file(scratch / "x.safetensors", {{.name = "x", .dtype = DType::f32, .shape = x.shape}});
    writer.append(std::as_bytes(std::span(x.values)));
    writer.commit();
    const auto file = open_tensor_file(scratch / "x.safetensors");
    for (const BlockScaling& s : choices()) {
        const Whole whole(s, x);
        const ScaledResult got = measure_scaled(*file, 0, {.scaling = s}, {.blocks = true, .threads = 2});
        REQUIRE(got.blocks.size() == whole.scales.size());
        std::uint64_t nonfinite = 0;
        for (std::size_t b = 0; b < got.blocks.size(); ++b) {
            const float d = got.blocks[b].scale, want = whole.scales[b].decode;
            nonfinite += got.blocks[b].nonfinite;
            tally.expect(std::uint32_t{d == want || (std::isnan(d) && std::isnan(want))}, 1U,
                         [&] { return fmt::format("{}: block {}: {} for {}", name_of(s), b, d, want); });
        }
        CHECK(nonfinite == 15);
    }
    report("scales of blocks with NaN and infinities", tally);
}

TEST_CASE("a device's scales, block after block, are the whole tensor's") {
    Tally tally;
    const RandomKey key{.seed = 5, .stream = 6, .step = 7};
    for (const std::vector<std::uint64_t>& shape : {std::vector<std::uint64_t>{64, 96}, {70, 50}, {5, 7}}) {
        const Matrix x = matrix_of(shape, 8, false);
        const std::int64_t rows = Whole::rows(x), columns = x.columns();
        for (const BlockScaling& s : choices()) {
            const Whole whole(s, x, key);
            std::vector<BlockScale> first;
            for (std::size_t b = 0; b < whole.amax.size(); ++b)
                first.push_back(s.scale_of(whole.amax[b], s.tensor_scale(whole.upper_of(s, b))));
            for (std::size_t b = 0; b < whole.amax.size(); ++b) {
                const auto block = static_cast<std::int64_t>(b);
                const kernels::MatrixOf matrix{x.values.data(), rows, columns};
                const float got =
                    s.rule == ScaleRule::ms_eden
                        ? kernels::corrected_scale(s, matrix, whole.grid, block, first.data(), key.word(b))
                    : s.upper.four_over_six == FourOverSix::off
                        ? first[b].decode
                        : kernels::chosen_scale(s, matrix, whole.grid, block, whole.amax[b], whole.upper_of(s, b))
                              .decode;
                tally.expect(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(whole.scales[b].decode),
                             [&] { return fmt::format("{} {} x {}: {}", name_of(s), rows, columns, b); });
            }
        }
    }
    report("scales of a device's blocks", tally);
}

TEST_CASE("the op casts as the library does, whatever the threads") {
    for (const BlockScaling& s : choices()) {
        CAPTURE(name_of(s));
        const Matrix x = matrix_of({200, 96}, 9, false);
        const Whole whole(s, x, {.seed = 3, .stream = 4, .step = 0});
        for (const int threads : {1, 3}) {
            Program program;
            Graph g(program, precision("fp32"));
            const TensorId in = g.input("x", {200, 96}), out = g.result("q", {200, 96}, s.element),
                           scale = g.result("d", {whole.grid.down, whole.grid.across}, format("fp32")),
                           upper =
                               g.result("u", s.upper.lines() ? Shape{s.upper_count(200, 96)} : Shape{}, format("fp32"));
            op::Quantize cast;
            cast.in = in, cast.out = out, cast.scale = scale, cast.upper = upper;
            cast.scaling = s;
            cast.stream = 4;
            g.append(cast, "");
            Cpu cpu(program, threads);
            cpu.context.seed = 3;
            std::ranges::copy(x.values, cpu[in].begin());
            replay(cpu, program.forward);
            std::vector<float> q(x.values.size());
            quantize_blocks(s, x.values, 200, 96, whole.scales, q);
            CHECK(std::ranges::equal(cpu[out], q));
            CHECK(std::ranges::equal(cpu[upper], whole.upper));
            CHECK(std::ranges::equal(cpu[scale], whole.scales, {}, {}, &BlockScale::decode));
        }
    }
}

namespace {

/// 32 numbers, normally distributed.
std::vector<float> normal(std::uint32_t step) {
    std::vector<float> x;
    for (std::uint64_t i = 0; i < 32; ++i) {
        const RandomKey key{.seed = 11, .stream = 1, .step = step};
        const double radius = (1.0 + key.word(2 * i)) / 0x1p32, angle = key.word(2 * i + 1) / 0x1p32;
        x.push_back(static_cast<float>(std::sqrt(-2 * std::log(radius)) * std::cos(6.283185307179586 * angle)));
    }
    return x;
}

/// How long the projection of what is read on x is, by x's length, for numbers that were rotated and cast.
double projection(const std::vector<float>& x, const BlockScaling& s, std::uint32_t step, bool corrected) {
    const RandomKey key{.seed = 1, .stream = 2, .step = step};
    const kernels::Rotation rotation{.size = 32, .factor = std::sqrt(1 / 32.0), .signs = key.word(100)};
    std::vector<float> y, q(x.size());
    for (std::int64_t j = 0; j < 32; ++j)
        y.push_back(static_cast<float>(kernels::rotated(rotation, x.data(), 32, 1, j)));
    const std::vector<float> amax = block_amax(s, y, 1, 32), upper = upper_scales(s, amax, 1, 32);
    std::vector<BlockScale> scales = block_scales(s, y, 1, 32, amax, upper, key);
    for (std::size_t b = 0; !corrected && b < scales.size(); ++b)
        scales[b] = block_scale(s.rule, s.element, amax[b], upper[0]);
    quantize_blocks(s, y, 1, 32, scales, q, {.policy = {.rounding = Rounding::nearest_away}});
    double product = 0, size = 0;
    for (std::size_t j = 0; j < y.size(); ++j) {
        product += static_cast<double>(y[j]) * q[j] * s.factor(scales[j / 16].decode, upper[0]);
        size += static_cast<double>(y[j]) * y[j];
    }
    return product / size;
}

} // namespace

TEST_CASE("MS-EDEN has no bias, which its rounding to nearest has without the correction") {
    const BlockScaling eden{.element = format("e2m1"), .rows = 1, .columns = 16, .rule = ScaleRule::ms_eden};
    constexpr std::uint32_t draws = 20000;
    double corrected = 0, plain = 0;
    for (std::uint32_t step = 0; step < draws; ++step) {
        const std::vector<float> x = normal(step);
        corrected += projection(x, eden, step, true) / draws;
        plain += projection(x, eden, step, false) / draws;
    }
    INFO("corrected ", corrected, ", plain ", plain);
    CHECK(std::fabs(corrected - 1) < 5e-4);
    CHECK(std::fabs(plain - 1) > 2e-3);
    // The scale of a block is rounded without bias: over all words its mean is the number itself.
    for (const float d : {1.0F, 13.0F, 240.0F}) {
        EdenSums sums{.squares = 1.03F, .products = 1};
        double mean = 0;
        for (std::uint32_t word = 0; word < 4096; ++word) mean += sums.corrected(d, word << 20) / 4096.0;
        CHECK(mean == doctest::Approx(d * 1.03F).epsilon(1e-4));
    }
}
