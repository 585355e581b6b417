// Findings on loss scalers for a run: worked out by hand, and against element-by-element counts.
#include "recorded_files.h"

#include <ampscope/sim/analysis/number_reader.h>
#include <ampscope/sim/findings/loss_scale.h>
#include <ampscope/sim/io/recording.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

LossScaleOptions asked(std::initializer_list<const char*> scalers) {
    LossScaleOptions options;
    for (const char* name : scalers) options.scalers.push_back(named_scaler(name));
    return options;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// All numbers of a recording, divided by its loss scale.
std::vector<double> numbers_of(const fs::path& path) {
    std::vector<double> numbers;
    for (const RecordedTensor& t : find_tensors({path}).tensors) {
        const auto file = open_tensor_file(t.file);
        for (const StoredNumber& n : NumberReader(*file, t.index).read(0, t.entry.count))
            numbers.push_back(std::fabs(n.value()) / t.recorded_scale);
    }
    return numbers;
}

constexpr double fp16_overflow = 65520, fp16_underflow = 0x1p-25; ///< from the first on, and up to the second

std::uint64_t underflowing(const std::vector<double>& numbers, double scale) {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(numbers, [&](double x) { return x > 0 && x * scale <= fp16_underflow; }));
}

std::uint64_t nonzero(const std::vector<double>& numbers) {
    return static_cast<std::uint64_t>(std::ranges::count_if(numbers, [](double x) { return x > 0; }));
}

} // namespace

TEST_CASE("a log of the largest gradients: what overflows under a constant scale, and under torch's") {
    const Scratch scratch;
    std::vector<double> amax;
    std::string csv = "step,amax\n";
    for (int i = 0; i < 60; ++i) {
        amax.push_back(std::ldexp(1.25, i % 20 - 10));
        csv += std::to_string(i) + "," + std::to_string(amax.back()) + "\n";
    }
    const fs::path path = write_file(scratch / "log.csv", csv);
    const LossScaleFindings f =
        loss_scale_findings(path, asked({"constant,init=2^8", "torch,init=2^12,interval=4", "none"}));
    CHECK(f.log.name == path.string());
    CHECK(f.log.recorded_steps == 60);
    CHECK(f.log.measured_steps() == 0);
    REQUIRE(f.log.warnings.size() == 2); // no scale: torch's is assumed, under which some would have overflowed
    CHECK(contains(f.log.warnings[0], "taken for that of torch"));
    CHECK(contains(f.log.warnings[1], "times the scale overflows, but the step did not"));
    REQUIRE(f.replays.size() == 3);
    CHECK(f.replays[1].name == "torch,init=2^12,interval=4");

    std::vector<std::int64_t> overflows;
    for (std::int64_t i = 0; i < 60; ++i)
        if (std::stod(std::to_string(amax[static_cast<std::size_t>(i)])) * 256 >= fp16_overflow) overflows.push_back(i);
    CHECK(!overflows.empty());
    CHECK(f.replays[0].replay.skips == static_cast<std::int64_t>(overflows.size()));
    std::vector<std::int64_t> skipped;
    for (const SkippedStep& s : f.replays[0].replay.skipped) skipped.push_back(s.step);
    CHECK(skipped == overflows);

    double scale = 4096; // torch's rule: half of it after an overflow, twice after four clean steps
    std::int64_t good = 0, skips = 0;
    for (const double x : amax) {
        const bool overflow = std::stod(std::to_string(x)) * scale >= fp16_overflow;
        skips += overflow;
        good = overflow ? 0 : good + 1;
        if (overflow) scale /= 2;
        if (good == 4) {
            scale *= 2;
            good = 0;
        }
    }
    CHECK(f.replays[1].replay.skips == skips);
    CHECK(f.replays[1].replay.final_scale == scale);
    CHECK(f.recommendation.highest_safe == 6); // 1.25 * 2^9 * 2^6 = 40960, and twice that overflows
    CHECK(f.recommendation.log2_scale == 4);   // what the advice says, although underflow is not known
    CHECK(contains(f.advice, "Start at 2^4: nothing recorded overflows up to 2^6."));
    CHECK(contains(f.advice, "How much underflows is not known"));
    CHECK(f.swept.empty());
}

