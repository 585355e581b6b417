#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/reduce.h>

namespace amp::op {

using namespace kernels;

namespace {

struct RowKernel {
    AMPSCOPE_KERNEL void run(const float* row, const float* sum, double* wide, std::int64_t n) {
        for (std::int64_t j = 0; j < n; ++j) wide[j] = static_cast<double>(sum[j]) + row[j];
    }
};

/// For sums in FP32, which need no double.
struct SingleKernel {
    AMPSCOPE_KERNEL void run(const float* in, std::int64_t rows, std::int64_t stride, double* wide, std::int64_t n) {
        float sum[cpu::block];
        for (std::int64_t j = 0; j < n; ++j) sum[j] = 0;
        for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < n; ++j) sum[j] += in[i * stride + j];
        for (std::int64_t j = 0; j < n; ++j) wide[j] = sum[j];
    }
};

} // namespace

void run(Cpu& cpu, const Reduce& op) {
    const std::int64_t results = cpu.info(op.out).count(), columns = results / op.batch;
    const std::int64_t rows = cpu.info(op.in).count() / results;
    const InstructionSet set = best_instruction_set();
    /// Results from number `at` on, all of one matrix.
    const auto some = [&](std::int64_t at, std::int64_t n) {
        const std::int64_t j = at % columns;
        const float* const in = cpu[op.in].data() + at / columns * rows * columns;
        alignas(64) double wide[cpu::block];
        if (op.accumulate == fp32_format()) {
            dispatch<SingleKernel>(set, in + j, rows, columns, &wide[0], n);
        } else {
            alignas(64) float sum[cpu::block]{};
            for (std::int64_t i = 0; i < rows; ++i) {
                dispatch<RowKernel>(set, in + i * columns + j, static_cast<const float*>(sum), &wide[0], n);
                cpu::round_wide(op.accumulate, wide, sum, n);
            }
            std::copy_n(sum, n, wide);
        }
        if (op.kind == ReduceKind::mean)
            for (std::int64_t i = 0; i < n; ++i) wide[i] /= static_cast<double>(rows);
        cpu::store(cpu, op.out, at, wide, n);
    };
    const std::int64_t share = std::clamp<std::int64_t>(cpu::grain / (rows + 1), 16, cpu::block);
    for_each_chunk(static_cast<std::uint64_t>(results), static_cast<std::uint64_t>(share), cpu.threads(),
                   [&](std::uint64_t begin, std::uint64_t end) {
                       const auto last = static_cast<std::int64_t>(end);
                       for (auto at = static_cast<std::int64_t>(begin), n = at; at < last; at += n) {
                           n = std::min(last - at, columns - at % columns);
                           some(at, n);
                       }
                   });
}

} // namespace amp::op
