// The definitions of fused attention and its gradient, written as plain loops over scores in 60 digits that round where
// the op's header says so, against the ops.
#pragma once

#include "op_proofs_products.h"

#include <limits>
#include <optional>

namespace amp::test {

/// How a case computes; formats by name.
struct AttentionCase {
    const char *operands = "fp32", *p = "fp32", *scores = "fp32", *sums = "fp32", *o = "fp32", *ds = "fp32",
               *chain = "fp32";
    int offset = 0;
    double shift = 0;
    bool sums_rounded = false;
    Index rows = 4, keys = 3;
    bool causal = true;
    const char* result = "bf16";
    const char* read = "fp32";   ///< products read their operands in it
    const char* steps = nullptr; ///< results of the softmax's steps have it, if it is computed by steps
    bool masked = false;         ///< attention_mask() is added
    float far = 0;               ///< a number that masks use in place of -infinity, or 0
};

/// What is added to a scaled score; none: the key is hidden. Query 4 sees no key, and tiles are hidden as a whole. All
/// keys of query 2 have the case's `far` number, and the first four of query 3.
inline std::optional<Real> attention_mask(const AttentionCase& c, Index head, Index row, Index key) {
    if (c.far != 0 && (row == 2 || (row == 3 && key < 4))) return Real(c.far);
    if (row == 4 || (row * 7 + key * 5 + head) % 3 == 0 || (key > 5 && row < 8)) return {};
    return Real((row + 2 * key + head) % 4) / 4 - 1;
}

/// Operands, P and what backward multiplies in 16 bits, as kernels have it.
constexpr AttentionCase attention_of(const char* operands) {
    return {.operands = operands, .p = operands, .ds = operands};
}

inline std::vector<AttentionCase> attention_cases() {
    std::vector<AttentionCase> all = {{},
                                      {.rows = 1, .keys = 1, .result = "fp32"},
                                      {.rows = 64, .keys = 64, .causal = false, .result = "fp32"},
                                      {.rows = 2, .keys = 5, .causal = false, .result = "fp16"},
                                      {.rows = 5, .keys = 2, .result = "e5m2"},
                                      {.result = "fp32", .read = "tf32"},
                                      attention_of("bf16"),
                                      attention_of("fp16")};
    const auto add = [&](const char* operands, const auto& change) {
        all.push_back(attention_of(operands));
        change(all.back());
    };
    add("bf16", [](AttentionCase& c) { c.scores = c.sums = c.o = "bf16", c.causal = false; });
    add("bf16", [](AttentionCase& c) { c.scores = "e5m2", c.o = "bf16", c.shift = 2; });
    add("bf16", [](AttentionCase& c) { c.scores = "e5m2", c.o = "bf16", c.shift = 3.5, c.causal = false; });
    add("bf16", [](AttentionCase& c) { c.p = "e4m3", c.offset = 8; });
    add("bf16", [](AttentionCase& c) { c.p = "e4m3", c.offset = 8, c.sums_rounded = true, c.shift = 2; });
    add("bf16", [](AttentionCase& c) { c.p = c.ds = "e5m2", c.sums = c.o = "fp16", c.offset = 3, c.result = "tf32"; });
    add("bf16", [](AttentionCase& c) { c.chain = "bf16"; });
    add("bf16", [](AttentionCase& c) { c.scores = c.sums = c.o = c.steps = "bf16"; });
    add("bf16", [](AttentionCase& c) { c.steps = "e5m2", c.shift = 3.5, c.causal = false, c.result = "fp32"; });
    add("fp16", [](AttentionCase& c) { c.steps = "fp16", c.p = "e4m3", c.offset = 8, c.rows = 2, c.keys = 4; });
    add("bf16", [](AttentionCase& c) { c.steps = "e4m3", c.keys = 2; }); // a format without infinity
    add("fp32", [](AttentionCase& c) { c.steps = "fp32", c.shift = 2, c.result = "fp32"; });
    add("fp16", [](AttentionCase& c) { c.chain = "e6m9", c.rows = 3, c.keys = 4, c.result = "e4m3"; });
    for (const std::size_t like : {0U, 2U, 5U, 9U, 11U, 13U, 16U, 18U, 20U}) { // the same with a mask
        all.push_back(all[like]);
        all.back().masked = true;
        all.back().causal = false;
    }
    constexpr float most = std::numeric_limits<float>::max();
    for (const auto& [like, number] : {std::pair(0U, -1e4F),
                                       {0U, -1e10F},
                                       {1U, -1e30F},
                                       {2U, -most},
                                       {0U, 1e38F},
                                       {3U, most},
                                       {7U, -1e9F},
                                       {11U, -1e10F},
                                       {15U, -1e30F}}) {
        all.push_back(all[like]);
        all.back().masked = true;
        all.back().causal = false;
        all.back().far = number;
    }
    return all;
}

inline constexpr Index attention_heads = 4, attention_groups = 2, attention_tokens = 9, attention_width = 5;
inline constexpr double attention_scale = 0x1.9p-2;

/// A matrix of numbers in memory, of which a row is `width` long.
inline Real matrix_at(const Reals& x, Index row, Index column) {
    return reference::at(x, row * attention_width + column);
}

/// Sums as the definitions have them, for one case.
struct AttentionRounding {
    const AttentionCase& c;

