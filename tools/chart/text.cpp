#include <ampscope/tools/chart/text.h>

#include <fmt/format.h>

#include <array>
#include <cmath>

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

std::string short_count(std::uint64_t n) {
    constexpr std::array units = {'k', 'M', 'G', 'T', 'P', 'E'};
    if (n < 1000) return std::to_string(n);
    auto x = static_cast<double>(n);
    std::size_t unit = 0;
    for (x /= 1000; x >= 999.5; x /= 1000) ++unit;
    return fmt::format("{:.{}f}{}", x, x < 9.995 ? 2 : x < 99.95 ? 1 : 0, units[unit]);
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

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

} // namespace

std::string printable(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const std::size_t length = sequence_length(text);
        const auto lead = static_cast<unsigned char>(text[0]);
        const bool c1_control = length == 2 && lead == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
        const bool noncharacter =
            length == 3 && lead == 0xef && text[1] == '\xbf' && static_cast<unsigned char>(text[2]) >= 0xbe;
        if (length == 0 || lead < 0x20 || lead == 0x7f || c1_control || noncharacter)
            out += "\xef\xbf\xbd"; // U+FFFD
        else
            out += text.substr(0, length);
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return out;
}

std::size_t width(std::string_view utf8) {
    std::size_t n = 0;
    for (const char c : utf8) n += is_continuation(c) ? 0 : 1;
    return n;
}

std::string clipped(std::string_view utf8, std::size_t columns) {
    const std::size_t all = width(utf8);
    if (all <= columns) return std::string(utf8);
    if (columns == 0) return {};
    const std::size_t front = (columns - 1) / 2;
    const std::size_t back = columns - 1 - front;
    std::string head, tail;
    std::size_t position = 0; // of the code point, counted from 1
    for (const char c : utf8) {
        position += is_continuation(c) ? 0 : 1;
        if (position <= front) head += c;
        if (position > all - back) tail += c;
    }
    return head + "…" + tail;
}

} // namespace amp
