// Kinds of recorded tensors: what their names mean in each version of the schema, that they are never mixed, and how
// formats hold those that no loss scale multiplies.
#include "format_edges.h"
#include "recorded_files.h"

#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/findings/adam.h>
#include <ampscope/sim/findings/comparison.h>
#include <ampscope/sim/findings/histogram_report.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/step_log.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

using namespace amp;
using namespace amp::test;

namespace {

/// Recorded by the last version that wrote schema version 1:
/// amp-train --model mlp --width 4 --depth 2 --steps 3 --precision fp32,amp-fp16 --record v1 --record-every 2
///     --record-state --seed 1; the report by amp-histogram v1/amp-fp16 --format fp16,e5m2 --step 2 --json -
const fs::path version_1 = fs::path(AMPSCOPE_TEST_DATA) / "run_v1",
               report_1 = fs::path(AMPSCOPE_TEST_DATA) / "run_v1_report.json";

HistogramOptions asked(std::initializer_list<const char*> formats = {"fp16", "e4m3"}) {
    HistogramOptions options;
    for (const char* name : formats) options.formats.push_back(format(name));
    return options;
}

template <class Tensors>
std::map<std::string, std::uint64_t> by_kind(const Tensors& tensors) {
    std::map<std::string, std::uint64_t> numbers;
    for (const auto& t : tensors) ++numbers[std::string(name_of(t.kind))];
    return numbers;
}

std::vector<RecordedMagnitudes> lines_of(const fs::path& log) {
    std::vector<RecordedMagnitudes> lines;
    std::vector<std::string> warnings;
    read_histogram_log(
        log, [&](const RecordedMagnitudes& line) { lines.push_back(line); }, warnings);
    CHECK(warnings.empty());
    return lines;
}

std::map<std::string, std::string> stating(const std::string& kinds, const std::string& version = "2",
                                           const std::string& scale = "1") {
    std::map<std::string, std::string> metadata = {{"kinds", kinds}, {"loss_scale", scale}, {"step", "4"}};
    if (!version.empty()) metadata["schema_version"] = version;
    return metadata;
}

constexpr const char* five =
    R"({"w":"weight","w.grad":"weight_gradient","a":"activation","a.grad":"activation_gradient",)"
    R"("w.m":"state"})";

/// Numbers over `binades` binades below 2^top, zeros among them.
std::vector<float> numbers(int top, int binades, int seed) {
    std::vector<float> values = {0.0F, -0.0F};
    for (int i = 0; i < 3000; ++i)
        values.push_back(std::ldexp(1 + static_cast<float>((i * 7919 + seed) % 8192) / 8192, top - 1 - i % binades) *
                         (i % 2 == 0 ? 1.0F : -1.0F));
    return values;
}

/// Tensors of all kinds in one file, gradients under a loss scale of 2^10.
struct AllKinds {
    Scratch scratch;
    NamedValues tensors = {{"w", numbers(-1, 6, 1)},
                           {"w.grad", numbers(5, 40, 2)},
                           {"a", numbers(18, 20, 3)},
                           {"a.grad", numbers(-3, 30, 4)},
                           {"w.m", numbers(-20, 10, 5)}};
    fs::path file = save(scratch / "all/x.safetensors", tensors, stating(five, "2", "1024"));

    [[nodiscard]] const std::vector<float>& values(const std::string& name) const {
        return std::ranges::find(tensors, name, [](const auto& t) { return t.first; })->second;
    }
};

/// The fit of one tensor, by a search over scales in which every element is counted.
FormatFit searched(const std::vector<float>& values, const std::string& format, double limit) {
    const auto nonzero =
        static_cast<double>(std::ranges::count_if(values, [](float x) { return x != 0 && std::isfinite(x); }));
    if (nonzero == 0) return {};
    int own = 300;
    while (count(values, format, std::ldexp(1.0, own)).overflow > 0) --own;
    const auto counts = [&](int k) {
        const Counted n = count(values, format, std::ldexp(1.0, k));
        return ClassCounts{static_cast<std::uint64_t>(n.underflow), static_cast<std::uint64_t>(n.subnormal),
                           static_cast<std::uint64_t>(n.normal), static_cast<std::uint64_t>(n.overflow)};
    };
    const auto holds = [&](int k) {
        return counts(k).overflow == 0 && static_cast<double>(counts(k).underflow) < limit * nonzero;
    };
    return {
        1,         counts(0).overflow > 0 ? 1U : 0U, holds(0) ? 1U : 0U, holds(own) ? 1U : 0U, counts(0), counts(own),
        {own, own}};
}

} // namespace

