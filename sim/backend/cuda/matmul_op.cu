// The op Matmul: operands are read in the product's format, contiguous along k; then scales, bias and the single
// rounding.
#include <ampscope/formats/scaled_dot.h>
#include <ampscope/sim/backend/cuda/sums.cuh>
#include <ampscope/sim/backend/cuda/tensor_core.h>
#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/matmul.h>

#include <cmath>

namespace amp::op {

namespace {

/// The products of one Matmul: rows of a and columns of b, each with k contiguous numbers, matrix after matrix.
struct Product {
    Accumulator accumulate;
    FormatSpec a_format, b_format; ///< formats of the operands
    FormatSpec a_read, b_read;     ///< formats in which the accumulator reads them
    const float *a, *b;
    std::int64_t batch, m, n, k;

    /// Element `at` of the result is the product of row(at) and the next function's column.
    [[nodiscard]] constexpr std::span<const float> row(std::int64_t at) const {
        return {a + at / n * k, static_cast<std::size_t>(k)};
    }
    [[nodiscard]] constexpr std::span<const float> column(std::int64_t at) const {
        return {b + (at / (m * n) * n + at % n) * k, static_cast<std::size_t>(k)};
    }
};

/// Scales of the operands; those of a row or column are contiguous.
struct Scales {
    const float *a = nullptr, *b = nullptr; ///< null if there are none
    kernels::UpperFactors upper{};
    std::int64_t block = 0, blocks = 0; ///< without scales a sum is one block
    FormatSpec format{};                ///< of the scales

