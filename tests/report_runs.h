// Run folders for amp-report, and rows of what it says of them.
#pragma once

#include "tool.h"

#include <cmath>
#include <fstream>

namespace amp::test {

using Json = nlohmann::json;

inline Json row_of(const Json& group, const std::string& precision) {
    for (const Json& row : group["rows"])
        if (row["precision"] == precision) return row;
    FAIL("no row " << precision);
    return {};
}

/// Writes a run folder with so many steps, and gradients of so many tensors in each, all equal to 2^exponent.
inline void write_run(const std::filesystem::path& folder, const std::string& configuration, int steps, int tensors,
                      int exponent, const std::string& tensor = "layer", double loss = 2) {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "run.json") << configuration;
    std::ofstream metrics(folder / "metrics.jsonl"), histograms(folder / "histograms.jsonl");
    for (int step = 0; step < steps; ++step) {
        metrics << Json{{"step", step},
                        {"loss", loss + 1.0 / (step + 1)},
                        {"loss_class", std::isnan(loss) ? "nan" : "finite"},
                        {"scale", 1},
                        {"found_inf", false}}
                       .dump()
                << "\n";
        for (int t = 0; t < tensors; ++t)
            histograms << Json{{"step", step},
                               {"tensor", tensor + "." + std::to_string(t) + ".weight.grad"},
                               {"kind", "weight"},
                               {"loss_scale", 1},
                               {"format", "fp32"},
                               {"zero", 1},
                               {"nan", 0},
                               {"inf", 0},
                               {"mantissa_classes", 28},
                               {"rows", {{std::to_string(exponent - t), {3, 5}}}}}
                              .dump()
                       << "\n";
    }
}

inline std::string configuration(const std::string& precision, const std::string& model = "net", int seed = 0) {
    return Json{{"schema_version", 1},
                {"model", {{"name", model}}},
                {"data", {{"name", "data"}}},
                {"precision", {{"name", precision}}},
                {"seed", seed}}
        .dump();
}

} // namespace amp::test
