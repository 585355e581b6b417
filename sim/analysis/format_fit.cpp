#include <ampscope/sim/analysis/format_fit.h>

#include <algorithm>

namespace amp {

void FormatFit::merge(const FormatFit& other) {
    if (other.tensors == 0) return;
    log2_scales = tensors == 0 ? other.log2_scales
                               : std::pair(std::min(log2_scales.first, other.log2_scales.first),
                                           std::max(log2_scales.second, other.log2_scales.second));
    tensors += other.tensors;
    overflowing += other.overflowing;
    held += other.held;
    held_scaled += other.held_scaled;
    unscaled += other.unscaled;
    scaled += other.scaled;
}

FormatFit fit_of(const MagnitudeHistogram& all, const FineHistogram& fine, const FormatSpec& format,
                 const CastRule& rule, double limit) {
    if (all.rows.empty()) return {};
    const ClassCounts unscaled = classify(all, fine, format, 0, rule);
    // The largest scale without overflow. Scaled to the binade of the format's largest value the largest elements may
    // overflow; a binade below they cannot, even if they are rounded up.
    int own = format.max_exponent() - all.rows.rbegin()->first;
    ClassCounts scaled = classify(all, fine, format, own, rule);
    if (scaled.overflow > 0) scaled = classify(all, fine, format, --own, rule);
    const auto nonzero = static_cast<double>(all.nonzero());
    const auto holds = [&](const ClassCounts& counts) {
        return counts.overflow == 0 && static_cast<double>(counts.underflow) < limit * nonzero;
    };
    FormatFit fit{.tensors = 1, .unscaled = unscaled, .scaled = scaled, .log2_scales = {own, own}};
    fit.overflowing = fit.unscaled.overflow > 0 ? 1 : 0;
    fit.held = holds(fit.unscaled) ? 1 : 0;
    fit.held_scaled = holds(fit.scaled) ? 1 : 0;
    return fit;
}

} // namespace amp
