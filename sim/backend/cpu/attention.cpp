// Fused attention and its gradient, tile by tile: products by accumulate(), what lies between them by kernels/.
#include <ampscope/formats/batch.h>
#include <ampscope/sim/backend/cpu/detail/accumulate.h>
#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/attention.h>
#include <ampscope/sim/base/batch.h>

namespace amp::op {

using namespace kernels;

namespace {

/// Rounds n numbers in place.
void round_numbers(const FormatSpec& f, float* x, std::int64_t n) {
    if (f == fp32_format()) return;
    const std::span numbers(x, static_cast<std::size_t>(n));
    quantize(f, numbers, numbers);
}

/// Numbers in the format in which products read them.
struct ReadNumbers {
    std::vector<float> rounded{};
    const float* data = nullptr;
    FormatSpec format{};

    ReadNumbers(const Cpu& cpu, TensorId id, const MatmulArithmetic& how)
        : data(cpu.in(id)), format(cpu.info(id).format) {
        if (how.operands == fp32_format() || how.operands == format) return;
        const std::span<const float> values = cpu[id];
        rounded.resize(values.size());
        quantize(how.operands, values, rounded, {.policy = {.rounding = how.operand_rounding}}, cpu.threads());
        data = rounded.data();
        format = how.operands;
    }
};

/// Rounds P or dS to its format, which counts as a rounding of `of`, and then to the one in which the product reads it,
/// which is returned.
FormatSpec read_tile(Cpu& cpu, TensorId of, const FormatSpec& f, const MatmulArithmetic& how, float* x,
                     std::int64_t n) {
    cpu::round_counted(cpu, of, f, x, n);
    if (how.operands == fp32_format() || how.operands == f) return f;
    const std::span numbers(x, static_cast<std::size_t>(n));
    quantize(how.operands, numbers, numbers, {.policy = {.rounding = how.operand_rounding}});
    return how.operands;
}

std::vector<float> numbers(std::int64_t n) { return std::vector<float>(static_cast<std::size_t>(n)); }

/// A part of queries or keys: a tile.
struct Part {
    std::int64_t first, count;
    Part(std::int64_t tile, std::int64_t size, std::int64_t all)
        : first(tile * size), count(std::min(size, all - first)) {}
    [[nodiscard]] std::int64_t last() const { return first + count - 1; }
};

/// out = a b for tiles of numbers: rows x inner of a, inner x columns of b.
void multiply(const MatmulArithmetic& how, const FormatSpec& fa, cpu::MatrixView a, const FormatSpec& fb,
              cpu::MatrixView b, std::vector<float>& out, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    cpu::accumulate(how.accumulate, fa, fb, a, b, out.data(), rows, columns, inner, 1);
}

AttentionMask mask_of(const Cpu& cpu, TensorId mask, const AttentionArithmetic& how, const AttentionShape& shape) {
    return mask ? AttentionMask(cpu.in(mask), cpu.info(mask).shape, how, shape) : AttentionMask();
}

/// One tile of queries in forward.
class ForwardTile {
  public:
    ForwardTile(Cpu& cpu, const FusedAttention& op, const AttentionShape& shape, const ReadNumbers& q,
                const ReadNumbers& k, const ReadNumbers& v)
        : cpu_(cpu), op_(op), shape_(shape), constants_(op), mask_(mask_of(cpu, op.mask, op.how, shape)), q_(q), k_(k),
          v_(v) {}

    void run(std::int64_t head, std::int64_t tile) {
        const Part rows(tile, op_.how.row_tile, shape_.queries);
        rows_.assign(static_cast<std::size_t>(rows.count), {});
        o_.assign(static_cast<std::size_t>(rows.count * shape_.width), 0.0F);
        product_ = numbers(rows.count * shape_.width);
        for (std::int64_t j = 0; j < tiles_of(shape_.keys, op_.how.key_tile); ++j) {
            const Part keys(j, op_.how.key_tile, shape_.keys);
            if (op_.how.hides(rows.last(), keys.first)) break;
            if (mask_.hides_tile(head, rows.first, rows.count, keys.first, keys.count)) continue;
            add_keys(head, rows, keys);
        }
        finish(head, rows);
    }