    [[nodiscard]] Real read(const Real& x) const { return rounded(c.read, x); }
    /// n products as a chain; pair(i): the factors.
    template <class Pair>
    [[nodiscard]] Real chain(Index n, const Pair& pair) const {
        Real sum = 0;
        for (Index i = 0; i < n; ++i) {
            const auto [x, y] = pair(i);
            sum = rounded(c.chain, read(x) * read(y) + sum);
        }
        return sum;
    }
    [[nodiscard]] static Real power(const Real& x) { return x < -1000 ? Real(0) : single(pow(Real(2), x)); }
    /// Whether masked attention treats an exponent as one of a number that stands for -infinity.
    [[nodiscard]] bool is_far(const Real& exponent) const { return c.masked && abs(exponent) >= 1024; }
    /// The result of a step: an FP32 number, and by steps one of their format.
    [[nodiscard]] Real step(const Real& x) const {
        return c.steps == nullptr ? Real(single(x)) : Real(rounded(c.steps, Real(single(x))));
    }
    [[nodiscard]] Real exponential(const Real& x, int offset = 0) const {
        return x < -1000 ? Real(0) : step(ldexp(Real(exp(step(x))), offset));
    }
    [[nodiscard]] static Real scale() { return single(Real(attention_scale)); }
    [[nodiscard]] static Real log2_e() { return 1 / log(Real(2)); }
    [[nodiscard]] static Real exponent() { return single(Real(attention_scale) * log2_e()); }
    [[nodiscard]] Real score(const Reals& q, const Reals& k, Index head, Index row, Index key) const {
        const Index a = head * attention_tokens + row, b = head / 2 * attention_tokens + key;
        const Real sum =
            chain(attention_width, [&](Index i) { return std::pair(matrix_at(q, a, i), matrix_at(k, b, i)); });
        Real score = rounded(c.scores, sum);
        if (c.steps != nullptr) score = step(score * scale());
        const auto added = c.masked ? attention_mask(c, head, row, key) : std::optional<Real>();
        if (!added) return score;
        if (c.steps != nullptr) return step(score + *added);
        const Real most = std::numeric_limits<float>::max();
        const Real quotient = *added / Real(attention_scale);
        const Real finite = quotient > most ? most : quotient < -most ? Real(-most) : quotient;
        return rounded(c.scores, Real(single(score + Real(single(finite)))));
    }
    [[nodiscard]] bool sees(Index head, Index row, Index key) const {
        return (!c.causal || key <= row) && (!c.masked || attention_mask(c, head, row, key));
    }
    /// Whether the tile with this key is left out for the tile with this row.
    [[nodiscard]] bool skips(Index head, Index row, Index key) const {
        for (Index i = row / c.rows * c.rows; i < std::min((row / c.rows + 1) * c.rows, attention_tokens); ++i)
            for (Index j = key / c.keys * c.keys; j < std::min((key / c.keys + 1) * c.keys, attention_tokens); ++j)
                if (sees(head, i, j)) return false;
        return true;
    }
    /// total * factor + more.
    [[nodiscard]] static Real added(const char* f, const Real& total, const Real& factor, const Real& more) {
        const auto in = [&](const Real& x) { return Real(rounded(f, Real(single(x)))); };
        return in(in(total * factor) + in(more));
    }
};

/// Forward for one row: `width` results and the logsumexp.
struct AttentionRowResult {
    Reals out;
    Real lse;
};
inline AttentionRowResult attention_row(const AttentionCase& c, const Reals& q, const Reals& k, const Reals& v,
                                        Index head, Index row) {
    const AttentionRounding math{c};
    const Real e = math.exponent(), within = single(Real(c.steps == nullptr ? 0.001 / attention_scale : 0.001));
    std::optional<Real> most;
    Real l = 0;
    Reals o(attention_width, Real(0));
    for (Index first = 0; first < attention_tokens; first += c.keys) {
        if (math.skips(head, row, first)) continue;
        const Index n = std::min(c.keys, attention_tokens - first);
        Reals s, p;
        std::optional<Real> here;
        for (Index j = 0; j < n; ++j) {
            s.push_back(math.score(q, k, head, row, first + j));
            if (math.sees(head, row, first + j) && (!here || s.back() > *here)) here = s.back();
        }
        if (c.shift > 0 && here) {
            int reached = 0;
            for (Index j = 0; j < n; ++j)
                reached += math.sees(head, row, first + j) && reference::at(s, j) >= math.step(*here - within) ? 1 : 0;
            if (reached > 1) here = *here > 0 ? math.step(*here * c.shift) : Real(0);
        }
        const Real before = most.value_or(Real(0));
        Real factor = most ? 1 : 0;
        if (most && here && *here > *most)
            factor = c.steps != nullptr ? math.exponential(before - *here)
                                        : math.power(single(Real(single(before - *here)) * e));
        if (here && (!most || *here > *most)) most = here;
        const Real used = most.value_or(Real(0)), scaled = single(used * e), add = single(c.offset - scaled);
        Real sum = 0;
        for (Index j = 0; j < n; ++j) {
            if (!math.sees(head, row, first + j)) p.emplace_back(0);
            else if (c.steps != nullptr) p.push_back(math.exponential(reference::at(s, j) - used, c.offset));
            else if (math.is_far(scaled))
                p.push_back(math.power(single(Real(single(reference::at(s, j) - used)) * e + c.offset)));
            else p.push_back(math.power(single(reference::at(s, j) * e + add)));
            if (c.sums_rounded) p.back() = rounded(c.p, p.back());
            sum = single(sum + p.back());
        }
        l = math.added(c.sums, l, factor, sum);
        for (Index i = 0; i < attention_width; ++i) {
            const Real more = math.chain(n, [&](Index j) {
                return std::pair(Real(rounded(c.p, reference::at(p, j))),
                                 matrix_at(v, head / 2 * attention_tokens + first + j, i));
            });
            Real& to = o[static_cast<std::size_t>(i)];
            to = math.added(c.o, to, factor, more);
        }
    }
    if (!most) return {.out = o, .lse = std::numeric_limits<Real>::infinity()};
    const Real log_sum = log(l) - c.offset * log(Real(2));
    AttentionRowResult result{.out = {}, .lse = *most * attention_scale + log_sum};
    if (c.steps != nullptr) result.lse = math.step(*most + math.step(log_sum));
    for (const Real& x : o) result.out.emplace_back(Real(x / l).convert_to<double>());
    return result;
}

/// A program of forward and backward of one case, both run.
struct AttentionBench {
    Bench b;
    const Shape queries{1, attention_heads, attention_tokens, attention_width},
        keys{1, attention_groups, attention_tokens, attention_width};
    TensorId q, k, v, out, lse, grad, grad_q, grad_k, grad_v, mask;

