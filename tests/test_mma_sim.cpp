// Dot products with scales within the sums against what MMA-Sim's own Python computes, recorded by
// tests/data/mma_sim/record.py.
#include "hardware_inputs.h"
#include "sweep.h"

#include <ampscope/formats/scaled_dot.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace amp;
using namespace amp::test;

namespace {

struct Recording {
    std::string row, a, b, scales, kind, hash;
    std::uint32_t block = 0, seed = 0, count = 0, k = 0;
};

std::vector<Recording> recordings() {
    std::vector<Recording> all;
    for (std::istringstream& words : recorded_lines("mma_sim/recordings.txt")) {
        Recording& r = all.emplace_back();
        words >> r.row >> r.a >> r.b >> r.scales >> r.block >> r.kind >> r.seed >> r.count >> r.k >> r.hash;
    }
    return all;
}

// What follows makes the inputs of record.py.

float scale(const std::string& name, const std::string& kind, std::uint32_t word) {
    const bool exotic = kind == "any" || kind == "subnormal" || kind == "zeros";
    const bool nan = kind == "specials" && (word >> 20) % 64 == 0;
    const std::uint32_t of = word >> 8;
    if (name == "e8m0") return decode(format(name), nan ? 255 : exotic ? of % 255 : 115 + of % 25);
    std::uint32_t code = exotic ? of % 256 : 0x28 + of % 0x20;
    if ((code & 0x7f) == 0x7f) code &= 0x80;
    return decode(format(name), nan ? code | 0x7f : code);
}

float addend(const Recording& r, std::uint32_t word) {
    if (word % 4 == 0) return 0;
    const std::string kind = r.kind == "cancelling" ? "ordinary" : r.kind;
    const auto c = std::bit_cast<float>(Codes(format("fp32")).code(kind, word, false));
    return r.row == "blackwell-mxf4nvf4" && std::isinf(c) ? 1.0F : c; // see record.py
}

std::uint32_t result(const Recording& r, const Accumulator& acc, std::uint32_t line) {
    const FormatSpec fa = format(r.a), fb = format(r.b);
    const Codes a_codes(fa), b_codes(fb);
    const bool cancels = r.kind == "cancelling";
    std::vector<float> a, b, a_scales, b_scales;
    for (std::uint32_t i = 0; i < r.k; ++i) {
        const std::uint32_t pair = cancels ? i / 2 * 2 : i, other = cancels && i + 1 < r.k ? pair : i;
        a.push_back(decode(fa, a_codes.code(r.kind, word(r.seed, 8 * line, pair), i % 2 == 1)));
        b.push_back(decode(fb, b_codes.code(cancels ? "ordinary" : r.kind, word(r.seed, 8 * line + 1, other), false)));
    }
    for (std::uint32_t i = 0; r.block != 0 && i < r.k / r.block; ++i) {
        a_scales.push_back(scale(r.scales, r.kind, word(r.seed, 8 * line + 3, i)));
        b_scales.push_back(scale(r.scales, r.kind, word(r.seed, 8 * line + 4, i)));
    }
    const float c = addend(r, word(r.seed, 8 * line + 2, 0));
    float d = 0;
    if (r.block == 0) {
        d = dot(acc, fa, fb, a, b, c);
    } else { // scaled_dot with a sum so far
        const bool nan = std::ranges::any_of(a_scales, [](float x) { return std::isnan(x); }) ||
                         std::ranges::any_of(b_scales, [](float x) { return std::isnan(x); });
        if (nan) return 0x7fffffff;
        d = detail::whole_dot(acc, acc.reads(fa), acc.reads(fb), a, b, c, [&](std::size_t at) {
            return detail::term_scale(format(r.scales), a_scales[at / r.block], b_scales[at / r.block]);
        });
    }
    return std::isnan(d) ? 0x7fffffff : d == 0 ? 0 : std::bit_cast<std::uint32_t>(d);
}

} // namespace

TEST_CASE("rows of matrix hardware are what MMA-Sim computes") {
    const std::vector<Recording> all = recordings();
    REQUIRE(all.size() == 66);
    prove("dot products of MMA-Sim, by hashes", all.size(), [&](std::uint64_t index, Tally& tally) {
        const Recording& r = all[index];
        const Accumulator acc = accumulator(r.row);
        std::vector<std::uint32_t> results;
        for (std::uint32_t line = 0; line < r.count; ++line) results.push_back(result(r, acc, line));
        tally.expect(fnv(results), std::uint64_t{std::stoull(r.hash, nullptr, 16)},
                     [&] { return fmt::format("{} {} x {}, {} {}, {}", r.row, r.a, r.b, r.scales, r.block, r.kind); });
        tally.cases += r.count - 1; // one hash stands for so many
    });
}
