// Split-K: which products belong to which part of a sum. accumulator.h has the table of its orders.
#pragma once

#include <ampscope/formats/accumulator.h>

#include <algorithm>
#include <cstddef>

namespace amp {

/// A part's products: the i-th of them is product at(i) of the whole sum.
struct PartOfSum {
    std::size_t begin = 0, count = 0;
    std::size_t tile = 1, stride = 1; ///< products of a tile, and from the beginning of one to that of the part's next

    [[nodiscard]] constexpr std::size_t at(std::size_t i) const { return begin + i / tile * stride + i % tile; }
};

/// The products of part `part` of a sum of k products.
constexpr PartOfSum part_of_sum(const Accumulator& acc, std::size_t part, std::size_t k) {
    if (acc.parts == 1) return {.count = k};
    const auto tile = static_cast<std::size_t>(acc.tile), parts = static_cast<std::size_t>(acc.parts),
               tiles = (k + tile - 1) / tile;
    if (acc.split == SplitOrder::runs) {
        const std::size_t own = (tiles + parts - 1) / parts * tile, begin = std::min(part * own, k);
        return {.begin = begin, .count = std::min(own, k - begin)};
    }
    const std::size_t own = (tiles + parts - 1 - part) / parts, // tiles part, part + parts, ...
        missing = own > 0 && part + (own - 1) * parts + 1 == tiles ? tiles * tile - k : 0;
    return {.begin = part * tile, .count = own * tile - missing, .tile = tile, .stride = parts * tile};
}

/// The sum of all parts, added to c in the accumulator's order: sum_of(part) is the sum of one, add(x, y) rounds one
/// addition.
template <class Value, class SumOf, class Add>
constexpr Value sum_of_parts(const Accumulator& acc, Value c, const SumOf& sum_of, const Add& add) {
    const auto parts = static_cast<std::size_t>(acc.parts);
    if (acc.split != SplitOrder::cyclic_pairs) {
        for (std::size_t i = 0; i < parts; ++i) c = add(c, sum_of(i));
        return c;
    }
    const std::size_t half = (parts + 1) / 2;
    c = add(c, sum_of(parts - 1));
    for (std::size_t i = 0; i < half; ++i)
        c = add(c, i + half < parts - 1 ? add(sum_of(i), sum_of(i + half)) : sum_of(i));
    return c;
}

} // namespace amp
