#include <ampscope/sim/backend/counts.h>

#include <ampscope/formats/block.h>
#include <ampscope/formats/instruction_set.h>
#include <ampscope/sim/base/parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <type_traits>

namespace amp {

namespace {

/// Adds to the counts: as overflow what is then not below `end` in magnitude.
struct CountKernel {
    template <class T>
    AMPSCOPE_KERNEL void run(const T* before, const float* after, std::int64_t n, float end, RoundingCounts* counts) {
        using Count = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>; // as wide as what is compared
        const T limit = end;
        Count nonzero = 0, underflow = 0, overflow = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            const T x = before[i], y = after[i];
            const Count number = static_cast<Count>(x != 0) & static_cast<Count>(x - x == 0); // finite
            nonzero += number;
            underflow += number & static_cast<Count>(y == 0);
            overflow += number & static_cast<Count>(!((y < 0 ? -y : y) < limit)); // NaNs, too
        }
        *counts += RoundingCounts{.elements = n, .nonzero = nonzero, .underflow = underflow, .overflow = overflow};
    }
};

template <class T>
RoundingCounts count(const T* before, const float* after, std::int64_t n, float end) {
    constexpr std::int64_t most = 1 << 30; // that 32 bits can count
    RoundingCounts counts;
    for (std::int64_t at = 0; at < n; at += most)
        dispatch<CountKernel>(best_instruction_set(), before + at, after + at, std::min(most, n - at), end, &counts);
    return counts;
}

/// A finished cast with scales, whose saturated elements are counted as overflow.
class ScaledCounter {
  public:
    ScaledCounter(const BlockScaling& scaling, const BlockGrid& grid, std::span<const float> in,
                  std::span<const float> out, std::span<const BlockScale> scales)
        : element_(scaling.element), grid_(grid), in_(in), out_(out), scales_(scales),
          max_(decode(element_, element_.max_code())), plain_(static_cast<std::size_t>(grid.down), 1) {
        for (std::size_t b = 0; b < scales.size(); ++b)
            if (vanishes(scales[b]) || scales[b].has_zero_point())
                plain_[b / static_cast<std::size_t>(grid.across)] = 0;
    }

    [[nodiscard]] RoundingCounts count_row(std::int64_t row) const {
        const auto n = static_cast<std::size_t>(grid_.columns), begin = static_cast<std::size_t>(row) * n;
        RoundingCounts c;
        if (plain_[static_cast<std::size_t>(row / grid_.height)] == 0) {
            for (std::size_t i = begin; i < begin + n; ++i) c += count_one(i);
            return c;
        }
        c = count(in_.data() + begin, out_.data() + begin, grid_.columns, max_);
        if (c.overflow == 0) return c;
        c.overflow = 0; // those at the end need not have been beyond
        for (std::size_t i = begin; i < begin + n; ++i)
            if (std::fabs(out_[i]) == max_) c.overflow += count_one(i).overflow;
        return c;
    }

  private:
    /// E4M3 may round a scale to 0: then all is read as 0.
    static bool vanishes(const BlockScale& scale) { return scale.decode == 0; }

    [[nodiscard]] RoundingCounts count_one(std::size_t i) const {
        if (in_[i] == 0 || !std::isfinite(in_[i])) return {.elements = 1};
        const BlockScale& scale = scales_[static_cast<std::size_t>(grid_.of(static_cast<std::int64_t>(i)))];
        if (vanishes(scale)) return {.elements = 1, .nonzero = 1, .underflow = 1};
        const bool at_end =
            scale.has_zero_point() ? out_[i] == scale.low || out_[i] == scale.high : std::fabs(out_[i]) == max_;
        return {.elements = 1,
                .nonzero = 1,
                .underflow = out_[i] == 0 ? 1 : 0,
                .overflow = at_end && is_clipped(element_, scale.scaled(in_[i]), scale) ? 1 : 0};
    }

    const FormatSpec& element_;
    const BlockGrid& grid_;
    std::span<const float> in_, out_;
    std::span<const BlockScale> scales_;
    float max_;
    std::vector<char> plain_; ///< lines of blocks whose elements are counted without regard to their scales
};

} // namespace

RoundingCounts count_rounding(const float* before, const float* after, std::int64_t n) {
    return count(before, after, n, std::numeric_limits<float>::infinity());
}
RoundingCounts count_rounding(const double* before, const float* after, std::int64_t n) {
    return count(before, after, n, std::numeric_limits<float>::infinity());
}

void count_scaled(Backend& backend, const op::Quantize& op, std::span<const float> in, std::span<const float> out,
                  std::span<const BlockScale> scales, std::span<const float> amax, int threads) {
    const std::int64_t columns = backend.info(op.in).shape.back(),
                       rows = static_cast<std::int64_t>(in.size()) / columns;
    const BlockGrid grid = op.scaling.grid(rows, columns);
    ScalingCounts c;
    for (std::size_t b = 0; b < amax.size(); ++b) {
        c.amax = std::max(c.amax, amax[b]);
        c.least_scale = b == 0 ? scales[b].encode : std::min(c.least_scale, scales[b].encode);
        c.largest_scale = std::max(c.largest_scale, scales[b].encode);
    }
    const ScaledCounter counter(op.scaling, grid, in, out, scales);
    constexpr std::int64_t share = 1 << 15; // elements that are worth another thread
    std::mutex mutex;
    RoundingCounts all;
    for_each_chunk(static_cast<std::uint64_t>(rows),
                   static_cast<std::uint64_t>(std::max<std::int64_t>(share / columns, 1)), threads,
                   [&](std::uint64_t begin, std::uint64_t end) {
                       RoundingCounts part;
                       for (std::uint64_t row = begin; row < end; ++row)
                           part += counter.count_row(static_cast<std::int64_t>(row));
                       const std::lock_guard lock(mutex);
                       all += part;
                   });
    c.elements = all.elements;
    c.nonzero = all.nonzero;
    c.underflow = all.underflow;
    c.saturated = all.overflow;
    const auto index = static_cast<std::size_t>(op.out.index);
    if (backend.counts_scalings) backend.scalings()[index] += c;
    if (backend.counts_roundings) backend.roundings()[index] += all;
}

} // namespace amp
