// The operations of IEEE P3109 by name, as amp-format computes them and as amp-crosscheck does, which shares no code with
// it: both against hashes of results and flags that data/p3109/operations.py recorded (fractions and mpmath), and one
// against the other in formats, modes and policies that the script has not.
#include "cases.h"
#include "recordings.h"

#include <ampscope/sim/analysis/conformance/cases.h>
#include <ampscope/sim/analysis/conformance/exact_arithmetic.h>

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;

namespace {

namespace cf = amp::conformance;

/// Three codes: any, near zero or the end of the codes, near one, beside the first; as in operations.py.
std::array<std::uint32_t, 3> operands_of_case(const FormatSpec& f, std::uint32_t seed) {
    const std::uint32_t half = std::uint32_t{1} << (f.bits() - 1), one = encode(f, 1.0F);
    std::array<std::uint32_t, 3> codes{};
    for (std::uint32_t i = 0; i < 3; ++i) {
        const std::uint32_t word = mixed(3 * seed + i);
        codes[i] = word & f.code_mask();
        switch (mixed(3 * seed + i + 0x9e3779b9) % 8) {
        case 0: codes[i] &= half | 7; break;
        case 1: codes[i] |= half - 8; break;
        case 2: codes[i] = (one + word % 7 - 3) ^ ((word >> 8) % 2 * half); break;
        case 3: codes[i] = i == 0 ? codes[i] : codes[0] + word % 3 - 1; break;
        default: break;
        }
        codes[i] &= f.code_mask();
    }
    return codes;
}

struct Line {
    std::string format, operation;
    std::uint32_t count = 0;
    std::uint64_t hash = 0;
};

std::vector<Line> recorded_operations() {
    std::vector<Line> lines;
    for (std::istringstream& words : recorded_lines("p3109/operations.txt")) {
        Line& line = lines.emplace_back();
        words >> line.format >> line.operation >> line.count >> std::hex >> line.hash;
    }
    return lines;
}

exact::Result shown(const cf::Answer& a) { return {a.result, a.flags}; }

std::vector<cf::Op> ops_of_report() {
    std::vector<cf::Op> ops;
    for (std::size_t i = 0; i < cf::operations().size(); ++i)
        if (cf::is_of_report(static_cast<cf::Op>(i))) ops.push_back(static_cast<cf::Op>(i));
    return ops;
}

} // namespace

TEST_CASE("operations of IEEE P3109: results and flags of both arithmetics are those of fractions and mpmath") {
    const std::vector<Line> lines = recorded_operations();
    const std::size_t all = ops_of_report().size();
    REQUIRE(lines.size() == 6 * all - 2 * 2); // FP32 and BF16 have no neighbours: they have -0
    prove("P3109 operations, by hashes", lines.size(), [&](std::uint64_t index, Tally& tally) {
        const Line& line = lines[index];
        cf::Question q{.op = cf::parse_op(line.operation), .format = format(line.format)};
        std::uint64_t own = fnv_begin, exact = fnv_begin;
        for (std::uint32_t i = 0; i < line.count; ++i) {
            constexpr Overflow overflows[] = {Overflow::sat_finite, Overflow::sat_propagate, Overflow::sat_none};
            q.policy = {.rounding = static_cast<Rounding>(i % 6), .overflow = overflows[i / 6 % 3]};
            const auto codes = operands_of_case(q.format, static_cast<std::uint32_t>(index) * line.count + i);
            const auto operands = std::span(codes).first(cf::operands_of(q));
            const cf::Answer a = cf::answer(q, operands), b = cf::exact_answer(q, operands);
            own = fnv_step(fnv_step(own, a.result), a.flags);
            exact = fnv_step(fnv_step(exact, b.result), b.flags);
        }
        tally.expect(own, line.hash, [&] { return fmt::format("formats/: {} {}", line.format, line.operation); });
        tally.expect(exact, line.hash, [&] { return fmt::format("conformance: {} {}", line.format, line.operation); });
        tally.cases += 2 * (line.count - 1); // one hash stands for so many
    });
}

TEST_CASE("operations of IEEE P3109: both arithmetics agree in formats of every kind and under every policy") {
    const std::vector<cf::Op> ops = ops_of_report();
    std::vector<FormatSpec> all;
    for (const FormatSpec& f : formats)
        if (!f.is_scale()) all.push_back(f);
    for (const char* name : {"binary8p3se", "binary3p1uf", "binary6p1se", "binary12p7sf", "binary16p11se",
                             "binary4p4ue", "e6m9", "int8sym", "e3m4ieee"})
        all.push_back(format(name));
    constexpr std::uint64_t each = 600;
    prove("P3109 operations, two arithmetics", ops.size() * each, [&](std::uint64_t i, Tally& tally) {
        cf::Question q{.op = ops[i / each], .format = all[mix(i) % all.size()], .policy = policy_at(mix(i + 1))};
        if (q.policy.rounding == Rounding::stochastic) q.policy.rounding = Rounding::to_odd;
        const bool single = q.format.has_nan() && !q.format.has_nan_payload() && !q.format.has_negative_zero();
        if (cf::operations()[static_cast<std::size_t>(q.op)].gives == cf::Gives::neighbour && !single) return;
        const auto codes = operands_of_case(q.format, static_cast<std::uint32_t>(mix(i + 2)));
        const auto operands = std::span(codes).first(cf::operands_of(q));
        tally.expect(shown(cf::answer(q, operands)), shown(cf::exact_answer(q, operands)), [&] {
            return fmt::format("{} of {} {:x} {:x} {:x}", cf::name_of(q.op), q.format.name, codes[0], codes[1],
                               codes[2]);
        });
    });
}

TEST_CASE("functions of IEEE P3109: every code of formats of up to eight bits, by both arithmetics") {
    const std::vector<cf::Op> ops = ops_of_report();
    for (const char* name : {"binary8p4se", "binary8p1uf", "e4m3"})
        for (const cf::Op op : ops) {
            if (cf::operations()[static_cast<std::size_t>(op)].gives == cf::Gives::neighbour) continue;
            const cf::Question q{.op = op, .format = format(name), .kinds = {cf::Kind::all}, .count = 256};
            if (cf::operands_of(q) != 1) continue;
            const cf::Cases cases = cf::make_cases(q);
            REQUIRE(cases.size() == 256);
            for (std::size_t i = 0; i < cases.size(); ++i) {
                CAPTURE(cf::name_of(op));
                CHECK(cases.operands_at(i)[0] == i);
                CHECK(cf::exact_answer(q, cases.operands_at(i)) == cf::Answer{cases.results[i], cases.flags[i]});
            }
        }
}
