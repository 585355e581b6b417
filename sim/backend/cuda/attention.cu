// Fused attention, one thread for each row: of queries in forward and for their gradient, of keys for theirs.
#include <ampscope/sim/backend/cuda/sums.cuh>
#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/attention.h>

namespace amp::op {

using namespace kernels;

namespace {

/// How the numbers of a tile are rounded, and then read by a product.
struct TileRounding {
    FormatSpec stored, read;
    Policy policy;
    bool reads;

    TileRounding(const FormatSpec& f, const MatmulArithmetic& how)
        : stored(f), read(how.operands == format("fp32") ? f : how.operands), policy{.rounding = how.operand_rounding},
          reads(!(read == f)) {}
    AMPSCOPE_DEVICE float operator()(float x, const cuda::Output& of) const {
        const float y = of.counted(stored, x);
        return reads ? quantize(read, y, policy) : y;
    }
};

/// A tensor of rows of `width` numbers as products read it, matrices of `rows` rows; transposed, each has `width` rows.
DeviceArray<float> packed(Cuda& cuda, TensorId id, const MatmulArithmetic& how, bool transposed) {
    const TensorInfo& info = cuda.info(id);
    const std::int64_t rows = info.shape[2], width = info.shape[3];
    const float* const in = cuda.in(id);
    DeviceArray<float> memory(cuda.device(), static_cast<std::size_t>(info.count()));
    float* const out = memory.data();
    const TileRounding round(info.format, how);
    cuda::each(cuda.device(), info.count(), [=] AMPSCOPE_DEVICE(std::int64_t at) {
        const std::int64_t first = at / (rows * width) * rows * width, i = at - first;
        const float x = in[transposed ? first + i % rows * width + i / rows : at];
        out[at] = round.reads ? quantize(round.read, x, round.policy) : x;
    });
    return memory;
}

/// total * factor + more, each rounded to the format.
AMPSCOPE_DEVICE float added(const FormatSpec& f, float total, float factor, float more, const cuda::Output& of) {
    return of.counted(f, cuda::rounded(f, total * factor) + cuda::rounded(f, more));
}

/// An output of which no roundings are counted.
AMPSCOPE_INLINE cuda::Output uncounted(cuda::Output of) {
    of.counts = nullptr;
    return of;
}

/// The last row of the tile that a row belongs to.
AMPSCOPE_INLINE std::int64_t last_of_tile(std::int64_t row, std::int64_t tile, std::int64_t rows) {
    const std::int64_t end = (row / tile + 1) * tile;
    return (end < rows ? end : rows) - 1;
}

cuda::SumOfProducts sum_of(const MatmulArithmetic& how, const FormatSpec& x, const FormatSpec& y) {
    const auto read = [&](const FormatSpec& f) { return how.operands == format("fp32") ? f : how.operands; };
    return {how.accumulate, read(x), read(y)};
}

/// For each tile of each head, whether the mask hides all of it.
void find_hidden(Cuda& cuda, const AttentionMask& mask, const AttentionArithmetic& how, const AttentionShape& shape,
                 unsigned char* to) {
    const std::int64_t rows = how.row_tile, keys = how.key_tile, across = tiles_of(shape.keys, keys),
                       down = tiles_of(shape.queries, rows);
    cuda::each(cuda.device(), shape.heads * down * across, [=] AMPSCOPE_DEVICE(std::int64_t at) {
        const std::int64_t row = at / across % down * rows, key = at % across * keys;
        const std::int64_t below = shape.queries - row, behind = shape.keys - key;
        const bool hidden =
            mask.hides_tile(at / across / down, row, below < rows ? below : rows, key, behind < keys ? behind : keys);
        to[at] = hidden ? 1 : 0;
    });
}

/// A mask, and what find_hidden() says of it.
struct TileMask {
    AttentionMask mask{};
    DeviceArray<unsigned char> hidden{};

