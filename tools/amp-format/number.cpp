#include <ampscope/tools/amp-format/facts.h>

#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace amp::format_tool {

namespace {

/// strtod under a rounding direction: glibc rounds correctly in each of them.
double parse_directed(const std::string& text, int direction, bool& whole) {
    const int before = std::fegetround();
    std::fesetround(direction);
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    std::fesetround(before);
    whole = !text.empty() && end == text.c_str() + text.size();
    return value;
}

} // namespace

Unpacked parse_number(const std::string& text) {
    bool whole = false;
    const double low = parse_directed(text, FE_TOWARDZERO, whole);
    const bool negative = std::signbit(low);
    const double high = parse_directed(text, negative ? FE_DOWNWARD : FE_UPWARD, whole);
    if (!whole || std::isspace(static_cast<unsigned char>(text.front())) != 0)
        throw std::invalid_argument("'" + text + "' is neither a format nor a number");
    if (low == high || std::isnan(low)) return unpack(low);
    // Between two doubles: the truncated one and a sticky bit below its last place.
    Unpacked x = unpack(low);
    if (x.kind == Kind::zero)
        return {.kind = Kind::finite, .sign = negative, .exponent = -1200, .significand = (std::uint64_t{1} << 62) | 1};
    x.significand = x.significand << 10 | 1;
    x.exponent -= 10;
    return x;
}

} // namespace amp::format_tool
