// .pt and .pth: torch.save's zip archive of a pickle (data.pkl) and one member per storage (data/0, data/1, ...).
#include <ampscope/sim/io/byte_file.h>
#include <ampscope/sim/io/detail/pickle.h>
#include <ampscope/sim/io/detail/zip_archive.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace amp {

namespace {

constexpr std::size_t max_pickle = 32'000'000;
constexpr std::size_t max_visits = 250'000;                    // shared values may be visited repeatedly
constexpr std::size_t max_names = 64'000'000;                  // bytes of all dotted names
constexpr std::size_t max_notes = 100;                         // notes on values that are not read
constexpr int max_depth = 64;                                  // containers may contain themselves
constexpr std::uint64_t max_held = std::uint64_t{128} << 20;   // bytes of the part of a storage that is kept in memory
constexpr std::uint64_t max_repeated = std::uint64_t{1} << 30; // elements of a view that overlaps itself, read singly

/// How the elements of a view lie in its storage.
struct Layout {
    std::uint64_t begin = 0, end = 0; ///< range of storage elements that the view touches
    bool dense = false;               ///< the view contains every element of that range exactly once
    bool c_order = false;             ///< dense, and in C order
    bool ascending = false;           ///< in C order, no element lies before the one before it
    std::uint64_t repeats = 1;        ///< occurrences of each element: more than 1 for strides of 0 (expand)
};

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

/// The same view with its dimensions in the order in which they lie in memory.
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

constexpr const char* not_read = " is not read";

/// What an object that is not read is, and what to save instead; unknown classes are `not_read`.
std::string described(const std::string& name) {
    struct Row {
        std::string_view function, what;
    };
    constexpr std::array rows = {
        Row{"_rebuild_qtensor", "a quantized tensor; save tensor.int_repr() or tensor.dequantize()"},
        Row{"_rebuild_sparse_tensor", "a sparse tensor; save tensor.to_dense()"},
        Row{"_rebuild_sparse_csr_tensor", "a sparse tensor; save tensor.to_dense()"},
        Row{"_rebuild_nested_tensor", "a nested tensor; save tensor.unbind()"},
        Row{"_rebuild_meta_tensor_no_storage", "a tensor of the meta device, which has no elements"},
        Row{"_rebuild_device_tensor_from_numpy", "a tensor of another device; save tensor.cpu()"},
        Row{"_rebuild_device_tensor_from_cpu_tensor", "a tensor of another device; save tensor.cpu()"},
        Row{pickle::pending, "a tensor with pending negation or conjugation; save tensor.resolve_neg().resolve_conj()"},
    };
    const auto* row = std::ranges::find(rows, std::string_view(name).substr(name.rfind('.') + 1), &Row::function);
    return row == rows.end() ? name + not_read : "is " + std::string(row->what);
}

/// The dtype that is not supported ("complex128" for torch.ComplexDoubleStorage or torch.complex128, "quint8" for
/// torch.QUInt8Storage), and what to save instead.
std::string described_dtype(const pickle::Tensor& t) {
    const std::string& full = t.dtype.empty() ? t.storage.type : t.dtype;
    std::string name = full.substr(full.rfind('.') + 1);
    if (name == "ComplexDoubleStorage") name = "complex128";
    if (t.dtype.empty() && name.ends_with("Storage")) {
        name.resize(name.size() - 7);
        std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    }
    const std::string_view advice = name.starts_with("complex")                             ? "torch.view_as_real of it"
                                    : name.starts_with("quint") || name.starts_with("qint") ? "tensor.int_repr()"
                                    : name.starts_with("int") || name.starts_with("uint")   ? "it as int8 or uint8"
                                                                                            : "it as float32";
    return "dtype " + name + " is not read; save " + std::string(advice);
}

/// The storage that a view belongs to.
struct Storage {
    const ZipArchive& archive;
    std::size_t member;
    std::uint64_t item;       ///< bytes of an element
    std::size_t swapped_item; ///< bytes of a number if the storage is big-endian; else 0
};

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

class PtFile : public TensorFile {
  public:
    PtFile(const std::filesystem::path& path, const OpenOptions&) : TensorFile(check_magic(path)), archive_(path) {
        const auto& members = archive_.members();
        const auto pickle_member = std::ranges::find_if(
            members, [](const auto& m) { return m.name == "data.pkl" || m.name.ends_with("/data.pkl"); });
        if (pickle_member == members.end())
            throw FileError(path, "no data.pkl in the archive: not written by torch.save");
        prefix_ = pickle_member->name.substr(0, pickle_member->name.size() - 8);
        for (std::size_t i = 0; i < members.size(); ++i) index_.emplace(members[i].name, i);
        if (const auto it = index_.find(prefix_ + "byteorder"); it != index_.end())
            big_endian_ = archive_.read_text(it->second, 16) == "big";

        const std::string bytes =
            archive_.read_text(static_cast<std::size_t>(pickle_member - members.begin()), max_pickle);
        pickle_ = pickle::load(bytes, [&path](std::size_t byte, const std::string& what) {
            throw FileError(path, "data.pkl, byte " + std::to_string(byte) + ": " + what);
        });
        visit(*pickle_.root, "", 0);
        if (tensors_.empty()) throw FileError(path, "data.pkl: holds no tensor that can be read" + why_none());
        if (skipped_ > max_notes)
            notes_.push_back("and " + std::to_string(skipped_ - max_notes) + " more are not read; skipped");
    }

