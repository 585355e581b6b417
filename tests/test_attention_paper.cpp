// Fused attention against the Python of arXiv:2510.04212, with its fix and without, as torch recorded it on a processor
// (tests/data/torch/fused_attention.py): bit for bit in BF16, whose steps `steps=bf16` rounds as torch does, and to
// single-precision accuracy in FP32, where torch's exponentials and orders of sums are its own.
#include "op_bench.h"

#include <ampscope/sim/program/graph.h>

#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <fstream>
#include <map>

using namespace amp;
using namespace amp::test;

namespace {

using Json = nlohmann::json;

/// Numbers by name: "q", "k", "v", "grad", "out", "lse", "grad_q", "grad_k", "grad_v".
using Named = std::map<std::string, std::vector<float>>;

const Json& recorded_attention() {
    static const Json all = [] {
        std::ifstream file(AMPSCOPE_TEST_DATA "/torch/fused_attention.json");
        return Json::parse(file);
    }();
    return all;
}

/// Codes of a format in hexadecimal, one after the other.
std::vector<float> numbers_of(const std::string& codes, const FormatSpec& f) {
    const std::size_t digits = static_cast<std::size_t>(f.bits()) / 4;
    std::vector<float> all;
    for (std::size_t at = 0; at < codes.size(); at += digits) {
        std::uint32_t code = 0;
        REQUIRE(std::from_chars(&codes[at], &codes[at] + digits, code, 16).ptr == &codes[at] + digits);
        all.push_back(static_cast<float>(decode(f, code)));
    }
    return all;
}

/// What the paper's Python gives.
Named theirs(const Json& run, const char* f, const char* way) {
    Named all;
    for (const auto& [name, codes] : run.at(f).at(way).items())
        all[name] = numbers_of(codes.get<std::string>(), format(f));
    return all;
}

Named operands_of(const Json& run) {
    Named all;
    for (const auto& [name, unit] : recorded_attention().at("unit").items())
        for (const float x : run.at(name).get<std::vector<float>>()) all[name].push_back(x * unit.get<float>());
    return all;
}

/// The same by the op with these options, forward and backward.
Named ours(const Json& run, const char* f, const std::string& options) {
    Precision p = precision("fp32");
    p.activations = p.gradients = format(f);
    Program program;
    Graph g(program, p);
    const auto shape = [&](const char* name) { return run.at(name).get<Shape>(); };
    const auto given = [&](const char* name, const Shape& s) { return g.given(name, s, format(f), false, true); };
    const TensorId q = given("q", shape("queries")), k = given("k", shape("keys")), v = given("v", shape("keys"));
    const auto tiles = run.at("tiles").get<std::vector<int>>();
    const TensorId out = op::fused_attention(
        g, q, k, v, 1 / std::sqrt(static_cast<double>(shape("queries")[3])), run.at("causal").get<bool>(),
        *op::attention_options(fmt::format("fused:{}x{}{}", tiles[0], tiles[1], options)));
    const TensorId lse = std::get<op::FusedAttention>(program.forward.back().op).lse;
    const TensorId grad = g.differentiate_from(out);
    Cpu cpu(program, 1);
    Named numbers = operands_of(run);
    for (const auto& [name, id] : {std::pair("q", q), {"k", k}, {"v", v}, {"grad", grad}})
        std::ranges::copy(numbers.at(name), cpu[id].begin());
    replay(cpu, program.forward);
    replay(cpu, program.backward);
    Named all;
    for (const auto& [name, id] : {std::pair("out", out),
                                   {"lse", lse},
                                   {"grad_q", g.gradient(q)},
                                   {"grad_k", g.gradient(k)},
                                   {"grad_v", g.gradient(v)}})
        all[name].assign(std::as_const(cpu)[id].begin(), std::as_const(cpu)[id].end());
    return all;
}

/// Calls compare(what, got, want) for every tensor of the runs that have the format.
template <class Compare>
void for_each_recorded(const char* f, const std::string& options, const Compare& compare) {
    for (const Json& run : recorded_attention().at("runs")) {
        if (!run.contains(f)) continue;
        for (const char* way : {"plain", "shifted"}) {
            const Named got = ours(run, f, fmt::format("{},max={}", options, way));
            for (const auto& [name, want] : theirs(run, f, way)) {
                REQUIRE(got.at(name).size() == want.size());
                compare(fmt::format("{} of {}, tiles {}, max={}", name, run.at("kind").get<std::string>(),
                                    run.at("tiles").dump(), way),
                        got.at(name), want);
            }
        }
    }
}

constexpr const char* all_bf16 = ",s=bf16,l=bf16,o=bf16,steps=bf16";

} // namespace

TEST_CASE("the paper's attention in BF16, bit for bit") {
    Tally tally;
    for_each_recorded("bf16", all_bf16, [&](const std::string& what, const auto& got, const auto& want) {
        for (std::size_t i = 0; i < want.size(); ++i)
            tally.expect(got[i] == 0 && want[i] == 0 ? want[i] : got[i], want[i],
                         [&] { return fmt::format("{}, element {}", what, i); });
    });
    report("fused attention by steps in BF16, against the paper's Python", tally);
}

TEST_CASE("the paper's attention in FP32") {
    Tally tally;
    for_each_recorded("fp32", "", [&](const std::string& what, const auto& got, const auto& want) {
        float largest = 1; // gradients are small differences of numbers that are not small
        for (const float x : want) largest = std::max(largest, std::fabs(x));
        for (std::size_t i = 0; i < want.size(); ++i)
            tally.expect(std::fabs(got[i] - want[i]) < 4e-6F * largest, true,
                         [&] { return fmt::format("{}, element {}: {} and {}", what, i, got[i], want[i]); });
    });
    report("fused attention in FP32, within 4e-6 of the paper's Python", tally);
}
