// Formats of an optimizer's state that is kept under scales: one for the tensor (MS-AMP), or one for each block of
// elements in C order (torchao), whose numbers may then be the entries of a table in place of a FormatSpec's.
#pragma once

#include <ampscope/formats/spec.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace amp {

/// The table that a code indexes. Where state is never negative, as Adam's v, a table has no negative numbers.
enum class CodeMap : std::uint8_t {
    none,     ///< there is no table: numbers are those of a FormatSpec
    dynamic8, ///< decades from 1e-7 to 1, the larger ones in finer steps, with 0 and 1 (arXiv:1511.04561, 2110.02861)
    bnb8,     ///< the table of dynamic8, in which numbers are looked up by 65,536 bins between -1 and 1
    dynamic4, ///< the same of three decades; without negative numbers: multiples of 1/16, 0 is none (arXiv:2309.01507)
};

struct CodeMapRow {
    std::string_view name;
    int bits;
    std::string_view source;
};
inline constexpr std::array code_maps = {
    CodeMapRow{"none", 0, ""},
    CodeMapRow{"dynamic8", 8, "torchao.optim's OptimState8bit, in blocks of 256"},
    CodeMapRow{"bnb8", 8, "bitsandbytes 0.50 on the processor, in blocks of 256, of which the last may be shorter"},
    CodeMapRow{"dynamic4", 4, "torchao.optim's OptimState4bit, in blocks of 128"},
};
constexpr const CodeMapRow& row_of(CodeMap map) { return code_maps[static_cast<std::size_t>(map)]; }

/// How a tensor is kept under scales.
struct ScaledFormat {
    FormatSpec element;          ///< the format of the numbers; of a table, of its codes
    std::int64_t block = 0;      ///< so many elements share a scale; 0: the whole tensor, as MS-AMP's do
    CodeMap map = CodeMap::none; ///< only with blocks
    bool has_negatives = true;   ///< whether the table has negative numbers

    /// "e4m3:tensor", "dynamic8:256": what scaled_format() reads.
    [[nodiscard]] std::string name() const;
    /// Whether a tensor of so many elements is kept so. In blocks: torchao's rule, at least 4,096 elements and whole
    /// blocks only, or that of bitsandbytes, which does not ask for whole ones.
    [[nodiscard]] constexpr bool holds(std::int64_t elements) const {
        return block == 0 || (elements >= 4096 && (elements % block == 0 || map == CodeMap::bnb8));
    }
    /// The number of scales, FP32 each, of a tensor that it holds.
    [[nodiscard]] constexpr std::int64_t scales(std::int64_t elements) const {
        return block == 0 ? 1 : (elements + block - 1) / block;
    }
    constexpr bool operator==(const ScaledFormat&) const = default;
};

/// The format if there is one and it holds a tensor of so many elements.
constexpr std::optional<ScaledFormat> held_in(const std::optional<ScaledFormat>& format, std::int64_t elements) {
    return format && format->holds(elements) ? format : std::nullopt;
}

/// Reads FORMAT:tensor, or NAME:N with a scale for each N elements, where NAME is a table of code_maps or a format of 8
/// bits or less. None if there is no colon. Throws std::invalid_argument for what else there is.
std::optional<ScaledFormat> scaled_format(std::string_view text, bool has_negatives);

/// The numbers of a format's table, ascending; empty without one. They are computed in FP32 as
/// torch.linspace and what follows it compute them on a processor. `contract`: by its kernels for AVX2, whose sums of a
/// product round once, so that a fourth of the numbers differ in the last place.
std::span<const float> code_numbers(const ScaledFormat& format, bool contract);

} // namespace amp
