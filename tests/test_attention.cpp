// Fused attention beyond its definition (op_proofs_attention.h): attention in 60 digits for all sizes of tiles, rows of
// infinities and NaN, the options of its text, and a published failure of rounding with its fix.
#include "op_bench.h"

#include <ampscope/sim/program/graph.h>

#include <cmath>
#include <limits>

using namespace amp;
using namespace amp::test;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// A program that calls fused_attention on B x H x Q x D, and on B x G x K x D twice, in a precision.
struct Called {
    Program program;
    TensorId q, k, v, out;
    std::unique_ptr<Cpu> cpu;

    Called(const char* text, const Shape& queries, const Shape& keys, double scale, bool causal,
           const char* options_text) {
        Graph g(program, precision(text));
        q = g.parameter("q", queries, {});
        k = g.parameter("k", keys, {});
        v = g.parameter("v", keys, {});
        out = op::fused_attention(g, q, k, v, scale, causal, *op::attention_options(options_text));
        cpu = std::make_unique<Cpu>(program, 1);
    }
    void fill(TensorId id, std::uint32_t stream, double deviation = 1) {
        const std::span<float> x = (*cpu)[id];
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(deviation * normal(1, stream, i));
    }
    [[nodiscard]] std::span<const float> run() {
        replay(*cpu, program.forward);
        return std::as_const(*cpu)[out];
    }
    [[nodiscard]] Reals values(TensorId id) const {
        Reals all;
        for (const float x : std::as_const(*cpu)[id]) all.emplace_back(x);
        return all;
    }
    [[nodiscard]] const op::FusedAttention& op() const {
        return std::get<op::FusedAttention>(program.forward.back().op);
    }
};

