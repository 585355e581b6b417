// Formats, products, training and loss scalers in a process that rounds in another direction, or flushes subnormals.
#include "computations_trainer.h"
#include "environments.h"

#include <ampscope/formats/block.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/optim/loss_scaler.h>

#include <fmt/format.h>

#include <xmmintrin.h>

using namespace amp;
using namespace amp::test;

namespace {

/// The calls of formats/ on arrays and on single numbers.
void add_formats(std::vector<Computation>& all) {
    for (const FormatSpec& f : formats) {
        all.push_back({std::string("conversions to ") + f.name, [&f](int, Bits& results) {
                           const std::vector<float> x = mixed_floats(2053, true);
                           std::vector<float> out(x.size());
                           std::vector<std::uint32_t> codes(x.size());
                           encode(f, x, std::span(codes));
                           results << codes;
                           decode(f, codes, std::span(out), NanRule::canonical);
                           results << out;
                           for (const Rounding r : {Rounding::nearest_even, Rounding::up, Rounding::stochastic}) {
                               quantize(f, x, std::span(out), {.policy = {.rounding = r}});
                               results << out;
                           }
                           for (std::size_t i = 0; i < 100; ++i) results << encode(f, x[i]) << quantize(f, x[i]);
                       }});
        if (!f.has_zero || !f.is_signed) continue; // scale formats have no arithmetic
        all.push_back({std::string("arithmetic in ") + f.name, [&f](int, Bits& results) {
                           std::vector<float> a = mixed_floats(1031, true), b = mixed_floats(1031, true, 2);
                           quantize(f, a, std::span(a));
                           quantize(f, b, std::span(b));
                           std::vector<float> out(a.size());
                           for (const Operation o : {Operation::add, Operation::mul, Operation::div, Operation::fma}) {
                               apply(o, f, a, b, a, std::span(out));
                               results << out;
                           }
                       }});
    }
    for (const ScaleRule rule : {ScaleRule::mx_floor, ScaleRule::te, ScaleRule::nvfp4, ScaleRule::affine})
        all.push_back({fmt::format("blocks of {}", name_of(rule)), [rule](int, Bits& results) {
                           const std::vector<float> x = mixed_floats(64 * 64, false);
                           const BlockScaling scaling{.element = format(rule == ScaleRule::affine ? "int8" : "e4m3"),
                                                      .rows = 1,
                                                      .columns = 32,
                                                      .rule = rule};
                           const std::vector<float> amax = block_amax(scaling, x, 64, 64),
                                                    upper = upper_scales(scaling, amax, 64, 64);
                           const std::vector<BlockScale> scales = block_scales(scaling, x, 64, 64, amax, upper);
                           std::vector<float> decoding, out(x.size());
                           for (const BlockScale& s : scales) decoding.push_back(s.decode);
                           quantize_blocks(scaling, x, 64, 64, scales, out);
                           results << amax << upper << decoding << out;
                           dequantize_blocks(scaling, out, 64, 64, decoding, out);
                           results << out;
                       }});
}

} // namespace

TEST_CASE("formats in every environment") {
    std::vector<Computation> all;
    add_formats(all);
    check_in_every_environment(all);
}

TEST_CASE("products, conversions and training in every environment") {
    std::vector<Computation> all;
    add_products(all);
    add_conversions(all);
    add_trainings(all);
    check_in_every_environment(all);
}

TEST_CASE("an environment of one's own is the usual one, and ends with the object") {
    for (const std::string_view name : hostile_names) {
        CAPTURE(name);
        const Hostile hostile(name);
        {
            const FloatEnvironment environment;
            CHECK(std::fegetround() == FE_TONEAREST);
            CHECK(std::stod("0.1") == 0.1); // strtod rounds as the x87 unit is set
            {
                const FloatEnvironment up(HostRounding::up);
                const FloatEnvironment nearest;
                CHECK(std::fegetround() == FE_TONEAREST);
            }
            CHECK(std::fegetround() == FE_TONEAREST);
        }
        CHECK(hostile.holds());
    }
}

TEST_CASE("loss scalers where the caller rounds and flushes otherwise") {
    LossScalerOptions options = loss_scaler("torch").options;
    options.growth_interval = 1;
    options.backoff_factor = 0.3;
    const auto next_scale = [&](double scale) { return update_scale(options, {.scale = scale}, true).state.scale; };
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040U | 0x4000U); // FTZ, DAZ, towards infinity
    const double subnormal = next_scale(0x1p-126), rounded = next_scale(0.1F);
    const float inverse = unscale(options, 0x1.8p127, 1), third = unscale(options, 3, 1);
    _mm_setcsr(saved);
    CHECK(subnormal == static_cast<float>(0x1p-126 * 0.3));
    CHECK(rounded == static_cast<float>(static_cast<double>(0.1F) * 0.3));
    CHECK(inverse == static_cast<float>(1 / 0x1.8p127));
    CHECK(third == static_cast<float>(1.0 / 3));
}