TEST_CASE("in a run of schema version 1 weight and activation mean their gradients") {
    CHECK(read_file(version_1 / "run.json").find("\"schema_version\": 1,") != std::string::npos);
    const Recording found = find_tensors({version_1}, {}, {.state = true});
    CHECK(found.errors.empty());
    CHECK(by_kind(found.tensors) ==
          std::map<std::string, std::uint64_t>{
              {"weight_gradient", 12}, {"activation_gradient", 6}, {"weight", 12}, {"state", 24}});
    for (const RecordedTensor& t : found.tensors) {
        CHECK(is_gradient(t.kind) == t.entry.name.ends_with(".grad"));
        CHECK((t.kind == TensorKind::activation_gradient) == t.entry.name.ends_with(".out.grad"));
        CHECK(t.recorded_scale == (is_gradient(t.kind) ? 65536 : 1));
    }
    CHECK(by_kind(find_tensors({version_1}).tensors).size() == 2);
    CHECK(by_kind(lines_of(version_1 / "histograms.jsonl")) ==
          std::map<std::string, std::uint64_t>{{"weight_gradient", 12}, {"activation_gradient", 6}});
    const StepLog log = read_step_log(version_1);
    REQUIRE(log.steps.size() == 3);
    CHECK(log.steps[0].amax_weight == 0.1148681640625);
    CHECK(log.steps[0].amax_activation == 0.01479339599609375);
}

TEST_CASE("every question is answered for a run of schema version 1 by its gradients") {
    const HistogramFindings counted = histogram_findings({version_1}, asked({"fp16", "e5m2"}));
    CHECK(counted.errors.empty());
    CHECK(counted.tensors.size() == 18);
    CHECK(counted.other_kinds == KindSet{TensorKind::weight, TensorKind::state}); // in state/
    HistogramOptions weights = asked();
    weights.kinds = {TensorKind::weight};
    CHECK(histogram_findings({version_1}, weights).tensors.size() == 12);

    HistogramOptions second = asked({"fp16", "e5m2"});
    second.steps = {2, 2};
    const HistogramFindings one = histogram_findings({version_1}, second),
                            merged = merged_histogram_findings({report_1}, second);
    CHECK(merged.errors.empty());
    REQUIRE(merged.tensors.size() == 9);
    REQUIRE(one.tensors.size() == 9);
    for (std::size_t i = 0; i < 9; ++i) {
        CHECK(merged.tensors[i].name == one.tensors[i].name);
        CHECK(merged.tensors[i].kinds == one.tensors[i].kinds);
        CHECK(merged.tensors[i].magnitudes.histogram == one.tensors[i].magnitudes.histogram);
    }
    // A report of that version does not say what FP16 hid, so its advice is that of what was recorded.
    CHECK(merged.kinds.front().advice.front().ends_with("no loss scale needed."));
    CHECK(one.kinds.front().advice.front().find("is unknown") != std::string::npos);
    for (std::size_t i = 0; i < 2; ++i)
        CHECK(merged.kinds.front().total.unscaled[i].underflow == one.kinds.front().total.unscaled[i].underflow);

    const AdamFindings adam = adam_findings(version_1, standard_adam_options());
    CHECK(adam.tensors.size() == 6);
    const ComparisonFindings comparison = comparison_findings({version_1}, {});
    REQUIRE(comparison.runs.size() == 1);
    CHECK(comparison.runs.front().tensors.size() == 9);
    CHECK(comparison.runs.front().kinds.empty());
}

