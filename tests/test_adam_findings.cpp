// The findings on Adam for a recording, against Adam's formulas in double, element by element.
#include "adam_recordings.h"

#include <ampscope/sim/io/recording.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

using namespace amp;
using namespace amp::test;
using namespace amp::test::adam;

namespace {

constexpr double beta1 = 0.9, beta2 = 0.999;

/// m and v of one element, and the number of updates made so far.
struct Moments {
    double m = 0, v = 0;
    int updates = 0;

    void update(double g) {
        m = beta1 * m + (1 - beta1) * g;
        v = beta2 * v + (1 - beta2) * g * g;
        ++updates;
    }
    [[nodiscard]] double root() const { return std::sqrt(v / (1 - std::pow(beta2, updates))); }
};

constexpr int skipped = 4;

/// Writes a run without gaps, one step of which was skipped, with all gradients and the state before the last step.
void write_run(const fs::path& run, std::vector<Moments>& moments) {
    fs::create_directories(run);
    write_file(run / "run.json",
               R"({"schema_version":2,"optimizer":{"kind":"adam","order":"torch","lr":0.001,"beta1":0.9,)"
               R"("beta2":0.999,"eps":1e-6,"weight_decay":0}})");
    std::string log;
    moments.assign(elements, {});
    for (int step = 0; step < steps; ++step) {
        const std::vector<float> g = gradients(step, elements);
        save(run / "gradients" / step_name(step), {{"w.grad", g}, {"w.out.grad", {1}}});
        log += R"({"step":)" + std::to_string(step) + R"(,"loss":1,"scale":1,"found_inf":)" +
               (step == skipped ? "true" : "false") + "}\n";
        if (step == steps - 1) {
            std::vector<float> m, v;
            for (const Moments& x : moments) {
                m.push_back(static_cast<float>(x.m));
                v.push_back(static_cast<float>(x.v));
            }
            save(run / "state" / step_name(step), {{"w", std::vector<float>(elements, 1)}, {"w.m", m}, {"w.v", v}});
        }
        if (step == skipped) continue;
        for (int i = 0; i < elements; ++i) moments[static_cast<std::size_t>(i)].update(g[static_cast<std::size_t>(i)]);
    }
    write_file(run / "metrics.jsonl", log);
}

} // namespace

TEST_CASE("one gradient is taken for that of every step: sqrt(v_hat) is its magnitude without the loss scale") {
    const Scratch scratch;
    std::vector<float> small, large;
    std::vector<double> magnitudes;
    for (int k = 0; k < 10; ++k) {
        small.push_back(std::ldexp(-1.5F, 10 - 20 - k)); // multiplied by a loss scale of 2^10
        large.push_back(std::ldexp(1.5F, 10 - k));
        magnitudes.push_back(std::ldexp(1.5, -20 - k));
        magnitudes.push_back(std::ldexp(1.5, -k));
    }
    large.push_back(0);
    const fs::path file =
        save(scratch / "step_000007.safetensors",
             {{"a.weight.grad", small}, {"b.weight.grad", large}, {"b.out.grad", {1, 2, 3}}}, {{"loss_scale", "1024"}});
    const AdamFindings f = adam_findings(file, asked());
    CHECK(f.basis == AdamBasis::stationary);
    CHECK(!f.is_exact());
    CHECK(f.step == 7);
    CHECK(f.usual_eps() == 1e-8);
    CHECK(f.total.elements == 21); // without the activation's elements
    CHECK(f.total.nonzero == 20);
    REQUIRE(f.tensors.size() == 2);
    CHECK(f.tensors[0].name == "a.weight.grad");
    for (std::size_t i = 0; i < f.question.eps.size(); ++i)
        CHECK(f.total.states[0].eps[i].dominated == below(magnitudes, f.question.eps[i]));
    CHECK(f.tensors[0].muted_from == 1e-6); // nine of ten lie below it, the first is 1.43e-6
    CHECK(f.tensors[1].muted_from == std::nullopt);
    CHECK(f.muted_from == 1e-2); // at 1e-4 exactly half lie below, not more
    CHECK(f.total.lost.empty());
    CHECK(f.advice.starts_with("Advice: eps 1e-08 decides 10.0 % of the steps.")); // 1.5 times 2^-28 and 2^-29

    AdamOptions options = asked({1e-8, 1e-2, 1e-6, 1e-4}); // in any order; FP32 is added
    options.states = {format("bf16")};
    options.tensor = "^b";
    options.tensor_ratios = true;
    options.usual_eps = 1e-5;
    const AdamFindings some = adam_findings(file, options);
    CHECK(some.tensors.size() == 1);
    CHECK(some.question.eps == std::vector<double>{1e-2, 1e-4, 1e-5, 1e-6, 1e-8});
    CHECK(some.usual_eps() == 1e-5);
    CHECK(some.question.states == std::vector<AdamState>{format("fp32"), format("bf16")});
    CHECK(some.tensors[0].effects.states[0].eps[0].ratio.count() == 10);
    CHECK(f.tensors[0].effects.states[0].eps[0].ratio.count() == 0);
    CHECK(f.total.states[0].eps[0].ratio.count() == 20);
}

