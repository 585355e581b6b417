// arithmetic.h against the exact oracle, complete where the default tier samples: fma over all triples of the 8-bit
// formats, binary operations on all their pairs in every mode, and many more hard operands of the wide formats.
#include "cases.h"

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;
using oracle::Op;

TEST_CASE("fma, all triples of the 8-bit formats") {
    for (const char* name : {"e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e4m3b11fnuz"}) {
        const FormatSpec f = format(name);
        const Facts& facts = oracle::find(name);
        prove(
            fmt::format("{} fma all triples", name), 1 << 24,
            [&](std::uint64_t i, Tally& tally) {
                check(f, facts, {}, 0, Op::fma, code_of(i >> 16, f), code_of(i >> 8, f), code_of(i, f), tally);
            },
            shard());
    }
}

TEST_CASE("binary operations in every mode, all pairs of the 8-bit formats") {
    for (const Facts& facts : oracle::facts) {
        if (facts.bits() != 8 || !facts.has_zero) continue;
        const FormatSpec f = format(facts.name);
        prove(
            fmt::format("{} all pairs, every mode", facts.name), roundings.size() << 16,
            [&](std::uint64_t i, Tally& tally) {
                Policy policy{.rounding = roundings[i >> 16]};
                if (mix(i) % 2 == 0) policy.tininess = Tininess::before_rounding;
                for (const Op op : {Op::add, Op::sub, Op::mul, Op::div, Op::remainder})
                    check(f, facts, policy, random_word(i), op, code_of(i >> 8, f), code_of(i, f), 0, tally);
            },
            shard());
    }
}

TEST_CASE("the wide formats, hard operands in every policy") {
    for (const Facts& facts : oracle::facts) {
        if (facts.bits() <= 8) continue;
        const FormatSpec f = format(facts.name);
        prove(
            fmt::format("{} every operation, hard operands", facts.name), 1 << 21,
            [&](std::uint64_t i, Tally& tally) {
                const std::uint64_t seed = i + (std::uint64_t{1} << 40); // other seeds than those of the default tier
                const auto [a, b, c] = hard_operands(f, seed);
                const Policy policy = policy_at(mix(seed) % policy_count);
                for (const Op op :
                     {Op::add, Op::sub, Op::mul, Op::div, Op::remainder, Op::sqrt, Op::fma, Op::round_exact})
                    check(f, facts, policy, random_word(seed), op, a, b, c, tally);
            },
            shard());
    }
}
