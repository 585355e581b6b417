// All functions of formats/scalar_math.h for every FP32 operand.
#include "scalar_math_proof.h"

using namespace amp;
using namespace amp::test;

TEST_CASE("every function at every float") {
    for (const Function& f : functions) {
        SUBCASE(f.name) { // to run one alone: --subcase=tanh
            std::atomic<std::uint64_t> misrounded = 0;
            const auto check = [&](std::uint64_t i, Tally& tally) {
                check_function(f, static_cast<std::uint32_t>(i), tally, misrounded);
            };
            prove(fmt::format("{} of all floats: error within its bound, rounded once to 16 and 8 bits", f.name),
                  std::uint64_t{1} << 32, check, shard());
            fmt::print("  {}: {} results in FP32 are not the nearest\n", f.name, misrounded.load());
        }
    }
}

TEST_CASE("every estimate at every float") {
    for (const Estimate& f : estimates)
        prove(
            fmt::format("estimate of {} at all floats at which it decides a rounding", f.name), std::uint64_t{1} << 32,
            [&](std::uint64_t i, Tally& tally) { check_estimate(f, static_cast<std::uint32_t>(i), tally); }, shard());
}