TEST_CASE("a tensor whose elements share a scale is not divided") {
    constexpr std::size_t count = 70'000; // more than are examined at a time
    const Scratch scratch;
    std::vector<float> gradient(count, 0x1p-20F);
    gradient[0] = 1;
    const auto file = save(scratch / "g.safetensors", {{"a.weight.grad", gradient}});
    AdamOptions options = asked();
    options.states = {adam_state("e4m3:tensor")};
    const AdamFindings f = adam_findings(file, options);
    CHECK(f.total.states[1].held == count);
    CHECK(f.total.states[1].v_underflow == count - 1);
    CHECK(f.total.states[1].m_underflow == count - 1);
}

TEST_CASE("with a warm-up the updates are those of the step's own learning rate, not of the one at the beginning") {
    const Scratch scratch;
    const fs::path run = scratch / "run";
    std::vector<Moments> moments;
    write_run(run, moments);
    std::string configuration = read_file(run / "run.json"), log;
    const std::size_t at = configuration.find("\"lr\":0.001");
    REQUIRE(at != std::string::npos);
    write_file(run / "run.json", configuration.replace(at, 10, "\"lr\":0.0")); // as the recorder saw it at its begin
    const auto rate_of = [](int step) { return 2e-3 * step; };
    for (int step = 0; step < steps; ++step)
        log += fmt::format("{{\"step\":{},\"loss\":1,\"scale\":1,\"found_inf\":{},\"lr\":{}}}\n", step, step == skipped,
                           rate_of(step));
    write_file(run / "metrics.jsonl", log);
    const AdamFindings f = adam_findings(run, asked());
    CHECK(f.question.options.learning_rate == rate_of(steps - 1));
    for (const auto& [name, half] : {std::pair("fp32", 0x1p-25), {"bf16", 0x1p-9}, {"fp16", 0x1p-12}}) {
        std::uint64_t lost = 0; // by Adam's formulas, as below
        for (const Moments& x : moments)
            lost += rate_of(steps - 1) * x.m / (1 - std::pow(beta1, x.updates)) / (x.root() + 1e-6) < half;
        const auto& weights = f.question.weights;
        const auto place = std::ranges::find(weights, format(name)) - weights.begin();
        CAPTURE(place);
        CHECK(f.total.lost[static_cast<std::size_t>(place)] == lost);
        CHECK(lost < f.total.updated);
    }
    AdamOptions options = asked(); // what the user says counts
    options.learning_rate = 0.5;
    CHECK(adam_findings(run, options).question.options.learning_rate == 0.5);
    options = asked();
    options.step = 5; // of an earlier step
    CHECK(adam_findings(run, options).question.options.learning_rate == rate_of(5));
}

