// The single operations of an optimizer over n elements: each is correctly rounded in FP32. Results may overwrite
// operands.
#pragma once

#include <ampscope/sim/backend/kernels/fma.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/backend/update.h>

#include <cmath>
#include <cstddef>

namespace amp::kernels {

struct AddKernel {
    AMPSCOPE_KERNEL void run(float* out, const float* a, const float* b, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
    }
};

struct SubtractKernel {
    AMPSCOPE_KERNEL void run(float* out, const float* a, const float* b, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) out[i] = a[i] - b[i];
    }
};

struct MultiplyKernel {
    AMPSCOPE_KERNEL void run(float* out, const float* a, float factor, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) out[i] = a[i] * factor;
    }
};

struct DivideKernel {
    AMPSCOPE_KERNEL void run(float* out, const float* a, float divisor, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) out[i] = a[i] / divisor;
    }
};

struct AddConstantKernel {
    AMPSCOPE_KERNEL void run(float* out, const float* a, float term, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) out[i] = a[i] + term;
    }
};

/// torch.sgn: 1, -1, or +0 for zeros and NaNs.
struct SignKernel {
    AMPSCOPE_KERNEL void run(float* out, const float* a, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>((a[i] > 0) - (a[i] < 0));
    }
};

struct RootKernel {
    AMPSCOPE_KERNEL void run(float* out, const float* a, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) out[i] = std::sqrt(a[i]);
    }
};

/// x * y + z with one rounding if `contract`, else with two. `fused`: the processor has the instruction.
template <bool contract, bool fused>
AMPSCOPE_INLINE float multiply_add(float x, float y, float z) {
    if constexpr (!contract) return x * y + z;
    else if constexpr (fused) return __builtin_fmaf(x, y, z);
    else return detail::fma_in_double(x, y, z);
}

template <bool contract, bool fused>
struct AddScaledKernel {
    AMPSCOPE_KERNEL void run(float* out, const float* a, const float* b, float factor, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) out[i] = multiply_add<contract, fused>(factor, b[i], a[i]);
    }
};

template <bool contract, bool fused>
struct AddSquareKernel {
    AMPSCOPE_KERNEL void run(float* v, const float* g, float factor, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) v[i] = multiply_add<contract, fused>(factor * g[i], g[i], v[i]);
    }
};

/// a + w (b - a), computed from b if w is 0.5 or more, as torch.lerp does.
template <bool contract, bool fused>
AMPSCOPE_INLINE float lerp(float a, float b, float w) {
    const bool near = w < 0.5F;
    return multiply_add<contract, fused>(near ? w : w - 1, b - a, near ? a : b);
}

template <bool contract, bool fused>
struct LerpKernel {
    AMPSCOPE_KERNEL void run(float* m, const float* g, float w, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) m[i] = lerp<contract, fused>(m[i], g[i], w);
    }
};

struct QuotientKernel {
    AMPSCOPE_KERNEL void run(float* out, const float* a, const float* b, std::size_t n) {
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) out[i] = a[i] / b[i];
    }
};

struct CanonicalKernel {
    AMPSCOPE_KERNEL void run(float* x, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) x[i] = named(x[i]);
    }
};

/// Counts what a step did to n < 2^32 weights, and to what Kahan's summation keeps of them (null pointers: nothing).
struct CountKernel {
    AMPSCOPE_KERNEL void run(const float* before, const float* after, const float* kept_before, const float* kept_after,
                             const float* gradient, std::size_t n, UpdateCounts* counts) {
        std::uint32_t nonfinite = 0, changed = 0, unchanged = 0, kept = 0; // 32 bits: as wide as the elements
        for (std::size_t i = 0; i < n; ++i) {
            const bool finite = after[i] - after[i] == 0, same = after[i] == before[i];
            nonfinite += !finite;
            changed += finite & !same;
            unchanged += same & (gradient[i] != 0);
        }
        for (std::size_t i = 0; kept_before != nullptr && i < n; ++i)
            kept += (after[i] == before[i]) & (gradient[i] != 0) & (kept_before[i] != kept_after[i]);
        *counts = {.lost = unchanged - kept, .changed = changed, .nonfinite = nonfinite};
    }
};

