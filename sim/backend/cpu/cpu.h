// The processor as a backend: one buffer for each tensor.
#pragma once

#include <ampscope/sim/backend/backend.h>

namespace amp {

class Cpu final : public Backend {
  public:
    /// Allocates every tensor of a finished program. `threads`: 0 for every core; results do not depend on it.
    explicit Cpu(const Program& program, int threads = 0);

    [[nodiscard]] std::span<float> operator[](TensorId id) override { return buffers_[storage(id)]; }
    [[nodiscard]] std::span<const float> operator[](TensorId id) const override { return buffers_[storage(id)]; }
    void run(const Op& op) override;
    [[nodiscard]] int threads() const { return threads_; }

    // Called by ops, under the same names as for a device: the elements for reading, and for reading and writing.
    [[nodiscard]] const float* in(TensorId id) const { return (*this)[id].data(); }
    [[nodiscard]] float* out(TensorId id) { return (*this)[id].data(); }

  private:
    int threads_;
    std::vector<std::vector<float>> buffers_;
};

/// Makes backends that use so many threads; 0: every core.
MakeBackend on_processor(int threads = 0);

} // namespace amp
