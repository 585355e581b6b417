#include <ampscope/sim/analysis/censoring.h>

#include <ampscope/formats/spec.h>
#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace amp {

namespace {

constexpr std::array<std::string_view, 3> known_names = {"exact", "bound", "unknown"};

/// log2 of the largest magnitude that rounds to zero in the format: half the least subnormal is a tie, and goes to the
/// even zero. None for formats of FP32's range, and for names that are not in the table.
std::optional<int> zero_below(std::string_view name) {
    const auto found = std::ranges::find(formats, name, [](const FormatSpec& f) { return std::string_view(f.name); });
    if (found == formats.end() || found->is_scale() || found->exponent_bits >= fp32_format.exponent_bits) return {};
    return found->min_subnormal_exponent() - 1;
}

} // namespace

std::string_view name_of(Known known) { return known_names[static_cast<std::size_t>(known)]; }

void Censoring::merge(const Censoring& other) {
    below_log2 = std::max(below_log2, other.below_log2); // none is less than any
    zeros += other.zeros;
}

Censoring censoring_of(const GradientRecord& record) {
    if (record.zeros == 0) return {};
    const int log2_scale = std::ilogb(record.scale);
    std::optional<int> below = zero_below(record.stored);
    if (!below) {
        below = zero_below(record.backward);
        if (below && record.least_log2 && *record.least_log2 + log2_scale <= *below) return {};
    }
    if (!below) return {};
    return {.below_log2 = *below - log2_scale, .zeros = record.zeros};
}

std::string censoring_text(const Censoring& censoring, std::uint64_t elements) {
    return fmt::format("what underflowed was never recorded: magnitudes up to {} were held as zero, and {} of the {} "
                       "are exact zeros, of which any number may have underflowed",
                       power_of_two(censoring.below_log2.value_or(0)), percent(censoring.zeros, elements),
                       plural(elements, "element"));
}

} // namespace amp
