// Arithmetic a second time: exact numbers of any size, rounded by searching the list of a format's values. It shares
// no code with formats/, of which it takes the facts of a format and the names of modes and flags only, so that test
// vectors which one of the two has written can be checked by the other. It is made to be obvious, not fast.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/sim/analysis/conformance/operations.h>

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

namespace amp::exact {

using conformance::Op, conformance::OperandCodes;

/// A natural number of any size.
class Natural {
  public:
    Natural() = default;
    Natural(std::uint64_t n) { // a number is a number
        if (n != 0) words_.push_back(n);
    }

    [[nodiscard]] bool is_zero() const { return words_.empty(); }
    [[nodiscard]] bool is_odd() const { return !words_.empty() && words_[0] % 2 != 0; }
    /// The number itself. Precondition: it has at most 64 bits.
    [[nodiscard]] std::uint64_t low() const { return words_.empty() ? 0 : words_[0]; }
    /// Number of bits up to the leading one.
    [[nodiscard]] int bits() const;
    /// The number times 2^n, rounded down.
    [[nodiscard]] Natural shifted(int n) const;
    Natural& operator+=(const Natural& x);
    /// Precondition: x is at most this number.
    Natural& operator-=(const Natural& x);
    Natural operator*(const Natural& x) const;
    /// The quotient, rounded down. Precondition: 0 < x.
    Natural operator/(std::uint32_t x) const;
    std::strong_ordering operator<=>(const Natural& x) const;
    bool operator==(const Natural&) const = default;

  private:
    std::vector<std::uint64_t> words_; // lowest first, the last is not zero
};

enum class Class : std::uint8_t { zero, finite, infinity, nan };

/// (-1)^negative * numerator / denominator * 2^exponent, or the square root of that if `root`.
struct Number {
    Class kind = Class::zero;
    bool negative = false;
    bool subnormal = false; ///< in the format that it was read from
    bool signaling = false; ///< IEEE 754 signalling NaN
    std::uint32_t nan = 0;  ///< the fraction of a NaN
    int nan_bits = 0;       ///< and how many bits it has
    Natural numerator{};
    std::uint64_t denominator = 1;
    int exponent = 0;
    bool root = false;
};

/// The number that a code stands for.
Number read(const FormatSpec& format, std::uint32_t code);

struct Result {
    std::uint32_t code = 0;
    std::uint8_t flags = 0;
    bool operator==(const Result&) const = default;
};

/// Stores a number in a format. Precondition: the policy does not round stochastically.
Result store(const FormatSpec& format, const Policy& policy, const Number& x, unsigned flags = 0);

/// An operation on codes of one format; the result of a comparison is 1 or 0. Precondition: neither convert nor dot.
Result apply(const FormatSpec& format, const Policy& policy, Op operation, const OperandCodes& codes,
             bool exact = false);

/// a * b + c of numbers read in any formats, stored in one.
Result fused(const FormatSpec& format, const Policy& policy, const Number& a, const Number& b, const Number& c);

/// A code of one format in another.
Result convert(const FormatSpec& from, std::uint32_t code, const FormatSpec& to, const Policy& policy);

using Codes = std::span<const std::uint32_t>;

/// The formats of a dot product's operands.
struct Formats {
    const FormatSpec &a, &b;
};

/// Scales of the operands of a dot product, one for `block` numbers each.
struct Scales {
    FormatSpec format{};
    std::size_t block = 1;
    Codes a{}, b{};
};

/// Codes a . b + c as the accumulator adds up, c and the result in the accumulator's total(). With scales, they are
/// part of its sums; it must be one that applies them.
std::uint32_t dot(const Accumulator& accumulator, const Formats& formats, Codes a, Codes b, std::uint32_t c,
                  const Scales& scales = {});

/// c plus the dot product of each block, times the product of its scales, by fused multiply-adds in FP32.
std::uint32_t dot_of_blocks(const Accumulator& accumulator, const Formats& formats, Codes a, Codes b, std::uint32_t c,
                            const Scales& scales);

} // namespace amp::exact
