// The operations of IEEE P3109 by name, as amp-format computes them and as amp-crosscheck does, which shares no code
// with it: both against hashes of results and flags that data/p3109/operations.py recorded (fractions and mpmath), and
// one against the other in formats, modes and policies that the script has not.
#include "cases.h"
#include "recordings.h"
#include "tool.h"

#include <ampscope/sim/analysis/conformance/case_file.h>
#include <ampscope/sim/analysis/conformance/exact_arithmetic.h>

#include <doctest/doctest.h>

#include <set>

using namespace amp;
using namespace amp::test;

namespace {

namespace cf = amp::conformance;

const Tool amp_format{AMP_FORMAT}, crosscheck{AMP_CROSSCHECK};

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

exact::Result shown(const cf::Answer& a) { return {a.result, a.flags}; }

std::vector<cf::Op> ops_of_report() {
    std::vector<cf::Op> ops;
    for (std::size_t i = 0; i < cf::operations().size(); ++i)
        if (cf::is_of_report(static_cast<cf::Op>(i))) ops.push_back(static_cast<cf::Op>(i));
    return ops;
}

} // namespace

TEST_CASE("operations of IEEE P3109: results and flags of both arithmetics are those of fractions and mpmath") {
    const std::vector<RecordedHash> lines = recorded_hashes("p3109/operations.txt");
    const std::size_t all = ops_of_report().size();
    REQUIRE(lines.size() == 6 * all - 2 * 2); // FP32 and BF16 have no neighbours: they have -0
    prove("P3109 operations, by hashes", lines.size(), [&](std::uint64_t index, Tally& tally) {
        const RecordedHash& line = lines[index];
        cf::Question q{.op = cf::parse_op(line.second), .format = format(line.first)};
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
        tally.expect(own, line.hash, [&] { return fmt::format("formats/: {} {}", line.first, line.second); });
        tally.expect(exact, line.hash, [&] { return fmt::format("conformance: {} {}", line.first, line.second); });
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

TEST_CASE("operations of IEEE P3109: where p3109-cpp follows the report of June 2026 it gives the same") {
    // It follows an earlier report, in which results below an unsigned format are 0 with what is now SatNone, returns
    // the infinity of a pole whatever the saturation, and computes these in steps that are rounded, or to 256 bits.
    const std::set<std::string> rounded = {"ArcTan2Pi", "CosPi",    "ExpMinusOne", "Log2", "LogOnePlus",
                                           "SinPi",     "Softplus", "TanPi",       "Tanh"};
    std::size_t same = 0, lines = 0;
    for (std::istringstream& words : recorded_lines("p3109/p3109_cpp.txt")) {
        std::string name, operation, rounding, overflow;
        std::uint64_t count = 0, want = 0, got = fnv_begin, cases = 0;
        words >> name >> operation >> rounding >> overflow >> count >> std::hex >> want;
        const cf::Question q{.op = cf::parse_op(operation),
                             .format = format(name),
                             .policy = {.rounding = parse_name<Rounding>("rounding", rounding_names, rounding),
                                        .overflow = parse_name<Overflow>("overflow", overflow_names, overflow)},
                             .kinds = {cf::Kind::all},
                             .count = *cf::number_of_all({.op = cf::parse_op(operation), .format = format(name)})};
        const cf::Cases all = cf::make_cases(q);
        for (std::size_t i = 0; i < all.size(); ++i) {
            const bool infinite = std::ranges::any_of(all.operands_at(i), [&](std::uint32_t code) {
                return unpack(q.format, code).kind == amp::Kind::infinity;
            });
            if (infinite && q.policy.overflow == Overflow::sat_finite) continue;
            got = fnv_step(got, all.results[i]);
            ++cases;
        }
        CHECK(cases == count);
        ++lines;
        same += got == want;
        const bool pole = (operation == "Log" || operation == "ArcTanh") && q.policy.overflow == Overflow::sat_finite,
                   below = !q.format.is_signed && q.policy.overflow == Overflow::sat_none;
        CHECK_MESSAGE((got == want || rounded.contains(operation) || pole || below), name, " ", operation, " ",
                      rounding, " ", overflow);
    }
    CHECK(lines == 693);
    CHECK(same == 600);
}

TEST_CASE("results halfway are made for Add ... FMA as for add ... fma") {
    for (const auto& [report, ieee] :
         {std::pair("Add", "add"), std::pair("Subtract", "sub"), std::pair("Multiply", "mul"),
          std::pair("Divide", "div"), std::pair("Sqrt", "sqrt"), std::pair("FMA", "mulAdd")}) {
        cf::Question q{.op = cf::parse_op(report), .format = format("fp16"), .kinds = {cf::Kind::ties}, .count = 300};
        const cf::Cases made = cf::make_cases(q);
        q.op = cf::parse_op(ieee);
        CHECK(made.operands == cf::make_cases(q).operands);
        CHECK(made.results == cf::make_cases(q).results); // none is NaN or divides by zero
    }
    CHECK(cf::kinds_of({.op = cf::parse_op("Exp"), .format = format("fp16")}).size() == 2);
}

TEST_CASE("vectors: every operation of IEEE P3109 is written, read back and checked") {
    const Scratch scratch;
    std::string files;
    const std::vector<cf::Op> ops = ops_of_report();
    for (std::size_t i = 0; i < ops.size(); ++i) {
        const std::string text = scratch / fmt::format("{}.txt", i), npz = scratch / fmt::format("{}.npz", i);
        const std::string question =
            fmt::format("vectors binary8p3 {} --n 100 --profile p3109-sat-none --out ", cf::name_of(ops[i]));
        for (const std::string& path : {text, npz}) REQUIRE(amp_format(question + path).code == 0);
        const cf::Cases a = cf::read_cases(text).cases, b = cf::read_cases(npz).cases;
        CHECK(a.question.op == ops[i]);
        CHECK(a.results == b.results);
        CHECK(a.flags == b.flags);
        files += " " + text + " " + npz;
    }
    const Outcome o = crosscheck("vectors --json" + files);
    CHECK_MESSAGE(o.code == 0, o.err);
    CHECK(nlohmann::json::parse(o.out)["cases"].size() == 2 * ops.size());
}

TEST_CASE("vectors: all codes in order, and faults of files") {
    const Scratch scratch;
    const std::vector<std::string> lines =
        lines_of(amp_format("vectors binary4p2sf Add --kinds all --rounding down").out);
    REQUIRE(lines.size() == 11 + 256);
    CHECK(contains(lines[8], "kinds: all 256"));
    for (std::size_t i = 0; i < 256; ++i) CHECK(lines[11 + i].starts_with(fmt::format("{:X} {:X} ", i / 16, i % 16)));
    CHECK(lines_of(amp_format("vectors binary4p2sf Add --kinds all --n 20").out).size() == 11 + 20);

    std::string text = amp_format("vectors binary8p3 Class --kinds all --n 3").out; // of zero first
    const std::size_t at = text.find("flags\n") + 9;
    REQUIRE(text.substr(at, 4) == "4 00");
    text[at] = '3';
    const std::string path = write_file(scratch / "class.txt", text);
    const Outcome differs = crosscheck("vectors " + path);
    CHECK(differs.code == 3);
    CHECK(contains(differs.out, "class.txt, line 12: has "));
    text[at] = '8';
    write_file(path, text);
    crosscheck.check_error("vectors " + path, 1, {path, "line 12: result: 8 is no number from 0 to 7"});
}

TEST_CASE("vectors: words that mean nothing for operations of IEEE P3109") {
    const auto wrong = [](const std::string& arguments, std::string_view what) {
        amp_format.check_error("vectors " + arguments, 2, {what});
    };
    wrong("binary8p3 Expo", "unknown operation 'Expo'; known: add, sub");
    wrong("binary8p3 exp", "ArcTan2, ArcTan2Pi"); // names are as the report spells them
    wrong("e8m0 Exp", "can only be converted");
    wrong("binary10p1se Exp", "has values beyond those of FP32");
    wrong("fp16 NextLessThan", "needs a format with one NaN and no -0, such as binary8p3se, not fp16");
    wrong("fp16 Exp --kinds ties", "Exp from fp16 has no cases of the kind ties; it has edges, random, all");
    wrong("fp32 Exp --kinds all", "it has edges, random");
    wrong("fp16 Exp --exact", "--exact changes nothing");
    wrong("fp16 Exp --rounding stochastic", "stochastic");
}

TEST_CASE("eval: operations of IEEE P3109, in every format") {
    const auto run = [](const std::string& function, const std::string& lines) {
        return run_command(fmt::format("printf '{}\\n' | {} eval {}", lines, amp_format.path, function));
    };
    const auto eval = [&](const std::string& function, const std::string& operands) {
        const Outcome o = run(function, operands);
        REQUIRE_MESSAGE(o.out.starts_with(operands + " "), o.err);
        return o.out.substr(operands.size() + 1);
    };
    CHECK(eval("binary8p3_Exp", "00") == "40 00\n");                    // e^0 is 1
    CHECK(eval("f16_Hypot", "4200 4400") == "4500 00\n");               // 3, 4, 5
    CHECK(eval("f32_Exp", "3F800000") == "402DF854 01\n");              // e
    CHECK(eval("f32_ArcTan2", "80000000 BF800000") == "40490FDB 01\n"); // -0 is 0, so the angle is pi
    CHECK(eval("f32_Log", "00000000") == "FF800000 08\n");              // a pole
    CHECK(eval("f32_Log", "BF800000") == "7FC00000 10\n");              // no number
    CHECK(eval("f16_Exp", "7D01") == "7E00 00\n");                      // a NaN is a NaN, signalling or not
    CHECK(eval("f16_Divide", "3C00 0000") == "7E00 10\n");              // unlike div
    CHECK(eval("float8_e4m3fn_fma", "38 38 38") == "40 00\n");          // 1 * 1 + 1
    CHECK(eval("f16_div", "3C00 0000") == "7C00 08\n");
    CHECK(eval("e4m3_Class", "01") == "5 00\n");
    CHECK(eval("binary8p3_CompareLess", "40 41") == "1 00\n");
    CHECK(eval("BINARY4p2sf_NextLessThan", "9") == "A 00\n");
    CHECK(eval("tf32_SinPi", "3F000000") == "3F800000 00\n");
    CHECK(eval("e2m1_MaximumMagnitude", "7 F") == "7 00\n");
    CHECK(eval("binary8p3_to_f16", "80") == "7E00 00\n");
    CHECK(eval("f16_to_binary8p3", "3C00") == "40 00\n");
    CHECK(eval("e6m9_to_i32", "3E00") == "00000001 00\n");
    CHECK(eval("binary8p3sf_Exp", "7E") == "80 05\n"); // beyond a range without infinity
    CHECK(eval("binary8p3sf_Exp --profile p3109-sat-none", "7E") == "7F 05\n");
    CHECK(eval("f16_Exp --overflow saturate", "4C00") == "7BFF 05\n");
    CHECK(eval("f16_Exp --flush-subnormals", "0001") == "3C00 00\n");
    const auto fails = [&](const std::string& function, const std::string& lines, std::string_view what) {
        const Outcome o = run(function, lines);
        CHECK(o.code != 0);
        CHECK(contains(o.err, what));
        CHECK(lines_of(o.err).size() == 1);
    };
    fails("binary8p3_Add", "40 40\\n40", "standard input: line 2 needs operands of 2 hexadecimal digits");
    fails("binary8p3_Exp", "40 40", "standard input: line 1 has more than 1 operands");
    fails("binary8p3_Expo", "", "unknown function 'binary8p3_Expo'; known: f16_");
    fails("binary8p3_Expo", "", "ArcTanh, CompareLess");
    fails("binary9p10_Exp", "", "unknown function");
    fails("e8m0_Exp", "", "can only be converted");
    fails("binary10p1se_Exp", "", "values beyond those of FP32");
    fails("f16_NextLessThan", "", "needs a format with one NaN");
    fails("f16_Exp --rounding stochastic", "", "unknown value 'stochastic'");
}
