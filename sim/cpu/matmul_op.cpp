// The op Matmul: operands as the product reads them, chains in any accumulator, bias and the one rounding.
#include <ampscope/formats/batch.h>
#include <ampscope/sim/cpu/accumulate.h>
#include <ampscope/sim/cpu/wide.h>

namespace amp {

namespace {

constexpr FormatSpec fp32 = format("fp32");

/// The operand as the product reads it.
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

/// Adds the bias to rows of unrounded sums and rounds them.
void finish(Cpu& cpu, const Matmul& op) {
    const float* const bias = op.bias ? cpu[op.bias].data() : nullptr;
    if (bias == nullptr && cpu.info(op.out).format == fp32) return;
    const std::int64_t rows = op.batch * op.m, share = std::max<std::int64_t>(1, cpu::grain / op.n);
    float* const out = cpu[op.out].data();
    for_each_chunk(static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(share), cpu.threads(),
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
    const auto multiplied = [&](TensorId x) {
        return op.arithmetic.operands == fp32 ? cpu.info(x).format : op.arithmetic.operands;
    };
    const auto product = [&](std::int64_t i, int threads) {
        const float *x = a + i * op.m * op.k, *y = b + i * op.k * op.n;
        const cpu::MatrixView left = op.transpose_a ? cpu::MatrixView{x, 1, op.m} : cpu::MatrixView{x, op.k, 1};
        const cpu::MatrixView right = op.transpose_b ? cpu::MatrixView{y, 1, op.k} : cpu::MatrixView{y, op.n, 1};
        float* const to = out + i * op.m * op.n;
        cpu::accumulate(op.arithmetic.accumulate, multiplied(op.a), multiplied(op.b), left, right, to, op.m, op.n, op.k,
                        threads);
    };
    if (op.batch == 1) {
        product(0, cpu.threads());
    } else { // a matrix on one thread, so that threads take several
        const std::int64_t share = cpu::grain * 16 / (op.m * op.n * op.k + 1) + 1;
        for_each_chunk(static_cast<std::uint64_t>(op.batch), static_cast<std::uint64_t>(share), cpu.threads(),
                       [&](std::uint64_t begin, std::uint64_t end) {
                           for (auto i = static_cast<std::int64_t>(begin); i < static_cast<std::int64_t>(end); ++i)
                               product(i, 1);
                       });
    }
    finish(cpu, op);
}

} // namespace amp
