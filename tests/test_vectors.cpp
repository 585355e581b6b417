// Test vectors: the cases that amp-format vectors makes, their files, and the second implementation that checks them.
#include "cases.h"
#include "tool.h"

#include <ampscope/sim/analysis/conformance/case_file.h>
#include <ampscope/sim/analysis/conformance/exact_arithmetic.h>
#include <ampscope/sim/io/write.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>

using namespace amp;
using namespace amp::test;

namespace {

namespace cf = amp::conformance;
using VectorOp = cf::Op;

const Tool amp_format{AMP_FORMAT}, crosscheck{AMP_CROSSCHECK};

std::string file_of(const Scratch& scratch, const std::string& name, const std::string& arguments) {
    const std::string path = (scratch / name).string();
    const Outcome o = amp_format("vectors " + arguments + " --out " + path);
    REQUIRE_MESSAGE(o.code == 0, arguments, o.err);
    CHECK(o.out.empty());
    return path;
}

/// Operations that oracle_arithmetic.h has, too.
const std::map<VectorOp, oracle::Op>& oracle_ops() {
    static const std::map<VectorOp, oracle::Op> ops = {
        {VectorOp::add, oracle::Op::add},       {VectorOp::sub, oracle::Op::sub},
        {VectorOp::mul, oracle::Op::mul},       {VectorOp::div, oracle::Op::div},
        {VectorOp::rem, oracle::Op::remainder}, {VectorOp::sqrt, oracle::Op::sqrt},
        {VectorOp::mul_add, oracle::Op::fma},   {VectorOp::round_to_int, oracle::Op::round}};
    return ops;
}

/// The exact result of a case as a rational number or the root of one, before any rounding.
oracle::Number exact_result(const cf::Question& q, std::span<const std::uint32_t> x) {
    if (q.op == VectorOp::convert) return oracle::read(oracle::find(q.format.name), x[0]);
    const Facts& f = oracle::find(q.format.name);
    const auto operand = [&](std::size_t i) { return oracle::read(f, i < x.size() ? x[i] : 0); };
    const Context to{f, q.policy};
    if (q.op == VectorOp::round_to_int) return operand(0);
    return oracle::detail::compute(to, oracle_ops().at(q.op), operand(0), operand(1), operand(2)).x;
}

/// Where a result lies between a number of the format and the next, in sixteenths of the
/// distance: 0 at the number, 8 in the middle, 16 at the next; odd numbers stand for what lies between two eighths.
int eighths(const oracle::Number& x, const oracle::Dyadic& low) {
    if (low.n != 0 && oracle::compare(x, low) == 0) return 0;
    int place = 0;
    for (std::uint64_t i = 1; i <= 8; ++i) {
        const int order = oracle::compare(x, {8 * low.n + i, low.exponent - 3});
        if (order > 0) place = 2 * static_cast<int>(i);
        if (order == 0) return 2 * static_cast<int>(i);
    }
    return place + 1;
}

constexpr int middle = 8;

} // namespace

