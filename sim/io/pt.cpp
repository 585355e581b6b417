// .pt and .pth: torch.save's zip archive of a pickle (data.pkl) and one member per storage (data/0, data/1, ...).
#include <ampscope/formats/codec.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/io/byte_file.h>
#include <ampscope/sim/io/detail/storage_view.h>
#include <ampscope/sim/io/detail/transformer_engine.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <deque>

namespace amp {

namespace {

constexpr std::size_t max_pickle = 32'000'000;
constexpr std::size_t max_visits = 250'000;   // shared values may be visited repeatedly
constexpr std::size_t max_names = 64'000'000; // bytes of all dotted names
constexpr std::size_t max_text = 1000;        // bytes kept of a text among the tensors
constexpr std::size_t max_notes = 100;        // notes on values that are not read
constexpr int max_depth = 64;                 // containers may contain themselves
constexpr std::uint64_t max_scales = max_held / sizeof(float);

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

using transformer_engine::Quantized;

/// The number of elements; or the product of the dimensions from one to another.
std::uint64_t count_of(const pickle::Tensor& t, std::size_t from, std::size_t to) {
    std::uint64_t count = 1;
    for (std::size_t i = from; i < to; ++i) count *= t.shape[i];
    return count;
}
std::uint64_t count_of(const pickle::Tensor& t) { return count_of(t, 0, t.shape.size()); }

class PtFile : public TensorFile {
  public:
    explicit PtFile(const FileRange& range)
        : TensorFile(check_magic(range)), archive_(range), is_part_(range.length.has_value()) {
        const std::filesystem::path& path = path_;
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
        if (tensors_.empty() && !is_part_)
            throw FileError(path, "data.pkl: holds no tensor that can be read" + why_none());
        if (skipped_ > max_notes)
            notes_.push_back("and " + std::to_string(skipped_ - max_notes) + " more are not read; skipped");
    }

    [[nodiscard]] std::map<std::string, PlainValue> values() const override { return values_; }
    [[nodiscard]] bool random_access(std::size_t) const override { return false; }
    void read_at(std::size_t, std::uint64_t, std::span<std::byte>) const override {
        throw std::logic_error("members of .pt files are streams");
    }

    [[nodiscard]] std::unique_ptr<ByteStream> stream(std::size_t tensor) const override {
        const View& view = views_[tensor];
        const std::string where = "tensor '" + tensors_[tensor].name + "': ";
        if (view.quantized == nullptr) return stream_of(view, *view.tensor, where);
        return read_scaled(stream_of(view, *view.tensor, where), scaled(*view.quantized, where));
    }

    /// A view that torch's expand made is read with extents of 1 in the dimensions that repeat.
    [[nodiscard]] std::unique_ptr<ByteStream> distinct(std::size_t tensor) const override {
        if (views_[tensor].quantized != nullptr) return stream(tensor);
        pickle::Tensor t = *views_[tensor].tensor;
        for (std::size_t i = 0; i < t.shape.size(); ++i)
            if (t.stride[i] == 0) t.shape[i] = std::min<std::uint64_t>(t.shape[i], 1);
        return stream_of(views_[tensor], t, "tensor '" + tensors_[tensor].name + "': ");
    }

  private:
    struct View {
        std::size_t member;
        const pickle::Tensor* tensor;
        const DTypeInfo* type;      ///< the type of the elements in the storage
        bool in_memory_order;       ///< too large to keep in memory, so not read in C order
        const Quantized* quantized; ///< what the elements are codes of, if they are
    };

    [[nodiscard]] std::unique_ptr<ByteStream> stream_of(const View& view, const pickle::Tensor& tensor,
                                                        const std::string& where) const {
        const int bytes = view.type->bits / 8;
        const Storage storage{archive_, view.member, static_cast<std::uint64_t>(bytes),
                              big_endian_ ? static_cast<std::size_t>(bytes / view.type->numbers()) : 0};
        return read_view(storage, view.in_memory_order ? in_memory_order(tensor) : tensor, is_part_,
                         [&](const std::string& what) { throw FileError(path_, where + what); });
    }

    /// The elements of a tensor of scales as FP32.
    [[nodiscard]] std::vector<float> scales_of(const pickle::Tensor& t, DType type, const std::string& where) const {
        const DTypeInfo& stored = *dtype_of(t);
        const auto stream = stream_of({member_of(t, stored, where), &t, &stored, false, nullptr}, t, where);
        std::vector<std::byte> bytes;
        read_growing(*stream, count_of(t) * static_cast<std::uint64_t>(stored.bits / 8), bytes);
        std::vector<float> scales(bytes.size() / static_cast<std::size_t>(stored.bits / 8));
        if (scales.size() != count_of(t)) throw FileError(path_, where + "its scales end early");
        if (type == DType::f32) {
            std::memcpy(scales.data(), bytes.data(), bytes.size());
            return scales;
        }
        const FormatSpec format = amp::format(info(type).format);
        std::ranges::transform(bytes, scales.begin(),
                               [&](std::byte code) { return decode(format, std::to_integer<std::uint32_t>(code)); });
        return scales;
    }

