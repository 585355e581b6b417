// How libraries choose the scale of a block, x ~ q * d, from the largest magnitude in it.
//
// Sources: OCP Microscaling Formats (MX) 1.0; NVIDIA TransformerEngine's recipes and kernels (TE below); torchao's
// float8 and mx_formats; MS-AMP's ScalingMeta; DeepSeek-V3's released kernels and technical report (arXiv:2412.19437);
// DeepGEMM's casts. tests/test_block_references.cpp compares with what TE's and DeepSeek's own Python computes.
#pragma once

#include <ampscope/formats/bits.h>
#include <ampscope/formats/block_scale.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

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
    nvfp4,         ///< TE: d is an E4M3 number, below FP32 scales: see UpperScales
    quartet,       ///< Quartet II: d is E4M3's (amax / 6) / u, 1 if that is 0, below an FP32 u; q = x / (d * u)
    ms_eden,       ///< Quartet II's MS-EDEN: the same with other bounds, and d corrected so that no bias is left
    amax,          ///< any scale format below any element: see AmaxScales
    ms_amp,        ///< MS-AMP: s = 2^floor(log2(max / amax)) as torch; 1 where amax is 0 or not finite; may be infinite
    one,           ///< s = 1: numbers are cast as they are
    affine,        ///< ONNX DynamicQuantizeLinear: a scale and a zero point, see affine_scale()
};

inline constexpr std::array<std::string_view, 20> scale_rule_names = {
    "te",       "te-pow2", "torchao", "torchao-pow2", "deepseek", "deepseek-pow2", "deepgemm", "deepgemm-pow2",
    "mx-floor", "mx-even", "mx-ceil", "mx-rceil",     "mx-te",    "nvfp4",         "quartet",  "ms-eden",
    "amax",     "ms-amp",  "one",     "affine"};

constexpr std::string_view name_of(ScaleRule rule) { return scale_rule_names[static_cast<std::size_t>(rule)]; }

/// How a block of NVFP4 chooses between the scale that takes its amax to 6 and one half as large again, which takes it
/// to 4 and so has no wide step beside its largest numbers ("four over six", arXiv:2512.02010; TE's nvfp4_4over6). The
/// errors are those of numbers rounded to nearest, also where they are then rounded stochastically: a choice by what
/// came out, as Four Over Six makes it, would be biased. TE refuses to do both.
enum class FourOverSix : std::uint8_t {
    off, ///< always 6
    mae, ///< the one with the smaller sum of absolute errors; 6 if both are equal
    mse, ///< the same with squared errors
};

inline constexpr std::array<std::string_view, 3> four_over_six_names = {"off", "mae", "mse"};

/// What shares an upper scale: the tensor, or each line along the blocks (TE: row_scaled_activation). The rule amax may
/// do without, and then has 1.
enum class UpperLevel : std::uint8_t { tensor, line, none };
inline constexpr std::array<std::string_view, 3> upper_level_names = {"tensor", "line", "none"};

/// The FP32 scales above those of blocks, which NVFP4 has, and what its recipes differ in.
struct UpperScales {
    int e4m3_max = 448; ///< scale of the block with the largest amax: 448, or 256, of which E4M3 has 1.5 times, too
    UpperLevel level = UpperLevel::tensor;
    FourOverSix four_over_six = FourOverSix::off;

    [[nodiscard]] constexpr bool lines() const { return level == UpperLevel::line; }

    constexpr bool operator==(const UpperScales&) const = default;
};

/// floor(log2 x) and whether x is a power of two, for finite x > 0.
struct Binade {
    int exponent;
    bool power;
};
constexpr Binade binade_of(float x) {
    const Unpacked u = unpack(x);
    return {u.exponent + bit_length(u.significand) - 1, is_power_of_two(u.significand)};
}

