// Scaled tensors: numbers of a narrow format q with a scale d for each block of them, x ~ q * d. The table of block
// formats, and the rules by which libraries choose the scale.
//
// Sources: OCP Microscaling Formats (MX) 1.0; NVIDIA TransformerEngine's recipes and kernels (TE below); torchao's
// float8 and mx_formats; MS-AMP's ScalingMeta; DeepSeek-V3's released kernels and technical report (arXiv:2412.19437);
// DeepGEMM's casts. tests/test_block_references.cpp compares with what TE's and DeepSeek's own Python computes.
#pragma once

#include <ampscope/formats/batch.h>
#include <ampscope/formats/codec.h>
#include <ampscope/formats/dot.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// How a scale follows from amax, the largest magnitude of its block. Below, max is the element format's largest value
/// and emax its exponent. Numbers are multiplied by s (q = x * s, d = 1 / s) unless the rule says otherwise. Every
/// operation is done in FP32, rounded to nearest-even.
enum class ScaleRule : std::uint8_t {
    te,            ///< TE: s = max / amax; 1 where amax is 0, infinite or NaN; FLT_MAX where s would be infinite
    te_pow2,       ///< TE with power-of-two scales: s as above, its significand cleared
    torchao,       ///< torchao float8: s = FP32(max / max(amax, 1e-12)), the division in double
    torchao_pow2,  ///< torchao's s, then 2^floor(log2 s) as torch computes it (floor_of_torch_log2)
    deepseek,      ///< DeepSeek-V3: d = max(amax, 1e-4) / max, q = x / d
    deepseek_pow2, ///< deepseek's d, rounded up to a power of two
    deepgemm,      ///< DeepGEMM: deepseek's d, q = x * (1 / d)
    deepgemm_pow2, ///< deepgemm's d, rounded up to a power of two (UE8M0); 2^127 where it is infinite or NaN
    mx_floor,      ///< OCP MX 1.0 section 6.3: d = 2^(floor(log2 amax) - emax); torchao's FLOOR
    mx_even,       ///< torchao's EVEN: mx_floor of amax rounded to the precision of the element
    mx_ceil,       ///< torchao's CEIL: d = 2^(ceil(log2 amax) - emax)
    mx_rceil,      ///< torchao's RCEIL: d = 2^ceil(log2(amax / max)), exact as on CUDA devices
    mx_te,         ///< TE: d = 2^ceil(log2(amax * (1 / max))); 2^127 if amax is infinite
    nvfp4,         ///< TE: d is an E4M3 number, beside one FP32 scale for the whole tensor
    ms_amp,        ///< MS-AMP: s = 2^floor(log2(max / amax)) as torch; 1 where amax is 0 or not finite; may be infinite
    one,           ///< s = 1: numbers are cast as they are
};

inline constexpr std::array<std::string_view, 16> scale_rule_names = {
    "te",       "te-pow2", "torchao", "torchao-pow2", "deepseek", "deepseek-pow2", "deepgemm", "deepgemm-pow2",
    "mx-floor", "mx-even", "mx-ceil", "mx-rceil",     "mx-te",    "nvfp4",         "ms-amp",   "one"};

constexpr std::string_view name_of(ScaleRule rule) { return scale_rule_names[static_cast<std::size_t>(rule)]; }

/// A block format: the element format, the block that shares a scale (rows x columns; 0: the tensor's own), the usual
/// rule.
struct BlockSpec {
    std::string_view name;
    FormatSpec element;
    int rows, columns;
    ScaleRule rule;
    std::string_view source;
};

inline constexpr std::array block_formats = {
    BlockSpec{"mxfp8", format("e4m3"), 1, 32, ScaleRule::mx_floor, "OCP MX 1.0: E4M3, E8M0 scales"},
    BlockSpec{"mxfp8-e5m2", format("e5m2"), 1, 32, ScaleRule::mx_floor, "OCP MX 1.0: E5M2, E8M0 scales"},
    BlockSpec{"mxfp6", format("e2m3"), 1, 32, ScaleRule::mx_floor, "OCP MX 1.0: E2M3, E8M0 scales"},
    BlockSpec{"mxfp6-e3m2", format("e3m2"), 1, 32, ScaleRule::mx_floor, "OCP MX 1.0: E3M2, E8M0 scales"},
    BlockSpec{"mxfp4", format("e2m1"), 1, 32, ScaleRule::mx_floor, "OCP MX 1.0: E2M1, E8M0 scales"},
    BlockSpec{"nvfp4", format("e2m1"), 1, 16, ScaleRule::nvfp4, "TE NVFP4BlockScaling: E2M1, E4M3 and FP32 scales"},
    BlockSpec{"fp8-1x128", format("e4m3"), 1, 128, ScaleRule::te_pow2, "TE Float8BlockScaling of activations"},
    BlockSpec{"fp8-128x128", format("e4m3"), 128, 128, ScaleRule::te_pow2, "TE Float8BlockScaling of weights"},
    BlockSpec{"fp8-row", format("e4m3"), 1, 0, ScaleRule::torchao_pow2, "torchao rowwise"},
    BlockSpec{"fp8-tensor", format("e4m3"), 0, 0, ScaleRule::te, "TE Float8CurrentScaling"},
};

