// Where the time of a step goes: what is counted beside the time.
#include "tool.h"

#include <fmt/format.h>

using namespace amp::test;

namespace {

const Tool train{AMP_TRAIN};

/// The row of an op of the first run.
nlohmann::json profile_of(const nlohmann::json& report, const std::string& tape, const std::string& op) {
    for (const nlohmann::json& row : report["runs"][0]["profile"])
        if (row["tape"] == tape && row["op"] == op) return row;
    return nullptr;
}

} // namespace

TEST_CASE("a profile counts the runs, products and bytes of each op, of steps alone") {
    // Digits of 8 x 8 pixels, a hidden layer of 32, ten classes; 5 steps of 3 micro-batches of 16.
    const nlohmann::json report = train.json("--model mlp --width 32 --depth 1 --batch 16 --micro-batches 3 --steps 5 "
                                             "--precision fp32 --profile");
    const nlohmann::json forward = profile_of(report, "forward", "matmul"),
                         backward = profile_of(report, "backward", "matmul");
    REQUIRE(forward.is_object());
    REQUIRE(backward.is_object());
    constexpr int times = 5 * 3, first = 64 * 32, last = 32 * 10;
    CHECK(forward["runs"] == times * 2);
    CHECK(forward["multiply_adds"] == times * 16 * (first + last));
    CHECK(forward["bytes"] == times * 4 * (16 * (64 + 32 + 32 + 10) + first + last + 32 + 10));
    CHECK(backward["multiply_adds"] == times * 16 * (first + 2 * last)); // the network's input has no gradient
    CHECK(forward["seconds"] > 0);
    CHECK(profile_of(report, "update", "update")["runs"] == 5 * 4);
    CHECK(profile_of(report, "check", "check_finite")["runs"] == 5);
    CHECK(report["runs"][0]["profiled_steps"] == 5);
    // Four tokens in tiles of 2 x 3, of which the mask hides one of two scores; 8 sequences, 4 heads of 16 channels.
    const nlohmann::json fused =
        train.json("--attention fused:2x3 --batch 8 --depth 1 --steps 1 --precision fp32 --profile");
    constexpr int scores = 8 * 4 * (2 * 3 + 2 * 4);
    CHECK(profile_of(fused, "forward", "fused_attention")["multiply_adds"] == 2 * scores * 16);
    CHECK(profile_of(fused, "backward", "fused_attention_backward")["multiply_adds"] == 5 * scores * 16);
}

TEST_CASE("a resumed run's profile is of the steps since then") {
    const Scratch folder;
    const std::string options =
        fmt::format("--model mlp --precision fp32 --record {} --checkpoint-every 5 ", (folder / "runs").string());
    REQUIRE(train(options + "--steps 5").code == 0);
    const nlohmann::json report = train.json(options + "--steps 8 --resume --profile");
    CHECK(report["runs"][0]["profiled_steps"] == 3);
    CHECK(profile_of(report, "check", "check_finite")["runs"] == 3);
    CHECK(contains(train(options + "--steps 10 --resume --profile").out, "backward: matmul"));
}

TEST_CASE("the table has rates of products and of bytes, for each run") {
    const Outcome o = train("--model mlp --steps 3 --precision fp32,amp-bf16 --profile");
    REQUIRE(o.code == 0);
    CAPTURE(o.out);
    CHECK(contains(o.out, "GMAC/s"));
    CHECK(contains(o.out, "GB/s"));
    CHECK(contains(o.out, "fp32: "));
    CHECK(contains(o.out, "amp-bf16: "));
    CHECK_FALSE(contains(train("--model mlp --steps 3 --precision fp32").out, "GMAC/s"));
    CHECK(train("--explain --profile").err == "amp-train: --profile has no effect with --explain; see --help\n");
}
