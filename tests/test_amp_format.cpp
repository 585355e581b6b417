// amp-format as users run it: the table, single formats and numbers, conversion of files, TestFloat's lines, errors.
#include <ampscope/formats/codec.h>
#include <ampscope/sim/analysis/count.h>
#include <ampscope/sim/io/write.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io_files.h"

#include <cmath>
#include <cstring>
#include <map>
#include <sstream>

#include <sys/wait.h>

using namespace amp;
using namespace amp::test;

namespace {

struct Run {
    int status;
    std::string out;
};

/// Puts a text into single quotes for a shell.
std::string quoted(const std::string& text) {
    std::string out;
    for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
    return out;
}

/// Runs `amp-format ARGUMENTS` in bash; standard error is part of the output only where redirected.
Run run(const std::string& arguments) {
    std::FILE* pipe = ::popen(("bash -c '" + quoted(std::string(AMP_FORMAT) + " " + arguments) + "'").c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::string out;
    char buffer[4096];
    for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
    return {WEXITSTATUS(::pclose(pipe)), out};
}

nlohmann::json json_of(const std::string& arguments) { return nlohmann::json::parse(run("--json " + arguments).out); }

std::string code_of(const std::string& number, const std::string& format) {
    return json_of("--format " + format + " -- " + number)["formats"][0]["code"];
}

} // namespace

TEST_CASE("the table names every format and fits 80 columns") {
    const Run table = run("");
    CHECK(table.status == 0);
    for (const FormatSpec& f : formats) CHECK(table.out.find(f.name) != std::string::npos);
    std::istringstream lines(table.out);
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
    CHECK(json_of("")["formats"].size() == formats.size());
}

TEST_CASE("facts of one format") {
    const nlohmann::json e4m3 = json_of("e4m3 --values");
    CHECK(e4m3["max"]["value"] == 448.0);
    CHECK(e4m3["max"]["code"] == "0x7e");
    CHECK(e4m3["min_normal"]["value"] == 0.015625);
    CHECK(e4m3["min_subnormal"]["value"] == 0.001953125);
    CHECK(e4m3["epsilon"]["value"] == 0.125);
    CHECK(e4m3["nan"] == "0x7f 0xff");
    CHECK(e4m3["infinity"] == "none");
    CHECK(e4m3["first_overflow"] == "> 464 (nearest-even)");
    CHECK(e4m3["values"].size() == 256);
    CHECK(e4m3["values"][0x3a]["value"] == "1.25");
    CHECK(json_of("fp16")["first_overflow"] == ">= 65520 (nearest-even)");
    CHECK(json_of("e6m9")["max"]["value"] == std::ldexp(2 - std::ldexp(1, -9), 31));
    CHECK(run("tf32 --values 2>&1").status == 2);
    CHECK(run("e9m9 2>&1").out.find("2 <= X <= 8") != std::string::npos);
}

TEST_CASE("numbers round once to each format, however long they are written") {
    CHECK(code_of("0.1", "fp16") == "0x2e66");
    CHECK(code_of("-inf", "fp16") == "0xfc00");
    CHECK(code_of("nan", "bf16") == "0x7fc0");
    CHECK(code_of("464", "e4m3") == "0x7e");
    CHECK(code_of("464.00000000000000000000000001", "e4m3") == "0x7f");
    CHECK(code_of("65519.999999999999999999999", "fp16") == "0x7bff"); // as a double this is 65520, which overflows
    CHECK(code_of("65520", "fp16") == "0x7c00");
    CHECK(code_of("0x1.004p0", "fp16") == "0x3c01");
    CHECK(code_of("1.00048828125", "fp16") == "0x3c00"); // a tie
    CHECK(code_of("1.000488281250000000000000000000001", "fp16") == "0x3c01");
    CHECK(code_of("1e-400", "fp32") == "0x00000000");
    CHECK(code_of("7.006492321624085354618e-46", "fp32") == "0x00000000"); // just below half the smallest subnormal
    CHECK(code_of("7.006492321624085354619e-46", "fp32") == "0x00000001");
    CHECK(code_of("1e999", "e5m2") == "0x7c");
    CHECK(json_of("--profile cuda-satfinite --format e4m3 500")["formats"][0]["code"] == "0x7e");
    CHECK(json_of("--rounding up --format e5m2 1e-30")["formats"][0]["code"] == "0x01");
    CHECK(run("twelve 2>&1").status == 2);
    CHECK(run("-1.5x 2>&1").status == 2);
}

TEST_CASE("errors are stated where a double can hold them") {
    const auto row = [](const std::string& arguments) { return json_of(arguments)["formats"][0]; };
    const nlohmann::json tenth = row("--format fp16 0.1");
    CHECK(tenth["error"] == 0.0999755859375 - 0.1);
    CHECK(tenth["relative_error"] == (0.0999755859375 - 0.1) / 0.1);
    CHECK(row("--format fp16 1.5")["error"] == 0.0);
    CHECK(json_of("--format all 1.5") == json_of("1.5"));
    CHECK_FALSE(row("--format fp16 1.00000000000000000001").contains("error"));
    CHECK_FALSE(row("--format fp16 1e-400").contains("error"));
    CHECK_FALSE(row("--format fp32 9007199254740995").contains("error")); // 2^53 + 3: of doubles, 2^53 + 4 is nearest
    CHECK(row("--format fp32 9007199254740994")["error"] == -2.0);
    CHECK(row("--format fp16 9007199254740995 --overflow saturate")["error"] == 65504.0 - 9007199254740996.0);
    CHECK(row("--format fp16 1.7976931348623158e308 --overflow saturate")["relative_error"] ==
          -1.0); // the largest double
    CHECK(row("--format fp16 --rounding up 1e-400")["error"] == std::ldexp(1, -24));
    CHECK_FALSE(row("--format fp16 --rounding up 1e-400").contains("relative_error"));
    CHECK(run("--format fp16 1e-400").out.find("-nan") == std::string::npos);
    const char* note = "\nAn error of - is too small beside the number for a double to state.\n";
    const auto noted = [&](const std::string& command) { return run(command).out.find(note) != std::string::npos; };
    CHECK(noted("--format fp16,fp32 9007199254740995"));
    CHECK_FALSE(noted("--format fp16,fp32 0.1"));
    CHECK_FALSE(noted("--format fp16 1e9")); // infinite, which the rounding says
}

TEST_CASE("NaN and infinity in formats that have none, or one NaN without a sign") {
    for (const char* number : {"nan", "-nan"})
        for (const FormatSpec& f : formats) {
            const nlohmann::json row = json_of(fmt::format("--format {} -- {}", f.name, number))["formats"][0];
            CAPTURE(f.name);
            CHECK(row.contains("in_place_of") == !f.has_nan());
            CHECK(row.contains("below") == false);
            if (f.has_nan()) CHECK(row["value"] == "nan"); // canonical NaN under this profile
        }
    CHECK(run("--format e3m2 nan").out == "format  code  bits      value\n"
                                          "e3m2    0x1f  0 111 11     28\n"
                                          "\n"
                                          "format  rounding                                  error  error, %\n"
                                          "e3m2    in place of NaN, which it lacks, invalid      -         -\n");
    CHECK(run("--format e4m3 inf").out.find("in place of infinity, which it lacks, invalid") != std::string::npos);
    CHECK(run("--format e5m2fnuz --profile ml_dtypes -- -nan").out == "format    code  bits        value\n"
                                                                      "e5m2fnuz  0x80  1 00000 00    nan\n"
                                                                      "\n"
                                                                      "format    rounding  error  error, %\n"
                                                                      "e5m2fnuz  exact         -         -\n");
    CHECK(run("--format e5m2 --profile ml_dtypes -- -nan").out.find(" -nan\n") != std::string::npos);
    CHECK_FALSE(json_of("--format fp16 inf")["formats"][0].contains("in_place_of"));
    CHECK_FALSE(json_of("--format e2m1 1e400")["formats"][0].contains("error")); // beyond what its difference fits in
    CHECK(json_of("e4m3fnuz --values")["values"][0x80]["value"] == "nan");
    CHECK(json_of("e4m3 --values")["values"][0xff]["value"] == "-nan");
}

TEST_CASE("a number's neighbours and error stand in tables of 80 columns; a command's help has its own examples") {
    const std::string tenth = run("--format fp16,e2m1 0.1").out;
    CHECK(tenth == "format  code    bits                          value\n"
                   "fp16    0x2e66  0 01011 1001100110  0.0999755859375\n"
                   "e2m1    0x0     0 00 0                            0\n"
                   "\n"
                   "format  rounding                error  error, %\n"
                   "fp16    inexact             -2.44e-05   -0.0244\n"
                   "e2m1    inexact, underflow       -0.1      -100\n"
                   "\n"
                   "format        next below        next above\n"
                   "fp16    0.09991455078125  0.10003662109375\n"
                   "e2m1                -0.5               0.5\n");
    std::istringstream lines(run("1e-40").out + run("e8m0").out + run("convert --help").out);
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
    const auto shows = [](const std::string& command, const std::string& example) {
        return run(command + " --help").out.find(example) != std::string::npos;
    };
    for (const char* command : {"", "convert"}) CHECK(shows(command, "amp-format convert"));
    for (const char* command : {"", "eval"}) CHECK(shows(command, "amp-format eval"));
    CHECK(shows("", "amp-format 0.1"));
    for (const char* command : {"convert", "eval"}) CHECK_FALSE(shows(command, "amp-format 0.1"));
    CHECK_FALSE(shows("convert", "amp-format eval"));
    CHECK(shows("convert", "Exit codes:"));
}

TEST_CASE("arguments that would do nothing, and output that cannot be written") {
    for (const char* wrong : {"\"\"", "--format fp16", "--format fp16 e4m3", "--format zz 1", "--values",
                              "--values 0.1", "0.1 --random-bits 8"})
        CHECK_MESSAGE(run(std::string(wrong) + " 2>&1").status == 2, wrong);
    CHECK(run("-inf 2>&1").out.find("then --") != std::string::npos);
    CHECK(run("--bogus 2>&1").out.find("then --") == std::string::npos);
    CHECK(run("--format fp16 -- -inf").status == 0);
    CHECK(run("INF").status == 0);
    CHECK(run("2>&1 > /dev/full").status == 1);
    CHECK(run("eval f16_add 2>&1 > /dev/full <<< '3C00 3C00'").status == 1);
}

TEST_CASE("eval agrees with the recorded vectors of Berkeley TestFloat") {
    std::ifstream file(fs::path(AMPSCOPE_TEST_DATA) / "testfloat/level1.txt");
    const Scratch scratch;
    std::map<std::string, std::vector<std::string>> sections; // "function rounding" -> lines
    std::string section;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with('#')) continue;
        if (line.find('_') != std::string::npos) section = line;
        else sections[section].push_back(line);
    }
    REQUIRE(sections.size() > 180);
    std::uint64_t cases = 0, mismatches = 0;
    for (const auto& [name, lines] : sections) {
        const std::string function = name.substr(0, name.find(' ')), rounding = name.substr(name.find(' ') + 1);
        const bool to_integer =
            function.find("_to_i") != std::string::npos || function.find("_to_ui") != std::string::npos;
        std::string operands;
        std::vector<std::string> expected;
        for (const std::string& line : lines) {
            const std::size_t result = line.rfind(' ', line.rfind(' ') - 1);
            operands += line.substr(0, result) + "\n";
            expected.push_back(line);
        }
        const fs::path input = write_file(scratch / "operands.txt", operands);
        std::istringstream got(
            run("eval " + function + " --exact --rounding " + rounding + " < " + input.string()).out);
        for (const std::string& line : expected) {
            std::string answer;
            std::getline(got, answer);
            // All NaNs count as equal, as in testfloat_ver: SoftFloat's is negative.
            const auto nan = [&](const std::string& text) {
                const std::string word = text.substr(text.rfind(' ', text.rfind(' ') - 1) + 1);
                const std::string hex = word.substr(0, word.find(' '));
                return (hex.size() == 4 &&
                        unpack(format("fp16"), static_cast<std::uint32_t>(std::stoul(hex, nullptr, 16))).is_nan()) ||
                       (hex.size() == 8 &&
                        unpack(format("fp32"), static_cast<std::uint32_t>(std::stoul(hex, nullptr, 16))).is_nan());
            };
            const bool equal =
                answer == line || (!to_integer && answer.size() == line.size() && nan(answer) && nan(line) &&
                                   answer.substr(answer.size() - 2) == line.substr(line.size() - 2));
            ++cases;
            if (!equal && mismatches++ < 5) MESSAGE(name << ": expected " << line << " got " << answer);
        }
    }
    fmt::print("proof: eval against TestFloat's vectors: {} cases, {} mismatches\n", cases, mismatches);
    CHECK(mismatches == 0);
}