  private:
    void add_keys(std::int64_t head, const Part& rows, const Part& keys) {
        const std::int64_t width = shape_.width, n = keys.count, of_keys = shape_.of_key(head) + keys.first * width;
        tile_.resize(static_cast<std::size_t>(rows.count * n));
        multiply(op_.how.s_product, q_.format, {q_.data + shape_.of_query(head) + rows.first * width, width, 1},
                 k_.format, {k_.data + of_keys, 1, width}, tile_, rows.count, n, width);
        round_numbers(op_.how.scores, tile_.data(), rows.count * n);
        for (std::int64_t r = 0; r < rows.count; ++r) {
            AttentionRow& row = rows_[static_cast<std::size_t>(r)];
            dispatch<AttentionRowKernel>(best_instruction_set(), tile_.data() + r * n, n,
                                         visible(op_.how.causal, rows.first + r, keys.first, n),
                                         mask_.of(head, rows.first + r, keys.first), constants_, &row);
            add(op_.sums, &row.sum, row.factor, &row.tile_sum, 1, {});
        }
        const FormatSpec p = read_tile(cpu_, op_.out, op_.p, op_.o_product, tile_.data(), rows.count * n);
        multiply(op_.o_product, p, {tile_.data(), n, 1}, v_.format, {v_.data + of_keys, width, 1}, product_, rows.count,
                 width, n);
        for (std::int64_t r = 0; r < rows.count; ++r)
            add(op_.o, o_.data() + r * width, rows_[static_cast<std::size_t>(r)].factor, product_.data() + r * width,
                width, op_.out);
    }

    /// total = total * factor + more, each rounded to the format; the last counts as a rounding of `of`.
    void add(const FormatSpec& f, float* total, float factor, float* more, std::int64_t n, TensorId of) {
        for (std::int64_t i = 0; i < n; ++i) total[i] *= factor;
        round_numbers(f, total, n);
        round_numbers(f, more, n);
        for (std::int64_t i = 0; i < n; ++i) total[i] += more[i];
        cpu::round_counted(cpu_, of, f, total, n);
    }

    void finish(std::int64_t head, const Part& rows) {
        std::vector<double> wide(static_cast<std::size_t>(rows.count * shape_.width)), lse;
        for (std::int64_t r = 0; r < rows.count; ++r) {
            const AttentionRow& row = rows_[static_cast<std::size_t>(r)];
            dispatch<AttentionEndKernel>(best_instruction_set(), o_.data() + r * shape_.width, double{row.sum},
                                         wide.data() + r * shape_.width, shape_.width);
            lse.push_back(logsumexp(row, op_.how.scale, op_.offset, constants_.steps));
        }
        cpu::store(cpu_, op_.out, shape_.of_query(head) + rows.first * shape_.width, wide.data(), std::ssize(wide));
        cpu::store(cpu_, op_.lse, head * shape_.queries + rows.first, lse.data(), std::ssize(lse));
    }

    Cpu& cpu_;
    const FusedAttention& op_;
    const AttentionShape& shape_;
    AttentionConstants constants_;
    AttentionMask mask_;
    const ReadNumbers &q_, &k_, &v_;
    std::vector<AttentionRow> rows_;
    std::vector<float> tile_, o_, product_;
};

/// Backward of the queries' heads that share a head of keys and values.
class BackwardHeads {
  public:
    BackwardHeads(Cpu& cpu, const FusedAttentionBackward& op, const AttentionShape& shape, const ReadNumbers& q,
                  const ReadNumbers& k, const ReadNumbers& v, const ReadNumbers& grad)
        : cpu_(cpu), op_(op), shape_(shape), steps_(op.how), mask_(mask_of(cpu, op.mask, op.how, shape)), q_(q), k_(k),
          v_(v), grad_(grad) {}

    void run(std::int64_t group) {
        const std::int64_t width = shape_.width;
        dk_ = numbers(shape_.keys * width);
        dv_ = numbers(shape_.keys * width);
        for (std::int64_t head = group * shape_.shared; head < (group + 1) * shape_.shared; ++head) {
            dq_ = numbers(shape_.queries * width);
            find_d(head);
            for (std::int64_t j = 0; j < tiles_of(shape_.keys, op_.how.key_tile); ++j)
                for (std::int64_t i = 0; i < tiles_of(shape_.queries, op_.how.row_tile); ++i)
                    add_tile(head, {i, op_.how.row_tile, shape_.queries}, {j, op_.how.key_tile, shape_.keys});
            store(op_.grad_q, shape_.of_query(head), dq_, op_.how.factor());
        }
        const std::int64_t first = group * shape_.keys * width;
        store(op_.grad_k, first, dk_, op_.how.factor());
        store(op_.grad_v, first, dv_, 1);
    }

  private:
    void find_d(std::int64_t head) {
        d_ = numbers(shape_.queries);
        for (std::int64_t r = 0; r < shape_.queries; ++r) {
            const std::int64_t at = shape_.of_query(head) + r * shape_.width;
            dispatch<AttentionDotKernel>(best_instruction_set(), cpu_.in(op_.grad_out) + at, cpu_.in(op_.out) + at,
                                         shape_.width, steps_, d_.data() + r);
        }
    }

