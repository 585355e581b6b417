// Sums other than those of matrix hardware, for one row of a and many columns of b: each column has a state, which
// takes one product after another. The argument `b` of a call points to the elements of one row.
#pragma once

#include <ampscope/formats/dot.h>
#include <ampscope/formats/instruction_set.h>
#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/fma.h>

#include <bit>
#include <cstdint>

namespace amp::cpu {

/// Number of columns that are summed together.
inline constexpr std::int64_t sum_width = 256;

/// s = fma(a, b, s), rounded to the format at every step.
class ChainSums {
  public:
    explicit ChainSums(const FormatSpec& sum) : format_(sum) {}

    void begin() { std::fill(std::begin(sums_), std::end(sums_), 0.0F); }
    void add(InstructionSet set, float a, const float* b, std::int64_t n) {
        alignas(64) double wide[sum_width];
        dispatch<Kernel>(set, a, b, static_cast<const float*>(sums_), &wide[0], n);
        round_wide(format_, wide, sums_, n);
    }
    float end(std::int64_t j) { return sums_[j]; }

  private:
    struct Kernel {
        AMPSCOPE_KERNEL void run(float a, const float* b, const float* sums, double* wide, std::int64_t n) {
            for (std::int64_t j = 0; j < n; ++j) wide[j] = detail::fma_to_odd(a, b[j], sums[j]);
        }
    };

    FormatSpec format_;
    alignas(64) float sums_[sum_width];
};

/// INT32 sums that wrap, or are clamped after each step.
class IntegerSums {
  public:
    explicit IntegerSums(const Accumulator& acc) : method_(acc.method), step_(acc.products) {}

    void begin() {
        count_ = 0;
        std::fill(std::begin(sums_), std::end(sums_), 0);
    }
    void add(InstructionSet set, float a, const float* b, std::int64_t n) {
        dispatch<Kernel>(set, a, b, &sums_[0], n);
        if (++count_ % step_ == 0) end_step();
    }
    float end(std::int64_t j) {
        if (count_ % step_ != 0) end_step();
        count_ = 0;
        return static_cast<float>(sums_[j]);
    }

  private:
    struct Kernel {
        AMPSCOPE_KERNEL void run(float a, const float* b, std::int64_t* sums, std::int64_t n) {
            const std::int64_t x = integer_operand(a);
            for (std::int64_t j = 0; j < n; ++j) sums[j] += x * integer_operand(b[j]);
        }
    };
    void end_step() {
        for (std::int64_t& sum : sums_) sum = in_int32(method_, sum);
    }

    Accumulation method_;
    std::int64_t step_, count_ = 0;
    alignas(64) std::int64_t sums_[sum_width];
};

} // namespace amp::cpu