/// The block format of that name. Throws std::invalid_argument, listing the names, for any other.
constexpr const BlockSpec& block_format(std::string_view name) { return find_row("block format", block_formats, name); }

/// A scale: q = round(x * encode), or round(x / decode) if `divides`; then x ~ q * decode.
struct BlockScale {
    float encode = 1, decode = 1;
    bool divides = false;
};

/// floor(log2 x) and whether x is a power of two, for finite x > 0.
struct Binade {
    int exponent;
    bool power;
};
constexpr Binade binade_of(float x) {
    const Unpacked u = unpack(x);
    return {u.exponent + static_cast<int>(std::bit_width(u.significand)) - 1, std::has_single_bit(u.significand)};
}

/// floor(log2 x) for finite x > 0 as torch computes it in FP32: the logarithm is rounded first, so that it may become
/// the integer above. That is so for x up to 44 steps below 2^next: n steps below, log2 x = next - n * 2^-24 / ln 2;
/// numbers just below `next` are 2^(floor(log2 |next|) - 23) apart, half of that above a positive power of two.
constexpr int floor_of_torch_log2(float x) {
    const int exponent = binade_of(x).exponent, next = exponent + 1;
    const auto size = static_cast<std::uint32_t>(next < 0 ? -next : next);
    if (size == 0) return exponent;
    const double steps = 0x800000 - static_cast<double>(std::bit_cast<std::uint32_t>(x) & 0x7fffff);
    const double nearest = (next > 0 && std::has_single_bit(size) ? 0.5 : 1.0) * std::bit_floor(size);
    return steps * 1.4426950408889634 < nearest ? next : exponent;
}

namespace detail {

constexpr float fp32_div(float a, float b) {
    Arithmetic math{fp32_format};
    return std::bit_cast<float>(math.div(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)));
}
constexpr float fp32_mul(float a, float b) {
    Arithmetic math{fp32_format};
    return std::bit_cast<float>(math.mul(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)));
}

constexpr float max_of(const FormatSpec& f) { return decode(f, f.max_code()); }

/// x > 0 with its significand cleared: the largest power of two that is not above it. Subnormals become 0, as in TE.
constexpr float clear_significand(float x) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xff800000);
}

constexpr int ceil_log2(float x) { return binade_of(x).exponent + (binade_of(x).power ? 0 : 1); }

/// 2^e as a float; subnormal below 2^-126.
constexpr float power_of_two(int e) {
    return e < -126 ? std::bit_cast<float>(std::uint32_t{1} << (e + 149))
                    : std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
}

/// 2^floor(log2 s) as torch computes it; 0, infinity and NaN stay.
constexpr float torch_power_below(float s) { return s > 0 && is_finite(s) ? power_of_two(floor_of_torch_log2(s)) : s; }

/// The E8M0 scale 2^e, with e clamped to E8M0's range -127 ... 127.
constexpr BlockScale mx_scale(int e) {
    const int clamped = e < -127 ? -127 : e > 127 ? 127 : e;
    return {.encode = power_of_two(-clamped), .decode = power_of_two(clamped)};
}

constexpr BlockScale scale_by(float s) { return {.encode = s, .decode = fp32_div(1, s)}; }

constexpr float te_scale(float max, float amax) {
    if (amax == 0 || !is_finite(amax)) return 1;
    const float s = fp32_div(max, amax);
    return is_finite(s) ? s : largest_float;
}

constexpr BlockScale te_mx_scale(const FormatSpec& element, float amax) {
    if (amax != amax) return {.encode = amax, .decode = amax};
    if (!is_finite(amax)) return mx_scale(127);
    const float target = fp32_mul(amax, fp32_div(1, max_of(element)));
    return target == 0 ? mx_scale(-127) : mx_scale(ceil_log2(target));
}

