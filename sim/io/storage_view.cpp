#include <ampscope/sim/io/detail/storage_view.h>

#include <ampscope/sim/io/byte_file.h>

#include <algorithm>

namespace amp {

namespace {

constexpr std::uint64_t max_repeated = std::uint64_t{1} << 30; // elements of a view that overlaps itself, read singly

/// Reads a dense range of a storage.
class RangeStream : public ByteStream {
  public:
    RangeStream(const Storage& storage, std::uint64_t begin, std::uint64_t end)
        : storage_(storage), left_((end - begin) * storage.item),
          bytes_(storage.archive.open(storage.member, begin * storage.item)) {}

    std::size_t read(std::span<std::byte> out) override {
        const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), left_));
        const std::size_t n = bytes_->read(out.first(wanted));
        if (storage_.swapped_item > 1) swap_bytes(out.first(n), storage_.swapped_item);
        left_ -= n;
        return n;
    }

  private:
    Storage storage_;
    std::uint64_t left_;
    std::unique_ptr<ByteStream> bytes_;
};

/// Reads any other view: gathers elements in C order from a part of the storage that is kept in memory. If the elements
/// ascend, that part moves along with them, so that every byte is read once at most; else it is all that the view
/// touches.
class GatherStream : public ByteStream {
  public:
    GatherStream(const Storage& storage, const pickle::Tensor& t, const Layout& layout)
        : storage_(storage), tensor_(t), end_(layout.end * storage.item), at_(t.offset * storage.item),
          index_(t.shape.size()), left_(1) {
        if (!layout.ascending) part_ = end_ - at_;
        for (const std::uint64_t extent : t.shape) left_ *= extent;
    }

    std::size_t read(std::span<std::byte> out) override {
        const auto item = static_cast<std::size_t>(storage_.item);
        std::size_t done = 0;
        for (; done + item <= out.size() && left_ > 0; done += item, --left_) {
            if (!bytes_ || at_ >= begin_ + held_.size()) hold();
            std::copy_n(held_.begin() + static_cast<std::ptrdiff_t>(at_ - begin_), item,
                        out.begin() + static_cast<std::ptrdiff_t>(done));
            advance();
        }
        return done;
    }

  private:
    /// Loads the bytes from at_ on. If the view leaves out bytes before them, the storage is opened anew there.
    void hold() {
        if (!bytes_ || at_ != begin_ + held_.size()) {
            bytes_.reset(); // closed first, so that the next one can go on from there
            bytes_ = storage_.archive.open(storage_.member, at_);
        }
        begin_ = at_;
        held_.clear();
        read_growing(*bytes_, std::min(part_, end_ - begin_), held_);
        if (storage_.swapped_item > 1) swap_bytes(held_, storage_.swapped_item);
    }
    void advance() {
        for (std::size_t i = index_.size(); i-- > 0;) {
            at_ += tensor_.stride[i] * storage_.item;
            if (++index_[i] < tensor_.shape[i]) return;
            at_ -= tensor_.stride[i] * tensor_.shape[i] * storage_.item;
            index_[i] = 0;
        }
    }

    Storage storage_;
    pickle::Tensor tensor_;
    std::uint64_t end_, at_; ///< in bytes of the storage: the end of the view, and its next element
    std::uint64_t begin_ = 0, part_ = 1 << 18;
    std::vector<std::byte> held_; ///< the bytes from begin_ on, at most part_ of them
    std::unique_ptr<ByteStream> bytes_;
    std::vector<std::uint64_t> index_;
    std::uint64_t left_;
};

} // namespace

Layout layout_of(const pickle::Tensor& t) {
    Layout layout{.begin = t.offset, .end = t.offset};
    if (std::ranges::find(t.shape, std::uint64_t{0}) != t.shape.end())
        return {.begin = t.offset, .end = t.offset, .dense = true, .c_order = true, .ascending = true};
    __extension__ typedef unsigned __int128 Wide;
    Wide last = t.offset;
    std::vector<std::size_t> order; // dimensions of more than one element, outermost first in memory
    for (std::size_t i = 0; i < t.shape.size(); ++i) {
        last += Wide{t.shape[i] - 1} * t.stride[i];
        if (t.shape[i] <= 1) continue;
        order.push_back(i);
        if (t.stride[i] == 0) layout.repeats *= t.shape[i];
    }
    layout.end = last >= ~std::uint64_t{0} ? ~std::uint64_t{0} : static_cast<std::uint64_t>(last) + 1;
    layout.c_order = std::ranges::is_sorted(order, std::ranges::greater{}, [&](std::size_t i) { return t.stride[i]; });
    layout.ascending = true;
    Wide inner = 0; // elements that the inner dimensions reach across
    for (std::size_t k = order.size(); k-- > 0;) {
        layout.ascending = layout.ascending && t.stride[order[k]] >= inner;
        inner += Wide{t.shape[order[k]] - 1} * t.stride[order[k]];
    }
    std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return t.stride[i]; });
    std::uint64_t expected = 1;
    layout.dense = true;
    for (std::size_t k = order.size(); k-- > 0;) {
        layout.dense = layout.dense && t.stride[order[k]] == expected;
        expected *= t.shape[order[k]];
    }
    return layout;
}

pickle::Tensor in_memory_order(const pickle::Tensor& t) {
    std::vector<std::size_t> order(t.shape.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return t.stride[i]; });
    pickle::Tensor sorted = t;
    for (std::size_t i = 0; i < order.size(); ++i) {
        sorted.shape[i] = t.shape[order[i]];
        sorted.stride[i] = t.stride[order[i]];
    }
    return sorted;
}

std::unique_ptr<ByteStream> read_view(const Storage& storage, const pickle::Tensor& view, bool c_order,
                                      const std::function<void(const std::string& what)>& fail) {
    const Layout layout = layout_of(view);
    if (layout.dense && (layout.c_order || !c_order))
        return std::make_unique<RangeStream>(storage, layout.begin, layout.end);
    std::uint64_t count = 1;
    for (const std::uint64_t extent : view.shape) count *= extent;
    if (!layout.ascending && (layout.end - layout.begin) * storage.item > max_held)
        fail("an overlapping or transposed view of more than 128 MiB; save tensor.contiguous()");
    if (count > std::max(max_repeated, layout.end - layout.begin))
        fail(std::to_string(count) + " elements of an expanded view are too many to read one by one; save what it "
                                     "expands");
    return std::make_unique<GatherStream>(storage, view, layout);
}

} // namespace amp
