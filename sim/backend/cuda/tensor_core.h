// Matrix products by a device's matrix instructions: mma.sync and, on compute capability 9.0, wgmma. A table here says
// which row of formats/accumulator.h describes each instruction's sums; amp-crosscheck compares the two bit for bit.
//
// PTX ISA 9.0, sections 9.7.14 (mma) and 9.7.15 (wgmma).
#pragma once

#include <ampscope/formats/accumulator.h>
#include <ampscope/sim/backend/cuda/device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace amp {

/// The formats of an instruction: those of a and b, and the one it adds in.
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
    bool warpgroup; ///< wgmma instead of mma.sync
    FormatSpec a, b;
    std::string accumulator; ///< the row of accumulator.h for this device
    /// Number of products of one instruction along k; a TF32 number takes 32 bits.
    [[nodiscard]] int k() const { return mma == Mma::tf32 ? 8 : 256 / a.bits(); }
    [[nodiscard]] bool acc16() const { return adds_in_fp16(mma); }
    /// Its name in words: "mma.sync m16n8k32 f32.e4m3.e5m2".
    [[nodiscard]] std::string name() const;
};

/// The instructions of a device of that compute capability. The host has none, unless it is given a capability: then
/// models take the place of the instructions (tensor_core_host.cuh).
std::vector<TensorCoreInstruction> tensor_core_instructions(const CudaDevice& device);

/// out = a b + c for each of `batch` matrices on the device: a is m x k, b is n x k (transposed, so its columns are
/// contiguous), c (null: +0) and out are m x n.
struct TensorCoreProduct {
    const float *a, *b, *c;
    float* out;
    std::int64_t batch, m, n, k;
    std::int64_t stride; ///< distance from one line of a, or of b, to the next: at least k
};

/// Computes the product. Sums begin at c and run over all of k. With promote_every > 0 (a multiple of the instruction's
/// k) they begin anew after so many products and are added to an FP32 total, which begins at c. Numbers are values of
/// the instruction's formats (TF32 reads FP32), c of the format it adds in. NaNs are as the hardware makes them.
void multiply_on_tensor_cores(const CudaDevice& device, const TensorCoreInstruction& instruction,
                              const TensorCoreProduct& product, std::int64_t promote_every = 0);

/// The same with the instruction whose sums are those of `accumulator`; every NaN is 0x7fc00000. False if there is
/// none.
bool multiply_on_tensor_cores(const CudaDevice& device, const Accumulator& accumulator, const FormatSpec& a_format,
                              const FormatSpec& b_format, const TensorCoreProduct& product);

} // namespace amp
