// Every accumulator of the table against an oracle: exact integers and published vectors for matrix hardware; for the
// other sums their definition in the processor's own arithmetic.
#include "accumulator_inputs.h"
#include "oracle_accumulator.h"
#include "sweep.h"

#include <ampscope/formats/dot.h>

#include <doctest/doctest.h>

#include <cstdlib>
#include <limits>
#include <sstream>

using namespace amp;
using namespace amp::test;

namespace {

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

std::vector<std::string> split(const std::string& text, char at) {
    std::vector<std::string> parts;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, at);) parts.push_back(part);
    return parts;
}

std::uint32_t hex(const std::string& text) {
    return static_cast<std::uint32_t>(std::strtoul(text.c_str(), nullptr, 16));
}

/// Reads "0:3c00,5:1" as k numbers of the format.
std::vector<float> sparse(const std::string& format, const std::string& text, std::size_t k) {
    std::vector<float> x(k);
    if (text == "-") return x;
    for (const std::string& item : split(text, ',')) {
        const std::vector<std::string> pair = split(item, ':');
        x.at(std::stoul(pair[0])) = oracle::to_float(oracle::find(format), hex(pair[1]));
    }
    return x;
}

std::string format_name(const std::string& word) { return word == "f16" ? "fp16" : word; }

/// The rows of one generation to which a vector for that instruction applies.
std::vector<std::string> rows_of(const std::string& generation, const std::string& instruction,
                                 const std::string& format) {
    if (instruction.starts_with("wgmma_fp8")) return {"hopper-wgmma-fp8"};
    if (instruction.starts_with("mma.sync")) return {"hopper-mma-fp8", "blackwell-mma-fp8"};
    if (generation == "volta") return {"volta-" + format};
    if (generation == "hopper") return {"hopper-" + format, "hopper-wgmma-" + format, "blackwell-" + format};
    std::vector<std::string> rows = {"ampere-" + format, "ada-" + format};
    if (format == "fp16") rows.push_back("turing-fp16");
    return rows;
}

void check_vector(const std::vector<std::string>& row, Tally& tally) {
    const std::size_t arrow = row[2].find("->");
    const std::string format = format_name(row[2].substr(0, arrow));
    const bool acc16 = row[2].substr(arrow + 2) == "f16";
    const auto k = static_cast<std::size_t>(std::stoul(row[3]));
    const std::vector<float> a = sparse(format, row[4], k), b = sparse(format, row[5], k);
    const auto value = [&](const std::string& word) {
        return acc16 ? oracle::to_float(oracle::find("fp16"), hex(word)) : std::bit_cast<float>(hex(word));
    };
    for (const auto& [generation, column] : {std::pair{"hopper", 7}, std::pair{"ampere", 8}, std::pair{"volta", 9}}) {
        const std::string& want = row[static_cast<std::size_t>(column)];
        if (want == "-") continue;
        for (std::string name : rows_of(generation, row[1], format)) {
            if (acc16) name += "-acc16";
            const float d = dot(accumulator(name), amp::format(format), amp::format(format), a, b, value(row[6]));
            const bool nan = std::isnan(value(want)); // FP16's NaN is 7fff
            tally.expect(bits(d), nan ? oracle::nan_bits : bits(value(want)), [&] { return row[0] + " " + name; });
        }
    }
}

/// Products of 1/16 by 1/16, 32 for an instruction: "n=16:40000000; n=511:427f8000; ..." after n instructions.
void check_chain(const std::string& text, Tally& tally) {
    for (const std::string& item : split(text, ';')) {
        const std::size_t equals = item.find('='), colon = item.find(':');
        const std::vector<float> x(32 * std::stoul(item.substr(equals + 1, colon - equals - 1)), 0.0625F);
        tally.expect(bits(dot(accumulator("hopper-wgmma-fp8"), format("e4m3"), format("e4m3"), x, x)),
                     hex(item.substr(colon + 1)), [&] { return "Q-stagnate" + item; });
    }
}

} // namespace

