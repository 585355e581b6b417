#include <ampscope/sim/analysis/detail/scaled_sums.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace amp::detail {

namespace {

constexpr std::size_t lanes_of_sums = 8;
constexpr std::uint32_t infinite_bits = 0x7f800000;

// Compilers keep arrays of lanes in memory; vectors they keep in registers.
using Doubles [[gnu::vector_size(4 * sizeof(double))]] = double;
using Floats [[gnu::vector_size(lanes_of_sums * sizeof(float))]] = float;
using Words [[gnu::vector_size(lanes_of_sums * sizeof(std::int32_t))]] = std::int32_t;
using Bits [[gnu::vector_size(lanes_of_sums * sizeof(std::uint32_t))]] = std::uint32_t;

/// Widens four numbers. (g++ 12 makes one instruction of this, and of a conversion of vectors several.)
[[gnu::always_inline]] inline void widen(const float* x, Doubles& wide) {
    wide = Doubles{static_cast<double>(x[0]), static_cast<double>(x[1]), static_cast<double>(x[2]),
                   static_cast<double>(x[3])};
}

/// The scaled numbers farthest below and above zero that are not clipped once they are rounded to nearest-even.
struct Ends {
    float below, above;
};

/// `limit`: that of the element. With a zero point numbers are rounded to integers; a tie goes to the even one.
[[gnu::always_inline]] inline Ends ends_of(const BlockScale& scale, float limit) {
    const auto last = [](float integer) {
        const float half = integer + 0.5F;
        return static_cast<int>(integer) % 2 == 0 ? half : std::bit_cast<float>(std::bit_cast<std::uint32_t>(half) - 1);
    };
    return scale.has_zero_point() ? Ends{-last(-scale.low), last(scale.high)} : Ends{-limit, limit};
}

/// The sums of a run of numbers, in lanes.
struct RunLanes {
    Doubles signal[2]{}, noise[2]{};
    Bits least{}; ///< bits of the least magnitude, less 1, so that zeros have the largest
    // As comparisons give it, -1 for each: zeros, numbers that become zero, numbers beyond the ends.
    Words zeros{}, vanished{}, saturated{};

    [[gnu::always_inline]] RunLanes() { least -= 1; }

    /// Adds as many numbers as there are lanes; only if `clips`, some may be beyond the ends.
    template <bool clips>
    [[gnu::always_inline]] void add(const float* x, const float* q, const CastBlock& block, const Ends& ends) {
#pragma GCC unroll 2 // else the sums would be kept in memory
        for (std::size_t half = 0; half < 2; ++half) {
            Doubles wide, got;
            widen(x + half * 4, wide);
            widen(q + half * 4, got);
            const Doubles error = wide - got * block.factor;
            signal[half] += wide * wide;
            noise[half] += error * error;
        }
        Floats number, stored;
        std::memcpy(&number, x, sizeof number);
        std::memcpy(&stored, q, sizeof stored);
        const Bits less = (reinterpret_cast<Bits>(number) & magnitude) - 1;
        least = less < least ? less : least;
        const Words zero = number == 0;
        zeros += zero;
        vanished += (stored == 0) & ~zero;
        if constexpr (clips) {
            const Floats scaled = block.scale.divisor != 0 ? number / block.scale.divisor : number * block.scale.encode;
            saturated += (scaled < ends.below) | (scaled > ends.above);
        }
    }

    static constexpr std::uint32_t magnitude = 0x7fffffff;
};

/// The sum over the lanes: pairwise, lane l and l + 4 first.
[[gnu::always_inline]] inline double total_of(const Doubles (&of)[2]) {
    const Doubles sum = of[0] + of[1];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/// What is left of all lanes, folded in halves: a detour by memory would take longer.
template <class Fold>
[[gnu::always_inline]] inline std::uint32_t folded(const Bits& of, const Fold& fold) {
    Bits a = of;
    fold(a, __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3));
    fold(a, __builtin_shufflevector(a, a, 2, 3, 0, 1, 6, 7, 4, 5));
    fold(a, __builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6));
    return a[0];
}
[[gnu::always_inline]] inline std::uint32_t total_of(const Bits& of) {
    return folded(
        of, [](Bits & a, const Bits& b) __attribute__((always_inline)) { a += b; });
}
[[gnu::always_inline]] inline std::uint32_t least_of(const Bits& of) {
    return folded(
        of, [](Bits & a, const Bits& b) __attribute__((always_inline)) { a = a < b ? a : b; });
}

struct SumRuns {
    AMPSCOPE_KERNEL void run(const float* x, const float* q, std::size_t n, const CastBlock* blocks, float limit,
                             ScaledBlock* out, std::size_t count) {
        for (std::size_t k = 0; k < count; ++k, x += n, q += n) {
            const CastBlock& block = blocks[k];
            const BlockScale& scale = block.scale;
            // Where the block's largest magnitude is not beyond the limit, none is.
            const Ends ends = ends_of(scale, limit);
            if (scale.has_zero_point() || scale.scaled(block.amax) > limit) sum<true>(x, q, n, block, ends, out[k]);
            else sum<false>(x, q, n, block, ends, out[k]);
        }
    }