TEST_CASE("ties lie halfway, or next to it on the side that their number says, by exact rationals") {
    for (const char* name : {"fp32", "fp16", "bf16", "tf32", "e4m3", "e5m2", "e4m3fnuz", "e3m2", "e2m3", "e2m1"}) {
        for (const VectorOp op : {VectorOp::add, VectorOp::sub, VectorOp::mul, VectorOp::div, VectorOp::sqrt,
                                  VectorOp::mul_add, VectorOp::round_to_int}) {
            const cf::Question q{.op = op, .format = format(name), .kinds = {cf::Kind::ties}, .count = 600, .seed = 3};
            const cf::Cases cases = cf::make_cases(q);
            const Facts& f = oracle::find(name);
            std::uint64_t halfway = 0, near = 0;
            for (std::size_t i = 0; i < cases.size(); ++i) {
                CAPTURE(name);
                CAPTURE(int(op));
                CAPTURE(i);
                const oracle::Number x = exact_result(q, cases.operands_at(i));
                REQUIRE(x.kind == oracle::Class::finite);
                const oracle::Dyadic low =
                    op != VectorOp::round_to_int
                        ? oracle::magnitude(f, oracle::index_below(f, x))
                        : oracle::Dyadic{x.exponent >= 0 ? 0 : static_cast<std::uint64_t>(x.numerator >> -x.exponent),
                                         0};
                const int place = eighths(x, low);
                CHECK(place > 0);
                halfway += place == middle ? 1 : 0;
                near += place >= middle - 4 && place <= middle + 4 ? 1 : 0; // within a quarter of the distance
                if (f.fraction_bits >= 3 && op != VectorOp::sqrt && op != VectorOp::div && op != VectorOp::round_to_int)
                    CHECK((place > middle) - (place < middle) == std::array{0, -1, 1}[i % 3]);
            }
            const bool never_halfway = op == VectorOp::sqrt;
            CHECK((halfway == 0) == never_halfway);
            if (f.fraction_bits >= 3) CHECK(near == cases.size());
            if (!never_halfway) CHECK(halfway >= 200);
        }
    }
}

TEST_CASE("ties of conversions lie halfway; a conversion that is always exact has none") {
    for (const auto& [from, to] : {std::pair("fp32", "e4m3"), std::pair("fp32", "bf16"), std::pair("bf16", "e8m0"),
                                   std::pair("fp16", "e2m1"), std::pair("e4m3", "e5m2"), std::pair("fp16", "bf16")}) {
        const cf::Question q{
            .op = VectorOp::convert, .format = format(from), .to = format(to), .kinds = {cf::Kind::ties}, .count = 300};
        const cf::Cases cases = cf::make_cases(q);
        const Facts& f = oracle::find(to);
        std::uint64_t halfway = 0;
        for (std::size_t i = 0; i < cases.size(); ++i) {
            const oracle::Number x = exact_result(q, cases.operands_at(i));
            REQUIRE(x.kind == oracle::Class::finite);
            const int place = eighths(x, oracle::magnitude(f, oracle::index_below(f, x)));
            CHECK(place > 0);
            halfway += place == middle ? 1 : 0;
        }
        CHECK(halfway >= 100);
        CHECK(halfway <=
              (std::string_view(from) == "e4m3" ? 300 : 100)); // E4M3 has one bit more than E5M2: no neighbours
    }
    CHECK(cf::kinds_of({.op = VectorOp::convert, .format = format("e2m1"), .to = format("fp16")}).size() == 2);
    amp_format.check_error("vectors e2m1 convert --to fp16 --kinds ties", 2,
                           {"no cases of the kind ties", "edges, random"});
}

TEST_CASE("exact arithmetic equals the oracle, which shares no code with it") {
    for (const Facts& f : oracle::facts) {
        if (!f.has_zero) continue;
        Tally tally;
        for (std::uint64_t i = 0; i < 6000; i += inputs_a_sample) {
            Policy policy = policy_at(mix(i));
            if (policy.rounding == Rounding::stochastic) policy.rounding = Rounding::to_odd;
            const FormatSpec spec = format(f.name);
            const auto codes = hard_operands(spec, i);
            for (const auto& [op, known] : oracle_ops()) {
                const exact::Result got = exact::apply(spec, policy, op, {codes[0], codes[1], codes[2]});
                const oracle::Outcome want = oracle::apply({f, policy}, known, codes[0], codes[1], codes[2]);
                ++tally.cases;
                if (got.code != want.code || got.flags != want.flags) ++tally.mismatches;
            }
        }
        report(fmt::format("exact arithmetic of {}", f.name), tally);
    }
}

