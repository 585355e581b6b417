// The definitions of batch norm and its gradient, against the ops.
#pragma once

#include "op_bench.h"

namespace amp::test {

/// Each number rounded to FP32.
inline Reals singles(const Reals& x) {
    return reference::map(x, [](const Real& v) { return Real(rounded("fp32", v)); });
}

inline Reals inverses(const Reals& variance) {
    return singles(reference::map(variance, [](const Real& v) { return Real(1 / sqrt(v + Real(1e-5))); }));
}

/// In training and outside it, in the first replica, which updates the running statistics, and in the second.
inline void prove_op(Of<op::BatchNorm>, Tally& tally) {
    constexpr Index rows = 70, channels = 7;
    for (const char* result : proved_formats)
        for (const bool training : {true, false})
            for (const int replica : {0, 1}) {
                Bench b;
                const TensorId in = b.tensor({2, rows / 2, channels}, "fp16"), w = b.tensor({channels}, "fp32"),
                               bias = b.tensor({channels}, "fp32"), running_mean = b.tensor({channels}, "fp32"),
                               running_variance = b.tensor({channels}, "fp32"),
                               out = b.tensor({2, rows / 2, channels}, result), mean = b.tensor({channels}, "fp32"),
                               inverse = b.tensor({channels}, "fp32");
                b.start({in, w, bias, running_mean});
                b.write(running_variance, {1, 0.5F, 3, 1e-6F, 200, 0, 0.1F});
                const Reals x = b.values(in), old_mean = b.values(running_mean), old = b.values(running_variance);
                b.cpu().context = {.replica = replica, .replicas = 2, .training = training};
                b.cpu().run(op::BatchNorm{in, w, bias, running_mean, running_variance, out, mean, inverse});
                const reference::Statistics s = reference::statistics(x, channels);
                const Reals used_mean = training ? singles(s.mean) : old_mean,
                            used = training ? inverses(s.variance) : inverses(old);
                b.expect(tally, mean, used_mean, "mean of batch_norm");
                b.expect(tally, inverse, used, "inverse of batch_norm");
                b.expect(tally, out, reference::batch_norm(x, b.values(w), b.values(bias), used_mean, used),
                         "batch_norm");
                // Products and sums are doubles: ties are frequent, as in (9 a + b) / 10.
                const auto next_of = [](const Real& running, const Real& statistic) {
                    const auto wide = [](const Real& v) { return Real(v.convert_to<double>()); };
                    return wide(wide(wide(1 - Real(0.1)) * running) + wide(Real(0.1) * wide(statistic)));
                };
                Reals next_mean = old_mean, next = old;
                for (std::size_t c = 0; c < channels && training && replica == 0; ++c) {
                    next_mean[c] = next_of(old_mean[c], used_mean[c]);
                    next[c] = next_of(old[c], s.variance[c] * rows / (rows - 1));
                }
                b.expect(tally, running_mean, next_mean, "running mean of batch_norm");
                b.expect(tally, running_variance, next, "running variance of batch_norm");
            }
}

inline void prove_op(Of<op::BatchNormBackward>, Tally& tally) {
    constexpr Index rows = 70, channels = 7;
    for (const char* result : proved_formats) {
        Bench b;
        const Shape shape{2, rows / 2, channels};
        const TensorId in = b.tensor(shape, "fp16"), w = b.tensor({channels}, "fp32"),
                       mean = b.tensor({channels}, "fp32"), inverse = b.tensor({channels}, "fp32"),
                       grad = b.tensor(shape, "bf16"), grad_in = b.tensor(shape, result),
                       grad_w = b.tensor({channels}, "fp32"), grad_b = b.tensor({channels}, "fp32");
        b.run(op::BatchNormBackward{in, w, mean, inverse, grad, grad_in, grad_w, grad_b}, {in, w, mean, inverse, grad});
        const Reals x = b.values(in), g = b.values(grad), m = b.values(mean), s = b.values(inverse), gain = b.values(w);
        Reals y, along(channels), sum(channels), want;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t c = i % channels;
            y.push_back((x[i] - m[c]) * s[c]);
            along[c] += g[i] * y[i];
            sum[c] += g[i];
        }
        along = singles(along);
        sum = singles(sum);
        for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t c = i % channels;
            want.push_back((g[i] - sum[c] / rows - y[i] * along[c] / rows) * s[c] * gain[c]);
        }
        b.expect(tally, grad_w, along, "weight of batch_norm_backward");
        b.expect(tally, grad_b, sum, "bias of batch_norm_backward");
        b.expect(tally, grad_in, want, "batch_norm_backward");
    }
}

} // namespace amp::test
