// The schema of run.json: every key that amp-train (sim/train/configuration.cpp, experiment.cpp) or the recorder for
// PyTorch (tools/python/ampscope/torch) writes, and what anybody reads of it again. A test of each writer fails for a
// key that is missing here, or that it does not write although the table says so.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace amp {

/// Texts are empty, and numbers nothing, where run.json does not say: it may be of another program, or of none.
struct RunFacts {
    std::string tool, version;
    std::string model, data;                        ///< names of the network and of the data it learns
    std::string precision;                          ///< its name, such as "amp-fp16"
    std::string recipe;                             ///< the scaling recipe of FP8 and FP4, such as "mxfp8"
    std::string autocast;                           ///< the format that autocast casts to
    std::string activation_format, gradient_format; ///< formats of activations and gradients outside autocast
    std::string operands;                           ///< the format that matmuls round FP32 operands to
    std::string loss_scaler;                        ///< its name; "none": the loss is not scaled
    std::string optimizer, optimizer_order;         ///< names of OptimizerKind and OptimizerOrder
    std::optional<double> lr, beta1, beta2, eps, weight_decay;
    std::optional<double> seed;
    std::optional<double> merged_ranks; ///< number of ranks whose recordings were merged into this one
    std::optional<double> validation; ///< number of examples that the network is validated on
    std::map<std::string, std::size_t> groups; ///< numbers of the optimizer's groups by parameter, but for the first's

    /// The format in which backward computes gradients.
    [[nodiscard]] const std::string& backward_format() const { return autocast.empty() ? gradient_format : autocast; }
};

/// Reads the facts of a run.json; all are unknown if it is no object. Never throws for what a JSON document may hold.
RunFacts run_facts(const nlohmann::ordered_json& configuration);

/// Who writes a key of run.json.
enum class RunWriter : std::uint8_t { trainer, recorder, both };
/// Its name in Python: "trainer", "recorder" or "both".
std::string_view name_of(RunWriter writer);

/// A key of run.json that holds a value; for "parameters", names of tensors and their shapes, and for "shards" names of
/// tensors and which part of them the rank holds.
struct RunKey {
    const char* pointer; ///< JSON pointer: "/precision/name"
    RunWriter writer = RunWriter::both;
};

/// All keys, in the order in which they are written.
std::span<const RunKey> run_keys();

/// The text at a JSON pointer; empty where there is none.
std::string text_at(const nlohmann::ordered_json& json, const std::string& pointer);
/// The number at a JSON pointer; nothing where there is none.
std::optional<double> number_at(const nlohmann::ordered_json& json, const std::string& pointer);

} // namespace amp