TEST_CASE("eval: integers are exact and whole, or invalid as on x86") {
    const auto eval = [](const std::string& function, const std::string& operand) {
        return run(fmt::format("eval {} --exact <<< '{}'", function, operand)).out.substr(operand.size() + 1);
    };
    CHECK(eval("e4m3_to_i32", "FE") == "FFFFFE40 00\n"); // -448
    CHECK(eval("e4m3_to_ui64", "38") == "0000000000000001 00\n");
    CHECK(eval("e4m3_to_ui64", "B8") == "FFFFFFFFFFFFFFFF 10\n");
    CHECK(eval("e4m3_to_i64", "7F") == "8000000000000000 10\n"); // NaN
    CHECK(eval("bf16_to_i32", "CF00") == "80000000 00\n");       // -2^31 is an i32
    CHECK(eval("bf16_to_i32", "4F00") == "80000000 10\n");       // 2^31 is not
    CHECK(eval("bf16_to_ui32", "BF00") == "00000000 01\n");      // -0.5 becomes zero
    CHECK(eval("tf32_to_ui64", "5F7FE000") == "FFE0000000000000 00\n");
    CHECK(eval("i32_to_e4m3", "FFFFFE40") == "FE 00\n");
    CHECK(eval("ui64_to_bf16", "FFFFFFFFFFFFFFFF") == "5F80 01\n");
    CHECK(eval("i64_to_e5m2", "8000000000000000") == "FC 05\n");
    CHECK(run("eval f16_to_i32 --notexact <<< '3E00'").out == "3E00 00000002 00\n");
    for (const char* none : {"i32_to_i64", "ui32_add", "i32_to_i32", "f16_to_ui16"})
        CHECK(run(fmt::format("eval {} 2>&1 <<< '00000000'", none)).status == 2);
    CHECK(run("eval ui32_to_f16 2>&1 <<< '0'").out.find("line 1 needs operands of 8") != std::string::npos);
}

