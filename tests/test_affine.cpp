// Scales with zero points: what ONNX Runtime and PyTorch themselves choose and store (recorded by
// tests/data/affine_references/record.py, a million numbers and more a rule), then blocks that are not full, NaN,
// infinities, clipping and every rounding against the definition, in the processor's floats.
#include "io_files.h"
#include "oracle_scaled_cast.h"
#include "recordings.h"
#include "sweep.h"

#include <ampscope/sim/analysis/scaled_cast.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/backend/kernels/quantize.h>
#include <ampscope/sim/findings/histogram_recipe.h>
#include <ampscope/sim/io/write.h>

#include <doctest/doctest.h>

#include <cfloat>
#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

struct Recorded {
    int bits = 0;
    std::uint32_t rows = 0, columns = 0, height = 0, width = 0, seed = 0;
    std::string scales, zeros, codes;
};

std::vector<Recorded> recordings() {
    std::vector<Recorded> result;
    for (std::istringstream& words : recorded_lines("affine_references/recordings.txt")) {
        Recorded& r = result.emplace_back();
        words >> r.bits >> r.rows >> r.columns >> r.height >> r.width >> r.seed >> r.scales >> r.zeros >> r.codes;
    }
    return result;
}

/// The numbers that record.py makes.
std::vector<float> numbers(const Recorded& r) {
    const std::uint32_t steps = (1U << r.bits) - 1;
    std::vector<float> x;
    for (std::uint32_t i = 0; i < r.rows; ++i)
        for (std::uint32_t j = 0; j < r.columns; ++j) {
            const std::uint32_t base = mixed(mixed(i / r.height + r.seed) + j / r.width),
                                word = mixed(mixed(i + 7 * r.seed + 1) + j), kind = base >> 29;
            std::uint32_t bits = (word & 0x807fffff) | (130 - base % 14 - (word >> 24) % 6) << 23;
            if (kind == 1) bits &= 0x7fffffff;
            if (kind == 2) bits |= 0x80000000;
            if (kind == 0 || mixed(word) % 8 == 0) bits = word & 0x80000000;
            float halves = static_cast<float>(word % (2 * steps + 1)) * 0.5F;
            if (i % r.height == 0 && j % r.width == 0) halves = static_cast<float>(steps);
            if (i % r.height == 0 && j % r.width == 1) halves = 0;
            const float factor = std::array{1.0F, 1.1F, 1.3F, 1.7F}[(base >> 8) % 4],
                        tie = (halves - static_cast<float>(base % (steps + 1))) *
                              std::ldexp(factor, static_cast<int>(base % 5));
            x.push_back(kind >= 5 ? tie : std::bit_cast<float>(bits));
        }
    return x;
}

BlockScaling affine(int bits, std::int64_t rows, std::int64_t columns, float clip = 1) {
    return {.element = format(bits == 8 ? "int8" : "int4"),
            .rows = rows,
            .columns = columns,
            .rule = ScaleRule::affine,
            .clip = clip};
}

std::vector<BlockScale> scales_of(const BlockScaling& s, const std::vector<float>& x, std::int64_t rows,
                                  std::int64_t columns) {
    const std::vector<float> amax = block_amax(s, x, rows, columns);
    return block_scales(s, x, rows, columns, amax, upper_scales(s, amax, rows, columns));
}

/// The definition in the processor's floats: scale, zero point and code of a number.
struct Definition {
    float scale = 1, zero = 0, steps;

    Definition(int bits, const std::vector<float>& block, float clip) : steps(static_cast<float>((1 << bits) - 1)) {
        float least = 0, largest = 0;
        for (const float x : block)
            if (!std::isnan(x)) least = std::min(least, x), largest = std::max(largest, x);
        least *= clip, largest *= clip;
        const float range = largest - least, quotient = range / steps;
        if (quotient > 0 && std::isfinite(quotient)) scale = quotient;
        zero = std::min(std::nearbyint((0 - least) / scale), steps);
    }
    /// The code, 0 to steps; NaN becomes the largest. `beyond`: whether the number was clipped.
    [[nodiscard]] float code(float x, bool& beyond) const {
        const float whole = std::nearbyint(x / scale) + zero;
        beyond = whole < 0 || whole > steps;
        return std::isnan(whole) ? steps : std::min(std::max(whole, 0.0F), steps);
    }
};

