// Counts for recorded gradients, against thresholds of the formats, element by element, in double.
#include "format_edges.h"
#include "recorded_files.h"

#include <ampscope/sim/findings/histogram.h>
#include <ampscope/sim/findings/histogram_report.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

using namespace amp;
using namespace amp::test;

namespace {

void check(const CastCounts& got, const Counted& want) {
    CHECK(got.underflow == want.underflow);
    CHECK(got.subnormal == want.subnormal);
    CHECK(got.normal == want.normal);
    CHECK(got.overflow == want.overflow);
}

/// Numbers over `binades` binades below 2^top, with every edge of every format and its neighbours.
std::vector<float> numbers(int top, int binades, int seed) {
    std::vector<float> values = {0.0F, -0.0F};
    for (int i = 0; i < 4000; ++i)
        values.push_back(std::ldexp(1 + static_cast<float>((i * 7919 + seed) % 8192) / 8192, top - i % binades) *
                         (i % 2 == 0 ? 1.0F : -1.0F));
    for (const auto& [name, e] : edges)
        for (const double edge : {e.last_underflow, e.first_normal, e.last_finite}) {
            const auto x = static_cast<float>(edge);
            if (std::abs(std::ilogb(edge) - top) < binades)
                values.insert(values.end(), {x, std::nextafter(x, 0.0F), std::nextafter(x, HUGE_VALF)});
        }
    return values;
}

HistogramOptions asked() {
    HistogramOptions options;
    options.formats = {usual_specs.begin(), usual_specs.end()};
    options.scales = {0.25, 3, 0x1p12};
    return options;
}

/// Two layers, one of them in two files.
struct Recorded {
    Scratch scratch;
    std::map<std::string, std::vector<float>> tensors = {{"a.weight.grad", numbers(4, 30, 1)},
                                                         {"a.bias.grad", numbers(18, 50, 2)},
                                                         {"b.weight.grad", numbers(-10, 60, 3)}};

    Recorded() {
        save(scratch / "1.safetensors", {{"a.weight.grad", tensors["a.weight.grad"]}});
        save(scratch / "2.safetensors",
             {{"a.bias.grad", tensors["a.bias.grad"]}, {"b.weight.grad", tensors["b.weight.grad"]}});
    }
    [[nodiscard]] std::vector<float> all(const std::string& layer = "") const {
        std::vector<float> values;
        for (const auto& [name, x] : tensors)
            if (name.starts_with(layer)) values.insert(values.end(), x.begin(), x.end());
        return values;
    }
};

void check(const HistogramEntry& entry, const std::vector<float>& values, const HistogramOptions& options) {
    for (std::size_t f = 0; f < options.formats.size(); ++f) {
        const FormatSpec& format = options.formats[f];
        CAPTURE(entry.name);
        CAPTURE(format.name);
        check(entry.unscaled.at(f), count(values, format.name, 1));
        const FormatCounts counts = format_counts(entry, format, options);
        CHECK(counts.scales.size() >= options.scales.size() + 1);
        for (const ScaleCounts& at : counts.scales) {
            CAPTURE(at.scale);
            check(at.counts, count(values, format.name, at.scale));
        }
    }
    CHECK(entry.magnitudes.histogram.count() == values.size());
    CHECK(entry.magnitudes.histogram.zero == static_cast<std::uint64_t>(std::ranges::count(values, 0.0F)));
}

} // namespace

TEST_CASE("tensors, layers and the total are counted element by element, at every scale") {
    const Recorded recorded;
    HistogramOptions options = asked();
    options.by = Grouping::layer;
    const HistogramFindings findings = histogram_findings({recorded.scratch / ""}, options);
    CHECK(findings.errors.empty());
    REQUIRE(findings.tensors.size() == 3);
    for (const HistogramEntry& tensor : findings.tensors) check(tensor, recorded.tensors.at(tensor.name), options);
    REQUIRE(findings.groups.size() == 2);
    for (const HistogramEntry& layer : findings.groups) check(layer, recorded.all(layer.name + "."), options);
    check(findings.total, recorded.all(), options);
    REQUIRE(findings.kinds.front().formats.size() == options.formats.size());
    REQUIRE(findings.kinds.front().advice.size() == options.formats.size());
}

