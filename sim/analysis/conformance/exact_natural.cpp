#include <ampscope/sim/analysis/conformance/exact_arithmetic.h>

#include <algorithm>
#include <bit>

namespace amp::exact {

int Natural::bits() const {
    return words_.empty() ? 0 : 64 * static_cast<int>(words_.size()) - std::countl_zero(words_.back());
}

Natural Natural::shifted(int n) const {
    Natural result;
    const int words = n >= 0 ? n / 64 : -((63 - n) / 64); // rounded down
    const int up = n - 64 * words;                        // 0 ... 63
    const auto word = [&](int i) {
        return i >= 0 && i < static_cast<int>(words_.size()) ? words_[static_cast<std::size_t>(i)] : 0;
    };
    result.words_.reserve(static_cast<std::size_t>(std::max(static_cast<int>(words_.size()) + words + 1, 0)));
    for (int i = 0; i < static_cast<int>(words_.size()) + words + 1; ++i) {
        const std::uint64_t below = up == 0 ? 0 : word(i - words - 1) >> (64 - up);
        result.words_.push_back(word(i - words) << up | below);
    }
    while (!result.words_.empty() && result.words_.back() == 0) result.words_.pop_back();
    return result;
}

Natural& Natural::operator+=(const Natural& x) {
    words_.resize(std::max(words_.size(), x.words_.size()) + 1);
    bool carry = false;
    for (std::size_t i = 0; i < words_.size(); ++i) {
        const std::uint64_t y = i < x.words_.size() ? x.words_[i] : 0, sum = words_[i] + y;
        const bool over = sum < y;
        words_[i] = sum + std::uint64_t{carry};
        carry = over || (carry && words_[i] == 0);
    }
    while (!words_.empty() && words_.back() == 0) words_.pop_back();
    return *this;
}

Natural& Natural::operator-=(const Natural& x) {
    bool borrow = false;
    for (std::size_t i = 0; i < words_.size(); ++i) {
        const std::uint64_t y = i < x.words_.size() ? x.words_[i] : 0, old = words_[i];
        words_[i] = old - y - std::uint64_t{borrow};
        borrow = old < y || (borrow && old == y);
    }
    while (!words_.empty() && words_.back() == 0) words_.pop_back();
    return *this;
}

Natural Natural::operator*(const Natural& x) const {
    __extension__ using Wide = unsigned __int128;
    Natural product;
    product.words_.resize(words_.size() + x.words_.size());
    for (std::size_t i = 0; i < words_.size(); ++i) {
        std::uint64_t carry = 0;
        for (std::size_t j = 0; j < x.words_.size(); ++j) {
            const Wide sum = Wide{words_[i]} * x.words_[j] + product.words_[i + j] + carry;
            product.words_[i + j] = static_cast<std::uint64_t>(sum);
            carry = static_cast<std::uint64_t>(sum >> 64);
        }
        product.words_[i + x.words_.size()] = carry;
    }
    while (!product.words_.empty() && product.words_.back() == 0) product.words_.pop_back();
    return product;
}

Natural Natural::operator/(std::uint32_t x) const {
    Natural quotient = *this;
    std::uint64_t rest = 0;
    for (std::size_t i = words_.size(); i-- > 0;) { // by half words
        const std::uint64_t high = rest << 32 | words_[i] >> 32, low = high % x << 32 | (words_[i] & 0xffffffff);
        quotient.words_[i] = high / x << 32 | low / x;
        rest = low % x;
    }
    while (!quotient.words_.empty() && quotient.words_.back() == 0) quotient.words_.pop_back();
    return quotient;
}

std::strong_ordering Natural::operator<=>(const Natural& x) const {
    if (words_.size() != x.words_.size()) return words_.size() <=> x.words_.size();
    for (std::size_t i = words_.size(); i-- > 0;)
        if (words_[i] != x.words_[i]) return words_[i] <=> x.words_[i];
    return std::strong_ordering::equal;
}

} // namespace amp::exact