/// Arguments of the fused kernels: scalars in FP64, as their callers pass them.
struct FusedAdam {
    bool decouples;
    bool contracts; ///< OptimizerOptions::contract
    double learning_rate, beta1, beta2, eps, weight_decay, correction1, correction2;
};

/// Follows ATen/native/cuda/fused_adam_utils.cuh: lr, betas, eps and decay are doubles; operations with them are done
/// in FP64 and rounded to FP32.
struct TorchFusedKernel {
    AMPSCOPE_KERNEL void run(const FusedAdam* f, float* weight, const float* gradient, float* m, float* v,
                             float* change, std::size_t n) {
        const auto root = static_cast<float>(std::sqrt(f->correction2));
        const auto step = static_cast<float>(f->learning_rate / f->correction1);
        for (std::size_t i = 0; i < n; ++i) {
            float g = gradient[i], w = weight[i];
            if (f->weight_decay != 0 && f->decouples)
                w = static_cast<float>(w - f->learning_rate * f->weight_decay * w);
            else if (f->weight_decay != 0) g = static_cast<float>(g + f->weight_decay * w);
            m[i] = static_cast<float>(f->beta1 * m[i] + (1 - f->beta1) * g);
            v[i] = static_cast<float>(f->beta2 * v[i] + (1 - f->beta2) * g * g);
            const auto denominator = static_cast<float>(std::sqrt(v[i]) / root + f->eps);
            weight[i] = w;
            change[i] = -(step * m[i] / denominator);
        }
    }
};

/// Follows ATen/native/cpu/FusedAdamKernel.cpp or, without lerp, _optimizer_update_8bit_blockwise_cpu of bitsandbytes:
/// scalars are rounded to FP32, and so is every operation, but for sums of a product that a kernel for AVX2 contracts.
template <bool lerps>
struct FusedCpuKernel {
    AMPSCOPE_KERNEL void run(const FusedAdam* f, float* weight, const float* gradient, float* m, float* v,
                             float* change, std::size_t n) {
        const auto towards = static_cast<float>(1 - f->beta1);
        [[maybe_unused]] const auto beta1 = static_cast<float>(f->beta1);
        const auto beta2 = static_cast<float>(f->beta2);
        const auto rest = static_cast<float>(1 - f->beta2), eps = static_cast<float>(f->eps);
        const auto decay = static_cast<float>(f->weight_decay);
        const auto kept = static_cast<float>(1 - f->learning_rate * f->weight_decay);
        const auto step = static_cast<float>(-(f->learning_rate / f->correction1));
        const auto root = static_cast<float>(std::sqrt(f->correction2));
        const bool contracts = f->contracts;
        [[maybe_unused]] const bool near = towards < 0.5F;
        [[maybe_unused]] const float factor = near ? towards : towards - 1;
        const auto multiply_and_add = [contracts](float x, float y, float z) {
            return contracts ? multiply_add<true, false>(x, y, z) : multiply_add<false, false>(x, y, z);
        };
        for (std::size_t i = 0; i < n; ++i) {
            float g = gradient[i];
            if (f->weight_decay != 0 && f->decouples) weight[i] *= kept;
            else if (f->weight_decay != 0) g = multiply_and_add(weight[i], decay, g);
            if constexpr (lerps) m[i] = multiply_and_add(factor, g - m[i], near ? m[i] : g);
            else m[i] = multiply_and_add(towards, g, m[i] * beta1);
            v[i] = multiply_and_add(rest * g, g, v[i] * beta2);
            change[i] = step * m[i] / (std::sqrt(v[i]) / root + eps);
        }
    }
};

