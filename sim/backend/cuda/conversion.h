// Conversions and counts of whole arrays on a device: the twins of formats/batch.h and of analysis/count.h.
#pragma once

#include <ampscope/formats/batch.h>
#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/backend/cuda/device.h>

#include <span>
#include <string_view>

namespace amp {

/// out[i] = in[i] rounded to the format, as formats/batch.h has it.
void quantize(const CudaDevice& device, const FormatSpec& format, std::span<const float> in, std::span<float> out,
              const BatchOptions& options = {});

/// out[i] = the code of in[i].
void encode(const CudaDevice& device, const FormatSpec& format, std::span<const float> in, std::span<std::uint32_t> out,
            const BatchOptions& options = {});

/// out[i] = the value of code in[i].
void decode(const CudaDevice& device, const FormatSpec& format, std::span<const std::uint32_t> in,
            std::span<float> out);

/// The exact histogram of magnitudes.
MagnitudeHistogram count_magnitudes(const CudaDevice& device, std::span<const float> in);

/// A conversion from FP32 as NVIDIA's headers give it on a device: one instruction from `capability` on, their code
/// below.
struct NativeConversion {
    std::string_view name, format;
    Policy policy; ///< with which encode() gives the same codes
    int capability;
    bool negative = true; ///< whether numbers below zero are defined
};
std::span<const NativeConversion> native_conversions();

/// out[i] = the code of in[i] by conversion `which` of native_conversions(). Not for the host.
void encode_native(const CudaDevice& device, std::size_t which, std::span<const float> in,
                   std::span<std::uint32_t> out);

/// Seconds that one pass over n numbers on the device takes, the least of some: quantize, and a copy to compare with.
struct ConversionTime {
    double quantize = 0, native = 0, copy = 0;
};
ConversionTime time_conversion(const CudaDevice& device, const FormatSpec& format, std::size_t n);

} // namespace amp
