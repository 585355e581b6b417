// Scales of blocks by table, for rules that have few.
#pragma once

#include <ampscope/formats/block.h>

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

namespace amp {

/// A rule with few scales, which grow with amax (MX: powers of two; NVFP4: E4M3's numbers), as a table: block_scale()
/// takes longer than all else that is done to a block.
class ScaleTable {
  public:
    template <class Rule>
    explicit ScaleTable(const Rule& rule) {
        const BlockScale least = rule(0);
        steps_.push_back({0, least});
        add_steps(rule, 0, least, infinity - 1, rule(largest_float));
        for (std::uint32_t i = 0, at = 0; i < starts_.size(); ++i) {
            while (at + 1 < steps_.size() && steps_[at + 1].from <= i << shift) ++at;
            starts_[i] = static_cast<std::uint16_t>(at);
        }
        steps_.push_back({infinity, {}}); // what find() stops at
    }
    /// The scale of an amax, or none for what is not finite.
    [[nodiscard]] const BlockScale* find(float amax) const {
        const auto bits = std::bit_cast<std::uint32_t>(amax);
        if (bits >= infinity) return nullptr;
        const Step* step = &steps_[starts_[bits >> shift]];
        step += bits >= step[1].from ? 1 : 0; // often, and as a branch hard to predict
        while (bits >= step[1].from) ++step;  // rarely, as scales are hardly closer than eighths of a binade
        return &step->scale;
    }

  private:
    static constexpr std::uint32_t infinity = 0x7f800000, shift = 20; ///< leaves the exponent of amax and 3 bits
    struct Step {
        std::uint32_t from; ///< bits of the first amax with this scale
        BlockScale scale;
    };

    /// Adds the steps above the amax of bits `low` and up to that of bits `high`, whose scales are given.
    template <class Rule>
    void add_steps(const Rule& rule, std::uint32_t low, const BlockScale& below, std::uint32_t high,
                   const BlockScale& above) {
        if (below.decode == above.decode) return;
        if (high - low == 1) return steps_.push_back({high, above});
        const std::uint32_t middle = low + (high - low) / 2;
        const BlockScale between = rule(std::bit_cast<float>(middle));
        add_steps(rule, low, below, middle, between);
        add_steps(rule, middle, between, high, above);
    }

    std::vector<Step> steps_;
    std::array<std::uint16_t, (infinity >> shift)> starts_{}; ///< first step to try, by amax >> shift
};

/// The table of a rule that has few scales, MX or NVFP4, if it is worth making for that many blocks; null otherwise.
/// `tensor_scale` is NVFP4's. Those of MX are kept.
std::shared_ptr<const ScaleTable> scale_table(ScaleRule rule, const FormatSpec& element, float tensor_scale,
                                              std::int64_t blocks);

} // namespace amp