TEST_CASE("every operation: written files are read back as they were, and each case agrees") {
    const Scratch scratch;
    std::vector<std::string> questions;
    std::size_t formats = 0; // seven, and 14 operations: under sanitizers each of them in one format
    for (const char* name : {"fp32", "tf32", "fp16", "e4m3", "e5m2fnuz", "e2m1", "e6m9"}) {
        std::size_t number = formats++;
        for (const auto& op : cf::testfloat_operations())
            if (is_due(number++)) questions.push_back(fmt::format("{} {}", name, op.name));
    }
    for (const char* end : {"fp32 convert --to e4m3 --overflow saturate_all",
                            "bf16 convert --to e8m0 --rounding up",
                            "e8m0 convert --to tf32",
                            "fp16 fma --rounding to_odd --flush-subnormals",
                            "fp16 mul --profile vcvtneps2bf16 --tininess before",
                            "bf16 roundToInt --exact",
                            "int8 mul",
                            "fp16 convert --to int4",
                            "e4m3 dot --accumulate hopper-wgmma-fp8 --b e5m2",
                            "fp16 dot --accumulate volta-fp16-acc16",
                            "fp32 dot --accumulate ampere-tf32 --k 9",
                            "e5m2 dot --accumulate hopper-mma-fp8 --k 37",
                            "e2m1 dot --accumulate blackwell-fp8 --b e3m2",
                            "bf16 dot --accumulate kahan --k 5",
                            "fp16 dot --accumulate pairwise --k 7",
                            "fp32 dot --accumulate exact",
                            "tf32 dot --accumulate bf16",
                            "e4m3 dot --accumulate hopper-wgmma-fp8-promote64 --k 150",
                            "e2m1 dot --accumulate blackwell-mxf4nvf4 --scale e4m3",
                            "e2m1 dot --accumulate blackwell-mxf4nvf4-promote64 --scale e8m0 --block 32 --k 150",
                            "e4m3 dot --accumulate blackwell-fp8 --b e2m1 --scale e8m0 --k 100",
                            "e5m2 dot --accumulate blackwell-fp8-acc16-split3cyclic --scale e8m0 --k 400",
                            "e4m3 dot --accumulate hopper-wgmma-fp8 --scale fp32 --block 128 --k 300",
                            "e4m3 dot --accumulate hopper-wgmma-fp8-acc16 --scale e8m0 --block 32",
                            "int4 dot --accumulate int32 --scale bf16 --block 32",
                            "bf16 dot --accumulate fp16 --scale e5m2 --block 1 --k 5"})
        questions.emplace_back(end);
    std::string files;
    for (std::size_t i = 0; i < questions.size(); ++i) {
        const std::string arguments = fmt::format("{} --n 200 --seed {}", questions[i], i);
        const std::string text = file_of(scratch, fmt::format("{}.txt", i), arguments);
        const std::string npz = file_of(scratch, fmt::format("{}.npz", i), arguments);
        const cf::CaseFile a = cf::read_cases(text), b = cf::read_cases(npz);
        CAPTURE(arguments);
        CHECK(a.cases.size() == 200);
        CHECK(a.cases.operands == b.cases.operands);
        CHECK(a.cases.results == b.cases.results);
        CHECK(a.cases.flags == b.cases.flags);
        CHECK(cf::header_of(a.cases.question).substr(0, 60) == cf::header_of(b.cases.question).substr(0, 60));
        files += " " + text + " " + npz;
    }
    const Outcome o = crosscheck("vectors --json" + files);
    CHECK_MESSAGE(o.code == 0, o.err);
    const nlohmann::json json = nlohmann::json::parse(o.out)["cases"];
    REQUIRE(json.size() == 2 * questions.size());
    for (const auto& file : json) {
        CHECK(file["cases"] == 200);
        CHECK_MESSAGE(file["mismatches"] == 0, file.dump());
    }
}

