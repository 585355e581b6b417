// Operands that show how a sum is computed: ordinary numbers, and numbers for which models of matrix hardware differ.
#pragma once

#include "oracle_accumulator.h"

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace amp::test {

enum class Inputs : std::uint8_t { normal, uniform, random_bits, cancelling, subnormal, zeros, specials, scaled };
inline constexpr std::array<std::string_view, 8> inputs_names = {
    "normal", "uniform", "random bits", "cancelling", "subnormal", "half zeros", "NaN and infinities", "wide range"};

/// Values of a format, rounded by the oracle; random bits only where `bits` allows NaN and infinities to be among them.
class Operands {
  public:
    Operands(std::string_view format, std::uint_fast32_t seed) : format_(oracle::find(format)), random_(seed) {}

    std::vector<float> make(Inputs kind, std::size_t n) {
        std::vector<float> x(n);
        for (std::size_t i = 0; i < n; ++i) x[i] = one(kind, i == 0 ? 0 : x[i - 1]);
        return x;
    }

  private:
    float rounded(double x) { return oracle::to_float(format_, oracle::convert({format_}, oracle::read(x)).code); }
    float any_code(bool finite) {
        for (;;) {
            const std::uint64_t codes = std::uint64_t{1} << format_.bits();
            const float x = oracle::to_float(format_, static_cast<std::uint32_t>(random_() % codes));
            if (!finite || std::isfinite(x)) return x;
        }
    }
    float one(Inputs kind, float last) {
        const int least = 1 - format_.bias - format_.fraction_bits;
        switch (kind) {
        case Inputs::normal: return rounded(normal_(random_));
        case Inputs::uniform: return rounded(uniform_(random_));
        case Inputs::random_bits: return any_code(true);
        case Inputs::cancelling: return random_() % 2 == 0 ? -last : rounded(normal_(random_));
        case Inputs::subnormal: return rounded(std::ldexp(std::round(normal_(random_) * 2), least));
        case Inputs::zeros: return random_() % 2 == 0 ? (random_() % 2 == 0 ? 0.0F : -0.0F) : any_code(true);
        case Inputs::specials: return random_() % 8 == 0 ? any_code(false) : rounded(normal_(random_));
        case Inputs::scaled: return rounded(std::ldexp(normal_(random_), static_cast<int>(random_() % 21) - 10));
        }
        return 0;
    }

    const oracle::Facts& format_;
    std::mt19937 random_;
    std::normal_distribution<double> normal_;
    std::uniform_real_distribution<double> uniform_{0, 1};
};

/// Scales for operands in blocks: of moderate size, or any that the format has.
struct RandomScales {
    std::string format;
    std::vector<float> a{}, b{};
    oracle::Scales products{};

    RandomScales(std::string of, std::size_t block, std::size_t blocks, std::mt19937& random) : format(std::move(of)) {
        products.block = block;
        const bool any = random() % 3 == 0;
        for (std::size_t i = 0; i < blocks; ++i) {
            a.push_back(one(any, random));
            b.push_back(one(any, random));
            products.add(format, a.back(), b.back());
        }
    }

  private:
    [[nodiscard]] float one(bool any, std::mt19937& random) const {
        const unsigned spread = any ? 127 : 12;
        if (format == "e8m0") {
            const auto exponent = static_cast<int>(random() % (2 * spread + 1)) - static_cast<int>(spread);
            return std::ldexp(1.0F, exponent);
        }
        for (;;) { // every E4M3 number, zeros and negative ones among them, or ordinary ones
            const float x = oracle::to_float(oracle::find(format), random() % 256);
            if (!std::isnan(x) && (any || std::fabs(x) > 0x1p-4F)) return x;
        }
    }
};

} // namespace amp::test
