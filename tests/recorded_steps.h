// What the recordings of optimizers under tests/data/torch consist of: random gradients, and hashes of weights and
// state.
#pragma once

#include <ampscope/formats/codec.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace amp::test {

/// The generator of tests/data/torch/optimizer.py: a linear congruential generator for each element.
class Stream {
  public:
    explicit Stream(std::size_t n) : x_(n) {
        for (std::size_t i = 0; i < n; ++i) x_[i] = (i + 1) * 0x9E3779B97F4A7C15;
    }
    std::vector<float> next(int spread, const FormatSpec& f) {
        std::vector<float> out;
        for (std::uint64_t& x : x_) {
            x = x * 6364136223846793005 + 1442695040888963407;
            const auto m = static_cast<double>(static_cast<std::int64_t>(x >> 40) - (1 << 23));
            const int e = static_cast<int>((x >> 32) % 256) % (spread + 1);
            out.push_back(quantize(f, static_cast<float>(std::ldexp(m, -23 - e))));
        }
        return out;
    }

  private:
    std::vector<std::uint64_t> x_;
};

inline void hash_into(std::uint64_t& h, std::span<const float> values) {
    for (const float x : values) h = (h ^ std::bit_cast<std::uint32_t>(x)) * 0x100000001B3;
}

} // namespace amp::test
