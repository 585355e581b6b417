// Gates as scripts see them: exit codes and messages.
#include "histogram_tool.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>

using namespace amp;
using namespace amp::test;
using nlohmann::json;

TEST_CASE("gates decide the exit code") {
    const std::string file = sample(sample_files[2]);
    CHECK(run(file + " --gate 'fp16@2^12.underflow<0.1%'").code == 0);
    const Outcome fails = run(file + " --gate 'fp16.underflow<0.1%' --gate 'fp16.overflow<=0'");
    CHECK(fails.code == 3);
    CHECK(fails.out.find("fp16.underflow<0.1%: FAILS") != std::string::npos);
    CHECK(fails.out.find("fp16.overflow<=0: holds") != std::string::npos);
    CHECK(run(file + " --gate 'fp16.nan<=0'").code == 0);
    CHECK(run(file + " --format bf16 --gate 'e4m3@3.5.underflow/all<1%'").code == 3); // computed although not asked for
    const Outcome json_only = run(file + " --json - --gate 'e2m1.underflow<1%'");
    CHECK(json_only.code == 3);
    CHECK(json::parse(json_only.out)["gates"][0]["holds"] == false);
    CHECK(json_only.err.find("e2m1.underflow<1%") != std::string::npos);
}

TEST_CASE("a share of no elements does not hold, and says so") {
    const Scratch scratch;
    const std::string zeros = (scratch / "zeros.safetensors").string(), nans = (scratch / "nans.safetensors").string();
    const std::string none = (scratch / "none.safetensors").string();
    write_floats(zeros, "x", {0, 0, 0});
    write_floats(nans, "x", {NAN, NAN});
    write_floats(none, "x", {});
    for (const std::string& file : {zeros, nans}) {
        const Outcome outcome = run(file + " --gate 'fp16.underflow<0.1%' --gate 'fp16.underflow<1'");
        CHECK(outcome.code == 3);
        CHECK(outcome.out.find("gate fp16.underflow<0.1%: FAILS; there are no finite non-zero elements") !=
              std::string::npos);
        CHECK(outcome.out.find("gate fp16.underflow<1: holds; it is 0") != std::string::npos);
    }
    CHECK(run(none + " --gate 'fp16.nan<1%'").out.find("FAILS; there are no elements") != std::string::npos);
    const Outcome piped = run(zeros + " --json - --gate 'fp16.underflow<0.1%'");
    CHECK(piped.code == 3);
    CHECK(piped.err.find("fp16.underflow<0.1% (a share of no elements)") != std::string::npos);
    const json gate = json::parse(piped.out)["gates"][0];
    CHECK(gate["of"] == 0);
    CHECK(gate["why"] == "there are no elements to take a share of");
}

TEST_CASE("under stochastic rounding the expectation itself is compared") {
    const Scratch scratch;
    const std::string file = (scratch / "x.safetensors").string();
    write_floats(file, "x", {0x1.8p-25f, 1, 1, 1}); // becomes zero with a probability of 1/4
    const std::string run_it = file + " --rounding stochastic --gate ";
    const Outcome above = run(run_it + "'fp16.underflow<=0.2'"), at = run(run_it + "'fp16.underflow<=6.25%'");
    CHECK(above.code == 0);
    CHECK(at.code == 0);
    CHECK(at.out.find("it is 6.25 % (0.25 expected of 4)") != std::string::npos);
    CHECK(run(run_it + "'fp16.underflow<6.25%'").code == 3);
    CHECK(run(run_it + "'fp16.underflow<=0'").code == 3); // rounded to an integer it would be 0
    CHECK(json::parse(run(run_it + "'fp16.underflow<1' --json -").out)["gates"][0]["count"] == 0.25);
}