TEST_CASE("recorded gradients: underflow and the recommended scale, element by element") {
    const fs::path sample = fs::path(AMPSCOPE_TEST_DATA) / "../../notebooks/data/gradients/deep_tanh";
    LossScaleOptions options = asked({"constant,init=2^10", "torch"});
    options.sweep = true;
    const LossScaleFindings f = loss_scale_findings(sample, options);
    const std::vector<double> numbers = numbers_of(sample);
    CHECK(f.log.measured_steps() == 2);
    CHECK(f.log.recorded_steps == 2);
    CHECK(f.replays[0].replay.nonzero == nonzero(numbers));
    CHECK(f.replays[0].replay.underflow == underflowing(numbers, 1024));
    CHECK(f.replays[0].replay.underflow > 0);
    CHECK(f.replays[0].replay.steps == 51); // from 0 to 50
    CHECK(f.replays[0].replay.known[static_cast<std::size_t>(Known::unknown)] == 49);

    const double largest = *std::ranges::max_element(numbers);
    int highest = -200, lowest = 200;
    for (int k = -200; k <= 200; ++k) {
        if (std::ldexp(largest, k) < fp16_overflow) highest = k;
        const auto lost = static_cast<double>(underflowing(numbers, std::ldexp(1, k)));
        if (lost < options.recommendation.limit * static_cast<double>(nonzero(numbers))) lowest = std::min(lowest, k);
    }
    CHECK(f.recommendation.highest_safe == highest);
    CHECK(f.recommendation.lowest_enough == lowest);
    REQUIRE(!f.swept.empty());
    for (const ScalerReplay& s : f.swept) CHECK(s.lost() >= f.swept.front().lost());
    CHECK(contains(f.advice, "Least is lost by " + f.swept.front().name));
}

TEST_CASE("formats that end within a binade: the largest gradient of each step decides") {
    // binary8p3se ends at 1.5 * 2^15: from 1.625 * 2^15 on numbers are infinite, to nearest, and the tie goes to 1.5.
    const fs::path sample = fs::path(AMPSCOPE_TEST_DATA) / "../../notebooks/data/gradients/deep_tanh";
    std::vector<double> numbers = numbers_of(sample);
    std::erase(numbers, 0);
    std::ranges::sort(numbers);
    for (const char* name : {"binary8p3se", "binary8p4se", "binary6p2se", "binary8p1se"}) {
        LossScaleOptions options = asked({"constant,init=2^20"});
        options.format = format(name);
        const LossScaleFindings f = loss_scale_findings(sample, options);
        int highest = -200, lowest = 200;
        for (int k = -200; k <= 200; ++k) {
            const auto cast = [&](double x) { return quantize(options.format, std::ldexp(x, k)); };
            if (std::isfinite(cast(numbers.back()))) highest = k;
            const auto zeros = std::ranges::partition_point(numbers, [&](double x) { return cast(x) == 0; });
            const auto lost = static_cast<double>(zeros - numbers.begin());
            if (lost < options.recommendation.limit * static_cast<double>(numbers.size())) lowest = std::min(lowest, k);
        }
        CAPTURE(name);
        CHECK(f.recommendation.highest_safe == highest);
        CHECK(f.recommendation.lowest_enough == lowest);
    }
    // A log of amax, on both sides of the tie.
    const Scratch scratch;
    const auto highest_safe = [&](const char* amax) {
        LossScaleOptions options = asked({"none"});
        options.format = format("binary8p3se");
        const std::string log = std::string("step,amax\n0,") + amax + "\n1,0.25\n";
        return loss_scale_findings(write_file(scratch / "log.csv", log), options).recommendation.highest_safe;
    };
    CHECK(highest_safe("1.625") == 15);
    CHECK(highest_safe("1.6251") == 14);
    // A histogram alone knows the largest gradient only by its class.
    GradientLog log;
    log.name = "run";
    log.steps = {{.step = 7}};
    log.steps[0].magnitudes.add(unpack(1.6251));
    LossScaleOptions options = asked({"none"});
    options.format = format("binary8p3se");
    CHECK_THROWS_WITH_AS(loss_scale_findings(log, options),
                         doctest::Contains("step 7 has a histogram, but not the largest gradient (amax)"), FileError);
    log.steps[0].amax = 1.6251;
    CHECK(loss_scale_findings(log, options).recommendation.highest_safe == 14);
    options.format = format("binary8p3ue");
    CHECK_THROWS_WITH_AS(loss_scale_findings(log, options), doctest::Contains("no negative numbers"),
                         std::invalid_argument);
}

