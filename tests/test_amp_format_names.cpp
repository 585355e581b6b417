// amp-format with formats that are no IEEE 754 ones: of IEEE P3109 and of integers; and with stochastic rounding.
#include <ampscope/sim/io/tensor_file.h>

#include "tool.h"

#include <fmt/format.h>

#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

const Tool amp_format{AMP_FORMAT};

nlohmann::json json_of(const std::string& arguments) {
    return nlohmann::json::parse(amp_format("--json " + arguments).out);
}

std::string code_of(const std::string& number, const std::string& format) {
    return json_of("--format " + format + " -- " + number)["formats"][0]["code"];
}

} // namespace

TEST_CASE("formats of IEEE P3109, also those whose values floats cannot hold") {
    const nlohmann::json narrow = json_of("binary8p3"), wide = json_of("Binary10p1se --values");
    CHECK(narrow["name"] == "binary8p3se");
    CHECK(narrow["bias"] == 16);
    CHECK(narrow["max"]["value"] == 49152.0);
    CHECK(narrow["first_overflow"] == "> 53248 (nearest-even)");
    CHECK(narrow["infinity"] == "0x7f 0xff");
    CHECK(narrow["nan"] == "0x80");
    CHECK(narrow["zero"] == "0x00");
    CHECK(json_of("binary8p3ue")["infinity"] == "0xfe");
    CHECK(wide["max"]["value"] == std::ldexp(1, 254));
    CHECK(wide["max"]["hexfloat"] == "0x1p+254");
    CHECK_FALSE(wide.contains("min_subnormal")); // of one significant bit there are none
    CHECK(wide["values"].size() == 1024);
    CHECK(wide["values"][1]["value"] == fmt::format("{}", std::ldexp(1, -255)));
    CHECK(wide["values"][0x1ff]["value"] == "inf");
    const nlohmann::json widest = json_of("binary16p2ue --values"); // doubles hold none of its ends
    CHECK(widest["max"]["value"].is_null());
    CHECK(widest["max"]["hexfloat"] == "0x1.8p+16382");
    CHECK(widest["values"][1]["value"] == "0x1p-16384");
    CHECK(widest["values"][0x8001]["value"] == "1.5");
    CHECK(code_of("0.1", "binary10p1se") == "0x0fd");
    CHECK(code_of("-1", "binary16p1se") == "0xc000");
    CHECK(code_of("1e400", "binary8p3") == "0x7f");
    CHECK(contains(amp_format("--format binary16p1se 1e400").err, "beyond FP64"));
    CHECK(json_of("--format binary8p3sf --profile p3109-sat-none inf")["formats"][0]["code"] == "0x7f");
    CHECK(json_of("--format binary8p3uf --profile p3109-sat-finite -- -7")["formats"][0]["code"] == "0x00");
    amp_format.check_error("convert in.npy out.npy --to binary10p1se", 2, {"beyond those of FP32"});
}

TEST_CASE("integers: facts, codes in two's complement, and files of I8") {
    const nlohmann::json int8 = json_of("int8 --values"), symmetric = json_of("int8sym");
    CHECK(int8["max"]["value"] == 127.0);
    CHECK(int8["lowest"]["value"] == -128.0);
    CHECK(int8["lowest"]["code"] == "0x80");
    CHECK(int8["least"]["value"] == 1.0);
    CHECK(int8["precision"] == 7);
    CHECK_FALSE(int8.contains("min_normal"));
    CHECK_FALSE(int8.contains("min_subnormal"));
    CHECK(int8["zero"] == "0x00");
    CHECK(int8["first_overflow"] == ">= 127.5 (nearest-even)");
    CHECK(int8["values"][0xff]["value"] == "-1");
    CHECK(int8["values"][0x80]["bits"] == "10000000");
    CHECK_FALSE(symmetric.contains("lowest"));
    CHECK(json_of("mxint8")["epsilon"]["value"] == 0.015625);
    CHECK(json_of("e0m3")["zero"] == "0x0 0x8");
    CHECK(json_of("e0m3 --values")["values"][0xf]["bits"] == "1 111");
    CHECK(code_of("-1000", "int8") == "0x80");
    CHECK(code_of("-1000", "int8sym") == "0x81");
    CHECK(code_of("-2.5", "int4") == "0xe");

    const Scratch scratch;
    const std::vector<float> values = {-1000, -128, -127.5, -1.5, -0.25, 0, 0.5, 2.5, 127.4F, 1000};
    const std::string raw(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    const std::string in = write_file(scratch / "in.bin", raw), out = (scratch / "out.safetensors").string();
    const Outcome converted = amp_format("convert " + in + " " + out + " --dtype f32 --to int8sym");
    REQUIRE(contains(converted.out, "stored as I8, the codes of int8sym"));
    const auto file = open_tensor_file(out);
    std::vector<std::int8_t> codes(values.size());
    file->stream(0)->read(std::as_writable_bytes(std::span(codes)));
    for (std::size_t i = 0; i < values.size(); ++i)
        CHECK(codes[i] == static_cast<int>(std::nearbyint(std::min(std::max(values[i], -127.0F), 127.0F))));
}

TEST_CASE("stochastic rounding of a number: its neighbours, how many words round up, and the bias") {
    const auto choice = [](const std::string& arguments) {
        return json_of("--rounding stochastic --format e4m3 " + arguments)["formats"];
    };
    const nlohmann::json eight = choice("--random-bits 8 0.1")[0]; // 0.8 of the way from 0.09375 to 0.1015625
    CHECK(eight["down"] == "0.09375");
    CHECK(eight["up"] == "0.1015625");
    CHECK(eight["words_up"] == 204);
    CHECK(eight["probability"] == 204 / 256.0);
    CHECK(eight["exact_probability"].get<double>() == doctest::Approx(0.8));
    CHECK(eight["bias_ulp"].get<double>() == doctest::Approx(-0.003125));
    CHECK(choice("--random-bits 8 --stochastic-variant b 0.1")[0]["words_up"] == 205);
    CHECK(choice("--random-bits 1 --stochastic-variant b 1.03125")[0]["words_up"] == 1); // a tie, 1/4: up
    CHECK(choice("--random-bits 1 --stochastic-variant c 1.03125")[0]["words_up"] == 0); // to even
    CHECK(choice("--random-bits 2 -- -1.03125")[0]["down"] == "-1");
    CHECK(choice("0.09375").empty()); // a value of the format
    CHECK(choice("500").empty());     // beyond all of them
    CHECK(choice("460")[0]["up"] == "nan");
    CHECK(choice("460")[0]["probability"] == 0.375);
    amp_format.check_error("0.1 --random-bits 8", 2, {"--random-bits changes nothing"});
    amp_format.check_error("0.1 --rounding stochastic --random-bits 33", 2, {"--random-bits"});
}

TEST_CASE("every JSON says its version") {
    for (const char* arguments : {"", "e4m3", "0.1", "0.1 --format e4m3 --rounding stochastic --random-bits 8"})
        CHECK_MESSAGE(amp_format(std::string("--json ") + arguments).out.starts_with("{\n  \"schema_version\": 1,\n"),
                      arguments);
}
