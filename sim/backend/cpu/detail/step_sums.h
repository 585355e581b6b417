// The sums of formats/step_dot.h for one row of a and many columns of b: each column collects the products of a step.
// Floored sums are computed by the definition itself.
#pragma once

#include <ampscope/formats/step_dot.h>
#include <ampscope/sim/backend/cpu/detail/column_sums.h>
#include <ampscope/sim/backend/cpu/detail/fused_sum.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace amp::cpu {

/// The operands of a step, one row of columns for each product; Kernel::run adds a full step.
template <class Kernel>
class StepSums {
  public:
    StepSums(const Accumulator& acc, const FormatSpec& a, const FormatSpec& b)
        : step_{acc, a, b}, x_(static_cast<std::size_t>(acc.products)),
          y_(static_cast<std::size_t>(acc.products) * sum_width) {}

    void begin() {
        count_ = 0;
        std::fill(std::begin(sums_), std::end(sums_), 0.0F);
    }
    void add(InstructionSet set, float a, const float* b, std::int64_t n) {
        set_ = set;
        x_[static_cast<std::size_t>(count_)] = truncated(step_.a, a);
        float* const line = y_.data() + count_ * sum_width;
        for (std::int64_t j = 0; j < n; ++j) line[j] = truncated(step_.b, b[j]);
        columns_ = n;
        if (++count_ == step_.acc.products) add_step();
    }
    float end(std::int64_t j) {
        if (count_ > 0) { // a last, shorter step is filled up with zeros
            std::fill(x_.begin() + count_, x_.end(), 0.0F);
            std::fill(y_.begin() + count_ * sum_width, y_.end(), 0.0F);
            add_step();
        }
        return sums_[j];
    }

  private:
    void add_step() {
        dispatch<Kernel>(set_, static_cast<const typename Kernel::Step*>(&step_), static_cast<const float*>(x_.data()),
                         static_cast<const float*>(y_.data()), &sums_[0], columns_);
        count_ = 0;
    }

    typename Kernel::Step step_;
    InstructionSet set_ = InstructionSet::baseline;
    std::int64_t count_ = 0, columns_ = 0;
    std::vector<float> x_, y_;
    alignas(64) float sums_[sum_width];
};

struct HardwareStep {
    Accumulator acc;
    FormatSpec a, b; ///< the formats in which operands are read
};

struct FlushedKernel {
    using Step = HardwareStep;

    AMPSCOPE_KERNEL void run(const Step* step, const float* x, const float* y, float* sums, std::int64_t columns) {
        const int products = step->acc.products, fa = step->a.min_exponent(), fb = step->b.min_exponent();
        for (std::int64_t j = 0; j < columns; ++j) {
            const auto a = [&](int i) { return flushed(x[i], fa); };
            const auto b = [&](int i) { return flushed(y[i * sum_width + j], fb); };
            if (step->acc.method == Accumulation::flushed_pairs) {
                sums[j] = fma(a(0), b(0), fma(a(1), b(1), sums[j]));
            } else if (step->acc.method == Accumulation::flushed_chains) {
                float even = 0, odd = 0;
                for (int i = 0; i < products; i += 2) {
                    even = fma(a(i), b(i), even);
                    odd = fma(a(i + 1), b(i + 1), odd);
                }
                sums[j] = flushed(sums[j] + flushed(even + odd));
            } else {
                float tree = flushed(fma(a(0), b(0), 0) + fma(a(1), b(1), 0));
                if (products == 4) tree = flushed(tree + flushed(fma(a(2), b(2), 0) + fma(a(3), b(3), 0)));
                sums[j] = flushed(sums[j] + tree);
            }
        }
    }

  private:
    AMPSCOPE_KERNEL float flushed(float x, int least = -126) { return amp::detail::FlushedMath::flushed(x, least); }
    AMPSCOPE_KERNEL float fma(float x, float y, float z) { return flushed(amp::detail::fma_in_double(x, y, z)); }
};

struct FlooredKernel {
    using Step = HardwareStep;

    AMPSCOPE_KERNEL void run(const Step* step, const float* x, const float* y, float* sums, std::int64_t columns) {
        const Accumulator& acc = step->acc;
        for (std::int64_t j = 0; j < columns; ++j) {
            std::array<amp::detail::Term, 16> products;
            for (int i = 0; i < acc.products; ++i)
                products[static_cast<std::size_t>(i)] = amp::detail::product(
                    amp::detail::term(step->a, x[i]), amp::detail::term(step->b, y[i * sum_width + j]));
            sums[j] = amp::detail::floored_step(acc, std::span(products).first(static_cast<std::size_t>(acc.products)),
                                                sums[j]);
        }
    }
};

} // namespace amp::cpu
