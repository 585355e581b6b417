#include <ampscope/tools/chart/terminal.h>

#include <ampscope/sim/base/text.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <sys/ioctl.h>
#include <unistd.h>

namespace amp {

std::size_t columns_of_terminal() {
    winsize size{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : terminal_columns;
}

bool wants_color(std::FILE* stream) {
    const char* no_color = std::getenv("NO_COLOR"); // no-color.org: set and not empty
    const char* terminal = std::getenv("TERM");
    return isatty(fileno(stream)) == 1 && (no_color == nullptr || *no_color == '\0') &&
           (terminal == nullptr || std::strcmp(terminal, "dumb") != 0);
}

std::string inked(std::string_view text, Ink ink, bool color) {
    constexpr std::array codes = {"", "1", "2", "31", "33", "32", "35"};
    if (!color || ink == Ink::plain || text.empty()) return std::string(text);
    return fmt::format("\x1b[{}m{}\x1b[0m", codes[static_cast<std::size_t>(ink)], text);
}

std::string wrapped(std::string_view text, std::size_t indent) {
    std::string out;
    std::size_t column = 0;
    while (!text.empty()) {
        std::size_t space = std::min(text.find(' '), text.size());
        if (text.substr(space).starts_with(" %"))
            space = std::min(text.find(' ', space + 1), text.size()); // "5 %" stays together
        const std::string_view word = text.substr(0, space);
        if (column > indent && column + 1 + width(word) > terminal_columns) {
            out += '\n' + std::string(indent, ' ');
            column = indent;
        } else if (column > 0) {
            out += ' ';
            ++column;
        }
        out += word;
        column += width(word);
        text.remove_prefix(std::min(space + 1, text.size()));
    }
    return out + '\n';
}

std::string folded(const std::string& text) {
    std::string out, line;
    for (std::istringstream lines(text); std::getline(lines, line);) {
        line.erase(line.find_last_not_of(' ') + 1);
        const std::size_t indent = std::min(line.find_first_not_of(' '), line.size()), gap = line.rfind("  ");
        const bool named = gap != std::string::npos && gap > indent, indented = 0 < indent && indent <= 4;
        std::size_t meaning = named ? gap + 2 : indented ? indent + 4 : indent; // a long command goes on further right
        if (line.size() > terminal_columns && meaning > terminal_columns / 2) {
            out += line.substr(0, line.find_last_not_of(' ', gap) + 1) + '\n';
            line = std::string(indent + 4, ' ') + line.substr(meaning);
            meaning = indent + 4;
        }
        while (line.size() > terminal_columns) {
            const std::size_t space = line.rfind(' ', terminal_columns);
            if (space == std::string::npos || space <= meaning) break;
            out += line.substr(0, space) + '\n';
            line = std::string(meaning, ' ') + line.substr(space + 1);
        }
        out += line + '\n';
    }
    return out;
}

namespace {

constexpr std::size_t gutter = 13, plot_rows = 7;

/// Columns of `binades` each, from binade `from`; the last may reach beyond the domain.
struct Columns {
    int from, binades;
    std::vector<std::uint64_t> counts;
    [[nodiscard]] double center(std::size_t i) const { return from + (static_cast<double>(i) + 0.5) * binades; }
};

Columns columns_of(const MagnitudeFigure& figure) {
    const auto [from, to] = binades_shown(figure);
    constexpr int room = static_cast<int>(terminal_columns - gutter) - 1;
    const int binades = (to - from + room - 1) / room;
    Columns columns{from, binades,
                    std::vector<std::uint64_t>(static_cast<std::size_t>((to - from + binades - 1) / binades))};
    for (const auto& [exponent, n] : figure.exponents)
        columns.counts[static_cast<std::size_t>((exponent - from) / binades)] += n;
    return columns;
}

std::string bars(const Columns& columns, const MagnitudeFigure& figure) {
    constexpr std::array blocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const std::uint64_t highest = std::max<std::uint64_t>(*std::ranges::max_element(columns.counts), 1);
    std::string out;
    for (std::size_t row = plot_rows; row-- > 0;) {
        std::string line;
        for (const std::uint64_t n : columns.counts) {
            const double eighths =
                static_cast<double>(n) / static_cast<double>(highest) * 8 * plot_rows - 8 * static_cast<double>(row);
            int level = std::clamp(static_cast<int>(std::lround(eighths)), 0, 8);
            if (row == 0 && n > 0) level = std::max(level, 1); // whatever is there is seen
            line += blocks[static_cast<std::size_t>(level)];
        }
        line.erase(line.find_last_not_of(' ') + 1);
        const std::string label = row == plot_rows - 1 ? percent(highest, figure.count()) : "";
        out += fmt::format("{:>{}} │{}\n", label, gutter - 2, line);
    }
    return out;
}

std::string axis(const Columns& columns) {
    std::string marks, labels(gutter, ' ');
    const int step = columns.binades * 10;
    std::size_t written = 0;
    for (std::size_t i = 0; i < columns.counts.size(); ++i) {
        const int last = columns.from + static_cast<int>(i + 1) * columns.binades - 1;
        const int multiple = static_cast<int>(std::floor(static_cast<double>(last) / step)) * step;
        const bool tick = multiple > last - columns.binades; // the column holds a multiple of `step`
        marks += tick ? "┴" : "─";
        const std::string label = power_of_two(multiple);
        if (!tick || i < written || gutter + i + label.size() > terminal_columns) continue;
        labels += std::string(i - written, ' ') + label;
        written = i + label.size();
    }
    return fmt::format("{:>{}} └{}\n{}\n", "0", gutter - 2, marks, labels);
}

std::string zone_line(const Columns& columns, const FormatSpec& format, const Policy& policy, bool color) {
    struct Zone {
        double end;
        std::string_view mark;
        Ink ink;
    };
    const FormatZones edge = zones_of(format, policy);
    const std::array zones = {Zone{edge.subnormal, "0", Ink::red}, Zone{edge.normal, "s", Ink::yellow},
                              Zone{edge.overflow, "-", Ink::green}, Zone{1e9, "!", Ink::magenta}};
    std::string line = fmt::format("{:>{}}  ", format.name, gutter - 2);
    std::size_t i = 0;
    for (const Zone& zone : zones) {
        std::string run;
        for (; i < columns.counts.size() && columns.center(i) < zone.end; ++i) run += zone.mark;
        line += inked(run, zone.ink, color);
    }
    return line + '\n';
}

} // namespace

std::string magnitude_text(const MagnitudeFigure& figure, bool color) {
    const Columns columns = columns_of(figure);
    std::string out = bars(columns, figure) + axis(columns);
    for (const FormatSpec& format : figure.formats) out += zone_line(columns, format, figure.policy, color);
    const bool plain = figure.policy.rounding == Rounding::nearest_even && !figure.policy.flushes_output();
    const std::string each = columns.binades == 1 ? "a binade" : fmt::format("{} binades", columns.binades);
    return out + std::string(gutter, ' ') +
           fmt::format("a column is {}; 0 zero  s subnormal  - normal  ! overflow\n", each) +
           (plain ? "" : fmt::format("{:{}}zones: {}\n", "", gutter, zones_name(figure.policy)));
}

namespace {

/// "90 s", "25 min", "3.5 h"
std::string time_text(double seconds) {
    if (seconds < 120) return fmt::format("{:.0f} s", seconds);
    return seconds < 7200 ? fmt::format("{:.0f} min", seconds / 60) : fmt::format("{:.1f} h", seconds / 3600);
}

} // namespace

ProgressBar::ProgressBar(std::uint64_t total)
    : total_(std::max<std::uint64_t>(total, 1)), enabled_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
    if (drawn_ >= 0) print_error("\r\x1b[K");
}

void ProgressBar::add(std::uint64_t done) {
    const std::uint64_t now = done_ += done;
    const Clock::time_point time = Clock::now();
    if (!enabled_ || now == 0 || time - start_ < std::chrono::milliseconds(500)) return;
    const std::unique_lock lock(drawing_, std::try_to_lock);
    if (!lock) return;
    const double share = std::min(1.0, static_cast<double>(now) / static_cast<double>(total_));
    const int permille = static_cast<int>(1000.0 * share);
    if (permille <= drawn_ && time - drawn_at_ < std::chrono::seconds(1)) return;
    drawn_ = std::max(permille, drawn_);
    drawn_at_ = time;
    constexpr int room = 40;
    const int filled = drawn_ * room / 1000;
    std::string bar;
    for (int i = 0; i < room; ++i) bar += i < filled ? "█" : "░";
    const double seconds = std::chrono::duration<double>(time - start_).count() * (1 / share - 1);
    print_error(fmt::format("\r{} {:3.0f} %, {} left\x1b[K", bar, drawn_ / 10.0, time_text(seconds)));
}

Watch progress_bars() {
    return [](std::uint64_t total) {
        return [bar = std::make_shared<ProgressBar>(total)](std::uint64_t done) { bar->add(done); };
    };
}

} // namespace amp
