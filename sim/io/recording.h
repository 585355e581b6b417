// Recordings: files and folders expanded to a list of tensors with step, kind and loss scale.
#pragma once

#include <ampscope/sim/io/tensor_file.h>

#include <array>
#include <string_view>

namespace amp {

/// What a recorded tensor is. They differ in range by orders of magnitude, and only gradients contain a loss scale.
/// `state` is what an optimizer keeps beside the weights, such as Adam's moments.
enum class TensorKind : std::uint8_t { weight, weight_gradient, activation, activation_gradient, state };
inline constexpr std::array<std::string_view, 5> tensor_kind_names = {"weight", "weight_gradient", "activation",
                                                                      "activation_gradient", "state"};
std::string_view name_of(TensorKind kind);

constexpr bool is_gradient(TensorKind kind) {
    return kind == TensorKind::weight_gradient || kind == TensorKind::activation_gradient;
}

/// The kind that a file of a schema version calls `name`. In version 1, which recorded only gradients, "weight" and
/// "activation" are the gradients of these. Throws std::invalid_argument for a name that is not in the table.
TensorKind parse_kind(std::string_view name, std::int64_t schema_version);

struct RecordedTensor {
    std::filesystem::path file{};
    std::size_t index = 0; ///< index of the tensor in its file
    TensorEntry entry{};
    std::string layer{}; ///< name without its parameter suffix: "h.0" for "h.0.weight.grad"
    std::optional<std::int64_t> step{};
    TensorKind kind = TensorKind::weight_gradient;
    double recorded_scale = 1; ///< loss scale by which the stored values are still multiplied; 1 unless a gradient
};

struct Recording {
    std::vector<RecordedTensor> tensors;
    std::vector<std::string> errors;   ///< one line for each file and folder that could not be read
    std::vector<std::string> warnings; ///< lines about duplicates left out and entries skipped
};

/// Expands paths to tensors; folders recursively. Files are read in the order of their paths, however they are given,
/// so that sums over them do not depend on that. Of a run folder (one with run.json) only gradients/ is read; raw files
/// (.bin, .raw) in folders are read only if options.dtype is given.
/// Step: metadata "step", else the number that ends the file's name (step_000100, grads-7). Kind: metadata "kinds" (a
/// JSON object: tensor -> a name of tensor_kind_names), which is read as of the version in metadata "schema_version",
/// or of version 1 without it; a tensor that it does not name is an activation gradient if its name ends in ".out.grad",
/// else a weight gradient. Scale of gradients: metadata "loss_scale", else 1.
/// Tensors of the same name, step and bytes are listed once, with a warning, from a file that states the scale if there
/// is one; under two different stated scales both are listed. Files that cannot be read become errors; the rest is
/// still listed.
Recording find_tensors(const std::vector<std::filesystem::path>& paths, const OpenOptions& options = {});

/// Nothing could be read: has a line for each file; what() is the first.
class RecordingError : public std::runtime_error {
  public:
    explicit RecordingError(std::vector<std::string> lines);
    [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

  private:
    std::vector<std::string> lines_;
};

/// Adds the error as a line unless its file has one: in a damaged file every tensor may be an error.
void add_error(std::vector<std::string>& errors, const FileError& error);

/// "h.0.weight.grad" -> "h.0", "c1.out.grad" -> "c1".
std::string layer_of(std::string_view tensor);

} // namespace amp
