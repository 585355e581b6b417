// The real amp-histogram, run as its users run it. The golden terminal output is rewritten by
//   AMPSCOPE_UPDATE_GOLDEN=1 ctest --preset default -R histogram_tool
#include "histogram_tool.h"

#include <ampscope/sim/base/text.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace amp;
using namespace amp::test;
using nlohmann::json;

namespace {

/// The tensors of an F32 safetensors file, read without the project's readers.
std::map<std::string, std::vector<float>> read_floats(const std::string& path) {
    const std::string bytes = read_file(path);
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    std::map<std::string, std::vector<float>> tensors;
    const json entries = json::parse(bytes.substr(8, header));
    for (const auto& [name, entry] : entries.items()) {
        if (name == "__metadata__") continue;
        const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
        std::vector<float>& values = tensors[name];
        values.resize((end - begin) / 4);
        std::memcpy(values.data(), bytes.data() + 8 + header + begin, end - begin);
    }
    return tensors;
}

/// Classifies x * scale as underflow, subnormal, normal or overflow, by rounding to a multiple of the last place in
/// FP64.
struct Brute {
    const char* name;
    int min_exponent, fraction_bits;
    double max;
    [[nodiscard]] std::array<std::uint64_t, 4> count(const std::vector<float>& values, double scale) const {
        std::array<std::uint64_t, 4> counts{};
        for (const float x : values) {
            const double v = std::abs(static_cast<double>(x)) * scale; // exact: 24 and at most 2 bits
            if (v == 0 || !std::isfinite(v)) continue;
            const int place = std::max(std::ilogb(v), min_exponent) - fraction_bits;
            const double r = std::ldexp(std::nearbyint(std::ldexp(v, -place)), place);
            ++counts[r == 0 ? 0 : r > max ? 3 : r < std::ldexp(1.0, min_exponent) ? 1 : 2];
        }
        return counts;
    }
};
constexpr std::array brutes = {Brute{"fp16", -14, 10, 65504}, Brute{"bf16", -126, 7, 0x1.fep127},
                               Brute{"e4m3", -6, 3, 448}, Brute{"e5m2", -14, 2, 57344}};

std::array<std::uint64_t, 4> counts_of(const json& at) {
    return {at["underflow"], at["subnormal"], at["normal"], at["overflow"]};
}

/// The tool's output to a terminal (a pseudo-terminal here); std::nullopt if the system has none (/dev/pts).
std::optional<std::string> run_on_terminal(bool no_color) {
    int master = -1;
    const pid_t child = forkpty(&master, nullptr, nullptr, nullptr);
    if (child < 0) return std::nullopt;
    if (child == 0) {
        setenv("TERM", "xterm", 1);
        if (no_color) setenv("NO_COLOR", "1", 1);
        else unsetenv("NO_COLOR");
        execl(AMP_HISTOGRAM, "amp-histogram", sample(sample_files[0]).c_str(), static_cast<char*>(nullptr));
        _exit(127);
    }
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t n = 0; (n = read(master, buffer.data(), buffer.size())) > 0;)
        text.append(buffer.data(), static_cast<std::size_t>(n));
    close(master);
    waitpid(child, nullptr, 0);
    return text;
}

} // namespace

TEST_CASE("without arguments: the sample gradients, in 80 plain columns, as recorded in the golden file") {
    const Outcome outcome = run("");
    CHECK(outcome.code == 0);
    CHECK(outcome.err.find("no PATH given: reading the sample gradients in") != std::string::npos);
    for (const std::string& line : lines_of(outcome.out)) {
        CAPTURE(line);
        CHECK(width(line) <= 80);
        CHECK(line.find('\x1b') == std::string::npos);
    }
    const std::string golden = std::string(AMPSCOPE_TEST_DATA) + "/amp-histogram.txt";
    if (std::getenv("AMPSCOPE_UPDATE_GOLDEN") != nullptr) write_file(golden, outcome.out);
    CHECK(outcome.out == read_file(golden));
}