TEST_CASE("a flipped bit is found and named") {
    const Scratch scratch;
    const std::string arguments = "e4m3 dot --accumulate hopper-wgmma-fp8 --k 8 --n 50";
    for (const std::string& question : {std::string("fp16 mulAdd --n 50"), arguments}) {
        const std::string path = file_of(scratch, "cases.txt", question);
        std::vector<std::string> lines = lines_of(read_file(path));
        const std::size_t at = lines.size() - 20,
                          result = lines[at].find_last_not_of("0123456789ABCDEF", lines[at].size() - 4);
        lines[at][result + 1] = lines[at][result + 1] == '8' ? '0' : '8';
        std::string text;
        for (const std::string& line : lines) text += line + "\n";
        const Outcome o = crosscheck("vectors " + write_file(path, text).string());
        CHECK(o.code == 3);
        CHECK(contains(o.out, fmt::format("cases.txt, line {}: has ", at + 1)));
        CHECK(crosscheck("vectors --json " + path).code == 3);
    }
    const std::string path = file_of(scratch, "cases.txt", "fp16 add --n 50");
    std::string text = read_file(path);
    text[text.size() - 2] = text[text.size() - 2] == '0' ? '1' : '0'; // the flags of the last line
    CHECK(contains(crosscheck("vectors " + write_file(path, text).string()).out, "line 61: has"));

    cf::Cases cases = cf::make_cases({.op = VectorOp::div, .format = format("bf16"), .count = 40});
    cases.results[17] ^= 0x80;
    const std::string npz = write_file(scratch / "x.npz", cf::npz_of("x.npz", cases)).string();
    const Outcome o = crosscheck("vectors " + npz);
    CHECK(o.code == 3);
    CHECK(contains(o.out, "x.npz, case 17: has "));
}

TEST_CASE("the same command gives the same bytes, another seed others; kinds share the cases") {
    const Scratch scratch;
    for (const std::string& question : {std::string("e4m3 add"), std::string("fp16 dot --accumulate hopper-fp16")}) {
        const std::string first = amp_format("vectors " + question + " --n 500 --seed 5").out;
        CHECK(first ==
              run_command("taskset -c 0 " + amp_format.path + " vectors " + question + " --n 500 --seed 5").out);
        CHECK(first == read_file(file_of(scratch, "a.txt", question + " --n 500 --seed 5")));
        CHECK(first != amp_format("vectors " + question + " --n 500 --seed 6").out);
    }
    const auto hash = [](const std::string& question) { // FNV-1a
        std::uint64_t h = 0xcbf29ce484222325;
        for (const char c : amp_format("vectors " + question).out)
            h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
        return h;
    };
    // Pinned: whoever changes how cases are made changes what others have recorded, and a new layout number says so.
    CHECK(hash("fp16 fma --n 3000 --seed 7") == 8292789249338657605);
    CHECK(hash("e4m3 dot --accumulate hopper-wgmma-fp8 --b e5m2 --n 300") == 17057761708103773407U);
    CHECK(hash("e2m1 dot --accumulate blackwell-mxf4nvf4 --scale e4m3 --n 300") == 9314552164224514504U);
    const std::vector<std::string> lines = lines_of(amp_format("vectors fp16 fma --n 6 --seed 1").out);
    REQUIRE(lines.size() == 17);
    CHECK(contains(lines[8], "kinds: edges 2, random 2, ties 2"));
    const cf::Cases few = cf::make_cases({.op = VectorOp::add, .format = format("e4m3"), .count = 10});
    CHECK(cf::counts_of(few.question) == std::vector<std::uint64_t>{4, 3, 3});
}

TEST_CASE("edges of small formats come in all pairs; NaN, infinities and both zeros are among them") {
    const cf::Cases cases =
        cf::make_cases({.op = VectorOp::add, .format = format("e2m1"), .kinds = {cf::Kind::edges}, .count = 300});
    std::map<std::pair<std::uint32_t, std::uint32_t>, int> pairs;
    for (std::size_t i = 0; i < cases.size(); ++i) ++pairs[{cases.operands_at(i)[0], cases.operands_at(i)[1]}];
    CHECK(pairs.size() == 256);
    std::map<std::uint32_t, int> codes;
    for (const std::uint32_t code :
         cf::make_cases({.op = VectorOp::mul, .format = format("fp16"), .kinds = {cf::Kind::edges}, .count = 5000})
             .operands)
        ++codes[code];
    for (const std::uint32_t code :
         std::initializer_list<std::uint32_t>{0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00,
                                              0x7c01, 0x7e00, 0x7fff, 0x3c00, 0x3bff, 0x3c01, 0xbc00})
        CHECK_MESSAGE(codes[code] > 0, code);
}

