#include <ampscope/sim/base/text.h>

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
    if (p >= 99) { // as many nines as needed so that it does not read 100
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

std::string limit_percent(double limit) { return fmt::format("{:g} %", 100 * limit); }

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

std::string sentence(std::string text) {
    if (!text.ends_with('.') && !text.ends_with('?') && !text.ends_with('!')) text += '.';
    return text;
}

std::string power_of_two(int log2) { return log2 == 0 ? "1" : fmt::format("2^{}", log2); }

std::string scale_text(double scale) {
    int exponent = 0;
    return std::frexp(scale, &exponent) == 0.5 ? power_of_two(exponent - 1) : fmt::format("{:.4g}", scale);
}

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

/// The code point that the first `length` bytes of a text encode; a byte that is not UTF-8 counts as one.
char32_t code_point(std::string_view text, std::size_t length) {
    if (length <= 1) return static_cast<unsigned char>(text[0]);
    char32_t code = static_cast<unsigned char>(text[0]) & (0xff >> (length + 1));
    for (const char c : text.substr(1, length - 1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3f);
    return code;
}

struct Glyph {
    std::string_view bytes; ///< the bytes of one code point
    std::size_t columns;
};

struct CodePoints {
    char32_t first, last;
};

template <std::size_t N>
bool holds(const std::array<CodePoints, N>& ranges, char32_t code) {
    return std::ranges::any_of(ranges, [code](const CodePoints& r) { return r.first <= code && code <= r.last; });
}

// Characters that can hide text: controls; line and paragraph separators; Unicode's property
// Default_Ignorable_Code_Point, which includes those that change the direction of the text (Unicode Standard Annex 9),
// without the variation selectors FE00 to FE0F, which choose how the character before them is drawn; the noncharacters
// FFFE and FFFF.
constexpr std::array hidden = {
    CodePoints{0x0000, 0x001f},   CodePoints{0x007f, 0x009f},   CodePoints{0x00ad, 0x00ad},
    CodePoints{0x034f, 0x034f},   CodePoints{0x061c, 0x061c},   CodePoints{0x115f, 0x1160},
    CodePoints{0x17b4, 0x17b5},   CodePoints{0x180b, 0x180f},   CodePoints{0x200b, 0x200f},
    CodePoints{0x2028, 0x202e},   CodePoints{0x2060, 0x206f},   CodePoints{0x3164, 0x3164},
    CodePoints{0xfeff, 0xfeff},   CodePoints{0xffa0, 0xffa0},   CodePoints{0xfff0, 0xfffb},
    CodePoints{0xfffe, 0xffff},   CodePoints{0x1bca0, 0x1bca3}, CodePoints{0x1d173, 0x1d17a},
    CodePoints{0xe0000, 0xe0fff},
};

// Ranges are whole blocks, not single characters, as terminals draw them in any locale (wcwidth() asks the locale and
// knows only ASCII in "C"). Unicode Standard Annex 11, East Asian Width W and F; category Mn.
constexpr std::array two_columns = {
    CodePoints{0x1100, 0x115f},   CodePoints{0x2e80, 0x303e},   CodePoints{0x3041, 0xa4cf},
    CodePoints{0xa960, 0xa97c},   CodePoints{0xac00, 0xd7a3},   CodePoints{0xf900, 0xfaff},
    CodePoints{0xfe30, 0xfe6f},   CodePoints{0xff01, 0xff60},   CodePoints{0xffe0, 0xffe6},
    CodePoints{0x16fe0, 0x1b2ff}, CodePoints{0x1f300, 0x1f64f}, CodePoints{0x1f680, 0x1f6ff},
    CodePoints{0x1f900, 0x1faff}, CodePoints{0x20000, 0x3fffd},
};
constexpr std::array no_column = {
    CodePoints{0x0300, 0x036f}, CodePoints{0x1ab0, 0x1aff}, CodePoints{0x1dc0, 0x1dff}, CodePoints{0x20d0, 0x20ff},
    CodePoints{0x3099, 0x309a}, CodePoints{0xfe00, 0xfe0f}, CodePoints{0xfe20, 0xfe2f},
};

bool is_hidden(char32_t code) { return (code < 0x20 || code >= 0x7f) && holds(hidden, code); }

/// Removes the glyph at the front of a non-empty text. A byte that is not UTF-8 takes a column by itself.
Glyph take_glyph(std::string_view& text) {
    const std::size_t length = std::max<std::size_t>(sequence_length(text), 1);
    const std::string_view bytes = text.substr(0, length);
    const char32_t code = code_point(bytes, length);
    text.remove_prefix(length);
    return {bytes, holds(no_column, code) ? 0u : holds(two_columns, code) ? 2u : 1u};
}

} // namespace

std::string printable(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const std::size_t length = sequence_length(text);
        if (length == 0 || is_hidden(code_point(text, length))) out += "\xef\xbf\xbd"; // U+FFFD
        else out += text.substr(0, length);
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return out;
}

std::string printable_json(std::string_view json) {
    std::string out;
    while (!json.empty()) {
        const std::size_t length = std::max<std::size_t>(sequence_length(json), 1);
        const char32_t code = code_point(json, length);
        if (code == '\n' || !is_hidden(code)) out += json.substr(0, length);
        else if (code < 0x10000) out += fmt::format("\\u{:04x}", std::uint32_t{code});
        else out += fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
        json.remove_prefix(length);
    }
    return out;
}

std::string csv_cell(std::string_view text) {
    std::string cell = printable(text); // it has no tab and no line break
    if (!cell.empty() && std::string_view("=+-@").find(cell[0]) != std::string_view::npos) cell.insert(0, 1, '\'');
    if (cell.find_first_of(",\"") == std::string::npos) return cell;
    std::string quoted = "\"";
    for (const char c : cell) quoted += c == '"' ? "\"\"" : std::string(1, c);
    return quoted + '"';
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
    std::size_t head = 0, tail = utf8.size();                          // the parts kept: [0, head) and [tail, end)
    for (auto g = glyphs.begin(); g->columns <= front; ++g) {
        front -= g->columns;
        head += g->bytes.size();
    }
    std::size_t pending = 0; // bytes of combining marks that wait for the glyph they belong to
    for (auto g = glyphs.rbegin(); g->columns <= back; ++g) {
        back -= g->columns;
        pending += g->bytes.size();
        if (g->columns > 0) tail -= std::exchange(pending, 0);
    }
    return std::string(utf8.substr(0, head)) + "…" + std::string(utf8.substr(tail));
}

} // namespace amp
