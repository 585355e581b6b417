// The ops of a network once more, from their definitions, with numbers of 60 digits: plain loops that share nothing
// with sim/. Tensors are flat arrays; extents are arguments.
#pragma once

#include "oracle.h"

#include <ampscope/sim/program/ops/activation.h>
#include <ampscope/sim/program/ops/conv2d.h>

#include <boost/multiprecision/cpp_bin_float.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace reference {

using Real = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<60>, boost::multiprecision::et_off>;
using Reals = std::vector<Real>;
using Index = std::int64_t;

inline Real at(const Reals& x, Index i) { return x[static_cast<std::size_t>(i)]; }

/// The value of a format that x rounds to, the nearest unless the policy says otherwise, by the oracle; zeros are +0.
inline float rounded(std::string_view format, const Real& x, const amp::Policy& policy = {}, std::uint32_t random = 0) {
    const oracle::Facts& f = oracle::find(format);
    if (x == 0) return 0;
    int exponent = 0;
    const Real fraction = frexp(abs(x), &exponent);
    oracle::Number n{.kind = oracle::Class::finite, .negative = x < 0};
    n.numerator = oracle::Integer(ldexp(fraction, 190)); // all bits of it
    n.exponent = exponent - 190;
    return oracle::to_float(f, oracle::store({f, policy, random}, n).code);
}

/// Philox4x32-10 (Salmon et al. 2011), written from the paper.
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p = std::uint64_t{0xd2511f53} * c[0], q = std::uint64_t{0xcd9e8d57} * c[2];
        const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x / 0x100000000); };
        const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x % 0x100000000); };
        c = {high(q) ^ c[1] ^ k[0], low(q), high(p) ^ c[3] ^ k[1], low(p)};
        k = {k[0] + 0x9e3779b9, k[1] + 0xbb67ae85};
    }
    return c;
}

/// (m x k) times (k x n), or times the transpose of (n x k).
inline Reals matmul(const Reals& a, const Reals& b, Index m, Index n, Index k, bool transpose_b) {
    Reals out;
    for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < n; ++j) {
            Real sum = 0;
            for (Index l = 0; l < k; ++l) sum += at(a, i * k + l) * at(b, transpose_b ? j * k + l : l * n + j);
            out.push_back(sum);
        }
    return out;
}

inline Reals add(const Reals& a, const Reals& b) {
    Reals out;
    for (std::size_t i = 0; i < a.size(); ++i) out.push_back(a[i] + b[i % b.size()]);
    return out;
}

inline Reals mul(const Reals& a, const Reals& b) {
    Reals out;
    for (std::size_t i = 0; i < a.size(); ++i) out.push_back(a[i] * b[i % b.size()]);
    return out;
}

template <class F>
Reals map(const Reals& x, const F& f) {
    Reals out;
    for (const Real& v : x) out.push_back(f(v));
    return out;
}

inline Real relu(const Real& x) { return x > 0 ? x : Real(0); }
inline Real sigmoid(const Real& x) { return 1 / (1 + exp(-x)); }
/// The error function by its series, for |x| below 6.
inline Real erf(const Real& x) {
    Real term = x, sum = x;
    for (int n = 1; n < 400; ++n) {
        term *= -x * x / n;
        sum += term / (2 * n + 1);
    }
    return sum * 2 / sqrt(acos(Real(-1)));
}
inline Real gelu(const Real& x) { return x * (1 + erf(x / sqrt(Real(2)))) / 2; }
inline Real gelu_tanh(const Real& x) {
    const Real c = Real(44715) / 1000000;
    return x * (1 + tanh(sqrt(2 / acos(Real(-1))) * (x + c * x * x * x))) / 2;
}

/// Each row of op::activation_names, in that order.
struct ActivationRow {
    amp::op::ActivationKind kind;
    Real (*f)(const Real&);
};
inline const std::array<ActivationRow, amp::op::activation_names.size()> activations = {
    {{amp::op::ActivationKind::relu, relu},
     {amp::op::ActivationKind::gelu, gelu},
     {amp::op::ActivationKind::gelu_tanh, gelu_tanh},
     {amp::op::ActivationKind::tanh, [](const Real& x) { return Real(tanh(x)); }},
     {amp::op::ActivationKind::sigmoid, sigmoid},
     {amp::op::ActivationKind::silu, [](const Real& x) { return Real(x * sigmoid(x)); }}}};

/// Softmax over rows of n; causal: row i of every n rows uses its first i + 1 elements.
inline Reals softmax(const Reals& x, Index n, bool causal) {
    Reals out;
    for (Index r = 0; r < static_cast<Index>(x.size()) / n; ++r) {
        const Index known = causal ? r % n + 1 : n;
        Real sum = 0;
        for (Index j = 0; j < known; ++j) sum += exp(at(x, r * n + j));
        for (Index j = 0; j < n; ++j) out.push_back(j < known ? Real(exp(at(x, r * n + j)) / sum) : Real(0));
    }
    return out;
}

