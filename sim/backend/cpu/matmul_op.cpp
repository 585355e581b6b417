// The op Matmul: reads operands in the product's format, and handles scales, bias and the single rounding.
#include <ampscope/formats/batch.h>
#include <ampscope/sim/backend/cpu/detail/accumulate.h>
#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/fma.h>
#include <ampscope/sim/backend/kernels/matmul.h>
#include <ampscope/sim/base/batch.h>

#include <bit>

namespace amp::op {

namespace {

constexpr FormatSpec fp32 = format("fp32");

/// An operand in the format in which the product reads it: matrices of rows x columns numbers, or transposed.
struct Operand {
    std::vector<float> rounded{};
    cpu::MatrixView first{};

    Operand(Cpu& cpu, TensorId id, const Matmul& op, std::int64_t columns, bool transposed) {
        const FormatSpec& wanted = op.arithmetic.operands;
        const FormatSpec& held = cpu.info(id).format;
        const bool as_held = wanted == fp32 || wanted == held;
        first = {.data = nullptr, .row_stride = columns, .column_stride = 1, .format = held};
        if (transposed) std::swap(first.row_stride, first.column_stride);
        if (as_held && op.arithmetic.accumulate.is_fp32_chain() && !op.a_scale.scale) first.encoded = cpu.encoded(id);
        if (first.encoded != nullptr) return;
        cpu.decode(id);
        const std::span<const float> values = cpu[id];
        first.data = values.data();
        if (as_held) return;
        rounded.resize(values.size());
        quantize(wanted, values, rounded, {.policy = {.rounding = op.arithmetic.operand_rounding}}, cpu.threads());
        first.data = rounded.data();
    }

    /// The matrix that begins `offset` numbers later.
    [[nodiscard]] cpu::MatrixView at(std::int64_t offset) const {
        cpu::MatrixView x = first;
        if (x.encoded != nullptr) x.encoded += offset;
        else x.data += offset;
        return x;
    }
};

/// The decode scales of the operands, for each block along k; those of a line along k are contiguous.
class Scales {
  public:
    Scales(const Cpu& cpu, const Matmul& op) {
        if (!op.a_scale.scale) return;
        block_ = kernels::scaled_block(op);
        blocks_ = (op.k + block_ - 1) / block_;
        a_ = by_line(cpu, op.a_scale, op.transpose_a, op.k, op.m);
        b_ = by_line(cpu, op.b_scale, !op.transpose_b, op.k, op.n);
    }
    [[nodiscard]] cpu::BlockScales of_chain() const {
        return {block_, {a_.data(), blocks_, 1}, {b_.data(), 1, blocks_}};
    }
    [[nodiscard]] cpu::ProductScalesView view(const FormatSpec& format) const {
        return {a_.data(), b_.data(), format, block_};
    }

  private:
    [[nodiscard]] std::vector<float> by_line(const Cpu& cpu, const OperandScale& of, bool k_is_rows, std::int64_t k,
                                             std::int64_t others) const {
        const kernels::ScaleLines lines(of.scaling, k_is_rows, k, others);
        const std::span<const float> scales = cpu[of.scale];
        std::vector<float> sorted;
        sorted.reserve(static_cast<std::size_t>(others * blocks_));
        for (std::int64_t i = 0; i < others; ++i)
            for (std::int64_t l = 0; l < k; l += block_)
                sorted.push_back(scales[static_cast<std::size_t>(lines.at(i, l))]);
        return sorted;
    }

    std::int64_t block_ = 0, blocks_ = 0;
    std::vector<float> a_, b_;
};

/// A product of scaled operands, as formats/scaled_dot.h defines it, and its upper scales.
void multiply_scaled(Cpu& cpu, const Matmul& op, const Scales& scales, const kernels::UpperFactors& upper,
                     cpu::MatrixView a, cpu::MatrixView b, float* out, int threads) {
    cpu::accumulate_scaled(op.arithmetic.accumulate, cpu.info(op.a).format, cpu.info(op.b).format, a, b,
                           scales.view(kernels::scales_of_product(op)), out, op.m, op.n, op.k, threads);
    if (upper.empty()) return;
    for (std::int64_t i = 0; i < op.m; ++i)
        for (std::int64_t j = 0; j < op.n; ++j) out[i * op.n + j] = upper.applied(out[i * op.n + j], i, j);
}

/// The bias of an op: one for all matrices of a batch, or one for each.
struct Bias {
    const float* data = nullptr;
    std::int64_t stride = 0; ///< from matrix to matrix