    TileMask(Cuda& cuda, TensorId id, const AttentionArithmetic& how, const AttentionShape& shape) {
        if (!id) return;
        mask = AttentionMask(cuda.in(id), cuda.info(id).shape, how, shape);
        const std::int64_t tiles = tiles_of(shape.queries, how.row_tile) * tiles_of(shape.keys, how.key_tile);
        hidden = DeviceArray<unsigned char>(cuda.device(), static_cast<std::size_t>(shape.heads * tiles));
        find_hidden(cuda, mask, how, shape, hidden.data());
    }
};

/// What the scores of a tile need.
struct TileScores {
    AttentionShape shape;
    AttentionArithmetic how;
    cuda::SumOfProducts product;
    const float *q, *k;
    AttentionMask mask;
    const unsigned char* hidden; ///< What TileMask found.

    /// Whether the mask hides all of the tile of this row and key.
    [[nodiscard]] AMPSCOPE_DEVICE bool hides_tile(std::int64_t head, std::int64_t row, std::int64_t key) const {
        if (mask.data == nullptr) return false;
        const std::int64_t rows = tiles_of(shape.queries, how.row_tile), keys = tiles_of(shape.keys, how.key_tile);
        return hidden[(head * rows + row / how.row_tile) * keys + key / how.key_tile] != 0;
    }

    [[nodiscard]] AMPSCOPE_DEVICE float score(std::int64_t head, std::int64_t row, std::int64_t key) const {
        const std::int64_t w = shape.width;
        return cuda::rounded(how.scores,
                             product(q + shape.of_query(head) + row * w, k + shape.of_key(head) + key * w, w));
    }
};

struct ForwardRow {
    TileScores scores;
    cuda::SumOfProducts product;
    TileRounding p;
    FormatSpec sums, o;
    AttentionConstants constants;
    int offset;
    double scale;
    const float* v; ///< transposed
    float* memory;  ///< for each row, a tile of keys and the channels
    std::int64_t tile;
    cuda::Output out, lse;

    AMPSCOPE_DEVICE void operator()(std::int64_t at) const {
        const AttentionShape& s = scores.shape;
        const AttentionArithmetic& how = scores.how;
        const std::int64_t head = at / s.queries, row = at % s.queries, w = s.width;
        float *const tile_p = memory + at * (tile + w), *const total = tile_p + tile;
        AttentionRow state;
        for (std::int64_t c = 0; c < w; ++c) total[c] = 0;
        for (std::int64_t first = 0; first < s.keys; first += tile) {
            if (how.hides(last_of_tile(row, how.row_tile, s.queries), first)) break;
            if (scores.hides_tile(head, row, first)) continue;
            const std::int64_t n = first + tile < s.keys ? tile : s.keys - first;
            for (std::int64_t j = 0; j < n; ++j) tile_p[j] = scores.score(head, row, first + j);
            AttentionRowKernel::run(tile_p, n, visible(how.causal, row, first, n), scores.mask.of(head, row, first),
                                    constants, &state);
            state.sum = added(sums, state.sum, state.factor, state.tile_sum, uncounted(out));
            for (std::int64_t j = 0; j < n; ++j) tile_p[j] = p(tile_p[j], out);
            for (std::int64_t c = 0; c < w; ++c)
                total[c] =
                    added(o, total[c], state.factor, product(tile_p, v + s.of_key(head) + c * s.keys + first, n), out);
        }
        for (std::int64_t c = 0; c < w; ++c) {
            double wide = 0;
            AttentionEndKernel::run(total + c, state.sum, &wide, 1);
            out.put(at * w + c, wide);
        }
        lse.put(at, logsumexp(state, scale, offset, constants.steps));
    }
};

/// D of each row.
struct DotRow {
    std::int64_t width;
    AttentionSteps steps;
    const float *grad, *out;
    float* d;
    AMPSCOPE_DEVICE void operator()(std::int64_t at) const {
        AttentionDotKernel::run(grad + at * width, out + at * width, width, steps, d + at);
    }
};

/// P and dS of a query and a key.
struct TileGradients {
    TileScores scores;
    AttentionSteps steps;
    cuda::SumOfProducts product;
    TileRounding p_rounding, ds_rounding;
    const float *grad, *v, *lse, *d;

