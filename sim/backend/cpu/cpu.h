// The processor as a backend: one buffer for each tensor.
#pragma once

#include <ampscope/sim/backend/backend.h>

namespace amp {

class Cpu final : public Backend {
  public:
    /// Allocates every tensor of a finished program. `threads`: 0 for every core; results do not depend on it.
    explicit Cpu(const Program& program, int threads = 0);
    /// Allocates nothing: each tensor that an op uses is lent before.
    struct Borrowed {};
    Cpu(const Program& program, Borrowed borrowed, int threads = 0);
    /// The elements of a tensor that is no view lie there, in FP32, while ops use it.
    void lend(TensorId id, std::span<float> elements) { elements_[storage(id)] = elements; }

    [[nodiscard]] std::span<float> operator[](TensorId id) override { return elements_[storage(id)]; }
    [[nodiscard]] std::span<const float> operator[](TensorId id) const override { return elements_[storage(id)]; }
    void run(const Op& op) override;
    [[nodiscard]] int threads() const { return threads_; }

    // Called by ops, under the same names as for a device: the elements for reading, and for reading and writing.
    [[nodiscard]] const float* in(TensorId id) const { return (*this)[id].data(); }
    [[nodiscard]] float* out(TensorId id) { return (*this)[id].data(); }

  private:
    int threads_;
    std::vector<std::vector<float>> buffers_;
    std::vector<std::span<float>> elements_; // of each tensor: in a buffer, or lent
};

/// Makes backends that use so many threads; 0: every core.
MakeBackend on_processor(int threads = 0);

} // namespace amp
