// Exact sums of magnitudes: integers of any length, so that a sum is the same in any order, on any number of threads,
// processes and machines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// An exact sum of doubles that are not negative and not NaN; once infinity was added it is infinite.
class ExactSum {
  public:
    /// Adds x, `times` times.
    void add(double x, std::uint64_t times = 1);
    ExactSum& operator+=(const ExactSum& other);
    [[nodiscard]] ExactSum repeated(std::uint64_t times) const;
    /// The sum times 2^exponent.
    [[nodiscard]] ExactSum scaled(int exponent) const;
    /// The nearest double, ties to even; infinite if the sum is beyond the largest one.
    [[nodiscard]] double value() const;

    /// The sum in hexadecimal, "0x1c0p-32", or "inf". read() accepts this form only.
    [[nodiscard]] std::string text() const;
    static std::optional<ExactSum> read(std::string_view text);

    bool operator==(const ExactSum& other) const { return text() == other.text(); }

  private:
    static constexpr int limb_bits = 32;

    /// Adds x * times * 2^exponent.
    void add_product(std::uint64_t x, std::uint64_t times, int exponent);
    /// Adds all limbs of the other, times `times` * 2^exponent.
    void add_limbs(const ExactSum& other, std::uint64_t times, int exponent);
    /// The limb of weight 2^(limb_bits * place); limbs are added as needed.
    std::uint32_t& limb(int place);

    int lowest_ = 0;                   ///< the place of limbs_[0]
    std::vector<std::uint32_t> limbs_; ///< the digits of the sum, the lowest first
    bool infinite_ = false;
};

} // namespace amp