constexpr BlockScale ocp_scale(ScaleRule rule, const FormatSpec& element, float amax) {
    if (!is_finite(amax)) { // a NaN scale, as E8M0 has one
        const auto nan = std::bit_cast<float>(0x7fc00000);
        return {.encode = nan, .decode = nan};
    }
    if (rule == ScaleRule::mx_rceil) {
        const float target = fp32_div(amax, max_of(element));
        return target == 0 ? mx_scale(-127) : mx_scale(ceil_log2(target));
    }
    // Half a unit in the last place of the element, in bits of FP32's significand.
    if (rule == ScaleRule::mx_even)
        amax = std::bit_cast<float>(std::bit_cast<std::uint32_t>(amax) +
                                    (std::uint32_t{1} << (22 - element.fraction_bits)));
    if (amax == 0) return mx_scale(-127);
    const int e = rule == ScaleRule::mx_ceil ? ceil_log2(amax) : is_finite(amax) ? binade_of(amax).exponent : 128;
    return mx_scale(e - element.max_exponent());
}

constexpr BlockScale deepseek_scale(ScaleRule rule, float max, float amax) {
    const float d = fp32_div(amax < 1e-4F ? 1e-4F : amax, max);
    float scale = d;
    if (rule == ScaleRule::deepgemm_pow2 || (rule == ScaleRule::deepseek_pow2 && is_finite(d)))
        scale = power_of_two(is_finite(d) ? ceil_log2(d) : 127);
    return {.encode = fp32_div(1, scale),
            .decode = scale,
            .divides = rule == ScaleRule::deepseek || rule == ScaleRule::deepseek_pow2};
}

constexpr BlockScale nvfp4_scale(float amax, float tensor_scale) {
    const float wanted = fp32_mul(amax, fp32_mul(tensor_scale, fp32_div(1, 6)));
    constexpr FormatSpec e4m3 = format("e4m3");
    const float d =
        quantize(e4m3, wanted < largest_float ? wanted : largest_float, {.overflow = Overflow::saturate_all});
    const float s = fp32_div(1, fp32_mul(d, fp32_div(1, tensor_scale)));
    return {.encode = s < largest_float ? s : largest_float, .decode = d};
}

} // namespace detail

/// The FP32 scale of an NVFP4 tensor.
constexpr float nvfp4_tensor_scale(float tensor_amax) {
    const float s = detail::fp32_div(448 * 6, tensor_amax);
    const float encode = s < largest_float ? s : largest_float;
    return tensor_amax == 0 || encode == 0 || !(encode == encode) ? 1 : encode;
}

/// MS-AMP's s for finite amax > 0. It is infinite where max / amax overflows: zeros times it are NaN, other numbers
/// saturate.
constexpr float ms_amp_encode(float max, float amax) { return detail::torch_power_below(detail::fp32_div(max, amax)); }

/// The format in which the scales of blocks are stored.
constexpr FormatSpec scale_format(ScaleRule rule) {
    constexpr FormatSpec e8m0 = format("e8m0"), e4m3 = format("e4m3"); // a device cannot look up names
    switch (rule) {
    case ScaleRule::mx_floor:
    case ScaleRule::mx_even:
    case ScaleRule::mx_ceil:
    case ScaleRule::mx_rceil:
    case ScaleRule::mx_te: return e8m0;
    case ScaleRule::nvfp4: return e4m3;
    case ScaleRule::te:
    case ScaleRule::te_pow2:
    case ScaleRule::torchao:
    case ScaleRule::torchao_pow2:
    case ScaleRule::deepseek:
    case ScaleRule::deepseek_pow2:
    case ScaleRule::deepgemm:
    case ScaleRule::deepgemm_pow2:
    case ScaleRule::ms_amp:
    case ScaleRule::one: break;
    }
    return fp32_format;
}

/// Whether all scales of the rule are E8M0's: powers of two, or NaN.
constexpr bool is_mx(ScaleRule rule) { return scale_format(rule).is_scale(); }

/// Whether the amax of a block with a NaN is NaN (as torch.amax has it) or the amax of its other numbers (as fmaxf).
constexpr bool amax_keeps_nan(ScaleRule rule) {
    switch (rule) {
    case ScaleRule::torchao:
    case ScaleRule::torchao_pow2:
    case ScaleRule::deepgemm:
    case ScaleRule::deepgemm_pow2:
    case ScaleRule::mx_floor:
    case ScaleRule::mx_even:
    case ScaleRule::mx_ceil:
    case ScaleRule::mx_rceil: return true;
    case ScaleRule::te:
    case ScaleRule::te_pow2:
    case ScaleRule::deepseek:
    case ScaleRule::deepseek_pow2:
    case ScaleRule::mx_te:
    case ScaleRule::nvfp4:
    case ScaleRule::ms_amp:
    case ScaleRule::one: break;
    }
    return false;
}