TEST_CASE("files and lines state their kinds and the version that these names are of") {
    const AllKinds all;
    const Recording found = find_tensors({all.file});
    REQUIRE(found.tensors.size() == 5);
    const std::map<std::string, TensorKind> kinds = {{"w", TensorKind::weight},
                                                     {"w.grad", TensorKind::weight_gradient},
                                                     {"a", TensorKind::activation},
                                                     {"a.grad", TensorKind::activation_gradient},
                                                     {"w.m", TensorKind::state}};
    for (const RecordedTensor& t : found.tensors) {
        CHECK(t.kind == kinds.at(t.entry.name));
        CHECK(t.recorded_scale == (is_gradient(t.kind) ? 1024 : 1));
    }
    std::string log;
    for (const auto& [name, kind] : kinds)
        log +=
            histogram_line({.tensor = name, .kind = kind, .format = "fp32", .magnitudes = {.zero = 1}}).dump() + "\n";
    const auto lines = lines_of(write_file(all.scratch / "log.jsonl", log));
    REQUIRE(lines.size() == 5);
    for (const RecordedMagnitudes& line : lines) CHECK(line.kind == kinds.at(line.tensor));
    // The same names in version 1, which a file or line without a version is of.
    for (const std::string version : {"", "1"}) {
        const Recording old = find_tensors({save(all.scratch / "old.safetensors", {{"w", {1}}, {"a", {1}}},
                                                 stating(R"({"w":"weight","a":"activation"})", version, "8"))});
        CHECK(by_kind(old.tensors) ==
              std::map<std::string, std::uint64_t>{{"weight_gradient", 1}, {"activation_gradient", 1}});
        for (const RecordedTensor& t : old.tensors) CHECK(t.recorded_scale == 8);
    }
    for (const auto& [version, kind] : {std::pair("two", R"({"w":"weight"})"), std::pair("2", R"({"w":"bias"})")}) {
        const Recording wrong =
            find_tensors({save(all.scratch / "wrong.safetensors", {{"w", {1}}}, stating(kind, version))});
        REQUIRE(wrong.errors.size() == 1);
        CHECK(wrong.errors[0].find("wrong.safetensors: metadata: ") != std::string::npos);
    }
}

TEST_CASE("a file that states no kinds holds gradients, or what --kind says if it names one kind") {
    const Scratch scratch;
    save(scratch / "x/checkpoint.safetensors", {{"h.weight", {1, 2}}, {"h.weight.grad", {3}}});
    HistogramOptions options = asked();
    CHECK(histogram_findings({scratch / "x"}, options).tensors.size() == 2);
    options.kinds = {TensorKind::weight};
    const HistogramFindings weights = histogram_findings({scratch / "x"}, options);
    REQUIRE(weights.tensors.size() == 1);
    CHECK(weights.tensors[0].name == "h.weight");
    CHECK(weights.kinds.front().group->name == "weights");
}

TEST_CASE("kinds are selected, counted and grouped apart, and only gradients are divided by the loss scale") {
    const AllKinds all;
    const HistogramFindings gradients = histogram_findings({all.scratch / "all"}, asked());
    REQUIRE(gradients.tensors.size() == 2);
    CHECK(gradients.other_kinds == KindSet{TensorKind::weight, TensorKind::activation, TensorKind::state});
    HistogramOptions options = asked();
    options.kinds = every_kind;
    options.by = Grouping::kind;
    const HistogramFindings found = histogram_findings({all.scratch / "all"}, options);
    REQUIRE(found.groups.size() == 5);
    for (const HistogramEntry& t : found.tensors) {
        const double scale = t.is_gradient() ? 0x1p-10 : 1;
        for (std::size_t f = 0; f < options.formats.size(); ++f) {
            const Counted want = count(all.values(t.name), options.formats[f].name, scale);
            CHECK(t.unscaled[f].underflow == want.underflow);
            CHECK(t.unscaled[f].overflow == want.overflow);
        }
        CHECK(t.fits.empty() == t.is_gradient());
    }
    std::vector<std::string_view> judged;
    for (const KindFindings& kind : found.kinds) judged.push_back(kind.group->name);
    CHECK(judged == std::vector<std::string_view>{"gradients", "weights", "activations", "state"});
    CHECK(found.kinds[0].advice == gradients.kinds[0].advice); // which weights and activations do not change
    CHECK(found.kinds[0].total.magnitudes.histogram == gradients.total.magnitudes.histogram);

    // A report merges to the same, whatever the kinds in it.
    nlohmann::ordered_json report = {{"schema_version", histogram_report_version}, {"tool", "amp-histogram"}};
    report["counting"] = counting_json(options);
    for (const HistogramEntry& t : found.tensors) report["tensors"].push_back(tensor_json(t, options));
    const fs::path saved = write_file(all.scratch / "report.json", report.dump());
    const HistogramFindings merged = merged_histogram_findings({saved}, asked());
    REQUIRE(merged.kinds.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) CHECK(merged.kinds[i].advice == found.kinds[i].advice);
    HistogramOptions states = asked();
    states.kinds = {TensorKind::state};
    CHECK(merged_histogram_findings({saved}, states).tensors.size() == 1);

    save(all.scratch / "weights/x.safetensors", {{"w", {1}}}, stating(R"({"w":"weight"})"));
    const HistogramFindings nothing = histogram_findings({all.scratch / "weights"}, asked());
    REQUIRE(nothing.errors.size() == 1);
    CHECK(nothing.errors[0].ends_with(
        "weights: no tensor that --kind, --tensor and --step select; of other kinds it holds weight: --kind all counts "
        "every kind"));

    options.by = Grouping::all;
    const HistogramFindings groups = histogram_findings({all.scratch / "all"}, options);
    std::vector<std::string> names;
    for (const HistogramEntry& group : groups.groups) names.push_back(group.name);
    std::ranges::sort(names);
    CHECK(names == std::vector<std::string>{"all, activations", "all, gradients", "all, state", "all, weights"});
}

