#include <ampscope/sim/train/data/arrays.h>

#include <ampscope/sim/analysis/count.h>

namespace amp {

namespace {

constexpr std::uint64_t max_numbers = std::uint64_t{1} << 31; // limit for an array: 8 GiB, all in memory

} // namespace

std::vector<float> read_floats(const TensorFile& file, std::size_t index) {
    constexpr FormatSpec fp32 = format("fp32");
    const TensorEntry& entry = file.tensors()[index];
    if (info(entry.dtype).kind == NumberKind::complex64)
        throw FileError(file.path(), entry.name + ": holds complex numbers");
    if (entry.count > max_numbers)
        throw FileError(file.path(), entry.name + ": " + std::to_string(entry.count) +
                                         " numbers; they are held in memory, at most 2^31 numbers an array");
    const std::unique_ptr<ByteStream> stream = file.stream(index);
    std::vector<std::byte> part(3 << 16); // whole elements of any type
    std::vector<float> values;
    Flags unused;
    while (values.size() < entry.count) {
        const std::size_t n = stream->read(part);
        if (n == 0) throw FileError(file.path(), entry.name + ": ends early");
        for_each_number(entry.dtype, std::span(part).first(n), [&](std::size_t, std::uint64_t bits) {
            values.push_back(decode(fp32, pack(fp32, unpack_number(entry.dtype, bits), {}, 0, unused)));
        });
    }
    return values;
}

} // namespace amp