std::string error_of(const char* text) {
    try {
        static_cast<void>(op::attention_options(text));
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("attention in 60 digits, which knows no tiles") {
    const Shape queries{2, 6, 21, 8}, keys{2, 2, 21, 8};
    Tally tally;
    for (const bool causal : {false, true}) {
        Reals want;
        for (const char* tiles : {"fused", "fused:1x1", "fused:8x4", "fused:4x8", "fused:21x21", "fused:5x3"}) {
            Called a("fp32", queries, keys, 0.35, causal, tiles);
            a.fill(a.q, 1);
            a.fill(a.k, 2);
            a.fill(a.v, 3);
            if (want.empty())
                want = reference::attention(a.values(a.q), a.values(a.k), a.values(a.v),
                                            {.heads = 12, .shared = 3, .tokens = 21, .width = 8}, Real(0.35), causal);
            const std::span<const float> got = a.run();
            REQUIRE(want.size() == got.size());
            for (std::size_t i = 0; i < want.size(); ++i)
                tally.expect(std::fabs(got[i] - want[i].convert_to<double>()) < 2e-6, true,
                             [&] { return fmt::format("{}, element {}", tiles, i); });
        }
    }
    report("fused attention in FP32, to 2e-6", tally);
}

TEST_CASE("rows of infinities and NaN") {
    // One channel, so that q k is the score; a row for each kind of score.
    Called a("fp32", {1, 1, 4, 1}, {1, 1, 3, 1}, 1, false, "fused:2x2");
    std::ranges::copy(std::vector<float>{1, -1, 0, infinity}, (*a.cpu)[a.q].begin());
    std::ranges::copy(std::vector<float>{-infinity, -infinity, -infinity}, (*a.cpu)[a.k].begin());
    std::ranges::copy(std::vector<float>{1, 2, 3}, (*a.cpu)[a.v].begin());
    std::span<const float> out = a.run();
    CHECK(out[0] == 0);        // all scores are -infinity: nothing is attended to
    CHECK(std::isnan(out[1])); // +infinity
    CHECK(std::isnan(out[2])); // 0 times infinity
    CHECK(out[3] == 0);
    CHECK((*a.cpu)[a.op().lse][0] == infinity);
    std::ranges::copy(std::vector<float>{-infinity, 1, 1}, (*a.cpu)[a.k].begin());
    out = a.run();
    CHECK(out[0] == 2.5F); // what is -infinity has no weight
    // An infinity of the values that the mask hides in the same tile is multiplied by 0, but not one in a tile that is
    // left out.
    const auto first_row = [](const char* tiles) {
        Called b("fp32", {1, 1, 3, 1}, {1, 1, 3, 1}, 1, true, tiles);
        std::ranges::copy(std::vector<float>{7, infinity, 1}, (*b.cpu)[b.v].begin());
        return b.run()[0];
    };
    CHECK(std::isnan(first_row("fused:3x3")));
    CHECK(first_row("fused:1x1") == 7);
}

TEST_CASE("a shifted maximum makes P small: rows of large scores that share it are lost") {
    const auto row = [](float score) {
        Called a("fp32", {1, 1, 1, 1}, {1, 1, 2, 1}, 1, false, "fused:max=shifted");
        (*a.cpu)[a.q][0] = score;
        std::ranges::copy(std::vector<float>{1, 1}, (*a.cpu)[a.k].begin());
        std::ranges::copy(std::vector<float>{-2, -3}, (*a.cpu)[a.v].begin());
        const float out = a.run()[0];
        return std::pair(out, (*a.cpu)[a.op().lse][0]);
    };
    CHECK(row(50).first == doctest::Approx(-2.5));
    CHECK(row(50).second == doctest::Approx(50 + std::log(2.0)));
    for (const float score : {110.0F, -110.0F}) CHECK(row(score) == std::pair(0.0F, infinity));
}

TEST_CASE("what the text of attention says") {
    CHECK(!op::attention_options("plain"));
    CHECK(*op::attention_options("fused") == op::AttentionOptions{});
    const op::AttentionOptions o = *op::attention_options(
        "fused:128x32,p=e4m3,offset=4,o=bf16,s=fp16,l=tf32,ds=e5m2,steps=bf16,p-sum=rounded,max=shifted:3.5");
    CHECK(o == op::AttentionOptions{.row_tile = 128,
                                    .key_tile = 32,
                                    .p = format("e4m3"),
                                    .ds = format("e5m2"),
                                    .scores = format("fp16"),
                                    .sums = format("tf32"),
                                    .o = format("bf16"),
                                    .steps = format("bf16"),
                                    .offset = 4,
                                    .sums_rounded = true,
                                    .shift = 3.5});
    CHECK(op::attention_options("fused:max=shifted")->shift == 2);
    CHECK(op::attention_options("fused:8x8,max=plain")->shift == 0);
    for (const char* wrong : {"",
                              "fusion",
                              "fused64x64",
                              "fused:",
                              "fused:64",
                              "fused:0x4",
                              "fused:4x4x4",
                              "fused:p=fp17",
                              "fused:p=int8",
                              "fused:p=e8m0",
                              "fused:s=binary8p3uf",
                              "fused:x=1",
                              "fused:p=bf16,8x8",
                              "fused:steps=int8",
                              "fused:p-sum=x",
                              "fused:offset=-1",
                              "fused:max=higher",
                              "fused:max=shifted:",
                              "fused:max=shifted:1",
                              "fused:max=shifted:2x",
                              "fused:p=bf16,p=bf16"})
        CHECK_MESSAGE(!error_of(wrong).empty(), wrong);
    CHECK(error_of("flash").starts_with("unknown attention 'flash'"));
    CHECK(error_of("fused:offset=-1") == "attention: offset=-1: expected a whole number from 0 to 120");
    const Shape shape{1, 1, 2, 2};
    CHECK_THROWS_WITH(Called("fp32", shape, shape, 1, true, "fused:p=e4m3,offset=9"),
                      "attention: offset=9: 2^9 is beyond e4m3");
    CHECK_THROWS_WITH(Called("fp32", {1, 3, 2, 2}, {1, 2, 2, 2}, 1, true, "fused"),
                      "[fused_attention] expected B x H x T x D and twice B x G x T x D, got (1, 3, 2, 2) and (1, 2, "
                      "2, 2) and (1, 2, 2, 2)");
}

TEST_CASE("an attention has one spelling") {
    const auto is = [](const char* text) { return op::canonical_attention(text); };
    CHECK(is("plain") == "plain");
    CHECK(is("fused:64x64,max=plain,s=fp32,p-sum=exact") == "fused");
    CHECK(is("fused:max=shifted:2.0,o=BF16,p=E4M3,offset=8") == "fused:p=e4m3,o=bf16,max=shifted");
    CHECK(is("fused:p=bf16,offset=0") == "fused:p=bf16");
    CHECK(is("fused:offset=0") == "fused:offset=0"); // which is not what E4M3 operands have otherwise
    const char* all = "fused:8x4,p=e5m2,ds=fp16,s=fp16,l=tf32,o=bf16,steps=bf16,offset=3,p-sum=rounded,max=shifted:3.5";
    CHECK(is(all) == all);
    CHECK_THROWS(is("fusion"));
}

TEST_CASE("formats that follow from the precision") {
    const auto of = [](const char* text, const char* options) {
        return Called(text, {1, 2, 4, 2}, {1, 1, 4, 2}, 1, true, options).op();
    };
    CHECK(of("amp-bf16", "fused").p == format("bf16"));
    CHECK(of("amp-fp16", "fused").ds == format("fp16"));
    CHECK(of("amp-bf16", "fused").o == format("fp32"));
    CHECK(of("fp32", "fused").p == format("fp32"));
    CHECK(of("fp32", "fused").is_fp32());
    CHECK(!of("fp32", "fused:o=bf16").is_fp32());
    CHECK(of("pure-fp16", "fused").p == format("fp16"));
    CHECK(of("amp-bf16", "fused:p=e4m3").offset == 8);
    CHECK(of("amp-bf16", "fused:p=e4m3,offset=0").offset == 0);
    CHECK(of("amp-bf16,accumulate=hopper-wgmma-bf16", "fused").o_product.accumulate ==
          accumulator("hopper-wgmma-bf16"));
    CHECK(of("tf32", "fused").how.s_product.operands == format("tf32"));
    const Called a("amp-bf16", {1, 2, 4, 2}, {1, 1, 4, 2}, 1, true, "fused");
    CHECK(a.program[a.out].format == format("bf16"));
    CHECK(a.program.forward.back().rule == "cuda policy: lower precision");
}

namespace {

/// Mean error of O before it is divided, in last places of BF16, over 64 heads of 8 queries, 16 keys and 32 channels.
/// Keys 0 ... `most` - 1 share the largest score of a query, which is between 3.5 and 7; the others have small weights.
/// Values are negative BF16 numbers in (-4, -2], or such of both signs.
double mean_error(const char* options, int most, bool both_signs = false) {
    constexpr std::int64_t heads = 64, queries = 8, keys = 16, width = 32;
    Called a("fp32", {1, heads, queries, width}, {1, heads, keys, width}, 1, false, options);
    Cpu& cpu = *a.cpu;
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    for (std::int64_t r = 0; r < heads * queries; ++r)
        cpu[a.q][at(r * width)] = static_cast<float>(3.5 + 3.5 * uniform(1, 1, at(r)));
    for (std::int64_t r = 0; r < heads * keys; ++r)
        cpu[a.k][at(r * width)] = r % keys < most ? 1.0F : -1.5F - static_cast<float>(r % keys) / 32;
    for (std::int64_t i = 0; i < heads * keys * width; ++i) {
        const float v = quantize(format("bf16"), 2 + 2 * uniform(1, 2, at(i)));
        cpu[a.v][at(i)] = both_signs && uniform(1, 3, at(i)) < 0.5 ? v : -v;
    }
    const std::span<const float> out = a.run();
    Real sum = 0;
    for (std::int64_t r = 0; r < heads * queries; ++r) {
        const Real score = cpu[a.q][at(r * width)];
        const Real maximum = most > 1 && a.op().shift > 0 ? Real(score * a.op().shift) : score;
        const Real l = exp(Real(cpu[a.op().lse][at(r)]) - maximum);
        const std::int64_t first = r / queries * keys;
        Reals p;
        for (std::int64_t j = 0; j < keys; ++j)
            p.push_back(exp(Real(score * cpu[a.k][at((first + j) * width)] - maximum)));
        for (std::int64_t c = 0; c < width; ++c) {
            Real exact = 0;
            for (std::int64_t j = 0; j < keys; ++j) exact += p[at(j)] * cpu[a.v][at((first + j) * width + c)];
            const Real o = rounded(a.op().o.name, Real(out[at(r * width + c)]) * l); // as it was before the division
            const int exponent = std::ilogb(exact.convert_to<double>());
            sum += ldexp(Real(o - exact), 7 - exponent);
        }
    }
    return Real(sum / (heads * queries * width)).convert_to<double>();
}

} // namespace

// Two values of one sign and one binade add up to a number with one bit more than BF16 has, every second time to a tie,
// and what the other keys add, small and of the same sign, decides all ties alike (arXiv:2510.04212).
TEST_CASE("sums in BF16 are biased where several scores share the maximum, and not where it is shifted") {
    const double biased = mean_error("fused:p=bf16,o=bf16", 2),
                 fixed = mean_error("fused:p=bf16,o=bf16,max=shifted", 2),
                 single = mean_error("fused:p=bf16,o=bf16", 1), mixed = mean_error("fused:p=bf16,o=bf16", 2, true),
                 wide = mean_error("fused:p=bf16", 2);
    fmt::print("mean error of O in BF16, in last places: two maxima {:.3f}, shifted {:.3f}, one maximum {:.3f}, both "
               "signs {:.3f}, O in FP32 {:.3f}\n",
               biased, fixed, single, mixed, wide);
    CHECK(biased < -0.2);
    for (const double small : {fixed, single, mixed, wide}) CHECK(std::fabs(small) < 0.05);
}

TEST_CASE("roundings of P, O, P in backward and dS are counted among those of the results") {
    // One query, whose P are 2^(-3/4 n) for n = 0 to 15. E4M3, here without an offset, makes 0 of what is below 2^-10:
    // of n from 14 on, and in backward, where l = 2.5 divides P, from 12 on. dS is P v, which is 0 but for n = 15.
    Program program;
    Precision p = precision("fp32");
    Graph g(program, p);
    const TensorId q = g.given("q", {1, 1, 1, 1}, fp32_format(), false, true),
                   k = g.given("k", {1, 1, 16, 1}, fp32_format(), false, true),
                   v = g.given("v", {1, 1, 16, 1}, fp32_format(), false, true);
    const TensorId out =
        op::fused_attention(g, q, k, v, 1, false, *op::attention_options("fused:1x8,p=e4m3,offset=0,o=e4m3,ds=e4m3"));
    const TensorId grad = g.differentiate_from(out);
    Cpu cpu(program, 1);
    cpu.counts_roundings = true;
    cpu[q][0] = 1;
    for (std::size_t i = 0; i < 16; ++i)
        cpu[k][i] = static_cast<float>(-0.75 * std::log(2.0) * static_cast<double>(i)), cpu[v][i] = i == 15 ? 1.0F : 0;
    cpu[grad][0] = 1;
    replay(cpu, program.forward);
    const auto counts = [&](TensorId id) { return cpu.roundings()[static_cast<std::size_t>(id.index)]; };
    // P, O after each of two tiles, and the result.
    CHECK(counts(out) == RoundingCounts{.elements = 16 + 2 + 1, .nonzero = 16, .underflow = 2});
    replay(cpu, program.backward);
    // P, dS and the gradient of k.
    CHECK(counts(g.gradient(k)) == RoundingCounts{.elements = 16 + 16 + 16, .nonzero = 17, .underflow = 4 + 1});
    CHECK(counts(g.gradient(v)).elements == 16);
    CHECK(counts(g.gradient(q)).elements == 1);
}

TEST_CASE("masks that do not fit are refused") {
    Program program;
    Graph g(program, precision("fp32"));
    const TensorId q = g.input("q", {2, 4, 5, 2}), k = g.input("k", {2, 2, 3, 2});
    const auto with = [&](TensorId of, bool causal, TensorId mask) {
        return op::fused_attention(g, q, of, of, 1, causal, {}, mask);
    };
    CHECK_NOTHROW(with(k, false, g.input("a", {1, 4, 1, 3})));
    CHECK_THROWS_WITH(with(k, false, g.input("b", {2, 2, 5, 3})),
                      "attention: expected a mask of (2, 4, 5, 3) or of extents of 1, got (2, 2, 5, 3)");
    CHECK_THROWS_WITH(with(k, false, g.input("c", {5, 3})),
                      "attention: expected a mask of (2, 4, 5, 3) or of extents of 1, got (5, 3)");
    CHECK_THROWS_WITH(with(k, false, g.parameter("d", {1, 1, 5, 3}, {})), "attention: a mask has no gradient");
    CHECK_THROWS_WITH(with(q, true, g.input("e", {1, 1, 5, 5})),
                      "attention: expected a mask or a causal one, not both");
}