TEST_CASE("eval: the short formats, and lines that are no operands") {
    CHECK(run("eval e4m3_mul <<< '7E 7E'").out == "7E 7E 7F 05\n");
    CHECK(run("eval tf32_add <<< '3F800000 00002000'").out == "3F800000 00002000 3F800000 01\n");
    CHECK(run("eval bf16_to_e5m2 <<< '3F80'").out == "3F80 3C 00\n");
    for (const char* line : {"3C00", "3C00 3C00 3C00", "3C0 3C00", "3C00 xyz1"}) {
        const Run bad = run(fmt::format("eval f16_add 2>&1 <<< '0000 0000\n{}'", line));
        CHECK(bad.status == 1);
        CHECK(bad.out.find("line 2") != std::string::npos);
    }
    CHECK(run("eval f16_add 2>&1 <<< $'\\n\\r\\n3C00 zz'").out.find("line 3") != std::string::npos);
    CHECK(run("eval f16_add <<< $'\\n3C00 3C00\\r\\n'").out == "3C00 3C00 4000 00\n");
    CHECK(run("eval tf32_add 2>&1 <<< '3F800001 3F800000'").status == 1);
    CHECK(run("eval f16_foo 2>&1 < /dev/null").status == 2);
}

TEST_CASE("convert: every dtype to every format, codes and values") {
    const Scratch scratch;
    std::string bytes;
    for (std::uint32_t i = 0; i < 4096; ++i) {
        const std::uint32_t word = i * 1048573u; // takes all exponents
        bytes.append(reinterpret_cast<const char*>(&word), 4);
    }
    const fs::path raw = write_file(scratch / "in.bin", bytes);
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::f64, DType::i32, DType::u8}) {
        const auto source = open_tensor_file(raw, {.dtype = dtype});
        const auto width = static_cast<std::size_t>(info(dtype).bits);
        for (const FormatSpec& f : formats) {
            const fs::path out = scratch / "out.safetensors";
            const Run result = run(fmt::format("convert {} {} --dtype {} --to {} --profile ocp-saturate", raw.string(),
                                               out.string(), info(dtype).name, f.name));
            REQUIRE(result.status == 0);
            const auto converted = open_tensor_file(out);
            const TensorEntry& entry = converted->tensors()[0];
            CHECK(entry.count == source->tensors()[0].count);
            std::vector<std::byte> stored(entry.bytes);
            converted->read_at(0, 0, stored);
            std::uint64_t wrong = 0;
            for (std::size_t i = 0; i < entry.count; ++i) {
                Flags unused;
                const auto all = std::as_bytes(std::span(bytes));
                const std::uint32_t code = pack(f, unpack_number(dtype, packed_number(all, i, static_cast<int>(width))),
                                                profile("ocp-saturate").policy, 0, unused);
                const std::uint64_t got = packed_number(stored, i, info(entry.dtype).bits);
                const bool codes = info(entry.dtype).format == f.name ||
                                   (f.name == std::string_view("int8") && entry.dtype == DType::i8);
                if (got != (codes ? code : std::bit_cast<std::uint32_t>(decode(f, code)))) ++wrong;
            }
            CHECK_MESSAGE(wrong == 0, info(dtype).name, " to ", f.name);
        }
    }
    CHECK(run(fmt::format("convert {} {} --dtype f32 --to e4m3 --quantize", raw.string(), (scratch / "q.npy").string()))
              .status == 0);
    CHECK(open_tensor_file(scratch / "q.npy")->tensors()[0].dtype == DType::f32);
    const auto said = [&](const std::string& options) {
        return run(fmt::format("convert {} {} --dtype f32 {}", raw.string(), (scratch / "s.raw").string(), options))
            .out;
    };
    const std::string head = (scratch / "s.raw").string() + ": 1 tensor, 4,096 elements, stored as ";
    CHECK(said("--to e4m3") == head + "F8_E4M3, the codes of e4m3\n");
    CHECK(said("--to e4m3 --quantize") == head + "F32 words with values of e4m3\n");
    CHECK(said("--to e6m9") == head + "F32 words with values of e6m9; files have no dtype for its codes\n");
    CHECK(run("convert --help").out.find("no dtype for tf32 and eXmY") != std::string::npos);
    const std::string to_e4m3 = " " + (scratch / "x.raw").string() + " --to e4m3 2>&1";
    CHECK(run("convert " + (scratch / "q.npy").string() + to_e4m3 + " --dtype f32").status == 2);
    CHECK(run("convert " + (scratch / "out.safetensors").string() + to_e4m3 + " --as bf16").status == 2);
    CHECK(run(fmt::format("convert {} {} --to e4m3 2>&1", raw.string(), (scratch / "x.npy").string())).status == 1);
    CHECK(run(fmt::format("convert {} /nowhere/x.npy --dtype f32 --to e4m3 2>&1", raw.string())).status == 1);
    CHECK(run("convert 2>&1").status == 2);
    const Run misspelt = run(fmt::format("convert {} {} --dtype f32 --to e4m3 2>&1", raw.string(), "oq.safetensor"));
    CHECK(misspelt.status == 1);
    CHECK(misspelt.out.find("oq.safetensor: unknown extension '.safetensor' of a tensor file; known: .safetensors, "
                            ".npy") != std::string::npos);
}