    /// Roundings count among those of `of`.
    AMPSCOPE_DEVICE void find(std::int64_t head, std::int64_t row, std::int64_t key, float* p, float* ds,
                              const cuda::Output& of) const {
        const AttentionShape& s = scores.shape;
        const std::int64_t w = s.width, at = head * s.queries + row;
        *p = scores.score(head, row, key);
        *ds = product(grad + at * w, v + s.of_key(head) + key * w, w);
        AttentionGradientKernel::run(p, ds, 1, visible(scores.how.causal, row, key, 1), scores.mask.of(head, row, key),
                                     scores.how.exponent(), steps, lse[at], d[at]);
        *p = p_rounding(*p, of);
        *ds = ds_rounding(*ds, of);
    }
    AMPSCOPE_DEVICE void add(float* total, float more) const { AddTotalKernel::run(total, &more, steps, 1); }
};

struct QueryGradientRow {
    TileGradients gradients;
    cuda::SumOfProducts product;
    const float* k; ///< transposed
    float* memory;  ///< for each row, a tile of keys and the channels
    std::int64_t tile;
    cuda::Output to;
    bool counts; ///< whether P and dS are not counted for another gradient

    AMPSCOPE_DEVICE void operator()(std::int64_t at) const {
        const AttentionShape& s = gradients.scores.shape;
        const AttentionArithmetic& how = gradients.scores.how;
        const std::int64_t head = at / s.queries, row = at % s.queries, w = s.width;
        float *const ds = memory + at * (tile + w), *const total = ds + tile;
        for (std::int64_t c = 0; c < w; ++c) total[c] = 0;
        for (std::int64_t first = 0; first < s.keys; first += tile) {
            if (how.hides(last_of_tile(row, how.row_tile, s.queries), first)) break;
            if (gradients.scores.hides_tile(head, row, first)) continue;
            const std::int64_t n = first + tile < s.keys ? tile : s.keys - first;
            float p = 0;
            for (std::int64_t j = 0; j < n; ++j)
                gradients.find(head, row, first + j, &p, ds + j, counts ? to : uncounted(to));
            for (std::int64_t c = 0; c < w; ++c)
                gradients.add(total + c, product(ds, k + s.of_key(head) + c * s.keys + first, n));
        }
        for (std::int64_t c = 0; c < w; ++c) to.put(at * w + c, total[c] * how.factor());
    }
};

struct KeyGradientRow {
    TileGradients gradients;
    cuda::SumOfProducts v_product, k_product;
    const float *grad, *q; ///< transposed
    float* memory;         ///< for each row, P and dS of a tile of queries, and twice the channels
    std::int64_t tile;
    cuda::Output to_k, to_v; ///< without data where the gradient is not wanted