TEST_CASE("a run: exact from its state or from all its gradients, without the steps that were skipped") {
    const Scratch scratch;
    const fs::path run = scratch / "run";
    std::vector<Moments> moments;
    write_run(run, moments);
    std::vector<double> roots;
    for (const Moments& x : moments) roots.push_back(x.root());
    const auto check = [&](const AdamFindings& f) {
        CHECK(f.is_exact());
        CHECK(f.step == steps - 1);
        CHECK(f.usual_eps() == 1e-6); // from run.json
        CHECK(f.question.options.kind == OptimizerKind::adam);
        CHECK(f.total.elements == elements);
        for (std::size_t i = 0; i < f.question.eps.size(); ++i) {
            CAPTURE(f.question.eps[i]);
            CHECK(below(roots, f.question.eps[i]) > 0);
            CHECK(f.total.states[0].eps[i].dominated == below(roots, f.question.eps[i]));
        }
    };
    const AdamFindings recorded = adam_findings(run, asked());
    CHECK(recorded.basis == AdamBasis::recorded);
    check(recorded);
    // Gradients are positive, so a weight of 1 becomes smaller; half an ulp below 1 is 2^-25, 2^-9 or 2^-12.
    CHECK(recorded.total.updated == elements);
    for (const auto& [name, half] : {std::pair("fp32", 0x1p-25), {"bf16", 0x1p-9}, {"fp16", 0x1p-12}}) {
        std::uint64_t lost = 0;
        for (const Moments& x : moments) {
            const double m_hat = x.m / (1 - std::pow(beta1, x.updates)), move = 1e-3 * m_hat / (x.root() + 1e-6);
            CHECK(std::fabs(move / half - 1) > 1e-4);
            lost += move < half;
        }
        const auto& weights = recorded.question.weights;
        const auto at = std::ranges::find(weights, format(name)) - weights.begin();
        CHECK(recorded.total.lost[static_cast<std::size_t>(at)] == lost);
        CHECK(lost > 0);
    }

    fs::remove_all(run / "state");
    const AdamFindings contiguous = adam_findings(run, asked());
    CHECK(contiguous.basis == AdamBasis::contiguous);
    check(contiguous);
    CHECK(contiguous.total.updated == 0); // the weights are unknown
    fs::remove(run / "gradients" / step_name(3));
    CHECK(adam_findings(run, asked()).basis == AdamBasis::held);
    AdamOptions early = asked();
    early.step = 2;
    CHECK(adam_findings(run, early).basis == AdamBasis::contiguous);
    CHECK(adam_findings(run, early).step == 2);
}

TEST_CASE("what cannot be said is thrown, what is left out is told") {
    const Scratch scratch;
    CHECK_THROWS_AS(adam_findings(scratch / "none", asked()), FileError);
    save(scratch / "all/step_000001.safetensors", {{"w.grad", {1}}});
    write_file(scratch / "all/step_000002.safetensors", "cut");
    const AdamFindings f = adam_findings(scratch / "all", asked());
    CHECK(f.tensors.size() == 1);
    CHECK(f.errors.size() == 1);
    AdamOptions none = asked();
    none.tensor = "nothing";
    CHECK_THROWS_AS(adam_findings(scratch / "all/step_000001.safetensors", none), FileError);
    CHECK_THROWS_AS(adam_findings(scratch / "all", none), RecordingError);
    CHECK_THROWS_AS(adam_findings(scratch / "all", asked({})), std::invalid_argument);
    AdamOptions wrong = asked();
    wrong.beta2 = 1;
    CHECK_THROWS_AS(adam_findings(scratch / "all", wrong), std::invalid_argument);
    save(scratch / "sgd/gradients/step_000000.safetensors", {{"w.grad", {1}}});
    write_file(scratch / "sgd/run.json", R"({"optimizer":{"kind":"sgd","order":"torch","lr":0.1}})");
    CHECK_THROWS_AS(adam_findings(scratch / "sgd", asked()), std::invalid_argument);
    for (const char* other : {"sgd", "rmsprop", "adafactor"}) { // as the recorder for PyTorch writes it
        write_file(scratch / "sgd/run.json", fmt::format(R"({{"optimizer":{{"kind":"{}","lr":0.1}}}})", other));
        CHECK_THROWS_AS(adam_findings(scratch / "sgd", asked()), std::invalid_argument);
    }
    for (const char* kin : {"adam", "nadam", "adamw8bit"}) {
        write_file(scratch / "sgd/run.json", fmt::format(R"({{"optimizer":{{"kind":"{}","lr":0.1}}}})", kin));
        CHECK(adam_findings(scratch / "sgd", asked()).question.options.learning_rate == 0.1);
    }
}

