// spec.h: the published limits of every format as literals, the names, and use at compile time.
#include <ampscope/formats/block.h>
#include <ampscope/sim/program/model.h>
#include <ampscope/sim/program/precision.h>

#include <doctest/doctest.h>

#include <cctype>
#include <cmath>
#include <set>
#include <string>
#include <tuple>

using namespace amp;

namespace {

struct Limits {
    const char* name;
    int bits, precision;
    double max, min_normal, min_subnormal;
    bool infinity, nan, negative_zero;
};

// IEEE 754-2019 table 3.5; NVIDIA A100 whitepaper; Intel 338302-001; OCP OFP8 1.0 table 2; OCP MX 1.0 section 5.3;
// Noune et al. table 1; ml_dtypes' documentation of float8_e4m3b11fnuz; OCP MX 1.0 section 5.3.4 for MXINT8. E8M0 and
// integers: no subnormals, so the smallest value twice.
constexpr Limits published[] = {
    {"fp32", 32, 24, 3.4028234663852886e38, 1.1754943508222875e-38, 1.401298464324817e-45, true, true, true},
    {"tf32", 19, 11, 3.4011621342146535e38, 1.1754943508222875e-38, 1.1479437019748901e-41, true, true, true},
    {"fp16", 16, 11, 65504, 6.103515625e-05, 5.960464477539063e-08, true, true, true},
    {"bf16", 16, 8, 3.3895313892515355e38, 1.1754943508222875e-38, 9.183549615799121e-41, true, true, true},
    {"e4m3", 8, 4, 448, 0.015625, 0.001953125, false, true, true},
    {"e5m2", 8, 3, 57344, 6.103515625e-05, 1.52587890625e-05, true, true, true},
    {"e4m3fnuz", 8, 4, 240, 0.0078125, 0.0009765625, false, true, false},
    {"e5m2fnuz", 8, 3, 57344, 3.0517578125e-05, 7.62939453125e-06, false, true, false},
    {"e4m3b11fnuz", 8, 4, 30, 0.0009765625, 0.0001220703125, false, true, false},
    {"e3m2", 6, 3, 28, 0.25, 0.0625, false, false, true},
    {"e2m3", 6, 4, 7.5, 1, 0.125, false, false, true},
    {"e2m1", 4, 2, 6, 1, 0.5, false, false, true},
    {"e8m0", 8, 1, 1.7014118346046923e38, 5.877471754111438e-39, 5.877471754111438e-39, false, true, false},
    {"int8", 8, 7, 127, 1, 1, false, false, false},
    {"int4", 4, 3, 7, 1, 1, false, false, false},
    {"mxint8", 8, 7, 1.984375, 0.015625, 0.015625, false, false, false},
    {"e0m3", 4, 3, 7, 1, 1, false, false, true},
};

bool throws(std::string_view name) {
    try {
        (void)format(name);
    } catch (const std::invalid_argument& e) {
        return std::string_view(e.what()).find(name) != std::string_view::npos;
    }
    return false;
}

std::string message(std::string_view name) {
    try {
        (void)format(name);
    } catch (const std::invalid_argument& e) {
        return e.what();
    }
    return "";
}

} // namespace

TEST_CASE("published limits") {
    CHECK(std::size(published) == formats.size());
    for (const Limits& want : published) {
        CAPTURE(want.name);
        const FormatSpec f = format(want.name);
        CHECK(f.bits() == want.bits);
        CHECK(f.precision() == want.precision);
        CHECK(double{decode(f, f.max_code())} == want.max);
        CHECK(double{decode(f, f.min_normal_code())} == want.min_normal);
        CHECK(double{decode(f, f.has_zero ? 1 : 0)} == want.min_subnormal);
        CHECK(std::ldexp(1.0, f.min_exponent()) == want.min_normal);
        CHECK(std::ldexp(1.0, f.min_subnormal_exponent()) == want.min_subnormal);
        CHECK(std::ilogb(want.max) == f.max_exponent());
        CHECK(f.has_infinity() == want.infinity);
        CHECK(f.has_nan() == want.nan);
        CHECK(f.has_negative_zero() == want.negative_zero);
        CHECK(f.is_scale() == (f.name == std::string_view("e8m0")));
    }
}

