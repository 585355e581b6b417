// The library's computations, each as one function from a number of threads to all bits of its results: for tests of
// what must not change them.
#pragma once

#include "thread_counts.h"

#include <ampscope/sim/base/parallel.h>

#include <doctest/doctest.h>

#include <bit>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace amp::test {

/// The bits of results, one after another.
class Bits {
  public:
    template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T> Bits& operator<<(const T& x) {
        text_.append(reinterpret_cast<const char*>(&x), sizeof x);
        return *this;
    }
    Bits& operator<<(const std::string& x) {
        text_ += x;
        return *this << '\n';
    }
    template <class A, class B>
    Bits& operator<<(const std::pair<A, B>& x) {
        return *this << x.first << x.second;
    }
    /// Any other type of amp's that has add_bits(bits, x).
    template <class T>
    requires requires(Bits& bits, const T& x) { add_bits(bits, x); }
    Bits& operator<<(const T& x) {
        add_bits(*this, x);
        return *this;
    }
    template <class T>
    Bits& operator<<(const std::optional<T>& x) {
        return x ? *this << *x : *this << '-';
    }
    template <std::ranges::range Range>
    Bits& operator<<(const Range& range) {
        for (const auto& x : range) *this << x;
        return *this << std::ranges::distance(range);
    }
    [[nodiscard]] const std::string& text() const { return text_; }

  private:
    std::string text_;
};

struct Computation {
    std::string name;
    std::function<void(int threads, Bits& results)> run;
    bool is_shared = false; ///< whether it is so large that several of 16 threads must take part
    [[nodiscard]] std::string bits(int threads) const {
        Bits results;
        run(threads, results);
        return results.text();
    }
};

/// Checks that each has the same bits with any number of threads.
inline void check_threads(const std::vector<Computation>& computations) {
    for (const Computation& computation : computations) {
        CAPTURE(computation.name);
        const std::string want = computation.bits(1);
        for (const int threads : thread_counts) {
            CAPTURE(threads);
            CHECK(computation.bits(threads) == want);
        }
        take_most_threads();
        CHECK(computation.bits(16) == want);
        CHECK(take_most_threads() >= (computation.is_shared ? 2 : 1));
    }
}

/// Floats of all exponents with subnormals, zeros, infinities and NaN; or ordinary ones with a few subnormals.
inline std::vector<float> mixed_floats(std::size_t n, bool specials, std::uint_fast32_t seed = 1) {
    std::mt19937 random(seed);
    std::vector<float> x(n);
    for (float& f : x) {
        const auto word = static_cast<std::uint32_t>(random());
        if (specials) f = std::bit_cast<float>(random() % 8 == 0 ? word & 0x807fffff : word);
        else
            f = std::bit_cast<float>((word & 0x807fffff) |
                                     (random() % 64 == 0 ? 0 : static_cast<std::uint32_t>(120 + random() % 8) << 23));
    }
    return x;
}

} // namespace amp::test