TEST_CASE("vectors of published probes") {
    Tally tally;
    std::istringstream in(
#include <ampscope/tools/amp-crosscheck/vectors.inc>
    );
    std::size_t rows = 0;
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("#")) continue;
        const std::vector<std::string> row = split(line, '\t');
        REQUIRE(row.size() == 10);
        if (row[0] == "Q-stagnate") check_chain(row[7], tally);
        else check_vector(row, tally);
        ++rows;
    }
    CHECK(rows == 109);
    report("vectors of tensor cores", tally);
}

TEST_CASE("every row of matrix hardware against exact integers") {
    const std::vector<oracle::Matrix> matrices = oracle::matrices();
    for (const HardwareRow& row : hardware_rows) { // none may be missing
        CAPTURE(row.name);
        CHECK(std::ranges::find(matrices, row.name, &oracle::Matrix::name) != matrices.end());
    }
    constexpr std::size_t each = 40;
    prove("dot products of matrix hardware", matrices.size() * inputs_names.size() * each,
          [&](std::uint64_t index, Tally& tally) {
              const oracle::Matrix& m = matrices[index / each % matrices.size()];
              const auto kind = static_cast<Inputs>(index / each / matrices.size());
              const Accumulator acc = accumulator(m.name);
              std::mt19937 random(static_cast<std::uint32_t>(index));
              Operands left(m.a, random()), right(m.b, random()),
                  addend(m.result == "fp16" ? "fp16" : "fp32", random());
              const std::size_t k = random() % 70;
              const std::vector<float> a = left.make(kind, k);
              std::vector<float> b = right.make(kind == Inputs::cancelling ? Inputs::uniform : kind, k);
              float c = addend.make(random() % 2 == 0 ? kind : Inputs::scaled, 1)[0];
              if (random() % 4 == 0) c = 0;
              tally.expect(bits(dot(acc, format(m.a), format(m.b), a, b, c)), oracle::dot(m, a, b, c), [&] {
                  return fmt::format("{} {} x {}, k {}, {}, case {}", m.name, m.a, m.b, k,
                                     inputs_names[static_cast<std::size_t>(kind)], index);
              });
          });
}

TEST_CASE("what AMD's steps floor, and what counts as infinite") {
    std::vector<oracle::Matrix> rows;
    for (const oracle::Matrix& m : oracle::matrices())
        if (m.steps == "floored" || m.steps == "halves") rows.push_back(m);
    prove("sums so far from 40 binades above to 40 below the products", 42000, [&](std::uint64_t index, Tally& tally) {
        const oracle::Matrix& m = rows[index % rows.size()];
        std::mt19937 random(static_cast<std::uint32_t>(index));
        const bool wide = m.a == "bf16" || m.a == "tf32"; // whose products reach 2^128
        const int up = wide && random() % 2 == 0 ? 62 : 0;
        const auto k = static_cast<std::size_t>(m.products);
        std::vector<float> a = Operands(m.a, random()).make(Inputs::uniform, k),
                           b = Operands(m.b, random()).make(Inputs::normal, k);
        for (std::vector<float>* x : {&a, &b})
            for (float& v : *x) v = std::ldexp(v, up);
        float c = Operands("fp32", random()).make(Inputs::normal, 1)[0];
        c = std::ldexp(c, static_cast<int>(random() % 81) - 40 + (random() % 2 == 0 ? 2 * up : 0));
        tally.expect(bits(dot(accumulator(m.name), format(m.a), format(m.b), a, b, c)), oracle::dot(m, a, b, c),
                     [&] { return fmt::format("{} {} x {}, c {:a}, case {}", m.name, m.a, m.b, c, index); });
    });
    // A product of 2^128 is an infinity, but less so than an infinite sum so far.
    const float x[] = {0x1p64F, 1}, y[] = {0x1p64F, 1}, inf = std::numeric_limits<float>::infinity();
    const auto sum = [&](float c) { return dot(accumulator("cdna3-bf16"), format("bf16"), format("bf16"), x, y, c); };
    CHECK(sum(-0x1p127F) == inf);
    CHECK(sum(-inf) == -inf);
}

