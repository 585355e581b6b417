// Where two recordings begin to differ: results worked out by hand, for files written here.
#include "recorded_files.h"

#include <ampscope/sim/findings/diff.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// 1 plus so many units in the last place.
float one_and(int ulps) { return 1 + static_cast<float>(ulps) * 0x1p-23F; }

const PairedTensor& tensor(const DiffFindings& f, const std::string& name, std::int64_t step) {
    for (const PairedTensor& p : f.pairs)
        if (p.name == name && p.step == step) return p;
    throw std::runtime_error("no such pair");
}

} // namespace

TEST_CASE("folders are paired by file, name and step, and compared element by element") {
    const Scratch scratch;
    const fs::path a = scratch / "a", b = scratch / "b";
    save(a / "step_000000.safetensors", {{"w.grad", {1, 2, 3, 4}}, {"v.grad", {0, -1, NAN, 5}}, {"a.grad", {1}}});
    save(b / "step_000000.safetensors", {{"v.grad", {-0.0F, 1, 7, 5}}, {"w.grad", {1, 2, 3, 4}}});
    save(a / "step_000002.safetensors", {{"w.grad", {1, one_and(2), 1, 1}}});
    save(b / "step_000002.safetensors", {{"w.grad", {1, one_and(5), 1, one_and(1)}}, {"b.out.grad", {1}}});
    const DiffFindings f = diff_findings(a, b, {});
    CHECK(f.errors.empty());
    CHECK(f.only_a == std::vector<std::string>{"a.grad, step 0"});
    CHECK(f.only_b == std::vector<std::string>{"b.out.grad, step 2"});
    REQUIRE(f.pairs.size() == 3);
    REQUIRE(f.steps.size() == 2);
    CHECK(f.total.elements() == 12);
    CHECK(f.total.differing() == 5);

    const TensorDiff& v = tensor(f, "v.grad", 0).diff;
    for (const auto& [c, n] : {std::pair(DiffClass::zero_sign, 1), {DiffClass::sign, 1}, {DiffClass::nan, 1}})
        CHECK(v.of(c) == static_cast<std::uint64_t>(n));
    CHECK(tensor(f, "w.grad", 0).diff.differing() == 0);
    CHECK(f.first() == &tensor(f, "v.grad", 0));
    CHECK(f.first()->diff.first->index == 0);

    const TensorDiff& w = tensor(f, "w.grad", 2).diff;
    CHECK(w.max_ulps == 3);
    REQUIRE(w.worst.size() == 2);
    CHECK(w.worst[0].index == 1);
    CHECK(w.worst[1].ulps == 1);
    const double norm = std::sqrt(3 + std::pow(1 + 0x1p-22, 2));
    CHECK(w.relative_norm() == doctest::Approx(std::sqrt(10.0) * 0x1p-23 / norm));

    CHECK(f.steps[0].tensors == 2);
    CHECK(f.steps[0].differing == 1);
    CHECK(f.steps[1].step == 2);
    CHECK(f.steps[1].diff.max_ulps == 3);
    for (const StepDiff& s : f.steps) CHECK(s.origin == DiffOrigin::unknown);

    DiffOptions options;
    options.tensor = "^w";
    options.worst = 1;
    options.b_scale = 2; // halves every value of b
    const DiffFindings some = diff_findings(a, b, options);
    CHECK(some.pairs.size() == 2);
    CHECK(some.total.differing() == 8);
    CHECK(some.pairs[0].diff.worst.size() == 1);
    CHECK(some.pairs[0].diff.max_relative == 0.5);
    CHECK(diff_findings(a, a, {}).first() == nullptr);
}

TEST_CASE("where no step is common, tensors are paired by name, and it is said") {
    const Scratch scratch;
    const fs::path a = scratch / "a", b = scratch / "b";
    save(a / "step_000000.safetensors", {{"v.grad", {1}}, {"w.grad", {1, 2}}});
    save(b / "step_000050.safetensors", {{"v.grad", {1}}, {"w.grad", {1, 3}}});
    const DiffFindings f = diff_findings(a, b, {});
    CHECK(f.pairs.size() == 2);
    CHECK(f.notes == std::vector<std::string>{
                         "2 tensors: A's step 0 is compared with B's step 50, as neither has the other's step"});
    save(b / "step_000000.safetensors", {{"v.grad", {1}}});
    CHECK(
        diff_findings(a, b, {}).notes ==
        std::vector<std::string>{"1 tensor: A's step 0 is compared with B's step 50, as neither has the other's step"});
}

