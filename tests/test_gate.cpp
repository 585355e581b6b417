// Gates: their meaning, and that the message for each mistake shows its place.
#include <ampscope/sim/analysis/gate.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace amp;

TEST_CASE("the gate of the manual, and its defaults") {
    const Gate full = parse_gate("fp16@2^10.underflow/nonzero<0.5%");
    CHECK(full.format == "fp16");
    CHECK(full.scale == 1024);
    CHECK(full.number_class == NumberClass::underflow);
    CHECK(full.denominator == Denominator::nonzero);
    CHECK_FALSE(full.or_equal);
    CHECK(full.limit_digits == 5);
    CHECK(full.limit_decimals == 3);

    const Gate brief = parse_gate("e4m3.overflow<=0.001");
    CHECK(brief.scale == 1);
    CHECK(brief.denominator == Denominator::nonzero);
    CHECK(brief.or_equal);
    CHECK(parse_gate("bf16.nan<1%").denominator == Denominator::all);
    CHECK(parse_gate("bf16.subnormal/all<1%").denominator == Denominator::all);
}

TEST_CASE("scales of every spelling") {
    CHECK(parse_gate("fp16@2^-3.underflow<1%").scale == 0.125);
    CHECK(parse_gate("fp16@3.5.underflow<1%").scale == 3.5);
    CHECK(parse_gate("fp16@1024.underflow<0.1%").scale == 1024);
    CHECK(parse_gate(" e6m9 @ 2^4 . overflow / all <= 1 % ").format == "e6m9");
    CHECK(parse_scale("1e3") == 1000);
    for (const char* bad :
         {"", "0", "-1", "nan", "inf", "2^", "2^x", "2^1.5", "2^1001", "2^-2147483648", "3.5x", "1e999", "2^+"})
        CHECK_THROWS_AS(parse_scale(bad), std::invalid_argument);
}

TEST_CASE("an integer without % and / counts elements") {
    const Gate count = parse_gate("fp16.overflow<=3");
    CHECK(count.denominator == Denominator::none);
    CHECK(holds(count, 3, 10));
    CHECK_FALSE(holds(count, 4, 1'000'000));
    CHECK(parse_gate("fp16.overflow/all<=1").denominator == Denominator::all);
    CHECK(parse_gate("fp16.overflow<=1%").denominator == Denominator::nonzero);
    CHECK(parse_gate("fp16.overflow<0.5").denominator == Denominator::nonzero);
}

TEST_CASE("limits are compared exactly") {
    const Gate below = parse_gate("fp16.underflow<0.1%"), up_to = parse_gate("fp16.underflow<=0.1%");
    CHECK_FALSE(holds(below, 1, 1000));
    CHECK(holds(up_to, 1, 1000));
    CHECK_FALSE(holds(up_to, 1, 999));
    CHECK(holds(below, 1, 1001));
    // 0.3 is not a double: 3e18 of 1e19 is exactly the limit, one more exceeds it.
    const Gate third = parse_gate("fp16.underflow<=0.3");
    CHECK(holds(third, 3'000'000'000'000'000'000, 10'000'000'000'000'000'000U));
    CHECK_FALSE(holds(third, 3'000'000'000'000'000'001, 10'000'000'000'000'000'000U));
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    CHECK_FALSE(holds(parse_gate("fp16.underflow<99.9999999999999%"), most, most));
    CHECK(holds(parse_gate("fp16.underflow<=100%"), most, most));
}

TEST_CASE("a share of no elements does not hold, a number of elements may") {
    CHECK_FALSE(holds(parse_gate("fp16.underflow<0.1%"), 0, 0));
    CHECK_FALSE(holds(parse_gate("fp16.nan<=100%"), 0, 0));
    CHECK(holds(parse_gate("fp16.overflow<1"), 0, 0));
}

TEST_CASE("expectations are compared as they are") {
    const Gate half = parse_gate("fp16.underflow<=0.5%"), one = parse_gate("fp16.underflow<1");
    CHECK(holds(half, 0, 100, 0.5));
    CHECK_FALSE(holds(half, 0, 100, 0.5 + 0x1p-32));
    CHECK(holds(half, 0, 100, 0.5 - 0x1p-32));
    CHECK_FALSE(holds(parse_gate("fp16.underflow<0.5%"), 0, 100, 0.5));
    CHECK_FALSE(holds(half, 1, 200, 0.4)); // rounded to an integer it would be 1
    CHECK(holds(one, 0, 5, 1 - 0x1p-40));
    CHECK_FALSE(holds(one, 1, 5));
    CHECK_FALSE(holds(parse_gate("fp16.underflow<=0"), 0, 5, 0x1p-100));
    CHECK(holds(parse_gate("fp16.underflow<=0"), 0, 5));
}

namespace {
/// The place that the message of a bad gate names.
std::size_t marked(const std::string& text) {
    try {
        parse_gate(text);
    } catch (const GateError& error) {
        const std::string message = error.what();
        const std::string before = "gate '" + text + "', character ";
        REQUIRE(message.starts_with(before));
        CHECK(message.find('\n') == std::string::npos);
        return std::stoul(message.substr(before.size())) - 1;
    }
    FAIL("accepted: " << text);
    return 0;
}
} // namespace

TEST_CASE("a malformed gate shows the position") {
    CHECK(marked("") == 0);
    CHECK(marked("fp17.underflow<1%") == 0);
    CHECK(marked("e8m0.underflow<1%") == 0);
    CHECK(marked("fp16") == 4);
    CHECK(marked("fp16underflow<1%") == 0);
    CHECK(marked("fp16@2^x.underflow<1%") == 5);
    CHECK(marked("fp16@.underflow<1%") == 5);
    CHECK(marked("fp16@2^3<1%") == 5);
    CHECK(marked("fp16.under<1%") == 5);
    CHECK(marked("fp16.underflow/some<1%") == 15);
    CHECK(marked("fp16.zero/nonzero<1%") == 10);
    CHECK(marked("fp16.underflow>1%") == 14);
    CHECK(marked("fp16.overflow=0") == 13);
    CHECK(marked("fp16.underflow =1%") == 15);
    CHECK(marked("fp16.underflow<") == 15);
    CHECK(marked("fp16.underflow<.") == 15);
    CHECK(marked("fp16.underflow<x") == 15);
    CHECK(marked("fp16.underflow<-1") == 15);
    CHECK(marked("fp16.underflow<1%%") == 17);
    CHECK(marked("fp16.underflow<1 2") == 17);
    CHECK(marked("fp16.underflow<0.12345678901234567") == 33);
    CHECK(marked("fp16.underflow<1.5") == 15); // 1.5% was meant: every share is below 1.5
    CHECK(marked("fp16.underflow/all<2") == 19);
    CHECK(marked("fp16.underflow<100.1%") == 15);
    for (const char* most : {"fp16.underflow<1.0", "fp16.underflow<100.0%", "fp16.underflow/all<=1"}) parse_gate(most);
}
