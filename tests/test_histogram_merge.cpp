// Reports read for --merge: those written by this tool are read back, false and damaged ones are refused in one line.
#include "io_golden.h"
#include "recorded_files.h"

#include <ampscope/sim/findings/detail/histogram_summary.h>
#include <ampscope/sim/findings/histogram_report.h>
#include <ampscope/tools/amp-histogram/data_report.h>

using namespace amp;
using namespace amp::histogram_tool;
using namespace amp::test;

namespace {

HistogramOptions options_of(bool everything) {
    HistogramOptions options;
    options.formats = {format("fp16")};
    if (everything) {
        options.error = true;
        options.block = 32;
        options.policy.rounding = Rounding::up;
        options.scales = {3.5};
    }
    return options;
}

/// The fuzzer's seed without its first byte, which chooses the options, is a report.
std::string report_of(bool everything) {
    return read_file(fs::path(AMPSCOPE_TEST_DATA) / "../fuzz/corpus/merge" / (everything ? "everything" : "plain"))
        .substr(1);
}

std::string error_of(const fs::path& path, const HistogramOptions& options) {
    try {
        const std::vector<HistogramEntry> entries = read_histogram_report(path, options).tensors;
        return entries.empty() ? "no tensors" : "";
    } catch (const FileError& error) {
        return error.what();
    }
}

} // namespace

std::string json_of(const HistogramFindings& findings, const HistogramOptions& options) {
    std::string text;
    write_json(findings, options, [&](std::string_view piece) { text += piece; });
    return text;
}

TEST_CASE("a report is read as it was written") {
    const Scratch scratch;
    for (const bool everything : {false, true}) {
        const HistogramOptions options = options_of(everything);
        HistogramFindings findings;
        const fs::path report = write_file(scratch / "a.json", report_of(everything));
        findings.tensors = read_histogram_report(report, options).tensors;
        REQUIRE(findings.tensors.size() == 2);
        CHECK(findings.tensors[0].magnitudes.histogram.count() == 4);
        detail::summarize(findings, {}, options);
        const std::string written = json_of(findings, options);
        findings.tensors = read_histogram_report(write_file(scratch / "b.json", written), options).tensors;
        CHECK(json_of(findings, options) == written);
        CHECK(!error_of(scratch / "b.json", options_of(!everything)).empty()); // counted with other options
    }
}

TEST_CASE("lies are named, with the tensor that holds them") {
    struct Change {
        std::string from, to, says;
    };
    const std::vector<Change> changes{
        {"{", "", "byte 16: the JSON is broken here"},
        {"\"tool\"", "\"fool\"", "cannot merge: it is no report of amp-histogram with a schema version from 1 to 2"},
        {"\"schema_version\":1", "\"schema_version\":3", "it is no report of amp-histogram with a schema version from"},
        {"\"schema_version\"", "\"schema\"", "cannot merge: key 'schema_version' not found"},
        {"\"nearest_even\"", "\"down\"", "it was counted with another --rounding"},
        {"\"kind\":\"weight\"", "\"kind\":7", "tensors[0]: cannot merge: type must be string"},
        {"\"kind\":\"weight\"", "\"kind\":\"bias\"", "tensors[0]: cannot merge: unknown kind of tensor 'bias'"},
        {"\"zero\":", "\"zero\":-", "tensors[0]: cannot merge: expected a whole number, got -1"},
        {"\"zero\":", "\"zero\":0.5e", "tensors[0]: cannot merge: expected a whole number, got 5.0"},
        {"\"nan\":", "\"nan\":1", "its state and its count differ"},
        {"\"step\":", "\"step\":1.5,\"b\":", "its step is no whole number"},
        {"\"shape\":[4]", "\"shape\":[-4]", "expected a whole number, got -4"},
        {"\"rows\":{\"-25\"", "\"rows\":{\"x\"", "it has the exponent 'x'"},
        {"\"rows\":{\"-25\"", "\"rows\":{\"-4001\"", "it has the exponent '-4001'"},
        {"\"layer\"", "\"lawyer\"", "tensors[0]: cannot merge: key 'layer' not found"},
    };
    const Scratch scratch;
    for (const Change& change : changes) {
        std::string text = report_of(false);
        const std::size_t at = text.find(change.from);
        CAPTURE(change.from);
        REQUIRE(at != std::string::npos);
        const fs::path path = write_file(scratch / "a.json", text.replace(at, change.from.size(), change.to));
        const std::string error = error_of(path, options_of(false));
        CHECK_MESSAGE(error.find(change.says) != std::string::npos, error);
        CHECK(error.find("json.exception") == std::string::npos);
    }
    std::string directed = report_of(true);
    const std::size_t away = directed.find("\"toward\":{}");
    REQUIRE(away != std::string::npos);
    directed.replace(away, 11, "\"toward\":{\"0\":[1]}");
    CHECK(error_of(write_file(scratch / "a.json", directed), options_of(true))
              .ends_with("tensors[0]: cannot merge: the directions of its state and its count differ"));
    CHECK(error_of(scratch / "none.json", options_of(false)).ends_with("cannot be read: No such file or directory"));
    CHECK(error_of(scratch.folder(), options_of(false)).ends_with("is a folder, not a file"));
    CHECK(error_of(write_file(scratch / "deep.json", std::string(1'000'000, '[')), options_of(false))
              .ends_with("byte 100: more than 100 levels of JSON"));
}

