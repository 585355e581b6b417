// The single operations of an optimizer over short arrays: each is correctly rounded in FP32 and vectorised, and gives
// the same bits on every machine.
#pragma once

#include <ampscope/formats/instruction_set.h>
#include <ampscope/formats/policy.h>
#include <ampscope/formats/random.h>
#include <ampscope/formats/spec.h>
#include <ampscope/sim/backend/kernels/update_loops.h>

#include <cstddef>

namespace amp::detail {

inline constexpr int block_length = 512;

/// Arithmetic on blocks. Results may overwrite operands. `contract`: a * b + c is computed with one rounding.
class BlockArithmetic {
  public:
    using Block = float[block_length];

    explicit BlockArithmetic(bool contract, InstructionSet set = best_instruction_set())
        : contract_(contract), set_(set) {}

    /// Rounds x[i] to the format; NaNs become 0x7fc00000.
    void round(const FormatSpec& format, float* x, std::size_t n) const;
    /// The same with stochastic rounding; x[i] uses the random word of index first + i.
    void round_at_random(const FormatSpec& format, float* x, std::size_t n, const Policy& policy, const RandomKey& key,
                         std::uint64_t first) const;
    void add(float* out, const float* a, const float* b, std::size_t n) const;
    void subtract(float* out, const float* a, const float* b, std::size_t n) const;
    void multiply(float* out, const float* a, float factor, std::size_t n) const;
    void divide(float* out, const float* a, float divisor, std::size_t n) const;
    void add_constant(float* out, const float* a, float term, std::size_t n) const;
    void root(float* out, const float* a, std::size_t n) const;
    /// 1, -1, or 0 for zeros and NaNs
    void sign(float* out, const float* a, std::size_t n) const;
    /// a + factor * b
    void add_scaled(float* out, const float* a, const float* b, float factor, std::size_t n) const;
    /// v + (factor * g) * g
    void add_square(float* v, const float* g, float factor, std::size_t n) const;
    /// torch.lerp: m + w (g - m) for w < 0.5, else g - (g - m) (1 - w)
    void lerp(float* m, const float* g, float w, std::size_t n) const;
    void quotient(float* out, const float* a, const float* b, std::size_t n) const;
    /// NaNs become 0x7fc00000.
    void canonical(float* x, std::size_t n) const;
    /// What a step did to weights; kernels::CountKernel says what is counted.
    UpdateCounts count(const float* before, const float* after, const float* kept_before, const float* kept_after,
                       const float* gradient, std::size_t n) const;
    /// Updates the moments in place, without rounding them to their formats; torch's AdamW also decays the weights.
    /// `change` is what is to be added to the weights.
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
