// JSON reports of amp-histogram: merging under every rounding, and their text for numbers that they cannot hold; names
// in reports and in errors.
#include "histogram_tool.h"
#include "recorded_files.h"

#include <ampscope/sim/program/precision.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

using namespace amp;
using namespace amp::test;
using nlohmann::json;

namespace {

/// Joins each wrapped paragraph to one line.
std::string unwrapped(std::string text) {
    for (std::size_t at = 0; (at = text.find("\n  ", at)) != std::string::npos;) text.replace(at, 3, " ");
    return text;
}

} // namespace

TEST_CASE("merging the reports of two runs is one run, byte for byte") {
    const Scratch scratch;
    const std::string a = (scratch / "a.json").string(), b = (scratch / "b.json").string();
    for (const std::string options : {"", "--by step --scale 2^10", "--scale 3.5 --rounding up --error --block 32",
                                      "--rounding stochastic", "--rounding to_odd --flush-subnormals"}) {
        CAPTURE(options);
        const std::string extra = std::string(" ") + options;
        REQUIRE(run(sample(sample_files[0]) + extra + " --json " + a).code == 0);
        REQUIRE(run(sample(sample_files[2]) + extra + " --json " + b).code == 0);
        const Outcome both = run(sample(sample_files[0]) + " " + sample(sample_files[2]) + extra + " --json -");
        const Outcome merged = run("--merge " + a + " " + b + extra + " --json -");
        CHECK(merged.code == 0);
        CHECK(merged.out == both.out);
        CHECK(run("--merge " + a + " " + b + " " + a + extra + " --json -").out == both.out); // counted once
    }
    // A report whose numbers contradict each other is refused.
    const std::string good = read_file(a);
    for (const auto& [from, to] :
         std::vector<std::pair<std::string, std::string>>{{"\"recorded_scale\": 1", "\"recorded_scale\": -5"},
                                                          {"\"kind\": \"weight_gradient\"", "\"kind\": \"banana\""},
                                                          {"\"max\": ", "\"max\": -"}}) {
        std::string bad = good;
        const std::size_t at = bad.find(from);
        REQUIRE(at != std::string::npos);
        write_file(scratch / "bad.json", bad.replace(at, from.size(), to));
        CHECK(run("--merge " + (scratch / "bad.json").string()).code == 1);
    }
    const Outcome lacking = run("--merge " + a + " " + b + " --rounding up --scale 5");
    CHECK(lacking.code == 1);
    CHECK(lacking.err.find("cannot merge") != std::string::npos);
    write_file(scratch / "c.json", R"({"schema_version":1,"tool":"amp-histogram","tensors":7})");
    CHECK(run("--merge " + (scratch / "c.json").string()).code == 1);
}

TEST_CASE("what is too much for a report is refused in little memory") {
    const Scratch scratch;
    std::string wide = R"({"tool":"amp-histogram","total":{"a":[)";
    while (wide.size() < std::size_t{12} << 20) wide += "[],[],[],[],[],[],[],[],";
    const std::string path = write_file(scratch / "wide.json", wide).string();
    const Outcome o = run("--merge " + path, "ulimit -v 300000; ");
    CHECK(o.code == 1);
    CHECK(contains(o.err, path + ": byte "));
    CHECK(contains(o.err, ": more than 1048576 values"));
}

TEST_CASE("blocks by columns of long rows take the memory of their numbers" * doctest::skip(!memory_is_limited)) {
    const Scratch scratch;
    const std::string path = (scratch / "zeros.bin").string();
    REQUIRE(std::system(("truncate -s 8M " + path).c_str()) == 0);
    // Each column of a row is a block; all of them at once would take 340 MB.
    for (const char* const shape : {"2097152", "2x1048576"}) {
        const Outcome o =
            run(path + " --dtype f32 --shape " + shape +
                    " --threads 1 --recipe te-nvfp4,column --recipe nvfp4-plain,column,upper=line --json -",
                "ulimit -v 120000;");
        CAPTURE(o.err);
        CHECK(o.code == 0);
        const json recipes = json::parse(o.out)["total"]["recipes"];
        CHECK(recipes["te-nvfp4,column"]["elements"] == 1 << 21);
        CHECK(recipes["nvfp4-plain,column,upper=line"]["elements"] == 1 << 21);
    }
}

