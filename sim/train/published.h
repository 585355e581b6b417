// Networks in Hugging Face's form: a folder with config.json and model.safetensors, of model_type llama or gpt2.
//
// What our networks lack is refused by its name in config.json (scaled rotary positions, biases of a llama, heads of
// another width, an MLP of a gpt2 that is not four times as wide). The bias of gpt2's keys is read over, since softmax
// cancels it where keys are not rounded (in a narrow cache of keys it would count); it is written as zeros.
#pragma once

#include <ampscope/sim/io/tensor_file.h>
#include <ampscope/sim/program/model.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace amp {

struct PublishedNetwork {
    ModelOptions model;
    std::int64_t vocabulary = 0, context = 0;               ///< of tokens; the longest sequence
    std::map<std::string, std::vector<float>> parameters{}; ///< in FP32, by our names and in our layout
};

/// Whether `path` is such a folder, or the .safetensors file of one.
bool is_published(const std::filesystem::path& path);

/// What config.json alone says: the network without its parameters. Throws FileError as read_published() does, but for
/// tensors.
PublishedNetwork read_published_sizes(const std::filesystem::path& path);

/// Reads a folder, or the file in it; weights of any format are widened to FP32. Throws FileError for files that are
/// missing or broken, for networks that ours cannot represent, and for tensors that are missing or of another shape.
PublishedNetwork read_published(const std::filesystem::path& path);

/// Writes config.json and model.safetensors (FP32), and makes the folder if it is missing. Throws FileError for a
/// network that has no such form: a gpt or llama with another norm, a gpt whose head is not its table of tokens.
void write_published(const std::filesystem::path& folder, const PublishedNetwork& network);

} // namespace amp