TEST_CASE("counts equal a brute-force cast of every element") {
    std::uint64_t cases = 0, mismatches = 0;
    for (const std::string& file : sample_files) {
        const auto tensors = read_floats(sample(file));
        const Outcome outcome = run(sample(file) + " --json - --scale 2^10,3.5,2^24");
        REQUIRE(outcome.code == 0);
        const json report = json::parse(outcome.out);
        CHECK(report["schema_version"] == 2);
        CHECK(report["tensors"].size() == tensors.size());
        for (const json& tensor : report["tensors"]) {
            const std::vector<float>& values = tensors.at(tensor["name"]);
            CHECK(tensor["count"] == values.size());
            CHECK(tensor["zero"] == std::count(values.begin(), values.end(), 0.0f));
            std::uint64_t sum = 0;
            for (const auto& [exponent, n] : tensor["exponents"].items()) {
                const int e = std::stoi(exponent);
                CHECK(n == std::count_if(values.begin(), values.end(),
                                         [&](float x) { return x != 0 && std::ilogb(x) == e; }));
                sum += n.get<std::uint64_t>();
            }
            CHECK(sum + tensor["zero"].get<std::uint64_t>() == values.size());
            for (const Brute& brute : brutes)
                for (const json& at : tensor["formats"][brute.name]["scales"]) {
                    ++cases;
                    mismatches += counts_of(at) == brute.count(values, at["scale"]) ? 0 : 1;
                }
        }
    }
    std::printf(
        "proof: amp-histogram against a brute-force cast, tensors x formats x scales: %llu cases, %llu mismatches\n",
        static_cast<unsigned long long>(cases), static_cast<unsigned long long>(mismatches));
    CHECK(cases > 1000);
    CHECK(mismatches == 0);
}

TEST_CASE("the recommended scale loses less than the limit and overflows nowhere, also by brute force") {
    std::vector<float> all;
    const auto tensors = read_floats(sample(sample_files[2]));
    for (const auto& [name, values] : tensors) all.insert(all.end(), values.begin(), values.end());
    const json total = json::parse(run(sample(sample_files[2]) + " --json -").out)["total"];
    const json& fp16 = total["formats"]["fp16"];
    const auto nonzero = static_cast<double>(total["count"].get<std::uint64_t>() - total["zero"].get<std::uint64_t>());
    const auto lost = [&](int k) { return static_cast<double>(brutes[0].count(all, std::ldexp(1.0, k))[0]) / nonzero; };
    const auto overflows = [&](int k) { return brutes[0].count(all, std::ldexp(1.0, k))[3]; };
    const int low = fp16["window_log2"][0], high = fp16["window_log2"][1], best = fp16["recommended_log2_scale"];
    CHECK(lost(low) < 0.001);
    CHECK(lost(low - 1) >= 0.001);
    CHECK(overflows(high) == 0);
    CHECK(overflows(high + 1) > 0);
    CHECK(best == high - 2);
}

TEST_CASE("CSV and JSON say the same, and every tensor's classes sum to its elements") {
    const Scratch scratch;
    const std::string files = "--json " + (scratch / "a.json").string() + " --csv " + (scratch / "a.csv").string();
    REQUIRE(run(sample("deep_tanh") + " --scale 0:2 " + files).code == 0);
    const json report = json::parse(read_file(scratch / "a.json"));
    std::map<std::string, std::uint64_t> csv; // file,tensor,step,kind,format,scale,class -> count
    const std::vector<std::string> lines = lines_of(read_file(scratch / "a.csv"));
    CHECK(lines[0] == "file,tensor,step,kind,format,scale,class,count\r");
    for (std::size_t i = 1; i < lines.size(); ++i) {
        const std::size_t comma = lines[i].rfind(',');
        csv[lines[i].substr(0, comma)] = std::stoull(lines[i].substr(comma + 1));
    }
    CHECK(csv.size() == lines.size() - 1);
    std::size_t matched = 0;
    for (const json& tensor : report["tensors"]) {
        const std::string subject = tensor["file"].get<std::string>() + "," + tensor["name"].get<std::string>() + "," +
                                    std::to_string(tensor["step"].get<int>()) + "," +
                                    tensor["kind"].get<std::string>() + ",";
        std::uint64_t others = 0;
        for (const char* key : {"nan", "inf", "zero"}) {
            CHECK(csv.at(subject + ",," + key) == tensor[key]);
            others += tensor[key].get<std::uint64_t>();
            ++matched;
        }
        for (const auto& [format, result] : tensor["formats"].items())
            for (const json& at : result["scales"]) {
                std::uint64_t sum = others;
                for (const char* key : {"underflow", "subnormal", "normal", "overflow"}) {
                    CHECK(csv.at(subject + format + "," + std::to_string(at["scale"].get<std::uint64_t>()) + "," +
                                 key) == at[key]);
                    sum += at[key].get<std::uint64_t>();
                    ++matched;
                }
                CHECK(sum == tensor["count"]);
            }
    }
    CHECK(matched == csv.size());
}