TEST_CASE("two runs: the state before a step tells local error from drift") {
    const Scratch scratch;
    const fs::path a = scratch / "a", b = scratch / "b";
    for (const fs::path& run : {a, b}) {
        const bool is_b = run == b;
        save(run / "gradients/step_000000.safetensors", {{"w.grad", {1, is_b ? 1.5F : 1}}});
        save(run / "gradients/step_000001.safetensors", {{"w.grad", {1, is_b ? 2 : 1.F}}});
        save(run / "state/step_000000.safetensors", {{"w", {3, 4}}, {"w.m", {0, 0}}});
        save(run / "state/step_000001.safetensors", {{"w", {3, is_b ? 4.5F : 4}}, {"w.m", {0, 0}}});
        write_file(run / "run.json", is_b ? R"({"seed":1,"precision":{"name":"b"}})" : R"({"seed":1,"precision":{}})");
        write_file(run / "metrics.jsonl", std::string(R"({"step":0,"loss":1,"scale":4,"found_inf":false})") + "\n" +
                                              R"({"step":1,"loss":)" + (is_b ? "2" : "3") +
                                              R"(,"scale":4,"found_inf":)" + (is_b ? "true" : "false") + "}\n");
    }
    const DiffFindings f = diff_findings(a, b, {});
    REQUIRE(f.steps.size() == 2);
    CHECK(f.steps[0].origin == DiffOrigin::local);
    CHECK(f.steps[0].state_distance == 0);
    CHECK(f.steps[1].origin == DiffOrigin::drift);
    CHECK(f.steps[1].state_distance == doctest::Approx(0.1)); // 0.5 relative to |(3, 4)|
    CHECK(f.notes == std::vector<std::string>{R"(run.json /precision/name: nothing and "b")",
                                              "loss first differs in step 1: 3 and 2", "loss scale never differs",
                                              "found_inf first differs in step 1: false and true"});
}

TEST_CASE("gates: a limit on each figure") {
    const Scratch scratch;
    const fs::path a = save(scratch / "a.safetensors", {{"x", {1, 1, 0, -2}}, {"y", {1}}}),
                   b = save(scratch / "b.safetensors", {{"x", {1, one_and(2), 1, 2}}}),
                   nan = save(scratch / "c.safetensors", {{"x", {NAN}}}),
                   one = save(scratch / "d.safetensors", {{"x", {1}}});
    struct Row {
        const char* gate;
        double value;
        bool holds;
    };
    const auto check = [](const fs::path& left, const fs::path& right, const std::vector<Row>& rows) {
        DiffOptions options;
        for (const Row& row : rows) options.gates.push_back(parse_diff_gate(row.gate));
        const DiffFindings f = diff_findings(left, right, options);
        REQUIRE(f.gates.size() == rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i) {
            CAPTURE(rows[i].gate);
            CHECK(f.gates[i].gate.text == rows[i].gate);
            CHECK(f.gates[i].value == rows[i].value);
            CHECK(f.gates[i].holds == rows[i].holds);
        }
    };
    check(a, b,
          {{"differ<=75%", 0.75, true},
           {"differ<0.75", 0.75, false},
           {"sign<=1", 1, true},
           {"sign<1", 1, false},
           {"zero<=1", 1, true},
           {"zero<1", 1, false},
           {"nan<=0", 0, true},
           {"inf<1", 0, true},
           {"missing<=1", 1, true},
           {"missing<1", 1, false},
           {"max-ulps<=16777216", 0x1p24, true}, // from -2 to 2, in units of 2^-22
           {"max-ulps<16777216", 0x1p24, false},
           {"max-relative<=2", 2, true},
           {"max-relative<2", 2, false}});
    check(nan, one, {{"max-ulps<=1e300", HUGE_VAL, false}, {"norm<=1000", HUGE_VAL, false}, {"nan<=1", 1, true}});
    check(a, scratch / "none", {{"nan<=0", 0, false}}); // nothing was compared
    for (const char* text : {"nan", "nan<", "nan<-1", "ulps<1", "nan<1%", "differ<2", "norm<inf"})
        CHECK_THROWS_AS(parse_diff_gate(text), std::invalid_argument);
}

TEST_CASE("what cannot be compared is among the errors") {
    const Scratch scratch;
    const fs::path a = save(scratch / "a.safetensors", {{"x", {1, 2}}});
    CHECK(contains(diff_findings(a, scratch / "none", {}).errors.at(0), "none"));
    const DiffFindings longer = diff_findings(a, save(scratch / "b.safetensors", {{"x", {1, 2, 3}}}), {});
    CHECK(longer.pairs.empty());
    CHECK(contains(longer.errors.at(0), "3 elements, the other has 2"));
    save(scratch / "c/one.safetensors", {{"x", {1}}, {"y", {1}}});
    save(scratch / "d/one.safetensors", {{"z", {1}}, {"u", {1}}});
    const DiffFindings apart = diff_findings(scratch / "c", scratch / "d", {});
    CHECK(contains(apart.errors.at(0), "have no tensor of one name and step"));
    CHECK(apart.only_b == std::vector<std::string>{"z", "u"});
    DiffOptions wrong;
    wrong.threads = -1;
    CHECK_THROWS_AS(diff_findings(a, a, wrong), std::invalid_argument);
}

TEST_CASE("a watch sees every element and may end the work; threads change nothing") {
    const Scratch scratch;
    std::vector<float> values, others;
    for (int i = 0; i < 300'000; ++i) {
        values.push_back(std::ldexp(1.0F, -(i % 40)));
        others.push_back(values.back() * one_and(i % 3));
    }
    const fs::path a = save(scratch / "a.safetensors", {{"x", values}}),
                   b = save(scratch / "b.safetensors", {{"x", others}});
    Watched watched;
    DiffOptions one, many;
    one.threads = 1;
    many.threads = 3;
    const DiffFindings x = diff_findings(a, b, one, watched.watch()), y = diff_findings(a, b, many);
    CHECK(watched.total == 300'000);
    CHECK(watched.done == 300'000);
    CHECK(watched.pieces_of_work == 1);
    CHECK(x.total.differing() == 200'000);
    CHECK(x.total.ulps == y.total.ulps);
    CHECK(x.total.relative_norm() == y.total.relative_norm());
    CHECK_THROWS_AS(diff_findings(a, b, many, interrupting()), Interrupted);
}