/// Blocks of all kinds: numbers of one sign and both, zeros, and where `special` NaN and infinities among them.
std::vector<float> tensor(std::int64_t count, std::uint32_t seed, bool special) {
    std::vector<float> x;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t word = mixed(i + seed * 77777), kind = mixed(i / 40 + seed) % 6;
        float value = std::ldexp(static_cast<float>(word % 65536) / 32768 - 1, static_cast<int>(kind) * 3 - 6);
        if (kind == 1) value = std::fabs(value);
        if (kind == 2) value = -std::fabs(value);
        if (kind == 3) value = 0;
        if (special && word % 131 == 1) value = std::numeric_limits<float>::quiet_NaN();
        if (special && word % 733 == 2) value = word % 2 == 0 ? HUGE_VALF : -HUGE_VALF;
        x.push_back(value);
    }
    return x;
}

struct Blocks {
    BlockScaling scaling;
    std::int64_t rows, columns;
    std::vector<float> x;
    BlockGrid grid = scaling.grid(rows, columns);

    [[nodiscard]] std::size_t of(std::size_t i) const {
        return static_cast<std::size_t>(grid.of(static_cast<std::int64_t>(i)));
    }
    [[nodiscard]] std::vector<Definition> definitions() const {
        std::vector<std::vector<float>> members(static_cast<std::size_t>(grid.count()));
        for (std::size_t i = 0; i < x.size(); ++i) members[of(i)].push_back(x[i]);
        std::vector<Definition> all;
        for (const auto& block : members) all.emplace_back(scaling.element.bits(), block, scaling.clip);
        return all;
    }
};

/// Every shape of block on tensors that they do not fill, with and without NaN and infinities.
std::vector<Blocks> all_blocks() {
    std::vector<Blocks> all;
    for (const int bits : {8, 4})
        for (const auto& [rows, columns] : {std::pair(37, 150), {1, 100}, {600, 33}})
            for (const auto& [height, width] :
                 {std::pair(0, 0), {1, 0}, {0, 1}, {1, 32}, {1, 64}, {1, 128}, {32, 1}, {16, 16}})
                for (const float clip : {1.0F, 0.75F})
                    for (const bool special : {false, true})
                        all.push_back({affine(bits, height, width, clip), rows, columns,
                                       tensor(rows * columns, static_cast<std::uint32_t>(all.size()), special)});
    return all;
}

std::string words(const Blocks& b) {
    return fmt::format("{} in {} x {} of {} x {}, clip {}", b.scaling.element.name, b.scaling.rows, b.scaling.columns,
                       b.rows, b.columns, b.scaling.clip);
}

} // namespace

TEST_CASE("scales, zero points and codes of ONNX Runtime and PyTorch") {
    const std::vector<Recorded> all = recordings();
    REQUIRE(all.size() == 14);
    prove("tensors of 2^20 numbers with zero points, as hashes", all.size() * 3, [&](std::uint64_t n, Tally& tally) {
        const Recorded& r = all[n / 3];
        const std::vector<float> x = numbers(r);
        const BlockScaling s = affine(r.bits, r.height, r.width);
        const std::vector<BlockScale> scales = scales_of(s, x, r.rows, r.columns);
        std::vector<float> decode_scales, q(x.size());
        std::vector<std::uint8_t> zeros, codes;
        for (const BlockScale& scale : scales) {
            decode_scales.push_back(scale.decode);
            zeros.push_back(static_cast<std::uint8_t>(-scale.low));
        }
        quantize_blocks(s, x, r.rows, r.columns, scales, q);
        const BlockGrid grid = s.grid(r.rows, r.columns);
        for (std::size_t i = 0; i < q.size(); ++i)
            codes.push_back(static_cast<std::uint8_t>(
                q[i] + zeros[static_cast<std::size_t>(grid.of(static_cast<std::int64_t>(i)))]));
        const auto where = [&] { return fmt::format("{} bits, {} x {}, part {}", r.bits, r.height, r.width, n % 3); };
        if (n % 3 == 0) tally.expect(hash_of(decode_scales) == r.scales, true, where);
        if (n % 3 == 1) tally.expect(hash_of(zeros) == r.zeros, true, where);
        if (n % 3 == 2) tally.expect(hash_of(codes) == r.codes, true, where);
    });
}

