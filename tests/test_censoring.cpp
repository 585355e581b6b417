// What recordings in formats of small range do not show, and that no advice rests on it.
#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/findings/comparison.h>
#include <ampscope/sim/findings/histogram.h>
#include <ampscope/sim/findings/histogram_report.h>
#include <ampscope/sim/findings/loss_scale.h>

#include "censored_runs.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

using namespace amp;
using namespace amp::test;
namespace fs = std::filesystem;

namespace {

Censoring hidden_in(const char* stored, const char* backward, double scale, const std::vector<float>& values) {
    const MagnitudeHistogram h = histogram_of(values, scale);
    return censoring_of(
        {stored, backward, scale, h.zero, h.rows.empty() ? std::nullopt : std::optional(h.rows.begin()->first)});
}

/// What amp-histogram --json writes of them, as far as a merge needs it.
nlohmann::ordered_json report_of(const HistogramFindings& counted, const HistogramOptions& options) {
    nlohmann::ordered_json report = {{"tool", "amp-histogram"},
                                     {"schema_version", histogram_report_version},
                                     {"counting", counting_json(options)},
                                     {"tensors", nlohmann::ordered_json::array()}};
    for (const HistogramEntry& tensor : counted.tensors) report["tensors"].push_back(tensor_json(tensor, options));
    return report;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("what a record hides: all that rounds to zero, by casts of every power of two and its neighbours") {
    for (const FormatSpec& f : formats) {
        if (f.is_scale()) continue;
        for (const double scale : {1.0, 0x1p16, 0x1p-3}) {
            const Censoring hidden = censoring_of({f.name, "", scale, 5, std::nullopt});
            CAPTURE(f.name);
            if (f.exponent_bits >= 8) {
                CHECK(!hidden.hides());
                continue;
            }
            REQUIRE(hidden.hides());
            CHECK(hidden.zeros == 5);
            const double threshold = std::ldexp(1.0, *hidden.below_log2);
            CHECK(quantize(f, threshold * scale) == 0);
            CHECK(quantize(f, std::nextafter(threshold, HUGE_VAL) * scale) != 0);
        }
    }
    CHECK(censoring_of({"fp16", "", 1, 5, std::nullopt}).below_log2 == -25);
    CHECK(censoring_of({"fp16", "", 0x1p16, 5, std::nullopt}).below_log2 == -41);
    CHECK(censoring_of({"e5m2", "", 1, 5, std::nullopt}).below_log2 == -17);
    CHECK(censoring_of({"e4m3", "", 1, 5, std::nullopt}).below_log2 == -10);
    CHECK(!censoring_of({"fp16", "", 1, 0, std::nullopt}).hides()); // without a zero nothing is hidden
    CHECK(!censoring_of({"", "", 1, 5, std::nullopt}).hides());
    CHECK(!censoring_of({"fp32", "float16x", 1, 5, std::nullopt}).hides()); // no format of the table
}

TEST_CASE("FP32 gradients of an FP16 backward pass hide what FP16 had flushed, those computed in FP32 do not") {
    const std::vector<float> exact = normal_gradients(-20), flushed = held(exact, "fp16", 1);
    const Censoring hidden = hidden_in("fp32", "fp16", 1, flushed);
    CHECK(hidden.below_log2 == -25);
    CHECK(hidden.zeros == histogram_of(flushed).zero);
    std::vector<float> with_zero = exact; // holds what FP16 cannot
    with_zero.push_back(0);
    CHECK(!hidden_in("fp32", "fp16", 1, with_zero).hides());
    CHECK(!hidden_in("fp32", "bf16", 1, flushed).hides());
    CHECK(!hidden_in("fp32", "fp32", 1, flushed).hides());
    const Censoring scaled = hidden_in("fp32", "fp16", 0x1p10, held(normal_gradients(-30), "fp16", 0x1p10));
    CHECK(scaled.below_log2 == -35);
    Censoring sum = scaled;
    sum.merge(hidden);
    CHECK(sum.below_log2 == -25); // the largest counts, and the zeros add up
    CHECK(sum.zeros == hidden.zeros + scaled.zeros);
    Censoring none;
    none.merge({});
    CHECK(none == Censoring{});
}

TEST_CASE("a recommendation from a flushed record never contradicts the one from what was there before") {
    const FormatSpec fp16 = format("fp16");
    int told = 0, unknown = 0, bounds = 0;
    for (double mean = -40; mean < 8; mean += 1)
        for (const int log2_scale : {0, 4, 8, 12, 16, 24}) {
            const std::vector<float> exact = normal_gradients(mean, 3),
                                     kept = held(exact, "fp16", std::exp2(log2_scale));
            const MagnitudeHistogram all = histogram_of(kept, std::exp2(log2_scale)), before = histogram_of(exact);
            if (all.inf > 0) continue;
            const Censoring hidden = hidden_in("fp16", "", std::exp2(log2_scale), kept);
            const Recommendation truth = recommend(before, fp16), r = recommend(all, fp16, {}, hidden);
            CAPTURE(mean);
            CAPTURE(log2_scale);
            const auto lost = [&](int k) {
                return static_cast<double>(before.classify(fp16, k).underflow) / static_cast<double>(before.nonzero());
            };
            told += r.known == Known::exact ? 1 : 0;
            unknown += r.known == Known::unknown ? 1 : 0;
            bounds += r.known == Known::bound ? 1 : 0;
            if (r.known == Known::unknown) CHECK(!r.log2_scale);
            if (r.known != Known::exact) CHECK(!r.window);
            if (r.window) { // holds whatever had underflowed
                CHECK(lost(r.window->low) < 0.001);
                CHECK(before.classify(fp16, r.window->high).overflow == 0);
            }
            if (r.log2_scale == 0) CHECK(truth.log2_scale == 0); // no scale is only said not to be needed if it is not
            if (r.known == Known::bound) CHECK(lost(0) >= 0.001);
            if (r.lowest_enough > r.highest_safe) CHECK(truth.lowest_enough > truth.highest_safe);
        }
    CHECK(told > 20);
    CHECK(unknown > 20);
    CHECK(bounds > 20);
}

TEST_CASE("sums without a zero tell nothing of their terms, unless the gradients of activations are there") {
    const std::vector<float> values(1000, 0.5F);
    const MagnitudeHistogram h = histogram_of(values);
    GradientRecord weight{.stored = "fp32", .backward = "fp16", .scale = 1, .zeros = 0, .least_log2 = -1};
    const Censoring alone = censoring_of(weight);
    CHECK(!alone.hides());
    CHECK(alone.hides_terms());
    CHECK(alone.below_log2 == -25);
    const Recommendation r = recommend(h, format("fp16"), {}, alone);
    CHECK(r.known == Known::unknown);
    CHECK(!r.log2_scale);
    CHECK(!r.window);
    CHECK(contains(censoring_text(r.censoring), "whose terms were held as zero up to 2^-25"));
    CHECK(contains(way_to_know(r), "activations=True"));
    CHECK(recommend(h, format("bf16"), {}, alone).log2_scale == 0);
    Censoring with = alone;
    with.merge(censoring_of({.stored = "fp32",
                             .backward = "fp16",
                             .scale = 1,
                             .zeros = 0,
                             .least_log2 = -1,
                             .kind = TensorKind::activation_gradient}));
    CHECK(!with.hides_terms());
    CHECK(recommend(h, format("fp16"), {}, with).log2_scale == 0);
    weight.scale = 1024; // under a loss scale they are taken for what they are
    CHECK(!censoring_of(weight).hides_terms());
    weight = {.stored = "fp32", .backward = "fp16", .scale = 1, .zeros = 0, .least_log2 = -30}; // was computed in FP32
    CHECK(!censoring_of(weight).hides_terms());
}

TEST_CASE("a run without a scaler and without a zero is unknown, to every tool and after merging") {
    const Scratch scratch;
    const fs::path run = run_with(scratch / "amp", amp_fp16, "fp32", 1, std::vector<float>(4000, 0.5F));
    HistogramOptions options;
    options.formats = {format("fp16")};
    const HistogramFindings counted = histogram_findings({run}, options);
    CHECK(contains(counted.kinds.front().advice.front(), "whose terms were held as zero up to 2^-25"));
    const fs::path report = write_file(scratch / "report.json", report_of(counted, options).dump());
    const HistogramFindings merged = merged_histogram_findings({report}, options);
    REQUIRE(merged.errors.empty());
    CHECK(merged.kinds.front().advice == counted.kinds.front().advice);
    CHECK(contains(loss_scale_findings(run, standard_loss_scale_options()).advice, "is unknown"));
    CHECK(contains(comparison_findings({run}, {}).verdict.at(1), "is unknown"));
}

TEST_CASE("of few zeros, and for formats of FP32's range, the answer is known all the same") {
    std::vector<float> values(10000, 0.5F);
    values.push_back(0); // 1 in 10,001 is below the limit
    const MagnitudeHistogram h = histogram_of(values);
    const Censoring hidden = hidden_in("fp16", "", 1, values);
    CHECK(hidden.hides());
    CHECK(recommend(h, format("fp16"), {}, hidden).log2_scale == 0);
    CHECK(recommend(h, format("fp16"), {}, hidden).known == Known::exact);
    values.insert(values.end(), 20, 0.0F); // 21 are not
    const MagnitudeHistogram more = histogram_of(values);
    const Censoring rest = hidden_in("fp16", "", 1, values);
    CHECK(recommend(more, format("fp16"), {}, rest).known == Known::unknown);
    CHECK(recommend(more, format("bf16"), {}, rest).known == Known::exact);
    CHECK(recommend(more, format("bf16"), {}, rest).log2_scale == 0);
    CHECK(recommend(more, format("fp16")).log2_scale == 0); // without the word of what is hidden
    const std::vector<float> nothing(100, 0.0F);
    const Recommendation all_zero =
        recommend(histogram_of(nothing), format("fp16"), {}, hidden_in("fp16", "", 1, nothing));
    CHECK(all_zero.known == Known::unknown);
    CHECK(!all_zero.log2_scale);
}

TEST_CASE("an FP16 run without a scaler gets unknown and the way to know, from every tool; FP32 gets its scale") {
    const Scratch scratch;
    const std::vector<float> exact = normal_gradients(-27), flushed = held(exact, "fp16", 1);
    const fs::path censored = run_with(scratch / "amp", amp_fp16, "fp32", 1, flushed),
                   whole = run_with(scratch / "fp32", fp32, "fp32", 1, exact);
    const auto says = [](const std::string& text) {
        CAPTURE(text);
        CHECK(contains(text, "unknown"));
        CHECK(contains(text, "what underflowed was never recorded"));
        CHECK(contains(text, "2^-25"));
        CHECK(contains(text, "exact zeros"));
        CHECK(contains(text, "To find out, record"));
        CHECK(contains(text, "under a larger loss scale (nothing recorded overflows up to 2^"));
        CHECK(!contains(text, "no loss scal"));
        CHECK(!contains(text, "needs none here"));
    };
    HistogramOptions options;
    options.formats = {format("fp16")};
    const HistogramFindings counted = histogram_findings({censored}, options);
    says(counted.kinds.front().advice.front());
    CHECK(counted.kinds.front().formats.front().recommendation.known == Known::unknown);
    CHECK(counted.kinds.front().scales.curves.front().recommendation.known == Known::unknown);
    // A merge of reports says the same.
    nlohmann::ordered_json report = report_of(counted, options);
    CHECK(report["tensors"][0]["formats"]["fp16"]["known"] == "unknown");
    CHECK(report["tensors"][0]["formats"]["fp16"]["unknown_below_log2"] == -25);
    CHECK(report["tensors"][0]["formats"]["fp16"]["recommended_log2_scale"].is_null());
    const HistogramFindings merged =
        merged_histogram_findings({write_file(scratch / "report.json", report.dump())}, options);
    REQUIRE(merged.errors.empty());
    CHECK(merged.kinds.front().advice == counted.kinds.front().advice);
    report["tensors"][0]["hidden"]["zeros"] = 1'000'000; // more than there are
    const fs::path broken = write_file(scratch / "broken.json", report.dump());
    CHECK(contains(merged_histogram_findings({broken}, options).errors.at(0), "what a tensor's record hides"));
    const LossScaleOptions scalers = standard_loss_scale_options();
    const LossScaleFindings replayed = loss_scale_findings(censored, scalers);
    says(replayed.advice);
    CHECK(!replayed.recommendation.log2_scale);
    CHECK(replayed.replays.front().replay.underflow_known == Known::bound);
    const ComparisonFindings compared = comparison_findings({censored}, {});
    says(compared.verdict.at(1));
    CHECK(contains(compared.verdict.at(1), "BF16 needs none"));
    CHECK(compared.runs.front().censoring().below_log2 == -25);
    CHECK(compared.runs.front().censoring().zeros == 3 * histogram_of(flushed).zero);
    const std::optional<int> truth = recommend(histogram_of(exact), format("fp16")).log2_scale;
    REQUIRE(truth);
    CHECK(*truth > 0);
    CHECK(histogram_findings({whole}, options).kinds.front().formats.front().recommendation.log2_scale == truth);
    CHECK(loss_scale_findings(whole, scalers).recommendation.log2_scale == truth);
    CHECK(contains(comparison_findings({whole}, {}).verdict.at(1), fmt::format("start FP16 at 2^{}", *truth)));
}

TEST_CASE("an FP16 record under a scale that shows the need of one: start there, and how much is lost is unknown") {
    const Scratch scratch;
    const std::vector<float> kept = held(normal_gradients(-27), "fp16", 0x1p10);
    const fs::path run = run_with(scratch / "amp", amp_fp16, "fp16", 0x1p10, kept);
    const LossScaleFindings replayed = loss_scale_findings(run, standard_loss_scale_options());
    CHECK(replayed.recommendation.known == Known::bound);
    const int start = replayed.recommendation.highest_safe - 2;
    CHECK(replayed.recommendation.log2_scale == start);
    for (const std::string& text : {replayed.advice, comparison_findings({run}, {}).verdict.at(1)}) {
        CAPTURE(text);
        CHECK(contains(text, fmt::format("2^{}", start)));
        CHECK(contains(text, "at least"));
        CHECK(contains(text, "is unknown, as what underflowed was never recorded: magnitudes up to 2^-35"));
    }
}

TEST_CASE("E5M2 is not said to hold what FP16 had flushed before, in a run that records other kinds as well") {
    const Scratch scratch;
    const std::vector<float> exact = normal_gradients(-13), flushed = held(normal_gradients(-27), "fp16", 1);
    const auto advice = [&](const char* name, const std::string& precision, const std::vector<float>& values) {
        const fs::path run = run_with(scratch / name, precision, "fp32", 1, values);
        append_histogram(run, "a.weight", TensorKind::weight, normal_gradients(-3));
        const ComparisonFindings found = comparison_findings({run}, {});
        for (const KindRecord& kind : found.runs.front().kinds)
            if (kind.group->kinds == gradient_kinds) return kind.fits.front().advice;
        return std::string();
    };
    std::vector<float> large(1000, 0.5F), some = large;
    some.push_back(0);
    large.insert(large.end(), 100, 0.0F);
    const std::string open = advice("held", amp_fp16, large);
    CAPTURE(open);
    CHECK(contains(open, "whether a scale is needed is unknown, as what underflowed was never recorded"));
    CHECK(contains(open, "9.09 % of the 3,300 elements"));
    CHECK(!contains(open, "no scale needed"));
    CHECK(contains(advice("few", amp_fp16, some), "as may terms of the sums that the others are"));
    CHECK(contains(advice("fp32", fp32, large), "no scale needed."));
    CHECK(contains(advice("lost", amp_fp16, flushed), "More may become zero: what underflowed was never recorded"));
    CHECK(!contains(advice("whole", fp32, exact), "never recorded"));
}

TEST_CASE("a report that does not say what its records hide: the dtype of a gradient tells") {
    const Scratch scratch;
    HistogramOptions options;
    options.formats = {format("fp16")};
    const fs::path run = run_with(scratch / "run", fp32, "fp16", 1, held(normal_gradients(-27), "fp16", 1));
    const HistogramFindings counted = histogram_findings({run}, options);
    nlohmann::ordered_json tensor = tensor_json(counted.tensors.front(), options);
    REQUIRE(tensor.contains("hidden"));
    tensor.erase("hidden");
    const auto known = [&](const char* kind, const char* dtype, int version) {
        tensor["kind"] = kind;
        tensor["dtype"] = dtype;
        const nlohmann::ordered_json report = {{"tool", "amp-histogram"},
                                               {"schema_version", version},
                                               {"counting", counting_json(options)},
                                               {"tensors", {tensor}}};
        const HistogramFindings merged =
            merged_histogram_findings({write_file(scratch / "report.json", report.dump())}, options);
        REQUIRE(merged.errors.empty());
        return merged.tensors.front().censoring;
    };
    for (const char* dtype : {"F16", "fp16"}) { // of a tensor file, and of histograms.jsonl
        CHECK(known("weight_gradient", dtype, 2) == counted.tensors.front().censoring);
        CHECK(known("weight", dtype, 1) == counted.tensors.front().censoring); // meant a gradient
        CHECK(!known("weight", dtype, 2).hides());
    }
    CHECK(!known("weight_gradient", "F32", 2).hides());
    CHECK(!known("weight_gradient", "BF16", 2).hides());
    CHECK(known("weight_gradient", "F8_E5M2", 2).below_log2 == -17);
}

TEST_CASE("who says that no loss scale is needed says what was not recorded, in the same words") {
    const Scratch scratch;
    const std::string_view said = " needed. Gradients of activations, which are often smaller, were not recorded.";
    const fs::path run = run_with(scratch / "fp32", fp32, "fp32", 1, std::vector<float>(4000, 0.5F));
    HistogramOptions options;
    options.formats = {format("fp16"), format("bf16")};
    const HistogramFindings counted = histogram_findings({run}, options);
    CHECK(contains(counted.kinds.front().advice[0], said));
    CHECK(!contains(counted.kinds.front().advice[1], said)); // BF16 holds whatever is smaller
    const fs::path report = write_file(scratch / "report.json", report_of(counted, options).dump());
    CHECK(merged_histogram_findings({report}, options).kinds.front().advice == counted.kinds.front().advice);
    const std::string replayed = loss_scale_findings(run, standard_loss_scale_options()).advice;
    CHECK(contains(replayed, " none overflows."));
    CHECK(contains(replayed, said.substr(8)));
    CHECK(contains(comparison_findings({run}, {}).answers[1].reason, said.substr(8)));
    append_histogram(run, "a.out.grad", TensorKind::activation_gradient, {0.5F});
    CHECK(!contains(histogram_findings({run}, options).kinds.front().advice[0], said));
    CHECK(!contains(loss_scale_findings(run, standard_loss_scale_options()).advice, said.substr(8)));
}

TEST_CASE("of tensors that a scale of their own may hold or not, those are counted of which it is known") {
    const Scratch scratch;
    std::vector<float> narrow(1000, 0.5F), zeros(1000, 0.5F), wide(1000, 0x1p-30F);
    zeros.insert(zeros.end(), 100, 0.0F);
    wide.insert(wide.end(), 1000, 0x1p10F);
    HistogramOptions options;
    options.formats = {format("e4m3")};
    const auto advice = [&](const char* name, const std::string& precision) {
        const fs::path run = scratch / name;
        fs::create_directories(run);
        write_file(run / "run.json", R"({"schema_version":2,"tool":"test","precision":)" + precision + "}\n");
        write_file(run / "metrics.jsonl", "{\"step\":0,\"loss\":1.0,\"scale\":1,\"found_inf\":false}\n");
        const bool half = precision == amp_fp16;
        append_histogram(run, "a.out.grad", TensorKind::activation_gradient, narrow);
        append_histogram(run, "b.out.grad", TensorKind::activation_gradient, half ? zeros : narrow);
        append_histogram(run, "c.out.grad", TensorKind::activation_gradient, wide);
        return histogram_findings({run}, options).kinds.front().advice.front();
    };
    CHECK(advice("fp32", fp32)
              .ends_with(" With a scale for each tensor, 2 of 3 tensors stay under 0.1 % and overflow "
                         "nowhere."));
    CHECK(advice("amp", amp_fp16)
              .ends_with(" With a scale for each tensor, 1 of the 2 tensors of which it is known stay under 0.1 % and "
                         "overflow nowhere; of 1 more it is unknown, as more may have underflowed than was recorded."));
}

TEST_CASE("the share of zeros is that of the tensors that were held so, not of all") {
    const Scratch scratch;
    std::vector<float> values(900, 0.5F);
    values.insert(values.end(), 100, 0.0F);
    const fs::path flushed = run_with(scratch / "runs/amp", amp_fp16, "fp16", 1, values);
    for (int i = 0; i < 3; ++i) // held so, but without zeros
        append_histogram(flushed, "b" + std::to_string(i) + ".out.grad", TensorKind::activation_gradient,
                         std::vector<float>(1000, 0.5F));
    run_with(scratch / "runs/fp32", fp32, "fp32", 1, values);
    HistogramOptions options;
    options.formats = {format("fp16")};
    const HistogramFindings counted = histogram_findings({scratch / "runs"}, options);
    const std::string text = counted.kinds.front().advice.front(),
                      said = "5.00 % of the 6,000 elements of tensors held so";
    CAPTURE(text);
    CHECK(counted.total.magnitudes.histogram.count() == 9000);
    CHECK(contains(text, said));
    const fs::path report = write_file(scratch / "report.json", report_of(counted, options).dump());
    CHECK(merged_histogram_findings({report}, options).kinds.front().advice.front() == text);
    for (const std::string& other : {loss_scale_findings(flushed, standard_loss_scale_options()).advice,
                                     comparison_findings({flushed}, {}).verdict.at(1)})
        CHECK(contains(other, said));
}