/// floor(log2 x) for finite x > 0 as torch computes it in FP32: the logarithm is rounded first, so that it may become
/// the integer above. That is so for x up to 44 steps below 2^next: n steps below, log2 x = next - n * 2^-24 / ln 2;
/// numbers just below `next` are 2^(floor(log2 |next|) - 23) apart, half of that above a positive power of two.
constexpr int floor_of_torch_log2(float x) {
    const int exponent = binade_of(x).exponent, next = exponent + 1;
    const auto size = static_cast<std::uint32_t>(next < 0 ? -next : next);
    if (size == 0) return exponent;
    const double steps = 0x800000 - static_cast<double>(std::bit_cast<std::uint32_t>(x) & 0x7fffff);
    const double nearest =
        (next > 0 && is_power_of_two(size) ? 0.5 : 1.0) * static_cast<double>(power_of_two_below(size));
    return steps * 1.4426950408889634 < nearest ? next : exponent;
}

namespace detail {

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
        amax =
            std::bit_cast<float>(std::bit_cast<std::uint32_t>(amax) + (std::uint32_t{1} << (23 - element.precision())));
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
            .divisor = rule == ScaleRule::deepseek || rule == ScaleRule::deepseek_pow2 ? scale : 0};
}

/// The scale of an NVFP4 block whose d, before it becomes an E4M3 number, is `wanted`.
constexpr BlockScale nvfp4_scale(float wanted, float tensor_scale) {
    constexpr FormatSpec e4m3 = format("e4m3");
    const float d =
        quantize(e4m3, wanted < largest_float ? wanted : largest_float, {.overflow = Overflow::saturate_all});
    const float s = fp32_div(1, fp32_mul(d, fp32_div(1, tensor_scale)));
    return {.encode = s < largest_float ? s : largest_float, .decode = d};
}

/// Quartet II's scale of a block with that amax, divided by what the amax is taken to.
constexpr BlockScale quartet_scale(float wanted, float upper) {
    constexpr FormatSpec e4m3 = format("e4m3");
    const float rounded = quantize(e4m3, fp32_div(wanted, upper), {.overflow = Overflow::saturate_all}),
                d = rounded == 0 ? 1 : rounded, step = fp32_mul(d, upper);
    return {.encode = fp32_div(1, step), .decode = d, .divisor = step};
}

} // namespace detail

/// The FP32 encode scale of an NVFP4 tensor or line, of its amax.
constexpr float nvfp4_tensor_scale(float amax, int e4m3_max = 448) {
    const float s = detail::fp32_div(static_cast<float>(e4m3_max * 6), amax);
    const float encode = s < largest_float ? s : largest_float;
    return amax == 0 || encode == 0 || !(encode == encode) ? 1 : encode;
}

/// The two scales that a block of NVFP4 may choose between.
struct ScalePair {
    BlockScale six, four;
};

constexpr ScalePair four_over_six_scales(ScaleRule rule, float amax, float tensor_scale) {
    const float sixth = detail::fp32_div(amax, 6);
    if (rule == ScaleRule::quartet)
        return {.six = detail::quartet_scale(sixth, tensor_scale),
                .four = detail::quartet_scale(detail::fp32_mul(sixth, 1.5F), tensor_scale)};
    const float wanted = detail::fp32_mul(sixth, tensor_scale);
    return {.six = detail::nvfp4_scale(wanted, tensor_scale),
            .four = detail::nvfp4_scale(detail::fp32_mul(wanted, 1.5F), tensor_scale)};
}

/// The error of a number of a block that is stored as q, or its square, as TE's and Quartet II's kernels compute it:
/// every operation in FP32, so callers are compiled without contraction.
struct RoundingError {
    ScaleRule rule;
    float divisor;
    bool squared;

    [[gnu::always_inline]] constexpr float of(float q, float decode, float upper, float x) const {
        const float read = rule == ScaleRule::quartet ? q * (decode * upper) : q * decode * upper / divisor,
                    difference = read - x;
        return squared ? difference * difference : difference < 0 ? -difference : difference;
    }
};