/// Heads of tokens of `width` numbers; `shared` heads of queries, one after the other, read one of keys and values.
struct AttentionExtents {
    Index heads, shared, tokens, width;
};
/// The softmax of scaled scores, to which a mask is added if there is one, times values; causal: query i sees keys
/// 0 ... i. A mask has a number for each query and key, the same for all heads.
inline Reals attention(const Reals& q, const Reals& k, const Reals& v, const AttentionExtents& e, const Real& scale,
                       bool causal, const std::vector<float>& mask = {}) {
    Reals out;
    for (Index row = 0; row < e.heads * e.tokens; ++row) {
        const Index first = row / e.tokens / e.shared * e.tokens, known = causal ? row % e.tokens + 1 : e.tokens;
        Reals weights, sums(static_cast<std::size_t>(e.width), Real(0));
        Real total = 0;
        for (Index j = 0; j < known; ++j) {
            Real score = 0;
            for (Index c = 0; c < e.width; ++c) score += at(q, row * e.width + c) * at(k, (first + j) * e.width + c);
            const float added = mask.empty() ? 0 : mask[static_cast<std::size_t>(row % e.tokens * e.tokens + j)];
            weights.push_back(std::isinf(added) ? Real(0) : Real(exp(Real(score * scale + added))));
            total += weights.back();
        }
        for (Index c = 0; c < e.width; ++c) {
            Real sum = 0;
            for (Index j = 0; j < known; ++j) sum += at(weights, j) * at(v, (first + j) * e.width + c);
            out.push_back(sum / total);
        }
    }
    return out;
}

inline Reals norm(const Reals& x, const Reals& weight, const Reals& bias, const Real& eps, bool centers) {
    const auto n = static_cast<Index>(weight.size());
    Reals out;
    for (Index r = 0; r < static_cast<Index>(x.size()) / n; ++r) {
        Real mean = 0, variance = 0;
        for (Index j = 0; j < n && centers; ++j) mean += at(x, r * n + j) / n;
        for (Index j = 0; j < n; ++j) variance += (at(x, r * n + j) - mean) * (at(x, r * n + j) - mean) / n;
        for (Index j = 0; j < n; ++j)
            out.push_back((at(x, r * n + j) - mean) / sqrt(variance + eps) * at(weight, j) +
                          (bias.empty() ? Real(0) : at(bias, j)));
    }
    return out;
}

/// N x C x positions: row r of `groups` a sample, and the parameters of its channels, each of them `positions` times.
struct GroupRow {
    Reals x, weight, bias;
};
inline GroupRow group_row(const Reals& x, const Reals& weight, const Reals& bias, Index r, Index groups,
                          Index positions) {
    const Index channels = static_cast<Index>(weight.size()) / groups;
    GroupRow row;
    for (Index c = 0; c < channels; ++c)
        for (Index i = 0; i < positions; ++i) {
            row.x.push_back(at(x, (r * channels + c) * positions + i));
            row.weight.push_back(at(weight, r % groups * channels + c));
            if (!bias.empty()) row.bias.push_back(at(bias, r % groups * channels + c));
        }
    return row;
}
inline Reals group_norm(const Reals& x, const Reals& weight, const Reals& bias, Index groups, Index positions,
                        const Real& eps) {
    const Index rows = static_cast<Index>(x.size()) * groups / (static_cast<Index>(weight.size()) * positions);
    Reals out;
    for (Index r = 0; r < rows; ++r) {
        const GroupRow row = group_row(x, weight, bias, r, groups, positions);
        const Reals y = norm(row.x, row.weight, row.bias, eps, true);
        out.insert(out.end(), y.begin(), y.end());
    }
    return out;
}

/// Mean and variance (of n numbers, divided by n) of each of the channels, which are the last axis.
struct Statistics {
    Reals mean, variance;
};
inline Statistics statistics(const Reals& x, Index channels) {
    const Index n = static_cast<Index>(x.size()) / channels;
    Statistics s;
    for (Index c = 0; c < channels; ++c) {
        Real mean = 0, variance = 0;
        for (Index i = 0; i < n; ++i) mean += at(x, i * channels + c) / n;
        for (Index i = 0; i < n; ++i) variance += pow(at(x, i * channels + c) - mean, 2) / n;
        s.mean.push_back(mean);
        s.variance.push_back(variance);
    }
    return s;
}

inline Reals batch_norm(const Reals& x, const Reals& weight, const Reals& bias, const Reals& mean,
                        const Reals& inverse) {
    Reals out;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t c = i % weight.size();
        out.push_back((x[i] - mean[c]) * inverse[c] * weight[c] + bias[c]);
    }
    return out;
}

