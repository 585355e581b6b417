// Gradients that a backward pass in a smaller format has flushed, and run folders that recorded them.
#pragma once

#include "recorded_files.h"

#include <ampscope/formats/codec.h>
#include <ampscope/sim/analysis/histogram_log.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <random>

namespace amp::test {

/// Gradients of which some are too small for unscaled FP16: log2 of the magnitude is normal about -20.
inline std::vector<float> normal_gradients(double mean_log2, std::uint32_t seed = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<double> log2(mean_log2, 4);
    std::vector<float> values(4000);
    for (float& x : values) x = static_cast<float>(std::exp2(log2(random)) * (random() % 2 == 0 ? 1 : -1));
    return values;
}

/// As a backward pass in the format under a loss scale leaves them; still multiplied by the scale.
inline std::vector<float> held(const std::vector<float>& exact, const char* in, double scale) {
    std::vector<float> values;
    for (const float x : exact) values.push_back(static_cast<float>(quantize(format(in), double{x} * scale)));
    return values;
}

inline MagnitudeHistogram histogram_of(const std::vector<float>& values, double scale = 1) {
    MagnitudeHistogram all;
    for (const float x : values) all.add(unpack(double{x} / scale));
    return all;
}

/// A run folder that recorded these gradients as histograms.
inline fs::path run_with(const fs::path& folder, const std::string& precision, const char* stored, double scale,
                  const std::vector<float>& values) {
    fs::create_directories(folder);
    write_file(folder / "run.json", R"({"schema_version":2,"tool":"test","precision":)" + precision + "}\n");
    std::string steps, lines;
    for (int step = 0; step < 3; ++step) {
        steps += fmt::format("{{\"step\":{},\"loss\":1.0,\"scale\":{},\"found_inf\":false}}\n", step, scale);
        lines += histogram_line({.step = step,
                                 .tensor = "a.weight.grad",
                                 .format = stored,
                                 .scale = scale,
                                 .magnitudes = histogram_of(values)})
                     .dump() +
                 "\n";
    }
    write_file(folder / "metrics.jsonl", steps);
    write_file(folder / "histograms.jsonl", lines);
    return folder;
}

/// Appends a tensor of the run's first step, recorded in FP32 without a loss scale.
void append_histogram(const fs::path& run, const std::string& tensor, TensorKind kind,
                      const std::vector<float>& values) {
    const RecordedMagnitudes magnitudes{.step = 0,
                                        .tensor = tensor,
                                        .kind = kind,
                                        .format = "fp32",
                                        .scale = 1,
                                        .magnitudes = histogram_of(values)};
    std::ofstream(run / "histograms.jsonl", std::ios::app) << histogram_line(magnitudes).dump() << "\n";
}

inline const std::string amp_fp16 = R"({"name":"amp-fp16","autocast":{"format":"fp16"}})",
                  fp32 = R"({"name":"fp32","formats":{"weights":"fp32","activations":"fp32","gradients":"fp32"}})";

} // namespace amp::test