/// What Quartet II takes the amax of a block to. MS-EDEN clips a little, which costs less than it gains.
constexpr float quartet_largest(ScaleRule rule) {
    return rule == ScaleRule::ms_eden ? static_cast<float>(6.0 / (17.0 / 16 * 0.93)) : 6;
}

/// The upper scale of a tensor by Quartet II. The scale of its largest block is e4m3_max (Quartet II has 256 where
/// blocks choose); MS-EDEN's is 255.99, which can be corrected upward.
constexpr float quartet_upper_scale(ScaleRule rule, float amax, int e4m3_max) {
    const float largest = rule == ScaleRule::ms_eden ? 255.99F : static_cast<float>(e4m3_max);
    return amax == 0 ? 1 : detail::fp32_div(detail::fp32_div(amax, largest), quartet_largest(rule));
}

/// The rule of no library but of the definition, for any pair of formats: d is FP32(FP32(amax / max) / u) in the scale
/// format, rounded as asked and saturating, and its least positive number where that is 0. Blocks whose amax is 0,
/// infinite, or so small that d * u would be 0 have the scale of 1. q = x / FP32(d * u). The upper scale u takes the
/// tensor's or line's largest block to the largest scale, or to 1 if scales have FP32's range; it is at least 2^-100,
/// and 1 without upper scales.
struct AmaxScales {
    FormatSpec element, scale;
    Rounding rounding = Rounding::up; ///< up: no number of the block saturates

    [[nodiscard]] constexpr float upper(float amax) const {
        if (amax == 0 || !is_finite(amax)) return 1;
        const float most = detail::max_of(scale), largest = most < 0x1p64F ? most : 1;
        const float u = detail::fp32_div(detail::fp32_div(amax, detail::max_of(element)), largest);
        return u < 0x1p-100F ? 0x1p-100F : u;
    }
    [[nodiscard]] constexpr BlockScale of(float amax, float u) const {
        const bool counts = amax != 0 && is_finite(amax);
        const BlockScale own =
            counts ? stored(detail::fp32_div(detail::fp32_div(amax, detail::max_of(element)), u), u) : BlockScale{};
        return own.divisor != 0 ? own : stored(1, u);
    }

  private:
    [[nodiscard]] constexpr BlockScale stored(float wanted, float u) const {
        const float rounded = quantize(scale, wanted, {.rounding = rounding, .overflow = Overflow::saturate_all}),
                    d = rounded == 0 ? decode(scale, 1) : rounded, step = detail::fp32_mul(d, u);
        return {.encode = detail::fp32_div(1, step), .decode = d, .divisor = step};
    }
};

/// MS-EDEN (Quartet II, arXiv:2601.22813, schemes/quartet_2.py): the scales of a group of numbers that were mixed by a
/// Hadamard transform are multiplied by a factor, which makes the projection of what is stored on the numbers equal to
/// them, and rounded stochastically to E4M3. The factor is the ratio of two sums, over scaled numbers x and what they
/// are rounded to, here in the order of numbers and in FP32; so callers are compiled without contraction.
struct EdenSums {
    static constexpr std::int64_t group = 32;
    float squares = 0, products = 0;

    [[gnu::always_inline]] constexpr void add(float x, float q) {
        squares = squares + x * x;
        products = products + x * q;
    }
    /// `random` is a word of 32 bits.
    [[nodiscard]] constexpr float corrected(float d, std::uint32_t random) const {
        constexpr FormatSpec e4m3 = format("e4m3");
        const float factor = products == 0 ? 1 : squares / products;
        return quantize(e4m3, d * factor, {.rounding = Rounding::stochastic, .overflow = Overflow::saturate_all},
                        random);
    }
};

