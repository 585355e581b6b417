// What was recorded where: files and folders expanded to a list of tensors with step, kind and loss scale.
#pragma once

#include <ampscope/sim/io/tensor_file.h>

namespace amp {

/// Whose gradient a tensor is. Weight gradients and activation gradients differ in range by orders of magnitude.
enum class GradientKind : std::uint8_t { weight, activation };
std::string_view name_of(GradientKind kind);

struct RecordedTensor {
    std::filesystem::path file{};
    std::size_t index = 0; ///< in its file
    TensorEntry entry{};
    std::string layer{}; ///< name less its parameter suffix: "h.0" of "h.0.weight.grad"
    std::optional<std::int64_t> step{};
    GradientKind kind = GradientKind::weight;
    double recorded_scale = 1; ///< the loss scale that the values still contain
};

struct Recording {
    std::vector<RecordedTensor> tensors;
    std::vector<std::string> errors;   ///< a line for each file and folder that could not be read
    std::vector<std::string> warnings; ///< duplicates left out, entries skipped
};

/// Expands paths to tensors; folders recursively. Files are read in the order of their paths, whatever the order in
/// which they are given, so that sums over them do not depend on it. Of a run folder (one with
/// run.json) only gradients/ is read; raw files in folders (.bin, .raw) only where options.dtype is given. Step:
/// metadata "step", else the number that ends the file's name (step_000100, grads-7). Kind: metadata "kinds" (a JSON
/// object: tensor -> weight | activation), else activation for names ending in ".out.grad". Scale: metadata
/// "loss_scale", else 1. Tensors of the same name, step and bytes are listed once, from a file that states the scale if
/// there is one, with a warning; if two files state different scales, both are. Files that cannot be read become
/// errors; the rest is still listed.
Recording find_tensors(const std::vector<std::filesystem::path>& paths, const OpenOptions& options = {});

/// Nothing could be read: a line for each file, of which what() is the first.
class RecordingError : public std::runtime_error {
  public:
    explicit RecordingError(std::vector<std::string> lines);
    [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

  private:
    std::vector<std::string> lines_;
};

/// Adds a line of FileError unless that file has one: of a damaged file each tensor may be an error.
void add_error(std::vector<std::string>& errors, const FileError& error);

/// "h.0.weight.grad" -> "h.0", "c1.out.grad" -> "c1".
std::string layer_of(std::string_view tensor);

} // namespace amp
