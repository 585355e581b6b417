// Runs a trained network as a server would: with weights, activations and the cache of keys and values in narrow
// formats. Reports the effect on its loss, and the bytes.
#pragma once

#include <ampscope/sim/train/trained.h>

#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// What is served in a narrow format, and the text for it: "e4m3", or "e4m3:token" with what shares a scale: tensor
/// (the whole tensor), channel (an output of a weight), token (a row of activations, or of a head's keys or values), a
/// block across and along the axis that products sum over ("1x32"), or one (no scale at all). A block format with FP32
/// scales ("int8-row") has its own blocks, unless others follow ("int4-affine-1x128:1x32"). Scales are computed from
/// the tensor itself: s = max / amax. Throws std::invalid_argument.
enum class Served : std::uint8_t { weights, activations, kv_cache };
OperandScaling served_scaling(Served what, std::string_view text);

struct ServedResult {
    std::string name; ///< "as trained", "weights" ...
    Evaluation validation{};
    double weight_bytes = 0;       ///< bytes of all parameters, scales included
    double kv_bytes_per_token = 0; ///< bytes of all layers; 0 for networks without attention
};

/// A precision with the formats of serving instead of its recipes.
Precision served_precision(const Precision& trained, const Serving& serving);

/// A precision with the formats of serving beside its recipes, which count unless weights or activations have formats.
Precision with_serving(const Precision& precision, const Serving& serving);

/// Throws FileError for formats of what the network does not have.
void check_serving(const std::filesystem::path& trained, const TrainOptions& options, const Serving& serving);

/// Evaluates the network on the validation data: as trained (without scaled layers), then with another attention,
/// unless the text is empty (see with_attention()), and with each entry of `serving`, one at a time, then with all,
/// which check_serving() has passed. Throws FileError.
std::vector<ServedResult> evaluate_served(const TrainedNetwork& trained, const Serving& serving,
                                          const std::string& attention, int threads);

} // namespace amp
