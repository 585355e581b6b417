#include <ampscope/formats/codec.h>

#include <doctest/doctest.h>

using namespace amp;

TEST_CASE("published limits") {
    CHECK(decode(format("e4m3"), format("e4m3").max_code()) == 448.0f);
    CHECK(decode(format("fp16"), format("fp16").max_code()) == 65504.0f);
    CHECK(quantize(format("e4m3"), 464.0f) == 448.0f); // the tie goes to even
}
