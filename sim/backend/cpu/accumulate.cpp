#include <ampscope/sim/backend/cpu/detail/accumulate.h>

#include <ampscope/formats/environment.h>
#include <ampscope/formats/split_k.h>
#include <ampscope/sim/backend/cpu/detail/column_sums.h>
#include <ampscope/sim/backend/cpu/detail/product_task.h>
#include <ampscope/sim/backend/cpu/detail/step_sums.h>
#include <ampscope/sim/backend/cpu/detail/strips.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace amp::cpu {

float plain(const Product& p, std::int64_t i, std::int64_t j) {
    std::vector<float> x, y;
    for (std::int64_t l = 0; l < p.k; ++l) {
        x.push_back(at(p.a, i, l));
        y.push_back(at(p.b, l, j));
    }
    const auto scales = [&](const float* of, std::int64_t line) {
        return std::span(of + line * p.blocks(), static_cast<std::size_t>(p.blocks()));
    };
    const float d = p.scales.a == nullptr ? dot(p.accumulator, p.a_format, p.b_format, x, y)
                                          : scaled_dot(p.accumulator, p.a_format, p.b_format,
                                                       {x, scales(p.scales.a, i)}, {y, scales(p.scales.b, j)},
                                                       static_cast<std::size_t>(p.scales.block), p.scales.format);
    return std::isnan(d) ? canonical_nan : d;
}

