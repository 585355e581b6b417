// The single operations of an optimizer over short arrays: each correctly rounded in FP32, vectorised, the same bits on
// every machine.
#pragma once

#include <ampscope/formats/instruction_set.h>
#include <ampscope/formats/random.h>
#include <ampscope/formats/spec.h>
#include <ampscope/sim/backend/kernels/update_loops.h>

#include <cstddef>

namespace amp::detail {

inline constexpr int block_length = 512;

/// Results may be operands. `contract`: a * b + c with one rounding.
class BlockArithmetic {
  public:
    using Block = float[block_length];

    explicit BlockArithmetic(bool contract, InstructionSet set = best_instruction_set())
        : contract_(contract), set_(set) {}

    /// x[i] rounded to the format, NaN by its one name.
    void round(const FormatSpec& format, float* x, std::size_t n) const;
    /// The same stochastically, with the words of indices from `first` on.
    void round_at_random(const FormatSpec& format, float* x, std::size_t n, const RandomKey& key,
                         std::uint64_t first) const;
    void add(float* out, const float* a, const float* b, std::size_t n) const;
    void subtract(float* out, const float* a, const float* b, std::size_t n) const;
    void multiply(float* out, const float* a, float factor, std::size_t n) const;
    void divide(float* out, const float* a, float divisor, std::size_t n) const;
    void add_constant(float* out, const float* a, float term, std::size_t n) const;
    void root(float* out, const float* a, std::size_t n) const;
    /// a + factor * b
    void add_scaled(float* out, const float* a, const float* b, float factor, std::size_t n) const;
    /// v + (factor * g) * g
    void add_square(float* v, const float* g, float factor, std::size_t n) const;
    /// torch.lerp: m + w (g - m) for w < 0.5, else g - (g - m) (1 - w)
    void lerp(float* m, const float* g, float w, std::size_t n) const;
    void quotient(float* out, const float* a, const float* b, std::size_t n) const;
    /// Moments in place, unrounded; AdamW of torch's also decays the weights; change: what is to be added to them.
    template <class Kernel>
    void fused_adam(const kernels::FusedAdam& f, float* weight, const float* gradient, float* m, float* v,
                    float* change, std::size_t n) const {
        dispatch<Kernel>(set_, &f, weight, gradient, m, v, change, n);
    }

  private:
    bool contract_;
    InstructionSet set_;
};

} // namespace amp::detail