TEST_CASE("the window holds every scale at which nothing overflows and little underflows, and no other") {
    const Recorded recorded;
    HistogramOptions options = asked();
    options.recommendation.limit = 0.02;
    const std::vector<float>& values = recorded.tensors.at("b.weight.grad");
    options.tensor = std::regex("^b");
    const HistogramFindings findings = histogram_findings({recorded.scratch / ""}, options);
    REQUIRE(findings.tensors.size() == 1);
    const auto nonzero = static_cast<double>(findings.total.magnitudes.histogram.nonzero());
    int windows = 0;
    for (std::size_t f = 0; f < options.formats.size(); ++f) {
        const std::optional<Window>& window = findings.kinds.front().formats[f].recommendation.window;
        for (int k = -100; k <= 100; ++k) {
            const Counted n = count(values, options.formats[f].name, std::ldexp(1.0, k));
            const bool safe = n.overflow == 0 && n.underflow / nonzero < options.recommendation.limit;
            CAPTURE(options.formats[f].name);
            CAPTURE(k);
            CHECK(safe == (window && window->low <= k && k <= window->high));
            windows += safe ? 1 : 0;
        }
    }
    CHECK(windows > 100); // for BF16 alone
}

TEST_CASE("the curves over the loss scale are counted element by element, and reach beyond the scales of interest") {
    const Recorded recorded;
    HistogramOptions options = asked();
    options.recommendation.limit = 0.02;
    const std::vector<float>& values = recorded.tensors.at("b.weight.grad");
    options.tensor = std::regex("^b");
    const HistogramFindings findings = histogram_findings({recorded.scratch / ""}, options);
    const ScaleCurves& scales = findings.kinds.front().scales;
    REQUIRE(scales.curves.size() == options.formats.size());
    const auto nonzero = static_cast<double>(findings.total.magnitudes.histogram.nonzero());
    for (std::size_t f = 0; f < options.formats.size(); ++f) {
        const ScaleCurve& curve = scales.curves[f];
        CAPTURE(curve.format.name);
        CHECK(static_cast<double>(curve.unscaled.underflow) == count(values, curve.format.name, 1).underflow);
        CHECK(curve.recommendation.log2_scale == findings.kinds.front().formats[f].recommendation.log2_scale);
        REQUIRE(curve.underflow.size() == curve.overflow.size());
        REQUIRE(curve.underflow.size() == scales.curves.front().underflow.size());
        for (std::size_t i = 0; i < curve.underflow.size(); ++i) {
            const Counted n =
                count(values, curve.format.name, std::ldexp(1.0, scales.first_log2 + static_cast<int>(i)));
            CAPTURE(i);
            CHECK(curve.underflow[i] == n.underflow / nonzero);
            CHECK(curve.overflow[i] == n.overflow / nonzero);
        }
        const Recommendation& advice = curve.recommendation;
        if (curve.format.exponent_bits == 8) continue; // BF16's window reaches beyond
        CHECK(scales.first_log2 <= std::min({0, advice.lowest_enough, advice.highest_safe}) - 8);
        CHECK(scales.first_log2 + static_cast<int>(curve.underflow.size()) - 1 >=
              std::max({0, advice.lowest_enough, advice.highest_safe}) + 8);
    }
}

TEST_CASE("gates are judged on the total, and a share of nothing does not hold") {
    const Recorded recorded;
    HistogramOptions options = asked();
    const double lost = count(recorded.all(), "fp16", 1).underflow;
    for (const double limit : {lost, lost + 1})
        options.gates.push_back(parse_gate("fp16.underflow<" + std::to_string(static_cast<int>(limit))));
    const HistogramFindings findings = histogram_findings({recorded.scratch / ""}, options);
    REQUIRE(findings.gates.size() == 2);
    CHECK(findings.gates[0].part == lost);
    CHECK(!findings.gates[0].holds);
    CHECK(findings.gates[1].holds);

    save(recorded.scratch / "zeros/1.safetensors", {{"z.grad", {0, 0}}});
    options.gates = {parse_gate("fp16.underflow/nonzero<=100%")};
    const HistogramFindings none = histogram_findings({recorded.scratch / "zeros"}, options);
    REQUIRE(none.gates.size() == 1);
    CHECK(none.gates[0].empty());
    CHECK(!none.gates[0].holds);
}

