// Matrix products by a device's matrix instructions: mma.sync and, on compute capability 9.0, wgmma. Which row of
// formats/accumulator.h an instruction adds up as is a table here; amp-crosscheck compares them bit for bit.
//
// PTX ISA 9.0, sections 9.7.14 (mma) and 9.7.15 (wgmma).
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/sim/backend/cuda/device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace amp {

/// What an instruction multiplies: formats of a and b, and the format that it adds in.
enum class Mma : std::uint8_t {
    f16,
    f16_acc16,
    bf16,
    tf32,
    e4m3_e4m3,
    e4m3_e5m2,
    e5m2_e4m3,
    e5m2_e5m2,
    e4m3_e4m3_acc16,
    e4m3_e5m2_acc16,
    e5m2_e4m3_acc16,
    e5m2_e5m2_acc16
};

constexpr bool adds_in_fp16(Mma mma) { return mma == Mma::f16_acc16 || mma >= Mma::e4m3_e4m3_acc16; }

struct TensorCoreInstruction {
    Mma mma;
    bool warpgroup; ///< wgmma
    FormatSpec a, b;
    std::string accumulator; ///< the row of this device
    /// Products of one instruction: TF32 lies in 32 bits.
    [[nodiscard]] int k() const { return mma == Mma::tf32 ? 8 : 256 / a.bits(); }
    [[nodiscard]] bool acc16() const { return adds_in_fp16(mma); }
    /// "mma.sync m16n8k32 f32.e4m3.e5m2"
    [[nodiscard]] std::string name() const;
};

/// What a device of that compute capability has; the host has none, unless it is given one: then the model of an
/// instruction takes its place (tensor_core_host.cuh).
std::vector<TensorCoreInstruction> tensor_core_instructions(const CudaDevice& device);

/// out = a b + c for each of `batch` matrices, on the device: a is m x k, b is n x k (its columns side by side), c (may
/// be null: +0) and out are m x n.
struct TensorCoreProduct {
    const float *a, *b, *c;
    float* out;
    std::int64_t batch, m, n, k;
    std::int64_t stride; ///< from one line of a, or of b, to the next: at least k
};

/// Runs it: sums begin at c and run over all of k; with promote_every > 0 (a multiple of the instruction's k) they
/// begin anew after so many products and are added to a total in FP32, which begins at c. The numbers lie in the
/// instruction's formats (TF32 reads FP32), c in the format that it adds in. NaN as the hardware gives them.
void multiply_on_tensor_cores(const CudaDevice& device, const TensorCoreInstruction& instruction,
                              const TensorCoreProduct& product, std::int64_t promote_every = 0);

/// The same by the instruction that adds up as `accumulator` does, NaN by their one name; false where there is none.
bool multiply_on_tensor_cores(const CudaDevice& device, const Accumulator& accumulator, const FormatSpec& a_format,
                              const FormatSpec& b_format, const TensorCoreProduct& product);

} // namespace amp