TEST_CASE("a run folder: what its log, its configuration and its histograms say") {
    const Scratch scratch;
    const fs::path run = scratch / "runs/a";
    fs::create_directories(run);
    write_file(run / "run.json",
               R"({"schema_version":2,"precision":{"name":"amp-fp16","formats":{"gradients":"fp16"}},)"
               R"("loss_scaler":{"name":"torch"}})");
    std::string log;
    for (int i = 0; i < 10; ++i)
        log += R"({"step":)" + std::to_string(i) + R"(,"scale":)" + (i <= 3 ? "2048" : "1024") + R"(,"found_inf":)" +
               (i == 3 ? "true" : "false") + R"(,"amax":{"weight":20,"activation":30}})" + "\n";
    write_file(run / "metrics.jsonl", log);
    write_file(run / "histograms.jsonl", "no JSON\n");
    const GradientLog g = read_gradient_log(run, {});
    CHECK(g.recorded == "amp-fp16, loss scaler torch");
    CHECK(g.skipped == std::vector<std::int64_t>{3});
    REQUIRE(g.scales.size() == 2);
    CHECK(g.scales[1].step == 4);
    CHECK(g.scales[1].scale == 1024);
    CHECK(g.steps[2].amax == 30);
    CHECK(g.steps[2].largest == "activations' gradients");
    CHECK(g.steps[2].clean_scale == 2048);
    CHECK(g.steps[3].overflow_scale == 2048);
    CHECK(g.errors.size() == 1); // one error: the histograms

    const LossScaleFindings f = loss_scale_findings(g, asked({"constant,init=2^11", "constant,init=2^12", "torch"}));
    CHECK(f.replays[0].replay.skips == 1); // 30 * 2048 = 61440 fits, but the log has an overflow in step 3
    CHECK(f.replays[1].replay.skips == 10);
    CHECK(
        contains(f.advice, "Of these scalers constant,init=2^12 skips most (10 steps), constant,init=2^11 least (1)"));
    const auto causes = overflow_causes(f.replays[1].replay);
    REQUIRE(!causes.empty());
    CHECK(causes[0] == std::pair<std::string, std::int64_t>("activations' gradients", 10));

    std::vector<std::string> errors;
    fs::copy(run, scratch / "runs/b");
    fs::create_directories(scratch / "runs/empty");
    CHECK(logged_runs(scratch / "runs", errors) == std::vector<fs::path>{run, scratch / "runs/b"});
    CHECK(logged_runs(run, errors) == std::vector<fs::path>{run});
    CHECK(logged_runs(scratch / "runs/empty", errors) == std::vector<fs::path>{scratch / "runs/empty"});
    CHECK(logged_runs(scratch / "none", errors) == std::vector<fs::path>{scratch / "none"});
    CHECK(errors.empty());
}

TEST_CASE("alarms in words") {
    std::vector<GradientStep> steps;
    for (int i = 0; i < 40; ++i) {
        GradientStep step;
        step.step = i;
        step.overflow_scale = 0x1p-30; // overflows under any scale
        steps.push_back(step);
    }
    GradientLog log;
    log.name = "hopeless";
    log.steps = steps;
    const LossScaleFindings f = loss_scale_findings(log, asked({"torch,init=2^4", "torch,init=2^4,min=4"}));
    const auto text_of = [&](std::size_t scaler, AlarmKind kind) {
        for (const Alarm& alarm : f.replays[scaler].replay.alarms)
            if (alarm.kind == kind) return alarm_text(alarm, f.replays[scaler].options);
        return std::string();
    };
    CHECK(contains(text_of(0, AlarmKind::below_one), "falls below 1 in step 4:")); // 16, 8, 4, 2, 1, a half
    CHECK(contains(text_of(1, AlarmKind::stuck_at_minimum), "overflows at its minimum of 2^2 from step 2 on"));
    CHECK(contains(text_of(0, AlarmKind::shorter_than_interval), "growth interval of 2,000"));
    // What is true of both is said once, of both; what is true of one of them by its name.
    const auto line_with = [&](std::string_view part) {
        const auto found = std::ranges::find_if(f.alarms, [&](const std::string& s) { return contains(s, part); });
        return found == f.alarms.end() ? std::string() : *found;
    };
    CHECK(line_with("growth interval").starts_with("torch,init=2^4, torch,init=2^4,min=4: no growth within"));
    CHECK(line_with("falls below 1").starts_with("torch,init=2^4: falls"));
    CHECK(f.alarms.size() < f.replays[0].replay.alarms.size() + f.replays[1].replay.alarms.size());
}

