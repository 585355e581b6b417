// Block formats: the scales of every rule against the processor's floats, published tables, and casts of whole tensors.
#include "accumulator_inputs.h"
#include "sweep.h"

#include <ampscope/formats/block.h>

#include <doctest/doctest.h>

#include <cfloat>
#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

/// The decode scale of a rule as its source computes it, with the processor's floats and the C library.
float reference_scale(ScaleRule rule, float max, int emax, int fraction_bits, float amax) {
    const auto power = [](int e) { return std::ldexp(1.0F, std::min(std::max(e, -127), 127)); };
    const auto ceil_log2 = [](float x) {
        int e = 0;
        const float fraction = std::frexp(x, &e); // [0.5, 1)
        return fraction == 0.5F ? e - 1 : e;
    };
    const auto te = [&] {
        if (amax == 0 || !std::isfinite(amax)) return 1.0F;
        const float s = max / amax;
        return std::isinf(s) ? FLT_MAX : s;
    };
    const auto floor_pow2 = [](float s) {
        int e = 0;
        std::frexp(s, &e);
        return std::ldexp(1.0F, e - 1);
    };
    const auto torch_pow2 = [](float s) { // torch's log2 is rounded to FP32
        return std::exp2(std::floor(static_cast<float>(std::log2(static_cast<double>(s)))));
    };
    switch (rule) {
    case ScaleRule::te: return 1 / te();
    case ScaleRule::te_pow2: return 1 / floor_pow2(te());
    case ScaleRule::torchao: return 1 / static_cast<float>(max / std::max(static_cast<double>(amax), 1e-12));
    case ScaleRule::torchao_pow2:
        return 1 / torch_pow2(static_cast<float>(max / std::max(static_cast<double>(amax), 1e-12)));
    case ScaleRule::deepseek:
    case ScaleRule::deepgemm: return std::max(amax, 1e-4F) / max;
    case ScaleRule::deepseek_pow2:
    case ScaleRule::deepgemm_pow2: return std::ldexp(1.0F, ceil_log2(std::max(amax, 1e-4F) / max));
    case ScaleRule::mx_floor: return amax == 0 ? power(-127) : power(std::ilogb(amax) - emax);
    case ScaleRule::mx_even: {
        // Rounded half up to the element's precision: all that matters is whether the binade changes.
        const float rounded = amax == 0 ? 0 : amax + std::ldexp(1.0F, std::ilogb(amax) - fraction_bits - 1);
        if (std::isinf(rounded)) return power(128 - emax);
        return rounded == 0 ? power(-127) : power(std::ilogb(rounded) - emax);
    }
    case ScaleRule::mx_ceil: return amax == 0 ? power(-127) : power(ceil_log2(amax) - emax);
    case ScaleRule::mx_rceil: return amax / max == 0 ? power(-127) : power(ceil_log2(amax / max));
    case ScaleRule::mx_te: return amax * (1 / max) == 0 ? power(-127) : power(ceil_log2(amax * (1 / max)));
    case ScaleRule::ms_amp:
        if (amax == 0) return 1;
        return std::isinf(max / amax) ? 0 : 1 / torch_pow2(max / amax);
    case ScaleRule::one: return 1;
    case ScaleRule::nvfp4:
    case ScaleRule::quartet:
    case ScaleRule::ms_eden:       // test_fp4_references
    case ScaleRule::amax:          // below
    case ScaleRule::affine: break; // test_affine
    }
    return 0;
}

float stored(ScaleRule rule, const char* element, float x, float amax) {
    return quantize_scaled(format(element), x, block_scale(rule, format(element), amax));
}

} // namespace