    Bias() = default;
    Bias(Cpu& cpu, const Matmul& op) {
        if (!op.bias) return;
        cpu.decode(op.bias);
        data = cpu[op.bias].data();
        stride = cpu.info(op.bias).count() > op.n ? op.n : 0;
    }
    [[nodiscard]] const float* of(std::int64_t matrix) const {
        return data == nullptr ? nullptr : data + matrix * stride;
    }
};

/// Adds the bias to unrounded sums, then rounds them.
class Finish {
  public:
    Finish(Cpu& cpu, const Matmul& op, Bias bias)
        : cpu_(cpu), op_(op), format_(cpu.info(op.out).format), bias_(bias), out_(cpu[op.out].data()),
          codes_(cpu.counts_roundings ? nullptr : cpu.write_codes(op.out)) {}

    /// A part of the product; rows count on over the matrices of a batch.
    void part(std::int64_t row, std::int64_t column, cpu::ProductPart size) const {
        if (bias_.data == nullptr && format_ == fp32) return;
        for (std::int64_t i = row; bias_.data != nullptr && i < row + size.rows; ++i) add_bias(i, column, size.columns);
        if (size.columns == op_.n) return numbers(row * op_.n, size.rows * op_.n);
        for (std::int64_t i = row; i < row + size.rows; ++i) numbers(i * op_.n + column, size.columns);
    }

    void all() const {
        for_each_chunk(static_cast<std::uint64_t>(op_.batch * op_.m), cpu::lines_at_once(op_.n), cpu_.threads(),
                       [&](std::uint64_t begin, std::uint64_t end) {
                           part(static_cast<std::int64_t>(begin), 0, {static_cast<std::int64_t>(end - begin), op_.n});
                       });
    }

  private:
    void add_bias(std::int64_t row, std::int64_t column, std::int64_t n) const {
        float* const sums = out_ + row * op_.n + column;
        const float* const bias = bias_.of(row / op_.m) + column;
        for (std::int64_t j = 0; j < n; ++j) sums[j] = kernels::named(sums[j] + bias[j]);
        const FormatSpec& total = op_.arithmetic.accumulate.total();
        const std::span some(sums, static_cast<std::size_t>(n));
        if (total != fp32) quantize(total, some, some);
    }

    void numbers(std::int64_t begin, std::int64_t n) const {
        if (codes_ == nullptr) return cpu::round_in_place(cpu_, op_.out, begin, n);
        const auto count = static_cast<std::size_t>(n);
        encode(format_, std::span(out_ + begin, count), std::span(codes_ + begin, count));
    }

    Cpu& cpu_;
    const Matmul& op_;
    const FormatSpec& format_;
    Bias bias_;
    float* out_;
    std::uint16_t* codes_;
};

} // namespace

void run(Cpu& cpu, const Matmul& op) {
    const Operand a(cpu, op.a, op, op.transpose_a ? op.m : op.k, op.transpose_a);
    const Operand b(cpu, op.b, op, op.transpose_b ? op.k : op.n, op.transpose_b);
    const Bias bias(cpu, op);
    float* const out = cpu[op.out].data();
    const Accumulator& accumulator = op.arithmetic.accumulate;
    const Scales scales(cpu, op);
    const kernels::UpperFactors upper(op, [&](TensorId id) { return cpu[id].data(); });
    const bool finishes_parts = accumulator.is_fp32_chain() && upper.empty();
    const bool adds_bias = finishes_parts && !cpu.counts_roundings; // the product does, and rounds what it added
    const Finish finish(cpu, op, adds_bias ? Bias{} : bias);
    const auto product = [&](std::int64_t i, int threads) {
        const cpu::MatrixView left = a.at(i * op.m * op.k), right = b.at(i * op.k * op.n);
        float* const to = out + i * op.m * op.n;
        if (finishes_parts)
            return cpu::matmul(left, right, to, op.m, op.n, op.k, threads, best_instruction_set(), scales.of_chain(),
                               adds_bias ? bias.of(i) : nullptr,
                               [&](std::int64_t row, std::int64_t column, cpu::ProductPart size) {
                                   finish.part(i * op.m + row, column, size);
                               });
        if (op.a_scale.scale) return multiply_scaled(cpu, op, scales, upper, left, right, to, threads);
        cpu::accumulate(accumulator, kernels::multiplied(op, cpu.info(op.a).format),
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
    if (!finishes_parts) finish.all();
}

} // namespace amp::op
