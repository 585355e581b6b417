// The op Matmul: reads operands in the product's format, and handles scales, bias and the single rounding.
#include <ampscope/formats/batch.h>
#include <ampscope/sim/backend/cpu/detail/accumulate.h>
#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/fma.h>
#include <ampscope/sim/backend/kernels/matmul.h>

#include <bit>

namespace amp::op {

namespace {

constexpr FormatSpec fp32 = format("fp32");

/// The operand in the format in which the product reads it.
const float* read(Cpu& cpu, TensorId operand, const MatmulArithmetic& arithmetic, std::vector<float>& rounded) {
    const std::span<const float> values = cpu[operand];
    if (arithmetic.operands == fp32 || cpu.info(operand).format == arithmetic.operands) return values.data();
    rounded.resize(values.size());
    cpu::for_elements(cpu, cpu.info(operand).count(), [&](std::int64_t begin, std::int64_t end) {
        const auto at = static_cast<std::size_t>(begin), n = static_cast<std::size_t>(end - begin);
        quantize(arithmetic.operands, values.subspan(at, n), std::span(rounded).subspan(at, n),
                 {.policy = {.rounding = arithmetic.operand_rounding}});
    });
    return rounded.data();
}

/// The decode scales of one block along k, for each row of a or column of b.
std::vector<float> scales_at(const Cpu& cpu, const OperandScale& of, std::int64_t l, bool k_is_rows, std::int64_t k,
                             std::int64_t others) {
    const kernels::ScaleLines lines(of.scaling, k_is_rows, k, others);
    std::vector<float> scales;
    for (std::int64_t i = 0; i < others; ++i) scales.push_back(cpu[of.scale][static_cast<std::size_t>(lines.at(i, l))]);
    return scales;
}

/// total = sum * a's scale * b's scale, added to the total so far by a fused multiply-add unless it is the first.
struct ScaleKernel {
    AMPSCOPE_KERNEL void run(float a, const float* b, const float* sum, float* total, std::int64_t n, bool first) {
        for (std::int64_t j = 0; j < n; ++j) {
            const float d = first ? sum[j] * (a * b[j]) : detail::fma_in_double(sum[j], a * b[j], total[j]);
            total[j] = d != d ? std::bit_cast<float>(0x7fc00000) : d;
        }
    }
};

/// Adds the scaled sums of the block along k that begins at l.
void add_scaled(Cpu& cpu, const Matmul& op, const std::vector<float>& sum, std::int64_t l, float* total, int threads) {
    const std::vector<float> a = scales_at(cpu, op.a_scale, l, op.transpose_a, op.k, op.m),
                             b = scales_at(cpu, op.b_scale, l, !op.transpose_b, op.k, op.n);
    for_each_chunk(static_cast<std::uint64_t>(op.m), cpu::lines_at_once(op.n), threads,
                   [&](std::uint64_t begin, std::uint64_t end) {
                       for (std::size_t i = begin; i < end; ++i) {
                           const std::size_t row = i * static_cast<std::size_t>(op.n);
                           dispatch<ScaleKernel>(best_instruction_set(), a[i], b.data(), sum.data() + row, total + row,
                                                 op.n, l == 0);
                       }
                   });
}

/// The decode scales of an operand; those of a line along k are contiguous.
std::vector<float> scales_by_line(const Cpu& cpu, const OperandScale& of, bool k_is_rows, std::int64_t k,
                                  std::int64_t others, std::int64_t block) {
    const std::int64_t blocks = (k + block - 1) / block;
    std::vector<float> scales(static_cast<std::size_t>(others * blocks));
    for (std::int64_t s = 0; s < blocks; ++s) {
        const std::vector<float> of_block = scales_at(cpu, of, s * block, k_is_rows, k, others);
        for (std::int64_t i = 0; i < others; ++i)
            scales[static_cast<std::size_t>(i * blocks + s)] = of_block[static_cast<std::size_t>(i)];
    }
    return scales;
}

/// A product of scaled operands, as scaled_dot in formats/block.h defines it.
void multiply_scaled(Cpu& cpu, const Matmul& op, cpu::MatrixView a, cpu::MatrixView b, float* out, int threads) {
    const std::int64_t block = kernels::scaled_block(op);
    const Accumulator& acc = op.arithmetic.accumulate;
    const FormatSpec fa = cpu.info(op.a).format, fb = cpu.info(op.b).format;
    if (is_mx(op.a_scale.scaling.rule) && is_mx(op.b_scale.scaling.rule) && adds_mx_scales(acc, block)) {
        const std::vector<float> x = scales_by_line(cpu, op.a_scale, op.transpose_a, op.k, op.m, block),
                                 y = scales_by_line(cpu, op.b_scale, !op.transpose_b, op.k, op.n, block);
        return cpu::accumulate_mx(acc, fa, fb, a, b, x.data(), y.data(), out, op.m, op.n, op.k, threads);
    }
    constexpr std::int64_t small = 512; // of larger blocks, a pass over the sums costs little
    if (acc.is_fp32_chain() && block <= small) {
        const std::vector<float> x = scales_by_line(cpu, op.a_scale, op.transpose_a, op.k, op.m, block),
                                 y = scales_by_line(cpu, op.b_scale, !op.transpose_b, op.k, op.n, block);
        const std::int64_t blocks = (op.k + block - 1) / block;
        cpu::matmul(a, b, out, op.m, op.n, op.k, threads, best_instruction_set(),
                    {block, {x.data(), blocks, 1}, {y.data(), 1, blocks}});
    } else {
        std::vector<float> sum(static_cast<std::size_t>(op.m * op.n));
        for (std::int64_t l = 0; l < op.k; l += block) {
            cpu::accumulate(acc, fa, fb, a, b, sum.data(), op.m, op.n, std::min(block, op.k - l), threads);
            add_scaled(cpu, op, sum, l, out, threads);
            a.data += block * a.column_stride;
            b.data += block * b.row_stride;
        }
    }
    if (!op.a_scale.tensor_scale) return;
    const float scale = cpu[op.a_scale.tensor_scale][0] * cpu[op.b_scale.tensor_scale][0];
    for (std::int64_t i = 0; i < op.m * op.n; ++i) out[i] *= scale;
}

/// Adds the bias to rows of unrounded sums, then rounds them.
void finish(Cpu& cpu, const Matmul& op) {
    const float* const bias = op.bias ? cpu[op.bias].data() : nullptr;
    if (bias == nullptr && cpu.info(op.out).format == fp32) return;
    float* const out = cpu[op.out].data();
    for_each_chunk(static_cast<std::uint64_t>(op.batch * op.m), cpu::lines_at_once(op.n), cpu.threads(),
                   [&](std::uint64_t begin, std::uint64_t end) {
                       const auto first = static_cast<std::int64_t>(begin), last = static_cast<std::int64_t>(end);
                       if (bias != nullptr) {
                           for (std::int64_t i = first; i < last; ++i)
                               for (std::int64_t j = 0; j < op.n; ++j) out[i * op.n + j] += bias[j];
                           const std::span sums(out + first * op.n, static_cast<std::size_t>((last - first) * op.n));
                           quantize(op.arithmetic.accumulate.total(), sums, sums);
                       }
                       cpu::round_in_place(cpu, op.out, first * op.n, (last - first) * op.n);
                   });
}

} // namespace

void run(Cpu& cpu, const Matmul& op) {
    std::vector<float> rounded_a, rounded_b;
    const float* const a = read(cpu, op.a, op.arithmetic, rounded_a);
    const float* const b = read(cpu, op.b, op.arithmetic, rounded_b);
    float* const out = cpu[op.out].data();
    const auto product = [&](std::int64_t i, int threads) {
        const float *x = a + i * op.m * op.k, *y = b + i * op.k * op.n;
        const cpu::MatrixView left = op.transpose_a ? cpu::MatrixView{x, 1, op.m} : cpu::MatrixView{x, op.k, 1};
        const cpu::MatrixView right = op.transpose_b ? cpu::MatrixView{y, 1, op.k} : cpu::MatrixView{y, op.n, 1};
        float* const to = out + i * op.m * op.n;
        if (op.a_scale.scale) return multiply_scaled(cpu, op, left, right, to, threads);
        cpu::accumulate(op.arithmetic.accumulate, kernels::multiplied(op, cpu.info(op.a).format),
                        kernels::multiplied(op, cpu.info(op.b).format), left, right, to, op.m, op.n, op.k, threads);
    };
    if (op.batch == 1) {
        product(0, cpu.threads());
    } else { // one thread for each matrix, several matrices at once
        const std::uint64_t share = cpu::lines_at_once(op.m * op.n * op.k, cpu::grain * 16);
        for_each_chunk(static_cast<std::uint64_t>(op.batch), share, cpu.threads(),
                       [&](std::uint64_t begin, std::uint64_t end) {
                           for (auto i = static_cast<std::int64_t>(begin); i < static_cast<std::int64_t>(end); ++i)
                               product(i, 1);
                       });
    }
    finish(cpu, op);
}

} // namespace amp::op
