// What is said of the state of an optimizer in checkpoints: whose it is, which checkpoint it is from, and what of it is
// not known.
#include "adam_recordings.h"

#include <ampscope/sim/io/recording.h>

#include <doctest/doctest.h>

#include <algorithm>

using namespace amp;
using namespace amp::test;
using namespace amp::test::adam;

namespace {

/// m, v and the step of a parameter.
NamedValues state_of(const std::string& parameter, std::size_t count, float steps,
                     const std::string& owner = "optim.") {
    const std::string name = owner + "state." + parameter;
    return {{name + ".exp_avg", std::vector<float>(count, 0.5F)},
            {name + ".exp_avg_sq", std::vector<float>(count, 0.25F)},
            {name + ".step", {steps}}};
}

NamedValues operator+(NamedValues a, const NamedValues& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

NamedValues weight(const std::string& name, std::size_t count) { return {{name, std::vector<float>(count, 1.0F)}}; }

std::vector<std::string> names_in(const AdamFindings& f) {
    std::vector<std::string> names;
    for (const AdamTensor& t : f.tensors) names.push_back(t.name);
    return names;
}

bool warns(const AdamFindings& f, const std::string& part) {
    return std::ranges::any_of(f.warnings, [&](const std::string& w) { return w.find(part) != std::string::npos; });
}

const std::vector<std::string> numbers = {"0", "1"};

} // namespace

TEST_CASE("parameters with numbers have the names of weights only where the shapes leave no choice") {
    const Scratch scratch;
    const NamedValues equal = state_of("0", 3, 4) + state_of("1", 3, 4);
    save(scratch / "equal.safetensors", equal + weight("model.b", 3) + weight("model.a", 3));
    const AdamFindings counted = adam_findings(scratch / "equal.safetensors", asked());
    CHECK(names_in(counted) == numbers);
    CHECK(counted.unmatched == numbers);
    CHECK(counted.total.updated == 0);
    CHECK(warns(counted, "the optimizer counts its parameters, and nothing tells for sure which weights are theirs"));

    const NamedValues different = state_of("0", 3, 4) + state_of("1", 2, 4);
    save(scratch / "one.safetensors", different + weight("model.a", 2) + weight("model.b", 3));
    const AdamFindings named = adam_findings(scratch / "one.safetensors", asked());
    CHECK(names_in(named) == std::vector<std::string>{"model.b", "model.a"});
    CHECK(named.unmatched.empty());
    CHECK(named.total.updated == 5);
    CHECK_FALSE(warns(named, "counts its parameters"));

    save(scratch / "more.safetensors", different + weight("model.a", 2) + weight("model.b", 3) + weight("ema.b", 3));
    const AdamFindings open = adam_findings(scratch / "more.safetensors", asked());
    CHECK(names_in(open) == numbers);
    CHECK(open.total.updated == 0);

    // A list of parameters has names that end in numbers, which are not those of the optimizer.
    save(scratch / "list.safetensors", equal + weight("list.1", 3) + weight("list.0", 3));
    CHECK(adam_findings(scratch / "list.safetensors", asked()).total.updated == 0);
}

TEST_CASE("weights are those of the state's file, then those of its folder, and of no other checkpoint") {
    const Scratch scratch;
    fs::create_directories(scratch / "c");
    fs::create_directories(scratch / "d");
    save(scratch / "c/optimizer.safetensors", state_of("w", 3, 4));
    save(scratch / "d/model.safetensors", weight("w", 3));
    const AdamFindings alone = adam_findings(scratch.folder(), asked());
    CHECK(alone.total.updated == 0);
    CHECK(alone.unmatched.empty());
    save(scratch / "c/model.safetensors", weight("model.w", 3) + weight("model.u", 3));
    CHECK(adam_findings(scratch / "c", asked()).total.updated == 3);
    save(scratch / "c/model.safetensors", weight("model.u", 3));
    const AdamFindings another = adam_findings(scratch / "c", asked());
    CHECK(another.total.updated == 0);
    CHECK(another.unmatched == std::vector<std::string>{"w"});
}

TEST_CASE("the step to examine chooses among checkpoints, and is refused where it cannot") {
    const Scratch scratch;
    fs::create_directories(scratch / "runs");
    save(scratch / "runs/step-7.safetensors", state_of("w", 3, 70));
    save(scratch / "runs/step-8.safetensors", state_of("w", 3, 80));
    const auto step_of = [&](std::optional<std::int64_t> step) {
        AdamOptions options = asked();
        options.step = step;
        const AdamFindings f = adam_findings(scratch / "runs", options);
        CHECK(f.tensors.size() == 1);
        return f.step;
    };
    CHECK(step_of(std::nullopt) == 80);
    CHECK(step_of(9) == 80);
    CHECK(step_of(7) == 70);
    CHECK_THROWS_WITH_AS(step_of(3), doctest::Contains("the earliest checkpoint is of step 7"), FileError);
    fs::remove(scratch / "runs/step-7.safetensors");
    fs::rename(scratch / "runs/step-8.safetensors", scratch / "runs/last.safetensors");
    CHECK(step_of(std::nullopt) == 80);
    CHECK_THROWS_WITH_AS(step_of(9), doctest::Contains("--step selects a checkpoint by the number that ends its name"),
                         FileError);
}

TEST_CASE("several checkpoints that no step tells apart are refused") {
    const Scratch scratch;
    fs::create_directories(scratch / "ab");
    save(scratch / "ab/a.safetensors", state_of("w", 3, 4) + weight("w", 3));
    save(scratch / "ab/b.safetensors", state_of("w", 3, 4) + weight("w", 3));
    CHECK_THROWS_WITH_AS(adam_findings(scratch / "ab", asked()),
                         doctest::Contains("holds several checkpoints without steps in their names; name one: "
                                           "a.safetensors, b.safetensors"),
                         FileError);
    CHECK(adam_findings(scratch / "ab/b.safetensors", asked()).step == 4);
    const auto tensors = find_tensors({scratch / "ab"}).tensors;
    CHECK(std::ranges::count(tensors, "optim.state.w.step", [](const RecordedTensor& t) { return t.entry.name; }) == 2);

    fs::create_directories(scratch / "runs/x");
    fs::create_directories(scratch / "runs/y");
    save(scratch / "runs/x/step-7.safetensors", state_of("w", 3, 4));
    save(scratch / "runs/y/step-7.safetensors", state_of("u", 2, 4));
    CHECK_THROWS_WITH_AS(adam_findings(scratch / "runs", asked()),
                         doctest::Contains("holds several checkpoints of step 7; name one: "), FileError);
}

TEST_CASE("what is not known of a checkpoint is not called exact") {
    const Scratch scratch;
    NamedValues state = state_of("w", 3, 4) + weight("w", 3);
    save(scratch / "whole.safetensors", state);
    const AdamFindings whole = adam_findings(scratch / "whole.safetensors", asked());
    CHECK(whole.basis == AdamBasis::checkpoint);
    CHECK(whole.is_exact());
    CHECK_FALSE(whole.is_lost_exact()); // the weights before the step are not there
    CHECK(whole.total.updated == 3);
    std::erase_if(state, [](const auto& tensor) { return tensor.first.ends_with(".step"); });
    save(scratch / "unnumbered.safetensors", state);
    const AdamFindings unnumbered = adam_findings(scratch / "unnumbered.safetensors", asked());
    CHECK(unnumbered.basis == AdamBasis::unnumbered);
    CHECK(name_of(unnumbered.basis) == "unnumbered");
    CHECK_FALSE(unnumbered.is_exact());
    CHECK_FALSE(unnumbered.step.has_value());

    save(scratch / "largest.safetensors",
         state_of("w", 3, 4) + NamedValues{{"optim.state.w.max_exp_avg_sq", {1, 1, 1}}});
    CHECK(
        warns(adam_findings(scratch / "largest.safetensors", asked()), "AMSGrad divides by the root of the largest v"));
}

TEST_CASE("a learning rate that is a tensor is a setting, and no weight") {
    const Scratch scratch;
    save(scratch / "c.safetensors",
         state_of("w", 1, 4) + weight("model.w", 1) +
             NamedValues{{"optim.param_groups.w.lr", {0.25F}}, {"optim.param_groups.w.eps", {0.125F}}});
    const AdamFindings f = adam_findings(scratch / "c.safetensors", asked());
    REQUIRE(f.tensors.size() == 1);
    CHECK(f.tensors[0].settings.learning_rate == 0.25);
    CHECK(f.tensors[0].settings.eps == 0.125);
    CHECK(f.total.updated == 1);
    CHECK(f.warnings.empty());
    for (const RecordedTensor& t : find_tensors({scratch / "c.safetensors"}).tensors)
        CHECK(t.kind == (t.entry.name == "model.w" ? TensorKind::weight : TensorKind::state));
}

TEST_CASE("settings outside their ranges are refused by the name of their file") {
    const Scratch scratch;
    save(scratch / "bad.safetensors", state_of("w", 2, 4) + NamedValues{{"optim.param_groups.w.lr", {-1}}});
    CHECK_THROWS_WITH_AS(adam_findings(scratch / "bad.safetensors", asked()),
                         doctest::Contains("bad.safetensors: w: [optimizer] "), FileError);
}

TEST_CASE("parameters whose group or learning rate a checkpoint does not say") {
    const Scratch scratch;
    save(scratch / "c.safetensors",
         state_of("w", 2, 4) + state_of("u", 3, 4) + state_of("x", 4, 4) +
             NamedValues{{"optim.param_groups.w.lr", {0.25F}}, {"optim.param_groups.u.eps", {0.125F}}});
    const AdamFindings f = adam_findings(scratch / "c.safetensors", asked());
    CHECK(warns(f, "does not say all settings of 2 tensors"));
    REQUIRE(f.tensors.size() == 3); // by name: u, w, x
    CHECK(f.tensors[0].settings.eps == 0.125);
    CHECK(f.tensors[1].settings.learning_rate == 0.25);
    CHECK(f.tensors[2].settings.learning_rate == 1e-3);
}

TEST_CASE("the state of an optimizer without m and v") {
    const Scratch scratch;
    const std::string says = "holds the state of an optimizer, but not Adam's m and v";
    save(scratch / "sgd.safetensors", weight("w", 3) + NamedValues{{"optim.state.w.momentum_buffer", {1, 2, 3}}});
    CHECK_THROWS_WITH_AS(adam_findings(scratch / "sgd.safetensors", asked()), doctest::Contains(says.c_str()),
                         FileError);
    save(scratch / "lion.safetensors", weight("w", 3) + NamedValues{{"optim.state.w.exp_avg", {1, 2, 3}}});
    CHECK_THROWS_WITH_AS(adam_findings(scratch / "lion.safetensors", asked()), doctest::Contains(says.c_str()),
                         FileError);
    save(scratch / "adam.safetensors", state_of("w", 3, 4));
    AdamOptions options = asked();
    options.tensor = std::regex("nothing");
    CHECK_THROWS_WITH_AS(adam_findings(scratch / "adam.safetensors", options),
                         doctest::Contains("holds no parameter's state that the options select"), FileError);
}