/// MS-AMP's s for finite amax > 0. It is infinite where max / amax overflows: zeros times it are NaN, other numbers
/// saturate.
constexpr float ms_amp_encode(float max, float amax) { return detail::torch_power_below(detail::fp32_div(max, amax)); }

/// The format in which the scales of blocks are stored; FP32 where it is chosen freely.
constexpr FormatSpec scale_format(ScaleRule rule) {
    constexpr FormatSpec e8m0 = format("e8m0"), e4m3 = format("e4m3"); // a device cannot look up names
    switch (rule) {
    case ScaleRule::mx_floor:
    case ScaleRule::mx_even:
    case ScaleRule::mx_ceil:
    case ScaleRule::mx_rceil:
    case ScaleRule::mx_te: return e8m0;
    case ScaleRule::nvfp4:
    case ScaleRule::quartet:
    case ScaleRule::ms_eden: return e4m3;
    case ScaleRule::te:
    case ScaleRule::te_pow2:
    case ScaleRule::torchao:
    case ScaleRule::torchao_pow2:
    case ScaleRule::deepseek:
    case ScaleRule::deepseek_pow2:
    case ScaleRule::deepgemm:
    case ScaleRule::deepgemm_pow2:
    case ScaleRule::amax:
    case ScaleRule::ms_amp:
    case ScaleRule::affine:
    case ScaleRule::one: break;
    }
    return fp32_format();
}

/// Whether all scales of the rule are E8M0's: powers of two, or NaN.
constexpr bool is_mx(ScaleRule rule) { return scale_format(rule).is_scale(); }

/// Whether there are upper scales.
constexpr bool has_upper_scales(ScaleRule rule) {
    return rule == ScaleRule::nvfp4 || rule == ScaleRule::quartet || rule == ScaleRule::ms_eden ||
           rule == ScaleRule::amax;
}

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
    case ScaleRule::quartet:
    case ScaleRule::ms_eden:
    case ScaleRule::amax:
    case ScaleRule::ms_amp:
    case ScaleRule::affine:
    case ScaleRule::one: break;
    }
    return false;
}

/// The scale of a block. `tensor_scale` is used by rules with upper scales only: NVFP4's nvfp4_tensor_scale() of the
/// tensor or line; of Quartet II quartet_upper_scale(), and MS-EDEN's d is not corrected; of amax, in FP32 here,
/// AmaxScales::upper(). That of `affine` is that of numbers from 0 to amax.
constexpr BlockScale block_scale(ScaleRule rule, const FormatSpec& element, float amax, float tensor_scale = 1) {
    const float max = detail::max_of(element);
    switch (rule) {
    case ScaleRule::te: return detail::scale_by(detail::te_scale(max, amax));
    case ScaleRule::te_pow2: return detail::scale_by(detail::clear_significand(detail::te_scale(max, amax)));
    case ScaleRule::torchao:
    case ScaleRule::torchao_pow2: {
        const double least = 1e-12, wide = static_cast<double>(amax);
        const float s = quantize(fp32_format(), static_cast<double>(max) / (wide < least ? least : wide));
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
    case ScaleRule::nvfp4: {
        const float wanted = detail::fp32_mul(amax, detail::fp32_mul(tensor_scale, detail::fp32_div(1, 6)));
        return detail::nvfp4_scale(wanted, tensor_scale);
    }
    case ScaleRule::quartet:
    case ScaleRule::ms_eden: return detail::quartet_scale(detail::fp32_div(amax, quartet_largest(rule)), tensor_scale);
    case ScaleRule::amax: return AmaxScales{.element = element, .scale = fp32_format()}.of(amax, tensor_scale);
    case ScaleRule::ms_amp:
        return amax == 0 || !is_finite(amax) ? BlockScale{} : detail::scale_by(ms_amp_encode(max, amax));
    case ScaleRule::affine: return affine_scale(element, {.least = 0, .largest = amax});
    case ScaleRule::one: break;
    }
    return {};
}

} // namespace amp