TEST_CASE("scales of every rule, over all magnitudes") {
    for (std::size_t r = 0; r < scale_rule_names.size(); ++r) {
        const auto rule = static_cast<ScaleRule>(r);
        if (has_upper_scales(rule) || rule == ScaleRule::affine) continue; // tested below and in test_affine
        for (const char* element : {"e4m3", "e5m2", "e2m3", "e3m2", "e2m1"}) {
            const oracle::Facts& f = oracle::find(element);
            const FormatSpec spec = format(element);
            const auto max = static_cast<float>(f.max);
            constexpr std::uint64_t stride = 4001; // a prime: all low bits occur
            prove(fmt::format("scales of {}, {}", name_of(rule), element), 0x7f800000 / stride,
                  [&](std::uint64_t i, Tally& tally) {
                      const auto amax = std::bit_cast<float>(static_cast<std::uint32_t>(i * stride));
                      // For a subnormal, EVEN adds to the bits what it adds to a normal number's.
                      if (rule == ScaleRule::mx_even && amax < FLT_MIN) return;
                      tally.expect(block_scale(rule, spec, amax).decode,
                                   reference_scale(rule, max, std::ilogb(max), f.fraction_bits, amax),
                                   [&] { return fmt::format("amax {:a}", amax); });
                  });
        }
    }
}

TEST_CASE("the scale's exponent and the stored largest magnitude, as published for torchao's MX") {
    struct Row {
        float amax;
        int floor, even, ceil, rceil;
        float stored[4];
    };
    for (const Row& row :
         {Row{1, -8, -8, -8, -8, {256, 256, 256, 256}}, Row{1.76F, -8, -8, -7, -7, {448, 448, 224, 224}},
          Row{1.9F, -8, -8, -7, -7, {448, 448, 240, 240}}, Row{150, -1, -1, 0, -1, {288, 288, 144, 288}},
          Row{448, 0, 0, 1, 0, {448, 448, 224, 448}}, Row{500, 0, 1, 1, 1, {448, 256, 256, 256}}}) {
        CAPTURE(row.amax);
        const ScaleRule rules[] = {ScaleRule::mx_floor, ScaleRule::mx_even, ScaleRule::mx_ceil, ScaleRule::mx_rceil};
        const int exponents[] = {row.floor, row.even, row.ceil, row.rceil};
        for (int i = 0; i < 4; ++i) {
            CHECK(block_scale(rules[i], format("e4m3"), row.amax).decode == std::ldexp(1.0F, exponents[i]));
            CHECK(stored(rules[i], "e4m3", row.amax, row.amax) == row.stored[i]);
        }
    }
}

TEST_CASE("published examples") {
    CHECK(block_scale(ScaleRule::te, format("e4m3"), 3).encode == 448.0F / 3);
    CHECK(block_scale(ScaleRule::te_pow2, format("e4m3"), 3).encode == 128);
    const float tensor = nvfp4_tensor_scale(10);
    CHECK(tensor == 268.8F);
    const BlockScale s = block_scale(ScaleRule::nvfp4, format("e2m1"), 1, tensor);
    CHECK(s.decode == 44);
    CHECK(s.encode == doctest::Approx(6.10909).epsilon(1e-6));
    // Ties of E2M1 go to the even code.
    const float ties[][2] = {{0.25F, 0}, {0.75F, 1}, {1.25F, 1}, {1.75F, 2}, {2.5F, 2}, {3.5F, 4}, {5, 4}};
    for (const auto& [x, want] : ties) CHECK(quantize_scaled(format("e2m1"), x, {}) == want);
    CHECK(quantize_scaled(format("e2m1"), -100, {}) == -6);
    CHECK(nvfp4_tensor_scale(0) == 1);
    // The largest relative error of a block's largest number. Scales rounded to the nearest power of two give up to 29
    // %, those rounded up 6 % (mlx issue 4353).
    for (const ScaleRule rule : {ScaleRule::mx_floor, ScaleRule::mx_rceil}) {
        float worst = 0;
        for (float amax = 1; amax < 2; amax += 0x1p-9F) {
            const BlockScale scale = block_scale(rule, format("e4m3"), amax);
            worst =
                std::max(worst, std::fabs(quantize_scaled(format("e4m3"), amax, scale) * scale.decode - amax) / amax);
        }
        CHECK(worst == doctest::Approx(rule == ScaleRule::mx_floor ? 0.1233 : 0.0588).epsilon(0.02));
    }
}

