// The updates of Adam where parameter groups differ, and change from step to step, against its formulas in double.
#include "adam_recordings.h"

#include <ampscope/formats/codec.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>

using namespace amp;
using namespace amp::test;
using namespace amp::test::adam;

namespace {

/// The settings of a parameter group in a step of a run whose beta1 is cycled, as OneCycleLR does, and whose second
/// group learns less and has an eps of its own.
struct GroupSettings {
    double lr, beta1, beta2, eps;
};
GroupSettings settings_in(int step, int group) {
    const double lr = 1e-4 * (step + 1), cycled = 0.95 - 0.01 * step;
    return group == 0 ? GroupSettings{lr, cycled, 0.999, 1e-6} : GroupSettings{lr / 8, cycled, 0.98, 1e-4};
}

/// Two parameters, one in each group, with all gradients, and the weights before the last step. `log_groups`: whether
/// the log says what the groups do.
void write_groups(const fs::path& run, bool log_groups) {
    fs::create_directories(run);
    write_file(run / "run.json", R"({"schema_version":2,"optimizer":{"kind":"adamw","lr":0.5,"beta1":0.95,)"
                                 R"("beta2":0.999,"eps":1e-6,"weight_decay":0,"groups":{"b.w":1}}})");
    std::string log;
    for (int step = 0; step < steps; ++step) {
        save(run / "gradients" / step_name(step),
             {{"a.w.grad", gradients(step, elements)}, {"b.w.grad", gradients(step + 5, elements)}});
        const GroupSettings a = settings_in(step, 0), b = settings_in(step, 1);
        log += fmt::format(R"({{"step":{},"loss":1,"scale":1,"found_inf":false,"lr":{})", step, a.lr);
        if (log_groups)
            log += fmt::format(R"(,"groups":[{{"beta1":{}}},{{"lr":{},"beta1":{},"beta2":{},"eps":{}}}])", a.beta1,
                               b.lr, b.beta1, b.beta2, b.eps);
        log += "}\n";
    }
    write_file(run / "metrics.jsonl", log);
}

/// sqrt(v_hat) and the update of every element in the last step, by Adam's formulas.
struct ByFormula {
    std::vector<double> roots, moves;

    ByFormula(int group, int offset) {
        const GroupSettings last = settings_in(steps - 1, group);
        for (std::size_t i = 0; i < elements; ++i) {
            double m = 0, v = 0;
            for (int step = 0; step < steps; ++step) {
                const GroupSettings s = settings_in(step, group);
                const double g = gradients(step + offset, elements)[i];
                m = s.beta1 * m + (1 - s.beta1) * g;
                v = s.beta2 * v + (1 - s.beta2) * g * g;
            }
            roots.push_back(std::sqrt(v / (1 - std::pow(last.beta2, steps))));
            moves.push_back(last.lr * m / (1 - std::pow(last.beta1, steps)) / (roots.back() + last.eps));
        }
    }
    /// The median of rate, learning rate / (sqrt(v_hat) + eps), as its binade.
    [[nodiscard]] int rate(int group) const {
        const GroupSettings last = settings_in(steps - 1, group);
        std::vector<int> binades;
        for (const double root : roots) binades.push_back(std::ilogb(last.lr / (root + last.eps)));
        std::ranges::sort(binades);
        return binades[(binades.size() - 1) / 2];
    }
};

} // namespace

TEST_CASE("every parameter group has its own learning rate, betas and eps in each step") {
    const Scratch scratch;
    write_groups(scratch / "run", true);
    const AdamFindings f = adam_findings(scratch / "run", asked());
    REQUIRE(f.tensors.size() == 2);
    CHECK(f.basis == AdamBasis::contiguous);
    const std::array expected = {ByFormula(0, 0), ByFormula(1, 5)};
    for (int group = 0; group < 2; ++group) {
        CAPTURE(group);
        const AdamTensor& t = f.tensors[static_cast<std::size_t>(group)];
        const ByFormula& truth = expected[static_cast<std::size_t>(group)];
        const GroupSettings last = settings_in(steps - 1, group);
        CHECK(t.settings.learning_rate == last.lr);
        CHECK(t.settings.beta1 == last.beta1);
        CHECK(t.settings.beta2 == last.beta2);
        CHECK(t.settings.eps == last.eps);
        CHECK(f.question.eps[t.usual_eps] == last.eps);
        for (std::size_t i = 0; i < f.question.eps.size(); ++i)
            CHECK(t.effects.states[0].eps[i].dominated == below(truth.roots, f.question.eps[i]));
        CHECK(t.effects.rate.median() == truth.rate(group));
    }
    REQUIRE(f.warnings.size() == 1);
    CHECK(f.warnings[0].find("eps differs by parameter group: 1e-06 in 1 tensor, 0.0001 in 1 tensor") !=
          std::string::npos);

    const std::vector<float> ones(elements, 1);
    NamedValues state;
    for (int group = 0; group < 2; ++group) { // the state before the last step, by the formulas of the steps before
        std::vector<float> m(elements), v(elements);
        for (std::size_t i = 0; i < elements; ++i) {
            double a = 0, b = 0;
            for (int step = 0; step + 1 < steps; ++step) {
                const GroupSettings s = settings_in(step, group);
                const double g = gradients(step + (group == 0 ? 0 : 5), elements)[i];
                a = s.beta1 * a + (1 - s.beta1) * g;
                b = s.beta2 * b + (1 - s.beta2) * g * g;
            }
            m[i] = static_cast<float>(a);
            v[i] = static_cast<float>(b);
        }
        const std::string name = group == 0 ? "a.w" : "b.w";
        state.insert(state.end(), {{name, ones}, {name + ".m", m}, {name + ".v", v}});
    }
    save(scratch / "run/state" / step_name(steps - 1), state);
    const AdamFindings recorded = adam_findings(scratch / "run", asked());
    CHECK(recorded.basis == AdamBasis::recorded);
    for (std::size_t group = 0; group < 2; ++group)
        for (const auto& [name, half] : {std::pair("fp32", 0x1p-25), {"bf16", 0x1p-9}, {"fp16", 0x1p-12}}) {
            const auto is_lost = [half = half](double move) { return move < half; };
            const auto lost = std::ranges::count_if(expected[group].moves, is_lost);
            const auto& weights = recorded.question.weights;
            const auto at = std::ranges::find(weights, format(name)) - weights.begin();
            CHECK(recorded.tensors[group].effects.lost[static_cast<std::size_t>(at)] ==
                  static_cast<std::uint64_t>(lost));
        }
}