    template <bool clips>
    AMPSCOPE_KERNEL void sum(const float* x, const float* q, std::size_t n, const CastBlock& block, const Ends& ends,
                             ScaledBlock& out) {
        const std::size_t whole = n / lanes_of_sums * lanes_of_sums;
        RunLanes run;
        for (std::size_t i = 0; i < whole; i += lanes_of_sums) run.add<clips>(x + i, q + i, block, ends);
        if (whole < n) { // the rest, filled up with zeros
            float rest[lanes_of_sums]{}, stored[lanes_of_sums]{};
            std::memcpy(rest, x + whole, (n - whole) * sizeof(float));
            std::memcpy(stored, q + whole, (n - whole) * sizeof(float));
            run.add<clips>(rest, stored, block, ends);
        }
        const std::size_t filled = whole < n ? lanes_of_sums - (n - whole) : 0;
        const std::uint32_t counts = total_of(-reinterpret_cast<Bits>(run.zeros + (run.vanished << 16)));
        const bool zero = block.factor == 0; // then all numbers become zero, and none the largest
        const std::uint64_t nonzero = n + filled - (counts & 0xffff);
        // Assigned one by one: as a whole, a block is first filled with zeros, by an instruction that starts slowly.
        out.row = out.column = 0;
        out.scale = block.scale.decode;
        out.amax = block.amax;
        out.least = nonzero == 0 ? 0 : std::bit_cast<float>(least_of(run.least) + 1);
        out.elements = n;
        out.nonzero = nonzero;
        out.nonfinite = out.lost = 0;
        out.underflow = zero ? nonzero : counts >> 16;
        out.saturated = !clips || zero ? 0 : total_of(-reinterpret_cast<Bits>(run.saturated));
        out.signal = total_of(run.signal);
        out.noise = total_of(run.noise);
    }
};

} // namespace

float largest_unsaturated(const FormatSpec& element) {
    std::uint32_t low = std::bit_cast<std::uint32_t>(max_of(element)), high = infinite_bits;
    while (high - low > 1) { // the first that saturates is above low and at most high
        const std::uint32_t middle = low + (high - low) / 2;
        Flags flags;
        encode(element, std::bit_cast<float>(middle), {}, 0, flags);
        (flags.test(Flags::overflow) ? high : low) = middle;
    }
    return std::bit_cast<float>(low);
}

ScaledBlock sum_numbers(std::span<const float> x, std::span<const float> q, const CastBlock& block, float limit) {
    ScaledBlock sum{.scale = block.scale.decode, .elements = x.size()};
    const Ends ends = ends_of(block.scale, limit);
    double signal[lanes_of_sums]{}, noise[lanes_of_sums]{};
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (!is_finite(x[i])) {
            ++sum.nonfinite;
            continue;
        }
        const float magnitude = std::fabs(x[i]);
        if (magnitude != 0) {
            ++sum.nonzero;
            sum.amax = std::max(sum.amax, magnitude);
            sum.least = sum.least == 0 ? magnitude : std::min(sum.least, magnitude);
        }
        const double got = static_cast<double>(q[i]) * block.factor, wide = x[i], error = wide - got;
        if (!std::isfinite(got)) {
            ++sum.lost;
            continue;
        }
        const float scaled = block.scale.scaled(x[i]);
        sum.underflow += magnitude != 0 && got == 0 ? 1 : 0;
        sum.saturated += block.factor != 0 && (scaled < ends.below || scaled > ends.above) ? 1 : 0;
        signal[i % lanes_of_sums] += wide * wide;
        noise[i % lanes_of_sums] += error * error;
    }
    const auto total = [](const double(&of)[lanes_of_sums]) {
        return ((of[0] + of[4]) + (of[2] + of[6])) + ((of[1] + of[5]) + (of[3] + of[7]));
    };
    sum.signal = total(signal);
    sum.noise = total(noise);
    return sum;
}

void sum_runs(std::span<const float> x, std::span<const float> q, std::size_t n, std::span<const CastBlock> blocks,
              float limit, std::span<ScaledBlock> out, InstructionSet set) {
    dispatch<SumRuns>(set, x.data(), q.data(), n, blocks.data(), limit, out.data(), out.size());
    for (std::size_t k = 0; k < out.size(); ++k)
        if (!is_finite(blocks[k].amax) || !is_finite(blocks[k].scale.encode) || !std::isfinite(blocks[k].factor) ||
            !std::isfinite(out[k].signal) || !std::isfinite(out[k].noise))
            out[k] = sum_numbers(x.subspan(k * n, n), q.subspan(k * n, n), blocks[k], limit);
}

} // namespace amp::detail
