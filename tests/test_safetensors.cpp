// safetensors files of its own library, the rules that make a file invalid, and false claims that readers have
// believed.
#include "io_golden.h"

#include <vector>

using namespace amp;
using namespace amp::test;

namespace {

std::string file_of(const std::string& header, std::size_t data) {
    return little_endian(header.size(), 8) + header + std::string(data, 'x');
}

/// A header with one tensor.
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

} // namespace

TEST_CASE("safetensors files of the reference library") { check_golden(".safetensors"); }

TEST_CASE("damaged safetensors files") { check_damage(".safetensors"); }

TEST_CASE("metadata and what is allowed") {
    CHECK(open_tensor_file(golden("everything.safetensors"))->metadata() ==
          std::map<std::string, std::string>{{"step", "12"}, {"loss_scale", "1024"}});
    MemoryFile memory(".safetensors");
    const auto good = [&](const std::string& bytes) { return error_of(memory.set(bytes)); };
    CHECK(good(file_of("{}", 0)) == "");
    CHECK(good(file_of("{}      ", 0)) == "");
    CHECK(good(file_of(tensor("F32", "[]", "[0,4]"), 4)) == "");
    CHECK(good(file_of(tensor("F32", "[3,0]", "[0,0]"), 0)) == "");
    CHECK(good(file_of(tensor("F32", "[0,9223372036854775807,9223372036854775807]", "[0,0]"), 0)) == "");
    CHECK(good(file_of(tensor("F4", "[2,8]", "[0,8]"), 8)) == "");
    CHECK(good(file_of(tensor("F6_E2M3", "[4]", "[0,3]"), 3)) == "");
    CHECK(good(file_of(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                       R"("a":{"data_offsets":[0,1],"shape":[1],"dtype":"U8"}})",
                       2)) == "");
    const auto file = open_tensor_file(memory.set(file_of(
        R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
        2)));
    CHECK(file->tensors()[0].name == "a");
    CHECK(file->metadata().empty());
}