namespace {

/// The rule amax by its definition: the oracle rounds the scale.
BlockScale amax_scale(const oracle::Facts& scale, Rounding rounding, float max, float amax, float u) {
    const auto stored = [&](float wanted) {
        const oracle::Context to{scale, {.rounding = rounding, .overflow = Overflow::saturate_all}};
        const float d = oracle::to_float(scale, oracle::convert(to, oracle::read(wanted)).code);
        return d == 0 ? oracle::to_float(scale, 1) : d;
    };
    const float d = amax == 0 ? stored(1) : stored(amax / max / u);
    const float kept = d * u == 0 ? stored(1) : d;
    return {.encode = 1 / (kept * u), .decode = kept, .divisor = kept * u};
}

} // namespace

TEST_CASE("scales of any format below elements of any format, over all magnitudes") {
    for (const char* element : {"e2m1", "e4m3", "e3m2", "int8sym", "fp16"})
        for (const char* name : {"e8m0", "e4m3", "e5m2", "binary8p3ue", "binary6p4uf", "fp16", "bf16", "fp32"})
            for (const Rounding rounding : {Rounding::up, Rounding::nearest_even})
                for (const float tensor : {0.0F, 3.7e5F, 1.0F, 0x1p-120F}) { // 0: no upper scale
                    const FormatSpec e = format(element), s = format(name);
                    const BlockScaling scaling{.element = e,
                                               .rows = 1,
                                               .columns = 16,
                                               .rule = ScaleRule::amax,
                                               .upper = {.level = tensor == 0 ? UpperLevel::none : UpperLevel::tensor},
                                               .scale = s,
                                               .scale_rounding = rounding};
                    const oracle::Facts& facts = oracle::find(name);
                    const float max = decode(e, e.max_code()), largest = decode(s, s.max_code()),
                                u = scaling.tensor_scale(scaling.upper_scale(tensor));
                    const float most = std::max(tensor / max / (largest < 0x1p64F ? largest : 1), 0x1p-100F);
                    CHECK(u == (tensor == 0 ? 1 : most));
                    constexpr std::uint64_t stride = 40009; // a prime
                    prove(fmt::format("scales in {} of {}, {}, below {}", name, element, name_of(rounding), tensor),
                          0x7f800000 / stride + 1, [&](std::uint64_t i, Tally& tally) {
                              const auto amax = std::bit_cast<float>(static_cast<std::uint32_t>(i * stride));
                              const auto where = [&] { return fmt::format("amax {:a}", amax); };
                              const BlockScale got = scaling.scale_of(amax, u),
                                               want = amax_scale(facts, rounding, max, amax, u);
                              tally.expect(got.decode, want.decode, where);
                              tally.expect(got.divisor, want.divisor, where);
                              tally.expect(got.divisor > 0, true, where);
                          });
                }
    const BlockScaling tiny{.rule = ScaleRule::amax, .upper = {.level = UpperLevel::tensor}, .scale = format("fp32")};
    CHECK(tiny.upper_scale(0x1p-149F) == 0x1p-100F);
    CHECK(tiny.upper_scale(0) == 1);
    CHECK(tiny.upper_scale(std::numeric_limits<float>::infinity()) == 1);
    CHECK(tiny.scale_of(std::numeric_limits<float>::infinity()).divisor == 1);
    // Blocks far below the tensor's largest: zeros stay zeros.
    const float in[] = {1, 0, 0x1p-149F, 0};
    const BlockScaling pairs{
        .rows = 1, .columns = 2, .rule = ScaleRule::amax, .upper = tiny.upper, .scale = format("fp32")};
    float q[4];
    quantize_blocks(pairs, in, 1, 4, q);
    CHECK((q[0] == 448 && q[1] == 0 && q[2] == 0 && q[3] == 0));
}