TEST_CASE("kinds of dot products are what they are called") {
    cf::Question q{
        .op = VectorOp::dot, .format = format("fp16"), .sum = accumulator("hopper-fp16"), .k = 32, .count = 200};
    const auto made = [&](cf::Kind kind) {
        q.kinds = {kind};
        return cf::make_cases(q);
    };
    const cf::Cases specials = made(cf::Kind::specials), cancel = made(cf::Kind::cancel),
                    large = made(cf::Kind::one_large);
    std::map<std::uint32_t, int> results;
    for (const std::uint32_t code : specials.results) ++results[code];
    for (const std::uint32_t code : {0x7fffffffU, 0x7f800000U, 0xff800000U, 0U}) CHECK_MESSAGE(results[code] > 0, code);
    std::size_t cancelled = 0;
    for (std::size_t i = 0; i < cancel.size(); ++i) {
        const auto x = cancel.operands_at(i);
        std::map<std::pair<std::uint32_t, std::uint32_t>, int>
            terms; // magnitudes of a and b; equal ones have both signs
        for (std::size_t j = 0; j < 32; ++j) terms[{x[j] & 0x7fff, x[32 + j]}] += (x[j] & 0x8000) != 0 ? 1 : -1;
        for (const auto& [term, sign] : terms) cancelled += sign == 0 ? 1 : 0;
    }
    CHECK(cancelled > 200 * 12); // seven of eight of the 16 pairs
    std::size_t dominated = 0;
    for (std::size_t i = 0; i < large.size(); ++i) {
        std::vector<double> sizes = {std::fabs(double(decode(fp32_format(), large.operands_at(i)[64])))};
        for (std::size_t j = 0; j < 32; ++j)
            sizes.push_back(std::fabs(double(decode(q.format, large.operands_at(i)[j])) *
                                      double(decode(q.format, large.operands_at(i)[32 + j]))));
        std::ranges::sort(sizes);
        dominated += sizes[32] > 32 * sizes[30] ? 1 : 0;
    }
    CHECK(dominated > 110);
}