TEST_CASE("a table is written as it is made, in the memory of the tensors" * doctest::skip(!memory_is_limited)) {
    const Scratch scratch;
    json header;
    for (int i = 0; i < 3000; ++i)
        header["t" + std::to_string(i)] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
    const std::string text = header.dump(), path = (scratch / (std::string(200, 'n') + ".safetensors")).string();
    write_file(path, little_endian(text.size(), 8) + text);
    const std::string table = (scratch / "o.csv").string();
    const Outcome o = run(path + " --scale=-4:4 --threads 1 --csv " + table, "ulimit -v 120000;");
    CAPTURE(o.err);
    CHECK(o.code == 0);
    CHECK(fs::file_size(table) > 100 << 20);
}

TEST_CASE("every report holds the counts at the recommended scale, rounded as asked for") {
    for (const std::string options :
         {"", "--rounding nearest_away", "--rounding toward_zero", "--rounding up", "--rounding down",
          "--rounding to_odd", "--rounding stochastic", "--rounding up --flush-subnormals --limit 0.2"}) {
        CAPTURE(options);
        const json report = json::parse(run(sample("deep_tanh") + " --format fp16 --json - --by layer " + options).out);
        std::vector<json> items = {report["total"]};
        for (const char* list : {"tensors", "groups"})
            items.insert(items.end(), report[list].begin(), report[list].end());
        std::size_t recommended = 0;
        for (const json& item : items) {
            const json& fp16 = item["formats"]["fp16"];
            if (fp16["recommended_log2_scale"].is_null()) continue;
            ++recommended;
            json counts;
            for (const json& at : fp16["scales"])
                if (at["log2"] == fp16["recommended_log2_scale"]) counts = at;
            if (options == "--rounding stochastic") counts = fp16["recommended_at_most"];
            REQUIRE(counts.is_object());
            CHECK(counts["overflow"] == 0);
            const double nonzero = item["count"].get<double>() - item["zero"].get<double>();
            const int low = fp16["window_log2"][0], high = fp16["window_log2"][1], k = fp16["recommended_log2_scale"];
            CHECK(k <= high);
            if (low <= k) CHECK(counts["underflow"].get<double>() < report["limit"].get<double>() * nonzero);
        }
        CHECK(recommended > 50);
    }
}

TEST_CASE("--hardware counts as the hardware that will read the numbers takes subnormals") {
    const Scratch scratch;
    const std::string file = (scratch / "x.safetensors").string();
    write_floats(file, "x", {0x1.8p-20F, -0x1p-24F, 0x1p-14F, 1, 0}); // two subnormals of FP16
    const auto report_of = [&](const std::string& options) {
        const Outcome outcome = run(file + " --format fp16 --json - " + options);
        CAPTURE(options);
        REQUIRE(outcome.code == 0);
        return outcome.out;
    };
    // AMD's CDNA2 (MI200 ISA) and Intel's VDPBF16PS and TDPBF16PS take subnormal operands for zero.
    const std::map<std::string, bool> flushing = {
        {"volta", false},     {"turing", false}, {"ampere", false}, {"ada", false},   {"hopper", false},
        {"blackwell", false}, {"cdna2", true},   {"cdna3", false},  {"avx512", true}, {"amx", true}};
    for (const auto& row : flushing) {
        const std::string& name = row.first;
        const bool flushes = row.second;
        CAPTURE(name);
        const std::string text = report_of("--hardware " + name);
        CHECK(text == report_of(flushes ? "--flush-subnormals" : ""));
        const json report = json::parse(text);
        CHECK(report["counting"]["flush_subnormals"] == flushes);
        CHECK(report["total"]["formats"]["fp16"]["scales"][0]["underflow"] == (flushes ? 2 : 0));
        CHECK((run(file + " --format fp16 --hardware " + name).out.find("subnormals flushed to zero") !=
               std::string::npos) == flushes);
    }
    CHECK(report_of("--hardware volta --flush-subnormals") == report_of("--flush-subnormals"));
    const Outcome unknown = run(file + " --hardware cdna9");
    CHECK(unknown.code == 2);
    CHECK(unknown.err.find("unknown hardware 'cdna9'; known: ") != std::string::npos);
    for (const auto& row : flushing) CHECK(unknown.err.find(row.first) != std::string::npos);
}