TEST_CASE("infinities, NaN and zeros in a block") {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(block_scale(ScaleRule::te, format("e4m3"), 0).encode == 1);
    CHECK(block_scale(ScaleRule::te, format("e4m3"), inf).encode == 1);
    CHECK(block_scale(ScaleRule::te, format("e4m3"), 0x1p-149F).encode == FLT_MAX);
    CHECK(std::isnan(block_scale(ScaleRule::mx_floor, format("e4m3"), inf).decode)); // E8M0 255
    CHECK(block_scale(ScaleRule::mx_te, format("e4m3"), inf).decode == 0x1p127F);
    CHECK(std::isnan(block_scale(ScaleRule::mx_te, format("e4m3"), nan).decode));
    const BlockScaling te{.element = format("e4m3")}, mx{.element = format("e4m3"), .rule = ScaleRule::mx_floor};
    const float block[] = {1, nan, -3};
    CHECK(block_amax(te, block, 1, 3)[0] == 3); // fmaxf ignores NaN
    CHECK(std::isnan(block_amax(mx, block, 1, 3)[0]));
    CHECK(std::isnan(quantize_scaled(format("e4m3"), nan, {})));
    CHECK(quantize_scaled(format("e4m3"), -inf, {}) == -448);
}

TEST_CASE("whole tensors in blocks of any shape") {
    constexpr std::int64_t rows = 37, columns = 50;
    const std::vector<float> in = Operands("bf16", 1).make(Inputs::scaled, rows * columns);
    for (const BlockScaling& s :
         {BlockScaling{}, BlockScaling{.rows = 1}, BlockScaling{.columns = 1},
          BlockScaling{.rows = 1, .columns = 32, .rule = ScaleRule::mx_rceil},
          BlockScaling{.rows = 32, .columns = 1, .rule = ScaleRule::deepseek},
          BlockScaling{.element = format("e2m1"), .rows = 16, .columns = 16, .rule = ScaleRule::te}}) {
        const std::int64_t height = s.rows == 0 ? rows : s.rows, width = s.columns == 0 ? columns : s.columns;
        const std::int64_t across = (columns + width - 1) / width;
        const std::vector<float> amax = block_amax(s, in, rows, columns);
        std::vector<float> want(amax.size());
        for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < columns; ++j) {
                float& a = want[static_cast<std::size_t>(i / height * across + j / width)];
                a = std::max(a, std::fabs(in[static_cast<std::size_t>(i * columns + j)]));
            }
        CHECK(amax == want);
        std::vector<BlockScale> scales;
        std::vector<float> decode_scales, q(in.size()), back(in.size());
        for (const float a : amax) {
            scales.push_back(block_scale(s.rule, s.element, a));
            decode_scales.push_back(scales.back().decode);
        }
        quantize_blocks(s, in, rows, columns, scales, q);
        dequantize_blocks(s, q, rows, columns, decode_scales, back);
        for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < columns; ++j) {
                const auto at = static_cast<std::size_t>(i * columns + j);
                const BlockScale& scale = scales[static_cast<std::size_t>(i / height * across + j / width)];
                CHECK(q[at] == quantize_scaled(s.element, in[at], scale));
                CHECK(back[at] == q[at] * scale.decode);
            }
    }
}

TEST_CASE("the largest magnitude, with and without NaN and infinity") {
    const auto largest = [](std::vector<float> x, Magnitudes counted) {
        return std::bit_cast<std::uint32_t>(largest_magnitude(x, counted));
    };
    const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
    constexpr float inf = std::numeric_limits<float>::infinity(), tiny = std::numeric_limits<float>::denorm_min();
    const float nan = std::bit_cast<float>(0xffa00001); // negative, signalling, with a payload
    for (const Magnitudes counted : {Magnitudes::all, Magnitudes::not_nan, Magnitudes::finite}) {
        CHECK(largest({}, counted) == 0);
        CHECK(largest({-0.0F, 0}, counted) == 0);
        CHECK(largest({0, -tiny}, counted) == bits(tiny));
        for (std::size_t at = 0; at < 70; ++at) { // wherever it lies in vectors
            std::vector<float> x(70, 1);
            x[at] = -3;
            CHECK(largest(x, counted) == bits(3));
            x[(at + 1) % 70] = -inf;
            CHECK(largest(x, counted) == bits(counted == Magnitudes::finite ? 3 : inf));
            x[(at + 2) % 70] = nan;
            CHECK(largest(x, counted) == (counted == Magnitudes::all       ? bits(nan) & 0x7fffffff
                                          : counted == Magnitudes::not_nan ? bits(inf)
                                                                           : bits(3)));
        }
        const std::vector<float> none{nan, -inf, inf, -nan};
        CHECK(largest(none, counted) == (counted == Magnitudes::all       ? bits(nan) & 0x7fffffff
                                         : counted == Magnitudes::not_nan ? bits(inf)
                                                                          : 0));
    }
}

