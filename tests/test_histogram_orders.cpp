// The output of amp-histogram does not depend on the order in which files and reports are named: neither do sums, nor
// the tensor that an advice names, nor which of several copies is kept.
#include "histogram_tool.h"

#include <algorithm>
#include <random>

using namespace amp;
using namespace amp::test;

namespace {

/// Writes g_1.safetensors to a folder: values whose sums are rounded, all at most 2^-8, so that advice meets ties.
fs::path record(const fs::path& folder, const std::string& tensor, unsigned seed) {
    fs::create_directories(folder);
    std::mt19937 random(seed);
    std::vector<float> values = {0x1p-8F};
    for (int i = 0; i < 500; ++i) values.push_back(std::ldexp(static_cast<float>(random()) / 3, -46 - i % 12));
    const fs::path file = folder / "g_1.safetensors";
    write_floats(file, tensor, values);
    return file;
}

/// The words in every order, each order joined to one line.
std::vector<std::string> orders(std::vector<std::string> words) {
    std::vector<std::string> all;
    std::ranges::sort(words);
    do {
        all.emplace_back();
        for (const std::string& word : words) all.back() += " " + word;
    } while (std::next_permutation(words.begin(), words.end()));
    return all;
}

} // namespace

TEST_CASE("reports merged in any order, under any names, are the same bytes") {
    const Scratch scratch;
    const std::string options = " --error --scale 3.5 --by layer";
    std::vector<std::string> contents;
    // The same file and tensor on two machines, with different values; a copy on a third, and another that ties with
    // it.
    for (const auto& [folder, tensor, seed] :
         {std::tuple{"1", "b.weight", 1U}, {"2", "b.weight", 2U}, {"3", "a.weight", 3U}}) {
        record(scratch / folder, tensor, seed);
        const std::string report = (scratch / (std::string(folder) + ".json")).string();
        const Outcome o = run_command("cd " + (scratch / folder).string() + " && " AMP_HISTOGRAM " g_1.safetensors" +
                                      options + " --json " + report);
        REQUIRE(o.code == 0);
        contents.push_back(read_file(report));
    }
    write_floats(scratch / "3/h_1.safetensors", "a.weight", {0x1p-8F, 0x1.555556p-24F});
    REQUIRE(run_command("cd " + (scratch / "3").string() + " && " AMP_HISTOGRAM " g_1.safetensors h_1.safetensors" +
                        options + " --json ../4.json")
                .code == 0);
    contents.push_back(read_file(scratch / "4.json")); // the third report is part of the fourth
    std::vector<int> order = {0, 1, 2, 3};
    std::string json, text;
    int different = 0;
    do {
        std::string paths;
        for (std::size_t i = 0; i < 4; ++i) {
            const fs::path path = scratch / ("p" + std::to_string(i) + ".json");
            paths += " " + write_file(path, contents[static_cast<std::size_t>(order[i])]).string();
        }
        const Outcome o = run("--merge" + paths + options + " --json -");
        const Outcome table = run("--merge" + paths + options);
        REQUIRE(o.code == 0);
        CHECK(contains(o.err, "1 of its tensors are in another report"));
        if (json.empty()) json = o.out, text = table.out;
        different += o.out != json || table.out != text ? 1 : 0;
    } while (std::next_permutation(order.begin(), order.end()));
    CHECK(different == 0);
    CHECK(contains(text, "a.weight sets the upper end")); // all four overflow at the same scale
    const auto total = nlohmann::json::parse(json)["total"];
    CHECK(total["count"] == 3 * 501 + 2);
}

TEST_CASE("files in any order are the same bytes") {
    const Scratch scratch;
    const std::vector<std::string> files = {record(scratch / "1", "b.weight", 1).string(),
                                            record(scratch / "2", "a.weight", 2).string(),
                                            record(scratch / "3", "b.weight", 1).string(), // a copy of the first
                                            (scratch / "4").string()};
    record(scratch / "4", "c.weight", 3);
    std::string json, text;
    for (const std::string& paths : orders(files)) {
        const Outcome o = run(paths + " --json -");
        REQUIRE(o.code == 0);
        const std::string table = run(paths).out;
        if (json.empty()) json = o.out, text = table;
        CHECK(o.out == json);
        CHECK(table == text);
    }
    CHECK(contains(text, "a.weight sets the upper end"));
}
