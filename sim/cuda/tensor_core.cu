#include <ampscope/sim/cuda/tensor_core.h>

#include <ampscope/formats/codec.h>
#include <ampscope/sim/cuda/launch.cuh>
#include <ampscope/sim/cuda/mma.cuh>

namespace amp {

namespace {

struct Multiplication {
    Mma mma;
    std::string_view a, b, row; ///< the last part of the row's name
};

constexpr Multiplication multiplications[] = {{Mma::f16, "fp16", "fp16", "fp16"},
                                              {Mma::f16_acc16, "fp16", "fp16", "fp16-acc16"},
                                              {Mma::bf16, "bf16", "bf16", "bf16"},
                                              {Mma::tf32, "tf32", "tf32", "tf32"},
                                              {Mma::e4m3_e4m3, "e4m3", "e4m3", "fp8"},
                                              {Mma::e4m3_e5m2, "e4m3", "e5m2", "fp8"},
                                              {Mma::e5m2_e4m3, "e5m2", "e4m3", "fp8"},
                                              {Mma::e5m2_e5m2, "e5m2", "e5m2", "fp8"},
                                              {Mma::e4m3_e4m3_acc16, "e4m3", "e4m3", "fp8-acc16"},
                                              {Mma::e4m3_e5m2_acc16, "e4m3", "e5m2", "fp8-acc16"},
                                              {Mma::e5m2_e4m3_acc16, "e5m2", "e4m3", "fp8-acc16"},
                                              {Mma::e5m2_e5m2_acc16, "e5m2", "e5m2", "fp8-acc16"}};

bool is_fp8(Mma mma) { return mma >= Mma::e4m3_e4m3; }

/// The row of accumulator.h that an instruction adds up as; empty where the device lacks it.
std::string row_of(const Multiplication& kind, bool warpgroup, int capability) {
    const std::string rest(kind.row);
    if (warpgroup) return capability == 90 ? "hopper-wgmma-" + rest : "";
    if (!is_fp8(kind.mma)) {
        const char* const family = capability < 89    ? "ampere-"
                                   : capability < 90  ? "ada-"
                                   : capability < 100 ? "hopper-"
                                                      : "blackwell-";
        return family + rest;
    }
    if (capability < 89) return "";
    // Ada has a row for each format, and none for two at once.
    if (capability < 90) return kind.a == kind.b ? "ada-" + std::string(kind.a) + rest.substr(3) : "";
    return (capability < 120 ? "hopper-mma-" : "blackwell-") + rest; // data centre Blackwell converts as Hopper does
}

} // namespace

std::string TensorCoreInstruction::name() const {
    const auto ptx = [](const FormatSpec& f) { return std::string(f.name) == "fp16" ? "f16" : std::string(f.name); };
    const int k = 32 / (a.bits() == 19 ? 4 : (a.bits() + 7) / 8); // TF32 lies in 32 bits
    return (warpgroup ? "wgmma m64n8k" : "mma.sync m16n8k") + std::to_string(k) + (acc16() ? " f16." : " f32.") +
           ptx(a) + "." + ptx(b);
}

std::vector<TensorCoreInstruction> tensor_core_instructions(const CudaDevice& device) {
    std::vector<TensorCoreInstruction> found;
    if (device.is_host()) return found;
    for (const bool warpgroup : {false, true})
        for (const Multiplication& kind : multiplications)
            if (const std::string row = row_of(kind, warpgroup, device.capability()); !row.empty())
                found.push_back({kind.mma, warpgroup, format(kind.a), format(kind.b), row});
    return found;
}

bool multiply_on_tensor_cores(const CudaDevice& device, const Accumulator& accumulator, const FormatSpec& a_format,
                              const FormatSpec& b_format, const TensorCoreProduct& product) {
    std::string_view row = accumulator.name;
    const int promote_every = detail::take_promotion(row);
    if (accumulator.method != Accumulation::fused) return false;
    const auto reads = [&](const FormatSpec& f) { return accumulator.interleaved ? f : accumulator.reads(f); };
    for (const TensorCoreInstruction& i : tensor_core_instructions(device)) {
        if (i.accumulator != row || !(i.a == reads(a_format)) || !(i.b == reads(b_format))) continue;
        multiply_on_tensor_cores(device, i, product, promote_every);
        float* const out = product.out;
        cuda::each(device, product.batch * product.m * product.n, [=] AMPSCOPE_DEVICE(std::int64_t at) {
            if (out[at] != out[at]) out[at] = std::bit_cast<float>(0x7fc00000);
        });
        return true;
    }
    return false;
}

#if defined(__CUDACC__)

namespace cuda {
namespace {

/// Operands as words, and where the sums go. Lines are padded with zeros to whole tiles and whole steps.
struct Tiles {
    const std::uint32_t *a, *b; ///< batch x lines x words
    const float* c;
    float* out;
    std::int64_t batch, m, n, a_lines, b_lines, words, promote_words;
};

/// The codes of lines of k numbers.
DeviceArray<std::uint32_t> pack(const CudaDevice& device, const FormatSpec& format, const float* in, std::int64_t batch,
                                std::int64_t lines, std::int64_t padded, std::int64_t k, std::int64_t words) {
    DeviceArray<std::uint32_t> packed(device, static_cast<std::size_t>(batch * padded * words));
    std::uint32_t* const out = packed.data();
    const int bits = format.exponent_bits == 8 && format.fraction_bits == 10 ? 32 : format.bits();
    each(device, batch * padded * words, [=] AMPSCOPE_DEVICE(std::int64_t at) {
        const std::int64_t line = at / words % padded, matrix = at / (words * padded), first = at % words * (32 / bits);
        std::uint32_t word = 0;
        for (std::int64_t e = 0; e < 32 / bits; ++e) {
            if (line >= lines || first + e >= k) continue;
            const float x = in[(matrix * lines + line) * k + first + e];
            const std::uint32_t code = bits == 32 ? std::bit_cast<std::uint32_t>(x) : encode(format, x);
            word |= code << (e * bits);
        }
        out[at] = word;
    });
    return packed;
}

/// A thread's sums: their rows and columns, and how they begin and end.
template <bool acc16>
struct Tile {
    std::int64_t matrix, row, column; ///< of the first; the others are 8 rows below and one column to the right