TEST_CASE("tails of blocks, NaN, infinities and clipping, number by number") {
    Tally tally;
    for (const Blocks& b : all_blocks()) {
        const std::vector<BlockScale> scales = scales_of(b.scaling, b.x, b.rows, b.columns);
        const std::vector<Definition> want = b.definitions();
        std::vector<float> q(b.x.size());
        quantize_blocks(b.scaling, b.x, b.rows, b.columns, scales, q);
        for (std::size_t i = 0; i < q.size(); ++i) {
            const BlockScale& scale = scales[b.of(i)];
            const Definition& d = want[b.of(i)];
            const auto where = [&] { return fmt::format("{}, number {}, {:a}", words(b), i, b.x[i]); };
            bool beyond = false;
            const float code = d.code(b.x[i], beyond);
            tally.expect(scale.decode, d.scale, where);
            tally.expect(0 - scale.low, d.zero, where);
            tally.expect(q[i], code - d.zero, where);
            tally.expect(quantize_scaled(b.scaling.element, b.x[i], scale), q[i], where);
            if (!std::isnan(b.x[i]))
                tally.expect(std::uint32_t{is_clipped(b.scaling.element, scale.scaled(b.x[i]), scale)},
                             std::uint32_t{beyond}, where);
            if (b.scaling.clip == 1 && std::isfinite(b.x[i]) && d.scale != 1) // half a step, one where z was rounded
                tally.expect(std::uint32_t{std::fabs(q[i] * d.scale - b.x[i]) <= d.scale * 1.0001F}, 1U, where);
        }
    }
    report("numbers with zero points against the definition", tally);
}

TEST_CASE("ranges at the ends of FP32") {
    const FormatSpec int8 = format("int8");
    const float inf = HUGE_VALF;
    const auto scale = [&](float least, float largest) { return affine_scale(int8, {least, largest}); };
    CHECK(scale(0, 0).decode == 1); // as ONNX Runtime
    CHECK(scale(0, 0).low == 0);
    CHECK(scale(0, 255).decode == 1);
    CHECK(scale(-255, 0).low == -255);
    CHECK(scale(-127.5F, 127.5F).low == -128);   // to the even integer
    CHECK(scale(-FLT_MAX, FLT_MAX).decode == 1); // the difference is infinite
    CHECK(scale(-FLT_MAX, FLT_MAX).low == -255);
    CHECK(scale(0, 0x1p-149F).decode == 1); // the quotient is zero
    CHECK(scale(-inf, 3).decode == 1);
    CHECK(scale(-inf, 3).low == -255);
    CHECK(quantize_scaled(int8, -inf, scale(-inf, 3)) == -255);
    CHECK(quantize_scaled(int8, std::nanf(""), scale(-1, 3)) == scale(-1, 3).high);
    CHECK(block_scale(ScaleRule::affine, int8, 510).decode == 2);
    static_assert(affine_scale(format("int4"), {-3, 12}).low == -3);
}