TEST_CASE("without what groups do, all have the rate of the step; what the user says counts for all") {
    const Scratch scratch;
    write_groups(scratch / "plain", false);
    const AdamFindings plain = adam_findings(scratch / "plain", asked());
    CHECK(plain.tensors[0].settings == plain.tensors[1].settings);
    CHECK(plain.tensors[1].settings.learning_rate == settings_in(steps - 1, 0).lr);
    CHECK(plain.warnings.empty());
    write_groups(scratch / "run", true);
    AdamOptions options = asked();
    options.learning_rate = 0.25;
    options.beta1 = 0.5;
    options.beta2 = 0.75;
    options.usual_eps = 1e-5;
    for (const AdamTensor& t : adam_findings(scratch / "run", options).tensors) {
        CHECK(t.settings.learning_rate == 0.25);
        CHECK(t.settings.beta1 == 0.5);
        CHECK(t.settings.beta2 == 0.75);
        CHECK(t.settings.eps == 1e-5);
    }
    std::string log = read_file(scratch / "run/metrics.jsonl");
    const std::size_t at = log.rfind("\"beta2\":0.98");
    write_file(scratch / "run/metrics.jsonl", log.replace(at, 12, "\"beta2\":7.00"));
    CHECK_THROWS_WITH_AS(adam_findings(scratch / "run", asked()),
                         doctest::Contains("metrics.jsonl: step 11: [optimizer] "), FileError);
}

TEST_CASE("a checkpoint says what its last step was: v is 2^-4i, of which eps decides those below it") {
    const fs::path path = fs::path(AMPSCOPE_TEST_DATA) / "checkpoints" / "distributed";
    const AdamFindings f = adam_findings(path, asked({1e-2, 1e-4, 1e-6}));
    CHECK(f.basis == AdamBasis::checkpoint);
    CHECK(f.is_exact());
    CHECK(f.step == 4);
    CHECK(f.warnings.empty());
    REQUIRE(f.tensors.size() == 1);
    CHECK(f.tensors[0].name == "both");
    CHECK(f.tensors[0].settings ==
          OptimizerOptions{.learning_rate = 0.25, .beta1 = 0.5, .beta2 = 0.75, .eps = 0x1p-20});
    const AdamEffects& e = f.total;
    CHECK(e.elements == 15);
    CHECK(e.nonzero == 15); // m of the first is 0, its v is 1
    std::vector<double> roots;
    for (int i = 0; i < 15; ++i) roots.push_back(std::ldexp(1, -2 * i) / std::sqrt(1 - std::pow(0.75, 4)));
    for (std::size_t k = 0; k < f.question.eps.size(); ++k)
        CHECK(e.states[0].eps[k].dominated == below(roots, f.question.eps[k]));
    // The step of weight i is 0.25 i / 64 / (1 - 0.5^4) / (root + eps): it is lost where that is too small for i.
    std::uint64_t lost = 0;
    for (int i = 0; i < 15; ++i) {
        const double step = 0.25 * i / 64 / (1 - std::pow(0.5, 4)) / (roots[static_cast<std::size_t>(i)] + 0x1p-20);
        lost += double{quantize(format("bf16"), i - step)} == i ? 1 : 0;
    }
    CHECK(f.question.weights[1] == format("bf16"));
    CHECK(e.lost[1] == lost);
    CHECK(adam_findings(path / ".metadata", asked()).total.nonzero == 15);
}