TEST_CASE("the same bytes whatever the number of threads") {
    for (const std::string options :
         {"--json -", "--csv -", "--svg -", "", "--json - --error --block 32 --scale 3.5 --recorded-scale 1000"}) {
        const std::string one = run(sample("digits_cnn") + " --threads 1 " + options).out;
        CHECK(one.size() > 1000);
        CHECK(run(sample("digits_cnn") + " --threads 2 " + options).out == one);
        CHECK(run(sample("digits_cnn") + " --threads 5 " + options).out == one);
    }
}

TEST_CASE("wrong usage is 2 and says what is wrong") {
    for (const std::string wrong : {"--nonsense",
                                    "--format fp17",
                                    "--format e8m0",
                                    "--scale 2^x",
                                    "--scale 5:1",
                                    "--scale 0",
                                    "--gate 'fp16.under<1%'",
                                    "--by colour",
                                    "--threads -1",
                                    "--rounding best",
                                    "--overflow never",
                                    "--limit 0",
                                    "--step x",
                                    "--tensor '('",
                                    "--dtype f99",
                                    "--shape 3xx",
                                    "--json - --csv -",
                                    "--margin",
                                    "--worst -3",
                                    "--block 0",
                                    "--merge"}) {
        CAPTURE(wrong);
        const Outcome outcome = run(wrong);
        CHECK(outcome.code == 2);
        CHECK(outcome.out.empty());
        CHECK(!outcome.err.empty());
    }
    CHECK(run("--gate 'fp16.under<1%'").err.find("gate 'fp16.under<1%', character 6: expected a class") !=
          std::string::npos);
    CHECK(run("--help").code == 0);
    CHECK(run("--help").out.find("Examples:") != std::string::npos);
    CHECK(run("--version").out == "amp-histogram " AMPSCOPE_VERSION "\n");
}

TEST_CASE("a bad file is one line and exit 1; the other files are still reported") {
    const Scratch scratch;
    const std::string whole = read_file(sample(sample_files[0]));
    write_file(scratch / "cut.safetensors", whole.substr(0, whole.size() / 2));
    write_file(scratch / "empty.npy", "");
    write_file(scratch / "text.npz", "not a zip");
    const std::string none = (scratch / "none.pt").string();
    const Outcome outcome = run(scratch.folder().string() + " " + none + " " + sample(sample_files[0]) + " --json -");
    CHECK(outcome.code == 1);
    CHECK(lines_of(outcome.err).size() == 4);
    for (const char* name : {"cut.safetensors", "empty.npy", "text.npz", "none.pt"})
        CHECK(outcome.err.find(name) != std::string::npos);
    const json report = json::parse(outcome.out);
    CHECK(report["errors"].size() == 4);
    CHECK(report["tensors"].size() == read_floats(sample(sample_files[0])).size());
    CHECK(run(none).code == 1);
    CHECK(run(sample(sample_files[0]) + " --tensor nothing").code == 1);
    write_file(scratch / "data.bin", "12345678");
    CHECK(run((scratch / "data.bin").string()).code == 1); // a raw file without --dtype
    CHECK(run((scratch / "data.bin").string() + " --dtype fp16 --shape 2x2").code == 0);
}