    void add_tile(std::int64_t head, const Part& rows, const Part& keys) {
        if (op_.how.hides(rows.last(), keys.first) ||
            mask_.hides_tile(head, rows.first, rows.count, keys.first, keys.count))
            return;
        const std::int64_t width = shape_.width, m = rows.count, n = keys.count;
        const std::int64_t at_rows = shape_.of_query(head) + rows.first * width,
                           at_keys = shape_.of_key(head) + keys.first * width;
        p_.resize(static_cast<std::size_t>(m * n));
        ds_.resize(static_cast<std::size_t>(m * n));
        product_.resize(static_cast<std::size_t>(std::max(m, n) * width));
        multiply(op_.how.s_product, q_.format, {q_.data + at_rows, width, 1}, k_.format, {k_.data + at_keys, 1, width},
                 p_, m, n, width);
        round_numbers(op_.how.scores, p_.data(), m * n);
        multiply(op_.dp_product, grad_.format, {grad_.data + at_rows, width, 1}, v_.format,
                 {v_.data + at_keys, 1, width}, ds_, m, n, width);
        for (std::int64_t r = 0; r < m; ++r)
            dispatch<AttentionGradientKernel>(best_instruction_set(), p_.data() + r * n, ds_.data() + r * n, n,
                                              visible(op_.how.causal, rows.first + r, keys.first, n),
                                              mask_.of(head, rows.first + r, keys.first), op_.how.exponent(), steps_,
                                              cpu_.in(op_.lse)[head * shape_.queries + rows.first + r],
                                              d_[static_cast<std::size_t>(rows.first + r)]);
        const TensorId of = op_.counted();
        const FormatSpec fp = read_tile(cpu_, of, op_.ds, op_.dv_product, p_.data(), m * n),
                         fds = read_tile(cpu_, of, op_.ds, op_.dk_product, ds_.data(), m * n);
        multiply(op_.dv_product, fp, {p_.data(), 1, n}, grad_.format, {grad_.data + at_rows, width, 1}, product_, n,
                 width, m);
        add(dv_, keys);
        multiply(op_.dk_product, fds, {ds_.data(), 1, n}, q_.format, {q_.data + at_rows, width, 1}, product_, n, width,
                 m);
        add(dk_, keys);
        multiply(op_.dq_product, fds, {ds_.data(), n, 1}, k_.format, {k_.data + at_keys, width, 1}, product_, m, width,
                 n);
        add(dq_, rows);
    }

    void add(std::vector<float>& total, const Part& part) {
        dispatch<AddTotalKernel>(best_instruction_set(), total.data() + part.first * shape_.width,
                                 static_cast<const float*>(product_.data()), steps_, part.count * shape_.width);
    }

    void store(TensorId to, std::int64_t first, const std::vector<float>& total, double factor) {
        if (!to) return;
        std::vector<double> wide(total.begin(), total.end());
        for (double& x : wide) x *= factor;
        cpu::store(cpu_, to, first, wide.data(), std::ssize(wide));
    }

    Cpu& cpu_;
    const FusedAttentionBackward& op_;
    const AttentionShape& shape_;
    AttentionSteps steps_;
    AttentionMask mask_;
    const ReadNumbers &q_, &k_, &v_, &grad_;
    std::vector<float> p_, ds_, product_, d_, dq_, dk_, dv_;
};

/// How many multiply-adds are worth waking a thread.
constexpr std::int64_t work = cpu::grain * 8;

} // namespace

void run(Cpu& cpu, const FusedAttention& op) {
    const AttentionShape shape(cpu.info(op.q).shape, cpu.info(op.k).shape);
    const ReadNumbers q(cpu, op.q, op.how.s_product), k(cpu, op.k, op.how.s_product), v(cpu, op.v, op.o_product);
    const std::int64_t tiles = tiles_of(shape.queries, op.how.row_tile),
                       cost = 2 * std::min(op.how.row_tile, shape.queries) * shape.keys * shape.width;
    for_each_chunk(static_cast<std::uint64_t>(shape.heads * tiles), cpu::lines_at_once(cost, work), cpu.threads(),
                   [&](std::uint64_t begin, std::uint64_t end) {
                       ForwardTile tile(cpu, op, shape, q, k, v);
                       for (auto i = static_cast<std::int64_t>(begin); i < static_cast<std::int64_t>(end); ++i)
                           tile.run(i / tiles, i % tiles);
                   });
}

void run(Cpu& cpu, const FusedAttentionBackward& op) {
    const AttentionShape shape(cpu.info(op.q).shape, cpu.info(op.k).shape);
    const ReadNumbers q(cpu, op.q, op.how.s_product), k(cpu, op.k, op.how.s_product), v(cpu, op.v, op.dp_product),
        grad(cpu, op.grad_out, op.dp_product);
    const std::int64_t cost = 5 * shape.shared * shape.queries * shape.keys * shape.width;
    for_each_chunk(static_cast<std::uint64_t>(shape.heads / shape.shared), cpu::lines_at_once(cost, work),
                   cpu.threads(), [&](std::uint64_t begin, std::uint64_t end) {
                       BackwardHeads heads(cpu, op, shape, q, k, v, grad);
                       for (auto i = static_cast<std::int64_t>(begin); i < static_cast<std::int64_t>(end); ++i)
                           heads.run(i);
                   });
}

} // namespace amp::op
