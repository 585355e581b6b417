#include <ampscope/tools/amp-format/testfloat.h>

#include <ampscope/sim/analysis/conformance/cases.h>
#include <ampscope/sim/io/tensor_file.h>
#include <ampscope/tools/output.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace amp::format_tool {

using conformance::Gives, conformance::OperandCodes, conformance::Operation, conformance::operations;

namespace {

enum class WordKind { number, unsigned_integer, signed_integer };

/// A format or an integer as TestFloat spells its words.
struct WordType {
    std::string_view prefix;
    FormatSpec format;
    int digits;
    int shift; ///< unused low bits: TF32 travels as FP32 words
    WordKind kind = WordKind::number;

    [[nodiscard]] constexpr bool is_integer() const { return kind != WordKind::number; }
};

constexpr std::array word_types = {
    WordType{"f16", format("fp16"), 4, 0},
    WordType{"f32", format("fp32"), 8, 0},
    WordType{"bf16", format("bf16"), 4, 0},
    WordType{"tf32", format("tf32"), 8, 13},
    WordType{"e4m3", format("e4m3"), 2, 0},
    WordType{"e5m2", format("e5m2"), 2, 0},
    WordType{"ui32", {}, 8, 0, WordKind::unsigned_integer},
    WordType{"i32", {}, 8, 0, WordKind::signed_integer},
    WordType{"ui64", {}, 16, 0, WordKind::unsigned_integer},
    WordType{"i64", {}, 16, 0, WordKind::signed_integer},
};

constexpr std::uint64_t last_integer(const WordType& type) { return ~std::uint64_t{0} >> (64 - 4 * type.digits); }
constexpr std::uint64_t sign_of_integer(const WordType& type) {
    return type.kind == WordKind::signed_integer ? last_integer(type) / 2 + 1 : 0;
}

Unpacked from_integer(const WordType& type, std::uint64_t word) {
    if (word == 0) return {};
    const bool sign = (word & sign_of_integer(type)) != 0;
    return {.kind = Kind::finite, .sign = sign, .significand = sign ? (~word & last_integer(type)) + 1 : word};
}

/// Rounded by the policy; inexact only if `exact`. What is no such integer raises invalid alone and gives what x86
/// does: all bits of an unsigned integer set, of a signed one only the sign bit (SoftFloat's 8086-SSE, for NaN too).
std::uint64_t to_integer(Arithmetic& unit, const WordType& type, std::uint32_t code, bool exact) {
    const Unpacked x = unpack(unit.format, unit.round_to_integral(code, exact)); // every integral value is a code
    const std::uint64_t sign = sign_of_integer(type), most = sign == 0 ? last_integer(type) : x.sign ? sign : sign - 1;
    if (x.kind == Kind::zero) return 0;
    const int bits = 64 - std::countl_zero(x.significand) + x.exponent; // of the magnitude
    if (x.kind == Kind::finite && bits <= 64 && !(x.sign && sign == 0)) {
        const std::uint64_t magnitude = x.exponent >= 0 ? x.significand << x.exponent : x.significand >> -x.exponent;
        if (magnitude <= most) return (x.sign ? ~magnitude + 1 : magnitude) & last_integer(type);
    }
    unit.flags = {Flags::invalid};
    return sign == 0 ? last_integer(type) : sign;
}

/// What a function name stands for: an operation on one type, or a conversion between two.
struct Function {
    WordType from, to;
    const Operation* operation; ///< none: a conversion
};

/// A row of the table or, with words of the width of its codes, any other format by its own name; nothing if there is
/// none of that name. Throws std::invalid_argument for a format whose values floats cannot hold.
std::optional<WordType> find_type(std::string_view prefix) {
    const auto* it = std::ranges::find(word_types, prefix, &WordType::prefix);
    if (it != word_types.end()) return *it;
    try {
        format_of_codes(prefix);
    } catch (const std::invalid_argument&) {
        return std::nullopt;
    }
    const conformance::Column column{.name = "a", .format = format(prefix)};
    return WordType{prefix, *column.format, column.digits(), column.shift()};
}

/// A type, which may have underscores itself (float8_e4m3fn), an underscore and what follows.
Function parse_function(std::string_view name) {
    for (std::size_t cut = name.find('_'); cut != std::string_view::npos; cut = name.find('_', cut + 1)) {
        const std::optional<WordType> type = find_type(name.substr(0, cut));
        if (!type) continue;
        const std::string_view written = name.substr(cut + 1), rest = written == "fma" ? "mulAdd" : written;
        const auto it = std::ranges::find(operations(), rest, &Operation::name);
        if (it != operations().end() && !type->is_integer()) {
            check_format(*it, type->format);
            return {*type, *type, &*it};
        }
        const auto to = rest.starts_with("to_") ? find_type(rest.substr(3)) : std::nullopt;
        if (to && !(type->is_integer() && to->is_integer())) return {*type, *to, nullptr};
    }
    throw_unknown("function", name, testfloat_functions());
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

void append_hex(std::string& text, std::uint64_t value, int digits) {
    for (int i = digits - 1; i >= 0; --i) text += "0123456789ABCDEF"[value >> (4 * i) & 15];
}

class Evaluator {
  public:
    explicit Evaluator(const EvalOptions& options)
        : options_(options), function_(parse_function(options.function)), policy_(options.policy),
          operands_(function_.operation == nullptr ? 1 : function_.operation->operands) {}

    /// Appends the line with its result and flags to `out`; an empty line is skipped, but counted.
    void run(std::string_view line, std::string& out) {
        ++line_number_;
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty()) return;
        std::array<std::uint64_t, 3> words{};
        std::string_view rest = line;
        for (std::size_t i = 0; i < operands_; ++i) words[i] = take_word(rest);
        if (rest.find_first_not_of(' ') != std::string_view::npos)
            fail("has more than " + std::to_string(operands_) + " operands");
        Arithmetic unit{function_.from.format, policy_};
        const std::uint64_t result = compute(unit, words);
        const Gives gives = function_.operation == nullptr ? Gives::number : function_.operation->gives;
        const bool small = gives == Gives::truth || gives == Gives::number_class;
        out += line;
        out += ' ';
        append_hex(out, small ? result : result << function_.to.shift, small ? 1 : function_.to.digits);
        out += ' ';
        append_hex(out, unit.flags.bits, 2);
        out += '\n';
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        throw FileError("standard input", "line " + std::to_string(line_number_) + " " + what);
    }

    std::uint64_t compute(Arithmetic& unit, const std::array<std::uint64_t, 3>& words) const {
        const auto& [from, to, operation] = function_;
        if (from.is_integer()) return pack(to.format, from_integer(from, words[0]), policy_, 0, unit.flags);
        OperandCodes operands{};
        for (std::size_t i = 0; i < operands_; ++i) operands[i] = code(static_cast<std::uint32_t>(words[i]));
        if (operation != nullptr) return conformance::run(*operation, unit, operands, options_.exact);
        if (to.is_integer()) return to_integer(unit, to, operands[0], options_.exact);
        return convert(from.format, operands[0], to.format, policy_, 0, unit.flags);
    }

    std::uint64_t take_word(std::string_view& rest) const {
        while (rest.starts_with(' ')) rest.remove_prefix(1);
        std::uint64_t word = 0;
        int digits = 0;
        for (; !rest.empty() && rest.front() != ' '; rest.remove_prefix(1), ++digits) {
            const int digit = hex_digit(rest.front());
            if (digit < 0)
                fail("has the character '" + std::string(1, rest.front()) + "', expected hexadecimal digits");
            word = word << 4 | static_cast<std::uint64_t>(digit);
        }
        if (digits != function_.from.digits)
            fail("needs operands of " + std::to_string(function_.from.digits) + " hexadecimal digits");
        return word;
    }

    /// A word as a code. A TF32 operand with any of FP32's last 13 bits set is no TF32 number; NaN may have them.
    std::uint32_t code(std::uint32_t word) const {
        const int shift = function_.from.shift;
        const std::uint32_t low = word & ((1u << shift) - 1);
        if (low == 0) return word >> shift;
        const Unpacked x = unpack(fp32_format(), word);
        if (!x.is_nan())
            fail("has an operand that is no " + std::string(function_.from.format.name) +
                 " number: its last bits are set");
        Flags unused;
        return pack(function_.from.format, x, {.nan = NanRule::payload}, 0, unused);
    }

    EvalOptions options_;
    Function function_;
    Policy policy_;
    std::size_t operands_;
    std::uint64_t line_number_ = 0;
};

} // namespace