    explicit AttentionBench(const AttentionCase& c)
        : q(b.tensor(queries, c.operands)), k(b.tensor(keys, c.operands)), v(b.tensor(keys, c.operands)),
          out(b.tensor(queries, c.result)), lse(b.tensor({1, attention_heads, attention_tokens}, "fp32")),
          grad(b.tensor(queries, c.operands)), grad_q(b.tensor(queries, c.result)), grad_k(b.tensor(keys, c.result)),
          grad_v(b.tensor(keys, c.result)),
          mask(c.masked ? b.tensor({1, attention_heads, attention_tokens, attention_tokens}, "fp32") : TensorId{}) {
        b.start({q, k, v, grad});
        if (mask) write_mask(c);
        op::FusedAttention f;
        f.q = q, f.k = k, f.v = v, f.out = out, f.lse = lse, f.mask = mask;
        f.how = {.row_tile = c.rows,
                 .key_tile = c.keys,
                 .causal = c.causal,
                 .scale = attention_scale,
                 .scores = format(c.scores),
                 .s_product = {.operands = format(c.read), .accumulate = accumulator(c.chain)}};
        f.p = format(c.p), f.sums = format(c.sums), f.o = format(c.o);
        f.how.by_steps = c.steps != nullptr;
        if (f.how.by_steps) f.how.steps = format(c.steps);
        f.sums_rounded = c.sums_rounded;
        f.offset = c.offset, f.shift = c.shift, f.o_product = f.how.s_product;
        b.cpu().run(f);
        op::FusedAttentionBackward g;
        g.q = q, g.k = k, g.v = v, g.out = out, g.lse = lse, g.grad_out = grad, g.mask = mask;
        g.grad_q = grad_q, g.grad_k = grad_k, g.grad_v = grad_v;
        g.how = f.how, g.ds = format(c.ds);
        g.dp_product = g.dv_product = g.dk_product = g.dq_product = f.how.s_product;
        b.cpu().run(g);
    }

