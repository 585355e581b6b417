// The arithmetic that checks test vectors, and that of formats/, against Python's fractions: operations of IEEE 754 in
// seven formats, written from the standard in data/conformance/record.py, which recorded hashes of results and flags.
#include "recordings.h"
#include "sweep.h"

#include <ampscope/sim/analysis/conformance/exact_arithmetic.h>

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;

namespace {

namespace cf = amp::conformance;

/// The case's number decides how it rounds, as in record.py.
Policy policy_of(std::uint32_t number) {
    Policy policy;
    policy.rounding = static_cast<Rounding>(number % 6);
    policy.tininess = number / 6 % 2 != 0 ? Tininess::before_rounding : Tininess::after_rounding;
    policy.subnormals = number / 12 % 2 != 0 ? Subnormals::flush : Subnormals::keep;
    return policy;
}

cf::OperandCodes operands(const FormatSpec& f, std::uint32_t seed) {
    const std::uint32_t mask = f.code_mask(), sign = f.sign_mask();
    cf::OperandCodes codes{};
    for (std::uint32_t i = 0; i < 3; ++i) {
        const std::uint32_t word = mixed(3 * seed + i), kind = mixed(3 * seed + i + 0x9e3779b9) % 8;
        codes[i] = word & mask;
        if (kind == 0) codes[i] &= mask >> (1 + f.exponent_bits) | sign;
        else if (kind == 1) codes[i] |= ((1U << f.exponent_bits) - 1) << f.fraction_bits;
        else if (kind < 4 && i > 0) codes[i] = ((codes[0] + word % 5 - 2) & mask) ^ (kind == 3 ? sign : 0);
    }
    return codes;
}

std::uint64_t hash_of_words(const std::vector<std::uint32_t>& words) {
    std::uint64_t hash = fnv_begin;
    for (const std::uint32_t w : words) hash = fnv_step(hash, w);
    return hash;
}

} // namespace

TEST_CASE("both implementations of arithmetic give the results and flags of Python's fractions") {
    const std::vector<RecordedHash> all = recorded_hashes("conformance/recordings.txt");
    REQUIRE(all.size() == 7 * cf::testfloat_operations().size());
    prove("operations of IEEE 754, by hashes", all.size(), [&](std::uint64_t index, Tally& tally) {
        const RecordedHash& r = all[index];
        const FormatSpec f = format(r.first);
        const std::size_t at = index % cf::testfloat_operations().size();
        const cf::Operation& operation = cf::testfloat_operations()[at];
        REQUIRE(operation.name == r.second);
        std::vector<std::uint32_t> own, exact;
        for (std::uint32_t i = 0; i < r.count; ++i) {
            const auto group = static_cast<std::uint32_t>(16 * (index / cf::testfloat_operations().size()) + at);
            const cf::OperandCodes codes = operands(f, group * r.count + i);
            const Policy policy = policy_of(i);
            const bool signals = i / 24 % 2 != 0;
            Arithmetic unit{f, policy};
            own.push_back(cf::run(operation, unit, codes, signals));
            own.push_back(unit.flags.bits);
            const exact::Result second = exact::apply(f, policy, static_cast<cf::Op>(at), codes, signals);
            exact.push_back(second.code);
            exact.push_back(second.flags);
        }
        tally.expect(hash_of_words(own), r.hash, [&] { return fmt::format("formats/: {} {}", r.first, r.second); });
        tally.expect(hash_of_words(exact), r.hash,
                     [&] { return fmt::format("conformance: {} {}", r.first, r.second); });
        tally.cases += 2 * (r.count - 1); // one hash stands for so many
    });
}
