// Conversions and arithmetic over spans: the fast twins of codec.h and arithmetic.h, equal to them bit for bit in every
// format, rounding and policy, whatever rounding mode or flush bits the calling thread has set.
//
// Spans of one call have equal length (the shortest bounds the work). They may be identical, but must not overlap
// otherwise. Element i of a call uses the random word of index first_index + i, so a long array may be processed in
// pieces.
#pragma once

#include <ampscope/formats/policy.h>
#include <ampscope/formats/random.h>
#include <ampscope/formats/spec.h>

#include <cstdint>
#include <span>

namespace amp {

/// How a call over a span rounds: the policy and, for stochastic rounding, where its random words come from.
struct BatchOptions {
    Policy policy{};
    RandomKey key{};
    std::uint64_t first_index = 0;
};

/// out[i] = in[i] rounded to the format, stored as a float.
void quantize(const FormatSpec& format, std::span<const float> in, std::span<float> out,
              const BatchOptions& options = {});
void quantize(const FormatSpec& format, std::span<const double> in, std::span<float> out,
              const BatchOptions& options = {});

/// out[i] = the code of in[i]. The code type must hold format.bits().
void encode(const FormatSpec& format, std::span<const float> in, std::span<std::uint8_t> out,
            const BatchOptions& options = {});
void encode(const FormatSpec& format, std::span<const float> in, std::span<std::uint16_t> out,
            const BatchOptions& options = {});
void encode(const FormatSpec& format, std::span<const float> in, std::span<std::uint32_t> out,
            const BatchOptions& options = {});

/// out[i] = the value of code in[i], exactly; higher bits of a code are ignored.
void decode(const FormatSpec& format, std::span<const std::uint8_t> in, std::span<float> out,
            NanRule nan = NanRule::canonical);
void decode(const FormatSpec& format, std::span<const std::uint16_t> in, std::span<float> out,
            NanRule nan = NanRule::canonical);
void decode(const FormatSpec& format, std::span<const std::uint32_t> in, std::span<float> out,
            NanRule nan = NanRule::canonical);

enum class Operation : std::uint8_t { add, sub, mul, div, sqrt, fma };

/// out[i] = operation(a[i], b[i], c[i]), correctly rounded to the format. Operands are floats whose values lie in the
/// format; sqrt reads a only, fma alone reads c.
void apply(Operation operation, const FormatSpec& format, std::span<const float> a, std::span<const float> b,
           std::span<const float> c, std::span<float> out, const BatchOptions& options = {});

} // namespace amp
