#include <ampscope/sim/io/detail/transformer_engine.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace amp::transformer_engine {

namespace {

using pickle::Opaque;
using pickle::Ref;
using pickle::Sequence;

enum class Scaling : std::uint8_t { tensor, mx, blocks, nvfp4, hybrid, identity };

/// A class and where its call has what: row-wise codes and their scales, column-wise ones, the codes' type.
struct Row {
    std::string_view function, type;
    Scaling scaling;
    std::size_t data = 0, scale = 0, column_data = 0, column_scale = 0, format = 0;
};

constexpr std::array rows = {
    Row{"_make_float8_tensor_in_reduce_ex", "Float8Tensor", Scaling::tensor, 0, 2, 5, 2, 1},
    Row{"_make_mxfp8_tensor_in_reduce_ex", "MXFP8Tensor", Scaling::mx, 0, 1, 2, 3, 4},
    Row{"_make_float8_blockwise_tensor_in_reduce_ex", "Float8BlockwiseQTensor", Scaling::blocks, 1, 2, 3, 4, 5},
    Row{"_make_nvfp4_tensor_in_reduce_ex", "NVFP4Tensor", Scaling::nvfp4, 1, 2, 3, 4, 7},
    Row{"_make_hybrid_quantized_tensor_in_reduce_ex", "HybridQuantizedTensor", Scaling::hybrid},
    Row{"_make_identity_tensor_in_reduce_ex", "IdentityTensor", Scaling::identity},
};

/// A method of the type, which earlier versions had in place of a function.
constexpr std::string_view method = "._make_in_reduce_ex";

/// The row of a function of TransformerEngine, or of "TYPE._make_in_reduce_ex".
const Row* row_of(std::string_view name) {
    if (!name.starts_with("transformer_engine.")) return nullptr;
    const bool old = name.ends_with(method);
    if (old) name.remove_suffix(method.size());
    name.remove_prefix(name.rfind('.') + 1);
    const auto* row = std::ranges::find(rows, name, old ? &Row::type : &Row::function);
    return row == rows.end() ? nullptr : &*row;
}

/// What a call is given. Older versions give fewer arguments: those that lack are null.
class Arguments {
  public:
    explicit Arguments(const Opaque& call) {
        if (call.args != nullptr) items_ = std::get_if<Sequence>(&call.args->data);
    }
    [[nodiscard]] Ref at(std::size_t i) const {
        return items_ == nullptr || i >= items_->items.size() ? nullptr : items_->items[i];
    }
    template <class T>
    [[nodiscard]] const T* get(std::size_t i) const {
        return at(i) == nullptr ? nullptr : std::get_if<T>(&at(i)->data);
    }
    [[nodiscard]] bool flag(std::size_t i) const { return get<bool>(i) != nullptr && *get<bool>(i); }
    /// A number, or a member of an enumeration: a call of Python's class with it, or an object of pybind11 whose state
    /// it is. -1 for anything else.
    [[nodiscard]] std::int64_t number(std::size_t i) const {
        if (const auto* plain = get<std::int64_t>(i)) return *plain;
        const auto* member = get<Opaque>(i);
        if (member == nullptr) return -1;
        const auto* state = member->state == nullptr ? nullptr : std::get_if<std::int64_t>(&member->state->data);
        const auto* given = Arguments(*member).get<std::int64_t>(0);
        return state != nullptr ? *state : given != nullptr ? *given : -1;
    }