    using Sums = cuda::Sums<acc16>;

    __device__ void begin(const Tiles& t, Sums& sums) const {
        float first[4];
        for (int i = 0; i < 4; ++i) first[i] = t.c != nullptr && has(t, i) ? t.c[place_of(t, i)] : 0.0F;
        set(sums, first);
    }
    __device__ static void set(Sums& sums, const float (&x)[4]) {
        if constexpr (acc16) {
            constexpr FormatSpec fp16 = format("fp16");
            for (int i = 0; i < 2; ++i) sums.half[i] = encode(fp16, x[2 * i]) | encode(fp16, x[2 * i + 1]) << 16;
        } else {
            for (int i = 0; i < 4; ++i) sums.single[i] = x[i];
        }
    }
    __device__ static float get(const Sums& sums, int i) {
        if constexpr (acc16) {
            constexpr FormatSpec fp16 = format("fp16");
            return decode(fp16, sums.half[i / 2] >> (i % 2 * 16) & 0xffff, NanRule::all_ones);
        } else {
            return sums.single[i];
        }
    }
    /// What an instruction has added goes into the totals, and it begins anew.
    __device__ static void promote(Sums& sums, float (&totals)[4]) {
        const float zeros[4]{};
        for (int i = 0; i < 4; ++i) totals[i] += get(sums, i);
        set(sums, zeros);
    }
    __device__ void end(const Tiles& t, const float (&values)[4]) const {
        for (int i = 0; i < 4; ++i)
            if (has(t, i)) t.out[place_of(t, i)] = values[i];
    }

