#include <ampscope/formats/block.h>
#include <ampscope/sim/cpu/wide.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace amp {

namespace {

/// Of a finished cast: what was beyond the largest value or became zero.
void count(const Quantize& op, std::span<const float> in, std::span<const float> out,
           std::span<const BlockScale> scales, std::span<const float> amax, std::int64_t columns, ScalingCounts& c) {
    const BlockScaling& s = op.scaling;
    const std::int64_t rows = static_cast<std::int64_t>(in.size()) / columns, width = s.block_columns(columns),
                       height = s.block_rows(rows), across = s.scale_columns(columns);
    const float max = decode(s.element, s.element.max_code());
    for (std::size_t b = 0; b < amax.size(); ++b) {
        c.amax = std::max(c.amax, amax[b]);
        c.least_scale = c.elements == 0 && b == 0 ? scales[b].encode : std::min(c.least_scale, scales[b].encode);
        c.largest_scale = std::max(c.largest_scale, scales[b].encode);
    }
    c.elements += static_cast<std::int64_t>(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
        const bool nonzero = in[i] != 0 && std::isfinite(in[i]);
        c.nonzero += nonzero;
        c.underflow += nonzero && out[i] == 0;
        if (!nonzero || std::fabs(out[i]) != max) continue;
        const auto at = static_cast<std::int64_t>(i);
        const BlockScale& scale =
            scales[static_cast<std::size_t>(at / columns / height * across + at % columns / width)];
        const float scaled = scale.divides ? in[i] / scale.decode : in[i] * scale.encode;
        Flags flags;
        encode(s.element, scaled, {}, 0, flags);
        c.saturated += flags.test(Flags::overflow);
    }
}

std::vector<BlockScale> scales_of(Cpu& cpu, const Quantize& op, std::span<const float> amax) {
    std::vector<BlockScale> scales;
    if (op.delayed) {
        float& scale = cpu[op.delayed][0];
        const auto is_zero = [](float x) { return x == 0; };
        if (op.rule.ms_amp && scale == 1 && std::ranges::all_of(cpu[op.history], is_zero))
            scale = next_scale(op.rule, amax[0], scale);
        scales.push_back({.encode = scale, .decode = 1 / scale});
        if (float& newest = cpu[op.history][0]; cpu.context.training && amax[0] > newest) newest = amax[0];
        return scales;
    }
    float tensor_scale = 1;
    if (op.tensor_scale) {
        tensor_scale = detail::nvfp4_tensor_scale(*std::ranges::max_element(amax));
        cpu[op.tensor_scale][0] = 1 / tensor_scale;
    }
    for (const float a : amax) scales.push_back(block_scale(op.scaling.rule, op.scaling.element, a, tensor_scale));
    return scales;
}

} // namespace

float next_scale(const DelayedRule& rule, float amax, float old) {
    if (amax == 0 || std::isnan(amax)) return old;
    if (rule.ms_amp) return std::isinf(amax) ? 1 / old : std::ldexp(1.0F, std::ilogb(rule.max / amax) - rule.margin);
    if (std::isinf(amax)) return old;
    const float wanted = std::ldexp(rule.max, -rule.margin) / amax;
    return std::isinf(wanted) ? detail::largest_float : wanted;
}

ScalingCounts& ScalingCounts::operator+=(const ScalingCounts& other) {
    least_scale = elements == 0 ? other.least_scale : std::min(least_scale, other.least_scale);
    largest_scale = std::max(largest_scale, other.largest_scale);
    amax = std::max(amax, other.amax);
    elements += other.elements;
    nonzero += other.nonzero;
    underflow += other.underflow;
    saturated += other.saturated;
    return *this;
}

void run(Cpu& cpu, const Quantize& op) {
    const std::span<const float> in = cpu[op.in];
    const std::span<float> out = cpu[op.out];
    const std::int64_t columns = cpu.info(op.in).shape.back(), rows = static_cast<std::int64_t>(in.size()) / columns;
    const std::vector<float> amax = block_amax(op.scaling, in, rows, columns);
    const std::vector<BlockScale> scales = scales_of(cpu, op, amax);
    const StepContext& c = cpu.context;
    const auto part = static_cast<std::uint32_t>(c.replica * c.micro_batches + c.micro_batch);
    quantize_blocks(op.scaling, in, rows, columns, scales, out,
                    {.policy = {.rounding = op.rounding},
                     .key = {.seed = c.seed, .stream = op.stream, .step = c.step},
                     .first_index = static_cast<std::uint64_t>(part) << 40});
    const std::span<float> decode_scales = cpu[op.scale];
    for (std::size_t i = 0; i < scales.size(); ++i) decode_scales[i] = scales[i].decode;
    if (!cpu.counts_scalings && !cpu.counts_roundings) return;
    ScalingCounts counts;
    count(op, in, out, scales, amax, columns, counts);
    const auto index = static_cast<std::size_t>(op.out.index);
    if (cpu.counts_scalings) cpu.scalings()[index] += counts;
    if (cpu.counts_roundings)
        cpu.roundings()[index] += {.elements = counts.elements,
                                   .nonzero = counts.nonzero,
                                   .underflow = counts.underflow,
                                   .overflow = counts.saturated};
}

void run(Cpu& cpu, const Hadamard& op) {
    constexpr std::int64_t group = Hadamard::group;
    const std::span<const float> in = cpu[op.in];
    const std::int64_t columns = cpu.info(op.in).shape.back(), rows = static_cast<std::int64_t>(in.size()) / columns;
    std::vector<double> wide(static_cast<std::size_t>(columns));
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t first = row / group * group, j = row - first;
        std::ranges::fill(wide, 0.0);
        const bool whole = first + group <= rows;
        for (std::int64_t i = whole ? 0 : j; i < (whole ? group : j + 1); ++i) {
            const bool negative = (std::popcount(static_cast<std::uint64_t>(i & j)) & 1) != 0;
            const double factor = whole ? 0.25 * Hadamard::signs[static_cast<std::size_t>(i)] * (negative ? -1 : 1) : 1;
            const float* const from = in.data() + (first + i) * columns;
            for (std::int64_t c = 0; c < columns; ++c) wide[static_cast<std::size_t>(c)] += factor * from[c];
        }
        cpu::store(cpu, op.out, row * columns, wide.data(), columns);
    }
}

void run(Cpu& cpu, const Dequantize& op) {
    const std::span<const float> in = cpu[op.in], scales = cpu[op.scale];
    const BlockScaling& s = op.scaling;
    const std::int64_t columns = cpu.info(op.in).shape.back(), rows = static_cast<std::int64_t>(in.size()) / columns;
    const std::int64_t height = s.block_rows(rows), width = s.block_columns(columns), across = s.scale_columns(columns);
    std::vector<double> wide(static_cast<std::size_t>(columns));
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j)
            wide[static_cast<std::size_t>(j)] = static_cast<double>(in[static_cast<std::size_t>(i * columns + j)]) *
                                                scales[static_cast<std::size_t>(i / height * across + j / width)];
        cpu::store(cpu, op.out, i * columns, wide.data(), columns);
    }
}

void run(Cpu& cpu, const UpdateScale& op) {
    const std::span<float> history = cpu[op.history];
    if (history[0] == 0) return;
    const float amax = op.most_recent ? history[0] : *std::ranges::max_element(history);
    cpu[op.scale][0] = next_scale(op.rule, amax, cpu[op.scale][0]);
    std::rotate(history.begin(), history.begin() + 1, history.end());
    history[0] = 0;
}

} // namespace amp