TEST_CASE("all pairs of FP8 numbers, with sums that show what is kept") {
    const FormatSpec e4m3 = format("e4m3"), e5m2 = format("e5m2");
    for (const oracle::Matrix& m : oracle::matrices()) {
        if (m.name != "hopper-wgmma-fp8" && m.name != "hopper-mma-fp8" && m.name != "ada-e4m3") continue;
        const Accumulator acc = accumulator(m.name);
        prove(fmt::format("{} x {}, one product, {}", m.a, m.b, m.name), 65536, [&](std::uint64_t i, Tally& tally) {
            const std::vector<float> a = {decode(m.a == "e4m3" ? e4m3 : e5m2, static_cast<std::uint32_t>(i & 255))},
                                     b = {decode(m.b == "e4m3" ? e4m3 : e5m2, static_cast<std::uint32_t>(i >> 8))};
            for (const float c : {0.0F, 1.0F, -0x1.fffffep-3F, 0x1.802p5F})
                tally.expect(bits(dot(acc, format(m.a), format(m.b), a, b, c)), oracle::dot(m, a, b, c),
                             [&] { return fmt::format("codes {:#x}, c {:a}", i, c); });
        });
    }
}

TEST_CASE("sums that no hardware makes") {
    prove("exact, pairwise, kahan and chains", 4000, [](std::uint64_t index, Tally& tally) {
        std::mt19937 random(static_cast<std::uint32_t>(index));
        const auto kind = static_cast<Inputs>(index % inputs_names.size());
        Operands operands("fp32", random());
        const std::size_t k = random() % 40;
        const std::vector<float> a = operands.make(kind, k), b = operands.make(kind, k);
        const float c = random() % 2 == 0 ? 0 : operands.make(kind, 1)[0];
        const auto expect = [&](const char* name, float want) {
            if (std::isnan(want)) want = std::bit_cast<float>(0x7fc00000);
            tally.expect(dot(accumulator(name), format("fp32"), format("fp32"), a, b, c), want,
                         [&] { return fmt::format("{}, k {}, case {}", name, k, index); });
        };
        // Exact: integers in units of 2^-300, rounded by the oracle.
        oracle::Integer sum = 0;
        float special = 0; // NaN and infinities, as any order of additions gives them
        const auto add = [&](float x, float y) {
            if (!std::isfinite(x) || !std::isfinite(y)) {
                special += x * y;
                return;
            }
            const oracle::Number p = oracle::read(x), q = oracle::read(y);
            oracle::Integer n = p.numerator * q.numerator;
            const int shift = p.exponent + q.exponent + 400;
            n = n << shift;
            sum += p.negative != q.negative ? oracle::Integer(-n) : n;
        };
        for (std::size_t i = 0; i < k; ++i) add(a[i], b[i]);
        add(c, 1);
        oracle::Number exact{.kind = sum == 0 ? oracle::Class::zero : oracle::Class::finite,
                             .negative = sum < 0,
                             .numerator = abs(sum),
                             .exponent = -400};
        expect("exact",
               special != 0 ? special : std::bit_cast<float>(oracle::store({oracle::find("fp32")}, exact).code));
        // The other sums, in the processor's floats.
        float chain = c, kahan = c, lost = 0;
        for (std::size_t i = 0; i < k; ++i) {
            chain = std::fma(a[i], b[i], chain);
            const float product = a[i] * b[i], term = product - lost, next = kahan + term;
            lost = (next - kahan) - term;
            kahan = next;
        }
        expect("fp32", chain);
        expect("kahan", kahan);
        const auto tree = [&](const auto& self, std::size_t begin, std::size_t n) -> float {
            if (n == 1) return a[begin] * b[begin];
            std::size_t left = 1;
            while (2 * left < n) left *= 2;
            return self(self, begin, left) + self(self, begin + left, n - left);
        };
        expect("pairwise", k == 0 ? c : c + tree(tree, 0, k));
        float promoted = c;
        for (std::size_t begin = 0; begin < k; begin += 8) {
            float part = 0;
            for (std::size_t i = begin; i < std::min(begin + 8, k); ++i) part = std::fma(a[i], b[i], part);
            promoted += part;
        }
        expect("fp32-promote8", promoted);
    });
}