TEST_CASE("outputs that cannot be written are an error and leave nothing behind") {
    const Scratch scratch;
    const std::string file = sample(sample_files[0]);
    CHECK(run(file + " --json " + (scratch / "no/such/folder.json").string()).code == 1);
    CHECK(run(file + " --svg /dev/full").code == 1);
    CHECK(std::system((std::string(AMP_HISTOGRAM " ") + file + " >/dev/full 2>/dev/null").c_str()) != 0);
    fs::create_directory(scratch / "folder");
    CHECK(run(file + " --csv " + (scratch / "folder").string()).code == 1);
    CHECK(std::distance(fs::directory_iterator(scratch.folder()), {}) == 1);
    REQUIRE(run(file + " --svg " + (scratch / "a.svg").string()).code == 0);
    CHECK(read_file(scratch / "a.svg").starts_with("<svg "));
    CHECK(std::distance(fs::directory_iterator(scratch.folder()), {}) == 2); // no temporary file
}

TEST_CASE("tensors are selected and grouped") {
    const auto names = [](const std::string& options, const std::string& list) {
        std::vector<std::string> result;
        const json report = json::parse(run(sample("deep_tanh") + " --json - " + options).out);
        for (const json& item : report[list]) result.push_back(item["name"]);
        return result;
    };
    CHECK(names("--tensor '^o\\.' --step 50", "tensors") == std::vector<std::string>{"o.weight.grad", "o.bias.grad"});
    CHECK(names("--by step", "groups") == std::vector<std::string>{"step 0", "step 50"});
    CHECK(names("--by step --step :10", "groups") == std::vector<std::string>{"step 0"});
    CHECK(names("--by all", "groups") == std::vector<std::string>{"all"});
    CHECK(names("--by file", "groups").size() == 2);
    CHECK(names("--by layer", "groups").size() == 22);
    const json report = json::parse(run(sample("deep_tanh") + " --json - --by layer").out);
    std::uint64_t sum = 0;
    for (const json& group : report["groups"]) sum += group["count"].get<std::uint64_t>();
    CHECK(sum == report["total"]["count"]);
    CHECK(lines_of(run(sample("deep_tanh") + " --worst 3").out).size() + 7 ==
          lines_of(run(sample("deep_tanh")).out).size());
    const auto losing = std::ranges::count_if(report["tensors"], [](const json& tensor) {
        return std::ranges::any_of(tensor["formats"], [](const json& f) { return f["scales"][0]["underflow"] > 0; });
    });
    const std::string all = fmt::format("{} tensors", losing);
    CHECK(run(sample("deep_tanh") + " --worst 3").out.find("3 of " + all) != std::string::npos);
    CHECK(run(sample("deep_tanh") + " --worst 0").out.find(all + ", the worst by fp16 first.") != std::string::npos);
}

TEST_CASE("tables list what loses elements, each by its own class, and tell files of one name apart") {
    const Scratch scratch;
    for (const char* folder : {"a", "b"}) fs::create_directories(scratch / folder);
    write_floats(scratch / "a/step_1.safetensors", "small", {1e-9f, 1e-9f, 1, 1});
    write_floats(scratch / "a/step_2.safetensors", "fine", {1, 2});
    write_floats(scratch / "b/step_1.safetensors", "small", {1e-9f, 1, 1, 1});
    write_floats(scratch / "b/step_2.safetensors", "large", {1e6f, 1, 1});
    const std::string text = run((scratch / "").string() + " --format fp32,fp16 --worst 1").out;
    const std::size_t overflow = text.find("that overflow at scale 1");
    REQUIRE(overflow != std::string::npos);
    CHECK(text.substr(0, overflow).find("1 of 2 tensors (--worst 0 shows all), the worst by fp16 first.") !=
          std::string::npos);
    CHECK(text.substr(overflow).find("1 tensor, the worst by fp16 first.") != std::string::npos);
    CHECK(text.substr(overflow).find("33.3 %") != std::string::npos);
    CHECK(text.find("fine") == std::string::npos);
    const std::string both = run((scratch / "").string() + " --format fp16 --worst 0").out;
    CHECK(both.find("a/step_1.safetensors") != std::string::npos);
    CHECK(both.find("b/step_1.safetensors") != std::string::npos);
    const std::string by_step = run((scratch / "").string() + " --format fp16 --by step").out;
    CHECK(by_step.find("step    non-zero") != std::string::npos);
    CHECK(by_step.find("step    step") == std::string::npos);
}

