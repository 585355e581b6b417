#include <ampscope/sim/io/detail/tensor_box.h>

#include <algorithm>
#include <set>

namespace amp {

namespace {

constexpr std::uint64_t most_compared = 10'000'000; // pairs of boxes; regular shards take fewer by far

bool overlap(const TensorBox& a, const TensorBox& b) {
    for (std::size_t i = 0; i < a.offsets.size(); ++i)
        if (a.offsets[i] + a.sizes[i] <= b.offsets[i] || b.offsets[i] + b.sizes[i] <= a.offsets[i]) return false;
    return true;
}

std::string text_of(const TensorBox& box) {
    return "the shard at " + amp::text_of(box.offsets) + " of shape " + amp::text_of(box.sizes);
}

/// The dimension in which the boxes begin at most places: sorted by it, few of them overlap in it.
std::size_t best_dimension(const std::vector<const TensorBox*>& boxes) {
    std::size_t best = 0, most = 0;
    for (std::size_t i = 0; i < boxes.front()->offsets.size(); ++i) {
        std::set<std::uint64_t> begins;
        for (const TensorBox* box : boxes) begins.insert(box->offsets[i]);
        if (begins.size() > most) best = i;
        most = std::max(most, begins.size());
    }
    return best;
}

std::optional<std::string> overlap_of(std::vector<const TensorBox*> boxes) {
    if (boxes.size() < 2) return std::nullopt;
    if (boxes.front()->offsets.empty()) return text_of(*boxes[1]) + " is there twice";
    const std::size_t d = best_dimension(boxes);
    std::ranges::stable_sort(boxes, {}, [&](const TensorBox* box) { return box->offsets[d]; });
    std::uint64_t compared = 0;
    for (std::size_t i = 0; i < boxes.size(); ++i)
        for (std::size_t k = i + 1; k < boxes.size(); ++k) {
            if (boxes[k]->offsets[d] >= boxes[i]->offsets[d] + boxes[i]->sizes[d]) break;
            if (++compared > most_compared) return "its shards are too many and too irregular to be compared";
            if (!overlap(*boxes[i], *boxes[k])) continue;
            return *boxes[i] == *boxes[k] ? text_of(*boxes[i]) + " is there twice"
                                          : text_of(*boxes[i]) + " overlaps " + text_of(*boxes[k]);
        }
    return std::nullopt;
}

} // namespace

std::uint64_t TensorBox::count() const {
    std::uint64_t count = 1;
    for (const std::uint64_t size : sizes) count *= size;
    return count;
}

PlacedBox::PlacedBox(const Extents& shape, const TensorBox& box) {
    std::uint64_t stride = 1;
    bool whole = true; // in all dimensions after this one
    for (std::size_t i = shape.size(); i-- > 0;) {
        dimensions_.insert(dimensions_.begin(), {box.offsets[i], box.sizes[i], stride, count_});
        stride *= shape[i];
        count_ *= box.sizes[i];
        if (whole) run_ = count_;
        whole = whole && box.sizes[i] == shape[i];
    }
}

std::uint64_t PlacedBox::rank(std::uint64_t position) const {
    if (dimensions_.empty()) return std::min<std::uint64_t>(position, 1);
    std::uint64_t before = 0;
    for (const Dimension& d : dimensions_) {
        const std::uint64_t index = position / d.stride; // of the first dimension its extent: the end of the tensor
        position %= d.stride;
        if (index < d.offset) return before;
        if (index >= d.offset + d.size) return before + d.size * d.own_stride;
        before += (index - d.offset) * d.own_stride;
    }
    return before;
}

std::uint64_t PlacedBox::position(std::uint64_t rank) const {
    std::uint64_t position = 0;
    for (const Dimension& d : dimensions_) {
        position += (d.offset + rank / d.own_stride) * d.stride;
        rank %= d.own_stride;
    }
    return position;
}

std::optional<std::string> fault_of_boxes(const Extents& shape, std::span<const TensorBox> boxes) {
    std::uint64_t whole = 1, held = 0;
    for (const std::uint64_t extent : shape) whole *= extent;
    std::vector<const TensorBox*> filled;
    for (const TensorBox& box : boxes) {
        if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size())
            return text_of(box) + " has not the dimensions of the tensor's shape " + text_of(shape);
        for (std::size_t i = 0; i < shape.size(); ++i)
            if (box.offsets[i] > shape[i] || box.sizes[i] > shape[i] - box.offsets[i])
                return text_of(box) + " reaches beyond the tensor's shape " + text_of(shape);
        if (box.count() == 0) continue; // a rank that got no rows
        filled.push_back(&box);
        held += box.count(); // if this wraps around, boxes overlap
    }
    if (auto fault = overlap_of(filled)) return fault;
    if (held == whole) return std::nullopt;
    return "its shards hold " + std::to_string(held) + " of its " + std::to_string(whole) +
           " elements; is a part of the checkpoint missing?";
}

std::string text_of(const Extents& extents) {
    std::string text = "[";
    for (const std::uint64_t extent : extents) text += (text.size() == 1 ? "" : ", ") + std::to_string(extent);
    return text + "]";
}

} // namespace amp
