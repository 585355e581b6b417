#include <ampscope/sim/analysis/count_kernel.h>

#include <ampscope/formats/detail/clones.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace amp::detail {

namespace {

constexpr std::size_t lanes = 16; // of the partial sums: part of their definition
constexpr std::size_t strip = 2048; // words whose keys stay in the first-level cache

/// key = exponent field * 32 + mantissa class (histogram.h). Returns whether a word is subnormal.
AMPSCOPE_CLONES bool make_keys(const std::uint32_t* __restrict words, std::uint16_t* __restrict keys, std::size_t n) {
    std::uint32_t subnormals = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t magnitude = words[i] & 0x7fffffff;
        const std::uint32_t mantissa = words[i] & 0x7fffff;
        // Leading ones of 23 bits = 22 - floor(log2(complement)); the exponent of an exact int-to-float conversion.
        const auto complement = static_cast<float>(static_cast<std::int32_t>(mantissa ^ 0x7fffff));
        const std::uint32_t ones = std::min(149 - (std::bit_cast<std::uint32_t>(complement) >> 23), 23u);
        const std::uint32_t tie = 0x680000; // 0.8125
        const std::uint32_t mantissa_class = ones + 1 + (mantissa >= tie) + (mantissa > tie) - (mantissa == 0);
        keys[i] = static_cast<std::uint16_t>((magnitude >> 23) * FloatTables::row + mantissa_class);
        subnormals |= (magnitude - 1u) < 0x7fffffu;
    }
    return subnormals != 0;
}

void count_keys(FloatTables& tables, const std::uint16_t* keys, std::size_t n) {
    auto& [t0, t1, t2, t3] = tables.keys;
    for (std::size_t i = 0; i < n; i += 4) {
        std::uint64_t four = 0;
        std::memcpy(&four, keys + i, sizeof four);
        ++t0[four & 0xffff];
        ++t1[four >> 16 & 0xffff];
        ++t2[four >> 32 & 0xffff];
        ++t3[four >> 48];
    }
}

/// The 16 partial sums, extremes included, of a strip.
struct Partial {
    double absolute[lanes]{}, squares[lanes]{};
    std::uint32_t smallest[lanes], largest[lanes]{};
};

AMPSCOPE_CLONES void accumulate(const std::uint32_t* __restrict words, std::size_t n, Partial& partial) {
    double absolute[lanes], squares[lanes];
    std::uint32_t smallest[lanes], largest[lanes];
    for (std::size_t j = 0; j < lanes; ++j) {
        absolute[j] = partial.absolute[j], squares[j] = partial.squares[j];
        smallest[j] = partial.smallest[j], largest[j] = partial.largest[j];
    }
    for (std::size_t i = 0; i < n; i += lanes)
        for (std::size_t j = 0; j < lanes; ++j) {
            const std::uint32_t magnitude = words[i + j] & 0x7fffffff;
            const std::uint32_t finite = magnitude < 0x7f800000 ? magnitude : 0;
            smallest[j] = std::min(smallest[j], finite - 1); // zero wraps to the top
            largest[j] = std::max(largest[j], finite);
            const double x = std::bit_cast<float>(finite);
            absolute[j] += x;
            squares[j] += x * x; // the product is exact: 48 bits
        }
    for (std::size_t j = 0; j < lanes; ++j) {
        partial.absolute[j] = absolute[j], partial.squares[j] = squares[j];
        partial.smallest[j] = smallest[j], partial.largest[j] = largest[j];
    }
}

double pairwise(double (&x)[lanes]) {
    for (std::size_t half = lanes / 2; half > 0; half /= 2)
        for (std::size_t j = 0; j < half; ++j) x[j] += x[j + half];
    return x[0];
}

} // namespace

void FloatTables::flush() {
    for (std::size_t field = 0; field < 256; ++field)
        for (std::size_t c = 0; c < row; ++c) {
            std::uint64_t times = 0;
            for (auto& copy : keys) times += std::exchange(copy[field * row + c], 0);
            if (times == 0) continue;
            if (field == 255) (c == 0 ? histogram.inf : histogram.nan) += times;
            else if (field != 0) histogram.rows[static_cast<int>(field) - 127][c] += times;
            else if (c == 0) histogram.zero += times; // subnormals were counted one by one
        }
    pending = 0;
}

MagnitudeSums count_words(FloatTables& tables, const std::uint32_t* words, std::size_t n) {
    Partial partial;
    std::ranges::fill(partial.smallest, ~0u);
    alignas(64) std::uint16_t keys[strip];
    for (std::size_t i = 0; i < n; i += strip) {
        const std::size_t m = std::min(strip, n - i);
        if (make_keys(words + i, keys, m))
            for (std::size_t j = i; j < i + m; ++j)
                if ((words[j] & 0x7f800000) == 0 && (words[j] & 0x7fffff) != 0) tables.histogram.add(unpack(std::bit_cast<float>(words[j])));
        count_keys(tables, keys, m);
        accumulate(words + i, m, partial);
    }
    tables.smallest = std::min(tables.smallest, *std::ranges::min_element(partial.smallest));
    tables.largest = std::max(tables.largest, *std::ranges::max_element(partial.largest));
    tables.pending += n;
    if (tables.pending > 0xffff0000) tables.flush();
    return {pairwise(partial.absolute), pairwise(partial.squares)};
}

} // namespace amp::detail