  private:
    void write_mask(const AttentionCase& c) {
        auto to = b.cpu()[mask].begin();
        for (Index head = 0; head < attention_heads; ++head)
            for (Index row = 0; row < attention_tokens; ++row)
                for (Index key = 0; key < attention_tokens; ++key)
                    *to++ = attention_mask(c, head, row, key)
                                .value_or(-std::numeric_limits<Real>::infinity())
                                .convert_to<float>();
    }
};

inline void prove_op(Of<op::FusedAttention>, Tally& tally) {
    for (const AttentionCase& c : attention_cases()) {
        const AttentionBench a(c);
        const Reals q = a.b.values(a.q), k = a.b.values(a.k), v = a.b.values(a.v);
        Reals out;
        std::vector<float> lse;
        for (Index head = 0; head < attention_heads; ++head)
            for (Index row = 0; row < attention_tokens; ++row) {
                const AttentionRowResult want = attention_row(c, q, k, v, head, row);
                out.insert(out.end(), want.out.begin(), want.out.end());
                const bool sees_none = isinf(want.lse);
                lse.push_back(sees_none ? std::numeric_limits<float>::infinity() : rounded("fp32", want.lse));
            }
        a.b.expect(tally, a.out, out, "fused_attention");
        a.b.expect_bits(tally, a.lse, lse, "logsumexp of fused_attention");
    }
}

/// All of backward: dP, dS and the totals of one case.
struct AttentionGradients {
    const AttentionCase& c;
    AttentionRounding math{c};
    Reals q, k, v, out, lse, grad;
    Reals dq = Reals(attention_heads * attention_tokens * attention_width, Real(0)), dk = Reals(dq.size() / 2, Real(0)),
          dv = dk;