TEST_CASE("every rounding, in arrays and number by number") {
    Tally tally;
    const RandomKey key{.seed = 1, .stream = 2, .step = 3};
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::nearest_away, Rounding::toward_zero, Rounding::up,
                                    Rounding::down, Rounding::stochastic}) {
        const Blocks b{affine(8, 1, 64), 50, 200, tensor(10000, 5, true)};
        const std::vector<BlockScale> scales = scales_of(b.scaling, b.x, b.rows, b.columns);
        std::vector<float> q(b.x.size());
        quantize_blocks(b.scaling, b.x, b.rows, b.columns, scales, q, {.policy = {.rounding = rounding}, .key = key});
        for (std::size_t i = 0; i < q.size(); ++i) {
            const BlockScale& scale = scales[b.of(i)];
            const std::uint32_t word = rounding == Rounding::stochastic ? key.word(i) : 0;
            const auto where = [&] { return fmt::format("{}, number {}", name_of(rounding), i); };
            tally.expect(q[i], quantize_scaled(b.scaling.element, b.x[i], scale, rounding, word), where);
            if (!std::isfinite(b.x[i])) continue;
            const float exact = b.x[i] / scale.decode, down = std::floor(exact), up = std::ceil(exact);
            const bool near = q[i] == down || q[i] == up || q[i] == scale.low || q[i] == scale.high;
            tally.expect(std::uint32_t{near}, 1U, where);
        }
    }
    report("roundings with zero points", tally);
}

TEST_CASE("the op of the trainer stores and counts the same, on any number of threads; so does a device's code") {
    Tally tally;
    for (const Blocks& b : all_blocks()) {
        if (b.scaling.rows == 0 && b.scaling.columns == 1) continue; // no block of an op
        Program program;
        const auto add = [&](const char* name, Shape shape, const FormatSpec& f) {
            program.tensors.push_back({.name = name, .shape = std::move(shape), .format = f});
            return TensorId{static_cast<std::int32_t>(program.tensors.size() - 1)};
        };
        op::Quantize cast{.in = add("x", {b.rows, b.columns}, format("fp32")),
                          .out = add("q", {b.rows, b.columns}, b.scaling.stored()),
                          .scale = add("d", {b.grid.down, b.grid.across}, format("fp32")),
                          .upper = {},
                          .delayed = {},
                          .history = {},
                          .scaling = b.scaling};
        const std::vector<BlockScale> scales = scales_of(b.scaling, b.x, b.rows, b.columns);
        std::vector<float> q(b.x.size());
        quantize_blocks(b.scaling, b.x, b.rows, b.columns, scales, q);
        std::int64_t clipped = 0;
        const std::vector<Definition> want = b.definitions();
        for (std::size_t i = 0; i < q.size(); ++i) {
            bool beyond = false;
            static_cast<void>(want[b.of(i)].code(b.x[i], beyond));
            clipped += beyond && std::isfinite(b.x[i]) ? 1 : 0;
        }
        for (const int threads : {1, 3}) {
            Cpu cpu(program, threads);
            cpu.counts_scalings = true;
            std::ranges::copy(b.x, cpu[cast.in].begin());
            run(cpu, cast);
            for (std::size_t i = 0; i < q.size(); ++i)
                tally.expect(cpu[cast.out][i], q[i], [&] { return fmt::format("{}, number {}", words(b), i); });
            for (std::size_t i = 0; i < scales.size(); ++i)
                tally.expect(cpu[cast.scale][i], scales[i].decode, [&] { return words(b) + ", a scale"; });
            tally.expect(cpu.scalings()[static_cast<std::size_t>(cast.out.index)].saturated, clipped,
                         [&] { return words(b) + ", clipped"; });
        }
        for (std::size_t i = 0; i < scales.size(); ++i) {
            const BlockRange range =
                kernels::range_of({b.x.data(), b.rows, b.columns}, b.grid, static_cast<std::int64_t>(i));
            tally.expect(b.scaling.scale_of(range).low, scales[i].low, [&] { return words(b) + ", a device's"; });
        }
    }
    report("casts with zero points by the trainer's op", tally);
}

