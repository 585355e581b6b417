// Fixed-point numbers of many words, for functions whose results are to be rounded correctly: the arithmetic and the
// kernels of p3109_functions.h. Everything is cut, never rounded: an operation's result is too small by at most n last
// places.
#pragma once

#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/bits.h>

#include <compare>

namespace amp::detail {

/// A number from 0 to below 2^32 with 32 (n - 1) bits behind the point; sums and shifts are modulo 2^32.
template <int n>
struct Wide {
    static constexpr int fraction_bits = 32 * (n - 1);

    std::uint32_t words[n] = {}; ///< highest first, so that the order of arrays is that of numbers

    constexpr auto operator<=>(const Wide&) const = default;

    static constexpr Wide integer(std::uint32_t value) {
        Wide x;
        x.words[0] = value;
        return x;
    }

    friend constexpr Wide operator+(Wide a, const Wide& b) {
        std::uint64_t carry = 0;
        for (int i = n - 1; i >= 0; --i) {
            carry += std::uint64_t{a.words[i]} + b.words[i];
            a.words[i] = static_cast<std::uint32_t>(carry);
            carry >>= 32;
        }
        return a;
    }

    friend constexpr Wide operator-(Wide a, const Wide& b) {
        std::uint64_t borrow = 0;
        for (int i = n - 1; i >= 0; --i) {
            const std::uint64_t rest = std::uint64_t{a.words[i]} - b.words[i] - borrow;
            a.words[i] = static_cast<std::uint32_t>(rest);
            borrow = rest >> 63;
        }
        return a;
    }

    /// Of what lies below the last place, the first word is added up for its carry.
    friend constexpr Wide operator*(const Wide& a, const Wide& b) {
        Wide product;
        Uint128 sum = 0;
        for (int k = n; k >= 0; --k, sum >>= 32) {
            for (int i = k < n ? 0 : 1; i <= k && i < n; ++i) sum += std::uint64_t{a.words[i]} * b.words[k - i];
            if (k < n) product.words[k] = static_cast<std::uint32_t>(sum);
        }
        return product;
    }

    friend constexpr Wide operator*(const Wide& a, std::uint32_t b) { return a * integer(b); }

    friend constexpr Wide operator/(Wide a, std::uint32_t b) {
        std::uint64_t rest = 0;
        for (std::uint32_t& word : a.words) {
            rest = rest << 32 | word;
            word = static_cast<std::uint32_t>(rest / b);
            rest %= b;
        }
        return a;
    }

    friend constexpr Wide operator<<(const Wide& a, int count) {
        Wide x;
        const int whole = count / 32, bits = count % 32;
        for (int i = 0; i + whole < n; ++i) {
            const std::uint64_t low = i + whole + 1 < n ? a.words[i + whole + 1] : 0;
            x.words[i] = static_cast<std::uint32_t>((std::uint64_t{a.words[i + whole]} << 32 | low) >> (32 - bits));
        }
        return x;
    }

    friend constexpr Wide operator>>(const Wide& a, int count) {
        Wide x;
        const int whole = count / 32, bits = count % 32;
        for (int i = whole; i < n; ++i) {
            const std::uint64_t high = i > whole ? a.words[i - whole - 1] : 0;
            x.words[i] = static_cast<std::uint32_t>((high << 32 | a.words[i - whole]) >> bits);
        }
        return x;
    }

