// Test vectors of dot products whose operands have scales. That exact arithmetic agrees is in test_vectors.cpp.
#include "tool.h"

#include <ampscope/sim/analysis/conformance/case_file.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

namespace cf = amp::conformance;

const Tool format_tool{AMP_FORMAT}, check_tool{AMP_CROSSCHECK};

} // namespace

TEST_CASE("scales of dot products are their kind's; the addend keeps the size of the products") {
    cf::Question q{.op = cf::Op::dot,
                   .format = format("e2m1"),
                   .sum = accumulator("blackwell-mxf4nvf4"),
                   .scales = cf::DotScales{.format = format("e4m3"), .block = 16},
                   .count = 400};
    const auto column = [](const cf::Cases& cases, std::size_t i, std::size_t scale) {
        return decode(format("e4m3"), cases.operands_at(i)[128 + scale]); // four of a, then four of b
    };
    const auto made = [&](cf::Kind kind) {
        q.kinds = {kind};
        return cf::make_cases(q);
    };
    const cf::Cases cancel = made(cf::Kind::cancel), specials = made(cf::Kind::specials), edges = made(cf::Kind::edges);
    int nan = 0, nan_results = 0, zeros = 0, negative = 0, cancelled = 0;
    for (std::size_t i = 0; i < q.count; ++i) {
        bool has_nan = false;
        for (std::size_t s = 0; s < 8; ++s) {
            CHECK(column(cancel, i, s) == column(cancel, i, s / 4 * 4));
            has_nan = has_nan || std::isnan(column(specials, i, s));
            zeros += column(specials, i, s) == 0 ? 1 : 0;
            negative += column(edges, i, s) < 0 ? 1 : 0;
            CHECK(std::isfinite(column(edges, i, s)));
        }
        nan += has_nan ? 1 : 0;
        nan_results += has_nan && specials.results[i] == 0x7fffffff ? 1 : 0;
        cancelled += std::fabs(decode(fp32_format(), cancel.results[i])) <= // but for the addend and what was moved
                             std::fabs(decode(fp32_format(), cancel.operands_at(i)[136])) +
                                 32 * column(cancel, i, 0) * column(cancel, i, 4)
                         ? 1
                         : 0;
    }
    CHECK(nan > 20);
    CHECK(nan_results == nan);
    CHECK(zeros > 20);
    CHECK(negative > 1000); // hardware ignores the sign
    CHECK(cancelled > 390);
    // Where the row does not apply the scales, c and the result are in FP32.
    q.sum = accumulator("hopper-wgmma-fp8-acc16");
    q.format = format("e4m3");
    CHECK(cf::total_of(q) == fp32_format());
    q.scales.reset();
    CHECK(cf::total_of(q) == format("fp16"));
}

TEST_CASE("headers of scaled dot products that do not fit are named with the line") {
    const Scratch scratch;
    const auto refuses = [&](std::string text, const std::string& from, const std::string& to, std::string_view line,
                             std::string_view what) {
        const std::size_t at = text.find(from);
        REQUIRE(at != std::string::npos);
        text.replace(at, from.size(), to);
        const std::string path = write_file(scratch / "bad.txt", text).string();
        check_tool.check_error("vectors " + path, 1, {path, line, what});
    };
    const std::string plain = format_tool("vectors fp16 add --n 6").out,
                      scaled =
                          format_tool("vectors e2m1 dot --accumulate blackwell-mxf4nvf4 --scale e4m3 --k 32 --n 1").out;
    refuses(scaled, "scale: e4m3", "scale: e5m99", "line 7: ", "format 'e5m99' is out of range");
    refuses(scaled, "block: 16", "block: 0", "line 11: ", "[dot] block: expected the number of");
    refuses(scaled, "# block: 16\n", "", "line 10: ", "[dot] block: expected the number of");
    refuses(scaled, "# scale: e4m3\n", "", "line 10: ", "lacks the key scale");
    refuses(scaled, "2*a_scale", "a_scale", "line 11: ", "expected columns: 32*a 32*b 2*a_scale 2*b_scale c result");
    refuses(plain, "seed: 0", "scale: e4m3\n# seed: 0", "line 12: ", "has the key scale, which add does not have");
}

TEST_CASE("files of long dot products are read back") {
    const Scratch scratch;
    const std::string path = (scratch / "long.txt").string();
    const std::string arguments =
        "vectors e2m1 dot --accumulate blackwell-mxf4nvf4 --scale e4m3 --k 20000 --n 3 --out ";
    CHECK(format_tool(arguments + path).code == 0);
    const Outcome o = check_tool("vectors " + path);
    CHECK_MESSAGE(o.code == 0, o.err);
}

TEST_CASE("options of scales that mean nothing") {
    const auto wrong = [](const std::string& arguments, std::string_view what) {
        format_tool.check_error("vectors " + arguments, 2, {what});
    };
    wrong("fp16 add --scale e8m0", "--scale changes nothing for add");
    wrong("fp16 dot --accumulate hopper-fp16 --block 32", "--block changes nothing for dot without --scale");
    wrong("fp16 dot --accumulate hopper-fp16 --scale e8m0", "--block");
    wrong("e2m1 dot --accumulate blackwell-mxf4nvf4 --scale binary10p1se", "binary10p1se");
}