    [[nodiscard]] bool random_access(std::size_t) const override { return false; }
    void read_at(std::size_t, std::uint64_t, std::span<std::byte>) const override {
        throw std::logic_error("members of .pt files are streams");
    }

    [[nodiscard]] std::unique_ptr<ByteStream> stream(std::size_t tensor) const override {
        return stream_of(tensor, *views_[tensor].tensor);
    }

    /// A view that torch's expand made is read with extents of 1 in the dimensions that repeat.
    [[nodiscard]] std::unique_ptr<ByteStream> distinct(std::size_t tensor) const override {
        pickle::Tensor t = *views_[tensor].tensor;
        for (std::size_t i = 0; i < t.shape.size(); ++i)
            if (t.stride[i] == 0) t.shape[i] = std::min<std::uint64_t>(t.shape[i], 1);
        return stream_of(tensor, t);
    }

  private:
    struct View {
        std::size_t member;
        const pickle::Tensor* tensor;
        bool in_memory_order; ///< too large to keep in memory, so not read in C order
    };

    [[nodiscard]] std::unique_ptr<ByteStream> stream_of(std::size_t tensor, const pickle::Tensor& view) const {
        const pickle::Tensor t = views_[tensor].in_memory_order ? in_memory_order(view) : view;
        const Layout layout = layout_of(t);
        const DTypeInfo& type = info(tensors_[tensor].dtype);
        const Storage storage{archive_, views_[tensor].member, static_cast<std::uint64_t>(type.bits / 8),
                              big_endian_ ? static_cast<std::size_t>(type.bits / 8 / type.numbers()) : 0};
        if (layout.dense) return std::make_unique<RangeStream>(storage, layout.begin, layout.end);
        std::uint64_t count = 1;
        for (const std::uint64_t extent : t.shape) count *= extent;
        const std::string where = "tensor '" + tensors_[tensor].name + "': ";
        if (!layout.ascending && (layout.end - layout.begin) * storage.item > max_held)
            throw FileError(path_, where + "an overlapping view of more than 128 MiB; save tensor.contiguous()");
        if (count > std::max(max_repeated, layout.end - layout.begin))
            throw FileError(path_, where + std::to_string(count) +
                                       " elements of an expanded view are too many to read "
                                       "one by one; save what it expands");
        return std::make_unique<GatherStream>(storage, t, layout);
    }

    void skip(const std::string& what) {
        if (++skipped_ <= max_notes) notes_.push_back(what + "; skipped");
    }

    [[nodiscard]] std::string why_none() const {
        const auto* object = std::get_if<pickle::Opaque>(&pickle_.root->data);
        if (object != nullptr && described(object->name).ends_with(not_read))
            return ", but an object of " + object->name + ", whose code is not run; save its state_dict()";
        if (notes_.empty()) return "; save a dict of tensors, or use safetensors";
        const std::string first = notes_.front().substr(0, notes_.front().rfind("; skipped"));
        return ": " + first + (skipped_ > 1 ? "; " + std::to_string(skipped_ - 1) + " more like it" : "");
    }

