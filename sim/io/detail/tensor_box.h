// Boxes in the index space of a tensor: which of its elements a shard holds, and where they stand in its C order.
//
// All that is read of shards follows from one fact: the elements of a box, in its own C order, ascend in the tensor's C
// order, too. So the part of a box that lies in a range of the tensor is a range of the box.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace amp {

using Extents = std::vector<std::uint64_t>;

/// Where a shard lies in its tensor: its first index and its size in each dimension.
struct TensorBox {
    Extents offsets, sizes;

    [[nodiscard]] std::uint64_t count() const; ///< number of elements
    [[nodiscard]] bool operator==(const TensorBox&) const = default;
};

/// A box with what is needed to place its elements in a tensor of that shape, in which it lies.
class PlacedBox {
  public:
    PlacedBox(const Extents& shape, const TensorBox& box);

    [[nodiscard]] std::uint64_t count() const { return count_; }
    /// How many elements that stand next to each other in the box do so in the tensor, too.
    [[nodiscard]] std::uint64_t run() const { return run_; }
    /// The number of the box's elements that the tensor has before its element `position`.
    [[nodiscard]] std::uint64_t rank(std::uint64_t position) const;
    /// The position in the tensor of the box's element `rank`.
    [[nodiscard]] std::uint64_t position(std::uint64_t rank) const;

  private:
    struct Dimension {
        std::uint64_t offset, size;
        std::uint64_t stride, own_stride; ///< elements of the tensor and of the box from one index to the next
    };
    std::vector<Dimension> dimensions_;
    std::uint64_t count_ = 1, run_ = 1;
};

/// What is wrong with boxes that should be the whole of a tensor, each element in one of them: they reach beyond it,
/// overlap, or leave elements out. std::nullopt if nothing is.
std::optional<std::string> fault_of_boxes(const Extents& shape, std::span<const TensorBox> boxes);

/// "[2, 3]"
std::string text_of(const Extents& extents);

} // namespace amp
