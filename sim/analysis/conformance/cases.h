// Cases for people who build hardware: operands, results and flags of an operation in a number format, made from a
// seed. The same question gives the same cases on every machine.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/sim/analysis/conformance/operations.h>
#include <ampscope/sim/base/progress.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amp::conformance {

/// Where operands come from.
enum class Kind : std::uint8_t {
    edges,     ///< zeros, ends of the subnormal and normal numbers, infinities, NaN, powers of two and their neighbours
    random,    ///< every code as likely as any other; of dot products, every finite one
    ties,      ///< results halfway between two neighbours, and as close to it as one can get on either side
    cancel,    ///< dot products whose terms cancel in pairs, some of them not quite
    one_large, ///< dot products of one large term and many small ones, or of small ones and a large addend
    specials,  ///< dot products with NaN, infinities and zeros of both signs
    all,       ///< every code, or every tuple of them, in order and again from the beginning; made only if asked for
};
inline constexpr std::array<std::string_view, 7> kind_names = {"edges",     "random",   "ties", "cancel",
                                                               "one_large", "specials", "all"};
constexpr std::string_view name_of(Kind kind) { return kind_names[static_cast<std::size_t>(kind)]; }

/// The scales of a dot product's operands: their format, and how many numbers share one. The last has what is left.
struct DotScales {
    FormatSpec format{};
    std::uint64_t block = 0;
};

/// What cases are to be made.
struct Question {
    Op op = Op::add;
    FormatSpec format{};               ///< the operands' format
    std::optional<FormatSpec> to{};    ///< the format of a conversion's result
    std::string profile = "ieee";      ///< the row of `profiles` that `policy` began as
    Policy policy{};                   ///< how all but dot products round; not stochastically
    bool exact = false;                ///< roundToInt raises inexact
    std::optional<FormatSpec> b{};     ///< the format of a dot product's second operand; else `format`
    std::optional<Accumulator> sum{};  ///< how a dot product adds up
    std::uint64_t k = 64;              ///< number of products
    std::optional<DotScales> scales{}; ///< scaled_dot() with the addend c instead of dot()
    std::vector<Kind> kinds{};         ///< empty: those of kinds_of()
    std::uint64_t count = 10000;       ///< number of cases, the same of each kind (some kinds have one more)
    std::uint64_t seed = 0;
};

/// A group of columns of a case: codes of one format, or small numbers.
struct Column {
    std::string_view name; ///< a, b, a_scale, b_scale, c or result
    std::optional<FormatSpec> format{};
    std::uint64_t words = 1;
    std::uint32_t last = 1; ///< without a format: 1 where the words are 0 and 1, 7 where they are classes

    /// Unused low bits: TF32 travels as FP32 words, as hardware has it and TestFloat's lines spell it.
    [[nodiscard]] int shift() const;
    [[nodiscard]] int digits() const; ///< hexadecimal digits of a word
    [[nodiscard]] std::uint32_t mask() const;
};

/// The operands of a case in their order, and the result, which comes last.
std::vector<Column> columns_of(const Question& question);
/// Codes of all operands of a case.
std::uint64_t operands_of(const Question& question);
/// Number of scales of each operand of a dot product; 0 without scales.
std::uint64_t scales_of(const Question& question);
/// The format of a dot product's addend and result.
FormatSpec total_of(const Question& question);
/// Dot products raise no flags: matrix hardware has none.
inline bool has_flags(const Question& question) { return question.op != Op::dot; }

/// "add", "convert", "dot".
std::string_view name_of(Op op);
/// Throws std::invalid_argument; "fma" is mulAdd.
Op parse_op(std::string_view name);
std::string op_names();

/// The kinds of cases that the operation has, but for `all`. A conversion that is always exact has no ties.
std::vector<Kind> kinds_of(const Question& question);
/// How many different cases of the operation there are: the number of cases of the kind `all`. Nothing if they are more
/// than 2^24.
std::optional<std::uint64_t> number_of_all(const Question& question);

/// Throws std::invalid_argument for a question that means nothing: formats that take no part in the operation, kinds
/// that it does not have, more than memory holds.
void check(const Question& question);

struct Cases {
    Question question{};
    std::vector<std::uint32_t> operands{}; ///< codes, case by case
    std::vector<std::uint32_t> results{};
    std::vector<std::uint8_t> flags{}; ///< empty for dot products

    [[nodiscard]] std::size_t size() const { return results.size(); }
    [[nodiscard]] std::span<const std::uint32_t> operands_at(std::size_t i) const {
        const std::size_t n = operands_of(question);
        return std::span(operands).subspan(i * n, n);
    }
};

/// A case's result and flags.
struct Answer {
    std::uint32_t result = 0;
    std::uint8_t flags = 0;
    bool operator==(const Answer&) const = default;
};

/// By formats/: what make_cases() writes.
Answer answer(const Question& question, std::span<const std::uint32_t> operands);
/// By exact_arithmetic.h, which shares no code with formats/.
Answer exact_answer(const Question& question, std::span<const std::uint32_t> operands);

/// Number of cases of each of the question's kinds.
std::vector<std::uint64_t> counts_of(const Question& question);

/// Throws what check() throws. `watch` counts cases.
Cases make_cases(const Question& question, const Watch& watch = {});

} // namespace amp::conformance
