#include <ampscope/sim/backend/cuda/tensor_core.h>

#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/cuda/launch.cuh>
#include <ampscope/sim/backend/cuda/mma.cuh>
#include <ampscope/sim/backend/cuda/tensor_core_host.cuh>

namespace amp {

namespace {

struct Multiplication {
    Mma mma;
    std::string_view a, b;
};

constexpr Multiplication multiplications[] = {{Mma::f16, "fp16", "fp16"},
                                              {Mma::f16_acc16, "fp16", "fp16"},
                                              {Mma::bf16, "bf16", "bf16"},
                                              {Mma::tf32, "tf32", "tf32"},
                                              {Mma::e4m3_e4m3, "e4m3", "e4m3"},
                                              {Mma::e4m3_e5m2, "e4m3", "e5m2"},
                                              {Mma::e5m2_e4m3, "e5m2", "e4m3"},
                                              {Mma::e5m2_e5m2, "e5m2", "e5m2"},
                                              {Mma::e4m3_e4m3_acc16, "e4m3", "e4m3"},
                                              {Mma::e4m3_e5m2_acc16, "e4m3", "e5m2"},
                                              {Mma::e5m2_e4m3_acc16, "e5m2", "e4m3"},
                                              {Mma::e5m2_e5m2_acc16, "e5m2", "e5m2"}};

/// The row of accumulator.h for an instruction's sums; empty if the device lacks the instruction, and for two different
/// FP8 formats on Ada, where there is a row for each format but none for both.
std::string row_of(const Multiplication& kind, bool warpgroup, int capability) {
    std::string instruction = capability < 89    ? "ampere"
                              : capability < 90  ? "ada"
                              : capability < 100 ? "hopper"
                                                 : "blackwell";
    // Only Hopper has wgmma. Hopper's and the B200's mma.sync first converts FP8 to FP16; RTX Blackwell's does not.
    const bool fp8 = kind.mma >= Mma::e4m3_e4m3;
    if (warpgroup) instruction += "-wgmma";
    else if (fp8 && capability >= 90 && capability < 120) instruction += "-mma";
    for (const HardwareRow& row : hardware_rows) {
        if (row.instruction() != instruction || !row.multiplies(format(kind.a)) || !row.multiplies(format(kind.b)))
            continue;
        if (!adds_in_fp16(kind.mma)) return std::string(row.name);
        return row.acc16.empty() ? "" : std::string(row.name) + "-acc16";
    }
    return "";
}

} // namespace

std::string TensorCoreInstruction::name() const {
    const auto ptx = [](const FormatSpec& f) { return std::string(f.name) == "fp16" ? "f16" : std::string(f.name); };
    return (warpgroup ? "wgmma m64n8k" : "mma.sync m16n8k") + std::to_string(k()) + (acc16() ? " f16." : " f32.") +
           ptx(a) + "." + ptx(b);
}

std::vector<TensorCoreInstruction> tensor_core_instructions(const CudaDevice& device) {
    std::vector<TensorCoreInstruction> found;
    if (device.capability() < 80) return found;
    for (const bool warpgroup : {false, true})
        for (const Multiplication& kind : multiplications)
            if (const std::string row = row_of(kind, warpgroup, device.capability()); !row.empty())
                found.push_back({kind.mma, warpgroup, format(kind.a), format(kind.b), row});
    return found;
}

bool multiply_on_tensor_cores(const CudaDevice& device, const Accumulator& accumulator, const FormatSpec& a_format,
                              const FormatSpec& b_format, const TensorCoreProduct& product) {
    if (accumulator.method != Accumulation::fused || accumulator.parts > 1) return false;
    const auto reads = [&](const FormatSpec& f) { return accumulator.interleaved ? f : accumulator.reads(f); };
    for (const TensorCoreInstruction& i : tensor_core_instructions(device)) {
        if (i.accumulator != accumulator.row() || !(i.a == reads(a_format)) || !(i.b == reads(b_format))) continue;
        multiply_on_tensor_cores(device, i, product, accumulator.promote_every);
        float* const out = product.out;
        cuda::each(device, product.batch * product.m * product.n, [=] AMPSCOPE_DEVICE(std::int64_t at) {
            if (out[at] != out[at]) out[at] = std::bit_cast<float>(0x7fc00000);
        });
        return true;
    }
    return false;
}

namespace cuda {
namespace {

/// Packs the codes of lines of k numbers.
DeviceArray<std::uint32_t> pack(const CudaDevice& device, const FormatSpec& format, const float* in, std::int64_t batch,
                                std::int64_t lines, std::int64_t padded, std::int64_t k, std::int64_t stride,
                                std::int64_t words) {
    DeviceArray<std::uint32_t> packed(device, static_cast<std::size_t>(batch * padded * words));
    std::uint32_t* const out = packed.data();
    const int bits = format.bits() == 19 ? 32 : format.bits(); // TF32 takes 32 bits; hardware reads 19 of them
    each(device, batch * padded * words, [=] AMPSCOPE_DEVICE(std::int64_t at) {
        const std::int64_t line = at / words % padded, matrix = at / (words * padded), first = at % words * (32 / bits);
        std::uint32_t word = 0;
        for (std::int64_t e = 0; e < 32 / bits; ++e) {
            if (line >= lines || first + e >= k) continue;
            const float x = in[(matrix * lines + line) * stride + first + e];
            word |= (bits == 32 ? std::bit_cast<std::uint32_t>(x) : encode(format, x)) << (e * bits);
        }
        out[at] = word;
    });
    return packed;
}

#if defined(__CUDACC__)

/// One warp for each tile of 16 x 8.
template <Mma mma>
__global__ void mma_kernel(Tiles t, std::int64_t tiles) {
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * 4 + threadIdx.x / 32;
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (at >= tiles) return;
    const TilePlace tile(t, 16, at);
    Thread<adds_in_fp16(mma)> threads[1] = {{tile, lane}};
    sum_tile(t, threads, [&](std::int64_t w) { multiply_add<mma>(threads[0].sums, Fragments(t, tile, lane, w)); });
}

/// One warpgroup for each tile of 64 x 8.
template <Mma mma>
__global__ void __launch_bounds__(128) wgmma_kernel(Tiles t) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ alignas(128) std::uint32_t a_shared[64 * words_per_step], b_shared[8 * words_per_step];
    const TilePlace tile(t, 64, blockIdx.x);
    const int thread = static_cast<int>(threadIdx.x);
    Thread<adds_in_fp16(mma)> threads[1] = {{tile, thread}};
    sum_tile(t, threads, [&](std::int64_t w) {
        __syncthreads();
        bring(tile.a(t), t.words, w, 64, thread, a_shared);
        bring(tile.b(t), t.words, w, 8, thread, b_shared);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); // makes ordinary stores visible to the matrix unit
        __syncthreads();
        multiply_add<mma>(threads[0].sums, descriptor(a_shared), descriptor(b_shared));
    });
#else
    static_cast<void>(t);
#endif
}

template <Mma mma>
void launch(const Tiles& t, bool warpgroup) {
    const std::int64_t tiles = t.batch * (t.a_lines / (warpgroup ? 64 : 16)) * (t.b_lines / 8);
    if (warpgroup) wgmma_kernel<mma><<<static_cast<unsigned>(tiles), 128>>>(t);
    else mma_kernel<mma><<<static_cast<unsigned>((tiles + 3) / 4), 128>>>(t, tiles);
    check(cudaGetLastError(), "launch");
}

#endif

} // namespace
} // namespace cuda

