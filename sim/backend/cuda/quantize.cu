#include <ampscope/sim/backend/counts.h>
#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/quantize.h>

#include <algorithm>

namespace amp::op {

namespace {

BlockGrid blocks_of(const Cuda& cuda, TensorId id, const BlockScaling& scaling) {
    const std::int64_t columns = cuda.info(id).shape.back();
    return scaling.grid(cuda.info(id).count() / columns, columns);
}

/// Finds the bits of the largest magnitude of each block; bits are ordered as magnitudes are, and those of NaN are the
/// largest.
void find_amax(const CudaDevice& device, const BlockGrid& blocks, std::int64_t rows, bool keeps_nan, const float* in,
               std::uint32_t* amax) {
    const std::int64_t run = std::min<std::int64_t>(blocks.width, 256); // numbers of one thread, all within a block
    const std::int64_t runs = (blocks.width + run - 1) / run;
    cuda::each(device, rows * blocks.across * runs, [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const std::int64_t row = i / (blocks.across * runs), begin = i / runs % blocks.across * blocks.width;
        const std::int64_t first = begin + i % runs * run;
        const std::int64_t end = begin + blocks.width < blocks.columns ? begin + blocks.width : blocks.columns;
        std::uint32_t most = 0;
        for (std::int64_t j = first; j < first + run && j < end; ++j) {
            const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(in[row * blocks.columns + j]) & 0x7fffffff;
            if (magnitude <= 0x7f800000 || keeps_nan) most = magnitude > most ? magnitude : most;
        }
        if (first < end) cuda::atomic_max(amax[blocks.of(row * blocks.columns + begin)], most);
    });
}

/// upper = the largest amax of all blocks, or of those of each line.
void find_upper(const CudaDevice& device, const BlockScaling& s, const BlockGrid& blocks, std::int64_t lines,
                const float* amax, float* upper) {
    cuda::each(device, lines, [=] AMPSCOPE_DEVICE(std::int64_t line) {
        float most = 0;
        for (std::int64_t b = 0; b < blocks.down * blocks.across; ++b)
            if (s.upper_of(blocks, b) == line) most = amax[b] > most ? amax[b] : most;
        upper[line] = s.upper_scale(most);
    });
}

void find_scales(Cuda& cuda, const Quantize& op, const BlockGrid& blocks, const float* amax, BlockScale* scales) {
    if (op.delayed) {
        const kernels::DelayedState s = kernels::delayed_state(cuda, op);
        const std::int64_t length = s.length;
        float *const history = cuda.out(op.history) + s.row * length, *const scale = cuda.out(op.delayed) + s.row;
        const DelayedRule rule = op.rule;
        const bool training = cuda.context.training;
        return cuda::each(cuda.device(), 1, [=] AMPSCOPE_DEVICE(std::int64_t) {
            scales[0] = kernels::delayed_scale(rule, amax[0], training, history, length, *scale);
        });
    }
    const BlockScaling s = op.scaling;
    float* const upper = op.upper ? cuda.out(op.upper) : nullptr;
    if (upper != nullptr) find_upper(cuda.device(), s, blocks, cuda.info(op.upper).count(), amax, upper);
    const kernels::MatrixOf x{cuda.in(op.in), cuda.info(op.in).count() / blocks.columns, blocks.columns};
    cuda::each(cuda.device(), blocks.count(), [=] AMPSCOPE_DEVICE(std::int64_t b) {
        const float u = upper != nullptr ? upper[s.upper_of(blocks, b)] : 0;
        if (s.rule == ScaleRule::affine) scales[b] = s.scale_of(kernels::range_of(x, blocks, b));
        else if (s.upper.four_over_six == FourOverSix::off) scales[b] = s.scale_of(amax[b], s.tensor_scale(u));
        else scales[b] = kernels::chosen_scale(s, x, blocks, b, amax[b], u);
    });
    if (s.rule != ScaleRule::ms_eden) return;
    const StepContext& c = cuda.context;
    const RandomKey key{.seed = c.seed, .stream = op.stream, .step = c.step};
    const std::uint64_t first = c.part() << 40;
    const DeviceArray<float> memory(cuda.device(), static_cast<std::size_t>(blocks.count()));
    float* const corrected = memory.data();
    cuda::each(cuda.device(), blocks.count(), [=] AMPSCOPE_DEVICE(std::int64_t b) {
        corrected[b] =
            kernels::corrected_scale(s, x, blocks, b, scales, key.word(first + static_cast<std::uint64_t>(b)));
    });
    cuda::each(cuda.device(), blocks.count(), [=] AMPSCOPE_DEVICE(std::int64_t b) { scales[b].decode = corrected[b]; });
}

} // namespace

void run(Cuda& cuda, const Quantize& op) {
    const BlockGrid blocks = blocks_of(cuda, op.in, op.scaling);
    const DeviceArray<float> amax(cuda.device(), static_cast<std::size_t>(blocks.count()));
    const DeviceArray<BlockScale> memory(cuda.device(), static_cast<std::size_t>(blocks.count()));
    BlockScale* const scales = memory.data();
    const float* const in = cuda.in(op.in);
    find_amax(cuda.device(), blocks, cuda.info(op.in).count() / blocks.columns, amax_keeps_nan(op.scaling.rule), in,
              reinterpret_cast<std::uint32_t*>(amax.data()));
    find_scales(cuda, op, blocks, amax.data(), scales);

    float *const out = cuda.out(op.out), *const decode_scales = cuda.out(op.scale);
    const StepContext& c = cuda.context;
    const RandomKey key{.seed = c.seed, .stream = op.stream, .step = c.step};
    const std::uint64_t first = c.part() << 40;
    const FormatSpec element = op.scaling.element;
    const Policy policy{.rounding = op.rounding, .random_bits = op.random_bits};
    const bool native =
        cuda.is_native() && op.rounding == Rounding::nearest_even && op.scaling.rule != ScaleRule::affine;
    cuda::each(cuda.device(), cuda.info(op.in).count(), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const BlockScale s = scales[blocks.of(i)];
        const float scaled = s.scaled(in[i]);
        const std::uint32_t word = policy.rounding == Rounding::stochastic
                                       ? key.word(first + static_cast<std::uint64_t>(i), policy.random_bits)
                                       : 0;
        out[i] = native ? cuda::native_saturate(element, scaled) : round_scaled(element, scaled, s, policy, word);
    });
    cuda::each(cuda.device(), blocks.count(),
               [=] AMPSCOPE_DEVICE(std::int64_t b) { decode_scales[b] = scales[b].decode; });
    if (cuda.counts_scalings || cuda.counts_roundings)
        count_scaled(cuda, op, cuda.read(op.in), cuda.read(op.out), memory.read(), amax.read(), 0);
}