TEST_CASE("a tensor without elements has no blocks") {
    CHECK(BlockScaling{}.grid(0, 0).count() == 0);
    CHECK(BlockScaling{.rows = 1, .columns = 32}.grid(0, 50).count() == 0);
    CHECK(block_amax({}, {}, 0, 0).empty());
}

TEST_CASE("scales of two kinds in one call are refused") {
    const BlockScaling two{.element = format("e4m3"), .rows = 1, .columns = 1};
    const std::vector<float> in{1, 2};
    std::vector<float> out(2);
    std::vector<BlockScale> scales(2);
    quantize_blocks(two, in, 1, 2, scales, out);
    scales[1].divisor = scales[0].divisor == 0 ? 1 : 0;
    CHECK_THROWS_AS(quantize_blocks(two, in, 1, 2, scales, out), std::invalid_argument);
}

TEST_CASE("integers in blocks: products with 127 / amax or 7 / amax, to the nearest integer") {
    for (const char* name : {"int8-tensor", "int8-row", "int8-1x128", "int4-1x128"}) {
        const BlockSpec& spec = block_format(name);
        const float most = std::string_view(name).starts_with("int8") ? 127 : 7;
        const std::int64_t rows = 5, columns = 300, width = spec.columns == 0 ? columns : spec.columns;
        std::vector<float> in, out(static_cast<std::size_t>(rows * columns));
        for (std::size_t i = 0; i < out.size(); ++i)
            in.push_back(std::sin(static_cast<float>(i * i)) * std::exp(static_cast<float>(i / 97)));
        const BlockScaling scaling{spec.element, spec.rows, spec.columns, spec.rule};
        const std::vector<float> scales = quantize_blocks(scaling, in, rows, columns, out);
        Tally tally;
        for (std::int64_t i = 0; i < rows * columns; ++i) {
            const std::int64_t row = i / columns, first = i % columns / width * width;
            const std::int64_t last_row = spec.rows == 0 ? rows : row + 1, last = std::min(first + width, columns);
            float amax = 0;
            for (std::int64_t r = spec.rows == 0 ? 0 : row; r < last_row; ++r)
                for (std::int64_t c = first; c < last; ++c)
                    amax = std::max(amax, std::fabs(in[static_cast<std::size_t>(r * columns + c)]));
            const float scale = most / amax, x = in[static_cast<std::size_t>(i)] * scale;
            const float q = std::min(std::max(std::nearbyint(x), -most), most);
            const std::int64_t block = scaling.grid(rows, columns).of(i);
            const auto where = [&] { return fmt::format("{} element {}", name, i); };
            tally.expect(out[static_cast<std::size_t>(i)] + 0.0F, q + 0.0F, where); // integers have no -0
            tally.expect(scales[static_cast<std::size_t>(block)], 1 / scale, where);
        }
        report(fmt::format("{} by products and roundings of the processor", name), tally);
    }
    // MXINT8: the power of two that brings amax into [1, 2); with it -2 is kept, without it the range is symmetric.
    const std::vector<float> in = {-1.999F, 0.3F, 1.0F / 128, -0.5F};
    for (const auto& [name, least] : {std::pair{"mxint8", -2.0F}, std::pair{"mxint8sym", -127.0F / 64}}) {
        const BlockSpec& spec = block_format(name);
        std::vector<float> out(4);
        const std::vector<float> scales =
            quantize_blocks({spec.element, spec.rows, spec.columns, spec.rule}, in, 1, 4, out);
        CHECK(scales == std::vector<float>{1});
        CHECK(out == std::vector<float>{least, 19.0F / 64, 0, -0.5F}); // 1/128 is a tie
    }
}

TEST_CASE("names") {
    for (const BlockSpec& b : block_formats) CHECK(block_format(b.name).name == b.name);
    CHECK_THROWS_AS(block_format("mxfp5"), std::invalid_argument);
    CHECK(name_of(ScaleRule::nvfp4) == "nvfp4");
}
