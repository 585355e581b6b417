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

std::uint32_t word(const std::string& hex, std::size_t digits, std::size_t i) {
    return static_cast<std::uint32_t>(std::stoul(hex.substr(i * digits, digits), nullptr, 16));
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
    CHECK(tally.cases == 12 * (blocks + 1));
}