    /// Codes with the scales by which they are multiplied. NVFP4's are first multiplied by the amax and then by
    /// 1 / (6 * scale_max), in FP32, as TransformerEngine's dequantize_fp4_kernel does.
    [[nodiscard]] ScaledCodes scaled(const Quantized& q, const std::string& where) const {
        const FloatEnvironment environment;
        const auto [rows, columns] = matrix_of(q);
        const std::uint64_t stride = q.scale_inv->shape.size() < 2 ? 1 : q.scale_inv->shape.back();
        ScaledCodes scaled{.format = q.format,
                           .rows = rows,
                           .columns = columns,
                           .blocks = q.blocks,
                           .scales = scales_of(*q.scale_inv, q.scale_type, where),
                           .stride = stride,
                           .single = q.amax != nullptr};
        if (q.amax != nullptr) apply_amax(scales_of(*q.amax, DType::f32, where), q.scale_max, scaled);
        return scaled;
    }

    [[gnu::noinline]] static void apply_amax(const std::vector<float>& amax, int scale_max, ScaledCodes& scaled) {
        const float inverse = 1.0f / (6.0f * static_cast<float>(scale_max));
        for (std::size_t i = 0; i < scaled.scales.size(); ++i)
            scaled.scales[i] =
                scaled.scales[i] * amax[amax.size() == 1 ? 0 : std::min(i / scaled.stride, amax.size() - 1)] * inverse;
    }

    void skip(const std::string& what) {
        if (++skipped_ <= max_notes) notes_.push_back(what + "; skipped");
    }

    [[nodiscard]] std::string why_none() const {
        const auto* object = std::get_if<pickle::Opaque>(&pickle_.root->data);
        if (object != nullptr && !transformer_engine::unwrap(*object) && described(object->name).ends_with(not_read))
            return ", but an object of " + object->name + ", whose code is not run; save its state_dict()";
        if (notes_.empty()) return "; save a dict of tensors, or use safetensors";
        const std::string first = notes_.front().substr(0, notes_.front().rfind("; skipped"));
        return ": " + first + (skipped_ > 1 ? "; " + std::to_string(skipped_ - 1) + " more like it" : "");
    }

