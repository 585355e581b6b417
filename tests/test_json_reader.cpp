// The only reader of JSON and of text: what it accepts beyond JSON, and the limits that stop hostile files.
#include "io_files.h"

#include <ampscope/sim/io/json_reader.h>

#include <doctest/doctest.h>

#include <cmath>
#include <thread>

using namespace amp;
using namespace amp::test;

namespace {

using Json = nlohmann::ordered_json;

Json parsed(std::string_view text) { return parse_json(text, "x.json"); }

/// The message without the file's name; empty if there is no error.
template <class Body>
std::string error_of(const Body& body) {
    try {
        body();
    } catch (const FileError& error) {
        return error.what();
    }
    return {};
}

std::string refusal(std::string_view text, Nonfinite nonfinite = Nonfinite::accepted) {
    return error_of([&] { parse_json(text, "x.json", "line 3, ", nonfinite); });
}

std::string nested(std::size_t levels, std::string_view open, std::string_view close) {
    std::string text;
    for (std::size_t i = 0; i < levels; ++i) text += open;
    text += "1";
    for (std::size_t i = 0; i < levels; ++i) text += close;
    return text;
}

} // namespace

TEST_CASE("what is JSON is read as nlohmann's own builder reads it") {
    std::string many = "{";
    for (int i = 0; i < 100; ++i) many += "\"k" + std::to_string(i % 60) + "\":" + std::to_string(i) + ",";
    many += "\"last\":{}}"; // 40 keys occur twice: the last one counts
    for (const std::string& text :
         {std::string("null"), std::string(" [1, -2, 3.5, 1e300, true, false, null, \"a\\u00e9\\n\", {}, []] "),
          std::string(R"({"b":1,"a":{"c":[{"d":[[]]}]},"b":2})"), std::string("18446744073709551615"), many}) {
        CAPTURE(text);
        CHECK(parsed(text) == Json::parse(text));
        CHECK(parsed(text).dump() == Json::parse(text).dump());
    }
}

TEST_CASE("numbers that are not finite, as Python's json.dumps and printf write them") {
    const Json json = parsed(
        R"({"a": NaN, "b":Infinity,"c": -Infinity, "s": "NaN, Infinity \" NaN", "d": [1, nan, -inf,NaN ], "e": 1e999,)"
        R"( "NaN": 2, "f": null, "g": true, "h": -1e-999})");
    CHECK(std::isnan(json["a"].get<double>()));
    CHECK(json["b"].get<double>() == HUGE_VAL);
    CHECK(json["c"].get<double>() == -HUGE_VAL);
    CHECK(json["s"] == "NaN, Infinity \" NaN");
    CHECK(json["d"][0] == 1);
    CHECK(std::isnan(json["d"][1].get<double>()));
    CHECK(json["d"][2].get<double>() == -HUGE_VAL);
    CHECK(std::isnan(json["d"][3].get<double>()));
    CHECK(json["e"].get<double>() == HUGE_VAL);
    CHECK(json["NaN"] == 2);
    CHECK(json["f"].is_null());
    CHECK(json["g"] == true);
    CHECK(json["h"].get<double>() == 0);
    CHECK(std::isnan(parsed("NaN").get<double>()));
    CHECK(parsed("\xef\xbb\xbf[7, Infinity]")[0] == 7); // the byte order mark is not a word
    CHECK(refusal(R"({"a": NaN})", Nonfinite::refused) == "x.json: line 3, byte 6: the JSON is broken here");
    CHECK(refusal("[1e999]", Nonfinite::refused).ends_with("this number is beyond FP64"));
    for (const char* text : {R"({"a": NaNa})", R"({NaN: 1})", "[NaN", "[NaN NaN]", "[-]", "[\"NaN]", "Nan,", ""})
        CHECK(refusal(text).starts_with("x.json: line 3, byte "));
}

