#include <ampscope/sim/analysis/exact_sum.h>

#include <ampscope/sim/base/number.h>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

namespace amp {

namespace {

__extension__ typedef unsigned __int128 Wide;

/// The quotient rounded down, and what remains.
constexpr std::pair<int, int> divided(int x, int by) {
    const int quotient = x >= 0 ? x / by : -((by - 1 - x) / by);
    return {quotient, x - quotient * by};
}

} // namespace

std::uint32_t& ExactSum::limb(int place) {
    if (limbs_.empty()) lowest_ = place;
    if (place < lowest_) {
        limbs_.insert(limbs_.begin(), static_cast<std::size_t>(lowest_ - place), 0);
        lowest_ = place;
    }
    const auto index = static_cast<std::size_t>(place - lowest_);
    if (index >= limbs_.size()) limbs_.resize(index + 1);
    return limbs_[index];
}

void ExactSum::add_product(std::uint64_t x, std::uint64_t times, int exponent) {
    const Wide product = Wide{x} * times;
    for (const int half : {0, 64}) {
        auto [place, shift] = divided(exponent + half, limb_bits);
        // The carry out of a limb joins what is left of the half, which is below 2^96 and shrinks.
        for (Wide left = Wide{static_cast<std::uint64_t>(product >> half)} << shift; left != 0; left >>= limb_bits) {
            std::uint32_t& digit = limb(place++);
            left += digit;
            digit = static_cast<std::uint32_t>(left);
        }
    }
}

void ExactSum::add_limbs(const ExactSum& other, std::uint64_t times, int exponent) {
    for (std::size_t i = 0; i < other.limbs_.size(); ++i)
        add_product(other.limbs_[i], times, (other.lowest_ + static_cast<int>(i)) * limb_bits + exponent);
    infinite_ = infinite_ || (other.infinite_ && times > 0);
}

void ExactSum::add(double x, std::uint64_t times) {
    if (x == 0 || times == 0) return;
    if (std::isinf(x)) {
        infinite_ = true;
        return;
    }
    int exponent = 0;
    const auto significand = static_cast<std::uint64_t>(std::ldexp(std::frexp(x, &exponent), 53));
    add_product(significand, times, exponent - 53);
}

ExactSum& ExactSum::operator+=(const ExactSum& other) {
    add_limbs(other, 1, 0);
    return *this;
}

ExactSum ExactSum::repeated(std::uint64_t times) const {
    ExactSum result;
    result.add_limbs(*this, times, 0);
    return result;
}

ExactSum ExactSum::scaled(int exponent) const {
    ExactSum result;
    result.add_limbs(*this, 1, exponent);
    return result;
}

double ExactSum::value() const {
    if (infinite_) return std::numeric_limits<double>::infinity();
    std::size_t used = limbs_.size();
    while (used > 0 && limbs_[used - 1] == 0) --used;
    if (used == 0) return 0;
    // The leading three limbs have 65 bits or more: 64 of them, the last of which also stands for all that follow.
    Wide leading = 0;
    const std::size_t first = used > 3 ? used - 3 : 0;
    for (std::size_t i = used; i > first; --i) leading = leading << limb_bits | limbs_[i - 1];
    bool rest = std::any_of(limbs_.begin(), limbs_.begin() + static_cast<std::ptrdiff_t>(first),
                            [](std::uint32_t digit) { return digit != 0; });
    int exponent = (lowest_ + static_cast<int>(first)) * limb_bits;
    for (; leading >> 64 != 0; leading >>= 1, ++exponent) rest = rest || (leading & 1) != 0;
    const int unused = std::countl_zero(static_cast<std::uint64_t>(leading)); // only where there are few limbs
    const std::uint64_t significand = static_cast<std::uint64_t>(leading) << unused | std::uint64_t{rest};
    // A long double holds the 64 bits, and rounds to double once, where that is subnormal, too.
    return static_cast<double>(std::ldexp(static_cast<long double>(significand), exponent - unused));
}

std::string ExactSum::text() const {
    if (infinite_) return "inf";
    std::string digits;
    std::size_t first = 0, used = limbs_.size();
    while (used > 0 && limbs_[used - 1] == 0) --used;
    while (first < used && limbs_[first] == 0) ++first;
    if (first == used) return "0x0p0";
    for (std::size_t i = used; i > first; --i) digits += fmt::format("{:08x}", limbs_[i - 1]);
    digits.erase(0, digits.find_first_not_of('0'));
    return fmt::format("0x{}p{}", digits, (lowest_ + static_cast<int>(first)) * limb_bits);
}

std::optional<ExactSum> ExactSum::read(std::string_view text) {
    constexpr int farthest = 8192;        // doubles end at 2^1024 and 2^-1074
    constexpr std::size_t longest = 4096; // digits
    ExactSum sum;
    if (text == "inf") {
        sum.infinite_ = true;
        return sum;
    }
    const std::size_t cut = text.find('p');
    if (!text.starts_with("0x") || cut == std::string_view::npos || cut > longest) return std::nullopt;
    std::optional<int> exponent = number_of(text.substr(cut + 1), -farthest, farthest);
    if (!exponent) return std::nullopt;
    for (std::size_t last = cut; last > 2; last = last > 10 ? last - 8 : 2, *exponent += limb_bits) {
        const std::size_t first = last > 10 ? last - 8 : 2;
        std::uint32_t digits = 0;
        const auto [stop, fault] = std::from_chars(text.data() + first, text.data() + last, digits, 16);
        if (fault != std::errc{} || stop != text.data() + last) return std::nullopt;
        sum.add_product(digits, 1, *exponent);
    }
    return sum.text() == text ? std::optional(sum) : std::nullopt;
}

} // namespace amp