TEST_CASE("malformed files are named with the line, in one line") {
    const Scratch scratch;
    const std::string good = amp_format("vectors fp16 add --n 6").out;
    const auto refuses = [&](std::string text, const std::string& from, const std::string& to, std::string_view line,
                             std::string_view what) {
        const std::size_t at = text.find(from);
        REQUIRE(at != std::string::npos);
        text.replace(at, from.size(), to);
        const std::string path = write_file(scratch / "bad.txt", text).string();
        crosscheck.check_error("vectors " + path, 1, {path, line, what});
    };
    const std::string last = good.substr(good.rfind('\n', good.size() - 2) + 1);
    const auto replaced = [&](const std::string& line, std::string_view what) {
        refuses(good, last, line + "\n", "line 17: ", what);
    };
    REQUIRE(last.size() == 18);
    replaced("3C00 3C00 4000", "ends before flags");
    replaced("3C00 3C00 4000 00 00", "more words than");
    replaced("3C00 3C0 4000 00", "b: expected 4 hexadecimal digits, got '3C0'");
    replaced("3C00 3C00 40G0 00", "result: expected 4");
    replaced("3C00 3C00 4000 20", "flags: 20 has more than five bits");
    refuses(good, "vectors 1", "vectors 2", "line 1: ", "expected 'ampscope vectors 1'");
    refuses(good, "format: fp16", "format: fp17", "line 3: ", "unknown format 'fp17'");
    refuses(good, "operation: add", "operation: plus", "line 2: ", "unknown operation 'plus'; known: add, sub");
    refuses(good, "# rounding: nearest_even\n", "", "line 10: ", "lacks the key rounding");
    refuses(good, "rounding: nearest_even", "rounding: stochastic", "line 5: ", "unknown rounding");
    refuses(good, "seed: 0", "sead: 0", "line 10: ", "unknown key 'sead'");
    refuses(good, "seed: 0", "seed: zero", "line 10: ", "no whole number");
    refuses(good, "seed: 0", "k: 5\n# seed: 0", "line 12: ", "has the key k, which add does not have");
    refuses(good, "a b result", "a result", "line 11: ", "expected columns: a b result flags");
    refuses(good, "# columns: a b result flags\n", "", "line 11: ", "before the header has named its columns");
    refuses(good.substr(0, good.find("flags\n") + 6), "fp16", "fp16", "", "has no cases");
    const std::string tf32 = amp_format("vectors tf32 sqrt --n 1").out, e3m2 = amp_format("vectors e3m2 add --n 1").out;
    refuses(tf32, lines_of(tf32).back(), "00000001 00000000 00", "line 12: ", "a: 00000001 is no code of tf32");
    refuses(e3m2, lines_of(e3m2).back(), "3F 40 00 00", "line 12: ", "b: 40 is no code of e3m2");
    const std::string eq = amp_format("vectors fp16 eq --n 1").out;
    refuses(eq, lines_of(eq).back(), "3C00 3C00 2 00", "line 12: ", "result: 2 is no 0 or 1");
    crosscheck.check_error("vectors " + (scratch / "gone.txt").string(), 1, {"gone.txt"});
    crosscheck.check_error("vectors ./x.txt --a e5m2", 2, {"--a goes with a row"});

    std::vector<NpzArray> arrays = {
        {.entry = {.name = "a", .dtype = DType::u8, .shape = {2}}, .bytes = std::vector<std::byte>(2)}};
    std::string path = write_file(scratch / "bad.npz", npz_archive("bad.npz", arrays)).string();
    crosscheck.check_error("vectors " + path, 1, {path, "lacks the array header"});
    const std::string header = cf::header_of({.op = VectorOp::sqrt, .format = format("e4m3")});
    arrays.push_back({.entry = {.name = "header", .dtype = DType::u8, .shape = {header.size()}}});
    for (const char c : header) arrays.back().bytes.push_back(std::byte(c));
    write_file(path, npz_archive("bad.npz", arrays));
    crosscheck.check_error("vectors " + path, 1, {path, "lacks the array result"});
    arrays.push_back(
        {.entry = {.name = "result", .dtype = DType::u8, .shape = {3}}, .bytes = std::vector<std::byte>(3)});
    write_file(path, npz_archive("bad.npz", arrays));
    crosscheck.check_error("vectors " + path, 1, {path, "result: expected"});
}

TEST_CASE("words that mean nothing") {
    const auto wrong = [](const std::string& arguments, std::string_view what) {
        amp_format.check_error("vectors " + arguments, 2, {what});
    };
    wrong("fp16", "OP");
    wrong("fp17 add", "unknown format 'fp17'");
    wrong("fp16 plus", "unknown operation 'plus'; known: add");
    wrong("e8m0 add", "can only be converted");
    wrong("fp16 convert", "--to");
    wrong("fp16 add --to bf16", "--to changes nothing");
    wrong("fp16 add --k 4", "--k changes nothing");
    wrong("fp16 add --exact", "--exact changes nothing");
    wrong("fp16 add --rounding stochastic", "stochastic");
    wrong("fp16 add --kinds specials", "no cases of the kind specials");
    wrong("fp16 rem --kinds ties", "no cases of the kind ties");
    wrong("fp16 add --kinds some", "some");
    wrong("fp16 add --n 0", "--n");
    wrong("fp16 dot", "--accumulate");
    wrong("fp16 dot --accumulate hopper-fp16 --rounding up", "--rounding changes nothing for dot");
    wrong("fp16 dot --accumulate hopper-wgmma-fp8", "takes e4m3 e5m2, not fp16");
    wrong("e4m3 dot --accumulate hopper-wgmma-fp8 --k 1000 --n 1000000", "too many");
    wrong("fp16 dot --accumulate no-such-row", "unknown accumulator");
}
