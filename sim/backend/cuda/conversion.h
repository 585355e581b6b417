// Conversions and counts of whole arrays on a device: the counterparts of formats/batch.h and analysis/count.h.
#pragma once

#include <ampscope/formats/batch.h>
#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/backend/cuda/device.h>

#include <span>
#include <string_view>

namespace amp {

/// out[i] = in[i] rounded to the format, as in formats/batch.h.
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

/// A conversion from FP32 by NVIDIA's headers on a device: one instruction from compute capability `capability` on, the
/// headers' own code below it.
struct NativeConversion {
    std::string_view name, format;
    Policy policy; ///< encode() gives the same codes under it
    int capability;
    bool negative = true; ///< whether negative numbers have a defined result
    /// NaNs merely lose the bits that the format lacks: one whose payload lies below becomes an infinity (an H200).
    bool cuts_nans = false;
};
std::span<const NativeConversion> native_conversions();

/// out[i] = the code of in[i], converted by native_conversions()[which]. Not for the host.
void encode_native(const CudaDevice& device, std::size_t which, std::span<const float> in,
                   std::span<std::uint32_t> out);

/// Seconds for one pass over n numbers on the device, the least of several: quantize, native conversion, and a copy to
/// compare with.
struct ConversionTime {
    double quantize = 0, native = 0, copy = 0;
};
ConversionTime time_conversion(const CudaDevice& device, const FormatSpec& format, std::size_t n);

} // namespace amp
