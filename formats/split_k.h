// Split-K: which products belong to which part of a sum. accumulator.h has the table of its orders.
#pragma once

#include <ampscope/formats/accumulator.h>

#include <algorithm>
#include <cstddef>
#include <utility>

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
/// addition. One part alone is not added: its sum begins at c by itself. Of cyclic pairs the last part comes first,
/// then each part of the first half with its partner in the second, if it has one. sum_of() is called in one place,
/// since devices inline it.
template <class Value, class SumOf, class Add>
constexpr Value sum_of_parts(const Accumulator& acc, Value c, const SumOf& sum_of, const Add& add) {
    const auto parts = static_cast<std::size_t>(acc.parts), half = (parts + 1) / 2;
    const bool pairs = acc.split == SplitOrder::cyclic_pairs;
    const std::size_t partners = pairs ? parts - 1 - half : 0;
    Value first{};
    for (std::size_t n = 0; n < parts; ++n) {
        const bool in_pair = n > 0 && n <= 2 * partners, begins_pair = in_pair && n % 2 == 1;
        const std::size_t part = !pairs    ? n
                                 : n == 0  ? parts - 1
                                 : in_pair ? (n - 1) / 2 + (begins_pair ? 0 : half)
                                           : n - 1 - partners;
        Value sum = sum_of(part);
        if (begins_pair) {
            first = std::move(sum);
            continue;
        }
        if (in_pair) sum = add(std::move(first), sum);
        c = parts == 1 ? std::move(sum) : add(std::move(c), sum);
    }
    return c;
}

} // namespace amp
