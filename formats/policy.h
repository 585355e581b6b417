// How a result is rounded, and what happens to values that the format does not hold: the arguments of every conversion
// and operation, and the table of named combinations ("profiles") that reproduce a standard, a library or an
// instruction.
#pragma once

#include <ampscope/formats/names.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace amp {

/// Rounding direction. "Up" and "down" are towards +infinity and -infinity.
enum class Rounding : std::uint8_t {
    nearest_even, ///< IEEE 754 roundTiesToEven; with one significant bit the tie goes to the even code
    nearest_away, ///< IEEE 754 roundTiesToAway (cvt.rna)
    toward_zero,  ///< IEEE 754 roundTowardZero
    down,         ///< IEEE 754 roundTowardNegative
    up,           ///< IEEE 754 roundTowardPositive
    to_odd,       ///< truncate, then set the code's last bit if anything was lost (Boldo and Melquiond 2008)
    stochastic, ///< round the magnitude up iff r < f * 2^b, where f is the discarded fraction, r a uniform b-bit word,
                ///< and f * 2^b is made an integer first (see StochasticVariant)
};

/// Names of the enumerators of Rounding, in their order, as command lines, JSON and Python spell them.
inline constexpr std::array<std::string_view, 7> rounding_names = {
    "nearest_even", "nearest_away", "toward_zero", "down", "up", "to_odd", "stochastic"};

/// How f * 2^b of stochastic rounding becomes an integer. They are the variants of IEEE P3109 v4.0 section 4.7.4, whose
/// random number is R = 2^b - 1 - r. If f has no more than b bits, all three are exact.
enum class StochasticVariant : std::uint8_t {
    a, ///< rounded down: f < 2^-b never rounds up, and the result is too small by less than 2^-b ulp on average
    b, ///< to the nearest, ties up: wrong by at most 2^-(b+1) ulp on average
    c, ///< to the nearest, ties to even: the same, without a preference
};

inline constexpr std::array<std::string_view, 3> stochastic_variant_names = {"a", "b", "c"};

/// What is stored for an infinity, and where the magnitude, rounded as if the exponent were unbounded, exceeds the
/// largest finite value. An infinity in a format without infinities raises invalid, unless the mode asks for the
/// largest value.
enum class Overflow : std::uint8_t {
    infinity,     ///< IEEE 754 section 7.4: infinity or, by direction, the largest finite value; NaN without infinities
    saturate,     ///< the largest finite value; an infinite operand stays infinite (NaN where there is no infinity)
    saturate_all, ///< the largest finite value for infinite operands too (OCP saturating mode, satfinite)
    // The saturation modes of IEEE P3109 v4.0 section 4.7.5. In formats without infinity they store the largest finite
    // value, never NaN; below the range of a format without sign lies all that does not round to zero, and zero is the
    // end of that range. There is no -0: where the format has its code, 0 is stored.
    sat_finite,    ///< the end of the range for all beyond it
    sat_propagate, ///< the same, but infinities stay where the format has them
    sat_none,      ///< infinity or, by direction, the end of the range; below that of a format without sign: NaN
};

inline constexpr std::array<std::string_view, 6> overflow_names = {"infinity",   "saturate",      "saturate_all",
                                                                   "sat_finite", "sat_propagate", "sat_none"};

constexpr std::string_view name_of(Rounding rounding) { return rounding_names[static_cast<std::size_t>(rounding)]; }
constexpr std::string_view name_of(Overflow overflow) { return overflow_names[static_cast<std::size_t>(overflow)]; }
constexpr std::string_view name_of(StochasticVariant variant) {
    return stochastic_variant_names[static_cast<std::size_t>(variant)];
}

/// What happens to subnormal values: they are kept (gradual underflow), or become zeros of the same sign.
enum class Subnormals : std::uint8_t {
    keep,
    flush_input,  ///< operands that are subnormal in their own format (FP32 for a float) count as zeros; no flag is
                  ///< raised
    flush_output, ///< a result that is subnormal after rounding becomes zero and raises underflow and inexact
    flush,        ///< flush_input and flush_output
};

inline constexpr std::array<std::string_view, 4> subnormals_names = {"keep", "flush_input", "flush_output", "flush"};

/// The bits of a NaN result. A NaN that stands for infinity after an overflow has the sign of the value under every
/// rule but the canonical one, as in CUDA, ml_dtypes and PyTorch.
enum class NanRule : std::uint8_t {
    canonical,          ///< positive, quiet, no payload: FormatSpec::nan_code()
    keep_sign,          ///< canonical with the operand's sign bit (ml_dtypes; the NaN of FNUZ formats has it set)
    payload,            ///< the operand's sign and leading payload bits, quieted (x86 F16C and AVX512_BF16)
    all_ones,           ///< positive, every fraction bit set (CUDA: 0x7fff, 0x7f)
    all_ones_keep_sign, ///< all_ones with the operand's sign bit (PyTorch's float8_e5m2)
};

