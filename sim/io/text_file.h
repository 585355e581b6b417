// Text that is read in order, a line at a time or whole, in memory that does not follow what the file claims or how
// long a line is. Everything that reads text opens it here.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <streambuf>
#include <string>

namespace amp {

/// Whether a pipe will do. The files of a run folder are regular files; a log or a report that the user names may come
/// out of another program.
enum class Pipe : std::uint8_t { refused, accepted };

inline constexpr std::size_t longest_line = 1 << 24; ///< in bytes; a line of a log has thousands

class TextFile : public std::streambuf {
  public:
    /// Throws FileError for what cannot be opened, and for folders, devices and, where they are refused, pipes: reading
    /// these may never end.
    explicit TextFile(std::filesystem::path path, Pipe pipe = Pipe::refused);
    ~TextFile() override;
    TextFile(const TextFile&) = delete;
    TextFile& operator=(const TextFile&) = delete;

    /// The next line, without its end; false after the last. Throws FileError for one longer than longest_line.
    bool next_line(std::string& line);
    [[nodiscard]] std::int64_t number() const { return number_; } ///< of that line, from 1
    [[nodiscard]] bool ended() const { return ended_; }           ///< no line end follows it

    /// The rest of the file. Throws FileError for more than `most` bytes.
    std::string rest(std::uint64_t most);
    /// From here on no more than `most` bytes may be read before the next call; beyond them is a FileError.
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

/// "16 MiB": a limit, as errors name it.
std::string size_text(std::uint64_t bytes);

/// Whether there is anything of that name, be it a link to nothing: that is an error to tell, not a file to do without.
bool is_there(const std::filesystem::path& path);

/// Throws FileError where there is nothing of that name, or a link to nothing.
void require_there(const std::filesystem::path& path);

/// Whether there is a pipe at the path.
bool is_pipe(const std::filesystem::path& path);

} // namespace amp