namespace {

template <class Sums>
void by_columns(const Product& p, const Sums& prototype) {
    by_strips<sum_width>(p, [&](const float* a, const float* strip, std::int64_t n, float* out, std::uint64_t*) {
        Sums sums = prototype;
        sums.begin();
        for (std::int64_t l = 0; l < p.k; ++l) sums.add(p.set, a[l * p.a.column_stride], strip + l * sum_width, n);
        for (std::int64_t c = 0; c < n; ++c) out[c] = sums.end(c);
    });
}

/// A sum without promotion, or a fused one with it.
void sum(const Product& p) {
    const Accumulator& acc = p.accumulator;
    switch (acc.method) {
    case Accumulation::chain:
        if (acc.sum == fp32_format()) return matmul(p.a, p.b, p.out, p.m, p.n, p.k, p.threads, p.set);
        if (chain_in_registers(p)) return;
        return by_columns(p, ChainSums(acc.sum));
    case Accumulation::exact:
        return by_strips<ExactStrip<64>::width, double>(
            p, [&](const float* a, const double* b, std::int64_t, float* out, std::uint64_t* lost) {
                dispatch_vectors<ExactStrip>(p.set, a, p.a.column_stride, b, p.k, out, lost);
            });
    case Accumulation::pairwise:
        return by_strips<PairwiseStrip::width>(
            p, [&](const float* a, const float* b, std::int64_t, float* out, std::uint64_t*) {
                dispatch<PairwiseStrip>(p.set, a, p.a.column_stride, b, p.k, out);
            });
    case Accumulation::kahan:
        return by_strips<KahanStrip<64>::width>(
            p, [&](const float* a, const float* b, std::int64_t, float* out, std::uint64_t*) {
                dispatch_vectors<KahanStrip>(p.set, a, p.a.column_stride, b, p.k, out);
            });
    case Accumulation::fused: return sum_fused(p);
    case Accumulation::wrapped:
    case Accumulation::clamped: return by_columns(p, IntegerSums(acc));
    case Accumulation::floored:
    case Accumulation::floored_halves:
        return by_columns(p, StepSums<FlooredKernel>(acc, acc.reads(p.a_format), acc.reads(p.b_format)));
    case Accumulation::flushed_tree:
    case Accumulation::flushed_pairs:
    case Accumulation::flushed_chains:
        return by_columns(p, StepSums<FlushedKernel>(acc, acc.reads(p.a_format), acc.reads(p.b_format)));
    }
}

/// A sum without split-K.
void promoted(Product p) {
    const Accumulator& acc = p.accumulator;
    if (acc.promote_every == 0 || acc.method == Accumulation::fused) return sum(p);
    const std::int64_t k = p.k;
    const MatrixView a = p.a, b = p.b;
    float* const out = p.out;
    std::vector<float> part(static_cast<std::size_t>(p.m * p.n));
    p.out = part.data();
    std::fill_n(out, p.m * p.n, 0.0F);
    for (std::int64_t l = 0; l < k; l += acc.promote_every) {
        p.a.data = a.data + l * a.column_stride;
        p.b.data = b.data + l * b.row_stride;
        p.k = std::min<std::int64_t>(acc.promote_every, k - l);
        sum(p);
        add_sums(fp32_format(), out, part.data(), p.m * p.n);
    }
    for (std::int64_t i = 0; i < p.m * p.n; ++i)
        if (std::isnan(out[i])) out[i] = canonical_nan;
}

/// The products of one part of split-K, as matrices of their own.
std::vector<float> sums_of_part(const Product& p, const PartOfSum& part) {
    const Accumulator acc = p.accumulator.of_part();
    const auto count = static_cast<std::int64_t>(part.count), block = std::max<std::int64_t>(p.scales.block, 1);
    const auto place = [&](std::int64_t i) { return static_cast<std::int64_t>(part.at(static_cast<std::size_t>(i))); };
    std::vector<float> a, b, a_scales, b_scales, out(static_cast<std::size_t>(p.m * p.n));
    if (count == 0) return out;
    for (std::int64_t i = 0; i < p.m; ++i)
        for (std::int64_t l = 0; l < count; ++l) a.push_back(at(p.a, i, place(l)));
    for (std::int64_t l = 0; l < count; ++l)
        for (std::int64_t j = 0; j < p.n; ++j) b.push_back(at(p.b, place(l), j));
    const auto gather = [&](const float* scales, std::int64_t lines, std::vector<float>& to) {
        for (std::int64_t i = 0; i < lines && scales != nullptr; ++i)
            for (std::int64_t l = 0; l < count; l += block) to.push_back(scales[i * p.blocks() + place(l) / block]);
        return to.data();
    };
    ProductScalesView scales = p.scales;
    if (scales.a != nullptr) {
        scales.a = gather(p.scales.a, p.m, a_scales);
        scales.b = gather(p.scales.b, p.n, b_scales);
    }
    promoted({acc,
              p.a_format,
              p.b_format,
              {a.data(), count, 1},
              {b.data(), p.n, 1},
              out.data(),
              p.m,
              p.n,
              count,
              p.threads,
              p.set,
              scales});
    return out;
}

void split(const Product& p) {
    const std::vector<float> sums = sum_of_parts(
        p.accumulator, std::vector<float>(static_cast<std::size_t>(p.m * p.n)),
        [&](std::size_t i) { return sums_of_part(p, part_of_sum(p.accumulator, i, static_cast<std::size_t>(p.k))); },
        [&](std::vector<float> x, const std::vector<float>& y) {
            add_sums(p.accumulator.total(), x.data(), y.data(), std::ssize(y));
            return x;
        });
    for (std::size_t i = 0; i < sums.size(); ++i) p.out[i] = std::isnan(sums[i]) ? canonical_nan : sums[i];
}

void multiply(const Product& p) {
    const FloatEnvironment environment;
    if (p.k == 0) std::fill_n(p.out, p.m * p.n, 0.0F);
    if (p.m == 0 || p.n == 0 || p.k == 0) return;
    if (p.accumulator.parts > 1) split(p);
    else promoted(p);
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

/// A product whose accumulator does not take the scales: the sums of blocks along k, each times both scales.
void multiply_blocks(Product p) {
    const std::int64_t blocks = p.blocks(), block = p.scales.block, k = p.k;
    const ProductScalesView scales = std::exchange(p.scales, {});
    if (p.accumulator.is_fp32_chain())
        return matmul(p.a, p.b, p.out, p.m, p.n, p.k, p.threads, p.set,
                      {block, {scales.a, blocks, 1}, {scales.b, 1, blocks}});
    std::vector<float> sums(static_cast<std::size_t>(p.m * p.n)), of_columns(static_cast<std::size_t>(p.n));
    float* const out = std::exchange(p.out, sums.data());
    for (std::int64_t c = 0; c < blocks; ++c) {
        p.k = std::min(block, k - c * block);
        multiply(p);
        for (std::int64_t j = 0; j < p.n; ++j) of_columns[static_cast<std::size_t>(j)] = scales.b[j * blocks + c];
        over_threads(p, p.m, p.n, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i)
                dispatch<ScaleKernel>(p.set, scales.a[i * blocks + c], of_columns.data(), sums.data() + i * p.n,
                                      out + i * p.n, p.n, c == 0);
        });
        p.a.data += block * p.a.column_stride;
        p.b.data += block * p.b.row_stride;
    }
}

} // namespace

void accumulate(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format, MatrixView a,
                MatrixView b, float* out, std::int64_t m, std::int64_t n, std::int64_t k, int threads,
                InstructionSet set) {
    multiply({accumulator, a_format, b_format, a, b, out, m, n, k, threads, set});
}

void accumulate_scaled(const Accumulator& accumulator, const FormatSpec& a_format, const FormatSpec& b_format,
                       MatrixView a, MatrixView b, const ProductScalesView& scales, float* out, std::int64_t m,
                       std::int64_t n, std::int64_t k, int threads, InstructionSet set) {
    const Product p{accumulator, a_format, b_format, a, b, out, m, n, k, threads, set, scales};
    if (k == 0 || applies_scales(accumulator, scales.format, scales.block)) multiply(p);
    else multiply_blocks(p);
}

} // namespace amp::cpu