    /// P and dS of a query and a key, rounded to `ds`.
    [[nodiscard]] std::pair<Real, Real> of(Index head, Index row, Index key) const {
        if (!math.sees(head, row, key)) return {0, 0};
        const Index at = head * attention_tokens + row, at_key = head / 2 * attention_tokens + key;
        const Real score = math.score(q, k, head, row, key), sum = reference::at(lse, at);
        const Real dp = math.chain(attention_width,
                                   [&](Index i) { return std::pair(matrix_at(grad, at, i), matrix_at(v, at_key, i)); });
        Real d = 0;
        if (c.steps != nullptr) {
            for (Index i = 0; i < attention_width; ++i)
                d = single(math.step(matrix_at(grad, at, i) * matrix_at(out, at, i)) + d);
            const Real p = math.exponential(score - sum);
            const Real ds = math.step(math.step(p * math.scale()) * math.step(math.step(dp) - math.step(d)));
            return {rounded(c.ds, p), rounded(c.ds, ds)};
        }
        const Real less = single(sum * single(math.log2_e())), exponent = single(score * math.exponent() - less);
        const Real p = math.power(math.is_far(less) && exponent > 0 ? Real(0) : exponent);
        for (Index i = 0; i < attention_width; ++i) d = single(matrix_at(grad, at, i) * matrix_at(out, at, i) + d);
        return {rounded(c.ds, p), rounded(c.ds, Real(single(p * single(dp - d))))};
    }
    void add(Reals& total, Index row, Index column, const Real& more) const {
        Real& to = total[static_cast<std::size_t>(row * attention_width + column)];
        to = math.step(to + (c.steps == nullptr ? more : math.step(more)));
    }
    void add_tile(Index head, Index first_row, Index first_key) {
        const Index rows = std::min(c.rows, attention_tokens - first_row),
                    keys = std::min(c.keys, attention_tokens - first_key);
        const Index at = head * attention_tokens + first_row, at_key = head / 2 * attention_tokens + first_key;
        std::vector<std::pair<Real, Real>> tile;
        for (Index i = 0; i < rows; ++i)
            for (Index j = 0; j < keys; ++j) tile.push_back(of(head, first_row + i, first_key + j));
        const auto in_tile = [&](Index i, Index j) { return tile[static_cast<std::size_t>(i * keys + j)]; };
        for (Index w = 0; w < attention_width; ++w) {
            for (Index j = 0; j < keys; ++j) {
                add(dv, at_key + j, w, math.chain(rows, [&](Index i) {
                    return std::pair(in_tile(i, j).first, matrix_at(grad, at + i, w));
                }));
                add(dk, at_key + j, w, math.chain(rows, [&](Index i) {
                    return std::pair(in_tile(i, j).second, matrix_at(q, at + i, w));
                }));
            }
            for (Index i = 0; i < rows; ++i)
                add(dq, at + i, w, math.chain(keys, [&](Index j) {
                    return std::pair(in_tile(i, j).second, matrix_at(k, at_key + j, w));
                }));
        }
    }
    void run() {
        for (Index head = 0; head < attention_heads; ++head)
            for (Index key = 0; key < attention_tokens; key += c.keys)
                for (Index row = 0; row < attention_tokens; row += c.rows)
                    if (!math.skips(head, row, key)) add_tile(head, row, key);
    }
};

inline void prove_op(Of<op::FusedAttentionBackward>, Tally& tally) {
    for (const AttentionCase& c : attention_cases()) {
        const AttentionBench a(c);
        AttentionGradients want{.c = c,
                                .q = a.b.values(a.q),
                                .k = a.b.values(a.k),
                                .v = a.b.values(a.v),
                                .out = a.b.values(a.out),
                                .lse = a.b.values(a.lse),
                                .grad = a.b.values(a.grad)};
        want.run();
        const auto scaled = [&](const Reals& x) {
            const double factor = c.steps == nullptr ? attention_scale : 1;
            return reference::map(x, [&](const Real& y) { return Real(Real(y * factor).convert_to<double>()); });
        };
        a.b.expect(tally, a.grad_q, scaled(want.dq), "gradient of q of fused_attention");
        a.b.expect(tally, a.grad_k, scaled(want.dk), "gradient of k of fused_attention");
        a.b.expect(tally, a.grad_v, want.dv, "gradient of v of fused_attention");
    }
}

} // namespace amp::test