TEST_CASE("limits: levels, values, bytes") {
    for (const char* open : {"[", "{\"a\":"}) {
        const char* close = *open == '[' ? "]" : "}";
        CHECK(refusal(nested(deepest_json, open, close)).empty());
        const std::string too_deep = "x.json: line 3, byte " +
                                     std::to_string(deepest_json * std::string_view(open).size()) +
                                     ": more than 100 levels of JSON";
        CHECK(refusal(nested(deepest_json + 1, open, close)) == too_deep);
        CHECK(refusal(nested(100'000, open, close)) == too_deep);
        CHECK(refusal(nested(100'000, open, "")) == too_deep);
    }
    std::string values = "[0";
    while (values.size() < 2 * most_json_values - 2) values += ",0";
    CHECK(refusal(values + "]").empty());
    CHECK(refusal(values + ",0]").find("more than 1048576 values") != std::string::npos);
    CHECK(refusal("\"" + std::string(longest_json, 'x') + "\"").find("more than 16 MiB") != std::string::npos);
    // Keys are looked up in an index: 400,000 of them take seconds, not hours.
    std::string keys = "{";
    for (int i = 0; i < 400'000; ++i) keys += "\"" + std::to_string(i) + "\":0,";
    CHECK(parsed(keys + "\"last\":1}").size() == 400'001);
}

TEST_CASE("the head of a line") {
    const std::array<std::string_view, 2> keys = {"step", "tensor"};
    const auto head = [&](std::string_view text) { return parse_json_head(text, keys, "x.json"); };
    CHECK(head(R"({"step":3,"tensor":"w","rows":{"broken)")["step"] == 3);
    CHECK(head(R"({"rows":{"step":1,"tensor":2},"tensor":"w","step":3})")["step"] == 3);
    CHECK(head(R"([1])").is_array());
    CHECK_THROWS_AS(head(R"({"step":3,"tens)"), FileError);
    std::string wide = "{"; // for large objects keys are looked up in an index
    for (int i = 0; i < 500'000; ++i) wide += "\"" + std::to_string(i) + "\":0,";
    const auto begin = std::chrono::steady_clock::now();
    CHECK(head(wide + R"("tensor":"w","step":3,)")["step"] == 3);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

TEST_CASE("elements of a long document, one at a time") {
    const Scratch scratch;
    std::string text = R"({"kind":"k","tensors":[)";
    for (int i = 0; i < 1000; ++i)
        text += (i > 0 ? ",{\"n\":" : "{\"n\":") + std::to_string(i) + ",\"v\":[" + std::string(5000, ' ') + "[1]]}";
    text += R"(],"gates":[{"g":1}],"errors":["e"],"total":{"a":[[2]]}})"; // 5 MB
    int next = 0, gates = 0;
    const Json rest = read_json_elements(write_file(scratch / "a.json", text),
                                         [&](std::string_view array, const Json& element, const Json& document) {
                                             CHECK(document["kind"] == "k");
                                             if (array == "gates") ++gates;
                                             if (array == "tensors" && element["n"] == next) ++next;
                                         });
    CHECK(next == 1000);
    CHECK(gates == 1);
    CHECK(rest.dump() == R"({"kind":"k","tensors":[],"gates":[],"errors":["e"],"total":{"a":[[2]]}})");
    const auto none = [](std::string_view, const Json&, const Json&) {};
    write_file(scratch / "b.json", R"({"tensors":[{"a":")" + std::string(longest_json + (1 << 17), 'x') + "\"}]}");
    CHECK(error_of([&] { read_json_elements(scratch / "b.json", none); }).find("larger than 16 MiB") !=
          std::string::npos);
    write_file(scratch / "c.json", R"({"tensors":[{"a":1},{"a":])");
    CHECK(
        error_of([&] { read_json_elements(scratch / "c.json", none); }).ends_with("byte 25: the JSON is broken here"));
    write_file(scratch / "twice.json", R"({"tensors":[{"a":1}],"x":1,"x":2,"tensors":[{"a":2}]})");
    CHECK(error_of([&] { read_json_elements(scratch / "twice.json", none); }).find("'tensors' comes a second time") !=
          std::string::npos);
    // What lies between elements is kept, so the limits apply to its total.
    std::string between;
    for (int i = 0; i < 600'000; ++i) between += "0,";
    write_file(scratch / "d.json", R"({"x":[)" + between + "{}," + between + "{}]}");
    CHECK(error_of([&] { read_json_elements(scratch / "d.json", none); }).find("more than 1048576 values") !=
          std::string::npos);
    const std::string long_text = "\"" + std::string(longest_json - 100, 'x') + "\"";
    write_file(scratch / "e.json", R"({"x":[)" + long_text + ",{}," + long_text + ",{}]}");
    CHECK(error_of([&] { read_json_elements(scratch / "e.json", none); }).find("more than 16 MiB") !=
          std::string::npos);
}

TEST_CASE("text comes out of regular files, and out of pipes where they will do") {
    const Scratch scratch;
    const auto lines = [](TextFile& in) {
        std::vector<std::string> all;
        for (std::string line; in.next_line(line);) all.push_back(line);
        return all;
    };
    const auto lines_of_file = [&](const std::string& text) {
        TextFile in(write_file(scratch / "a.txt", text));
        return lines(in);
    };
    CHECK(lines_of_file("").empty());
    CHECK(lines_of_file("a\n\nb") == std::vector<std::string>{"a", "", "b"});
    CHECK(lines_of_file("a\n\nb\n") == std::vector<std::string>{"a", "", "b"});
    const std::string wide(200'000, 'x'); // more than the buffer holds
    CHECK(lines_of_file(wide + "\n" + wide) == std::vector<std::string>{wide, wide});
    write_file(scratch / "long.txt", "a\n" + std::string(longest_line + 1, 'x') + "\n");
    TextFile long_line(scratch / "long.txt");
    CHECK(error_of([&] { lines(long_line); }).ends_with("long.txt: line 2 is longer than 16 MiB"));

    const fs::path pipe = scratch / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    fs::create_symlink("nowhere", scratch / "link");
    const auto opening = [](const fs::path& path, Pipe kind) { return error_of([&] { TextFile in(path, kind); }); };
    // and does not wait for it
    CHECK(opening(pipe, Pipe::refused).ends_with("pipe: is a pipe, not a regular file"));
    CHECK(opening(pipe, Pipe::accepted).ends_with("is a pipe that no program has opened for writing in 3 seconds"));
    CHECK(opening("/dev/zero", Pipe::accepted) == "/dev/zero: is a device, not a regular file");
    CHECK(opening(scratch.folder(), Pipe::accepted).ends_with("is a folder, not a file"));
    CHECK(opening(scratch / "link", Pipe::accepted).ends_with("cannot be read: No such file or directory"));
    CHECK(is_there(scratch / "link"));
    CHECK(!is_there(scratch / "nothing"));
    std::jthread writer([&] { write_file(pipe, "{\"a\":\n1}\n"); });
    TextFile in(pipe, Pipe::accepted);
    CHECK(lines(in) == std::vector<std::string>{"{\"a\":", "1}"});
    std::jthread slow([&] {
        std::ofstream out(pipe);
        std::this_thread::sleep_for(std::chrono::milliseconds(100)); // opened, but silent for a while
        out << "late\n";
    });
    TextFile late(pipe, Pipe::accepted);
    CHECK(lines(late) == std::vector<std::string>{"late"});
}
