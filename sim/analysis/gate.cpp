#include <ampscope/sim/analysis/gate.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/base/number.h>

#include <array>
#include <cmath>
#include <optional>
#include <utility>

namespace amp {

namespace {

constexpr std::array<std::string_view, 7> class_names = {"underflow", "subnormal", "normal", "overflow",
                                                         "zero",      "nan",       "inf"};

/// Parses a gate from left to right; every error names its place.
class Parser {
  public:
    explicit Parser(std::string_view text) : text_(text) {}

    Gate parse() {
        Gate gate;
        gate.text = text_;
        gate.format = take_until("@.");
        try {
            const FormatSpec named = format(gate.format);
            if (named.is_scale()) fail(begin_, "a number format (this one is for scales)");
            if (!is_counted(named)) fail(begin_, "a format whose casts histograms count");
        } catch (const GateError&) {
            throw;
        } catch (const std::invalid_argument& unknown) {
            fail(begin_, std::string("a format (") + unknown.what() + ")");
        }
        if (take('@')) gate.scale = take_scale();
        if (!take('.')) fail(position_, "'.' and a class");
        take_class(gate);
        take_limit(gate);
        return gate;
    }

  private:
    [[noreturn]] void fail(std::size_t position, const std::string& expected) const {
        throw GateError(text_, position, expected);
    }

    void skip_spaces() {
        while (position_ < text_.size() && text_[position_] == ' ') ++position_;
    }
    bool take(char c) {
        skip_spaces();
        if (position_ >= text_.size() || text_[position_] != c) return false;
        ++position_;
        return true;
    }
    /// Takes the word up to one of `ends` or a space; these are not taken.
    std::string take_until(std::string_view ends) {
        skip_spaces();
        begin_ = position_;
        while (position_ < text_.size() && text_[position_] != ' ' &&
               ends.find(text_[position_]) == std::string_view::npos)
            ++position_;
        return std::string(text_.substr(begin_, position_ - begin_));
    }

    /// The scale ends at the last '.' before the class: "@3.5.underflow".
    double take_scale() {
        skip_spaces();
        begin_ = position_;
        const std::size_t relation = std::min(text_.find('<', begin_), text_.size());
        const std::size_t dot = text_.substr(0, relation).rfind('.', relation);
        if (dot == std::string_view::npos || dot < begin_) fail(begin_, "SCALE.CLASS");
        position_ = dot;
        try {
            const std::string_view word = text_.substr(begin_, dot - begin_);
            return parse_scale(word.substr(0, word.find_last_not_of(' ') + 1));
        } catch (const std::invalid_argument&) {
            fail(begin_, "a scale: 2^K or a positive number");
        }
    }

    void take_class(Gate& gate) {
        const std::string name = take_until("/<>=!");
        std::size_t i = 0;
        while (i < class_names.size() && class_names[i] != name) ++i;
        if (i == class_names.size()) fail(begin_, "a class: underflow, subnormal, normal, overflow, zero, nan or inf");
        gate.number_class = static_cast<NumberClass>(i);
        const bool finite_nonzero = gate.number_class <= NumberClass::overflow;
        gate.denominator = finite_nonzero ? Denominator::nonzero : Denominator::all;
        if (!take('/')) return;
        explicit_denominator_ = true;
        const std::string of = take_until("<");
        if (of == "all") gate.denominator = Denominator::all;
        else if (of != "nonzero") fail(begin_, "all or nonzero");
        else if (!finite_nonzero) fail(begin_, "all: a non-zero element is no " + name);
    }

    /// Takes decimal digits, so that the comparison can be exact.
    void take_limit(Gate& gate) {
        if (!take('<')) fail(position_, "'<' or '<='");
        gate.or_equal = position_ < text_.size() && text_[position_] == '=' && take('=');
        skip_spaces();
        begin_ = position_;
        int digits = 0;
        bool point = false;
        for (; position_ < text_.size(); ++position_) {
            const char c = text_[position_];
            if (c == '.' && !point) {
                point = true;
                continue;
            }
            if (c < '0' || c > '9') break;
            if (gate.limit_digits != 0 || c != '0') ++digits;
            gate.limit_decimals += point ? 1 : 0;
            if (digits > 18 || gate.limit_decimals > 16)
                fail(position_, "at most 18 digits, 16 of them after the point");
            gate.limit_digits = gate.limit_digits * 10 + static_cast<std::uint64_t>(c - '0');
        }
        if (position_ == begin_ || text_.substr(begin_, position_ - begin_) == ".")
            fail(begin_, "a limit, such as 0.5% or 100");
        if (take('%')) gate.limit_decimals += 2;
        else if (!point && !explicit_denominator_) gate.denominator = Denominator::none;
        std::uint64_t one = 1;
        for (int i = 0; i < gate.limit_decimals; ++i) one *= 10;
        if (gate.denominator != Denominator::none && gate.limit_digits > one)
            fail(begin_, "a share of at most 1 or 100%, since no share is larger");
        skip_spaces();
        if (position_ != text_.size()) fail(position_, "the end of the gate");
    }

    std::string_view text_;
    std::size_t position_ = 0, begin_ = 0; ///< position of the next character; begin of the word last taken
    bool explicit_denominator_ = false;
};

} // namespace

std::string_view name_of(NumberClass c) { return class_names[static_cast<std::size_t>(c)]; }

std::string_view name_of(Denominator denominator) {
    constexpr std::array<std::string_view, 3> names = {"none", "all", "nonzero"};
    return names[static_cast<std::size_t>(denominator)];
}

GateError::GateError(std::string_view text, std::size_t position, const std::string& expected)
    : std::invalid_argument("gate '" + std::string(text) + "', character " + std::to_string(position + 1) +
                            ": expected " + expected) {}

Gate parse_gate(std::string_view text) {
    const FloatEnvironment environment;
    return Parser(text).parse();
}

double parse_scale(std::string_view text) {
    const FloatEnvironment environment;
    if (text.starts_with("2^")) {
        if (const std::optional<int> log2 = number_of(text.substr(2), -1000, 1000)) return std::ldexp(1.0, *log2);
    } else if (const std::optional<double> value = number_of<double>(text)) {
        if (*value > 0 && std::isfinite(*value)) return *value;
    }
    throw std::invalid_argument("scale '" + std::string(text) + "': expected 2^K or a positive number");
}

bool holds(const Gate& gate, std::uint64_t part, std::uint64_t whole, double fraction) {
    if (gate.denominator == Denominator::none) whole = 1;
    if (whole == 0) return false;
    __extension__ typedef unsigned __int128 Wide; // 2^64 * 10^18 < 2^124
    Wide power = 1;
    for (int i = 0; i < gate.limit_decimals; ++i) power *= 10;
    // Compares (part + fraction) * 10^decimals with digits * whole.
    const Wide left = part * power, right = Wide{gate.limit_digits} * whole;
    if (left > right) return false;
    if (right - left >= power) return true; // since fraction < 1
    // Compares the rest in units of 2^-64.
    const double units = std::ldexp(fraction, 64);
    const Wide left_rest = static_cast<std::uint64_t>(units) * power, right_rest = (right - left) << 64;
    if (left_rest != right_rest) return left_rest < right_rest;
    return gate.or_equal && units == std::floor(units);
}

} // namespace amp