TEST_CASE("integers: the ends of two's complement, whole and symmetric") {
    const auto end = [](const char* name, double x) { return double{quantize(format(name), x)}; };
    CHECK(end("int8", -1000) == -128);
    CHECK(end("int8sym", -1000) == -127);
    CHECK(end("int4", -1000) == -8);
    CHECK(end("int4sym", -1000) == -7);
    CHECK(end("mxint8", -1000) == -2);
    CHECK(end("mxint8sym", -1000) == -1.984375);
    CHECK(end("e0m3", -1000) == -7);
    CHECK(end("int8", 2.5) == 2);
    CHECK(end("int8", 3.5) == 4);
    CHECK(encode(format("int8"), -1.0) == 0xff);
    CHECK(encode(format("int8"), -128.0) == 0x80);
    CHECK(encode(format("int8sym"), -128.0) == 0x81);
    CHECK(decode(format("int8sym"), 0x80) == -128); // read, but never stored
    CHECK(encode(format("mxint8"), -2.0) == 0x80);
    CHECK(encode(format("e0m3"), -1.0) == 0x9);
    CHECK(std::string(format("INT8Sym").name) == "int8sym");
    for (const char* name : {"int8", "int8sym", "int4", "e0m3"}) {
        const FormatSpec f = format(name);
        CHECK(f.is_integer());
        CHECK(f.min_normal_code() == 1); // no integer is subnormal
        Flags flags;
        CHECK(encode(f, 0.25, {.subnormals = Subnormals::flush}, 0, flags) == 0);
        CHECK(flags.bits == Flags::inexact); // and none underflows
        CHECK(encode(f, 1.0, {.subnormals = Subnormals::flush}) == 1);
    }
    CHECK(throws("e0m3sym"));
    CHECK(throws("int16"));
}

TEST_CASE("published codes") {
    const auto code = [](const char* name, double x) { return encode(format(name), x); };
    CHECK(code("fp32", 1.0) == 0x3f800000);
    CHECK(code("fp16", 1.0) == 0x3c00);
    CHECK(code("bf16", 1.0) == 0x3f80);
    CHECK(code("tf32", 1.0) == 0x1fc00);
    CHECK(code("e4m3", 1.0) == 0x38);
    CHECK(code("e5m2", 1.0) == 0x3c);
    CHECK(code("e4m3fnuz", 1.0) == 0x40);
    CHECK(code("e5m2fnuz", 1.0) == 0x40);
    CHECK(code("e4m3b11fnuz", 1.0) == 0x58);
    CHECK(code("e3m2", 1.0) == 0x0c);
    CHECK(code("e2m3", 1.0) == 0x08);
    CHECK(code("e2m1", 1.0) == 0x2);
    CHECK(code("e8m0", 1.0) == 0x7f);
    CHECK(format("fp32").nan_code() == 0x7fc00000);
    CHECK(format("fp16").nan_code() == 0x7e00);
    CHECK(format("bf16").nan_code() == 0x7fc0);
    CHECK(format("e4m3").nan_code() == 0x7f);
    CHECK(format("e5m2").nan_code() == 0x7e);
    CHECK(format("e4m3fnuz").nan_code() == 0x80);
    CHECK(format("e8m0").nan_code() == 0xff);
    CHECK(format("e5m2").infinity_code() == 0x7c);
}

TEST_CASE("every row is a subset of FP32 and has its own name") {
    std::set<std::string_view> names;
    for (const FormatSpec& f : formats) {
        CAPTURE(std::string(f.name));
        CHECK(names.insert(f.name).second);
        CHECK(f.bits() <= 32);
        CHECK(f.precision() <= 24);
        CHECK(f.max_exponent() <= 127);
        CHECK(f.min_subnormal_exponent() >= -149);
        CHECK(format(f.name) == f);
    }
}

TEST_CASE("names of IEEE-like formats") {
    for (int x = 2; x <= 8; ++x)
        for (int y = 1; y <= 23; ++y) {
            const std::string name = "e" + std::to_string(x) + "m" + std::to_string(y);
            CAPTURE(name);
            const FormatSpec ieee = format(name + "ieee");
            CHECK(std::string(ieee.name) == name + "ieee");
            CHECK(ieee.exponent_bits == x);
            CHECK(ieee.fraction_bits == y);
            CHECK(ieee.nonfinite == NonFinite::ieee);
            CHECK(ieee.bias() == (1 << (x - 1)) - 1);
            CHECK(std::string(format(name).name) == name); // a row of the table or the format itself
        }
    CHECK(decode(format("e4m3"), format("e4m3").max_code()) == 448.0f);
    CHECK(decode(format("e4m3ieee"), format("e4m3ieee").max_code()) == 240.0f);
}

TEST_CASE("names of others, and upper case") {
    for (const FormatSpec& f : formats) {
        std::string upper = f.name;
        for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        CHECK(format(upper) == f);
    }
    std::set<std::string_view> names;
    for (const FormatAlias& alias : format_aliases) {
        CAPTURE(alias.name);
        CHECK(names.insert(alias.name).second);
        CHECK(format(alias.name) == format(alias.format));
    }
    CHECK(std::string(format("E6M9Ieee").name) == "e6m9ieee");
    CHECK(std::string(format("Float8_E3M4").name) == "e3m4");
    static_assert(format("BFloat16") == format("bf16"));
    static_assert(format("float8_e4m3") == format("e4m3ieee"));
}

