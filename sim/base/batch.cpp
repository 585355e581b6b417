#include <ampscope/formats/detail/convert.h>
#include <ampscope/sim/base/batch.h>
#include <ampscope/sim/base/parallel.h>

#include <algorithm>

namespace amp {

namespace {

constexpr std::uint64_t chunk_size = 1 << 15; // elements; a multiple of the number that a group of random words serves

/// Calls body(begin, count, options of that chunk) for the chunks of n elements.
template <class Body>
void for_each_piece(std::size_t n, const BatchOptions& options, int threads, const Body& body) {
    for_each_chunk(n, chunk_size, threads, [&](std::uint64_t begin, std::uint64_t end) {
        BatchOptions piece = options;
        piece.first_index += begin;
        body(begin, end - begin, piece);
    });
}

template <class In, class Out>
void round_spans(const FormatSpec& format, std::span<const In> in, std::span<Out> out, const BatchOptions& options,
                 int threads) {
    const std::size_t n = std::min(in.size(), out.size());
    const detail::Execution execution = detail::execution_for(n * sizeof(Out));
    for_each_piece(n, options, threads, [&](std::size_t begin, std::size_t count, const BatchOptions& piece) {
        detail::round_array(format, in.data() + begin, out.data() + begin, count, piece, execution);
    });
}

template <class Code>
void decode_spans(const FormatSpec& format, std::span<const Code> in, std::span<float> out, NanRule nan, int threads) {
    const std::size_t n = std::min(in.size(), out.size());
    const detail::Execution execution = detail::execution_for(n * sizeof(float));
    for_each_chunk(n, chunk_size, threads, [&](std::uint64_t begin, std::uint64_t end) {
        detail::decode_array(format, in.data() + begin, out.data() + begin, end - begin, nan, execution);
    });
}

} // namespace

void quantize(const FormatSpec& format, std::span<const float> in, std::span<float> out, const BatchOptions& options,
              int threads) {
    round_spans(format, in, out, options, threads);
}
void quantize(const FormatSpec& format, std::span<const double> in, std::span<float> out, const BatchOptions& options,
              int threads) {
    for_each_piece(std::min(in.size(), out.size()), options, threads,
                   [&](std::size_t begin, std::size_t count, const BatchOptions& piece) {
                       quantize(format, in.subspan(begin, count), out.subspan(begin, count), piece);
                   });
}

void encode(const FormatSpec& format, std::span<const float> in, std::span<std::uint8_t> out,
            const BatchOptions& options, int threads) {
    round_spans(format, in, out, options, threads);
}
void encode(const FormatSpec& format, std::span<const float> in, std::span<std::uint16_t> out,
            const BatchOptions& options, int threads) {
    round_spans(format, in, out, options, threads);
}
void encode(const FormatSpec& format, std::span<const float> in, std::span<std::uint32_t> out,
            const BatchOptions& options, int threads) {
    round_spans(format, in, out, options, threads);
}

void decode(const FormatSpec& format, std::span<const std::uint8_t> in, std::span<float> out, NanRule nan,
            int threads) {
    decode_spans(format, in, out, nan, threads);
}
void decode(const FormatSpec& format, std::span<const std::uint16_t> in, std::span<float> out, NanRule nan,
            int threads) {
    decode_spans(format, in, out, nan, threads);
}
void decode(const FormatSpec& format, std::span<const std::uint32_t> in, std::span<float> out, NanRule nan,
            int threads) {
    decode_spans(format, in, out, nan, threads);
}

void apply(Operation operation, const FormatSpec& format, std::span<const float> a, std::span<const float> b,
           std::span<const float> c, std::span<float> out, const BatchOptions& options, int threads) {
    const bool reads_b = operation != Operation::sqrt, reads_c = operation == Operation::fma;
    std::size_t n = std::min(a.size(), out.size());
    if (reads_b) n = std::min(n, b.size());
    if (reads_c) n = std::min(n, c.size());
    for_each_piece(n, options, threads, [&](std::size_t begin, std::size_t count, const BatchOptions& piece) {
        apply(operation, format, a.subspan(begin, count), reads_b ? b.subspan(begin, count) : b,
              reads_c ? c.subspan(begin, count) : c, out.subspan(begin, count), piece);
    });
}

} // namespace amp
