// Conversions of all floats, histograms of them, and how fast they are.
#include <ampscope/formats/codec.h>
#include <ampscope/sim/analysis/measure.h>
#include <ampscope/sim/backend/cuda/conversion.h>
#include <ampscope/sim/base/parallel.h>
#include <ampscope/tools/amp-crosscheck/device_check.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <fmt/format.h>
#include <numeric>
#include <span>

namespace amp::crosscheck_tool {

namespace {

constexpr std::uint64_t all_floats = std::uint64_t{1} << 32, chunk = std::uint64_t{1} << 26;

/// Calls body(begin, end) for parts of n numbers, on every core.
template <class Body>
void in_parts(std::size_t n, const Body& body) {
    for_each_chunk(n, 1 << 16, 0, [&](std::uint64_t begin, std::uint64_t end) { body(begin, end); });
}

/// Every `stride`-th float, or those without a sign alone, a chunk at a time: body(first, floats).
template <class Body>
void for_floats(std::uint64_t stride, const Body& body, bool negative = true) {
    const std::uint64_t floats = negative ? all_floats : all_floats / 2;
    std::vector<float> x;
    for (std::uint64_t first = 0; first < floats; first += x.size() * stride) {
        x.resize(std::min(chunk, (floats - first + stride - 1) / stride));
        in_parts(x.size(), [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i)
                x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(first + i * stride));
        });
        body(first, x);
    }
}

/// Compares got with want, in parts on every core; one by one only where a part differs, as where(i) says.
template <class Where>
void compare_bits(CheckRow& row, std::span<const std::uint32_t> got, std::span<const std::uint32_t> want,
                  const Where& where) {
    std::atomic<bool> same = true;
    in_parts(got.size(), [&](std::size_t begin, std::size_t end) {
        if (!std::ranges::equal(got.subspan(begin, end - begin), want.subspan(begin, end - begin))) same = false;
    });
    if (same) row.cases += static_cast<std::int64_t>(got.size());
    else
        for (std::size_t i = 0; i < got.size(); ++i) row.expect(got[i], want[i], [&] { return where(i); });
}

/// What the processor gives: formats/batch.h on every core.
void encode_here(const FormatSpec& f, std::span<const float> in, std::span<std::uint32_t> out,
                 const BatchOptions& options) {
    const std::uint64_t index = options.first_index;
    in_parts(in.size(), [&](std::size_t begin, std::size_t end) {
        BatchOptions own = options;
        own.first_index = index + begin;
        encode(f, in.subspan(begin, end - begin), out.subspan(begin, end - begin), own);
    });
}

/// What the device gives against the processor's, over every `stride`-th float, or those without a sign alone: each of
/// codes_there(options, floats, out) and codes_here(...).
template <class There, class Here>
void compare(CheckRow& row, const BatchOptions& options, std::uint64_t stride, bool negative, const There& codes_there,
             const Here& codes_here) {
    std::vector<std::uint32_t> want, got;
    const auto compare_some = [&](std::uint64_t first, const std::vector<float>& x) {
        want.resize(x.size());
        got.resize(x.size());
        BatchOptions own = options;
        own.first_index = first;
        codes_here(own, x, want);
        codes_there(own, x, got);
        compare_bits(row, got, want, [&](std::size_t i) {
            return fmt::format("{} of {:#010x} ({:a})", name_of(options.policy.rounding),
                               std::bit_cast<std::uint32_t>(x[i]), x[i]);
        });
    };
    for_floats(stride, compare_some, negative);
}

/// The step from a float to the next, odd so that every exponent and many fractions are met; `every`: all of them.
std::uint64_t stride_of(const CheckOptions& options, bool every) {
    if (options.quick) return every ? 99991 : 1000003;
    return every ? 1 : 997;
}

/// Stochastic rounding as floats, by 32 and by 16 random bits.
void compare_rounded(const CheckOptions& o, const FormatSpec& f, CheckRow& row) {
    for (const std::uint8_t bits : {std::uint8_t{16}, std::uint8_t{32}})
        for_floats(stride_of(o, false), [&](std::uint64_t first, const std::vector<float>& x) {
            const BatchOptions options{.policy = {.rounding = Rounding::stochastic, .random_bits = bits},
                                       .key = {.seed = 4, .stream = 5, .step = 6},
                                       .first_index = first};
            std::vector<float> want(x.size()), got(x.size());
            quantize(f, x, want, options);
            quantize(o.device, f, x, got, options);
            for (std::size_t i = 0; i < x.size(); ++i)
                row.expect(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i]), [&] {
                    return fmt::format("stochastic by {} bits of {:#010x}", bits, std::bit_cast<std::uint32_t>(x[i]));
                });
        });
}

