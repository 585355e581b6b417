// Reads the history of a parameter: gradients of some steps, and the optimizer state before them.
#pragma once

#include <ampscope/sim/analysis/number_reader.h>
#include <ampscope/sim/findings/adam_effects.h>
#include <ampscope/sim/io/tensor_file.h>

#include <map>
#include <mutex>

namespace amp::detail {

/// The open files of a recording, for any thread. A file with thousands of tensors must not be opened for each of them,
/// nor may thousands of files be open at once: as many stay open as the process may have, and the others are opened
/// when needed.
class OpenFiles {
  public:
    std::shared_ptr<const TensorFile> operator()(const std::filesystem::path& path);

  private:
    /// A part of the file descriptors that the process may have; other code needs some, too.
    static std::size_t most_open();

    std::mutex mutex_;
    std::map<std::filesystem::path, std::shared_ptr<const TensorFile>> files_;
    std::size_t most_ = most_open();
};

/// A tensor of a file.
struct TensorPlace {
    std::filesystem::path file;
    std::size_t tensor;
    double scale = 1; ///< loss scale by which its values are multiplied

    /// The numbers [begin, end) divided by the scale, in FP32.
    [[nodiscard]] std::vector<float> read(OpenFiles& open, std::uint64_t begin, std::uint64_t end) const;
};

/// Where the history of one parameter is stored: gradients, or the state that a checkpoint has.
struct AdamSource {
    std::vector<TensorPlace> gradients;
    std::vector<std::int64_t> repeats;
    std::vector<std::optional<std::int64_t>> steps; ///< the step that recorded each gradient; none: not known
    std::vector<OptimizerOptions> settings; ///< the optimizer's settings in the updates that each gradient makes
    std::optional<TensorPlace> weight, m, v;
    std::int64_t first = 1;

    /// The number of elements to process at a time: few enough that all their gradients fit into memory and take less
    /// than a second; all of them if a file is compressed.
    [[nodiscard]] std::uint64_t block(OpenFiles& open, std::uint64_t numbers) const;
    /// The history of elements [begin, end).
    [[nodiscard]] AdamHistory read(OpenFiles& open, std::uint64_t begin, std::uint64_t end) const;
};

/// The state of a parameter in a checkpoint, read in order, a block after the other, also where it is a stream.
class StateReader {
  public:
    StateReader(const AdamSource& source, OpenFiles& open);
    /// The history of the elements from where the last call ended up to `end`.
    [[nodiscard]] AdamHistory read(std::uint64_t end);

  private:
    struct Part {
        std::shared_ptr<const TensorFile> file;
        std::unique_ptr<NumberReader> numbers;
    };
    [[nodiscard]] std::vector<float> numbers(const Part& part, std::uint64_t end) const;

    const AdamSource& source_;
    Part weight_, m_, v_;
    std::uint64_t at_ = 0;
};

/// The elements [begin, end) of a history.
AdamHistory part_of(const AdamHistory& history, std::uint64_t begin, std::uint64_t end);

/// The parameter of a gradient: "h.0.weight" for "h.0.weight.grad".
std::string parameter_of(const std::string& gradient);

/// Adds to `source` the weight, m and v of the parameter whose gradient has that name, with `count` elements. Throws
/// FileError if the file has no m or no v; the weight may be missing.
void find_state(OpenFiles& open, const std::filesystem::path& file, const std::string& gradient, std::uint64_t count,
                AdamSource& source);

} // namespace amp::detail
