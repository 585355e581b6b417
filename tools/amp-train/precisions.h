// The precisions that a command line of amp-train names.
#pragma once

#include <ampscope/sim/train/trainer.h>

#include <string>
#include <vector>

namespace amp::train_tool {

/// The options about precisions, before they mean anything.
struct PrecisionWords {
    std::vector<std::string> precisions = {"fp32,amp-fp16,amp-fp16,scaler=none,amp-bf16,pure-bf16,pure-fp16"};
    std::string accumulate;
    std::vector<std::string> scaling_off{}, autocast_off{}, layers{};
};

/// The texts of precisions in the values of an option: "fp32,amp-fp16,v=bf16" has two, as a key belongs to the preset
/// before it. Throws std::invalid_argument.
std::vector<std::string> precision_texts(std::string_view option, const std::vector<std::string>& lists);

/// Whether a precision of --against begins with the run's own: "as-trained", or "as-trained,key=value,...".
bool begins_as_trained(std::string_view text);
/// The precision that it means. Throws std::invalid_argument.
Precision precision_against(const std::string& text, const Precision& own);

/// The precisions, each with the policies of its layers. Throws std::invalid_argument.
std::vector<Precision> precisions_of(const PrecisionWords& words);

} // namespace amp::train_tool