TEST_CASE("every rule refuses its lies, and says which it is") {
    const std::string good = tensor("F32", "[2]", "[0,8]"), two = R"("dtype":"U8","shape":[2],"data_offsets":)";
    const auto header = [](std::uint64_t length, const std::string& rest) { return little_endian(length, 8) + rest; };
    const std::vector<Lie> lies{
        // 1 no length
        {"", "no header length"},
        {std::string("\x02\0\0\0\0\0\0", 7), "no header length"},
        // 2 above 100 MB
        {header(100'000'001, "{}"), "above 100 MB"},
        {header(~std::uint64_t{0}, "{}"), "above 100 MB"},
        {header(~std::uint64_t{0} - 7, "{}"), "above 100 MB"}, // 8 + N is 0
        {header(std::uint64_t{1} << 63, "{}"), "above 100 MB"},
        // 3 beyond the file
        {header(3, "{}"), "reaches beyond the file"},
        {header(99'999'999, "{}"), "reaches beyond the file"},
        // 4 not UTF-8
        {file_of("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), "not UTF-8"},
        {file_of("{\"\xc0\x80\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), "not UTF-8"},
        // 5 not one JSON object
        {header(0, ""), "the header is empty"},
        {file_of("        ", 0), "must be one JSON object"},
        {file_of(" {}", 0), "must be one JSON object"},
        {file_of("\xef\xbb\xbf{}", 0), "must be one JSON object"},
        {file_of("[]", 0), "must be one JSON object"},
        {file_of("{}\n", 0), "must be one JSON object"},
        {file_of(std::string("{}\0", 3), 0), "must be one JSON object"},
        {file_of("{}{}", 0), "not JSON"},
        {file_of("{]}", 0), "not JSON"},
        {file_of("{\"a\":}", 0), "not JSON"},
        {file_of("{/**/}", 0), "not JSON"},
        {file_of(R"({"a":[[[[[[]]]]]]})", 0), "unexpected an array"},
        {file_of(R"({"a":1})", 0), "tensor 'a': unexpected a number"},
        {file_of(R"({"a":null})", 0), "unexpected null"},
        // 6 duplicate keys
        {file_of("{\"a\":{" + two + "[0,2]},\"a\":{" + two + "[2,4]}}", 4), "duplicate key 'a'"},
        {file_of("{\"a\":{" + two + "[0,2]},\"\\u0061\":{" + two + "[2,4]}}", 4), "duplicate key 'a'"},
        {file_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), "duplicate key 'dtype'"},
        {file_of(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "duplicate key 'k'"},
        {file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "duplicate key '__metadata__'"},
        // 7 metadata not strings
        {file_of(R"({"__metadata__":{"step":1}})", 0), "__metadata__ must map strings to strings"},
        {file_of(R"({"__metadata__":{"step":{}}})", 0), "__metadata__ must map strings to strings"},
        {file_of(R"({"__metadata__":[]})", 0), "__metadata__"},
        // 8 unknown dtype
        {file_of(tensor("F128", "[1]", "[0,16]"), 16), "unknown dtype 'F128'"},
        {file_of(tensor("f32", "[1]", "[0,4]"), 4), "unknown dtype 'f32'"},
        {file_of(tensor("", "[1]", "[0,4]"), 4), "unknown dtype ''"},
        // 9 holes, overlaps, disorder
        {file_of(tensor("F32", "[2]", "[1,9]"), 9), "a hole or an overlap"},
        {file_of("{\"a\":{" + two + "[0,2]},\"b\":{" + two + "[1,3]}}", 3), "a hole or an overlap"},
        {file_of("{\"a\":{" + two + "[0,2]},\"b\":{" + two + "[3,5]}}", 5), "a hole or an overlap"},
        {file_of("{\"a\":{" + two + "[0,2]},\"b\":{" + two + "[0,2]}}", 2), "a hole or an overlap"},
        {file_of(tensor("F32", "[2]", "[8,0]"), 8), "end before they begin"},
        {file_of(tensor("F32", "[2]", "[18446744073709551608,0]"), 8), "end before they begin"},
        // 10 and 11 the shape or the size overflows
        {file_of(tensor("U8", "[4294967296,4294967296]", "[0,0]"), 0), "more elements than any file can hold"},
        {file_of(tensor("U8", "[4294967297,4294967297]", "[0,8589934593]"), 0), "more elements than any file can hold"},
        {file_of(tensor("F32", "[4611686018427387906]", "[0,8]"), 8),
         "more elements than any file can hold"}, // 2^64 + 8 bytes
        {file_of(tensor("F64", "[2305843009213693952]", "[0,0]"), 0), "more elements than any file can hold"},
        {file_of(tensor("U8", "[18446744073709551616]", "[0,0]"), 0), "unexpected the number"},
        {file_of(tensor("U8", "[-1]", "[0,1]"), 1), "unexpected a negative number"},
        {file_of(tensor("U8", "[1.0]", "[0,1]"), 1), "unexpected the number 1.0"},
        {file_of(tensor("U8", "[1e0]", "[0,1]"), 1), "unexpected the number 1e0"},
        {file_of(tensor("U8", "[\"1\"]", "[0,1]"), 1), "unexpected a string"},
        {file_of(tensor("U8", "1", "[0,1]"), 1), "unexpected a number"},
        // 12 no whole bytes
        {file_of(tensor("F4", "[3]", "[0,2]"), 2), "3 elements of 4 bits: not a whole number of bytes"},
        {file_of(tensor("F6_E3M2", "[1]", "[0,1]"), 1), "1 element of 6 bits: not a whole number of bytes"},
        // 13 offsets do not fit shape and dtype
        {file_of(tensor("F32", "[2]", "[0,4]"), 4), "take 8 bytes but data_offsets span 4"},
        {file_of(tensor("F32", "[2]", "[0,16]"), 16), "take 8 bytes but data_offsets span 16"},
        {file_of(tensor("F32", "[0]", "[0,4]"), 4), "take 0 bytes but data_offsets span 4"},
        {file_of(tensor("F32", "[]", "[0,0]"), 0), "take 4 bytes but data_offsets span 0"},
        {file_of(tensor("F32", "[2]", "[0]"), 8), "must be two numbers"},
        {file_of(tensor("F32", "[2]", "[0,8,8]"), 8), "must be two numbers"},
        {file_of(tensor("F32", "[2]", "[]"), 8), "must be two numbers"},
        // 14 the data do not end with the file
        {file_of(good, 7), "truncated or has something appended"},
        {file_of(good, 9), "truncated or has something appended"},
        {file_of("{}", 1), "truncated or has something appended"},
        {file_of(tensor("F32", "[1000000000000]", "[0,4000000000000]"), 8), "truncated or has something appended"},
        // what a tensor must have, and nothing else
        {file_of(R"({"a":{"dtype":"U8","shape":[1]}})", 1), "needs dtype, shape and data_offsets"},
        {file_of(R"({"a":{}})", 0), "needs dtype, shape and data_offsets"},
        {file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}})", 1),
         "unexpected key 'strides'"},
        {file_of(R"({"a":{"dtype":{"b":1},"shape":[1],"data_offsets":[0,1]}})", 1), "unexpected an object"},
    };
    REQUIRE(error_of(MemoryFile(".safetensors").set(file_of(good, 8))).empty());
    check_lies(".safetensors", lies);
}

TEST_CASE("names that would write to a terminal do not reach the message") {
    MemoryFile memory(".safetensors");
    const std::string error = error_of(memory.set(file_of("{\"\\u001b[2J\\n" + std::string(5000, 'n') + "\":1}", 0)));
    CHECK(error.find("?[2J?nnn") != std::string::npos);
    CHECK(error.size() < 1200);
}

TEST_CASE("attacks by number: many tensors on one range, deep nesting") {
    MemoryFile memory(".safetensors");
    std::string many = "{";
    for (int i = 0; i < 100'000; ++i)
        many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[8],"data_offsets":[0,8]})";
    CHECK(error_of(memory.set(file_of(many + "}", 8))).find("a hole or an overlap") != std::string::npos);
    CHECK(!error_of(memory.set(file_of("{\"a\":" + std::string(1'000'000, '[') + "}", 0))).empty());
    CHECK(!error_of(memory.set(file_of(std::string(1'000'000, '{') + "}", 0))).empty());
}

TEST_CASE("a file that shrinks after it was opened is an error, not a crash") {
    MemoryFile memory(".safetensors");
    const std::string bytes = file_of(tensor("U8", "[100000]", "[0,100000]"), 100'000);
    const auto file = open_tensor_file(memory.set(bytes));
    CHECK(tensor_bytes(*file, 0) == std::string(100'000, 'x'));
    memory.set(std::string_view(bytes).substr(0, 5000));
    CHECK_THROWS_AS(tensor_bytes(*file, 0), FileError);
}

TEST_CASE("any range can be read, by any thread") {
    const auto file = open_tensor_file(golden("everything.safetensors"));
    for (std::size_t i = 0; i < file->tensors().size(); ++i) {
        REQUIRE(file->random_access(i));
        const std::string all = tensor_bytes(*file, i);
        const auto unit = static_cast<std::size_t>(info(file->tensors()[i].dtype).unit_bytes());
        for (std::size_t begin = 0; begin <= all.size(); begin += unit) {
            std::string part(std::min<std::size_t>(2 * unit, all.size() - begin), '\0');
            file->read_at(i, begin, std::as_writable_bytes(std::span(part)));
            CHECK(part == all.substr(begin, part.size()));
        }
    }
}
