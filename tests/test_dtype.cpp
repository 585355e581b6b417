// The dtype table: names in four systems, and facts that must agree with the table of formats.
#include <ampscope/sim/io/dtype.h>

#include <doctest/doctest.h>

#include <set>
#include <stdexcept>
#include <string>

using namespace amp;

TEST_CASE("every name of a dtype finds it") {
    for (const DTypeInfo& row : dtypes) {
        CAPTURE(row.name);
        CHECK(parse_dtype(row.name) == row.dtype);
        std::string lower(row.name);
        for (char& c : lower) c = static_cast<char>(std::tolower(c));
        CHECK(parse_dtype(lower) == row.dtype);
        if (!row.torch.empty()) CHECK(parse_dtype(row.torch) == row.dtype);
        if (!row.numpy.empty()) CHECK(parse_dtype("<" + std::string(row.numpy)) == row.dtype);
        if (row.kind == NumberKind::format) CHECK(parse_dtype(row.format) == row.dtype);
    }
    CHECK(parse_dtype("f4") == DType::f4);
    CHECK(parse_dtype("<f4") == DType::f32);
    CHECK(parse_dtype("|i8") == DType::i64);
    CHECK(parse_dtype("i8") == DType::i8);
    CHECK(parse_dtype("fp32") == DType::f32);
}

TEST_CASE("other names are refused") {
    for (const char* name :
         {"", "<", "|", "f3", "F128", "<f16", ">f4", "<V2", "object", "fp64x", " F32", "F32 ", "e9m9"}) {
        CAPTURE(name);
        CHECK_THROWS_AS(parse_dtype(name), std::invalid_argument);
    }
}

TEST_CASE("the 22 dtypes of safetensors, with the sizes of its document") {
    const std::set<std::string_view> names{"BOOL",    "F4",      "F6_E2M3", "F6_E3M2",     "U8",          "I8",
                                           "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",
                                           "U16",     "F16",     "BF16",    "I32",         "U32",         "F32",
                                           "C64",     "F64",     "I64",     "U64"};
    std::set<std::string_view> ours;
    for (const DTypeInfo& row : dtypes) {
        CAPTURE(row.name);
        ours.insert(row.name);
        const std::string digits(row.name.substr(row.name.find_first_of("0123456789") == std::string_view::npos
                                                     ? row.name.size()
                                                     : row.name.find_first_of("0123456789")));
        CHECK(row.bits == (row.name == "BOOL" ? 8 : std::stoi(digits)));
        CHECK(row.unit_bytes() * 8 % row.bits == 0);
        CHECK(&info(row.dtype) == &row);
        if (row.kind != NumberKind::format) continue;
        const FormatSpec spec = format(row.format);
        CHECK(spec.exponent_bits + spec.fraction_bits + (spec.is_signed ? 1 : 0) == row.bits);
    }
    CHECK(ours == names);
    CHECK(info(DType::c64).numbers() == 2);
    CHECK(info(DType::f64).numbers() == 1);
}