TEST_CASE("convert tells of finite numbers that the format holds only as NaN or infinity") {
    const Scratch scratch;
    const auto file = [&](const char* name, const auto& values) {
        return write_file(scratch / name, std::string(reinterpret_cast<const char*>(values), sizeof values)).string();
    };
    const float floats[] = {1, 464, 465, -1e6F, HUGE_VALF, NAN};
    const double doubles[] = {1, 1e300, HUGE_VAL};
    const auto told = [&](const std::string& in, const std::string& options) {
        return run(fmt::format("convert {} {} {} 2>&1 >/dev/null", in, (scratch / "o.raw").string(), options)).out;
    };
    const std::string advice = "; amp-histogram says at which scale they fit, --overflow saturate stores the largest "
                               "value instead\n",
                      start = "amp-format: warning: " + (scratch / "o.raw").string() + ": ";
    CHECK(told(file("f.bin", floats), "--dtype f32 --to e4m3") ==
          start + "2 finite elements are NaN or infinite in e4m3" + advice);
    CHECK(told(file("d.bin", doubles), "--dtype f64 --to fp16 --quantize") ==
          start + "1 finite element is NaN or infinite in fp16" + advice);
    CHECK(told(file("f.bin", floats), "--dtype f32 --to e4m3 --overflow saturate").empty());
    CHECK(told(file("f.bin", floats), "--dtype f32 --to bf16").empty());
}