TEST_CASE("a chain in a format rounds every sum to it") {
    prove("chains in FP16", 1000, [](std::uint64_t index, Tally& tally) {
        std::mt19937 random(static_cast<std::uint32_t>(index));
        Operands operands("fp16", random());
        const std::vector<float> a = operands.make(Inputs::scaled, 20), b = operands.make(Inputs::scaled, 20);
        const oracle::Facts& fp16 = oracle::find("fp16");
        float want = 0;
        for (std::size_t i = 0; i < a.size(); ++i) // exact in double: 22 bits, added to 11
            want = oracle::to_float(
                fp16, oracle::convert({fp16}, oracle::read(std::fma(static_cast<double>(a[i]), b[i], want))).code);
        tally.expect(dot(accumulator("fp16"), format("fp16"), format("fp16"), a, b), want,
                     [&] { return fmt::format("case {}", index); });
    });
}

TEST_CASE("promotion is an addition in FP32 after every N products") {
    for (const char* name : {"hopper-wgmma-fp8", "hopper-mma-fp8", "hopper-mma-fp8-acc16", "ampere-fp16"}) {
        const std::string promoted = std::string(name) + "-promote128";
        std::vector<oracle::Matrix> found;
        for (const oracle::Matrix& m : oracle::matrices())
            if (m.name == name) found.push_back(m);
        REQUIRE(!found.empty());
        prove(promoted, 200, [&](std::uint64_t index, Tally& tally) {
            const oracle::Matrix& m = found[index % found.size()];
            Operands left(m.a, static_cast<std::uint32_t>(index)), right(m.b, static_cast<std::uint32_t>(index + 1000));
            const std::vector<float> a = left.make(Inputs::uniform, 500), b = right.make(Inputs::uniform, 500);
            float want = 3;
            for (std::size_t begin = 0; begin < a.size(); begin += 128) {
                const auto part = [&](const std::vector<float>& x) {
                    return std::vector<float>(x.begin() + static_cast<std::ptrdiff_t>(begin),
                                              x.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 128, x.size())));
                };
                want += std::bit_cast<float>(oracle::dot(m, part(a), part(b), 0));
            }
            tally.expect(dot(accumulator(promoted), format(m.a), format(m.b), a, b, 3), want,
                         [&] { return fmt::format("{} x {}, case {}", m.a, m.b, index); });
        });
    }
}

