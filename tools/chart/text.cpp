#include <ampscope/tools/chart/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace amp {

std::string percent(double rate) {
    const double p = 100 * rate;
    if (std::isnan(p)) return "-";
    if (p <= 0) return "0 %";
    if (p >= 100) return "100 %";
    if (p < 0.001) return fmt::format("{:.1e} %", p);
    int decimals = 2;
    if (p >= 99) { // as many nines as it takes not to say 100
        while (decimals < 12 && 100 - p < 0.5 * std::pow(10, -decimals)) ++decimals;
    } else {
        decimals = p >= 10 ? 1 : 2 - static_cast<int>(std::floor(std::log10(p)));
    }
    return fmt::format("{:.{}f} %", p, decimals);
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
    if (whole == 0) return "-";
    if (part == whole) return "100 %";
    return percent(static_cast<double>(part) / static_cast<double>(whole));
}

std::string grouped(std::uint64_t n) {
    std::string digits = std::to_string(n);
    for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3)
        digits.insert(static_cast<std::size_t>(i), 1, ',');
    return digits;
}

std::string plural(std::uint64_t n, std::string_view noun) {
    return fmt::format("{} {}{}", grouped(n), noun, n == 1 ? "" : "s");
}

std::string short_count(std::uint64_t n) {
    constexpr std::array units = {'k', 'M', 'G', 'T', 'P', 'E'};
    if (n < 1000) return std::to_string(n);
    auto x = static_cast<double>(n);
    std::size_t unit = 0;
    for (x /= 1000; x >= 999.5; x /= 1000) ++unit;
    return fmt::format("{:.{}f}{}", x, x < 9.995 ? 2 : x < 99.95 ? 1 : 0, units[unit]);
}

std::string upper_case(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    return out;
}

std::string power_of_two(int log2) { return log2 == 0 ? "1" : fmt::format("2^{}", log2); }

namespace {

/// Length of the valid UTF-8 sequence at the front of `text` (RFC 3629: no overlong forms, no surrogates), or 0.
std::size_t sequence_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    const unsigned lead = byte(0);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xc2 && lead < 0xe0 ? 2
                               : lead >= 0xe0 && lead < 0xf0 ? 3
                               : lead >= 0xf0 && lead < 0xf5 ? 4
                                                             : 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    const unsigned second = byte(1);
    const bool bad = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) ||
                     (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90);
    return bad ? 0 : length;
}

struct Glyph {
    std::string_view bytes; ///< one code point
    std::size_t columns;
};

struct CodePoints {
    char32_t first, last;
};

// By block rather than by character, as terminals draw them whatever the locale (wcwidth() asks the locale, and knows
// nothing but ASCII in "C"). Unicode Standard Annex 11, East Asian Width W and F; categories Mn and Cf.
constexpr std::array two_columns = {
    CodePoints{0x1100, 0x115f},   CodePoints{0x2e80, 0x303e},   CodePoints{0x3041, 0xa4cf},
    CodePoints{0xa960, 0xa97c},   CodePoints{0xac00, 0xd7a3},   CodePoints{0xf900, 0xfaff},
    CodePoints{0xfe30, 0xfe6f},   CodePoints{0xff01, 0xff60},   CodePoints{0xffe0, 0xffe6},
    CodePoints{0x16fe0, 0x1b2ff}, CodePoints{0x1f300, 0x1f64f}, CodePoints{0x1f680, 0x1f6ff},
    CodePoints{0x1f900, 0x1faff}, CodePoints{0x20000, 0x3fffd},
};
constexpr std::array no_column = {
    CodePoints{0x0300, 0x036f}, CodePoints{0x1ab0, 0x1aff}, CodePoints{0x1dc0, 0x1dff}, CodePoints{0x200b, 0x200f},
    CodePoints{0x202a, 0x202e}, CodePoints{0x2060, 0x2064}, CodePoints{0x20d0, 0x20ff}, CodePoints{0x3099, 0x309a},
    CodePoints{0xfe00, 0xfe0f}, CodePoints{0xfe20, 0xfe2f}, CodePoints{0xfeff, 0xfeff},
};

/// Takes the glyph at the front of a text that is not empty. A byte that is no UTF-8 takes a column by itself.
Glyph take_glyph(std::string_view& text) {
    const std::size_t length = std::max<std::size_t>(sequence_length(text), 1);
    const std::string_view bytes = text.substr(0, length);
    char32_t code = static_cast<unsigned char>(bytes[0]) & (length == 1 ? 0xff : 0xff >> (length + 1));
    for (const char c : bytes.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3f);
    text.remove_prefix(length);
    const auto holds = [code](const CodePoints& range) { return range.first <= code && code <= range.last; };
    return {bytes, std::ranges::any_of(no_column, holds) ? 0u : std::ranges::any_of(two_columns, holds) ? 2u : 1u};
}

} // namespace

std::string printable(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const std::size_t length = sequence_length(text);
        const auto lead = static_cast<unsigned char>(text[0]);
        const bool c1_control = length == 2 && lead == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
        const bool noncharacter =
            length == 3 && lead == 0xef && text[1] == '\xbf' && static_cast<unsigned char>(text[2]) >= 0xbe;
        if (length == 0 || lead < 0x20 || lead == 0x7f || c1_control || noncharacter) out += "\xef\xbf\xbd"; // U+FFFD
        else out += text.substr(0, length);
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return out;
}

std::size_t width(std::string_view utf8) {
    std::size_t n = 0;
    while (!utf8.empty()) n += take_glyph(utf8).columns;
    return n;
}

std::string clipped(std::string_view utf8, std::size_t columns) {
    if (width(utf8) <= columns) return std::string(utf8);
    if (columns == 0) return {};
    std::vector<Glyph> glyphs;
    for (std::string_view rest = utf8; !rest.empty();) glyphs.push_back(take_glyph(rest));
    std::size_t front = (columns - 1) / 2, back = columns - 1 - front; // columns left to fill on either side
    std::size_t head = 0, tail = utf8.size();                          // what is kept: [0, head) and [tail, end)
    for (auto g = glyphs.begin(); g->columns <= front; ++g) {
        front -= g->columns;
        head += g->bytes.size();
    }
    std::size_t pending = 0; // combining marks wait for the glyph that they belong to
    for (auto g = glyphs.rbegin(); g->columns <= back; ++g) {
        back -= g->columns;
        pending += g->bytes.size();
        if (g->columns > 0) tail -= std::exchange(pending, 0);
    }
    return std::string(utf8.substr(0, head)) + "…" + std::string(utf8.substr(tail));
}

} // namespace amp