TEST_CASE("damaged reports") {
    MemoryFile memory(".json");
    std::size_t cases = 0, mismatches = 0;
    for (const bool everything : {false, true}) {
        const HistogramOptions options = options_of(everything);
        const auto refused = [&](std::string_view bytes) {
            const fs::path& path = memory.set(bytes);
            const std::string error = error_of(path, options);
            ++cases;
            if (!error.empty() && (!error.starts_with(path.string() + ": ") || error.find('\n') != std::string::npos))
                ++mismatches;
            return !error.empty();
        };
        std::string bytes = report_of(everything);
        REQUIRE(!refused(bytes));
        const std::size_t end = bytes.rfind('}');
        for (std::size_t size = 0; size <= end; ++size)
            if (!refused(std::string_view(bytes).substr(0, size))) ++mismatches;
        for (char& byte : bytes) {
            const char original = byte;
            for (const int change : {0x01, 0x80, 0xff}) {
                byte = static_cast<char>(original ^ change);
                refused(bytes);
            }
            byte = original;
        }
    }
    fmt::print("proof: damaged reports are refused or read whole: {} cases, {} mismatches\n", cases, mismatches);
    CHECK(mismatches == 0);
}

TEST_CASE("who watches the merging of reports is told of every byte, and may end it") {
    const Scratch scratch;
    write_file(scratch / "a.json", report_of(true));
    Watched watched;
    CHECK(merged_histogram_findings({scratch / "a.json"}, options_of(true), watched.watch()).errors.empty());
    CHECK(watched.total == report_of(true).size());
    CHECK(watched.done == watched.total);
    CHECK_THROWS_AS(merged_histogram_findings({scratch / "a.json"}, options_of(true), interrupting()), Interrupted);
}

TEST_CASE("a file that two reports spell differently is counted once, in any order") {
    const Scratch scratch;
    HistogramOptions options;
    options.formats = {format("fp16")};
    const fs::path whole = fs::absolute(AMP_SAMPLE "/deep_tanh"), from_here = fs::proximate(whole);
    REQUIRE(from_here != whole);
    std::vector<fs::path> reports;
    for (const fs::path& folder : {whole, from_here, whole / "." / ".." / whole.filename()}) {
        const fs::path report = scratch / ("report_" + std::to_string(reports.size()) + ".json");
        reports.push_back(write_file(report, json_of(histogram_findings({folder}, options), options)));
    }
    const std::size_t tensors = histogram_findings({whole}, options).tensors.size();
    const HistogramFindings merged = merged_histogram_findings(reports, options);
    CHECK(merged.tensors.size() == tensors);
    CHECK(merged.warnings.size() == 2);
    std::ranges::reverse(reports);
    const HistogramFindings other_way = merged_histogram_findings(reports, options);
    REQUIRE(other_way.tensors.size() == tensors);
    for (std::size_t i = 0; i < tensors; ++i) CHECK(other_way.tensors[i].file == merged.tensors[i].file);
}