TEST_CASE("a damaged file is an error, of which nothing is counted; the others are") {
    const Recorded recorded;
    write_file(recorded.scratch / "0.safetensors", "damaged");
    const HistogramFindings findings = histogram_findings({recorded.scratch / ""}, asked());
    REQUIRE(findings.errors.size() == 1);
    CHECK(findings.errors[0].find("0.safetensors") != std::string::npos);
    check(findings.total, recorded.all(), asked());

    HistogramOptions options = asked();
    options.tensor = std::regex("no such name");
    const HistogramFindings nothing = histogram_findings({recorded.scratch / "1.safetensors"}, options);
    REQUIRE(nothing.errors.size() == 1);
    CHECK(nothing.errors[0].find("no tensor that --tensor and --step select") != std::string::npos);
    options.policy.rounding = Rounding::stochastic; // whose counts take a pass of their own, which nothing has
    options.scales = {3};
    const HistogramFindings random = histogram_findings({recorded.scratch / "0.safetensors"}, options);
    CHECK(random.errors.size() == 1);
    REQUIRE(random.kinds.front().formats.size() == options.formats.size());
    CHECK(random.kinds.front().formats[0].scales.size() == 2); // 1 and 3
}

TEST_CASE("who watches is told of every byte, and may end the work") {
    const Recorded recorded;
    Watched watched;
    histogram_findings({recorded.scratch / ""}, asked(), watched.watch());
    CHECK(watched.total == 2 * recorded.all().size() * sizeof(float)); // scale 3 takes a pass of its own
    CHECK(watched.done == watched.total);
    HistogramOptions options = asked();
    options.policy.rounding = Rounding::up;
    options.error = true;
    options.block = 2;
    Watched five;
    histogram_findings({recorded.scratch / ""}, options, five.watch());
    CHECK(five.total == 5 * recorded.all().size() * sizeof(float));
    CHECK(five.done == five.total);
    CHECK_THROWS_AS(histogram_findings({recorded.scratch / ""}, asked(), interrupting()), Interrupted);
}

TEST_CASE("a run of which only histograms remain is counted once, however often it is copied") {
    const Scratch scratch;
    const fs::path copy = scratch / "a", logs = scratch / "b", recorded = scratch / "c";
    fs::copy(fs::path(AMPSCOPE_TEST_DATA) / "run_v1", recorded, fs::copy_options::recursive);
    fs::create_directories(logs);
    for (const char* file : {"run.json", "histograms.jsonl"}) fs::copy(recorded / file, logs / file);
    fs::copy(logs, copy);
    const HistogramOptions options = [] {
        HistogramOptions o = asked();
        o.scales = {0.25, 0x1p12}; // other scales need the tensors
        return o;
    }();
    const auto counted = [&](const std::vector<fs::path>& paths, const std::vector<std::string>& warnings) {
        const HistogramFindings got = histogram_findings(paths, options);
        CHECK(got.errors.empty());
        CHECK(got.warnings == warnings);
        return got;
    };
    const auto warning = [](const fs::path& part, const fs::path& whole) {
        return (part / "histograms.jsonl").string() + ": its histograms are those of " +
               (whole / "histograms.jsonl").string() + "; counted once";
    };
    const HistogramFindings once = counted({logs}, {});
    CHECK(once.tensors.size() == 18);
    for (const auto& paths : {std::vector{logs, copy}, {copy, logs}}) {
        const HistogramFindings twice = counted(paths, {warning(logs, copy)});
        CHECK(twice.tensors.size() == 18);
        CHECK(twice.total.magnitudes.histogram == once.total.magnitudes.histogram);
        CHECK(twice.tensors.front().file == (copy / "histograms.jsonl").string()); // whatever order is given
    }
    // With its tensors, too, and from a time when it was shorter.
    const HistogramFindings both = counted({logs, recorded}, {warning(recorded, logs)});
    CHECK(both.tensors.size() == 18);
    CHECK(std::ranges::all_of(both.tensors, &HistogramEntry::measured));
    const std::string text = read_file(logs / "histograms.jsonl");
    write_file(copy / "histograms.jsonl", text.substr(0, text.size() * 2 / 3));
    CHECK(counted({copy, logs}, {warning(copy, logs)}).tensors.size() == 18);
    // Another run begins alike.
    std::string other = text;
    other.replace(other.rfind("\"step\":2"), 8, "\"step\":4");
    write_file(copy / "histograms.jsonl", other);
    CHECK(counted({copy, logs}, {}).tensors.size() == 36);

    // A row that is of no exponent makes its line unreadable.
    const std::size_t key = text.find("\"rows\":{\"") + 9, end = text.find('"', key);
    for (const char* exponent : {"-2147483648", "20001", "3x", ""}) {
        CAPTURE(exponent);
        write_file(copy / "histograms.jsonl", std::string(text).replace(key, end - key, exponent));
        CHECK(histogram_findings({copy}, options).tensors.size() == 17);
    }

    write_file(copy / "histograms.jsonl", "");
    const std::vector<std::string> errors = histogram_findings({copy}, options).errors;
    REQUIRE(errors.size() == 1);
    CHECK(errors[0] == copy.string() + ": no .safetensors, .npy, .npz, .pt or .pth file in this folder; its "
                                       "histograms.jsonl is empty");
}

