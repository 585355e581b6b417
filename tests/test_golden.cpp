// Casts of ml_dtypes, PyTorch, NumPy and gfloat, recorded by data/golden/make_golden.py, against the profiles that
// claim to reproduce them: every step of every staircase, from both sides.
#include "sweep.h"

#include <ampscope/formats/codec.h>

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

using namespace amp;
using namespace amp::test;

namespace {

struct Step {
    std::uint32_t bits, code;
};

struct Row {
    std::string profile, format, rounding;
    std::vector<Step> steps;
};

std::vector<Row> read_rows(const std::string& path) {
    std::ifstream file(path);
    REQUIRE_MESSAGE(file.good(), path);
    std::vector<Row> rows;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with('#')) continue;
        std::istringstream words(line);
        Row row;
        words >> row.profile >> row.format >> row.rounding;
        for (std::string pair; words >> pair;) {
            const std::size_t colon = pair.find(':');
            row.steps.push_back({static_cast<std::uint32_t>(std::stoul(pair, nullptr, 16)),
                                 static_cast<std::uint32_t>(std::stoul(pair.substr(colon + 1), nullptr, 16))});
        }
        rows.push_back(row);
    }
    return rows;
}

} // namespace

TEST_CASE("recorded casts of other libraries") {
    std::map<std::string, Tally> tallies;
    for (const Row& row : read_rows(AMPSCOPE_TEST_DATA "/golden/casts.txt")) {
        const FormatSpec f = format(row.format);
        Policy policy = profile(row.profile).policy;
        policy.rounding = parse_name<Rounding>("casts.txt", rounding_names, row.rounding);
        Tally& tally = tallies[row.profile];
        const auto check = [&](std::uint32_t bits, std::uint32_t code) {
            const auto x = std::bit_cast<float>(bits);
            tally.expect(encode(f, x, policy), code,
                         [&] { return fmt::format("{} {} {}", row.format, row.rounding, Tally::show(x)); });
        };
        for (std::size_t i = 0; i < row.steps.size(); ++i) {
            const Step step = row.steps[i];
            check(step.bits, step.code);
            // If two neighbouring recorded inputs have the same code, every input between them has it.
            if (i == 0 || row.steps[i - 1].code != step.code || std::isnan(std::bit_cast<float>(step.bits))) continue;
            const std::uint32_t gap = step.bits - row.steps[i - 1].bits;
            for (const std::uint32_t part : {1u, 3u, 5u, 7u}) check(row.steps[i - 1].bits + gap / 8 * part, step.code);
        }
    }
    for (const auto& [name, tally] : tallies) report("profile " + name + " against recorded casts", tally);
    CHECK(tallies.size() == 5);
}