void multiply_on_tensor_cores(const CudaDevice& device, const TensorCoreInstruction& instruction,
                              const TensorCoreProduct& p, std::int64_t promote_every) {
    const auto up = [](std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; };
    const std::int64_t bytes = 32 / instruction.k();
    const std::int64_t words = up(p.k * bytes, 32) / 4, a_lines = up(p.m, 64), b_lines = up(p.n, 8);
    if (p.batch * p.m * p.n == 0) return;
    const DeviceArray<std::uint32_t> a =
        cuda::pack(device, instruction.a, p.a, p.batch, p.m, a_lines, p.k, p.stride, words);
    const DeviceArray<std::uint32_t> b =
        cuda::pack(device, instruction.b, p.b, p.batch, p.n, b_lines, p.k, p.stride, words);
    const cuda::Tiles t{
        a.data(), b.data(), p.c, p.out, p.batch, p.m, p.n, a_lines, b_lines, words, promote_every * bytes / 4};
    if (device.is_host())
        return instruction.acc16() ? cuda::run_on_host<true>(instruction, t) : cuda::run_on_host<false>(instruction, t);
#if defined(__CUDACC__)
    const auto launch = [&]<int... i>(std::integer_sequence<int, i...>) {
        ((static_cast<int>(instruction.mma) == i ? cuda::launch<static_cast<Mma>(i)>(t, instruction.warpgroup)
                                                 : static_cast<void>(0)),
         ...);
    };
    launch(std::make_integer_sequence<int, static_cast<int>(std::size(multiplications))>{});
#endif
}

} // namespace amp