TEST_CASE("a folder of one run is that run; of several runs none is meant") {
    const Scratch scratch;
    std::vector<Moments> moments;
    write_run(scratch / "runs/one", moments);
    const AdamFindings one = adam_findings(scratch / "runs", asked());
    CHECK(one.name == (scratch / "runs/one").string());
    CHECK(one.basis == AdamBasis::recorded);
    CHECK(one.usual_eps() == 1e-6); // of the run's run.json
    write_run(scratch / "runs/two", moments);
    CHECK_THROWS_WITH_AS(adam_findings(scratch / "runs", asked()),
                         ((scratch / "runs").string() + ": holds 2 runs, each of its own; name one: one, two").c_str(),
                         FileError);
}

TEST_CASE("a watch sees every element and may end the work; threads change nothing") {
    const Scratch scratch;
    const fs::path file = save(scratch / "step_000000.safetensors",
                               {{"a.grad", gradients(0, 200'000)}, {"b.grad", gradients(1, 70'000)}});
    Watched watched;
    AdamOptions one = asked(), many = asked();
    one.threads = 1;
    many.threads = 3;
    const AdamFindings a = adam_findings(file, one, watched.watch()), b = adam_findings(file, many);
    CHECK(watched.total == 270'000);
    CHECK(watched.done == 270'000);
    CHECK(a.total.rate.bins == b.total.rate.bins);
    CHECK(a.advice == b.advice);
    for (std::size_t i = 0; i < a.question.eps.size(); ++i)
        CHECK(a.total.states[2].eps[i].nonfinite == b.total.states[2].eps[i].nonfinite);
    CHECK_THROWS_AS(adam_findings(file, many, interrupting()), Interrupted);
}

TEST_CASE("NaN in the gradients themselves is not blamed on formats, whose own faults are still said") {
    const Scratch scratch;
    const auto write = [&](const char* name, int broken) {
        for (int step = 0; step < 3; ++step)
            save(scratch / name / step_name(step), {{"b.grad", std::vector<float>(100, step == broken ? NAN : 0x1p-9F)},
                                                    {"a.grad", std::vector<float>(300, 0x1p-10F)}});
        return adam_findings(scratch / name, asked());
    };
    const std::string stuck = "v in bf16 cannot decay by beta2 0.999 in ", fp16 = "in fp16 eps is stored as 0, and ";
    const AdamFindings whole = write("whole", 7), broken = write("broken", 1), last = write("last", 2);
    CHECK(!whole.nonfinite_gradient);
    CHECK(whole.advice.find(stuck + "100 % of the elements; " + fp16 + "100 % of the steps") != std::string::npos);
    REQUIRE(broken.nonfinite_gradient);
    CHECK(broken.nonfinite_gradient->tensor == "b.grad");
    CHECK(broken.nonfinite_gradient->step == 1);
    CHECK(
        broken.advice.find(" 25.0 % of the steps are NaN or infinite in every format, as the gradients themselves are "
                           "from step 1 on, first in b.grad.") != std::string::npos);
    CHECK(last.advice.find(" as the gradients themselves are in step 2, first in b.grad.") != std::string::npos);
    for (const AdamFindings* f : {&broken, &last}) {
        CAPTURE(f->advice);
        CHECK(f->advice.find("in bf16 25") == std::string::npos);
        CHECK(f->advice.find(stuck + "75.0 % of the elements") != std::string::npos);
        CHECK(f->advice.find(fp16 + "another 75.0 % of the steps are NaN or infinite") != std::string::npos);
    }
    const fs::path nan = save(scratch / "nan.safetensors", {{"a.grad", {NAN, NAN}}});
    CHECK(adam_findings(nan, asked()).advice ==
          "Advice: none, as no gradient is finite and not zero. 100 % of the steps "
          "are NaN or infinite in every format, as the gradients themselves are, "
          "first in a.grad.");
    const AdamFindings finite =
        adam_findings(save(scratch / "kept/step_000000.safetensors", {{"a.grad", {NAN}}}).parent_path(), asked());
    CHECK(finite.advice.starts_with("Advice: none, as no gradient of step 0 is finite and not zero. 100 %"));
    save(scratch / "kept/step_000001.safetensors", {{"a.grad", {1}}});
    CHECK(adam_findings(scratch / "kept", asked())
              .advice.starts_with("Advice: none, as no weight of step 1 is left finite: m and v keep the NaN of steps "
                                  "before. 100 % of the steps are NaN or infinite"));
}

TEST_CASE("a step that overflowed but was not skipped is an update") {
    const Scratch scratch;
    const auto updates = [&](const char* name, const char* skips) {
        for (int step = 0; step < 3; ++step) {
            save(scratch / name / "gradients" / step_name(step), {{"w.grad", {0.5F}}});
            save(scratch / name / "state" / step_name(step), {{"w", {1}}, {"w.m", {0.1F}}, {"w.v", {0.01F}}});
        }
        write_file(scratch / name / "run.json", R"({"schema_version":2})");
        std::string log;
        for (int step = 0; step < 3; ++step)
            log += fmt::format("{{\"step\":{},\"loss\":1,\"scale\":1,\"found_inf\":{}{}}}\n", step, step > 0, skips);
        write_file(scratch / name / "metrics.jsonl", log);
        return adam_findings(scratch / name, asked());
    };
    const AdamFindings skipped = updates("skipped", ""), taken = updates("taken", ",\"skipped\":false");
    CHECK(skipped.warnings.size() == 1);
    CHECK(taken.warnings.empty());
    // The bias corrections tell how many updates there were: v_hat is v / (1 - beta2^t).
    CHECK(skipped.total.root.median() > taken.total.root.median());
}

TEST_CASE("gradients of steps that were skipped are not used, with a log and without") {
    const Scratch scratch;
    const auto write = [&](const char* name, std::vector<int> broken, const char* scale, bool log) {
        std::string lines;
        for (const int step : {0, 10, 20, 30}) {
            const bool skipped = std::ranges::count(broken, step) > 0;
            save(scratch / name / "gradients" / step_name(step), {{"w.grad", {0.5F, skipped ? INFINITY : 0.25F}}},
                 {{"loss_scale", scale}});
            lines += fmt::format("{{\"step\":{},\"loss\":1,\"scale\":{},\"found_inf\":{}}}\n", step, scale, skipped);
        }
        if (!log) return adam_findings(scratch / name / "gradients", asked());
        write_file(scratch / name / "run.json", R"({"schema_version":2})");
        write_file(scratch / name / "metrics.jsonl", lines);
        return adam_findings(scratch / name, asked());
    };
    const AdamFindings whole = write("whole", {}, "1024", false);
    for (const bool log : {false, true}) {
        const AdamFindings f = write(log ? "log" : "files", {10}, "1024", log);
        CHECK(!f.nonfinite_gradient);
        CHECK(f.step == 30);
        CHECK(f.total.states[0].eps[0].nonfinite == 0);
        const AdamFindings last = write(log ? "last-log" : "last", {10, 30}, "1024", log);
        CHECK(last.step == 20);
        CHECK(!last.nonfinite_gradient);
        const auto is_told = [](const std::string& warning) {
            return warning.ends_with(": step 30 was skipped: its gradients are not finite; step 20 is examined");
        };
        CHECK(std::ranges::count_if(last.warnings, is_told) == 1);
        CHECK(write(log ? "all-log" : "all", {0, 10, 20, 30}, "1024", log).nonfinite_gradient);
    }
    CHECK(whole.warnings.empty());
    CHECK(write("unscaled", {10}, "1", false).nonfinite_gradient); // no scaler skipped it
}
