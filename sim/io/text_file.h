// Text read in order, by lines or as a whole. The memory taken depends neither on what a file claims nor on how long a
// line is. All text files are opened here.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <streambuf>
#include <string>

namespace amp {

/// Whether the file may be a pipe. The files of a run folder are regular files; a log or report that the user names may
/// be the output of another program.
enum class Pipe : std::uint8_t { refused, accepted };

inline constexpr std::size_t longest_line = 1 << 24; ///< bytes of a line; lines of logs have some thousand

class TextFile : public std::streambuf {
  public:
    /// Throws FileError if the file cannot be opened, and for folders, devices and, where refused, pipes: reading these
    /// may never end.
    explicit TextFile(std::filesystem::path path, Pipe pipe = Pipe::refused);
    ~TextFile() override;
    TextFile(const TextFile&) = delete;
    TextFile& operator=(const TextFile&) = delete;

    /// Reads the next line, without its line break; false after the last. Throws FileError if it is longer than
    /// longest_line.
    bool next_line(std::string& line);
    [[nodiscard]] std::int64_t number() const { return number_; } ///< number of the line read last, from 1
    [[nodiscard]] bool ended() const { return ended_; }           ///< whether no line break follows it

    /// The rest of the file. Throws FileError if it has more than `most` bytes.
    std::string rest(std::uint64_t most);
    /// Allows `most` more bytes to be read, until the next call; reading beyond them throws FileError.
    void allow(std::uint64_t most) {
        most_ = most;
        end_ = position() + most;
    }
    [[nodiscard]] std::uint64_t position() const { return read_ - static_cast<std::uint64_t>(egptr() - gptr()); }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  protected:
    int_type underflow() override;

  private:
    std::filesystem::path path_;
    int descriptor_;
    std::int64_t number_ = 0;
    bool ended_ = false;
    std::uint64_t read_ = 0, end_ = UINT64_MAX, most_ = 0;
    std::array<char, 1 << 16> buffer_{};
};

/// A size as errors name it: "16 MiB".
std::string size_text(std::uint64_t bytes);

/// Whether the path exists, even if only as a link to nothing: that is an error to report, not a missing file.
bool is_there(const std::filesystem::path& path);

/// Throws FileError if the path does not exist or is a link to nothing.
void require_there(const std::filesystem::path& path);

/// Whether there is a pipe at the path.
bool is_pipe(const std::filesystem::path& path);

} // namespace amp