TEST_CASE("how formats hold weights and activations, by a search over scales and a count of every element") {
    const Scratch scratch;
    const NamedValues tensors = {{"narrow", numbers(3, 5, 1)},      {"high", numbers(40, 8, 2)},
                                 {"wide", numbers(2, 60, 3)},       {"edge", {464, 448, 1, 0x1p-10F}},
                                 {"above", {0x1.d00002p8F, 1}},     {"nothing", {0, -0.0F, std::nanf(""), HUGE_VALF}},
                                 {"tiny", numbers(-90, 12, 4)},     {"fp16_edge", {65519, 2}},
                                 {"fp16_above", {65520, 0x1p-24F}}, {"one", {0x1p-25F}}};
    std::string kinds;
    for (const auto& [name, values] : tensors) kinds += (kinds.empty() ? "{\"" : ",\"") + name + "\":\"activation\"";
    save(scratch / "a.safetensors", tensors, stating(kinds + "}", "2", "65536"));
    HistogramOptions options = asked({"fp16", "bf16", "e4m3", "e5m2"});
    options.kinds = {TensorKind::activation};
    for (const double limit : {0.001, 0.2}) {
        options.recommendation.limit = limit;
        const HistogramFindings found = histogram_findings({scratch.folder()}, options);
        REQUIRE(found.tensors.size() == tensors.size());
        for (std::size_t f = 0; f < options.formats.size(); ++f) {
            FormatFit sum;
            for (const auto& [name, values] : tensors) {
                const FormatFit want = searched(values, options.formats[f].name, limit);
                const auto entry = std::ranges::find(found.tensors, name, &HistogramEntry::name);
                CAPTURE(entry->name);
                CAPTURE(options.formats[f].name);
                CHECK(entry->fits[f] == want);
                sum.merge(want);
            }
            CHECK(found.total.fits[f] == sum);
            CHECK(sum.tensors == tensors.size() - 1); // one has no finite non-zero element
        }
    }
}