TEST_CASE("other names are errors that say why") {
    for (const char* name : {"",
                             "e",
                             "e4",
                             "m3",
                             "e4m",
                             "em3",
                             "4m3",
                             "e4m3 ",
                             " e4m3",
                             "e04m3",
                             "e4m03",
                             "e4m3x",
                             "e4m-3",
                             "e+4m3",
                             "ieee",
                             "e4m3ieeeieee",
                             "fp8",
                             "fp64",
                             "float64",
                             "float8",
                             "torch.half",
                             "e1m3",
                             "e9m3",
                             "e0m4",
                             "e4m0",
                             "e4m24",
                             "e8m0ieee",
                             "e99999999999m3",
                             "e4m99999999999",
                             "e4m3fnuzieee"}) {
        CAPTURE(name);
        CHECK(throws(name));
    }
    CHECK(message("e9m3").find("2 <= X <= 8") != std::string::npos);
    CHECK(message("e4m24").find("1 <= Y <= 23") != std::string::npos);
    CHECK(message("fp8").find("eXmY") != std::string::npos);
}

TEST_CASE("an unknown name of any table is answered with the names that there are, in one wording") {
    using Lookup = void (*)(std::string_view);
    const std::tuple<const char*, const char*, Lookup> tables[] = {
        {"format", "fp32, tf32, ", [](std::string_view name) { (void)format(name); }},
        {"profile", "ieee, ocp-saturate, ", [](std::string_view name) { (void)profile(name); }},
        {"block format", "mxfp8, mxfp8-e5m2, ", [](std::string_view name) { (void)block_format(name); }},
        {"accumulator", "volta-fp16, ", [](std::string_view name) { (void)accumulator(name); }},
        {"loss scaler", "torch, torch-sharded, ", [](std::string_view name) { (void)loss_scaler(name); }},
        {"optimizer", "sgd, adam, ", [](std::string_view name) { (void)optimizer(name); }},
        {"scaling recipe", "te-delayed, ms-amp, ", [](std::string_view name) { (void)scaling_recipe(name); }},
        {"model", "linear, mlp, ", [](std::string_view name) { (void)model(name); }},
        {"precision", "fp32, tf32, ", [](std::string_view name) { (void)precision(name); }},
        {"key of a precision", "weights, ",
         [](std::string_view name) { (void)precision(std::string(name) + "=fp16"); }},
    };
    for (const auto& [what, first, look_up] : tables) {
        const std::string begins = std::string("unknown ") + what + " 'nonesuch'; known: " + first;
        CHECK_THROWS_WITH_AS(look_up("nonesuch"), doctest::Contains(begins.c_str()), std::invalid_argument);
    }
}

TEST_CASE("enumerators have the names of their lists, in order") {
    for (std::size_t i = 0; i < rounding_names.size(); ++i) {
        const auto rounding = static_cast<Rounding>(i);
        CHECK(name_of(rounding) == rounding_names[i]);
        CHECK(parse_name<Rounding>("rounding", rounding_names, rounding_names[i]) == rounding);
    }
    CHECK(name_of(Rounding::stochastic) == "stochastic");
    CHECK(name_of(Overflow::saturate_all) == "saturate_all");
    CHECK_THROWS_WITH_AS((void)parse_name<Overflow>("overflow", overflow_names, "wrap"),
                         "unknown overflow 'wrap'; known: infinity, saturate, saturate_all, "
                         "sat_finite, sat_propagate, sat_none",
                         std::invalid_argument);
}

TEST_CASE("profiles have names of their own") {
    for (const Profile& p : profiles) {
        CHECK(&profile(p.name) == &p);
        CHECK_FALSE(p.reproduces.empty());
        CHECK(p.format.empty() == p.others.empty());
        for (const FormatSpec& f : formats) { // of a library that casts otherwise to others
            const bool own = p.format.empty() || p.format == f.name;
            CHECK(&profile(p.name, f.name) == &profile(own ? p.name : p.others));
        }
    }
}

// A format is a value known at compile time, and so is everything computed from it.
static_assert(format("e4m3").max_code() == 0x7e);
static_assert(format("e6m9").bias() == 31);
static_assert(encode(format("e4m3"), 464.0f) == 0x7e);
static_assert(encode(format("e4m3"), 464.0001f) == 0x7f);
static_assert(decode(format("fp16"), 0x3555) == 0.333251953125f);
static_assert(quantize(format("bf16"), 1.00390625) == 1.0f);
static_assert(profile("torch").policy.overflow == Overflow::saturate_all);
static_assert(profile("torch", "e4m3").name == "torch" && profile("torch", "e5m2").name == "torch-2025");
template <FormatSpec F>
constexpr int width = F.bits();
static_assert(width<format("tf32")> == 19);
