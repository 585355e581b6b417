#include <ampscope/sim/analysis/censoring.h>

#include <ampscope/formats/codec.h>
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
    if (found == formats.end() || found->is_scale() || found->exponent_bits >= fp32_format().exponent_bits) return {};
    return found->min_subnormal_exponent() - 1;
}

} // namespace

std::string_view name_of(Known known) { return known_names[static_cast<std::size_t>(known)]; }

void Censoring::merge(const Censoring& other) {
    below_log2 = std::max(below_log2, other.below_log2); // none is less than any
    zeros += other.zeros;
    sums |= other.sums;
    terms |= other.terms;
    elements += other.elements;
}

Censoring censoring_of(const GradientRecord& record) {
    const bool of_weights = record.kind != TensorKind::activation_gradient;
    const int log2_scale = std::ilogb(record.scale);
    const std::optional<int> held = zero_below(record.backward);
    std::optional<int> below = zero_below(record.stored);
    if (!below && held && !(record.least_log2 && *record.least_log2 + log2_scale <= *held)) below = held;
    const bool sums = below && held && of_weights && record.scale <= 1;
    if (!below) return {.terms = !of_weights};
    if (record.zeros == 0 && !sums) return {.terms = !of_weights, .elements = record.elements};
    return {.below_log2 = *below - log2_scale,
            .zeros = record.zeros,
            .sums = sums,
            .terms = !of_weights,
            .elements = record.elements};
}

std::string censoring_text(const Censoring& censoring) {
    const std::string below = power_of_two(censoring.below_log2.value_or(0)),
                      start = "what underflowed was never recorded: ";
    if (!censoring.hides())
        return fmt::format("{}gradients of weights are sums, whose terms were held as zero up to {}", start, below);
    return fmt::format("{}magnitudes up to {} were held as zero, and {} of the {} of tensors held so are exact "
                       "zeros, of which any number may have underflowed{}",
                       start, below, percent(censoring.zeros, censoring.elements),
                       plural(censoring.elements, "element"),
                       censoring.hides_terms() ? ", as may terms of the sums that the others are" : "");
}

std::string counted_text(const Censoring& censoring) {
    return censoring.hides_any() ? "It counts what was recorded; more may have underflowed before." : "";
}

std::string with_counted_text(std::string caption, const Censoring& censoring) {
    if (const std::string text = counted_text(censoring); !text.empty()) caption += " " + text;
    return caption;
}

} // namespace amp
