#include <ampscope/tools/amp-format/convert.h>

#include <ampscope/formats/batch.h>
#include <ampscope/sim/analysis/count.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/write.h>

#include <algorithm>
#include <cstring>

namespace amp::format_tool {

namespace {

constexpr std::size_t chunk_numbers = 1 << 16; // a whole number of bytes for every width

/// The dtype that tensor files have for a format's codes; those of two's complement are integers to files.
const DTypeInfo* dtype_of(const FormatSpec& format) {
    const bool integers = format.negatives != Negatives::sign_and_magnitude && format.min_subnormal_exponent() == 0;
    const auto* row = std::ranges::find_if(dtypes, [&](const DTypeInfo& d) {
        if (d.kind == NumberKind::signed_integer) return integers && d.bits == format.bits();
        return d.kind == NumberKind::format && d.format == format.name;
    });
    return row == dtypes.end() ? nullptr : row;
}

/// Numbers of any source dtype to codes of a format. FP32 goes through the batch loops, the rest number by number.
/// Returns how many finite ones are NaN or infinite in the format.
std::uint64_t encode_chunk(const ConvertOptions& options, DType from, std::span<const std::byte> in,
                           const BatchOptions& batch, std::span<std::uint32_t> codes) {
    const auto is_lost = [&](std::uint32_t code) { return unpack(options.to, code).kind > Kind::finite; };
    std::uint64_t lost = 0;
    if (from == DType::f32 || from == DType::c64) {
        std::vector<float> values(codes.size());
        std::memcpy(values.data(), in.data(), in.size());
        encode(options.to, values, codes, batch);
        for (std::size_t i = 0; i < codes.size(); ++i) lost += is_finite(values[i]) && is_lost(codes[i]);
        return lost;
    }
    const int width = info(from).bits / info(from).numbers();
    const bool stochastic = options.policy.rounding == Rounding::stochastic;
    for (std::size_t i = 0; i < codes.size(); ++i) {
        Flags unused;
        const std::uint32_t random = stochastic ? batch.key.word(batch.first_index + i, options.policy.random_bits) : 0;
        const Unpacked number = unpack_number(from, packed_number(in, i, width));
        codes[i] = pack(options.to, number, options.policy, random, unused);
        lost += number.kind <= Kind::finite && is_lost(codes[i]);
    }
    return lost;
}

/// Codes packed at `width` bits each, lowest bits first.
void pack_codes(std::span<const std::uint32_t> codes, int width, std::vector<std::byte>& out) {
    out.clear();
    std::uint64_t pending = 0;
    int bits = 0;
    for (const std::uint32_t code : codes) {
        pending |= std::uint64_t{code} << bits;
        for (bits += width; bits >= 8; bits -= 8, pending >>= 8) out.push_back(static_cast<std::byte>(pending & 0xff));
    }
    if (bits > 0) out.push_back(static_cast<std::byte>(pending));
}

/// The tensors of the file as they will be stored: as `stored`, in codes of `target` if it is not null.
std::vector<TensorEntry> converted_entries(const TensorFile& file, const ConvertOptions& options,
                                           const DTypeInfo* target, DType stored) {
    std::vector<TensorEntry> entries = file.tensors();
    for (TensorEntry& entry : entries) {
        if (entry.storage_order)
            throw FileError(options.in, "tensor '" + entry.name + "' is not stored in C order; save a contiguous copy");
        if (entry.dtype == DType::c64) entry.shape.push_back(2); // real and imaginary part
        entry.dtype = stored;
        if (target != nullptr && entry.count * static_cast<std::uint64_t>(target->bits) % 8 != 0)
            throw FileError(options.in, "tensor '" + entry.name + "': " + plural(entry.count, "element") + " of " +
                                            std::to_string(target->bits) +
                                            " bits: not a whole number of bytes; use --quantize");
        finish_entry(entry, options.in);
    }
    return entries;
}

} // namespace

Converted convert_file(const ConvertOptions& options, const std::function<void(std::uint64_t)>& progress) {
    const auto file = open_complete_file(options.in, options.open);
    const DTypeInfo* target = options.quantize ? nullptr : dtype_of(options.to);
    const DType stored = target == nullptr ? DType::f32 : target->dtype;
    const std::vector<TensorEntry> entries = converted_entries(*file, options, target, stored);
    TensorWriter writer = create_tensor_file(options.out, entries, file->metadata());

    Converted result{.tensors = entries.size(), .elements = 0, .lost = 0, .stored = stored, .codes = target != nullptr};
    std::vector<std::uint32_t> codes;
    std::vector<float> values;
    std::vector<std::byte> in, out;
    for (std::size_t t = 0; t < entries.size(); ++t) {
        const DType from = file->tensors()[t].dtype;
        const auto width = static_cast<std::size_t>(info(from).bits / info(from).numbers());
        const auto stream = file->stream(t);
        BatchOptions batch{.policy = options.policy,
                           .key = {.seed = options.seed, .stream = static_cast<std::uint32_t>(t)}};
        in.resize(chunk_numbers * width / 8);
        for (std::uint64_t left = entries[t].count; left > 0;) {
            const std::size_t n = std::min<std::uint64_t>(left, chunk_numbers);
            const std::size_t bytes = stream->read(std::span(in).first(n * width / 8));
            codes.resize(n);
            result.lost += encode_chunk(options, from, std::span(in).first(bytes), batch, codes);
            if (target != nullptr) {
                pack_codes(codes, target->bits, out);
                writer.append(out);
            } else {
                values.resize(n);
                decode(options.to, std::span<const std::uint32_t>(codes), values, options.policy.nan);
                writer.append(std::as_bytes(std::span(values)));
            }
            left -= n;
            result.elements += n;
            batch.first_index += n;
            if (progress) progress(bytes);
        }
    }
    writer.commit();
    return result;
}

} // namespace amp::format_tool
