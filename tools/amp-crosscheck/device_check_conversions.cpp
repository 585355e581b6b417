// Conversions of all floats, histograms of them, and how fast they are.
#include <ampscope/formats/codec.h>
#include <ampscope/sim/analysis/measure.h>
#include <ampscope/sim/backend/cuda/conversion.h>
#include <ampscope/sim/base/parallel.h>
#include <ampscope/tools/amp-crosscheck/device_check.h>

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <numeric>
#include <span>

namespace amp::crosscheck_tool {

namespace {

constexpr std::uint64_t all_floats = std::uint64_t{1} << 32, chunk = std::uint64_t{1} << 26;

/// Every `stride`-th float, a chunk at a time: body(first, floats).
template <class Body>
void for_floats(std::uint64_t stride, const Body& body) {
    std::vector<float> x;
    for (std::uint64_t bits = 0; bits < all_floats;) {
        const std::uint64_t first = bits;
        x.clear();
        for (; bits < all_floats && x.size() < chunk; bits += stride)
            x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
        body(first, x);
    }
}

/// What the processor gives: formats/batch.h on every core.
void encode_here(const FormatSpec& f, std::span<const float> in, std::span<std::uint32_t> out, BatchOptions options) {
    const std::uint64_t index = options.first_index;
    for_each_chunk(in.size(), 1 << 16, 0, [&](std::uint64_t begin, std::uint64_t end) {
        BatchOptions own = options;
        own.first_index = index + begin;
        encode(f, in.subspan(begin, end - begin), out.subspan(begin, end - begin), own);
    });
}

/// codes(options, floats, out) against the processor's, over every `stride`-th float.
template <class Codes>
void compare(CheckRow& row, const FormatSpec& f, const BatchOptions& options, std::uint64_t stride, bool negative,
             const Codes& codes) {
    std::vector<std::uint32_t> want, got;
    for_floats(stride, [&](std::uint64_t first, const std::vector<float>& x) {
        if (!negative && first >= all_floats / 2) return;
        want.resize(x.size());
        got.resize(x.size());
        BatchOptions here = options;
        here.first_index = first;
        encode_here(f, x, want, here);
        codes(here, x, got);
        for (std::size_t i = 0; i < x.size(); ++i)
            row.expect(got[i], want[i], [&] {
                return fmt::format("{} of {:#010x} ({:a})", name_of(options.policy.rounding),
                                   std::bit_cast<std::uint32_t>(x[i]), x[i]);
            });
    });
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
CheckRow compare_format(const CheckOptions& o, const FormatSpec& f) {
    CheckRow row{.part = "conversions",
                 .name = f.name,
                 .note = fmt::format("nearest_even: every {}th float, other roundings and saturation: every {}th",
                                     stride_of(o, true), stride_of(o, false))};
    for (std::size_t r = 0; r < rounding_names.size(); ++r)
        for (const Overflow overflow : {Overflow::infinity, Overflow::saturate_all}) {
            const BatchOptions options{.policy = {.rounding = static_cast<Rounding>(r), .overflow = overflow},
                                       .key = {.seed = 1, .stream = 2, .step = 3}};
            compare(row, f, options, stride_of(o, r == 0 && overflow == Overflow::infinity), true,
                    [&](const BatchOptions& here, std::span<const float> x, std::span<std::uint32_t> out) {
                        encode(o.device, f, x, out, here);
                    });
        }
    compare_rounded(o, f, row);
    if (f.bits() > 19) return row;
    std::vector<std::uint32_t> codes(std::size_t{1} << f.bits());
    std::iota(codes.begin(), codes.end(), 0U);
    std::vector<float> got(codes.size());
    decode(o.device, f, codes, got);
    for (const std::uint32_t code : codes)
        row.expect(std::bit_cast<std::uint32_t>(got[code]), std::bit_cast<std::uint32_t>(decode(f, code)),
                   [&] { return fmt::format("code {:#x}", code); });
    return row;
}

CheckRow compare_histogram(const CheckOptions& o) {
    CheckRow row{.part = "conversions", .name = "histogram of magnitudes"};
    for_floats(stride_of(o, true), [&](std::uint64_t first, const std::vector<float>& x) {
        MagnitudeCounter counter(DType::f32);
        const auto bytes = std::as_bytes(std::span(x));
        for (std::size_t at = 0; at < bytes.size(); at += sum_block * sizeof(float))
            counter.add(bytes.subspan(at, std::min(sum_block * sizeof(float), bytes.size() - at)));
        row.cases += static_cast<std::int64_t>(x.size()) - 1;
        row.expect(count_magnitudes(o.device, x) == counter.statistics().histogram, 1,
                   [&] { return fmt::format("floats from {:#010x} on", first); });
    });
    return row;
}

} // namespace

void check_conversions(DeviceCheck& check, const CheckProgress& progress) {
    const CheckOptions& o = check.options;
    const auto done = [&](CheckRow row) {
        progress(row);
        check.rows.push_back(std::move(row));
    };
    for (const FormatSpec& f : formats) done(compare_format(o, f));
    done(compare_histogram(o));
    const std::span<const NativeConversion> conversions = native_conversions();
    for (std::size_t i = 0; i < conversions.size() && !o.device.is_host(); ++i) {
        const NativeConversion& c = conversions[i];
        CheckRow row{.part = "conversions", .name = std::string(c.name)};
        if (o.device.capability() < c.capability)
            row.note = "by the header's code: this device has no such instruction";
        compare(row, format(c.format), {.policy = c.policy}, stride_of(o, true), c.negative,
                [&](const BatchOptions&, std::span<const float> x, std::span<std::uint32_t> out) {
                    encode_native(o.device, i, x, out);
                });
        done(row);
    }
}

} // namespace amp::crosscheck_tool
