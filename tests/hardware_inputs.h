// The inputs of recordings of models of matrix hardware: what tests/data/hardware_inputs.py makes.
#pragma once

#include "recordings.h"

#include <ampscope/formats/names.h>
#include <ampscope/formats/spec.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace amp::test {

inline std::uint32_t word(std::uint32_t seed, std::uint32_t line, std::uint32_t i) {
    return mixed(mixed(seed * 0x9e3779b9U + line) + i);
}

/// What numbers a recording has.
enum class CodeKind : std::uint8_t { ordinary, any, cancelling, subnormal, zeros, specials };

inline CodeKind code_kind(std::string_view kind) {
    constexpr std::array<std::string_view, 6> names = {"ordinary",  "any",   "cancelling",
                                                       "subnormal", "zeros", "specials"};
    return parse_name<CodeKind>("kind of input", names, kind);
}

class Codes {
  public:
    explicit Codes(const FormatSpec& f)
        : f_(f), zero_(f.nonfinite == NonFinite::nan_is_negative_zero), ieee_(f.nonfinite == NonFinite::ieee),
          ones_(f.nonfinite == NonFinite::nan_only), top_((1U << f.exponent_bits) - 1),
          fraction_((1U << f.fraction_bits) - 1), sign_(1U << (f.exponent_bits + f.fraction_bits)) {}

    /// The code of position i; of a pair that cancels, the first one's word is `word` for both.
    [[nodiscard]] std::uint32_t code(CodeKind kind, std::uint32_t word, bool odd) const {
        const std::uint32_t code = any_code(kind, word, odd);
        return zero_ && kind != CodeKind::specials && code == sign_ ? 0 : code;
    }

  private:
    [[nodiscard]] std::uint32_t any_code(CodeKind kind, std::uint32_t word, bool odd) const {
        if (kind == CodeKind::any) return finite(word);
        if (kind == CodeKind::cancelling) return odd ? middle(word) ^ sign_ : middle(word);
        if (kind == CodeKind::subnormal) return sign(word) | (word >> 23 & 1) << f_.fraction_bits | (word & fraction_);
        if (kind == CodeKind::zeros) return (word >> 22 & 1) != 0 ? sign(word) : finite(word);
        if (kind == CodeKind::specials && (word >> 18) % 16 == 0 && zero_) return sign_;
        if (kind == CodeKind::specials && (word >> 18) % 16 == 0)
            return ieee_ ? any(word) | top_ << f_.fraction_bits : ones_ ? any(word) | (sign_ - 1) : any(word);
        return middle(word);
    }

    [[nodiscard]] std::uint32_t sign(std::uint32_t word) const { return word >> 31 != 0 ? sign_ : 0; }
    [[nodiscard]] std::uint32_t any(std::uint32_t word) const { return mixed(word + 1) & (2 * sign_ - 1); }
    [[nodiscard]] std::uint32_t finite(std::uint32_t word) const {
        const std::uint32_t code = any(word);
        const bool special =
            (code >> f_.fraction_bits & top_) == top_ && (ieee_ || (ones_ && (code & fraction_) == fraction_));
        return special ? code ^ sign_ >> 1 : code;
    }
    /// An ordinary number: one of eight binades around 1.
    [[nodiscard]] std::uint32_t middle(std::uint32_t word) const {
        const std::int32_t exponent =
            std::clamp((1 << (f_.exponent_bits - 1)) - 4 + static_cast<std::int32_t>(word >> 23 & 7), 0,
                       static_cast<std::int32_t>(top_));
        std::uint32_t code = sign(word) | static_cast<std::uint32_t>(exponent) << f_.fraction_bits | (word & fraction_);
        if (ieee_ && (code >> f_.fraction_bits & top_) == top_) code ^= 1U << f_.fraction_bits;
        if (ones_ && (code | sign_) == 2 * sign_ - 1) code ^= 1;
        return code;
    }

    FormatSpec f_;
    bool zero_, ieee_, ones_;
    std::uint32_t top_, fraction_, sign_;
};

} // namespace amp::test