    /// The exponent of the leading bit; -32 n for zero.
    [[nodiscard]] constexpr int leading() const {
        for (int i = 0; i < n; ++i)
            if (words[i] != 0) return 63 - 32 * i - leading_zeros(words[i]);
        return -32 * n;
    }
};

template <int n>
constexpr Wide<n> one = Wide<n>::integer(1);

/// a -= b factor; gives what is still to be taken from the word above a's highest.
template <int n>
constexpr std::int64_t subtract_multiple(Wide<n>& a, const Wide<n>& b, std::uint32_t factor) {
    std::uint64_t carry = 0; // below 2^32 + 1 - factor
    for (int i = n - 1; i >= 0; --i) {
        carry += std::uint64_t{factor} * b.words[i];
        const std::uint64_t rest = std::uint64_t{a.words[i]} - static_cast<std::uint32_t>(carry);
        a.words[i] = static_cast<std::uint32_t>(rest);
        carry = (carry >> 32) + (rest >> 63);
    }
    return static_cast<std::int64_t>(carry);
}

/// a / b for a <= b < 2^31, by words; one for a larger a.
template <int n>
constexpr Wide<n> quotient(Wide<n> a, Wide<n> b) {
    static_assert(n >= 3);
    if (a >= b) return one<n>; // b may be zero in an estimate whose bound says that it decides nothing
    const int zeros = 31 - b.leading(); // a is the smaller one, and loses nothing
    a = a << zeros;
    b = b << zeros;
    Wide<n> q;
    for (int i = 1; i < n; ++i) {
        const std::uint64_t top = a.words[0], head = top << 32 | a.words[1];
        std::uint64_t word = head / b.words[0], rest = head % b.words[0];
        for (; word >> 32 != 0 || (rest >> 32 == 0 && word * b.words[1] > (rest << 32 | a.words[2])); --word)
            rest += b.words[0];
        a = a << 32;
        q.words[i] = static_cast<std::uint32_t>(word);
        if (static_cast<std::int64_t>(top) >= subtract_multiple(a, b, q.words[i])) continue;
        --q.words[i]; // rarely: what was looked at left it open
        a = a + b;
    }
    return q;
}

/// The square root, by words; `exact` tells whether nothing was cut.
template <int n>
constexpr Wide<n> square_root(const Wide<n>& a, bool& exact) {
    exact = a == Wide<n>{};
    if (exact) return a;
    const int pairs = (31 - a.leading()) / 2; // Pairs of zeros stand above the leading bit of a.
    // The root of an integer: the words of `scaled`, and as many zeros. Of what is left without the square of the
    // root's words so far, `rest` has n words, from that of the last of these on, and `top` what stands above them.
    const Wide<n> scaled = a << 2 * pairs;
    const std::uint64_t head = std::uint64_t{scaled.words[0]} << 32 | scaled.words[1];
    std::uint64_t first = 0;
    for (std::uint64_t bit = std::uint64_t{1} << 31; bit != 0; bit >>= 1)
        if ((first | bit) * (first | bit) <= head) first |= bit;
    Wide<n> root = Wide<n>::integer(static_cast<std::uint32_t>(first)), rest = scaled << 32;
    rest.words[0] = static_cast<std::uint32_t>(head - first * first);
    std::int64_t top = static_cast<std::int64_t>((head - first * first) >> 32);
    for (int i = 1; i < n; ++i) {
        const std::uint64_t above = static_cast<std::uint64_t>(top) << 32 | rest.words[0];
        rest = rest << 32;
        const std::uint64_t guess = (above << 31 | rest.words[0] >> 1) / first; // never too small
        Wide<n> longer = root, less;
        longer.words[i] = guess >> 32 != 0 ? 0xffffffff : static_cast<std::uint32_t>(guess);
        for (;; --longer.words[i]) {
            less = rest;
            top = static_cast<std::int64_t>(above) - subtract_multiple(less, root, longer.words[i]) -
                  subtract_multiple(less, longer, longer.words[i]);
            if (top >= 0) break;
        }
        root = longer;
        rest = less;
    }
    exact = top == 0 && rest == Wide<n>{};
    return root >> (16 + pairs);
}
template <int n>
constexpr Wide<n> square_root(const Wide<n>& a) {
    bool unused = true;
    return square_root(a, unused);
}

/// 1 / (2 i + 1), for series.
template <int n>
struct OddReciprocals {
    Wide<n> of[Wide<n>::fraction_bits / 3 + 1];