std::string testfloat_functions() {
    std::string text;
    for (const WordType& type : word_types)
        if (!type.is_integer()) text += std::string(text.empty() ? "" : " ") + std::string(type.prefix) + "_";
    text += ", or the name of any other format (binary8p3_), followed by " + names_of_rows(operations());
    return text + " or to_ and another of the formats, as in f32_to_f16; of either side ui32, i32, ui64, i64, as in "
                  "i64_to_f16 and f16_to_ui32 (what is no such integer gives FFFFFFFF or 80000000, as on x86)";
}

void check(const EvalOptions& options) { parse_function(options.function); }

void evaluate(const EvalOptions& options) {
    Evaluator evaluator(options);
    std::vector<char> buffer(std::size_t{1} << 20);
    std::size_t kept = 0; // the beginning of a line that the last read cut
    for (;;) {
        if (kept == buffer.size()) throw FileError("standard input", "a line is longer than any operands");
        const std::size_t n = std::fread(buffer.data() + kept, 1, buffer.size() - kept, stdin);
        if (std::ferror(stdin) != 0)
            throw FileError("standard input", "cannot be read: " + std::generic_category().message(errno));
        const std::string_view text(buffer.data(), kept + n);
        std::string results;
        std::size_t begin = 0;
        for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', begin)) {
            evaluator.run(text.substr(begin, end - begin), results);
            begin = end + 1;
        }
        if (n == 0 && begin < text.size()) evaluator.run(text.substr(begin), results);
        print_text(results);
        if (n == 0) return;
        kept = text.size() - begin;
        std::memmove(buffer.data(), buffer.data() + begin, kept);
    }
}

} // namespace amp::format_tool
