// The loops over arrays against the plain code for all 2^32 floats: quantize and encode with nearest-even; the other
// roundings on every 16th block of 4096 consecutive floats.
#include "sweep.h"

#include <ampscope/formats/batch.h>
#include <ampscope/formats/codec.h>

#include <array>

using namespace amp;
using namespace amp::test;

namespace {

constexpr std::size_t block = 4096;
constexpr std::uint64_t blocks = (std::uint64_t{1} << 32) / block;

/// Quantizes and encodes the floats whose bits begin at index * block.
template <class Code>
void check_block(const FormatSpec& f, const BatchOptions& options, std::uint64_t index, Tally& tally) {
    thread_local std::array<float, block> in, values;
    thread_local std::array<Code, block> codes;
    for (std::size_t i = 0; i < block; ++i) in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(index * block + i));
    quantize(f, in, values, options);
    encode(f, in, codes, options);
    for (std::size_t i = 0; i < block; ++i) {
        const bool random = options.policy.rounding == Rounding::stochastic;
        const std::uint32_t word = random ? options.key.word(options.first_index + i, options.policy.random_bits) : 0;
        const std::uint32_t code = encode(f, in[i], options.policy, word);
        const auto describe = [&] {
            return fmt::format("{}, rounding {}", Tally::show(in[i]), int(options.policy.rounding));
        };
        tally.expect(std::uint32_t{codes[i]}, code, describe);
        tally.expect(values[i], decode(f, code), describe);
    }
}

void check(const FormatSpec& f, const BatchOptions& options, std::uint64_t index, Tally& tally) {
    if (f.bits() <= 8) return check_block<std::uint8_t>(f, options, index, tally);
    if (f.bits() <= 16) return check_block<std::uint16_t>(f, options, index, tally);
    check_block<std::uint32_t>(f, options, index, tally);
}

} // namespace

TEST_CASE("all floats, plain against fast") {
    for (const char* name : {"fp32", "tf32", "fp16", "bf16", "e4m3", "e5m2"}) {
        const FormatSpec f = format(name);
        constexpr std::uint64_t others = rounding_names.size() - 1; // all but nearest-even
        prove(
            fmt::format("{} quantize and encode of all floats, plain against fast", name), blocks,
            [&](std::uint64_t i, Tally& tally) { check(f, {}, i, tally); }, shard());
        prove(
            fmt::format("{} quantize and encode in the other roundings, every 16th block", name), blocks / 16 * others,
            [&](std::uint64_t i, Tally& tally) {
                const auto rounding = static_cast<Rounding>(1 + i % others);
                const BatchOptions options{{.rounding = rounding}, {.seed = 17}, i * block};
                check(f, options, i / others * 16 + i % 16, tally);
            },
            shard());
    }
}