  private:
    const Sequence* items_ = nullptr;
};

constexpr std::int64_t e4m3_number = 7; // before version 2.4 the number of E5M2

/// The codes' type by its number in NVTEDType (common/include/transformer_engine/transformer_engine.h).
std::optional<DType> format_of(std::int64_t number) {
    switch (number) {
    case e4m3_number: return DType::f8_e4m3;
    case 8: return DType::f8_e5m2;
    case 10: return DType::f4;
    default: return std::nullopt;
    }
}

/// What a call says, without its codes and scales.
struct Facts {
    const Row& row;
    const Arguments& call;
    DType format;
};

/// Codes and scales at these places of the call, if both are there; adds how the scales lie.
std::optional<Quantized> codes_at(const Facts& facts, std::size_t data, std::size_t scale, bool columnwise) {
    Quantized part{.format = facts.format,
                   .codes = facts.call.get<pickle::Tensor>(data),
                   .scale_inv = facts.call.get<pickle::Tensor>(scale)};
    if (part.codes == nullptr || part.scale_inv == nullptr) return std::nullopt;
    switch (facts.row.scaling) {
    case Scaling::tensor: part.transposed = columnwise; break;
    case Scaling::mx: // MXFP8Quantizer.get_scale_shape
        part.scale_type = DType::f8_e8m0;
        part.blocks = columnwise ? ScaleBlocks{.rows = 32, .columns = 1} : ScaleBlocks{.rows = 1, .columns = 32};
        break;
    case Scaling::blocks: // Float8BlockQuantizer.get_scale_shape: 128 x 128, or 1 x 128 along the rows that are stored
        part.transposed = part.first_is_row = columnwise;
        part.blocks = facts.call.flag(8) ? ScaleBlocks{.rows = 128, .columns = 128}
                                         : ScaleBlocks{.rows = 1, .columns = 128, .transposed = true};
        break;
    case Scaling::nvfp4: // common/cast/nvfp4/dequantize_nvfp4.cuh
        part.scale_type = DType::f8_e4m3;
        part.blocks = ScaleBlocks{.rows = 1, .columns = 16};
        part.amax = facts.call.get<pickle::Tensor>(5);
        part.scale_max = facts.call.flag(12) ? static_cast<int>(facts.call.number(13)) : 448;
        break;
    case Scaling::hybrid:
    case Scaling::identity: break;
    }
    return part;
}

void unwrap_codes(const Row& row, const Arguments& call, Unwrapped& unwrapped) {
    const auto refuse = [&](const std::string& why) {
        unwrapped.problems.push_back("is a " + std::string(row.type) + " of TransformerEngine " + why +
                                     "; save tensor.dequantize()");
    };
    const std::optional<DType> format = format_of(call.number(row.format));
    const bool nvfp4 = row.scaling == Scaling::nvfp4;
    if (!format || (*format == DType::f4) != nvfp4) return refuse("whose codes have an unknown type");
    if ((row.scaling == Scaling::mx && call.flag(8)) || (nvfp4 && call.flag(10)))
        return refuse("whose scales are in the order of matrix products");
    const Facts facts{row, call, *format};
    auto by_rows = codes_at(facts, row.data, row.scale, false);
    auto by_columns = codes_at(facts, row.column_data, row.column_scale, true);
    if (!by_rows && !by_columns) return refuse("without codes and scales");
    if (by_rows && nvfp4 && (by_rows->amax == nullptr || (by_rows->scale_max != 448 && by_rows->scale_max != 256)))
        return refuse("without an amax, or with scales that end neither at 448 nor at 256");
    if (by_rows) unwrapped.tensors.push_back(*by_rows);
    if (!by_columns) return;
    // They may be those of the tensor after a Hadamard transform; TransformerEngine does not dequantize them, either.
    if (nvfp4) return refuse("with column-wise codes, which are left out");
    if (by_rows) by_columns->suffix = ".columnwise";
    unwrapped.tensors.push_back(*by_columns);
}

} // namespace

std::optional<Unwrapped> unwrap(const Opaque& object) {
    const Row* row = row_of(object.name);
    if (row == nullptr) return std::nullopt;
    const Arguments call(object);
    Unwrapped unwrapped;
    if (object.name.ends_with(method) && call.number(row->format) == e4m3_number)
        unwrapped.problems.push_back("is a " + std::string(row->type) +
                                     " of TransformerEngine whose codes are read as E4M3: before version 2.4 the same "
                                     "number meant E5M2");
    if (row->scaling == Scaling::hybrid) {
        if (call.at(0) != nullptr) unwrapped.values.emplace_back("rowwise", call.at(0));
        if (call.at(1) != nullptr) unwrapped.values.emplace_back("columnwise", call.at(1));
    } else if (row->scaling == Scaling::identity) {
        if (call.at(0) != nullptr) unwrapped.values.emplace_back("", call.at(0));
    } else {
        unwrap_codes(*row, call, unwrapped);
    }
    return unwrapped;
}

} // namespace amp::transformer_engine