TEST_CASE("what cannot be said is thrown, what is left out is told") {
    const Scratch scratch;
    CHECK_THROWS_AS(loss_scale_findings(scratch / "none", asked({"torch"})), FileError);
    fs::create_directories(scratch / "empty");
    CHECK_THROWS_AS(loss_scale_findings(scratch / "empty", asked({"torch"})), RecordingError);
    save(scratch / "cut/step_000002.safetensors", {{"w.grad", {1}}});
    write_file(scratch / "cut/step_000003.safetensors", "cut");
    const LossScaleFindings f = loss_scale_findings(scratch / "cut", asked({"torch"}));
    CHECK(f.log.errors.size() == 1);
    CHECK(f.log.steps.size() == 1);
    fs::remove(scratch / "cut/step_000002.safetensors");
    CHECK_THROWS_AS(loss_scale_findings(scratch / "cut", asked({"torch"})), RecordingError);
    CHECK_THROWS_AS(loss_scale_findings(GradientLog(), asked({"torch"})), std::invalid_argument);
    CHECK_THROWS_AS(loss_scale_findings(f.log, asked({})), std::invalid_argument);
    CHECK_THROWS_AS(named_scaler("torch,x=1"), std::invalid_argument);
    GradientLog apart = f.log;
    apart.steps.push_back(apart.steps[0]);
    apart.steps.back().step += longest_run;
    CHECK_THROWS_AS(loss_scale_findings(apart, asked({"torch"})), FileError);
    CHECK(standard_loss_scale_options().scalers.size() > 5);
}

