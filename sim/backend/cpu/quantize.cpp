#include <ampscope/sim/backend/counts.h>
#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/quantize.h>
#include <ampscope/sim/base/scale_table.h>

#include <algorithm>
#include <bit>
#include <mutex>

namespace amp::op {

namespace {

/// A tensor's numbers as rows of the last axis.
struct Rows {
    std::int64_t count, columns;
};

Rows rows_of(const Cpu& cpu, TensorId id) {
    const std::int64_t columns = cpu.info(id).shape.back();
    return {cpu.info(id).count() / columns, columns};
}

/// Calls body(first row, number of rows) for slabs of whole blocks on the backend's threads; for parts of blocks that
/// are as high as the tensor.
template <class Body>
void for_slabs(const Cpu& cpu, const BlockScaling& scaling, const Rows& rows, const Body& body) {
    const std::int64_t height = std::max<std::int64_t>(scaling.rows, 1);
    for_each_chunk(static_cast<std::uint64_t>((rows.count + height - 1) / height),
                   cpu::lines_at_once(height * rows.columns), cpu.threads(),
                   [&](std::uint64_t begin, std::uint64_t end) {
                       const std::int64_t first = static_cast<std::int64_t>(begin) * height;
                       body(first, std::min(rows.count, static_cast<std::int64_t>(end) * height) - first);
                   });
}

std::vector<float> amax_of(const Cpu& cpu, const BlockScaling& scaling, std::span<const float> in, const Rows& rows) {
    const BlockGrid grid = scaling.grid(rows.count, rows.columns);
    std::vector<float> amax(static_cast<std::size_t>(grid.count()));
    std::mutex mutex;
    for_slabs(cpu, scaling, rows, [&](std::int64_t first, std::int64_t count) {
        const std::vector<float> part = block_amax(
            scaling,
            in.subspan(static_cast<std::size_t>(first * rows.columns), static_cast<std::size_t>(count * rows.columns)),
            count, rows.columns);
        if (scaling.rows != 0) {
            std::ranges::copy(part, amax.begin() + grid.at(first, 0));
            return;
        }
        const std::lock_guard lock(mutex);
        std::ranges::transform(part, amax, amax.begin(), [](float x, float y) { // in bits, as NaN is the largest
            return std::bit_cast<float>(std::max(std::bit_cast<std::uint32_t>(x), std::bit_cast<std::uint32_t>(y)));
        });
    });
    return amax;
}

/// The scales of blocks with these amaxes, below one upper scale or none.
std::vector<BlockScale> scales_of(const Cpu& cpu, const BlockScaling& s, std::span<const float> amax, float upper) {
    const float tensor_scale = s.tensor_scale(upper);
    const auto table = scale_table(s.rule, s.element, tensor_scale, std::ssize(amax));
    std::vector<BlockScale> scales(amax.size());
    constexpr std::uint64_t share = 1024;
    for_each_chunk(amax.size(), share, cpu.threads(), [&](std::uint64_t begin, std::uint64_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            const BlockScale* const known = table != nullptr ? table->find(amax[i]) : nullptr;
            scales[i] = known != nullptr ? *known : s.scale_of(amax[i], tensor_scale);
        }
    });
    return scales;
}

/// The same where lines have upper scales, or where scales depend on more than amaxes: see block_scales().
std::vector<BlockScale> chosen_scales(const Cpu& cpu, const Quantize& op, std::span<const float> in, const Rows& rows,
                                      std::span<const float> amax, std::span<const float> upper) {
    const BlockScaling& s = op.scaling;
    const BlockGrid grid = s.grid(rows.count, rows.columns);
    std::vector<BlockScale> scales(amax.size());
    BlockScaling slabs = s; // which hold the groups of MS-EDEN whole
    if (s.rule == ScaleRule::ms_eden && s.stands()) slabs.rows *= s.blocks_in(EdenSums::group);
    const StepContext& c = cpu.context;
    const RandomKey key{.seed = c.seed, .stream = op.stream, .step = c.step};
    const std::uint64_t first_block = c.part() << 40;
    if (s.rows == 0) // no slab has whole blocks
        return block_scales(s, in, rows.count, rows.columns, amax, upper, key, first_block);
    for_slabs(cpu, slabs, rows, [&](std::int64_t first, std::int64_t count) {
        const auto at = static_cast<std::size_t>(first), n = static_cast<std::size_t>(count),
                   columns = static_cast<std::size_t>(rows.columns);
        const auto block = static_cast<std::size_t>(grid.at(first, 0)),
                   blocks = static_cast<std::size_t>(s.grid(count, rows.columns).count());
        const std::vector<BlockScale> part =
            block_scales(s, in.subspan(at * columns, n * columns), count, rows.columns, amax.subspan(block, blocks),
                         s.upper.lines() && !s.stands() ? upper.subspan(at, n) : upper, key, first_block + block);
        std::ranges::copy(part, scales.begin() + static_cast<std::ptrdiff_t>(block));
    });
    return scales;
}

std::vector<BlockScale> scales_of(Cpu& cpu, const Quantize& op, std::span<const float> in, const Rows& rows,
                                  std::span<const float> amax) {
    if (op.delayed) {
        const kernels::DelayedState s = kernels::delayed_state(cpu, op);
        return {kernels::delayed_scale(op.rule, amax[0], cpu.context.training,
                                       cpu[op.history].data() + s.row * s.length, s.length,
                                       cpu[op.delayed].data()[s.row])};
    }
    constexpr float none[] = {0};
    if (!op.upper && op.scaling.scales_by_amax()) return scales_of(cpu, op.scaling, amax, 0);
    if (!op.upper) return chosen_scales(cpu, op, in, rows, amax, none);
    const std::span<float> upper = cpu[op.upper];
    std::ranges::copy(upper_scales(op.scaling, amax, rows.count, rows.columns), upper.begin());
    if (op.scaling.scales_by_amax() && !op.scaling.upper.lines()) return scales_of(cpu, op.scaling, amax, upper[0]);
    return chosen_scales(cpu, op, in, rows, amax, upper);
}

} // namespace