/// The scale of a block. `tensor_scale` is used by NVFP4 only, where x ~ q * d / tensor_scale.
constexpr BlockScale block_scale(ScaleRule rule, const FormatSpec& element, float amax, float tensor_scale = 1) {
    const float max = detail::max_of(element);
    switch (rule) {
    case ScaleRule::te: return detail::scale_by(detail::te_scale(max, amax));
    case ScaleRule::te_pow2: return detail::scale_by(detail::clear_significand(detail::te_scale(max, amax)));
    case ScaleRule::torchao:
    case ScaleRule::torchao_pow2: {
        const double least = 1e-12, wide = static_cast<double>(amax);
        const float s = quantize(fp32_format, static_cast<double>(max) / (wide < least ? least : wide));
        return detail::scale_by(rule == ScaleRule::torchao ? s : detail::torch_power_below(s));
    }
    case ScaleRule::deepseek:
    case ScaleRule::deepseek_pow2:
    case ScaleRule::deepgemm:
    case ScaleRule::deepgemm_pow2: return detail::deepseek_scale(rule, max, amax);
    case ScaleRule::mx_floor:
    case ScaleRule::mx_even:
    case ScaleRule::mx_ceil:
    case ScaleRule::mx_rceil: return detail::ocp_scale(rule, element, amax);
    case ScaleRule::mx_te: return detail::te_mx_scale(element, amax);
    case ScaleRule::nvfp4: return detail::nvfp4_scale(amax, tensor_scale);
    case ScaleRule::ms_amp:
        return amax == 0 || !is_finite(amax) ? BlockScale{} : detail::scale_by(ms_amp_encode(max, amax));
    case ScaleRule::one: break;
    }
    return {};
}

/// The number stored for x: scaled in FP32, then rounded once to the element format; larger magnitudes saturate.
constexpr float quantize_scaled(const FormatSpec& element, float x, const BlockScale& scale,
                                Rounding rounding = Rounding::nearest_even, std::uint32_t random = 0) {
    const float scaled = scale.divides ? detail::fp32_div(x, scale.decode) : detail::fp32_mul(x, scale.encode);
    return quantize(element, scaled, {.rounding = rounding, .overflow = Overflow::saturate_all}, random);
}

/// How a tensor in C order is divided into blocks: its number of columns, height and width of a block, and the number
/// of blocks below and beside each other.
struct BlockGrid {
    std::int64_t columns = 1, height = 1, width = 1, down = 1, across = 1;

    [[nodiscard]] constexpr std::int64_t count() const { return down * across; }
    /// The index of the block that holds the element at that row and column.
    [[nodiscard]] constexpr std::int64_t at(std::int64_t row, std::int64_t column) const {
        return row / height * across + column / width;
    }
    /// The index of the block that holds the element of that index.
    [[nodiscard]] constexpr std::int64_t of(std::int64_t element) const {
        return at(element / columns, element % columns);
    }
};

/// How a tensor is scaled: in blocks of rows x columns; 0 stands for the whole height or width of the tensor.
struct BlockScaling {
    FormatSpec element = format("e4m3");
    std::int64_t rows = 0, columns = 0;
    ScaleRule rule = ScaleRule::te;

    [[nodiscard]] constexpr BlockGrid grid(std::int64_t of_rows, std::int64_t of_columns) const {
        const std::int64_t height = rows == 0 ? std::max<std::int64_t>(of_rows, 1) : rows,
                           width = columns == 0 ? std::max<std::int64_t>(of_columns, 1) : columns;
        return {.columns = of_columns,
                .height = height,
                .width = width,
                .down = (of_rows + height - 1) / height,
                .across = (of_columns + width - 1) / width};
    }
    bool operator==(const BlockScaling&) const = default;
};

/// The largest magnitude of each block of the grid.
std::vector<float> block_amax(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows,
                              std::int64_t columns);

/// out = in (rows x columns in C order), scaled by `scales`, one a block, and rounded as quantize_scaled does. Throws
/// std::invalid_argument if only some of the scales divide, as those of no rule do.
void quantize_blocks(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows, std::int64_t columns,
                     std::span<const BlockScale> scales, std::span<float> out, const BatchOptions& options = {});

/// The same with the scales that the rule gives the tensor. Returns the decode scale of each block, in C order; those
/// of NVFP4 are divided by the tensor's scale, in FP32.
std::vector<float> quantize_blocks(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows,
                                   std::int64_t columns, std::span<float> out, const BatchOptions& options = {});

/// out = in * the decode scale of its block, in FP32: the way back from quantize_blocks(), for users of the library.
void dequantize_blocks(const BlockScaling& scaling, std::span<const float> in, std::int64_t rows, std::int64_t columns,
                       std::span<const float> decode_scales, std::span<float> out);

} // namespace amp
