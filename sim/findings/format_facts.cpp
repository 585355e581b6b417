#include <ampscope/sim/findings/format_facts.h>

#include <array>
#include <cctype>
#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace amp {

namespace {

std::vector<std::pair<std::uint32_t, std::uint32_t>> nan_codes(const FormatSpec& f) {
    if (!f.has_nan()) return {};
    const std::uint32_t first = f.has_infinity() ? f.infinity_code() + 1 : f.nan_code();
    const std::uint32_t last = f.has_infinity() ? f.magnitude_mask() : first;
    if (!f.has_negative_zero()) return {{first, last}}; // the code of -0 is the only NaN
    return {{first, last}, {first | f.sign_mask(), last | f.sign_mask()}};
}

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

FormatFacts format_facts(const FormatSpec& f) {
    FormatFacts facts{.format = f};
    facts.max = decode(f, f.max_code());
    facts.min_normal = decode(f, f.min_normal_code());
    facts.min_positive = decode(f, f.has_zero ? 1 : 0);
    facts.epsilon = std::ldexp(1.0, -f.fraction_bits);
    facts.first_overflow = std::ldexp(1.0, f.max_exponent() - f.fraction_bits - 1) + facts.max;
    facts.tie_overflows = (f.max_code() & 1) != 0;
    if (f.has_zero) facts.last_to_zero = std::ldexp(1.0, f.min_subnormal_exponent() - 1);
    facts.nan_codes = nan_codes(f);
    facts.binades = f.max_exponent() - (f.has_zero ? f.min_subnormal_exponent() : f.min_exponent()) + 1;
    facts.dynamic_range_db = 20 * std::log10(facts.max / facts.min_positive);
    return facts;
}

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

std::vector<std::string_view> NumberInFormat::flag_names() const {
    constexpr std::array<std::string_view, 5> names = {"inexact", "underflow", "overflow", "divide_by_zero", "invalid"};
    std::vector<std::string_view> raised;
    for (std::size_t i = 0; i < names.size(); ++i)
        if ((flags.bits >> i & 1) != 0) raised.push_back(names[i]);
    return raised;
}

std::optional<std::string_view> NumberInFormat::lacking() const {
    if (!in_place_of) return std::nullopt;
    return *in_place_of == Kind::nan ? "NaN" : "infinity";
}

std::vector<NumberInFormat> store_number(const std::string& text, const std::vector<FormatSpec>& wanted,
                                         const Policy& policy) {
    const Unpacked x = parse_number(text);
    const double wide = std::strtod(text.c_str(), nullptr);
    std::vector<NumberInFormat> all;
    for (const FormatSpec& f : wanted) {
        NumberInFormat n{.format = f};
        n.code = pack(f, x, policy, 0, n.flags);
        n.value = decode(f, n.code);
        const Unpacked stored = unpack(f, n.code);
        if (x.kind == Kind::finite && (stored.kind == Kind::finite || stored.kind == Kind::zero)) {
            const double error = n.value - wide;
            if (error != 0 || n.is_exact()) n.error = error; // else a double is too short to tell
            if (wide != 0 && n.error) n.relative_error = error / std::fabs(wide);
        }
        // NaN and infinity in formats without them: pack() has stored something else and raised invalid.
        if ((x.is_nan() && !f.has_nan()) || (x.kind == Kind::infinity && !f.has_infinity())) n.in_place_of = x.kind;
        if (!stored.is_nan() && !x.is_nan()) n.neighbours = {next_down(f, n.code), next_up(f, n.code)};
        all.push_back(std::move(n));
    }
    return all;
}

} // namespace amp