  private:
    __device__ bool has(const Tiles& t, int i) const { return row + i / 2 * 8 < t.m && column + i % 2 < t.n; }
    __device__ std::int64_t place_of(const Tiles& t, int i) const {
        return (matrix * t.m + row + i / 2 * 8) * t.n + column + i % 2;
    }
};

/// The sums of a tile: step(w, sums) adds the products of eight words from word w on.
template <bool acc16, class Step>
__device__ void sum_tile(const Tiles& t, const Tile<acc16>& tile, const Step& step) {
    Sums<acc16> sums;
    float values[4]{};
    tile.begin(t, sums);
    if (t.promote_words != 0) Tile<acc16>::promote(sums, values); // the totals begin at c
    for (std::int64_t w = 0; w < t.words; w += words_per_step) {
        step(w, sums);
        const std::int64_t done = w + words_per_step;
        if (t.promote_words != 0 && (done % t.promote_words == 0 || done == t.words))
            Tile<acc16>::promote(sums, values);
    }
    for (int i = 0; i < 4 && t.promote_words == 0; ++i) values[i] = Tile<acc16>::get(sums, i);
    tile.end(t, values);
}

/// A warp a tile of 16 x 8.
template <Mma mma>
__global__ void mma_kernel(Tiles t) {
    const std::int64_t tile_rows = t.a_lines / 16, tile_columns = t.b_lines / 8;
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * 4 + threadIdx.x / 32;
    if (at >= t.batch * tile_rows * tile_columns) return;
    const int g = static_cast<int>(threadIdx.x % 32) / 4, quad = static_cast<int>(threadIdx.x % 4);
    const std::int64_t matrix = at / (tile_rows * tile_columns), i = at / tile_columns % tile_rows * 16,
                       j = at % tile_columns * 8;
    const std::uint32_t* const a = t.a + (matrix * t.a_lines + i + g) * t.words + quad;
    const std::uint32_t* const b = t.b + (matrix * t.b_lines + j + g) * t.words + quad;
    sum_tile(t, Tile<adds_in_fp16(mma)>{matrix, i + g, j + 2 * quad}, [&](std::int64_t w, auto& sums) {
        const std::uint32_t x[4] = {a[w], a[8 * t.words + w], a[w + 4], a[8 * t.words + w + 4]};
        const std::uint32_t y[2] = {b[w], b[w + 4]};
        multiply_add<mma>(sums, x, y);
    });
}

/// A warpgroup a tile of 64 x 8.
template <Mma mma>
__global__ void __launch_bounds__(128) wgmma_kernel(Tiles t) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ alignas(128) std::uint32_t a_step[64 * words_per_step], b_step[8 * words_per_step];
    const std::int64_t tile_rows = t.a_lines / 64, tile_columns = t.b_lines / 8, at = blockIdx.x;
    const std::int64_t matrix = at / (tile_rows * tile_columns), i = at / tile_columns % tile_rows * 64,
                       j = at % tile_columns * 8;
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const std::uint32_t* const a = t.a + (matrix * t.a_lines + i) * t.words;
    const std::uint32_t* const b = t.b + (matrix * t.b_lines + j) * t.words;
    const Tile<adds_in_fp16(mma)> tile{matrix, i + thread / 32 * 16 + lane / 4, j + lane % 4 * 2};
    sum_tile(t, tile, [&](std::int64_t w, auto& sums) {
        __syncthreads();
        for (int l = thread; l < 64 * words_per_step; l += 128)
            a_step[place(l / words_per_step, l % words_per_step)] =
                a[l / words_per_step * t.words + w + l % words_per_step];
        if (thread < 8 * words_per_step)
            b_step[place(thread / words_per_step, thread % words_per_step)] =
                b[thread / words_per_step * t.words + w + thread % words_per_step];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); // ordinary stores, read by the matrix unit
        __syncthreads();
        multiply_add<mma>(sums, descriptor(a_step), descriptor(b_step));
    });
#else
    static_cast<void>(t);
#endif
}

template <Mma mma>
void launch(const Tiles& t, bool warpgroup) {
    const std::int64_t tiles = t.batch * (t.a_lines / (warpgroup ? 64 : 16)) * (t.b_lines / 8);
    if (warpgroup) wgmma_kernel<mma><<<static_cast<unsigned>(tiles), 128>>>(t);
    else mma_kernel<mma><<<static_cast<unsigned>((tiles + 3) / 4), 128>>>(t);
    check(cudaGetLastError(), "launch");
}

} // namespace
} // namespace cuda

void multiply_on_tensor_cores(const CudaDevice& device, const TensorCoreInstruction& instruction,
                              const TensorCoreProduct& p, std::int64_t promote_every) {
    const auto up = [](std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; };
    const std::int64_t bytes = instruction.mma == Mma::tf32 ? 4 : is_fp8(instruction.mma) ? 1 : 2;
    const std::int64_t words = up(p.k * bytes, 32) / 4, a_lines = up(p.m, 64), b_lines = up(p.n, 8);
    if (p.batch * p.m * p.n == 0) return;
    cuda::check(cudaSetDevice(device.number), "cudaSetDevice");
    const DeviceArray<std::uint32_t> a = cuda::pack(device, instruction.a, p.a, p.batch, p.m, a_lines, p.k, words);
    const DeviceArray<std::uint32_t> b = cuda::pack(device, instruction.b, p.b, p.batch, p.n, b_lines, p.k, words);
    const cuda::Tiles t{
        a.data(), b.data(), p.c, p.out, p.batch, p.m, p.n, a_lines, b_lines, words, promote_every * bytes / 4};
    const auto launch = [&]<int... i>(std::integer_sequence<int, i...>) {
        ((static_cast<int>(instruction.mma) == i ? cuda::launch<static_cast<Mma>(i)>(t, instruction.warpgroup)
                                                 : static_cast<void>(0)),
         ...);
    };
    launch(std::make_integer_sequence<int, static_cast<int>(std::size(multiplications))>{});
}

#else

void multiply_on_tensor_cores(const CudaDevice&, const TensorCoreInstruction&, const TensorCoreProduct&, std::int64_t) {
}

#endif

} // namespace amp