    static const std::filesystem::path& check_magic(const std::filesystem::path& path) {
        const ByteFile file(path);
        const std::string magic = file.text_at(0, std::min<std::uint64_t>(2, file.size()));
        if (magic.starts_with('\x80'))
            throw FileError(path, "byte 0: a bare pickle (torch.save before PyTorch 1.6); load and save it again with "
                                  "a newer PyTorch, or as safetensors");
        return path;
    }

    void visit(const pickle::Value& value, const std::string& name, int depth) {
        names_ += name.size();
        if (depth > max_depth || ++visits_ > max_visits || names_ > max_names)
            throw FileError(path_, "data.pkl: containers nest too deep or too often; save a plain dict of tensors");
        const auto below = [&](const std::string& key) { return name.empty() ? key : name + "." + key; };
        if (const auto* tensor = std::get_if<pickle::Tensor>(&value.data)) {
            add(*tensor, name.empty() ? path_.stem().string() : name);
        } else if (const auto* dict = std::get_if<pickle::Dict>(&value.data)) {
            for (const auto& [key, item] : dict->items) {
                if (const auto* text = std::get_if<std::string>(&key->data)) visit(*item, below(*text), depth + 1);
                else if (const auto* number = std::get_if<std::int64_t>(&key->data))
                    visit(*item, below(std::to_string(*number)), depth + 1);
                else visit(pickle::Value{pickle::Opaque{"a key that is neither text nor an integer"}}, name, depth + 1);
            }
        } else if (const auto* sequence = std::get_if<pickle::Sequence>(&value.data)) {
            for (std::size_t i = 0; i < sequence->items.size(); ++i)
                visit(*sequence->items[i], below(std::to_string(i)), depth + 1);
        } else if (const auto* opaque = std::get_if<pickle::Opaque>(&value.data)) {
            skip("'" + (name.empty() ? path_.stem().string() : name) + "': " + described(opaque->name));
        }
    }

    /// The dtype of a view, from its storage class or, for untyped storages, from the tensor.
    [[nodiscard]] const DTypeInfo* dtype_of(const pickle::Tensor& t) const {
        const auto bare = [](const std::string& name) { return std::string_view(name).substr(name.rfind('.') + 1); };
        for (const DTypeInfo& row : dtypes)
            if (t.dtype.empty() ? !row.torch_storage.empty() && bare(t.storage.type) == row.torch_storage
                                : !row.torch.empty() && bare(t.dtype) == row.torch)
                return &row;
        return nullptr;
    }

    void add(const pickle::Tensor& t, const std::string& name) {
        const std::string where = "tensor '" + name + "': ";
        const DTypeInfo* type = dtype_of(t);
        if (type == nullptr || type->bits < 8) {
            skip(where + described_dtype(t));
            return;
        }
        const auto member = index_.find(prefix_ + "data/" + t.storage.key);
        if (member == index_.end())
            throw FileError(path_, where + "its storage data/" + t.storage.key + " is not in the archive");
        TensorEntry entry{.name = name, .dtype = type->dtype, .shape = t.shape};
        finish_entry(entry, path_);
        const Layout layout = layout_of(t);
        const auto item = static_cast<std::uint64_t>(type->bits / 8);
        const std::uint64_t size = archive_.members()[member->second].size;
        const std::uint64_t unit = t.dtype.empty() ? item : 1; // an untyped storage counts bytes
        if (size / unit != t.storage.size || size % unit != 0)
            throw FileError(path_, where + "its storage has " + std::to_string(size) + " bytes where the pickle says " +
                                       std::to_string(t.storage.size * unit));
        if (layout.end > size / item)
            throw FileError(path_, where + "reaches beyond its storage of " + std::to_string(size) + " bytes");
        const bool large = !layout.ascending && (layout.end - layout.begin) * item > max_held;
        entry.storage_order = (layout.dense && !layout.c_order) || (large && !layout.dense);
        entry.repeats = layout.repeats;
        views_.push_back({member->second, &t, large && !layout.dense});
        tensors_.push_back(std::move(entry));
    }

    ZipArchive archive_;
    std::string prefix_;
    std::map<std::string, std::size_t> index_;
    bool big_endian_ = false;
    std::vector<View> views_;
    pickle::Pickle pickle_;
    std::size_t visits_ = 0, names_ = 0, skipped_ = 0;
};

} // namespace

std::unique_ptr<TensorFile> open_pt(const std::filesystem::path& path, const OpenOptions& options) {
    return std::make_unique<PtFile>(path, options);
}

} // namespace amp