void run(Cpu& cpu, const Quantize& op) {
    const std::span<const float> in = cpu[op.in];
    const std::span<float> out = cpu[op.out];
    const Rows rows = rows_of(cpu, op.in);
    const std::vector<float> amax = amax_of(cpu, op.scaling, in, rows);
    const std::vector<BlockScale> scales = scales_of(cpu, op, in, rows, amax);
    const StepContext& c = cpu.context;
    const BlockGrid grid = op.scaling.grid(rows.count, rows.columns);
    for_slabs(cpu, op.scaling, rows, [&](std::int64_t first, std::int64_t count) {
        const auto at = static_cast<std::size_t>(first * rows.columns),
                   n = static_cast<std::size_t>(count * rows.columns);
        const std::size_t block = op.scaling.rows == 0 ? 0 : static_cast<std::size_t>(grid.at(first, 0));
        const auto blocks = static_cast<std::size_t>(op.scaling.grid(count, rows.columns).count());
        quantize_blocks(op.scaling, in.subspan(at, n), count, rows.columns, std::span(scales).subspan(block, blocks),
                        out.subspan(at, n),
                        {.policy = {.rounding = op.rounding, .random_bits = op.random_bits},
                         .key = {.seed = c.seed, .stream = op.stream, .step = c.step},
                         .first_index = (c.part() << 40) + at});
    });
    const std::span<float> decode_scales = cpu[op.scale];
    for (std::size_t i = 0; i < scales.size(); ++i) decode_scales[i] = scales[i].decode;
    if (cpu.counts_scalings || cpu.counts_roundings) count_scaled(cpu, op, in, out, scales, amax, cpu.threads());
}

void run(Cpu& cpu, const Hadamard& op) {
    const std::span<const float> in = cpu[op.in];
    const auto [rows, columns] = rows_of(cpu, op.in);
    const kernels::MatrixOf matrix{in.data(), rows, columns};
    const std::vector<double> factors = kernels::factors_of(kernels::rotation(cpu, op));
    const std::int64_t at_once = std::max<std::int64_t>(1, cpu::block / columns);
    for_each_chunk(static_cast<std::uint64_t>(rows), cpu::lines_at_once(columns * 4), cpu.threads(),
                   [&](std::uint64_t first, std::uint64_t last) {
                       std::vector<double> wide(static_cast<std::size_t>(at_once * matrix.columns));
                       const auto end = static_cast<std::int64_t>(last);
                       for (auto row = static_cast<std::int64_t>(first); row < end; row += at_once) {
                           const std::int64_t next = std::min(row + at_once, end);
                           dispatch<kernels::RotateKernel>(best_instruction_set(), factors.data(),
                                                           std::int64_t{op.size}, matrix, row, next, op.along_columns,
                                                           wide.data());
                           cpu::store(cpu, op.out, row * matrix.columns, wide.data(), (next - row) * matrix.columns);
                       }
                   });
}

void run(Cpu& cpu, const Dequantize& op) {
    const std::span<const float> in = cpu[op.in], scales = cpu[op.scale];
    const std::span<const float> upper = op.upper ? cpu[op.upper] : std::span<const float>();
    const auto [rows, columns] = rows_of(cpu, op.in);
    const BlockGrid grid = op.scaling.grid(rows, columns);
    std::vector<float> factors(scales.size());
    for (std::size_t b = 0; b < factors.size(); ++b) {
        const auto line = static_cast<std::size_t>(op.scaling.upper_of(grid, static_cast<std::int64_t>(b)));
        factors[b] = op.scaling.factor(scales[b], upper.empty() ? 1 : upper[line]);
    }
    std::vector<double> wide(static_cast<std::size_t>(columns));
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j)
            wide[static_cast<std::size_t>(j)] =
                kernels::dequantized(op.scaling.rule, in[static_cast<std::size_t>(i * columns + j)],
                                     factors[static_cast<std::size_t>(grid.at(i, j))]);
        cpu::store(cpu, op.out, i * columns, wide.data(), columns);
    }
}

void run(Cpu& cpu, const UpdateScale& op) {
    const std::int64_t rows = cpu.info(op.scale).count(), length = cpu.info(op.history).count() / rows;
    for (std::int64_t row = 0; row < rows; ++row)
        kernels::update_scale(op.rule, op.most_recent, cpu[op.history].data() + row * length, length,
                              cpu[op.scale].data()[row]);
}

} // namespace amp::op