    static const std::filesystem::path& check_magic(const FileRange& range) {
        const std::filesystem::path& path = range.path;
        const ByteFile file(path);
        const std::string magic =
            file.text_at(range.begin, std::min<std::uint64_t>(2, file.size() - std::min(range.begin, file.size())));
        if (magic.starts_with('\x80'))
            throw FileError(path, "byte " + std::to_string(range.begin) +
                                      ": a bare pickle (torch.save before PyTorch 1.6); load and save it again with "
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
            visit_object(*opaque, name.empty() ? path_.stem().string() : name, depth);
        } else if (const auto* text = std::get_if<std::string>(&value.data)) {
            values_.emplace(name, text->substr(0, max_text));
        } else if (const auto* real = std::get_if<double>(&value.data)) {
            values_.emplace(name, *real);
        } else if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
            values_.emplace(name, static_cast<double>(*integer));
        } else if (const auto* truth = std::get_if<bool>(&value.data)) {
            values_.emplace(name, *truth ? 1.0 : 0.0);
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

    /// The storage of a view, which has to lie in it.
    std::size_t member_of(const pickle::Tensor& t, const DTypeInfo& type, const std::string& where) const {
        const auto member = index_.find(prefix_ + "data/" + t.storage.key);
        if (member == index_.end())
            throw FileError(path_, where + "its storage data/" + t.storage.key + " is not in the archive");
        const auto item = static_cast<std::uint64_t>(type.bits / 8);
        const std::uint64_t size = archive_.members()[member->second].size;
        const std::uint64_t unit = t.dtype.empty() ? item : 1; // an untyped storage counts bytes
        if (size / unit != t.storage.size || size % unit != 0)
            throw FileError(path_, where + "its storage has " + std::to_string(size) + " bytes where the pickle says " +
                                       std::to_string(t.storage.size * unit));
        if (layout_of(t).end > size / item)
            throw FileError(path_, where + "reaches beyond its storage of " + std::to_string(size) + " bytes");
        return member->second;
    }

    void add(const pickle::Tensor& t, const std::string& name) {
        const std::string where = "tensor '" + name + "': ";
        const DTypeInfo* type = dtype_of(t);
        if (type == nullptr || type->bits < 8) {
            skip(where + described_dtype(t));
            return;
        }
        TensorEntry entry{.name = name, .dtype = type->dtype, .shape = t.shape};
        finish_entry(entry, path_);
        const std::size_t member = member_of(t, *type, where);
        const Layout layout = layout_of(t);
        const bool large =
            !layout.ascending && (layout.end - layout.begin) * static_cast<std::uint64_t>(type->bits / 8) > max_held;
        const bool in_memory_order = large && !layout.dense && !is_part_;
        entry.storage_order = (layout.dense && !layout.c_order && !is_part_) || in_memory_order;
        entry.repeats = layout.repeats;
        views_.push_back({member, &t, type, in_memory_order, nullptr});
        tensors_.push_back(std::move(entry));
    }

    /// An object that is not evaluated, unless it is a tensor of TransformerEngine.
    void visit_object(const pickle::Opaque& object, const std::string& name, int depth) {
        const auto unwrapped = transformer_engine::unwrap(object);
        if (!unwrapped) return skip("'" + name + "': " + described(object.name));
        for (const auto& [key, value] : unwrapped->values)
            visit(*value, key.empty() ? name : name + "." + key, depth + 1);
        for (const Quantized& q : unwrapped->tensors) add_quantized(q, name + q.suffix);
        for (const std::string& problem : unwrapped->problems) skip("'" + name + "': " + problem);
    }

    /// The rows and columns of the matrix of codes.
    static std::pair<std::uint64_t, std::uint64_t> matrix_of(const Quantized& q) {
        const std::vector<std::uint64_t>& shape = q.codes->shape;
        if (shape.empty()) return {1, 1};
        const std::uint64_t first = q.first_is_row ? shape.front() : count_of(*q.codes, 0, shape.size() - 1);
        const std::uint64_t rest = q.first_is_row ? count_of(*q.codes, 1, shape.size()) : shape.back();
        return {first, q.format == DType::f4 ? 2 * rest : rest};
    }

    /// What is wrong with the tensors of codes and scales; empty if nothing is.
    [[nodiscard]] std::string problem_of(const Quantized& q) const {
        const auto is = [&](const pickle::Tensor& t, DType type, bool as_bytes) {
            const DTypeInfo* stored = dtype_of(t);
            return stored != nullptr && stored->bits >= 8 &&
                   (stored->dtype == type || (as_bytes && stored->dtype == DType::u8));
        };
        const Layout layout = layout_of(*q.codes);
        if (!is(*q.codes, q.format, true) || !layout.dense || !layout.c_order)
            return "a quantized tensor whose codes are no bytes in C order";
        const pickle::Tensor& scales = *q.scale_inv;
        if (!is(scales, q.scale_type, q.scale_type != DType::f32) || count_of(scales) > max_scales ||
            layout_of(scales).repeats > 1)
            return "a quantized tensor whose scales are none of its class's";
        const auto [rows, columns] = matrix_of(q);
        const auto blocks = [](std::uint64_t extent, std::uint64_t block) {
            return extent / block + (extent % block != 0);
        };
        std::uint64_t high = blocks(rows, q.blocks.rows), wide = blocks(columns, q.blocks.columns);
        if (q.blocks.transposed) std::swap(high, wide);
        const bool matrix = scales.shape.size() == 2 && scales.shape[0] >= high && scales.shape[1] >= wide;
        if (!matrix && (count_of(scales) != 1 || high > 1 || wide > 1))
            return "a quantized tensor without a scale for each of its blocks";
        const std::uint64_t amax = q.amax == nullptr ? 1 : count_of(*q.amax);
        if ((q.amax != nullptr && !is(*q.amax, DType::f32, false)) || amax == 0 || (amax != 1 && amax != rows))
            return "a quantized tensor whose amax is neither one number nor one for each row";
        return {};
    }

    void add_quantized(const Quantized& q, const std::string& name) {
        const std::string where = "tensor '" + name + "': ";
        TensorEntry entry{.name = name, .dtype = DType::f64, .shape = q.codes->shape, .codes = q.format};
        if (q.format == DType::f4 && !entry.shape.empty()) entry.shape.back() *= 2;
        if (q.transposed && !entry.shape.empty())
            std::rotate(entry.shape.begin(), entry.shape.begin() + 1, entry.shape.end());
        entry.storage_order = q.transposed;
        finish_entry(entry, path_);
        if (const std::string problem = problem_of(q); !problem.empty()) return skip(where + problem);
        const DTypeInfo* type = dtype_of(*q.codes);
        for (const pickle::Tensor* part : {q.scale_inv, q.amax})
            if (part != nullptr) member_of(*part, *dtype_of(*part), where);
        views_.push_back({member_of(*q.codes, *type, where), q.codes, type, false, &quantized_.emplace_back(q)});
        tensors_.push_back(std::move(entry));
    }

    ZipArchive archive_;
    std::map<std::string, PlainValue> values_;
    bool is_part_; ///< a part of a tensor, which is read in C order: those of other parts lie between its elements
    std::string prefix_;
    std::map<std::string, std::size_t> index_;
    bool big_endian_ = false;
    std::vector<View> views_;
    std::deque<Quantized> quantized_;
    pickle::Pickle pickle_;
    std::size_t visits_ = 0, names_ = 0, skipped_ = 0;
};

} // namespace

std::unique_ptr<TensorFile> open_pt(const FileRange& range) { return std::make_unique<PtFile>(range); }

} // namespace amp