/// When a result counts as tiny for the underflow flag (IEEE 754 section 7.5 allows both).
enum class Tininess : std::uint8_t { after_rounding, before_rounding };

/// Everything that decides the bits of a result, besides its operands and format.
struct Policy {
    Rounding rounding = Rounding::nearest_even;
    Overflow overflow = Overflow::infinity;
    Subnormals subnormals = Subnormals::keep;
    NanRule nan = NanRule::canonical;
    Tininess tininess = Tininess::after_rounding;     ///< affects the underflow flag only
    std::uint8_t random_bits = 32;                    ///< b, the bits of a word of stochastic rounding: 1 to 32
    StochasticVariant variant = StochasticVariant::a; ///< how stochastic rounding cuts its random bits

    /// Whether results are projected as IEEE P3109 does it: onto numbers without -0, and onto a range that has an end
    /// below, too.
    [[nodiscard]] constexpr bool projects() const { return overflow >= Overflow::sat_finite; }
    [[nodiscard]] constexpr bool flushes_input() const {
        return subnormals == Subnormals::flush_input || subnormals == Subnormals::flush;
    }
    [[nodiscard]] constexpr bool flushes_output() const {
        return subnormals == Subnormals::flush_output || subnormals == Subnormals::flush;
    }
    constexpr bool operator==(const Policy&) const = default;
};

/// The five IEEE 754 exceptions, as bits in Berkeley SoftFloat's order.
struct Flags {
    enum Bit : std::uint8_t { inexact = 1, underflow = 2, overflow = 4, divide_by_zero = 8, invalid = 16 };
    std::uint8_t bits = 0;

    constexpr void raise(unsigned which) { bits |= static_cast<std::uint8_t>(which); }
    [[nodiscard]] constexpr bool test(Bit which) const { return (bits & which) != 0; }
    constexpr bool operator==(const Flags&) const = default;
};

/// A named Policy.
struct Profile {
    std::string_view name;
    Policy policy;
    std::string_view reproduces;
    std::string_view format{}; ///< the only format that the library casts so; empty: all that it has
    std::string_view others{}; ///< the profile by which it casts to all others
};

inline constexpr std::array profiles = {
    Profile{"ieee", {}, "IEEE 754: overflow to infinity, or NaN where there is none"},
    Profile{"ocp-saturate", {.overflow = Overflow::saturate_all}, "OCP OFP8 and MX saturating mode: infinities too"},
    Profile{"ml_dtypes",
            {.nan = NanRule::keep_sign},
            "ml_dtypes and JAX casts: no saturation, NaN keeps its sign (0.6.0; there a NaN into FP6 or FP4 becomes 0, "
            "ties of E8M0 go up and its zero is NaN)"},
    Profile{"cuda-nosat", {.nan = NanRule::all_ones}, "CUDA __NV_NOSAT and the cuda_fp16/cuda_bf16 conversions"},
    Profile{"cuda-satfinite",
            {.overflow = Overflow::saturate_all, .nan = NanRule::all_ones},
            "CUDA __NV_SATFINITE, cvt.rn.satfinite"},
    Profile{
        "torch",
        {.overflow = Overflow::saturate_all, .nan = NanRule::all_ones_keep_sign},
        "PyTorch .to(float8_e4m3fn) since pull request 178817 (2026-04), measured in 2.15.0: 448 for infinities too",
        "e4m3",
        "torch-2025"},
    Profile{
        "torch-2025",
        {.nan = NanRule::all_ones_keep_sign},
        "PyTorch .to(float8_e4m3fn) before that: NaN on overflow; in 2.15.0 still its other float8 types with a sign"},
    Profile{"vcvtneps2bf16",
            {.subnormals = Subnormals::flush, .nan = NanRule::payload},
            "x86 AVX512_BF16: nearest-even, DAZ and FTZ"},
    Profile{"vcvtps2ph", {.nan = NanRule::payload}, "x86 F16C: NaN keeps sign and leading payload"},
    Profile{"p3109-sat-none", {.overflow = Overflow::sat_none}, "IEEE P3109 v4.0: NearestTiesToEven, SatNone"},
    Profile{"p3109-sat-finite", {.overflow = Overflow::sat_finite}, "IEEE P3109 v4.0: NearestTiesToEven, SatFinite"},
    Profile{"p3109-sat-propagate",
            {.overflow = Overflow::sat_propagate},
            "IEEE P3109 v4.0: NearestTiesToEven, SatPropagate"},
    Profile{"cvt-rna", {.rounding = Rounding::nearest_away}, "PTX cvt.rna.tf32: ties away from zero"},
};

/// The profile of that name; throws std::invalid_argument for any other.
constexpr const Profile& profile(std::string_view name) { return find_row("profile", profiles, name); }

/// The profile by which the library of that one casts to a format.
constexpr const Profile& profile(std::string_view name, std::string_view format) {
    const Profile& row = profile(name);
    return row.format.empty() || row.format == format ? row : profile(row.others);
}

} // namespace amp
