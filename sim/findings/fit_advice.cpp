#include <ampscope/sim/findings/detail/fit_advice.h>

#include <ampscope/formats/codec.h>
#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <utility>

namespace amp {

namespace {

constexpr std::size_t name_width = 30;

/// "12 % of non-zero weights become zero and 0.1 % overflow when cast as they are", and which tensors overflow.
std::string unscaled_fit_text(const detail::FitFacts& f) {
    const ClassCounts& lost = f.fit.unscaled;
    std::string of = fmt::format(" of non-zero {}", f.noun), text;
    if (lost.underflow + lost.overflow == 0) return "nothing becomes zero or overflows in a cast without a scale";
    if (f.random) text = "up to ";
    if (lost.underflow > 0) text += percent(lost.underflow, f.nonzero) + std::exchange(of, "") + " become zero";
    if (lost.overflow > 0)
        text += (lost.underflow > 0 ? " and " : "") + percent(lost.overflow, f.nonzero) + of + " overflow";
    text += " in a cast without a scale";
    if (f.fit.overflowing > 0)
        text += fmt::format(" ({} of {} beyond {:g}, {} furthest: {})", grouped(f.fit.overflowing),
                            plural(f.fit.tensors, "tensor"), decode(f.format, f.format.max_code()),
                            clipped(f.largest, name_width), f.largest_value);
    return text;
}

/// What scales of their own do to the tensors of which a cast without a scale does not hold all.
std::string scaled_fit_text(const detail::FitFacts& f) {
    const FormatFit& fit = f.fit;
    const std::string scales = fit.least_scale == fit.most_scale
                                   ? power_of_two(fit.least_scale)
                                   : power_of_two(fit.least_scale) + " ... " + power_of_two(fit.most_scale);
    const std::string start = fmt::format(
        "with a scale for each tensor, the largest power of two without overflow ({}), {}{} become zero", scales,
        f.random ? "up to " : "", percent(fit.scaled.underflow, f.nonzero));
    const std::string limit = fmt::format("{:g} %", 100 * f.limit);
    if (fit.held_scaled == fit.tensors)
        return fmt::format("{}, under {} in every tensor: a scale per tensor suffices", start, limit);
    return fmt::format("{}, {} or more in {} of {}, most of them in {}: these need a scale for each block of elements, "
                       "or a format of larger range",
                       start, limit, grouped(fit.tensors - fit.held_scaled), plural(fit.tensors, "tensor"),
                       clipped(f.worst_scaled, name_width));
}

} // namespace

std::string detail::fit_advice(const FitFacts& f) {
    constexpr int narrow = 8; // bits of the formats that are used with scales of their own
    const std::string start = fmt::format("{}, {}: ", upper_case(f.format.name), f.group);
    if (f.nonzero == 0) return start + fmt::format("none of the {} is finite and not zero; every format will do.", f.noun);
    std::string text = start + unscaled_fit_text(f);
    if (f.fit.held == f.fit.tensors)
        return text + (f.fit.unscaled.underflow > 0 ? fmt::format(", under {:g} % in every tensor", 100 * f.limit) : "") +
               "; no scale needed.";
    if (f.format.bits() <= narrow) return text + "; " + scaled_fit_text(f) + ".";
    if (f.fit.unscaled.overflow == 0) text += fmt::format(", most of them in {}", clipped(f.worst, name_width));
    return text + fmt::format("; a loss scale cannot help {}: keep them in a format of larger range.", f.group);
}

} // namespace amp
