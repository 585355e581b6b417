#include <ampscope/sim/program/autocast.h>

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <iterator>
#include <stdexcept>
#include <string>

namespace amp {

namespace {

using enum AutocastClass;

constexpr AutocastRow autocast_table[] = {
    {"matmul", lower_precision, lower_precision, false},
    {"bmm", lower_precision, lower_precision, false},
    {"linear", lower_precision, lower_precision, false},
    {"conv2d", lower_precision, lower_precision, false},
    {"scaled_dot_product_attention", lower_precision, lower_precision, false},

    {"exp", fp32, unlisted},
    {"log", fp32, unlisted},
    {"pow", fp32, unlisted},
    {"rsqrt", fp32, unlisted},
    {"layer_norm", fp32, unlisted},
    {"rms_norm", fp32, unlisted}, // in PyTorch 2.15's list
    {"nll_loss", fp32, fp32},
    {"cross_entropy", fp32, fp32},
    {"mse_loss", fp32, fp32},
    {"l1_loss", fp32, fp32},
    {"binary_cross_entropy_with_logits", fp32, fp32},
    {"binary_cross_entropy", banned, fp32, false},

    {"softmax", fp32_output, unlisted},
    {"log_softmax", fp32_output, unlisted},
    {"sum", fp32_output, unlisted},
    {"cumsum", fp32_output, unlisted},
    {"norm", fp32_output, unlisted},
    {"prod", fp32_output, fp32},

    {"dot", widest, unlisted, false},
    {"cat", unlisted, widest},
    {"stack", unlisted, widest},

    {"add", unlisted, unlisted},
    {"mul", unlisted, unlisted},
    {"div", unlisted, unlisted},
    {"scale", unlisted, unlisted},
    {"relu", unlisted, unlisted},
    {"gelu", unlisted, unlisted},
    {"tanh", unlisted, unlisted},
    {"sigmoid", unlisted, unlisted},
    {"mean", unlisted, unlisted},
    {"dropout", unlisted, unlisted},
    {"embedding", unlisted, unlisted},
    {"max_pool2d", unlisted, unlisted},
    {"avg_pool2d", unlisted, unlisted},
    {"batch_norm", unlisted, unlisted},
    {"transpose", unlisted, unlisted},
};

constexpr FormatSpec single = format("fp32");

bool is_half(const FormatSpec& f) { return f == format("fp16") || f == format("bf16"); }

/// The format to which PyTorch promotes the two: two different half formats are promoted to FP32.
FormatSpec promoted(const FormatSpec& a, const FormatSpec& b) { return a == b ? a : single; }

FormatSpec promoted(std::span<const FormatSpec> inputs) {
    FormatSpec result = inputs.front();
    for (const FormatSpec& f : inputs) result = promoted(result, f);
    return result;
}

void check_equal(const AutocastRow& row, std::span<const FormatSpec> inputs) {
    const auto other = std::ranges::find_if(inputs, [&](const FormatSpec& f) { return f != inputs.front(); });
    if (other != inputs.end())
        throw std::invalid_argument(
            fmt::format("{}: operands are {} and {}, but must agree where autocast does not cast "
                        "them: cast one",
                        row.name, inputs.front().name, other->name));
}

FormatSpec widest_of(const AutocastRow& row, const FormatSpec& low, std::span<const FormatSpec> inputs) {
    FormatSpec result = low;
    for (const FormatSpec& f : inputs) {
        if (f == single) result = f;
        else if (f != low)
            throw std::invalid_argument(
                fmt::format("{}: an operand is {}, but autocast's format is {}", row.name, f.name, low.name));
    }
    return result;
}

} // namespace

std::span<const AutocastRow> autocast_rows() { return autocast_table; }

const AutocastRow& autocast_row(std::string_view op) { return find_row("op of autocast", autocast_table, op); }

OpFormats op_formats(const Autocast& autocast, std::string_view op, std::span<const FormatSpec> inputs) {
    const AutocastRow& row = autocast_row(op);
    if (inputs.empty()) throw std::invalid_argument(fmt::format("{}: no operands", op));
    for (const FormatSpec& f : inputs)
        if (!is_half(f) && f != single)
            throw std::invalid_argument(fmt::format("{}: autocast knows fp32, fp16 and bf16, not {}", op, f.name));
    if (autocast.enabled && !is_half(autocast.low))
        throw std::invalid_argument(fmt::format("autocast to {}: only fp16 and bf16 are supported", autocast.low.name));

    const AutocastClass rule = !autocast.enabled                         ? unlisted
                               : autocast.policy == AutocastPolicy::cuda ? row.cuda
                                                                         : row.cpu;
    const std::vector<FormatSpec> as_they_are(inputs.begin(), inputs.end());
    const auto all = [&](const FormatSpec& f) { return OpFormats{{inputs.size(), f}, f, rule}; };
    switch (rule) {
    case lower_precision: return all(autocast.low);
    case fp32: return all(single);
    case fp32_output: return {as_they_are, single, rule};
    case widest: return all(widest_of(row, autocast.low, inputs));
    case banned:
        throw std::invalid_argument(
            fmt::format("{} overflows in fp16 and is refused under autocast: use {}_with_logits", op, op));
    case unlisted: break;
    }
    if (!row.promotes) check_equal(row, inputs);
    return {as_they_are, promoted(inputs), rule};
}

std::string_view name_of(AutocastClass c) {
    constexpr std::array<std::string_view, 6> names = {"unlisted",    "lower precision", "fp32",
                                                       "fp32 output", "widest",          "banned"};
    return names[static_cast<std::size_t>(c)];
}

} // namespace amp
