#include <ampscope/sim/findings/detail/fit_advice.h>

#include <ampscope/formats/codec.h>
#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <utility>

namespace amp {

namespace {

std::string shown_name(const std::string& name) { return shortened_name(name, 30); }

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
                            shown_name(f.largest), f.largest_value);
    return text;
}

/// What scales of their own do to the tensors of which a cast without a scale does not hold all.
std::string scaled_fit_text(const detail::FitFacts& f) {
    const FormatFit& fit = f.fit;
    const auto [least, most] = fit.log2_scales;
    const std::string scales = least == most ? power_of_two(least) : power_of_two(least) + " ... " + power_of_two(most);
    const std::string start =
        fmt::format("with a scale for each tensor, the largest power of two without overflow ({}), ", scales);
    if (fit.scaled.underflow == 0) return start + "nothing becomes zero: a scale per tensor suffices";
    const std::string lost = (f.random ? "up to " : "") + percent(fit.scaled.underflow, f.nonzero),
                      limit = limit_percent(f.limit);
    if (fit.held_scaled == fit.tensors)
        return fmt::format("{}{} become zero, under {} in every tensor: a scale per tensor suffices", start, lost,
                           limit);
    return fmt::format(
        "{}{} become zero, {} or more in {} of {}, most of them in {}: these need a scale for each block "
        "of elements, or a format of larger range",
        start, lost, limit, grouped(fit.tensors - fit.held_scaled), plural(fit.tensors, "tensor"),
        shown_name(f.worst_scaled));
}

/// Whether what the record hides may lift the share of what becomes zero over the limit.
bool is_open(const detail::FitFacts& f) {
    const auto lost = static_cast<double>(f.fit.unscaled.underflow + f.censoring.zeros);
    const auto all = static_cast<double>(f.nonzero + f.censoring.zeros);
    return f.censoring.hides_terms() || (f.censoring.hides() && lost >= f.limit * all);
}

} // namespace

std::string detail::fit_advice(const FitFacts& f) {
    constexpr int narrow = 8; // bits of the formats that are used with scales of their own
    const std::string start = fmt::format("{}, {}: ", upper_case(f.format.name), f.group);
    if (f.nonzero == 0)
        return start + fmt::format("none of the {} is finite and not zero; every format will do.", f.noun);
    std::string text = start + unscaled_fit_text(f);
    const std::string hidden = is_open(f) ? censoring_text(f.censoring) : "";
    if (f.fit.held == f.fit.tensors) {
        if (f.fit.unscaled.underflow > 0) text += fmt::format(", under {} in every tensor", limit_percent(f.limit));
        if (hidden.empty()) return text + "; no scale needed.";
        return text + fmt::format("; whether a scale is needed is unknown, as {}.", hidden);
    }
    if (f.format.bits() <= narrow)
        return text + "; " + scaled_fit_text(f) + (hidden.empty() ? "." : ". More may become zero: " + hidden + ".");
    if (f.fit.unscaled.overflow == 0) text += fmt::format(", most of them in {}", shown_name(f.worst));
    return text + fmt::format("; a loss scale cannot help {}: keep them in a format of larger range.", f.group);
}

} // namespace amp