TEST_CASE("a watch sees every byte and every replay, and may end the work; threads change nothing") {
    const Scratch scratch;
    std::vector<float> values;
    for (int i = 0; i < 300'000; ++i) values.push_back(std::ldexp(1.0F, -(i % 40)));
    const fs::path file = save(scratch / "step_000000.safetensors", {{"a.grad", values}, {"b.grad", {1, 2}}});
    Watched watched;
    LossScaleOptions one = asked({"torch"}), many = one;
    one.threads = 1;
    many.threads = 3;
    const LossScaleFindings a = loss_scale_findings(file, one, watched.watch()), b = loss_scale_findings(file, many);
    CHECK(watched.total == 300'002 * sizeof(float) + 1);
    CHECK(watched.done == watched.total);
    CHECK(a.log.steps[0].magnitudes == b.log.steps[0].magnitudes);
    CHECK(a.advice == b.advice);
    CHECK_THROWS_AS(loss_scale_findings(file, many, interrupting()), Interrupted);
    const fs::path log = write_file(scratch / "log.csv", "step,amax\n0,1\n1,2\n");
    Watched bytes;
    loss_scale_findings(log, one, bytes.watch());
    CHECK(bytes.total == fs::file_size(log) + 1);
    CHECK(bytes.done == bytes.total);
    CHECK_THROWS_AS(loss_scale_findings(a.log, one, interrupting()), Interrupted);
    CHECK_THROWS_AS(loss_scale_findings(log, one, interrupting()), Interrupted);
}

TEST_CASE("steps that overflowed below the scale to start with, by gradients that the log does not hold, are named") {
    const Scratch scratch;
    const auto advice = [&](const char* name, std::string_view lines) {
        const fs::path log = write_file(scratch / name, fmt::format("step,amax,loss_scale\n0,1e-3,1024\n{}", lines));
        return loss_scale_findings(log, asked({"torch"})).advice;
    };
    const std::string one = advice("one.csv", "1,nan,1024\n2,1e-3,512\n");
    CHECK(contains(one, "Start at 2^23: nothing recorded overflows up to 2^25. How much underflows is not known"));
    CHECK(contains(one, " But 1 of 3 steps, step 1, overflowed under 1024 already, with gradients of which the record "
                        "does not tell how large they are: it is skipped at this start, too. A start below 1024 may "
                        "keep it, unless it holds NaN."));
    const std::string two = advice("two.csv", "1,inf,2048\n2,inf,1024\n3,inf,67108864\n"); // 2^26: beyond the start
    CHECK(contains(two, " But 2 of 4 steps, first step 1, overflowed under 1024 to 2048 already"));
    CHECK(
        contains(two, "they are skipped at this start, too. A start below 1024 may keep them, unless they hold NaN."));
    CHECK(!contains(advice("above.csv", "1,inf,16777216\n"), " But ")); // 2^24: it may do at the start
    CHECK(!contains(advice("finite.csv", "1,1e-3,1024\n"), " But "));
    const std::string unscaled = advice("unscaled.csv", "1,nan,1\n"); // of which other words tell
    CHECK(contains(unscaled, "holds NaN or infinity as recorded"));
    CHECK(!contains(unscaled, " But "));
}

TEST_CASE("of the largest gradients alone, no scale beyond those of FP32 is advised, nor one where none is needed") {
    const Scratch scratch;
    const fs::path log = write_file(scratch / "log.csv", "step,amax\n0,1e-35\n1,1e-36\n");
    LossScaleOptions options = asked({"torch"});
    CHECK(contains(loss_scale_findings(log, options).advice, "Start at 2^126: nothing recorded overflows up to 2^13"));
    options.format = format("bf16");
    const std::string wide = loss_scale_findings(log, options).advice;
    CHECK(contains(wide, "need no loss scaling in bf16: it has the range of FP32, and nothing recorded overflows up"));
    CHECK(!contains(wide, "Start at"));
}

TEST_CASE(
    "steps that are NaN or infinite as recorded are skipped at any scale, and gradients that are zero are no NaN") {
    const Scratch scratch;
    const auto advice = [&](const char* name, const std::vector<std::vector<float>>& steps, const char* scale = "1") {
        for (std::size_t i = 0; i < steps.size(); ++i)
            save(scratch / name / ("step_00000" + std::to_string(i) + ".safetensors"),
                 {{"a.grad", steps[i]}, {"b.grad", {1, 0}}}, {{"loss_scale", scale}});
        return loss_scale_findings(scratch / name, asked({"torch"})).advice;
    };
    const std::string one = advice("one", {{1}, {NAN}, {2}});
    CHECK(contains(one,
                   "Advice: 1 of 3 steps, step 1 (a.grad), holds NaN or infinity as recorded, so that every scaler "
                   "skips it at any scale from 1 on; what follows is about the other gradients. These gradients need"));
    CHECK(contains(one, "and no finite one overflows."));
    CHECK(
        contains(advice("two", {{1}, {NAN}, {INFINITY}}),
                 "Advice: 2 of 3 steps, first step 1 (a.grad), hold NaN or infinity as recorded, so that every scaler "
                 "skips them at any scale"));
    CHECK(!contains(advice("scaled", {{1}, {INFINITY}}, "1024"), "as recorded")); // a smaller scale may do
    const std::string finite = advice("finite", {{1}});
    CHECK(finite.starts_with("Advice: These gradients need no loss scaling in fp16"));
    CHECK(contains(finite, "and none overflows."));

    const auto alone = [&](const char* name, const std::vector<float>& values) {
        return loss_scale_findings(save(scratch / name, {{"a.grad", values}}), asked({"torch"}));
    };
    const LossScaleFindings nan = alone("nan.safetensors", {NAN, 0}), zero = alone("zero.safetensors", {0, 0});
    CHECK(nan.advice == "Advice: none, as no recorded gradient is finite and not zero: look for NaN in the data or the "
                        "network.");
    CHECK(zero.advice == "Advice: none, as all recorded gradients are zero.");
    for (const LossScaleFindings* f : {&nan, &zero}) CHECK(!f->recommendation.log2_scale);

    // Under a loss scale the record does not tell whether a smaller one would do, but that nothing was left is said.
    CHECK(contains(advice("lost", {{1}, {INFINITY}}, "1024"), "none overflows"));
    save(scratch / "lost/step_000003.safetensors", {{"a.grad", {NAN}}, {"b.grad", {INFINITY, NAN}}},
         {{"loss_scale", "1024"}});
    CHECK(contains(loss_scale_findings(scratch / "lost", asked({"torch"})).advice,
                   "Advice: In 1 of 3 steps, step 3, no recorded gradient is finite: the scale of the record, 2^10, is "
                   "too large there, or the network made NaN; which of the two, it does not tell. These gradients"));
}

TEST_CASE("a step whose loss is NaN is skipped by every scaler, whatever its scale") {
    const Scratch scratch;
    const auto findings = [&](const char* lines) {
        const std::string log = fmt::format("step,loss,amax,loss_scale\n0,2,1e-3,65536\n{}", lines);
        return loss_scale_findings(write_file(scratch / "log.csv", log), asked({"torch,init=2^4", "constant,init=1"}));
    };
    const LossScaleFindings lost = findings("1,nan,nan,65536\n2,2,1e-3,32768\n3,2,inf,32768\n");
    for (const ScalerReplay& scaler : lost.replays) {
        REQUIRE(scaler.replay.skips == 1); // not step 3, which overflowed under a larger scale
        CHECK(scaler.replay.skipped[0].step == 1);
        CHECK(scaler.replay.skipped[0].known == Known::exact);
    }
    CHECK(lost.advice.starts_with("Advice: In 1 of 4 steps, step 1, the loss itself is NaN: every scaler skips it, and "
                                  "no scale mends it; what follows is about the other steps. Start at 2^"));
    // A NaN that stays in a running mean says nothing of the steps: gradients of one of them were finite.
    const LossScaleFindings mean = findings("1,nan,nan,65536\n2,nan,1e-3,32768\n");
    CHECK(mean.replays[1].replay.skips == 0);
    CHECK(!contains(mean.advice, "the loss itself"));
}
