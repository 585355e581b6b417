#include <ampscope/sim/findings/format_facts.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>

namespace amp {

namespace {

std::vector<std::pair<std::uint32_t, std::uint32_t>> nan_codes(const FormatSpec& f) {
    if (!f.has_nan()) return {};
    const std::uint32_t first = f.has_nan_payload() ? f.infinity_code() + 1 : f.nan_code();
    const std::uint32_t last = f.has_nan_payload() ? f.magnitude_mask() : first;
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

double to_double(const Unpacked& x) {
    return std::ldexp(static_cast<double>(x.significand), x.exponent) * (x.sign ? -1 : 1);
}

bool is_double(const Unpacked& x) {
    if (x.kind != Kind::finite) return true;
    const Unpacked near = unpack(to_double(x));
    const int here = std::countr_zero(x.significand), there = std::countr_zero(near.significand);
    return near.kind == Kind::finite && near.significand >> there == x.significand >> here &&
           near.exponent + there == x.exponent + here;
}

std::string hexfloat(const Unpacked& x) {
    if (x.kind == Kind::zero) return x.sign ? "-0x0p+0" : "0x0p+0";
    if (x.kind != Kind::finite) return number_text(x);
    const int shift = std::countl_zero(x.significand);
    const double leading = std::ldexp(static_cast<double>(x.significand << shift), -63); // in [1, 2)
    const std::string digits = fmt::format("{:a}", leading);
    return (x.sign ? "-" : "") + digits.substr(0, digits.find('p')) + fmt::format("p{:+}", x.exponent + 63 - shift);
}

std::string number_text(const Unpacked& x) {
    if (x.is_nan()) return x.sign ? "-nan" : "nan";
    if (x.kind == Kind::infinity) return x.sign ? "-inf" : "inf";
    return is_double(x) ? fmt::format("{}", to_double(x)) : hexfloat(x);
}

FormatFacts format_facts(const FormatSpec& f) {
    FormatFacts facts{.format = f, .kind = f.is_scale() ? "scale" : f.is_integer() ? "integer" : "float"};
    const Unpacked max = unpack(f, f.max_code()), least = unpack(f, f.has_zero ? 1 : 0);
    facts.max = to_double(max);
    facts.min_normal = to_double(unpack(f, f.min_normal_code()));
    facts.min_positive = to_double(least);
    facts.epsilon = std::ldexp(1.0, f.is_integer() ? f.min_subnormal_exponent() : -f.fraction_bits);
    facts.first_overflow = std::ldexp(1.0, f.max_exponent() - f.precision()) + facts.max;
    facts.tie_overflows = (f.max_code() & 1) != 0;
    if (f.has_zero) facts.last_to_zero = std::ldexp(1.0, f.min_subnormal_exponent() - 1);
    facts.nan_codes = nan_codes(f);
    facts.binades = f.max_exponent() - (f.has_zero ? f.min_subnormal_exponent() : f.min_exponent()) + 1;
    const auto log2 = [](const Unpacked& x) { return std::log2(static_cast<double>(x.significand)) + x.exponent; };
    facts.dynamic_range_db = 20 * std::log10(2.0) * (log2(max) - log2(least));
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

namespace {

/// The value of a code as a double; infinite beyond the range of doubles.
double value_beyond_fp32(const Unpacked& x) {
    if (x.is_nan()) return std::numeric_limits<double>::quiet_NaN();
    return x.kind == Kind::infinity ? std::copysign(HUGE_VAL, x.sign ? -1.0 : 1.0) : to_double(x);
}

/// Refuses a number that is not told apart from others beyond the range of doubles, if a format reaches further.
void check_range(const std::string& text, const FormatSpec& f) {
    const double wide = std::strtod(text.c_str(), nullptr);
    const bool lost = (wide == 0 || std::isinf(wide)) && unpack(wide).kind != parse_number(text).kind;
    if (lost && (f.max_exponent() > 1023 || f.min_subnormal_exponent() < -1074))
        throw std::invalid_argument("'" + text + "' lies beyond FP64, from which numbers are read, but not beyond " +
                                    f.name);
}

} // namespace

std::vector<NumberInFormat> store_number(const std::string& text, const std::vector<FormatSpec>& wanted,
                                         const Policy& policy) {
    const Unpacked x = parse_number(text);
    const double wide = std::strtod(text.c_str(), nullptr);
    std::vector<NumberInFormat> all;
    for (const FormatSpec& f : wanted) {
        check_range(text, f);
        NumberInFormat n{.format = f};
        n.code = pack(f, x, policy, 0, n.flags);
        const Unpacked stored = unpack(f, n.code);
        n.value = f.fits_fp32() ? double{decode(f, n.code)} : value_beyond_fp32(stored);
        if (x.kind == Kind::finite && std::isfinite(wide) &&
            (stored.kind == Kind::zero || (stored.kind == Kind::finite && is_double(stored)))) {
            // A number between two doubles was rounded to one: an error with less than ten bits right stays unsaid.
            const double error = n.value - wide, size = std::fabs(wide);
            const double last_place = std::max(size - std::nextafter(size, 0.0), 0x1p-1074);
            if (is_double(x) || std::fabs(error) >= 1024 * last_place) n.error = error;
            if (wide != 0 && n.error) n.relative_error = error / std::fabs(wide);
        }
        // NaN and infinity in formats without them: pack() has stored something else and raised invalid.
        if ((x.is_nan() && !f.has_nan()) || (x.kind == Kind::infinity && !f.has_infinity())) n.in_place_of = x.kind;
        if (!stored.is_nan() && !x.is_nan()) n.neighbours = {next_down(f, n.code), next_up(f, n.code)};
        all.push_back(std::move(n));
    }
    return all;
}

std::vector<StochasticChoice> stochastic_choices(const std::string& text, const std::vector<FormatSpec>& wanted,
                                                 Policy policy) {
    const Unpacked x = parse_number(text);
    std::vector<StochasticChoice> all;
    if (x.kind != Kind::finite) return all;
    policy.rounding = Rounding::stochastic;
    Policy truncated = policy;
    truncated.rounding = Rounding::toward_zero;
    for (const FormatSpec& f : wanted) {
        check_range(text, f);
        Flags flags;
        StochasticChoice c{.format = f, .down = pack(f, x, truncated, 0, flags)};
        if (!flags.test(Flags::inexact) || flags.test(Flags::overflow))
            continue; // a value of the format, or beyond all
        // 1. Words below `words_up` round away from zero: the smallest that does not, by bisection.
        const auto goes_up = [&](std::uint64_t word) {
            Flags raised;
            c.up = pack(f, x, policy, static_cast<std::uint32_t>(word), raised);
            return c.up != c.down || raised.test(Flags::overflow);
        };
        const std::uint64_t words = std::uint64_t{1} << policy.random_bits;
        std::uint64_t low = 0, high = words;
        while (low < high) {
            const std::uint64_t middle = low + (high - low) / 2;
            if (goes_up(middle)) low = middle + 1;
            else high = middle;
        }
        c.words_up = low;
        c.probability = static_cast<double>(low) / static_cast<double>(words);
        // 2. The discarded part, in units of the last place: what the code of the truncated number does not hold.
        Policy away = truncated;
        away.rounding = x.sign ? Rounding::down : Rounding::up;
        c.up = pack(f, x, away, 0, flags);
        const Unpacked below = unpack(f, c.down);
        const int binade = std::max(x.exponent + 63 - std::countl_zero(x.significand), f.first_binade());
        c.fraction = std::ldexp(std::fabs(to_double(x) - to_double(below)), f.fraction_bits - binade);
        all.push_back(c);
    }
    return all;
}

} // namespace amp
