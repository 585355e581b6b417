// What a library's kernel makes of the sums of a product before it stores them: its epilogue. The calls of libraries
// whose products are known as a whole, sums and epilogue, are rows of a table.
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/codec.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace amp {

/// Where alpha * sum + bias is rounded; every rounding is to nearest-even.
enum class EpilogueRounding : std::uint8_t {
    each,  ///< the product and the sum, each to FP32; then to the format of the output
    fused, ///< a fused multiply-add in FP32; then to the format of the output
    once,  ///< to the format of the output only
};

inline constexpr std::array<std::string_view, 3> epilogue_rounding_names = {"each", "fused", "once"};

struct Epilogue {
    float alpha = 1;
    FormatSpec out = fp32_format();
    EpilogueRounding rounding = EpilogueRounding::each;
    Overflow overflow = Overflow::infinity; ///< what becomes of numbers too large for `out`
};

/// alpha * sum + bias, as the epilogue rounds it. Without a bias +0 is added, as cuBLAS does (beta = 0).
constexpr float finish(const Epilogue& e, float sum, float bias = 0) {
    const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
    const Policy policy{.overflow = e.overflow};
    if (e.rounding == EpilogueRounding::once) {
        Arithmetic math{e.out, policy};
        return decode(e.out, math.fma(unpack(sum), unpack(e.alpha), unpack(bias)));
    }
    Arithmetic math{fp32_format()};
    const std::uint32_t total = e.rounding == EpilogueRounding::fused
                                    ? math.fma(bits(sum), bits(e.alpha), bits(bias))
                                    : math.add(math.mul(bits(sum), bits(e.alpha)), bits(bias));
    return quantize(e.out, std::bit_cast<float>(total), policy);
}

/// A call of a library on one kind of hardware: its accumulators, of which a product takes the first that reads its
/// operands, and where its epilogue rounds.
struct LibraryCall {
    std::string_view name;
    std::array<std::string_view, 2> accumulators;
    EpilogueRounding rounding;
    std::string_view source;
};

inline constexpr std::string_view scaled_mm_source =
    "torch._scaled_mm with a scale a tensor (PyTorch 2.7.1, cuBLASLt 12.8.3.14) as mmaemu 0.1.0 computes it, which its "
    "author compared with outputs of an H100 PCIe and an RTX 4060";

// use_fast_accum=False adds sums of 128 products in FP32.
inline constexpr std::array library_calls = {
    LibraryCall{"torch-scaled-mm-hopper", {"hopper-wgmma-fp8", ""}, EpilogueRounding::fused, scaled_mm_source},
    LibraryCall{"torch-scaled-mm-ada", {"ada-e4m3", "ada-e5m2"}, EpilogueRounding::fused, scaled_mm_source},
};

/// How that call adds up products of the two formats, with fast accumulation or without. `split` is the end of an
/// accumulator's name ("split4") or empty: in how many parts the library adds K, which is its own decision, by shape.
/// Throws std::invalid_argument for an unknown call and operands that it does not multiply.
constexpr Accumulator accumulator_of(const LibraryCall& call, const FormatSpec& a, const FormatSpec& b, bool fast,
                                     std::string_view split = "") {
    for (const std::string_view row : call.accumulators) {
        if (row.empty() || !accumulator(row).takes(a) || !accumulator(row).takes(b)) continue;
        std::string name(row);
        if (!fast) name += "-promote128";
        if (!split.empty()) name += "-" + std::string(split);
        return accumulator(name);
    }
    throw std::invalid_argument(std::string(call.name) + ": no accumulator for " + a.name + " times " + b.name);
}

/// The epilogue of such a call: alpha is the product of the two scales in FP32; FP8 outputs saturate.
constexpr Epilogue epilogue_of(const LibraryCall& call, float scale_a, float scale_b, const FormatSpec& out) {
    Arithmetic math{fp32_format()};
    const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
    return {.alpha = std::bit_cast<float>(math.mul(bits(scale_a), bits(scale_b))),
            .out = out,
            .rounding = call.rounding,
            .overflow = out.bits() <= 8 ? Overflow::saturate_all : Overflow::infinity};
}

} // namespace amp
