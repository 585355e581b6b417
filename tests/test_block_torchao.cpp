// Scales and casts against torchao's for the same blocks, recorded by tests/data/torchao/scales.py.
#include "sweep.h"

#include <ampscope/formats/block.h>

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

using namespace amp;
using namespace amp::test;

namespace {

constexpr std::int64_t blocks = 600, width = 32;

/// The blocks that scales.py makes.
std::vector<float> make_blocks() {
    std::uint32_t x = 1;
    const auto next = [&] { return x = x * 1664525 + 1013904223; };
    std::vector<float> values;
    for (std::int64_t i = 0; i < blocks; ++i) {
        const std::uint32_t first = (next() >> 8) % 224 + 8;
        for (std::int64_t j = 0; j < width; ++j) {
            const std::uint32_t w = next();
            values.push_back(std::bit_cast<float>((w & 0x807fffff) | (first + (w >> 24) % 16) << 23));
        }
    }
    return values;
}

std::uint32_t fnv(const std::vector<std::uint8_t>& bytes) {
    std::uint32_t h = 0x811c9dc5;
    for (const std::uint8_t b : bytes) h = (h ^ b) * 0x01000193;
    return h;
}

/// A hash of the codes of all blocks, cast with these scales.
std::uint32_t hash_of_casts(const FormatSpec& element, const std::vector<float>& values,
                            const std::vector<BlockScale>& scales) {
    std::vector<float> q(values.size());
    quantize_blocks({.element = element, .rows = 1, .columns = width}, values, blocks, width, scales, q);
    std::vector<std::uint8_t> codes(values.size());
    encode(element, q, std::span(codes));
    return fnv(codes);
}

/// The amax that scales.py calls edges.
std::vector<float> make_edges(float max) {
    std::vector<float> edges;
    for (int e = -48; e < 116; ++e) {
        const float power = std::ldexp(max, e);
        for (std::uint32_t step = 0; std::isfinite(power) && step < 100; ++step)
            edges.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(power) + step));
    }
    for (const std::uint32_t bits :
         {0U, 1U, 0x7fffffU, 0x2b8cbcccU, 0x2b8cbccdU, 0x7f7fffffU, 0x7f800000U, 0x7fc00000U})
        edges.push_back(std::bit_cast<float>(bits));
    return edges;
}

std::uint32_t word(const std::string& hex, std::size_t digits, std::size_t i) {
    return static_cast<std::uint32_t>(std::stoul(hex.substr(i * digits, digits), nullptr, 16));
}

/// Scales just below powers of two, by their hash, and the last ones, of zero, infinity and NaN, one by one.
void check_edges(ScaleRule rule, const FormatSpec& element, const std::string& hash, const std::string& last,
                 Tally& tally) {
    const std::vector<float> edges = make_edges(decode(element, element.max_code()));
    std::vector<std::uint8_t> bytes;
    for (std::size_t i = 0; i < edges.size(); ++i) {
        const auto scale = std::bit_cast<std::uint32_t>(block_scale(rule, element, edges[i]).encode);
        for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<std::uint8_t>(scale >> shift));
        const std::size_t before = edges.size() - last.size() / 8;
        if (i >= before)
            tally.expect(scale, word(last, 8, i - before),
                         [&] { return fmt::format("{}, amax {}", element.name, edges[i]); });
    }
    tally.expect(fnv(bytes), word(hash, 8, 0), [&] { return fmt::format("edges of {}", element.name); });
}

} // namespace

TEST_CASE("torchao's scales and casts") {
    const std::vector<float> values = make_blocks();
    std::ifstream in(AMPSCOPE_TEST_DATA "/torchao/scales.txt");
    Tally tally;
    std::string line;
    std::getline(in, line); // skips the versions
    while (std::getline(in, line)) {
        std::istringstream words(line);
        std::string kind, mode, element, hash, recorded;
        words >> kind >> mode >> element >> hash >> recorded;
        if (kind == "edges") {
            check_edges(mode == "pow2" ? ScaleRule::torchao_pow2 : ScaleRule::torchao, format(element), hash, recorded,
                        tally);
            continue;
        }
        const bool mx = kind == "mx";
        const ScaleRule rule = parse_name<ScaleRule>("rule", scale_rule_names,
                                                     mx               ? "mx-" + mode
                                                     : mode == "pow2" ? "torchao-pow2"
                                                                      : "torchao");
        const FormatSpec f = format(element);
        std::vector<BlockScale> scales;
        for (std::size_t i = 0; i < blocks; ++i) {
            const auto block = std::span(values).subspan(i * width, width);
            // float8: amax is taken from each block's first number alone, so that saturation is tested, too.
            const float amax = mx ? block_amax({.rule = rule}, block, 1, width)[0] : std::fabs(block[0]);
            scales.push_back(block_scale(rule, f, amax));
            const std::uint32_t got = mx ? static_cast<std::uint32_t>(std::ilogb(scales.back().decode) + 127)
                                         : std::bit_cast<std::uint32_t>(scales.back().encode);
            tally.expect(got, word(recorded, mx ? 2 : 8, i),
                         [&] { return fmt::format("{} {} {}, block {}", kind, mode, element, i); });
        }
        tally.expect(hash_of_casts(f, values, scales), word(hash, 8, 0),
                     [&] { return "codes of " + kind + " " + mode + " " + element; });
    }
    report("torchao's scales and casts", tally);
    CHECK(tally.cases == 12 * (blocks + 1) + 4 * 9);
}