TEST_CASE("the worst tensors stand below what they share, whatever the others are called") {
    const Scratch scratch;
    write_floats(scratch / "wte.safetensors", "wte.weight.grad", {1, 2});
    for (const char* block : {"0", "1"})
        write_floats(scratch / (std::string(block) + ".safetensors"),
                     std::string("model.h.") + block + ".fc.weight.grad", {1e-9f, 1});
    const std::string text = run((scratch / "").string() + " --format fp16").out;
    CHECK(text.find("become zero at scale 1, below model.\n") != std::string::npos);
    CHECK(text.find("\nh.1.fc.weight.grad ") != std::string::npos);
}

TEST_CASE("NaN, infinities, recorded scales and hostile names") {
    const Scratch scratch;
    const float nan = std::nanf(""), inf = INFINITY;
    write_floats(scratch / "step_7.safetensors", "red\x1b[31m,\"q\"",
                 {1024, 512, 0, nan, inf, -inf, 1e-30f, 70000 * 1024.0f}, {{"loss_scale", "1024"}});
    const Outcome text = run((scratch / "step_7.safetensors").string());
    CHECK(text.code == 0);
    CHECK(text.out.find('\x1b') == std::string::npos);
    CHECK(text.out.find("NaN 1, infinite 2") != std::string::npos);
    CHECK(text.out.find("recorded scale 2^10 divided out") != std::string::npos);
    CHECK(text.out.find("red\xef\xbf\xbd[31m,\"q\"     7    1         2         8\n") != std::string::npos);
    const json tensor = json::parse(run((scratch / "step_7.safetensors").string() + " --json -").out)["tensors"][0];
    CHECK(tensor["step"] == 7);
    CHECK(tensor["max"] == 70000.0);
    CHECK(tensor["exponents"] == json{{"-110", 1}, {"-1", 1}, {"0", 1}, {"16", 1}});
    CHECK(counts_of(tensor["formats"]["fp16"]["scales"][0]) == std::array<std::uint64_t, 4>{1, 0, 2, 1});
    CHECK(run((scratch / "step_7.safetensors").string() + " --csv -").out.find("\"red\xef\xbf\xbd[31m,\"\"q\"\"\"") !=
          std::string::npos);
    const json thirds = json::parse(
        run((scratch / "step_7.safetensors").string() + " --recorded-scale 3072 --json -").out)["tensors"][0];
    CHECK(thirds["recorded_scale"] == 3072);
    CHECK(thirds["exponents"] == json{{"-112", 1}, {"-3", 1}, {"-2", 1}, {"14", 1}});
}

TEST_CASE("colour only on a terminal, and not with NO_COLOR" * doctest::test_suite("terminal")) {
    const std::optional<std::string> coloured = run_on_terminal(false), plain = run_on_terminal(true);
    if (!coloured || !plain) {
        skip("this system gives no pseudo-terminals (mount devpts at /dev/pts)");
        return;
    }
    CHECK(coloured->find("\x1b[31m") != std::string::npos);
    CHECK(plain->find("\x1b[3") == std::string::npos);
    CHECK(plain->find("fp16") != std::string::npos);
}

TEST_CASE("a file larger than the memory allowed is counted" * doctest::skip(!memory_is_limited)) {
    const Scratch scratch;
    const std::string path = (scratch / "huge.bin").string();
    REQUIRE(std::system(("truncate -s 1G " + path).c_str()) == 0);
    const Outcome outcome = run(path + " --dtype f32 --threads 2 --json -", "ulimit -v 500000;");
    CHECK(outcome.code == 0);
    CHECK(json::parse(outcome.out)["total"]["zero"] == std::uint64_t{1} << 28);
}
