// The processor as a backend: a buffer a tensor.
#pragma once

#include <ampscope/sim/backend/backend.h>

namespace amp {

class Cpu final : public Backend {
  public:
    /// Allocates every tensor of a finished program. threads: 0 for every core. Results do not depend on it.
    explicit Cpu(const Program& program, int threads = 0);

    [[nodiscard]] std::span<float> operator[](TensorId id) override { return buffers_[storage(id)]; }
    [[nodiscard]] std::span<const float> operator[](TensorId id) const override { return buffers_[storage(id)]; }
    void run(const Op& op) override;
    [[nodiscard]] int threads() const { return threads_; }

    // For ops, by the names that a device has them under: the numbers, to be read, and to be written too.
    [[nodiscard]] const float* in(TensorId id) const { return (*this)[id].data(); }
    [[nodiscard]] float* out(TensorId id) { return (*this)[id].data(); }

  private:
    int threads_;
    std::vector<std::vector<float>> buffers_;
};

/// Makes processors with so many threads.
MakeBackend on_processor(int threads = 0);

} // namespace amp