/// Follows single_param_adam() of torchao.optim: scalars are rounded to FP32, and so is every operation, but for sums
/// of a product that lerp's kernel for AVX2 contracts.
struct TorchAoKernel {
    AMPSCOPE_KERNEL void run(const FusedAdam* f, float* weight, const float* gradient, float* m, float* v,
                             float* change, std::size_t n) {
        if (f->contracts) steps<true>(*f, weight, gradient, m, v, change, n);
        else steps<false>(*f, weight, gradient, m, v, change, n);
    }

  private:
    template <bool contracts>
    AMPSCOPE_KERNEL void steps(const FusedAdam& f, float* weight, const float* gradient, float* m, float* v,
                               float* change, std::size_t n) {
        const auto rate = static_cast<float>(f.learning_rate), decay = static_cast<float>(f.weight_decay);
        const float shrinks = rate * decay;
        const auto towards1 = static_cast<float>(1 - f.beta1), towards2 = static_cast<float>(1 - f.beta2);
        const auto correction = static_cast<float>(f.correction1), eps = static_cast<float>(f.eps);
        const float root = std::sqrt(static_cast<float>(f.correction2));
        AMPSCOPE_INDEPENDENT
        for (std::size_t i = 0; i < n; ++i) {
            const float w = weight[i], g = f.decouples ? gradient[i] : gradient[i] + decay * w;
            if (f.decouples) weight[i] = w - shrinks * w;
            m[i] = lerp<contracts, false>(m[i], g, towards1);
            v[i] = lerp<contracts, false>(v[i], g * g, towards2);
            change[i] = -(rate * (m[i] / correction) / (std::sqrt(v[i]) / root + eps));
        }
    }
};

/// Follows Apex's csrc/multi_tensor_adam.cu and TransformerEngine's adam.cu: scalars are floats.
struct ApexKernel {
    AMPSCOPE_KERNEL void run(const FusedAdam* f, float* weight, const float* gradient, float* m, float* v,
                             float* change, std::size_t n) {
        const auto beta1 = static_cast<float>(f->beta1), beta2 = static_cast<float>(f->beta2);
        const auto correction1 = static_cast<float>(f->correction1), correction2 = static_cast<float>(f->correction2);
        const auto eps = static_cast<float>(f->eps), decay = static_cast<float>(f->weight_decay);
        const auto learning_rate = static_cast<float>(f->learning_rate);
        for (std::size_t i = 0; i < n; ++i) {
            const float w = weight[i], g = f->decouples ? gradient[i] : gradient[i] + decay * w;
            m[i] = beta1 * m[i] + (1 - beta1) * g;
            v[i] = beta2 * v[i] + (1 - beta2) * g * g;
            const float direction = m[i] / correction1 / (std::sqrt(v[i] / correction2) + eps);
            change[i] = -(learning_rate * (f->decouples ? direction + decay * w : direction));
        }
    }
};

/// Follows MS-AMP's msamp/optim/adamw.cu, after adamw.py's decay with torch. It is unknown whether nvcc contracts
/// there.
struct MsAmpKernel {
    AMPSCOPE_KERNEL void run(const FusedAdam* f, float* weight, const float* gradient, float* m, float* v,
                             float* change, std::size_t n) {
        const auto beta1 = static_cast<float>(f->beta1), beta2 = static_cast<float>(f->beta2);
        const auto eps = static_cast<float>(f->eps), decay = static_cast<float>(f->weight_decay);
        const auto kept = static_cast<float>(1 - f->learning_rate * f->weight_decay);
        const auto step = static_cast<float>(f->learning_rate) / static_cast<float>(f->correction1);
        const float root = std::sqrt(static_cast<float>(f->correction2));
        for (std::size_t i = 0; i < n; ++i) {
            const float w = f->decouples ? weight[i] * kept : weight[i];
            const float g = f->decouples ? gradient[i] : gradient[i] + decay * w;
            m[i] = beta1 * m[i] + (1 - beta1) * g;
            v[i] = beta2 * v[i] + (1 - beta2) * (g * g);
            weight[i] = w;
            change[i] = -(step * (m[i] / (std::sqrt(v[i]) / root + eps)));
        }
    }
};

} // namespace amp::kernels