TEST_CASE("what is NaN or infinite as recorded is said first, and no scale is advised from nothing") {
    const Scratch scratch;
    HistogramOptions options;
    options.formats = {format("fp16"), format("bf16")};
    const auto counted = [&](const fs::path& path) { return histogram_findings({path}, options); };
    const std::map<std::string, std::string> unscaled = {{"loss_scale", "1"}};
    save(scratch / "run/step_000001.safetensors", {{"b.grad", {1, 2}}, {"a.grad", {1, NAN}}}, unscaled);
    save(scratch / "run/step_000000.safetensors", {{"b.grad", {1, INFINITY, NAN}}, {"a.grad", {1, 2}}}, unscaled);
    const std::vector<std::string> advice = counted(scratch / "run").kinds.front().advice;
    REQUIRE(advice.size() == 3);
    CHECK(advice[0] == "3 elements in 2 of 4 tensors are NaN or infinite as recorded, first in b.grad in step 0: no "
                       "loss scale mends that. What follows is about the other elements.");
    CHECK(advice[1].starts_with("FP16: nothing becomes zero or overflows unscaled"));
    // A file that states no loss scale may have been recorded under one.
    const HistogramFindings unstated = counted(save(scratch / "unstated.safetensors", {{"a.grad", {1, NAN}}}));
    CHECK(
        unstated.kinds.front().advice[0] ==
        "1 element in 1 of 1 tensor is NaN or infinite as recorded, first in a.grad: no loss scale mends that, unless "
        "they still contain one that their files do not state (--recorded-scale). What follows is about the other "
        "elements.");
    CHECK(tensor_json(unstated.tensors.front(), options)["scale_stated"] == false);
    CHECK(!tensor_json(counted(scratch / "run").tensors.front(), options).contains("scale_stated"));
    // Under a loss scale it may be the scale that made them overflow.
    save(scratch / "scaled.safetensors", {{"a.grad", {1, INFINITY}}}, {{"loss_scale", "1024"}});
    CHECK(
        counted(scratch / "scaled.safetensors").kinds.front().advice[0] ==
        "1 element in 1 of 1 tensor is NaN or infinite as recorded, first in a.grad: a smaller loss scale than the one "
        "of the record mends what overflowed under that, and none mends what the network itself made so. What follows "
        "is about the other elements.");

    const HistogramFindings nan = counted(save(scratch / "nan.safetensors", {{"a.grad", {NAN, 0}}})),
                            zero = counted(save(scratch / "zero.safetensors", {{"a.grad", {0, 0}}}));
    CHECK(nan.kinds.front().advice[1] == "FP16: no finite non-zero gradient, so which scale it needs is unknown.");
    CHECK(zero.kinds.front().advice[0] == "FP16: no finite non-zero gradient; every scale will do.");
    for (const HistogramFindings* findings : {&nan, &zero}) {
        const auto fp16 = tensor_json(findings->tensors.front(), options)["formats"]["fp16"];
        CHECK(fp16["window_log2"].is_null());
        CHECK(fp16["recommended_log2_scale"].is_null()); // as the report's definitions say
    }
}