    constexpr OddReciprocals() {
        std::uint32_t odd = 1;
        for (Wide<n>& x : of) x = one<n> / odd, odd += 2;
    }
};
template <int n>
constexpr OddReciprocals<n> odd_reciprocals;

/// The arctangent by its series, for x <= 1/4: four bits a term.
template <int n>
constexpr Wide<n> arctan_series(const Wide<n>& x) {
    const Wide<n> square = x * x;
    Wide<n> sum;
    for (int i = Wide<n>::fraction_bits / 4; i >= 0; --i) sum = odd_reciprocals<n>.of[i] - square * sum;
    return x * sum;
}

/// The logarithm of m from 1 to 2: 2 artanh s with s = (m - 1) / (m + 1) <= 1/3, three bits a term.
template <int n>
constexpr Wide<n> log_of(const Wide<n>& m) {
    const Wide<n> s = quotient(m - one<n>, m + one<n>), square = s * s;
    Wide<n> sum;
    for (int i = Wide<n>::fraction_bits / 3; i >= 0; --i) sum = odd_reciprocals<n>.of[i] + square * sum;
    return (s * sum) << 1;
}

/// The arctangent of 1 / k or, if not `alternates`, the area hyperbolic tangent, by divisions by small integers.
template <int n>
constexpr Wide<n> series_of_inverse(std::uint32_t k, bool alternates) {
    Wide<n> power = one<n> / k, sum;
    for (std::uint32_t i = 1; power != Wide<n>{}; i += 2, power = power / (k * k))
        sum = alternates && i % 4 == 3 ? sum - power / i : sum + power / i;
    return sum;
}

/// Machin's formula.
template <int n>
constexpr Wide<n> pi = (series_of_inverse<n>(5, true) << 4) - (series_of_inverse<n>(239, true) << 2);
template <int n>
constexpr Wide<n> inverse_pi = quotient(one<n>, pi<n>);
template <int n>
constexpr Wide<n> ln2 = series_of_inverse<n>(3, false) << 1;
template <int n>
constexpr Wide<n> log2_e = quotient(one<n> >> 1, ln2<n>) << 1;

/// e^r for 0 <= r <= 1.
template <int n>
constexpr Wide<n> exp_of(const Wide<n>& r) {
    int terms = 1;
    for (int bits = 0; bits <= Wide<n>::fraction_bits; ++terms)
        bits += bit_length(static_cast<unsigned>(terms)) - 1;
    Wide<n> sum = one<n>;
    for (int i = terms; i > 0; --i) sum = one<n> + r * sum / static_cast<std::uint32_t>(i);
    return sum;
}

/// sin x for 0 <= x <= pi / 2.
template <int n>
constexpr Wide<n> sin_of(const Wide<n>& x) {
    int terms = 1; // x^2 / (2 i (2 i + 1)) has at most two bits less than its denominator
    for (int bits = 0; bits <= Wide<n>::fraction_bits; ++terms)
        bits += bit_length(static_cast<unsigned>(2 * terms * (2 * terms + 1))) - 3;
    const Wide<n> square = x * x;
    Wide<n> sum = one<n>;
    for (int i = terms; i > 0; --i) sum = one<n> - square * sum / static_cast<std::uint32_t>(2 * i * (2 * i + 1));
    return x * sum;
}

/// The angle of the point (x, y) with x, y >= 0, not both zero and below 2^31.
template <int n>
constexpr Wide<n> angle(const Wide<n>& y, const Wide<n>& x) {
    if (y > x) return (pi<n> >> 1) - angle(x, y);
    Wide<n> t = quotient(y, x);
    for (int half = 0; half < 2; ++half)
        t = quotient(t, one<n> + square_root(one<n> + t * t)); // that of half the angle
    return arctan_series(t) << 2;
}

} // namespace amp::detail