    AMPSCOPE_DEVICE void operator()(std::int64_t at) const {
        const AttentionShape& s = gradients.scores.shape;
        const AttentionArithmetic& how = gradients.scores.how;
        const std::int64_t group = at / s.keys, key = at % s.keys, w = s.width;
        float *const p = memory + at * 2 * (tile + w), *const ds = p + tile, *const dv = ds + tile, *const dk = dv + w;
        for (std::int64_t c = 0; c < w; ++c) dv[c] = dk[c] = 0;
        for (std::int64_t head = group * s.shared; head < (group + 1) * s.shared; ++head)
            for (std::int64_t first = 0; first < s.queries; first += tile) {
                const std::int64_t n = first + tile < s.queries ? tile : s.queries - first;
                if (how.hides(first + n - 1, key / how.key_tile * how.key_tile)) continue;
                if (gradients.scores.hides_tile(head, first, key)) continue;
                for (std::int64_t i = 0; i < n; ++i)
                    gradients.find(head, first + i, key, p + i, ds + i, to_k.data != nullptr ? to_k : to_v);
                for (std::int64_t c = 0; c < w; ++c) {
                    const std::int64_t line = s.of_query(head) + c * s.queries + first;
                    gradients.add(dv + c, v_product(p, grad + line, n));
                    gradients.add(dk + c, k_product(ds, q + line, n));
                }
            }
        for (std::int64_t c = 0; c < w; ++c) {
            if (to_k.data != nullptr) to_k.put(at * w + c, dk[c] * how.factor());
            if (to_v.data != nullptr) to_v.put(at * w + c, dv[c]);
        }
    }
};

cuda::Output output_if(Cuda& cuda, TensorId id) {
    return id ? cuda::output(cuda, id) : cuda::Output{nullptr, format("fp32"), nullptr, false};
}

} // namespace

void run(Cuda& cuda, const FusedAttention& op) {
    const AttentionShape shape(cuda.info(op.q).shape, cuda.info(op.k).shape);
    const FormatSpec fq = cuda.info(op.q).format, fk = cuda.info(op.k).format, fv = cuda.info(op.v).format;
    const DeviceArray<float> q = packed(cuda, op.q, op.how.s_product, false),
                             k = packed(cuda, op.k, op.how.s_product, false),
                             v = packed(cuda, op.v, op.o_product, true);
    const std::int64_t rows = shape.heads * shape.queries, tile = std::min(op.how.key_tile, shape.keys);
    const DeviceArray<float> memory(cuda.device(), static_cast<std::size_t>(rows * (tile + shape.width)));
    const TileMask mask(cuda, op.mask, op.how, shape);
    cuda::each(
        cuda.device(), rows,
        ForwardRow{{shape, op.how, sum_of(op.how.s_product, fq, fk), q.data(), k.data(), mask.mask, mask.hidden.data()},
                   sum_of(op.o_product, op.p, fv),
                   {op.p, op.o_product},
                   op.sums,
                   op.o,
                   AttentionConstants(op),
                   op.offset,
                   op.how.scale,
                   v.data(),
                   memory.data(),
                   tile,
                   cuda::output(cuda, op.out),
                   cuda::output(cuda, op.lse)});
}

void run(Cuda& cuda, const FusedAttentionBackward& op) {
    const AttentionShape shape(cuda.info(op.q).shape, cuda.info(op.k).shape);
    const FormatSpec fq = cuda.info(op.q).format, fk = cuda.info(op.k).format, fv = cuda.info(op.v).format,
                     fg = cuda.info(op.grad_out).format;
    const MatmulArithmetic& how = op.how.s_product; // all products read operands alike
    const DeviceArray<float> q = packed(cuda, op.q, how, false), k = packed(cuda, op.k, how, false),
                             v = packed(cuda, op.v, how, false), grad = packed(cuda, op.grad_out, how, false);
    const std::int64_t rows = shape.heads * shape.queries, keys = shape.heads / shape.shared * shape.keys,
                       w = shape.width;
    const DeviceArray<float> d(cuda.device(), static_cast<std::size_t>(rows));
    const AttentionSteps steps(op.how);
    cuda::each(cuda.device(), rows, DotRow{w, steps, cuda.in(op.grad_out), cuda.in(op.out), d.data()});
    const TileMask mask(cuda, op.mask, op.how, shape);
    const TileGradients gradients{
        {shape, op.how, sum_of(how, fq, fk), q.data(), k.data(), mask.mask, mask.hidden.data()},
        steps,
        sum_of(op.dp_product, fg, fv),
        {op.ds, op.dv_product},
        {op.ds, op.dk_product},
        grad.data(),
        v.data(),
        cuda.in(op.lse),
        d.data()};
    if (op.grad_q) {
        const DeviceArray<float> turned = packed(cuda, op.k, how, true);
        const std::int64_t tile = std::min(op.how.key_tile, shape.keys);
        const DeviceArray<float> memory(cuda.device(), static_cast<std::size_t>(rows * (tile + w)));
        cuda::each(cuda.device(), rows,
                   QueryGradientRow{gradients, sum_of(op.dq_product, op.ds, fk), turned.data(), memory.data(), tile,
                                    cuda::output(cuda, op.grad_q), op.counted() == op.grad_q});
    }
    if (!op.grad_k && !op.grad_v) return;
    const DeviceArray<float> turned_grad = packed(cuda, op.grad_out, how, true),
                             turned_q = packed(cuda, op.q, how, true);
    const std::int64_t tile = std::min(op.how.row_tile, shape.queries);
    const DeviceArray<float> memory(cuda.device(), static_cast<std::size_t>(keys * 2 * (tile + w)));
    cuda::each(cuda.device(), keys,
               KeyGradientRow{gradients, sum_of(op.dv_product, op.ds, fg), sum_of(op.dk_product, op.ds, fq),
                              turned_grad.data(), turned_q.data(), memory.data(), tile, output_if(cuda, op.grad_k),
                              output_if(cuda, op.grad_v)});
}

} // namespace amp::op
