// FP4 scales and casts against what TransformerEngine's, Four Over Six's and Quartet II's own Python computes, recorded
// by tests/data/fp4_references/record.py: a million numbers a rule.
#include "recordings.h"
#include "sweep.h"

#include <ampscope/formats/block.h>
#include <ampscope/sim/backend/kernels/quantize.h>

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>

using namespace amp;
using namespace amp::test;

namespace {

struct Recording {
    std::string line, rule;
    std::int64_t rows = 0, columns = 0, height = 0, width = 0;
    std::uint32_t seed = 0;
    std::string scales, data;
};

std::vector<Recording> recordings() {
    std::vector<Recording> result;
    for (std::istringstream& words : recorded_lines("fp4_references/recordings.txt")) {
        Recording& r = result.emplace_back();
        r.line = words.str();
        words >> r.rule >> r.rows >> r.columns >> r.height >> r.width >> r.seed >> r.scales >> r.data;
    }
    return result;
}

/// The numbers that record.py makes.
std::vector<float> numbers(const Recording& r) {
    std::vector<float> x;
    for (std::uint32_t i = 0; i < r.rows; ++i)
        for (std::uint32_t j = 0; j < r.columns; ++j) {
            const std::uint32_t base = mixed(mixed(i / static_cast<std::uint32_t>(r.height) + r.seed) +
                                             j / static_cast<std::uint32_t>(r.width)),
                                word = mixed(mixed(i + 7 * r.seed + 1) + j), kind = base >> 28;
            const std::uint32_t exponent = (kind == 1 ? 20 : 130 - base % 14) - (word >> 24) % 6;
            std::uint32_t bits = (word & 0x807fffff) | exponent << 23;
            if (kind == 2) bits &= 0xffe00000;
            if (kind == 0 || mixed(word) % 8 == 0) bits = word & 0x80000000;
            if (r.rule.starts_with("hadamard")) bits &= 0xffff0000;
            x.push_back(std::bit_cast<float>(bits));
        }
    return x;
}

bool has(const std::string& rule, const std::string& word) {
    return (":" + rule + ":").find(":" + word + ":") != std::string::npos;
}

BlockScaling scaling_of(const Recording& r) {
    const std::string name = r.rule.substr(0, r.rule.find(':'));
    const bool four_over_six = name == "fouroversix", hadamard = name == "hadamard";
    const auto rule = parse_name<ScaleRule>("rule", scale_rule_names, four_over_six || hadamard ? "nvfp4" : name);
    const FourOverSix chooses = has(r.rule, "mae")   ? FourOverSix::mae
                                : has(r.rule, "mse") ? FourOverSix::mse
                                                     : FourOverSix::off;
    return {.element = format("e2m1"),
            .rows = r.height,
            .columns = r.width,
            .rule = rule,
            .upper = {.e4m3_max = has(r.rule, "256") || four_over_six ? 256 : 448,
                      .level = has(r.rule, "lines") ? UpperLevel::line : UpperLevel::tensor,
                      .four_over_six = chooses}};
}

/// A tensor that was cast: E4M3 scales, what is stored, and what each number is read as.
struct Cast {
    std::vector<float> scales, stored, read;
};

/// `word`: what is drawn for every block of MS-EDEN; it is rounded up with 0 and down with 2^32 - 1.
Cast cast(const Recording& r, const std::vector<float>& x, std::uint32_t word) {
    const BlockScaling s = scaling_of(r);
    const BlockGrid grid = s.grid(r.rows, r.columns);
    const std::vector<float> amax = block_amax(s, x, r.rows, r.columns),
                             upper = upper_scales(s, amax, r.rows, r.columns);
    std::vector<BlockScale> scales = block_scales(s, x, r.rows, r.columns, amax, upper);
    if (s.rule == ScaleRule::ms_eden) { // as a device corrects one block, with that word
        std::vector<BlockScale> first;
        for (const float a : amax) first.push_back(block_scale(s.rule, s.element, a, upper[0]));
        for (std::int64_t b = 0; b < grid.count(); ++b)
            scales[static_cast<std::size_t>(b)].decode =
                kernels::corrected_scale(s, {x.data(), r.rows, r.columns}, grid, b, first.data(), word);
    }
    Cast result{.scales = {}, .stored = std::vector<float>(x.size()), .read = {}};
    const bool away = s.rule != ScaleRule::nvfp4;
    quantize_blocks(s, x, r.rows, r.columns, scales, result.stored,
                    {.policy = {.rounding = away ? Rounding::nearest_away : Rounding::nearest_even}});
    for (const BlockScale& scale : scales) result.scales.push_back(scale.decode);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const float q = result.stored[i],
                    d = result.scales[static_cast<std::size_t>(grid.of(static_cast<std::int64_t>(i)))];
        result.read.push_back((s.rule == ScaleRule::ms_eden ? q * d * upper[0] : q * (d * upper[0])) + 0.0F);
    }
    return result;
}

/// The codes of E2M1; those of zeros have no sign, as the references lose it.
std::vector<std::uint8_t> codes_of(const Cast& cast) {
    std::vector<std::uint8_t> codes(cast.stored.size());
    encode(format("e2m1"), cast.stored, std::span(codes));
    for (std::uint8_t& code : codes) code = code == 8 ? 0 : code;
    return codes;
}

std::vector<float> rotated(const Recording& r, const std::vector<float>& x) {
    std::vector<float> result;
    for (std::int64_t i = 0; i < r.rows; ++i)
        for (std::int64_t j = 0; j < r.columns; ++j)
            result.push_back(quantize(format("bf16"), kernels::rotated({}, x.data() + j, r.rows, r.columns, i)));
    return result;
}

} // namespace

TEST_CASE("NVFP4 of TransformerEngine, 4-over-6, Quartet II: scales and codes of a million numbers a rule") {
    Tally tally;
    std::uint64_t elements = 0;
    for (const Recording& r : recordings()) {
        std::vector<float> x = numbers(r);
        if (r.rule.starts_with("hadamard")) x = rotated(r, x);
        elements += x.size();
        const auto same = [&](const std::string& got, const std::string& want, const char* what) {
            tally.expect(std::uint32_t{got == want}, 1U, [&] { return what + r.line; });
        };
        if (r.rule == "hadamard") {
            same(hash_of(x), r.data, "numbers of ");
            continue;
        }
        const Cast got = cast(r, x, has(r.rule, "up") ? 0 : 0xffffffff);
        if (r.scales != "-") same(hash_of(got.scales), r.scales, "scales of ");
        if (r.rule.starts_with("fouroversix")) { // which stores zeros below a scale of zero, as whose they are read
            const BlockGrid grid = scaling_of(r).grid(r.rows, r.columns);
            std::vector<float> stored = got.stored;
            for (std::size_t i = 0; i < stored.size(); ++i) {
                const auto block = static_cast<std::size_t>(grid.of(static_cast<std::int64_t>(i)));
                stored[i] = got.scales[block] == 0 ? 0 : stored[i] + 0.0F;
            }
            same(hash_of(stored), r.data, "numbers of ");
        } else {
            same(r.scales == "-" ? hash_of(got.read) : hash_of(codes_of(got)), r.data, "codes of ");
        }
    }
    CHECK(elements >= 33 * 1000000U);
    report("hashes of scales and codes of TransformerEngine's NVFP4, Four Over Six and Quartet II", tally);
}