void run(Cuda& cuda, const Hadamard& op) {
    const float* const in = cuda.in(op.in);
    const std::int64_t columns = cuda.info(op.in).shape.back(), rows = cuda.info(op.in).count() / columns;
    const kernels::Rotation rotation = kernels::rotation(cuda, op);
    const bool along = op.along_columns;
    const cuda::Output to = cuda::output(cuda, op.out);
    cuda::each(cuda.device(), rows * columns, [=] AMPSCOPE_DEVICE(std::int64_t at) {
        const std::int64_t row = at / columns, column = at % columns;
        to.put(at, along ? kernels::rotated(rotation, in + row * columns, columns, 1, column)
                         : kernels::rotated(rotation, in + column, rows, columns, row));
    });
}

void run(Cuda& cuda, const Dequantize& op) {
    const BlockGrid blocks = blocks_of(cuda, op.in, op.scaling);
    const float *const in = cuda.in(op.in), *const scales = cuda.in(op.scale),
                       *const upper = op.upper ? cuda.in(op.upper) : nullptr;
    const BlockScaling s = op.scaling;
    const cuda::Output to = cuda::output(cuda, op.out);
    cuda::each(cuda.device(), cuda.info(op.in).count(), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const std::int64_t block = blocks.of(i);
        const float factor = s.factor(scales[block], upper != nullptr ? upper[s.upper_of(blocks, block)] : 1);
        to.put(i, kernels::dequantized(s.rule, in[i], factor));
    });
}

void run(Cuda& cuda, const UpdateScale& op) {
    float *const history = cuda.out(op.history), *const scale = cuda.out(op.scale);
    const std::int64_t rows = cuda.info(op.scale).count(), length = cuda.info(op.history).count() / rows;
    const DelayedRule rule = op.rule;
    const bool most_recent = op.most_recent;
    cuda::each(cuda.device(), rows, [=] AMPSCOPE_DEVICE(std::int64_t row) {
        kernels::update_scale(rule, most_recent, history + row * length, length, scale[row]);
    });
}

} // namespace amp::op