TEST_CASE("of a delayed scale, which follows from the steps before it, reports may not share out the steps") {
    const Scratch scratch;
    HistogramOptions options;
    options.formats = {format("fp16")};
    options.recipes = {recipe_choice("te-delayed")};
    const fs::path folder = AMP_SAMPLE "/deep_tanh";
    const auto counted = [&](const std::string& name, const fs::path& input) {
        std::string text;
        write_json(histogram_findings({input}, options), options, [&](std::string_view piece) { text += piece; });
        return write_file(scratch / name, text);
    };
    const fs::path first = counted("first.json", folder / "step_000000.safetensors"),
                   last = counted("last.json", folder / "step_000050.safetensors"),
                   whole = counted("whole.json", folder);
    CHECK(merged_histogram_findings({whole, whole}, options).tensors.size() ==
          histogram_findings({folder}, options).tensors.size());
    const auto refused = [&](const std::vector<fs::path>& reports) {
        try {
            merged_histogram_findings(reports, options);
            return std::string();
        } catch (const FileError& error) {
            return std::string(error.what());
        }
    };
    const std::string error = refused({last, first});
    CHECK(
        error.starts_with(last.string() + ": te-delayed takes its scales from the steps before, and other steps of '"));
    CHECK(error.ends_with("' are in " + first.string() + ": count all steps in one pass"));
    CHECK(!refused({whole, first}).empty());
    options.recipes = {recipe_choice("te-current")};
    const fs::path a = counted("a.json", folder / "step_000000.safetensors"),
                   b = counted("b.json", folder / "step_000050.safetensors");
    CHECK(refused({a, b}).empty());
}

TEST_CASE("reports of formats that end within a binade are merged, and one that lacks their ends is refused") {
    const Scratch scratch;
    HistogramOptions options;
    options.formats = {format("binary8p3se"), format("binary8p1sf"), format("e4m3")};
    const fs::path folder = AMP_SAMPLE "/deep_tanh";
    const auto report = [&](const std::string& name, const fs::path& input, const HistogramOptions& asked) {
        return write_file(scratch / name, json_of(histogram_findings({input}, asked), asked));
    };
    const fs::path a = report("a.json", folder / "step_000000.safetensors", options),
                   b = report("b.json", folder / "step_000050.safetensors", options);
    const HistogramFindings whole = histogram_findings({folder}, options),
                            merged = merged_histogram_findings({a, b}, options);
    CHECK(merged.errors.empty());
    CHECK(merged.total.fine == whole.total.fine);
    CHECK(merged.total.fine.ends.size() == 2);
    for (std::size_t i = 0; i < options.formats.size(); ++i)
        CHECK(merged.total.unscaled[i].underflow == whole.total.unscaled[i].underflow);

    HistogramOptions fewer = options;
    fewer.formats = {format("e4m3")};
    const std::string says = error_of(report("c.json", folder / "step_000000.safetensors", fewer), options);
    CHECK_MESSAGE(
        says.ends_with("cannot merge: it does not tell where formats of 0 fraction bits end; run amp-histogram "
                       "on the tensors with the formats of this merge"),
        says);
    nlohmann::ordered_json lie = nlohmann::ordered_json::parse(read_file(a));
    nlohmann::ordered_json& rows = lie["tensors"][0]["state"]["ends"]["0"];
    rows.erase(rows.begin().key());
    CHECK(error_of(write_file(scratch / "lie.json", lie.dump()), options)
              .ends_with("cannot merge: the ends of formats in its state and its rows differ"));
}

TEST_CASE("reports that know other formats of blocks are merged in those that all of them know") {
    const Scratch scratch;
    const HistogramOptions options = options_of(true);
    nlohmann::ordered_json other = nlohmann::ordered_json::parse(report_of(true));
    for (auto& tensor : other["tensors"]) // of another name, for a tensor that two reports hold counts once
        tensor["name"] = "other." + tensor["name"].get<std::string>();
    nlohmann::ordered_json earlier = other;
    for (auto& tensor : earlier["tensors"]) tensor["blocks"]["formats"].erase("e2m3");
    const fs::path a = write_file(scratch / "a.json", report_of(true)),
                   b = write_file(scratch / "b.json", earlier.dump());
    const auto merged = [&](const std::vector<fs::path>& paths) {
        const HistogramFindings findings = merged_histogram_findings(paths, options);
        CHECK(findings.errors.empty());
        CHECK(findings.total.tensors == 4);
        return findings.total.blocks;
    };
    const BlockStatistics twice = merged({a, write_file(scratch / "other.json", other.dump())});
    REQUIRE(std::ranges::count(twice.formats, format("e2m3"), &BlockCounts::format) == 1);
    for (const auto& paths : {std::vector{a, b}, {b, a}}) {
        const BlockStatistics both = merged(paths);
        CHECK(both.blocks == twice.blocks);
        CHECK(both.formats.size() == twice.formats.size() - 1);
        for (const BlockCounts& f : both.formats) {
            const auto all = std::ranges::find(twice.formats, f.format, &BlockCounts::format);
            REQUIRE(all != twice.formats.end());
            CHECK(f.mx == all->mx);
            CHECK(f.amax == all->amax);
            CHECK(f.tensor == all->tensor);
        }
    }
}
