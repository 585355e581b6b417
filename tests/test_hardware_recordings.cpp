// What matrix hardware gave: tests/data/hardware, written by amp-crosscheck run --record. The rows of the table of
// accumulators give the same bits, and the recordings can tell them from sums that are nearly the same.
#include "tool.h"

#include <ampscope/sim/analysis/recorded_products.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

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
    REQUIRE(all.size() == 24); // every instruction of Hopper
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
        std::string bytes = read_file(r.file);
        int nans = 0; // of FP16 sums, which are all equal
        for (std::size_t at = bytes.size() - std::size_t{4} * 320; at < bytes.size(); at += 4) {
            float sum = 0;
            std::memcpy(&sum, &bytes[at], 4);
            nans += contains(r.row, "acc16") && std::isnan(sum) ? 1 : 0;
            bytes[at] ^= 1;
        }
        write_file(altered, bytes);
        for (const RecordedComparison& c : compare_recorded(altered, {.accumulator = r.row, .a = r.a, .b = r.b}))
            CHECK_MESSAGE(c.mismatches == c.cases - nans, r.file.string());
    }
}

TEST_CASE("recordings of hardware refute sums that are nearly the same") {
    std::map<std::string, std::uint64_t> refuted; // by row and difference, over all formats of operands
    for (const Recording& r : recordings())
        for (const RecordedComparison& c : compare_recorded(r.file, {.accumulator = r.row, .a = r.a, .b = r.b})) {
            CHECK(c.cases == 320);
            CHECK(c.mismatches == 0);
            for (const NearbySum& n : c.nearby) refuted[r.row + ": " + std::string(n.difference)] += n.refuted;
        }
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