/// All floats to nearest-even, samples of the other roundings and of saturation; decoding of every code.
void compare_format(const CheckOptions& o, const FormatSpec& f, CheckRow& row) {
    const auto every = [&](bool nearest) {
        const std::uint64_t stride = stride_of(o, nearest);
        return stride == 1 ? std::string("every float") : fmt::format("every {}th float", stride);
    };
    row.note = fmt::format("nearest_even: {}, other roundings and saturation: {}", every(true), every(false));
    for (std::size_t r = 0; r < rounding_names.size(); ++r)
        for (const Overflow overflow : {Overflow::infinity, Overflow::saturate_all}) {
            const BatchOptions options{.policy = {.rounding = static_cast<Rounding>(r), .overflow = overflow},
                                       .key = {.seed = 1, .stream = 2, .step = 3}};
            compare(
                row, options, stride_of(o, r == 0 && overflow == Overflow::infinity), true,
                [&](const BatchOptions& own, std::span<const float> x, std::span<std::uint32_t> out) {
                    encode(o.device, f, x, out, own);
                },
                [&](const BatchOptions& own, std::span<const float> x, std::span<std::uint32_t> out) {
                    encode_here(f, x, out, own);
                });
        }
    compare_rounded(o, f, row);
    if (f.bits() > 19) return;
    std::vector<std::uint32_t> codes(std::size_t{1} << f.bits());
    std::iota(codes.begin(), codes.end(), 0U);
    std::vector<float> got(codes.size());
    decode(o.device, f, codes, got);
    for (const std::uint32_t code : codes)
        row.expect(std::bit_cast<std::uint32_t>(got[code]), std::bit_cast<std::uint32_t>(decode(f, code)),
                   [&] { return fmt::format("code {:#x}", code); });
}

void compare_histogram(const CheckOptions& o, CheckRow& row) {
    for_floats(stride_of(o, true), [&](std::uint64_t first, const std::vector<float>& x) {
        MagnitudeCounter counter(DType::f32);
        const auto bytes = std::as_bytes(std::span(x));
        for (std::size_t at = 0; at < bytes.size(); at += sum_block * sizeof(float))
            counter.add(bytes.subspan(at, std::min(sum_block * sizeof(float), bytes.size() - at)));
        row.cases += static_cast<std::int64_t>(x.size()) - 1;
        row.expect(count_magnitudes(o.device, x) == counter.statistics().histogram, 1,
                   [&] { return fmt::format("floats from {:#010x} on", first); });
    });
}

} // namespace

void check_conversions(CheckRows& rows) {
    const CheckOptions& o = rows.options();
    for (const FormatSpec& f : formats)
        rows.put("conversions", f.name, [&](CheckRow& row) { compare_format(o, f, row); });
    rows.put("conversions", "histogram of magnitudes", [&](CheckRow& row) { compare_histogram(o, row); });
    const std::span<const NativeConversion> conversions = native_conversions();
    for (std::size_t i = 0; i < conversions.size() && !o.device.is_host(); ++i) {
        const NativeConversion& c = conversions[i];
        rows.put("conversions", std::string(c.name), [&](CheckRow& row) {
            if (o.device.capability() < c.capability)
                row.note = "by the header's code: this device has no such instruction";
            const FormatSpec f = format(c.format);
            compare(
                row, {.policy = c.policy}, stride_of(o, true), c.negative,
                [&](const BatchOptions&, std::span<const float> x, std::span<std::uint32_t> out) {
                    encode_native(o.device, i, x, out);
                },
                [&](const BatchOptions& own, std::span<const float> x, std::span<std::uint32_t> out) {
                    encode_here(f, x, out, own);
                    for (std::size_t at = 0; c.cuts_nans && at < x.size(); ++at)
                        if (x[at] != x[at]) out[at] = std::bit_cast<std::uint32_t>(x[at]) >> (23 - f.fraction_bits);
                });
        });
    }
}

} // namespace amp::crosscheck_tool
