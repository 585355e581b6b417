#include <ampscope/sim/backend/cpu/detail/wide.h>

#include <ampscope/formats/batch.h>
#include <ampscope/sim/backend/counts.h>

#include <atomic>
#include <bit>

namespace amp::cpu {

namespace {

/// Rounds to the nearest floats; NaNs become 0x7fc00000.
struct NearestKernel {
    AMPSCOPE_KERNEL void run(const double* in, float* out, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i)
            out[i] = in[i] != in[i] ? std::bit_cast<float>(0x7fc00000) : static_cast<float>(in[i]);
    }
};

/// Rounds to floats, to odd: rounding these to formats of at most 22 bits gives the same as rounding the doubles (Boldo
/// and Melquiond 2008).
struct OddKernel {
    AMPSCOPE_KERNEL void run(const double* in, float* out, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) {
            const auto nearest = static_cast<float>(in[i]);
            const double back = nearest, x = in[i];
            auto bits = std::bit_cast<std::uint32_t>(nearest);
            const double magnitude = x < 0 ? -x : x, rounded = back < 0 ? -back : back;
            bits -= rounded > magnitude ? 1 : 0;
            bits |= back != x ? 1 : 0;
            out[i] = std::bit_cast<float>(bits);
        }
    }
};

void add(RoundingCounts& to, const RoundingCounts& c) {
    const auto add_to = [](std::int64_t& x, std::int64_t y) {
        std::atomic_ref(x).fetch_add(y, std::memory_order_relaxed);
    };
    add_to(to.elements, c.elements);
    add_to(to.nonzero, c.nonzero);
    add_to(to.underflow, c.underflow);
    add_to(to.overflow, c.overflow);
}

} // namespace

void round_wide(const FormatSpec& f, const double* wide, float* out, std::int64_t n) {
    const InstructionSet set = best_instruction_set();
    const std::span to(out, static_cast<std::size_t>(n));
    if (f == fp32_format()) {
        dispatch<NearestKernel>(set, wide, out, n);
    } else if (f.precision() <= 22) {
        dispatch<OddKernel>(set, wide, out, n);
        quantize(f, to, to);
    } else {
        quantize(f, std::span(wide, static_cast<std::size_t>(n)), to);
    }
}

void store(Cpu& cpu, TensorId out, std::int64_t begin, const double* wide, std::int64_t n) {
    float* const to = cpu[out].data() + begin;
    round_wide(cpu.info(out).format, wide, to, n);
    if (cpu.counts_roundings) add(cpu.roundings()[static_cast<std::size_t>(out.index)], count_rounding(wide, to, n));
}

void round_floats(Cpu& cpu, TensorId out, std::int64_t begin, const float* in, std::int64_t n) {
    const auto length = static_cast<std::size_t>(n);
    const auto to = cpu[out].subspan(static_cast<std::size_t>(begin), length);
    quantize(cpu.info(out).format, std::span(in, length), to);
    if (cpu.counts_roundings)
        add(cpu.roundings()[static_cast<std::size_t>(out.index)], count_rounding(in, to.data(), n));
}

void round_in_place(Cpu& cpu, TensorId out, std::int64_t begin, std::int64_t n) {
    const float* const values = cpu[out].data() + begin;
    if (!cpu.counts_roundings) return round_floats(cpu, out, begin, values, n);
    round_floats(cpu, out, begin, std::vector(values, values + n).data(), n);
}

void round_counted(Cpu& cpu, TensorId of, const FormatSpec& f, float* x, std::int64_t n) {
    const std::span numbers(x, static_cast<std::size_t>(n));
    const std::vector<float> before =
        cpu.counts_roundings && of ? std::vector(numbers.begin(), numbers.end()) : std::vector<float>();
    if (f != fp32_format()) quantize(f, numbers, numbers);
    if (!before.empty()) add(cpu.roundings()[static_cast<std::size_t>(of.index)], count_rounding(before.data(), x, n));
}

} // namespace amp::cpu