    [[nodiscard]] constexpr ScaledNumbers of_a(std::span<const float> x, std::int64_t row) const {
        return {x, {a + row * blocks, static_cast<std::size_t>(blocks)}};
    }
    [[nodiscard]] constexpr ScaledNumbers of_b(std::span<const float> x, std::int64_t column) const {
        return {x, {b + column * blocks, static_cast<std::size_t>(blocks)}};
    }
};

/// The operand in the format in which the product reads it: `others` lines along k, for each of op.batch matrices.
DeviceArray<float> read(Cuda& cuda, const Matmul& op, TensorId id, bool k_is_rows, std::int64_t others) {
    const float* const in = cuda.in(id);
    DeviceArray<float> packed(cuda.device(), static_cast<std::size_t>(cuda.info(id).count()));
    float* const out = packed.data();
    const FormatSpec format = kernels::multiplied(op, cuda.info(id).format);
    const Policy policy{.rounding = op.arithmetic.operand_rounding};
    const bool rounds = !(format == cuda.info(id).format);
    const std::int64_t k = op.k;
    cuda::each(cuda.device(), cuda.info(id).count(), [=] AMPSCOPE_DEVICE(std::int64_t at) {
        const std::int64_t matrix = at / (others * k), i = at / k % others, l = at % k;
        const float x = in[matrix * others * k + (k_is_rows ? l * others + i : i * k + l)];
        out[at] = rounds ? quantize(format, x, policy) : x;
    });
    return packed;
}

DeviceArray<float> read_scales(Cuda& cuda, const OperandScale& of, bool k_is_rows, std::int64_t k, std::int64_t others,
                               std::int64_t block) {
    const std::int64_t blocks = (k + block - 1) / block;
    const kernels::ScaleLines lines(of.scaling, k_is_rows, k, others);
    const float* const in = cuda.in(of.scale);
    DeviceArray<float> packed(cuda.device(), static_cast<std::size_t>(others * blocks));
    float* const out = packed.data();
    cuda::each(cuda.device(), others * blocks,
               [=] AMPSCOPE_DEVICE(std::int64_t at) { out[at] = in[lines.at(at / blocks, at % blocks * block)]; });
    return packed;
}

/// Computes sums by the definitions in formats/dot.h and scaled_dot.h, one thread for each; chains in FP32 by
/// instructions.
void multiply(const CudaDevice& device, const Product& p, const Scales& s, float* out) {
    const bool is_chain = p.accumulate.is_fp32_chain();
    cuda::each(device, p.batch * p.m * p.n, [=] AMPSCOPE_DEVICE(std::int64_t at) {
        const ScaledNumbers a = s.of_a(p.row(at), at / p.n), b = s.of_b(p.column(at), at % p.n);
        float sum = scaled_dot_as_read(p.accumulate, p.a_read, p.b_read, a, b, static_cast<std::size_t>(s.block),
                                       s.format, [&](std::span<const float> x, std::span<const float> y) {
                                           return is_chain ? cuda::fp32_chain(x, y)
                                                           : dot_as_read(p.accumulate, p.a_read, p.b_read, x, y, 0);
                                       });
        if (!s.upper.empty()) sum = s.upper.applied(sum, at / p.n, at % p.n);
        out[at] = kernels::named(sum);
    });
}

/// The same on tensor cores: one product for every block along k, added to the total with its scales. False if the
/// device has no instruction with these sums.
bool multiply_scaled_natively(const CudaDevice& device, const Product& p, const Scales& s, float* out) {
    if (applies_scales(p.accumulate, s.format, s.block)) return false;
    const DeviceArray<float> memory(device, static_cast<std::size_t>(p.m * p.n));
    const float* const sum = memory.data();
    for (std::int64_t i = 0; i < s.blocks; ++i) {
        const std::int64_t l = i * s.block;
        if (!multiply_on_tensor_cores(
                device, p.accumulate, p.a_format, p.b_format,
                {p.a + l, p.b + l, nullptr, memory.data(), 1, p.m, p.n, std::min(s.block, p.k - l), p.k}))
            return false;
        const bool last = i + 1 == s.blocks;
        cuda::each(device, p.m * p.n, [=] AMPSCOPE_DEVICE(std::int64_t at) {
            const float scale = s.a[at / p.n * s.blocks + i] * s.b[at % p.n * s.blocks + i];
            float total = i == 0 ? sum[at] * scale : std::fma(sum[at], scale, out[at]);
            if (last && !s.upper.empty()) total = s.upper.applied(total, at / p.n, at % p.n);
            out[at] = kernels::named(total);
        });
    }
    return true;
}

/// Computes a product of scaled operands; returns whether tensor cores did it.
bool multiply_scaled(Cuda& cuda, const Matmul& op, const Product& p, float* out) {
    const std::int64_t block = kernels::scaled_block(op);
    const DeviceArray<float> a = read_scales(cuda, op.a_scale, op.transpose_a, op.k, op.m, block),
                             b = read_scales(cuda, op.b_scale, !op.transpose_b, op.k, op.n, block);
    const Scales scales{.a = a.data(),
                        .b = b.data(),
                        .upper = {op, [&](TensorId id) { return cuda.in(id); }},
                        .block = block,
                        .blocks = (op.k + block - 1) / block,
                        .format = kernels::scales_of_product(op)};
    if (cuda.is_native() && multiply_scaled_natively(cuda.device(), p, scales, out)) return true;
    multiply(cuda.device(), p, scales, out);
    return false;
}

/// Adds the bias to unrounded sums, then rounds them.
void finish(Cuda& cuda, const Matmul& op) {
    if (!op.bias && cuda.info(op.out).format == format("fp32")) return;
    const float* const bias = op.bias ? cuda.in(op.bias) : nullptr;
    const FormatSpec total = op.arithmetic.accumulate.total();
    const std::int64_t n = op.n, matrix = op.m * n;
    const std::int64_t stride = op.bias && cuda.info(op.bias).count() > n ? n : 0; // of the bias, from matrix to matrix
    const cuda::Output to = cuda::output(cuda, op.out);
    cuda::each(cuda.device(), op.batch * op.m * n, [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const float sum = to.data[i];
        to.put(i, bias == nullptr ? sum : quantize(total, sum + bias[i / matrix * stride + i % n]));
    });
}

} // namespace

void run(Cuda& cuda, const Matmul& op) {
    const DeviceArray<float> a = read(cuda, op, op.a, op.transpose_a, op.m),
                             b = read(cuda, op, op.b, !op.transpose_b, op.n);
    const Accumulator& acc = op.arithmetic.accumulate;
    const FormatSpec fa = kernels::multiplied(op, cuda.info(op.a).format),
                     fb = kernels::multiplied(op, cuda.info(op.b).format);
    const Product p{acc, fa, fb, acc.reads(fa), acc.reads(fb), a.data(), b.data(), op.batch, op.m, op.n, op.k};
    float* const out = cuda.out(op.out);
    bool native = false;
    if (op.a_scale.scale) {
        native = multiply_scaled(cuda, op, p, out);
    } else {
        native = cuda.is_native() && multiply_on_tensor_cores(cuda.device(), acc, fa, fb,
                                                              {p.a, p.b, nullptr, out, p.batch, p.m, p.n, p.k, p.k});
        if (!native) multiply(cuda.device(), p, {.block = p.k}, out);
    }
    ++cuda.products;
    cuda.native_products += native ? 1 : 0;
    finish(cuda, op);
}

} // namespace amp::op
