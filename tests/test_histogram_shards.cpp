// Shards of a recording: what --merge makes of all of them is, byte for byte, the report of one run.
#include <ampscope/sim/findings/histogram_shards.h>
#include <ampscope/tools/amp-histogram/report.h>

#include "io_files.h"
#include "sanitized.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <random>

using namespace amp;
using namespace amp::test;
using amp::histogram_tool::write_json;
namespace fs = std::filesystem;

namespace {

std::string json_of(const HistogramFindings& findings, const HistogramOptions& options) {
    std::string text;
    write_json(findings, options, [&](std::string_view piece) { text += piece; });
    return text;
}

/// Numbers of 60 binades, some of them 0.
std::vector<float> numbers(std::size_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<float> values(n);
    for (float& x : values)
        x = random() % 50 == 0
                ? 0.0f
                : std::ldexp(static_cast<float>(random()) - 0x1p31f, -40 - static_cast<int>(random() % 60));
    return values;
}

std::string safetensors(const std::string& header, const std::string& data) {
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

/// A folder with large tensors of FP32 and BF16, small ones, one without elements, and a file that cannot be read.
struct Recorded {
    Scratch scratch;
    fs::path folder = scratch / "run";

    explicit Recorded(bool broken) {
        fs::create_directory(folder);
        const auto file = [&](const std::string& name, const std::string& header, const std::string& data) {
            write_file(folder / name, safetensors(header, data));
        };
        const std::vector<float> large = numbers(300'001, 1), small = numbers(77, 2);
        const auto bytes = [](const auto& values) {
            return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
        };
        std::vector<std::uint16_t> halves;
        for (const float x : numbers(200'000, 3))
            halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
        file("step_1.safetensors",
             R"({"a.grad":{"dtype":"F32","shape":[300001],"data_offsets":[0,1200004]},)"
             R"("b.grad":{"dtype":"F32","shape":[7,11],"data_offsets":[1200004,1200312]}})",
             bytes(large) + bytes(small));
        file("step_2.safetensors",
             R"({"a.grad":{"dtype":"BF16","shape":[400,500],"data_offsets":[0,400000]},)"
             R"("empty.grad":{"dtype":"F32","shape":[0],"data_offsets":[400000,400000]}})",
             bytes(halves));
        if (broken) write_file(folder / "step_3.safetensors", "no tensors");
    }
};

HistogramOptions asked(Rounding rounding = Rounding::nearest_even) {
    HistogramOptions options;
    options.formats = {format("fp16"), format("e4m3"), format("binary8p3se")};
    options.scales = {3, 1024};
    options.policy.rounding = rounding;
    options.threads = 2;
    return options;
}

/// Reports of the given shards, in files; their names do not sort as their numbers do.
std::vector<fs::path> reports_of(const Recorded& recorded, const HistogramOptions& options,
                                 const std::vector<std::uint64_t>& numbers, std::uint64_t of) {
    std::vector<fs::path> reports;
    for (const std::uint64_t k : numbers)
        reports.push_back(
            write_file(recorded.scratch / fmt::format("shard-{}-{}-of-{}.json", (k * 7) % 10, k, of),
                       json_of(histogram_shards({recorded.folder}, options, single_shard(k, of)), options)));
    return reports;
}

std::vector<std::uint64_t> all_of(std::uint64_t of) {
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t k = 1; k <= of; ++k) numbers.push_back(k);
    return numbers;
}

} // namespace

TEST_CASE("a merge of all shards has the bytes of one run, also beside a file that cannot be read") {
    for (const bool broken : {false, true}) {
        const Recorded recorded(broken);
        for (const Rounding rounding : {Rounding::nearest_even, Rounding::up, Rounding::stochastic}) {
            if (under_sanitizers && broken != (rounding == Rounding::up)) continue; // three of the six
            const HistogramOptions options = asked(rounding);
            const std::string whole = json_of(histogram_findings({recorded.folder}, options), options);
            CHECK((whole.find("step_3") != std::string::npos) == broken);
            const bool all = rounding == Rounding::nearest_even && !broken; // the other cases are slow
            for (const std::uint64_t of :
                 all && !under_sanitizers ? std::vector{1U, 2U, 3U, 7U, 40U} : std::vector{3U}) {
                const std::vector<fs::path> reports = reports_of(recorded, options, all_of(of), of);
                const HistogramFindings merged = merged_histogram_findings(reports, options);
                CAPTURE(of);
                CAPTURE(name_of(rounding));
                CHECK(json_of(merged, options) == whole);
                CHECK(merged.errors.size() == (broken ? 1 : 0));
            }
        }
    }
}

TEST_CASE("every shard counts a like number of bytes, and together all numbers once") {
    const Recorded recorded(false);
    const HistogramOptions options = asked();
    const std::uint64_t of = 4, bytes = 1'600'312;
    std::uint64_t elements = 0;
    for (const std::uint64_t k : all_of(of)) {
        std::uint64_t counted = 0;
        for (const HistogramEntry& t : histogram_shards({recorded.folder}, options, single_shard(k, of)).tensors) {
            elements += t.magnitudes.histogram.count();
            counted += t.magnitudes.histogram.count() * (t.dtype == "BF16" ? 2 : 4);
        }
        CHECK(counted + 4 * sum_block > bytes / of); // less than a block from the share
        CHECK(counted < bytes / of + 4 * sum_block);
    }
    CHECK(elements == 300'001 + 77 + 200'000);
}

TEST_CASE("what takes whole tensors counts them whole, and gives the bytes of one run, too") {
    const Recorded recorded(false);
    HistogramOptions options = asked();
    options.error = true;
    options.block = 32;
    options.recipes = {recipe_choice("te-mxfp8")};
    const std::string whole = json_of(histogram_findings({recorded.folder}, options), options);
    const std::vector<fs::path> reports = reports_of(recorded, options, all_of(3), 3);
    CHECK(json_of(merged_histogram_findings(reports, options), options) == whole);
    options.recipes = {recipe_choice("te-delayed")};
    CHECK_THROWS_WITH_AS(histogram_shards({recorded.folder}, options, single_shard(1, 2)),
                         doctest::Contains("te-delayed takes its scales from the steps before"), std::invalid_argument);
}

TEST_CASE("missing and doubled shards are named, and the rest is reported") {
    const Recorded recorded(false);
    const HistogramOptions options = asked();
    const std::vector<fs::path> some = reports_of(recorded, options, {1, 2, 5, 6, 7}, 7);
    const HistogramFindings partial = merged_histogram_findings(some, options);
    REQUIRE(partial.errors.size() == 2);
    CHECK_MESSAGE(partial.errors[0].ends_with(": shards 3, 4 of 7 are in no report"), partial.errors[0]);
    CHECK_MESSAGE(partial.errors[1].ends_with(": 1 of its tensors are incomplete, and left out"), partial.errors[1]);
    CHECK(partial.tensors.size() == 3);

    std::vector<fs::path> twice = reports_of(recorded, options, all_of(2), 2);
    twice.push_back(write_file(recorded.scratch / "z.json", read_file(twice[0])));
    const HistogramFindings doubled = merged_histogram_findings(twice, options);
    REQUIRE(doubled.errors.size() == 1);
    CHECK(doubled.errors[0] ==
          fmt::format("{}: shard 1 of 2 is in {}, too; counted once", twice[2].string(), twice[0].string()));
    CHECK(doubled.total.magnitudes.histogram ==
          histogram_findings({recorded.folder}, options).total.magnitudes.histogram);

    const HistogramFindings many = merged_histogram_findings(reports_of(recorded, options, {20}, 40), options);
    CHECK_MESSAGE(
        many.errors[0].ends_with(": shards 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 29 others of 40 are in no report"),
        many.errors[0]);
}

TEST_CASE("a file that breaks while shards are counted is counted nowhere, as in one run") {
    const Recorded recorded(false);
    const HistogramOptions options = asked();
    std::string archive = read_file(fs::path(AMPSCOPE_TEST_DATA) / "io" / "deflated.npz");
    const std::size_t second = archive.find("PK\x03\x04", 4);
    archive[second - 9] ^= 1;                                 // within the first member, whose checksum is then wrong
    archive[archive.find("PK\x03\x04", second + 4) - 9] ^= 1; // and within the second one: the first is the one named
    write_file(recorded.folder / "step_4.npz", archive);
    const HistogramFindings once = histogram_findings({recorded.folder}, options);
    REQUIRE(once.errors.size() == 1);
    for (const std::uint64_t of : {2U, 7U}) {
        const std::vector<fs::path> reports = reports_of(recorded, options, all_of(of), of);
        CHECK(json_of(merged_histogram_findings(reports, options), options) == json_of(once, options));
    }
}

TEST_CASE("parts that were counted in different ways do not make up a tensor, nor do parts that lie") {
    const Recorded recorded(false);
    const HistogramOptions options = asked();
    HistogramOptions scaled = options;
    scaled.recorded_scale = 1024;
    const auto report = [&](const HistogramOptions& o, std::uint64_t k) {
        return json_of(histogram_shards({recorded.folder}, o, single_shard(k, 2)), o);
    };
    const auto merged = [&](const std::string& a, const std::string& b) {
        return merged_histogram_findings(
            {write_file(recorded.scratch / "a.json", a), write_file(recorded.scratch / "b.json", b)}, options);
    };
    CHECK(merged(report(options, 1), report(options, 2)).errors.empty());
    CHECK(merged(report(options, 1), report(scaled, 2)).errors.size() >= 2); // of another recording

    nlohmann::ordered_json second = nlohmann::ordered_json::parse(report(options, 2));
    const auto lies = [&](const char* pointer, const nlohmann::ordered_json& value) {
        nlohmann::ordered_json lie = second;
        lie[nlohmann::ordered_json::json_pointer(pointer)] = value;
        const HistogramFindings findings = merged(report(options, 1), lie.dump());
        return findings.errors.empty() ? std::string() : findings.errors[0];
    };
    REQUIRE(second["tensors"][0]["shard"].contains("begin"));
    CHECK(lies("/tensors/0/recorded_scale", 1024)
              .ends_with("1 of its tensors are no whole ones in all shards together, "
                         "and left out"));
    CHECK(lies("/tensors/0/shard/elements", 1000000).ends_with("and left out"));
    CHECK(
        lies("/tensors/0/shard/sum_squares", "0x1p-2147483648").ends_with("a part of a tensor contradicts its state"));
    CHECK(lies("/tensors/0/shard/begin", 7).ends_with("a part of a tensor contradicts its state"));
    CHECK(lies("/shards/numbers", {2, 2}).ends_with("the numbers of its shards contradict each other"));
    CHECK(lies("/shards/numbers", {3}).ends_with("the numbers of its shards contradict each other"));
    second.erase("shards");
    CHECK(merged(report(options, 1), second.dump())
              .errors[0]
              .ends_with("a tensor is of a shard, and the report says of "
                         "none"));
}

TEST_CASE("progress of a shard ends at its total") {
    const Recorded recorded(false);
    for (const HistogramOptions& options : {asked(), asked(Rounding::up)})
        for (const std::uint64_t k : {1U, 2U, 3U}) {
            std::uint64_t total = 0, progressed = 0;
            histogram_shards({recorded.folder}, options, single_shard(k, 3), [&](std::uint64_t all) -> Progress {
                total = all;
                return [&](std::uint64_t done) { progressed += done; };
            });
            CHECK(progressed == total);
        }
}
