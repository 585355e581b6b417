// A matrix product as the files of this folder that add it up hand it on.
#pragma once

#include <ampscope/formats/scaled_dot.h>
#include <ampscope/sim/backend/cpu/detail/accumulate.h>
#include <ampscope/sim/base/parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace amp::cpu {

/// A vector of so many bytes; a type of its own, since g++ takes an alias with a dependent length for no vector.
template <class T, std::size_t bytes>
struct Vector {
    using Type [[gnu::vector_size(bytes)]] = T;
};

/// dispatch() of Kernel<bytes>, whose vectors of so many bytes fill the registers: longer ones g++ keeps in memory.
template <template <std::size_t> class Kernel, class... Args>
void dispatch_vectors(InstructionSet set, Args... args) {
#if defined(__x86_64__)
    if (set == InstructionSet::avx512) return run_avx512<Kernel<64>>(args...);
    if (set == InstructionSet::avx2) return run_avx2<Kernel<32>>(args...);
#endif
    run_baseline<Kernel<16>>(args...);
}

inline constexpr float canonical_nan = std::bit_cast<float>(0x7fc00000);

/// Least number of products for a thread; fewer are not worth waking one.
inline constexpr std::int64_t products_at_once = 1 << 18;

struct Product {
    const Accumulator& accumulator;
    FormatSpec a_format, b_format;
    MatrixView a, b;
    float* out;
    std::int64_t m, n, k;
    int threads;
    InstructionSet set;
    ProductScalesView scales{}; ///< the scales that the accumulator applies itself
    [[nodiscard]] std::int64_t blocks() const { return (k + scales.block - 1) / scales.block; }
};

inline float at(const MatrixView& x, std::int64_t i, std::int64_t j) {
    return x.data[i * x.row_stride + j * x.column_stride];
}

/// Calls body(begin, end) for parts of [0, count), each element of which costs `cost` products.
template <class Body>
void over_threads(const Product& p, std::int64_t count, std::int64_t cost, const Body& body) {
    const std::int64_t share = std::max<std::int64_t>(1, products_at_once / std::max<std::int64_t>(cost, 1));
    for_each_chunk(static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(share), p.threads,
                   [&](std::uint64_t begin, std::uint64_t end) {
                       body(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
                   });
}

/// One element, computed by the definition.
float plain(const Product& p, std::int64_t i, std::int64_t j);

/// The product with a fused sum that is not split.
void sum_fused(const Product& p);

/// The product with a chain of fused multiply-adds in another format than FP32, if there is a fast way.
bool chain_in_registers(const Product& p);

} // namespace amp::cpu
