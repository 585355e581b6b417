// Exact differences of numbers of any type, and sums of squares as if exponents were unbounded: for what a double has
// too few digits (64-bit integers) or too small a range (squares of FP64).
#pragma once

#include <ampscope/formats/codec.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace amp {

/// The same number with bit 63 of its significand set; zeros, infinities and NaN are unchanged.
Unpacked normalised(Unpacked x);

/// Whether |x| < |y|, exactly, for finite numbers.
bool is_smaller(const Unpacked& x, const Unpacked& y);

/// |x - y| of finite numbers, normalised. Exact if the difference has at most 64 significant bits; else its leading 64
/// bits with the last one set, and the true value differs by less than one unit of that bit.
Unpacked distance(const Unpacked& x, const Unpacked& y);

/// |x| / |y| for finite numbers, y not zero: each significand is rounded to double, then their quotient.
double ratio(const Unpacked& x, const Unpacked& y);

/// A sum of squares. Every square and every sum is rounded to the 53 bits of a double, but none overflows or
/// underflows: there is a partial sum for each range of exponents, as in Blue's norm ("A portable Fortran program to
/// find the Euclidean norm of a vector", ACM TOMS 4, 1978), and they are added when a result is asked for. The last
/// bits depend on the order of the additions, so callers say which order they use.
class SquareSum {
  public:
    SquareSum() = default;
    /// A sum given as a double; NaN if it is unknown.
    explicit SquareSum(double sum);

    /// Adds (x * 2^exponent)^2 for finite x; magnitudes from 2^-2380 to 2^2370 are allowed.
    void add(double x, int exponent = 0) {
        const int field = static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52 & 0x7ff);
        const bool plain = field != 0 && exponent > -1000 && exponent < 1000; // the common case, without a call
        if (!plain || range_of(field - 1023 + exponent) != 0) return add_anywhere(x, exponent);
        const double part = x * std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
        sum_of(0) += part * part;
    }
    SquareSum& operator+=(const SquareSum& later);
    SquareSum& operator*=(double factor);

    [[nodiscard]] bool is_zero() const { return parts().first == 0; }
    /// The sum as m * 2^e with m in [0.5, 1), or m = 0.
    [[nodiscard]] std::pair<double, int> parts() const;
    /// The square root of the sum, as m * 2^e.
    [[nodiscard]] std::pair<double, int> root() const;
    /// The nearest double, which may be infinite or 0.
    [[nodiscard]] double value() const;

    /// The sum in hexadecimal, with any exponent: "0x1.8p-1400". read() accepts this form only.
    [[nodiscard]] std::string text() const;
    static std::optional<SquareSum> read(std::string_view text);

    bool operator==(const SquareSum&) const = default;

  private:
    static constexpr int width = 950, lowest = -480; // range k holds exponents [lowest, lowest + width) + k * width
    static constexpr int ranges = 5, middle = 2;     // the sum of range k is in units of 2^(2 * k * width)

    static int range_of(int exponent) {
        const int above = exponent - lowest;
        return (above >= 0 ? above : above - width + 1) / width;
    }
    static SquareSum from_parts(double m, int exponent);
    void add_anywhere(double x, int exponent);
    double& sum_of(int range) { return sums_[static_cast<std::size_t>(range + middle)]; }

    std::array<double, ranges> sums_{};
};

} // namespace amp