TEST_CASE("the report, its advice and its picture follow the rounding and the flushing") {
    const Scratch scratch;
    const std::string file = (scratch / "x.safetensors").string();
    write_floats(file, "x", std::vector<float>(10, 0x1.8p-20f)); // subnormal in FP16
    const auto text = [&](const std::string& options) {
        return unwrapped(run(file + " --format fp16 " + options).out);
    };
    const auto says = [&](const std::string& options, const std::string& what) {
        CAPTURE(options);
        CHECK_MESSAGE(text(options).find(what) != std::string::npos, text(options));
    };
    says("", "nothing becomes zero or overflows unscaled; no loss scale needed.");
    says("--flush-subnormals", "100 % of non-zero gradients become zero unscaled; 2^6 ... 2^35");
    says("--flush-subnormals", "2^33*");
    says("--flush-subnormals", "subnormals flushed to zero. Underflow");
    says("--flush-subnormals", "zones: nearest-even, subnormals flushed");
    says("--rounding toward_zero", "zones: toward-zero");
    CHECK(text("").find("zones:") == std::string::npos);
    CHECK(text("--flush-subnormals --svg -").find("safe scales 2⁶ to 2³⁵; recommended 2³³") != std::string::npos);
    CHECK(text("--svg -").find("needs no scaling") != std::string::npos);
    CHECK(text("--svg - --flush-subnormals").find("(nearest-even, subnormals flushed, scale 1)") != std::string::npos);

    CHECK(text("--svg -").find("loses and saves<") != std::string::npos);
    CHECK(text("--svg - --rounding stochastic").find("saves (stochastic, the worst the random bits can do)<") !=
          std::string::npos);
    CHECK(text("--svg - --rounding up --flush-subnormals").find("saves (up, subnormals flushed)<") !=
          std::string::npos);

    write_floats(file, "x", std::vector<float>(10, 0x1.8p-26f)); // rounds to zero or to FP16's smallest value
    says("", "100 % of non-zero gradients become zero unscaled; 2^1 ... 2^41");
    says("--rounding up", "nothing becomes zero or overflows unscaled; no loss scale needed.");
    says("--rounding toward_zero", "2^2 ... 2^41 lose under 0.1 %");
    says("--rounding stochastic", "62.5 % of non-zero gradients become zero unscaled; 2^2 ... 2^41 lose "
                                  "under 0.1 % and overflow nowhere whatever the random bits; x sets the upper end. "
                                  "Recommended: 2^39, which loses up to 0 %.");
}

TEST_CASE("the page says what the terminal says") {
    const Scratch scratch;
    const std::string file = (scratch / "<b>.safetensors").string();
    write_floats(file, "<i>x</i>", {0x1.8p-26f, 0x1p-26f, 1, -1, 0, 65520});
    const std::string page = run("'" + file + "' --format fp16 --scale 4 --html -").out;
    for (const char* part :
         {"<strong>FP16:</strong> 40.0 % of non-zero gradients become zero and 20.0 % overflow unscaled",
          "1 tensor in 1 file, 6 elements: zero 16.7 % (1), NaN 0, infinite 0", "&lt;i&gt;x&lt;/i&gt;", "underflow",
          "<svg xmlns",
          R"(<td data-v="0">1 </td><td data-v="2">2</td><td data-v="0.4">40.0 %</td><td data-v="0">0</td>)"
          R"(<td data-v="0">0 %</td><td data-v="1">1</td><td data-v="0.2">20.0 %</td>)", // at scale 1
          R"(<td data-v="2">2<sup>2</sup> </td><td data-v="0">0</td><td data-v="0">0 %</td><td data-v="2">2</td>)"}) {
        CAPTURE(part);
        CHECK(page.find(part) != std::string::npos);
    }
    CHECK(page.find("<i>") == std::string::npos);
    CHECK(page.find("<b>") == std::string::npos);
    CHECK(page.find(run_command("sha256sum '" + file + "'").out.substr(0, 64)) != std::string::npos);
}

TEST_CASE("a window beyond 2^126 is told, and nothing outside of it recommended") {
    const Scratch scratch;
    const double tiny = 0x1p-160;
    write_file(scratch / "x.bin", std::string(reinterpret_cast<const char*>(&tiny), sizeof tiny));
    const std::string file = (scratch / "x.bin").string() + " --dtype f64 --format fp16";
    CHECK(unwrapped(run(file).out).find("None is recommended: all are beyond 2^126") != std::string::npos);
    const json fp16 = json::parse(run(file + " --json -").out)["total"]["formats"]["fp16"];
    CHECK(fp16["window_log2"] == json{136, 175});
    CHECK(fp16["recommended_log2_scale"].is_null());
    CHECK(run(file + " --svg -").out.find("safe scales 2¹³⁶ to 2¹⁷⁵; none recommended") != std::string::npos);
}

