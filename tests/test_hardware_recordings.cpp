// What matrix hardware gave: tests/data/hardware, written by amp-crosscheck run --record. The rows of the table of
// accumulators give the same bits, and the recordings can tell them from sums that are nearly the same.
#include "tool.h"

#include <ampscope/formats/dot.h>
#include <ampscope/sim/analysis/recorded_products.h>
#include <ampscope/tools/amp-crosscheck/dot_inputs.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

using namespace amp;
using namespace amp::test;

namespace {

/// A recording: "hopper-fp16.fp16.fp16.safetensors" has its row and the formats of its operands in its name.
struct Recording {
    fs::path file;
    std::string row, a, b;

    explicit Recording(const fs::path& path) : file(path) {
        std::istringstream in(path.filename().string());
        for (std::string* word : {&row, &a, &b}) std::getline(in, *word, '.');
    }
};

std::vector<Recording> recordings() {
    std::vector<Recording> all;
    for (const auto& entry : fs::directory_iterator(AMPSCOPE_TEST_DATA "/hardware"))
        if (entry.path().extension() == ".safetensors") all.emplace_back(entry.path());
    REQUIRE(std::ranges::count_if(all, [](const Recording& r) { return r.row.starts_with("hopper"); }) ==
            24); // all it has
    return all;
}

Outcome vectors(const Recording& r, const fs::path& file) {
    return run_command(fmt::format("{} vectors {} {} --a {} --b {}", AMP_CROSSCHECK, r.row, file.string(), r.a, r.b));
}

} // namespace

TEST_CASE("recordings of hardware, and altered ones") {
    for (const Recording& r : recordings()) {
        const Outcome same = vectors(r, r.file);
        CHECK_MESSAGE(same.code == 0, same.out, same.err);
        const Scratch scratch;
        std::string bytes = read_file(r.file);
        bytes[bytes.size() - 2] ^= 1; // of the last sum
        const fs::path altered = scratch / "altered.safetensors";
        write_file(altered, bytes);
        const Outcome other = vectors(r, altered);
        CHECK_MESSAGE(other.code == 3, r.file.string(), other.out);
    }
}

TEST_CASE("each sum of a recording of hardware is compared") {
    const Scratch scratch;
    const fs::path altered = scratch / "altered.safetensors";
    for (const Recording& r : recordings()) {
        const RecordedQuestion question{.accumulator = r.row, .a = r.a, .b = r.b};
        const std::uint64_t cases = compare_recorded(r.file, question).front().cases;
        std::string bytes = read_file(r.file);
        std::uint64_t nans = 0; // of FP16 sums, which are all equal
        for (std::size_t at = bytes.size() - 4 * cases; at < bytes.size(); at += 4) {
            float sum = 0;
            std::memcpy(&sum, &bytes[at], 4);
            nans += contains(r.row, "acc16") && std::isnan(sum) ? 1 : 0;
            bytes[at] ^= 1;
        }
        write_file(altered, bytes);
        CHECK_MESSAGE(compare_recorded(altered, question).front().mismatches == cases - nans, r.file.string());
    }
}

TEST_CASE("recordings of hardware refute sums that are nearly the same") {
    std::map<std::string, std::uint64_t> refuted; // by row and difference, over all formats of operands
    std::uint64_t sums = 0;
    for (const Recording& r : recordings())
        for (const RecordedComparison& c : compare_recorded(r.file, {.accumulator = r.row, .a = r.a, .b = r.b})) {
            CHECK(c.cases >= 320);
            sums += c.cases;
            CHECK(c.mismatches == 0);
            for (const NearbySum& n : c.nearby) refuted[r.row + ": " + std::string(n.difference)] += n.refuted;
        }
    CHECK(sums == 7'680); // as tests/README.md says
    // What 320 sums cannot tell: that matters too seldom, or, for exponents of zeros, not at all.
    const std::string half = "hopper-fp16-acc16: ", wide = "hopper-wgmma-fp16-acc16: ",
                      mixed = "hopper-mma-fp8-acc16: ";
    const std::set<std::string> left = {half + "a bit less", half + "a bit more",  wide + "a bit less",
                                        wide + "a bit more", mixed + "a bit less", mixed + "a bit more"};
    for (const auto& r : refuted)
        if (r.first.find(": zeros") == std::string::npos)
            CHECK_MESSAGE((r.second > 0) != left.contains(r.first), r.first);
    for (const char* row : {"hopper-bf16", "hopper-wgmma-bf16", "hopper-tf32", "hopper-wgmma-tf32"})
        CHECK(refuted[row + std::string(": zeros without an exponent")] > 0);
}

namespace {

/// Which sums nearby give another answer than the row, for any input.
std::map<std::string, bool> told_apart(const Accumulator& acc, const FormatSpec& f) {
    using namespace crosscheck_tool;
    std::map<std::string, bool> told;
    const std::vector<NearbySum> nearby = nearby_sums(acc);
    for (const NearbySum& n : nearby) told[std::string(n.difference)] = false;
    const auto step = static_cast<std::size_t>(acc.products);
    for (std::size_t kind = 0; kind < dot_inputs_names.size(); ++kind)
        for (const std::size_t k : {step, 4 * step}) {
            const auto inputs = static_cast<DotInputs>(kind);
            const std::size_t cases = inputs == DotInputs::tiny ? 1000 : 100; // seldom an exponent of zeros matters
            const std::vector<float> a = dot_inputs(inputs, f, 1, cases * k),
                                     b = dot_inputs(inputs, f, 2, cases * k, true),
                                     c = sums_so_far(inputs, acc.result(), 3, cases);
            for (std::size_t i = 0; i < cases; ++i) {
                const auto answer = [&](const Accumulator& sum) {
                    return std::bit_cast<std::uint32_t>(
                        dot(sum, f, f, std::span(a).subspan(i * k, k), std::span(b).subspan(i * k, k), c[i]));
                };
                const std::uint32_t want = answer(acc);
                for (const NearbySum& n : nearby)
                    if (bool& differs = told[std::string(n.difference)]; !differs)
                        differs = answer(n.accumulator) != want;
            }
        }
    return told;
}

} // namespace

TEST_CASE("inputs tell rows that are stated from sums that are nearly the same") {
    int rows = 0;
    std::set<std::string> left;
    for (const HardwareRow& row : hardware_rows)
        for (const std::string& name : {std::string(row.name), std::string(row.name) + "-acc16"}) {
            if (name != row.name && row.acc16.empty()) continue;
            const Accumulator acc = accumulator(name);
            if (acc.evidence != Evidence::stated) continue;
            ++rows;
            std::map<std::string, bool> told; // over all formats of operands
            for (std::string_view rest = row.operands; !rest.empty();)
                for (const auto& sum : told_apart(acc, format(take_word(rest)))) told[sum.first] |= sum.second;
            CHECK(told.size() >= (acc.method == Accumulation::wrapped ? 1 : 2));
            for (const auto& sum : told)
                if (!sum.second) left.insert(name + ": " + sum.first);
        }
    CHECK(rows == 15);
    // No product of two FP16 or FP8 numbers is small enough for these.
    std::set<std::string> expected;
    for (const char* name : {"turing-fp16", "blackwell-fp8", "blackwell-fp8-acc16"})
        for (const char* zeros : {"a binade lower", "a binade higher", "without an exponent"})
            expected.insert(fmt::format("{}: zeros {}", name, zeros));
    CHECK(left == expected);
}
