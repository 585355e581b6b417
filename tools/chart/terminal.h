// What a terminal shows: lines of 80 columns, colour only where it is wanted, a histogram of block characters, bars of
// progress.
#pragma once

#include <ampscope/sim/base/progress.h>
#include <ampscope/tools/chart/chart.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

inline constexpr std::size_t terminal_columns = 80;

/// Columns of the terminal on standard error, for a line that is rewritten; terminal_columns where it does not say.
std::size_t columns_of_terminal();

/// Whether escape sequences may be written to `stream`: it is a terminal, not a dumb one, and NO_COLOR is not set.
bool wants_color(std::FILE* stream);

enum class Ink { plain, bold, quiet, red, yellow, green, magenta };
std::string inked(std::string_view text, Ink ink, bool color);

/// Breaks a paragraph at spaces, to lines of at most terminal_columns; later lines are indented.
std::string wrapped(std::string_view text, std::size_t indent = 0);

/// Breaks each line of a list of names and meanings to lines of at most terminal_columns. What follows the last gap of two
/// spaces is a meaning and stays below itself, or moves to a line of its own where it would begin too far to the right.
std::string folded(const std::string& text);

/// The figure in characters, one column for one binade or more; a line of zones for each format.
std::string magnitude_text(const MagnitudeFigure& figure, bool color);

/// A bar on standard error, if that is a terminal and the work takes more than half a second. Any thread may add.
class ProgressBar {
  public:
    explicit ProgressBar(std::uint64_t total);
    ~ProgressBar(); ///< wipes the bar
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;
    void add(std::uint64_t done);

  private:
    using Clock = std::chrono::steady_clock;
    std::uint64_t total_;
    bool enabled_;
    Clock::time_point start_ = Clock::now();
    std::atomic<std::uint64_t> done_ = 0;
    std::mutex drawing_;
    Clock::time_point drawn_at_{};
    int drawn_ = -1; ///< permille last drawn
};

/// A ProgressBar for each piece of work that is watched.
Watch progress_bars();

} // namespace amp