TEST_CASE("names") {
    for (const HardwareRow& row : hardware_rows) {
        CHECK(std::string_view(accumulator(row.name).name) == row.name);
        const std::string narrow = std::string(row.name) + "-acc16";
        if (row.acc16.empty()) CHECK_THROWS_AS(accumulator(narrow), std::invalid_argument);
        else CHECK(accumulator(narrow).result() == format("fp16"));
    }
    CHECK(accumulator("hopper-wgmma-fp8").evidence == Evidence::recorded);
    CHECK(accumulator("turing-fp16-acc16").evidence == Evidence::stated);
    CHECK(accumulator("hopper-mma-fp8-acc16").evidence == Evidence::recorded);
    CHECK(accumulator("blackwell-mma-fp8").evidence == Evidence::recorded);
    CHECK(accumulator("blackwell-fp8").evidence == Evidence::stated);
    CHECK(accumulator("blackwell-mxf4nvf4").evidence == Evidence::stated);
    CHECK(accumulator("hopper-wgmma-fp8-promote128-split4").row() == "hopper-wgmma-fp8");
    CHECK(accumulator("hopper-wgmma-fp8-split4pairs").row() == "hopper-wgmma-fp8");
    CHECK_FALSE(accumulator("fp32-split2").is_fp32_chain());
    CHECK(accumulator("bf16").evidence == Evidence::definition);
    CHECK(accumulator("e6m9").sum == format("e6m9"));
    for (const char* wrong : {"",
                              "hopper",
                              "hopper-fp8",
                              "bf16-acc16",
                              "e8m0",
                              "hopper-wgmma-fp8-promote",
                              "hopper-wgmma-fp8-promote100",
                              "hopper-mma-fp8-promote16",
                              "fp32-promote0",
                              "fp32-promote-8",
                              "fp32-promote99999999999",
                              "e99m1",
                              "exact-acc16",
                              "fp32-split",
                              "fp32-split1",
                              "fp32-split0",
                              "fp32-split1025",
                              "fp32-split4rows",
                              "fp32-split4-promote16",
                              "fp32-split99999999999",
                              "a-name-that-is-far-too-long-to-be-the-name-of-anything-at-all"})
        CHECK_THROWS_AS(accumulator(wrong), std::invalid_argument);
}

TEST_CASE("formats that a generation of GPUs multiplies by each other") {
    const FormatSpec fp16 = format("fp16"), bf16 = format("bf16"), e4m3 = format("e4m3"), e5m2 = format("e5m2");
    CHECK(multiplies("volta", fp16, fp16));
    CHECK_FALSE(multiplies("volta", bf16, bf16));
    CHECK_FALSE(multiplies("ampere", e4m3, e4m3));
    CHECK_FALSE(multiplies("hopper", fp16, bf16)); // one PTX type names both operands
    CHECK_FALSE(multiplies("hopper", e4m3, fp16));
    CHECK_FALSE(multiplies("hopper", format("fp32"), format("fp32")));
    CHECK_FALSE(multiplies("hopper", e4m3, format("e2m1")));
    for (const char* generation : {"ada", "hopper", "blackwell"}) CHECK(multiplies(generation, e4m3, e5m2));
    CHECK(multiplies("blackwell", e5m2, format("e2m1")));
}

TEST_CASE("operands that a row reads") {
    CHECK(accumulator("hopper-fp16").takes(format("e4m3"))); // its values are FP16 values
    CHECK_FALSE(accumulator("hopper-fp16").takes(format("bf16")));
    CHECK_FALSE(accumulator("hopper-bf16").takes(format("fp16")));
    CHECK(accumulator("ampere-tf32").takes(format("fp32"))); // truncated when read
    CHECK_FALSE(accumulator("hopper-wgmma-fp8").takes(format("fp16")));
    CHECK_FALSE(accumulator("hopper-mma-fp8").takes(format("fp16")));
    CHECK(accumulator("hopper-mma-fp8").reads(format("e4m3")) == format("fp16"));
    CHECK(accumulator("hopper-wgmma-fp8").reads(format("e5m2")) == format("e5m2"));
    CHECK(accumulator("blackwell-fp8").reads(format("e2m1")) == format("e2m1"));
    CHECK(accumulator("blackwell-mxf4nvf4").takes(format("e2m1")));
    CHECK_FALSE(accumulator("blackwell-mxf4nvf4").takes(format("e4m3")));
    CHECK(accumulator("exact").takes(format("fp32")));
    const float x[] = {std::bit_cast<float>(0x3f801fff)}, one[] = {1.0F};
    CHECK(dot(accumulator("ampere-tf32"), format("fp32"), format("fp32"), x, one) == 1.0F);
    static_assert(dot(accumulator("hopper-wgmma-fp8"), format("e4m3"), format("e4m3"), {}, {}, 1.5F) == 1.5F);
}