TEST_CASE("what a recorded tensor loses") {
    const Scratch scratch;
    Tally tally;
    for (const Blocks& b : all_blocks()) {
        TensorWriter writer = create_tensor_file(
            scratch / "x.safetensors",
            {{.name = "x",
              .dtype = DType::f32,
              .shape = {static_cast<std::uint64_t>(b.rows), static_cast<std::uint64_t>(b.columns)}}});
        writer.append(std::as_bytes(std::span(b.x)));
        writer.commit();
        const ScaledResult got = measure_scaled(*open_tensor_file(scratch / "x.safetensors"), 0, {.scaling = b.scaling},
                                                {.blocks = true, .threads = 2});
        const std::vector<Definition> want = b.definitions();
        REQUIRE(got.blocks.size() == want.size());
        std::vector<ScaledBlock> sums(want.size());
        for (std::size_t i = 0; i < b.x.size(); ++i) {
            if (!std::isfinite(b.x[i])) continue;
            const Definition& d = want[b.of(i)];
            ScaledBlock& sum = sums[b.of(i)];
            bool beyond = false;
            const double x = b.x[i], back = static_cast<double>(d.code(b.x[i], beyond) - d.zero) * d.scale;
            sum.saturated += beyond ? 1 : 0;
            sum.underflow += x != 0 && back == 0 ? 1 : 0;
            sum.noise += (x - back) * (x - back);
        }
        for (std::size_t i = 0; i < sums.size(); ++i) {
            const auto where = [&] { return fmt::format("{}, block {}", words(b), i); };
            tally.expect(got.blocks[i].scale, want[i].scale, where);
            tally.expect(got.blocks[i].saturated, sums[i].saturated, where);
            tally.expect(got.blocks[i].underflow, sums[i].underflow, where);
            tally.expect(std::uint32_t{std::fabs(got.blocks[i].noise - sums[i].noise) <= 1e-9 * sums[i].noise}, 1U,
                         where);
        }
    }
    report("blocks with zero points of recorded tensors", tally);
}

TEST_CASE("options of recipes, and what they refuse") {
    const auto refused = [](const char* text, const char* why) {
        try {
            static_cast<void>(recipe_choice(text));
            return false;
        } catch (const std::invalid_argument& error) {
            const std::string message = error.what();
            return message.find(why) != std::string::npos && message.find('\n') == std::string::npos;
        }
    };
    CHECK(refused("int8,rule=affine", "needs the format int8 or int4, not int8sym"));
    CHECK(refused("te-current,rule=affine", "not e4m3"));
    CHECK(refused("int8,format=mxint8,rule=affine", "not mxint8"));
    CHECK(refused("int4,forward=e4m3", "the rule affine needs the format int8 or int4, not e4m3"));
    CHECK(refused("te-mxfp8,clip=0.9", "only the rules te and affine clip"));
    CHECK(refused("te-delayed,clip=0.9", "delayed scaling does not clip"));
    for (const char* clip : {"int8,clip=0", "int8,clip=1.5", "int8,clip=nan", "int8,clip=x", "int8,clip="})
        CHECK(refused(clip, "expected a number from 0.01 to 1"));
    const RecipeChoice choice = recipe_choice("int8,format=int8,rule=affine,weight-block=1x64,clip=0.9");
    CHECK(choice.recipe.weight.rule == ScaleRule::affine);
    CHECK(choice.recipe.weight.along == 64);
    CHECK(choice.recipe.input.clip == 0.9F);
    CHECK(choice.recipe.weight.blocks(false).clip == 0.9F);
    for (const int bits : {8, 4}) // what is stored has a bit more than the element
        CHECK(affine(bits, 1, 0).stored() ==
              detail::integer_format(bits == 8 ? "int9" : "int5", bits + 1, 0, Negatives::twos_complement));
    // Symmetric: the amax of each block is clipped alike.
    const float x[] = {10, -3, 1, 2};
    std::vector<float> q(4);
    const std::vector<float> d =
        quantize_blocks({.element = format("int8sym"), .rows = 1, .columns = 2, .clip = 0.5F}, x, 1, 4, q);
    CHECK(q == std::vector<float>{127, -76, 127, 127});
    CHECK(d[0] == 1 / (127.0F / 5));
}
