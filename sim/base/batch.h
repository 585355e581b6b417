// The calls of formats/batch.h over whole arrays on several threads. Results do not depend on the number of threads.
#pragma once

#include <ampscope/formats/batch.h>

#include <cstdint>
#include <span>

namespace amp {

// As in formats/batch.h, on so many `threads`; 0: every core.
void quantize(const FormatSpec& format, std::span<const float> in, std::span<float> out, const BatchOptions& options,
              int threads);
void quantize(const FormatSpec& format, std::span<const double> in, std::span<float> out, const BatchOptions& options,
              int threads);

void encode(const FormatSpec& format, std::span<const float> in, std::span<std::uint8_t> out,
            const BatchOptions& options, int threads);
void encode(const FormatSpec& format, std::span<const float> in, std::span<std::uint16_t> out,
            const BatchOptions& options, int threads);
void encode(const FormatSpec& format, std::span<const float> in, std::span<std::uint32_t> out,
            const BatchOptions& options, int threads);

void decode(const FormatSpec& format, std::span<const std::uint8_t> in, std::span<float> out, NanRule nan, int threads);
void decode(const FormatSpec& format, std::span<const std::uint16_t> in, std::span<float> out, NanRule nan,
            int threads);
void decode(const FormatSpec& format, std::span<const std::uint32_t> in, std::span<float> out, NanRule nan,
            int threads);

void apply(Operation operation, const FormatSpec& format, std::span<const float> a, std::span<const float> b,
           std::span<const float> c, std::span<float> out, const BatchOptions& options, int threads);

} // namespace amp
