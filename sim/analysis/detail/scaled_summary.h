// The scales of a tensor's blocks, and what is known of blocks that are complete.
#pragma once

#include <ampscope/sim/analysis/detail/scaled_sums.h>
#include <ampscope/sim/base/scale_table.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>

namespace amp::detail {

/// floor(log2 x) for finite x > 0.
inline int exponent_of(float x) {
    const std::uint32_t field = std::bit_cast<std::uint32_t>(x) >> 23;
    return field == 0 ? std::ilogb(x) : static_cast<int>(field) - 127; // a subnormal takes longer
}

/// The scales of a tensor's blocks, and what is said of them.
class Scales {
  public:
    /// `blocks`: how many scales will be asked for.
    Scales(const ScaledCast& cast, float tensor_scale, std::int64_t blocks)
        : cast_(cast), tensor_scale_(tensor_scale), e4m3_(scales_have_codes(cast.scaling.scale_format())) {
        if (cast.given) return;
        lowest_ = rule(0x1p-149F).decode;
        highest_ = rule(largest_float).decode;
        if (cast.scaling.rule == ScaleRule::quartet && highest_ > 1) lowest_ = 0x1p-9F; // instead of 0 it has 1
        if (cast.scaling.rule == ScaleRule::amax)                                       // so has this where d * u is 0
            for (int e = -149; e < 0; ++e)
                for (const float m : {1.0F, 1.25F, 1.5F, 1.75F})
                    lowest_ = std::min(lowest_, rule(std::ldexp(m, e)).decode);
        table_ = scale_table(cast.scaling.rule, cast.scaling.element, tensor_scale, blocks);
    }

    [[nodiscard]] BlockScale of(float amax) const {
        if (cast_.given) return *cast_.given;
        const BlockScale* const known = table_ != nullptr ? table_->find(amax) : nullptr;
        return known != nullptr ? *known : rule(amax);
    }
    [[nodiscard]] bool is_saturated(float decode) const {
        return lowest_ != highest_ && (decode == lowest_ || decode == highest_);
    }
    /// The key of a positive finite scale in ScaledStatistics::scales.
    [[nodiscard]] int key(float decode) const {
        return e4m3_ ? static_cast<int>(encode(format("e4m3"), decode)) : exponent_of(decode);
    }

  private:
    [[nodiscard]] BlockScale rule(float amax) const { return cast_.scaling.scale_of(amax, tensor_scale_); }
    const ScaledCast& cast_;
    float tensor_scale_, lowest_ = 0, highest_ = 0;
    bool e4m3_;
    std::shared_ptr<const ScaleTable> table_;
};

/// Counts by small integers, faster than a map.
template <int lowest, int highest>
struct Tally {
    std::array<std::uint64_t, highest - lowest + 1> counts{};

    void add(int at) { ++counts[static_cast<std::size_t>(at - lowest)]; }
    /// Adds each count to that of key(integer).
    template <class Key>
    void move_into(std::map<int, std::uint64_t>& all, const Key& key) const {
        for (std::size_t i = 0; i < counts.size(); ++i)
            if (counts[i] != 0) all[key(lowest + static_cast<int>(i))] += counts[i];
    }
};

/// The place of a positive finite scale among all, so that scales of one key only share it: its exponent and the first
/// 3 bits of its significand, which are all that an E4M3 number has. Of doubles, which hold every float as a normal
/// number.
inline int place_of(float scale) {
    return static_cast<int>(std::bit_cast<std::uint64_t>(static_cast<double>(scale)) >> 49);
}
/// The least scale of a place.
inline float scale_at(int place) {
    return static_cast<float>(std::bit_cast<double>(static_cast<std::uint64_t>(place) << 49));
}

/// floor(log2(a / b)) for finite a >= b > 0.
inline int binades_between(float a, float b) {
    // Of doubles, which hold every float as a normal number.
    const auto x = std::bit_cast<std::uint64_t>(static_cast<double>(a)),
               y = std::bit_cast<std::uint64_t>(static_cast<double>(b));
    constexpr std::uint64_t fraction = (std::uint64_t{1} << 52) - 1;
    return static_cast<int>(x >> 52) - static_cast<int>(y >> 52) - ((x & fraction) < (y & fraction) ? 1 : 0);
}

/// What is known of blocks that are complete. The counts do not depend on their order.
struct Summary {
    ScaledStatistics statistics{};
    Tally<(1023 - 149) * 8, (1023 + 128) * 8 - 1> scales{}; ///< by place_of()
    Tally<0, 277> ranges{};
    std::vector<ScaledBlock> worst{};
    double best_of_worst = 0; ///< a little less than the least relative noise in a full `worst`

    void add(const ScaledBlock& block, const Scales& of, std::int64_t whole, std::size_t keep) {
        ScaledStatistics& s = statistics;
        s.elements += block.elements;
        s.nonzero += block.nonzero;
        s.nonfinite += block.nonfinite;
        s.underflow += block.underflow;
        s.saturated += block.saturated;
        s.lost += block.lost;
        ++s.blocks;
        s.partial_blocks += static_cast<std::int64_t>(block.elements) < whole ? 1 : 0;
        s.nonfinite_blocks += block.nonfinite > 0 ? 1 : 0;
        if (block.least > 0) ranges.add(binades_between(block.amax, block.least));
        if (block.nonzero + block.nonfinite == 0) ++s.zero_blocks;
        else add_scale(block.scale, of);
        if (keep == 0) return;
        if (worst.size() == keep) {
            // Most blocks are plainly better than the worst ones, by more than a product's rounding.
            if (block.lost == 0 && block.noise < best_of_worst * block.signal) return;
            if (!is_worse(block, worst.back())) return;
            worst.pop_back();
        }
        worst.insert(std::ranges::upper_bound(worst, block, is_worse), block);
        constexpr double margin = 1 - 0x1p-40;
        if (worst.size() == keep) best_of_worst = worst.back().relative_noise() * margin;
    }

    void add_scale(float scale, const Scales& of) {
        ScaledStatistics& s = statistics;
        s.saturated_scales += of.is_saturated(scale) ? 1 : 0;
        if (scale == 0) ++s.zero_scales;
        else if (!is_finite(scale)) ++s.nonfinite_scales;
        else {
            s.least_scale = s.least_scale == 0 ? scale : std::min(s.least_scale, scale);
            s.largest_scale = std::max(s.largest_scale, scale);
            scales.add(place_of(scale));
        }
    }

    void move_into(ScaledResult& result, const Scales& of, std::size_t keep) {
        scales.move_into(statistics.scales, [&](int place) { return of.key(scale_at(place)); });
        ranges.move_into(statistics.ranges, [](int range) { return range; });
        result.statistics.merge(statistics);
        result.worst.insert(result.worst.end(), worst.begin(), worst.end());
        std::ranges::sort(result.worst, is_worse);
        if (result.worst.size() > keep) result.worst.resize(keep);
    }
};

} // namespace amp::detail