TEST_CASE("a sentence for each format and kind") {
    const Scratch scratch;
    const std::vector<float> residual = {120000, -70000, 3, 1}, small = {0.5F, 0x1p-12F, 0.25F, 1};
    std::vector<float> wide = {240};
    for (int i = 1; i < 20; ++i) wide.push_back(std::ldexp(1.0F, -i));
    save(scratch / "a.safetensors",
         {{"h.0.out", residual}, {"h.1.out", {1, 2}}, {"s.weight", small}, {"w.weight", wide}},
         stating(R"({"h.0.out":"activation","h.1.out":"activation","s.weight":"weight","w.weight":"weight"})"));
    HistogramOptions options = asked();
    options.kinds = {TensorKind::weight, TensorKind::activation};
    const HistogramFindings found = histogram_findings({scratch.folder()}, options);
    REQUIRE(found.kinds.size() == 2);
    CHECK(
        found.kinds[0].advice ==
        std::vector<std::string>{
            "FP16, weights: nothing becomes zero or overflows in a cast without a scale; no scale needed.",
            "E4M3, weights: 45.8 % of non-zero weights become zero in a cast without a scale; with a scale for each "
            "tensor, the largest power of two without overflow (1 ... 2^8), 41.7 % become zero, 0.1 % or more in 1 of "
            "2 tensors, most of them in w.weight: these need a scale for each block of elements, or a format of larger "
            "range."});
    CHECK(
        found.kinds[1].advice ==
        std::vector<std::string>{
            "FP16, activations: 33.3 % of non-zero activations overflow in a cast without a scale (1 of 2 tensors "
            "beyond 65504, h.0.out furthest: 1.2e+05); a loss scale cannot help activations: keep them in a format of "
            "larger range.",
            "E4M3, activations: 33.3 % of non-zero activations overflow in a cast without a scale (1 of 2 tensors "
            "beyond 448, h.0.out furthest: 1.2e+05); with a scale for each tensor, the largest power of two without "
            "overflow (2^-9 ... 2^7), nothing becomes zero: a scale per tensor suffices."});
}

TEST_CASE("a run that recorded only histograms is counted as its tensors would be") {
    const Scratch scratch;
    const fs::path run = scratch / "run";
    fs::create_directories(run);
    for (const char* file : {"run.json", "metrics.jsonl", "histograms.jsonl"}) fs::copy(version_1 / file, run / file);
    HistogramOptions options = asked({"fp16", "bf16", "e4m3", "e5m2"});
    options.scales = {0.25, 0x1p12};
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::nearest_away, Rounding::toward_zero}) {
        options.policy.rounding = rounding;
        const HistogramFindings of_tensors = histogram_findings({version_1}, options),
                                of_lines = histogram_findings({run}, options);
        CHECK(of_lines.errors.empty());
        REQUIRE(of_lines.tensors.size() == of_tensors.tensors.size());
        for (const HistogramEntry& line : of_lines.tensors) {
            const auto tensor = std::ranges::find_if(of_tensors.tensors, [&](const HistogramEntry& t) {
                return t.name == line.name && t.step == line.step;
            });
            REQUIRE(tensor != of_tensors.tensors.end());
            CHECK(line.magnitudes.histogram == tensor->magnitudes.histogram);
            CHECK(line.kinds == tensor->kinds);
            CHECK(line.layer == tensor->layer);
            CHECK(line.dtype == (line.kinds == KindSet{TensorKind::weight_gradient} ? "fp32" : "fp16"));
            CHECK(!line.measured);
        }
        CHECK(of_lines.kinds.front().advice == of_tensors.kinds.front().advice);
    }
    options.policy.rounding = Rounding::nearest_even;
    // Reports of it merge to what one pass gives.
    nlohmann::ordered_json report = {{"schema_version", histogram_report_version}, {"tool", "amp-histogram"}};
    report["counting"] = counting_json(options);
    const HistogramFindings once = histogram_findings({run}, options);
    for (const HistogramEntry& t : once.tensors) report["tensors"].push_back(tensor_json(t, options));
    const HistogramFindings again =
        merged_histogram_findings({write_file(scratch / "report.json", report.dump())}, options);
    CHECK(again.errors.empty());
    REQUIRE(again.tensors.size() == once.tensors.size());
    for (std::size_t i = 0; i < once.tensors.size(); ++i)
        CHECK(tensor_json(again.tensors[i], options) == tensor_json(once.tensors[i], options));

    const auto refused = [&](const HistogramOptions& o, const std::string& what) {
        const HistogramFindings none = histogram_findings({run}, o);
        REQUIRE(none.errors.size() == 1);
        CHECK(none.errors[0] == (run / "histograms.jsonl").string() + ": " + what +
                                    " needs tensors, and this run recorded only their histograms");
        CHECK(none.tensors.empty());
    };
    HistogramOptions o = options;
    o.block = 32;
    refused(o, "--block");
    o = options;
    o.error = true;
    refused(o, "--error");
    o = options;
    o.scales = {3};
    refused(o, "a scale that is no power of two");
    for (const Rounding directed : {Rounding::up, Rounding::stochastic}) {
        o = options;
        o.policy.rounding = directed;
        refused(o, "--rounding");
    }
}
