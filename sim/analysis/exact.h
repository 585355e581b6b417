// Numbers of any type that is read, where a double has too few digits (64-bit integers) or too small a range (squares
// of FP64): exact differences, and sums of squares as if exponents had no bounds.
#pragma once

#include <ampscope/formats/codec.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace amp {

/// The same number with bit 63 of its significand set; zeros, infinities and NaN as they are.
Unpacked normalised(Unpacked x);

/// |x| < |y|, exactly, of finite numbers or zeros.
bool is_smaller(const Unpacked& x, const Unpacked& y);

/// |x - y| of finite numbers or zeros, normalised: exactly where the difference has at most 64 significant bits, else
/// 64 bits of it, the last of which stands for whatever lies below (it is set, and the true value differs by less than
/// one unit of it).
Unpacked distance(const Unpacked& x, const Unpacked& y);

/// |x| / |y| of finite y: each significand rounded to double, then their quotient.
double ratio(const Unpacked& x, const Unpacked& y);

/// A sum of squares. Every square and every sum is rounded to the 53 bits of a double, but none overflows or vanishes:
/// there is a partial sum for each range of exponents, as in Blue's norm ("A portable Fortran program to find the
/// Euclidean norm of a vector", ACM TOMS 4, 1978), and they are added when a result is asked for. Sums depend on the
/// order of the additions in their last bits, so callers state it.
class SquareSum {
  public:
    SquareSum() = default;
    /// A sum that is known otherwise; NaN for one that is not known.
    explicit SquareSum(double sum);

    /// Adds (x * 2^exponent)^2 of a finite x; magnitudes from 2^-2380 to 2^2370.
    void add(double x, int exponent = 0) {
        const int field = static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52 & 0x7ff);
        const bool plain = field != 0 && exponent > -1000 && exponent < 1000; // the usual case, without a call
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

    /// The sum in hexadecimal, with whatever exponent it has: "0x1.8p-1400". read() takes that, and nothing else.
    [[nodiscard]] std::string text() const;
    static std::optional<SquareSum> read(std::string_view text);

    bool operator==(const SquareSum&) const = default;

  private:
    static constexpr int width = 950, lowest = -480; // exponents of range k: [lowest, lowest + width) + k * width
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