TEST_CASE("sums that FP64 cannot hold are explained") {
    const Scratch scratch;
    const auto total = [&](const std::vector<double>& values) {
        write_file(scratch / "x.bin", std::string(reinterpret_cast<const char*>(values.data()), values.size() * 8));
        return json::parse(run((scratch / "x.bin").string() + " --dtype f64 --json -").out)["total"];
    };
    CHECK(!total({1, 1e-200}).contains("sums_note"));
    CHECK(!total({0}).contains("sums_note"));
    const json small = total({1e-200, 1e-200}), large = total({1e200}), largest = total({1e308, 1e308});
    CHECK(small["sum_absolute"] == 2e-200);
    CHECK(small["sum_squares"] == 0.0);
    CHECK(small["sums_note"].get<std::string>().starts_with("sum_squares is too small or 0"));
    CHECK(large["sum_squares"].is_null());
    CHECK(large["sums_note"] == "sum_squares is null: beyond FP64's largest value");
    CHECK(largest["sum_absolute"].is_null());
    CHECK(largest["sums_note"] == "sum_absolute and sum_squares are null: beyond FP64's largest value");
}

TEST_CASE("the name of a precision is no recipe, but the error says which recipe it trains with") {
    for (const auto& [precision, recipe] :
         {std::pair{"mxfp8", "te-mxfp8"}, {"fp8-delayed", "te-delayed"}, {"nvfp4", "te-nvfp4"}}) {
        const Outcome named = run(sample("digits_cnn") + " --recipe " + precision + ",column");
        CHECK(named.code == 2);
        const std::string told = fmt::format("'{0}' is a precision, not a scaling recipe; did you mean {1}, the recipe "
                                             "that {0} trains with?",
                                             precision, recipe);
        CHECK(named.err.find(told) != std::string::npos);
    }
    for (const PrecisionRow& row : precisions()) { // the relation that the error tells is the one that training uses
        const Precision precision = row.make();
        CAPTURE(row.name);
        REQUIRE(precision.scaling.has_value() == (recipe_of_precision(row.name) != nullptr));
        if (precision.scaling) CHECK(precision.scaling->name == recipe_of_precision(row.name)->name);
    }
    CHECK(run(sample("digits_cnn") + " --recipe amp-bf16") // a precision without a recipe
              .err.find("unknown scaling recipe 'amp-bf16'; known: te-delayed") != std::string::npos);
}

TEST_CASE("tables name tensors so that the name can be pasted, and nothing joins one tensor to the next") {
    const Scratch scratch;
    const std::string name = "model.layers.10.self_attn.q_proj.weight.grad"; // 44 columns
    std::vector<float> values(64);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(1.0F, -static_cast<int>(i));
    save(scratch / "run/step_000001.safetensors",
         {{name, values}, {"a.weight.grad", values}, {"b.weight.grad", values}}, {{"step", "1"}, {"loss_scale", "1"}});
    const std::string folder = (scratch / "run").string(), page = (scratch / "page.html").string();
    const std::string formats = " --format fp16,bf16,e4m3,e5m2,tf32,fp32,e3m2";
    const std::string out = run(folder + formats + " --recipe te-mxfp8 --html " + page).out;
    const std::size_t table = out.find("Non-zero elements that become zero at scale 1");
    REQUIRE(table != std::string::npos);
    const std::size_t caption = out.find("Under each format:", table);
    CHECK(caption != std::string::npos);
    CHECK(out.substr(table, caption - table).find("\n" + name + " ") != std::string::npos);
    const Outcome selected = run(folder + " --tensor " + name + " --json -");
    CHECK(nlohmann::json::parse(selected.out)["tensors"].size() == 1);
    const std::string html = read_file(page);
    const std::size_t figure = html.find("What recipes leave of each tensor");
    REQUIRE(figure != std::string::npos);
    const std::size_t path = html.find("class=\"series series-0\"", figure);
    REQUIRE(path != std::string::npos);
    const std::string drawn = html.substr(html.rfind('<', path), html.find("</path>", path) - html.rfind('<', path));
    CAPTURE(drawn);
    CHECK(drawn.find('L') == std::string::npos);
    std::size_t bars = 0; // one for each tensor
    for (std::size_t at = drawn.find("h4"); at != std::string::npos; at = drawn.find("h4", at + 1)) ++bars;
    CHECK(bars == 3);
}
