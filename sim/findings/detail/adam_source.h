// Where the history of a parameter is read from: gradients of some steps, and the state before the last of them.
#pragma once

#include <ampscope/sim/findings/adam_effects.h>
#include <ampscope/sim/io/tensor_file.h>

#include <map>
#include <mutex>

namespace amp::detail {

/// The files of a recording, for any thread. A file of thousands of tensors must not be opened for each of them, nor
/// thousands of files at once: as many as a process may stay open, the others are opened when they are needed.
class OpenFiles {
  public:
    std::shared_ptr<const TensorFile> operator()(const std::filesystem::path& path);

  private:
    /// A part of the descriptors that the process may have; others need some, too.
    static std::size_t most_open();

    std::mutex mutex_;
    std::map<std::filesystem::path, std::shared_ptr<const TensorFile>> files_;
    std::size_t most_ = most_open();
};

/// A tensor of a file.
struct TensorPlace {
    std::filesystem::path file;
    std::size_t tensor;
    double scale = 1; ///< that its values contain

    /// The numbers [begin, end) without the scale, in FP32.
    [[nodiscard]] std::vector<float> read(OpenFiles& open, std::uint64_t begin, std::uint64_t end) const;
};

/// The history of one parameter, in files.
struct AdamSource {
    std::vector<TensorPlace> gradients;
    std::vector<std::int64_t> repeats;
    std::optional<TensorPlace> weight, m, v;
    std::int64_t first = 1;

    /// How many elements are worked on at a time, so that all their gradients fit into memory, and each that is read
    /// is worked on for less than a second; a compressed file is read in one go.
    [[nodiscard]] std::uint64_t block(OpenFiles& open, std::uint64_t numbers) const;
    /// The elements [begin, end).
    [[nodiscard]] AdamHistory read(OpenFiles& open, std::uint64_t begin, std::uint64_t end) const;
};

/// Adds weight, m and v of one parameter of `count` elements, given by the name of its gradient, to its source. Throws
/// FileError where the file has no m or no v; the weight may be missing.
void find_state(OpenFiles& open, const std::filesystem::path& file, const std::string& gradient, std::uint64_t count,
                AdamSource& source);

} // namespace amp::detail