/// Images N x H x W x C, filters OUT x KERNEL_H x KERNEL_W x C / GROUPS: the seven loops of textbooks.
inline Reals conv2d(const Reals& x, const Reals& w, const Reals& bias, Index batch, Index height, Index width,
                    Index channels, const amp::op::ConvAxis& v, const amp::op::ConvAxis& h, Index groups = 1) {
    const auto outs = static_cast<Index>(bias.size());
    const Index own = channels / groups; // channels that a filter reads
    const Index down = v.dilation * (v.kernel - 1), across = h.dilation * (h.kernel - 1);
    Reals out;
    for (Index n = 0; n < batch; ++n)
        for (Index top = -v.padding; top + down < height + v.padding; top += v.stride)
            for (Index left = -h.padding; left + across < width + h.padding; left += h.stride)
                for (Index o = 0; o < outs; ++o) {
                    Real sum = at(bias, o);
                    for (Index i = 0; i < v.kernel; ++i)
                        for (Index j = 0; j < h.kernel; ++j)
                            for (Index c = 0; c < own; ++c) {
                                const Index y = top + i * v.dilation, z = left + j * h.dilation;
                                const Index channel = o / (outs / groups) * own + c;
                                if (y >= 0 && y < height && z >= 0 && z < width)
                                    sum += at(x, ((n * height + y) * width + z) * channels + channel) *
                                           at(w, ((o * v.kernel + i) * h.kernel + j) * own + c);
                            }
                    out.push_back(sum);
                }
    return out;
}

inline Reals pool(const Reals& x, Index batch, Index height, Index width, Index channels, Index size, bool max) {
    Reals out;
    for (Index n = 0; n < batch; ++n)
        for (Index y = 0; y + size <= height; y += size)
            for (Index z = 0; z + size <= width; z += size)
                for (Index c = 0; c < channels; ++c) {
                    Real sum = 0, best = at(x, ((n * height + y) * width + z) * channels + c);
                    for (Index i = 0; i < size; ++i)
                        for (Index j = 0; j < size; ++j) {
                            const Real v = at(x, ((n * height + y + i) * width + z + j) * channels + c);
                            sum += v;
                            if (v > best) best = v;
                        }
                    out.push_back(max ? best : Real(sum / (size * size)));
                }
    return out;
}

/// Cosine and sine of the angles of rope, by position and pair. Frequencies and angles are FP32 numbers.
struct Rotation {
    Real cosine, sine;
};
inline std::vector<Rotation> rotations(Index tokens, Index width, const Real& theta) {
    std::vector<Rotation> all;
    for (Index t = 0; t < tokens; ++t)
        for (Index i = 0; i < width / 2; ++i) {
            const Real frequency = rounded("fp32", pow(theta, -Real(2 * i) / width));
            const Real angle = rounded("fp32", frequency * t);
            all.push_back({cos(angle), sin(angle)});
        }
    return all;
}

/// Rows of `width` numbers, row r at position r % tokens: the pair (i, i + width / 2), as a complex number, times e^(j
/// angle); the conjugate turns back.
inline Reals rope(const Reals& x, const std::vector<Rotation>& rotations, Index width, bool inverse) {
    Reals out(x.size());
    const Index pairs = width / 2, tokens = static_cast<Index>(rotations.size()) / pairs;
    for (Index r = 0; r < static_cast<Index>(x.size()) / width; ++r)
        for (Index i = 0; i < pairs; ++i) {
            const Rotation& turn = rotations[static_cast<std::size_t>(r % tokens * pairs + i)];
            const Real a = at(x, r * width + i), b = at(x, r * width + i + pairs),
                       sine = inverse ? -turn.sine : turn.sine;
            out[static_cast<std::size_t>(r * width + i)] = a * turn.cosine - b * sine;
            out[static_cast<std::size_t>(r * width + i + pairs)] = b * turn.cosine + a * sine;
        }
    return out;
}

/// The mean over the rows with a non-negative target of -sum of q log p, where p is the softmax and q a distribution of
/// which `smoothing` is uniform, and of z times the square of the logarithm of softmax's denominator.
inline Real cross_entropy(const Reals& logits, const std::vector<int>& targets, const Real& smoothing = 0,
                          const Real& z = 0) {
    const Index n = static_cast<Index>(logits.size() / targets.size());
    Real sum = 0;
    int counted = 0;
    for (std::size_t r = 0; r < targets.size(); ++r) {
        if (targets[r] < 0) continue;
        Real total = 0;
        for (Index j = 0; j < n; ++j) total += exp(at(logits, static_cast<Index>(r) * n + j));
        for (Index j = 0; j < n; ++j) {
            const Real q = smoothing / n + (j == targets[r] ? 1 - smoothing : Real(0));
            sum -= q * log(exp(at(logits, static_cast<Index>(r) * n + j)) / total);
        }
        sum += z * log(total) * log(total);
        ++counted;
    }
    return sum / counted;
}

} // namespace reference
