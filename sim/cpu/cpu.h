// The processor as a backend: a buffer a tensor, and what the ops of a step are told by the host.
#pragma once

#include <ampscope/formats/random.h>
#include <ampscope/sim/ops.h>

#include <span>
#include <vector>

namespace amp {

/// What varies from step to step and is not a tensor.
struct StepContext {
    std::uint64_t seed = 0;
    std::uint32_t step = 0; ///< counts every step, skipped or not
    int replica = 0, replicas = 1;
    int micro_batch = 0, micro_batches = 1;
    bool training = true;    ///< false: dropout passes everything
    double loss_scale = 1;   ///< what the loss is multiplied by
    double unscale_by = 1;   ///< what gradients are divided by
    std::int64_t update = 1; ///< the number of this update, from 1
    double learning_rate = 0;
};

/// What one rounding did to the elements of a tensor.
struct RoundingCounts {
    std::int64_t elements = 0;
    std::int64_t nonzero = 0;   ///< finite and not zero before
    std::int64_t underflow = 0; ///< of these, zero afterwards
    std::int64_t overflow = 0;  ///< of these, not finite afterwards

    RoundingCounts& operator+=(const RoundingCounts& other);
};

/// What a cast with scales did to a tensor, over the parts of a step.
struct ScalingCounts {
    float amax = 0;                           ///< largest magnitude; infinite if one was
    float least_scale = 0, largest_scale = 0; ///< that blocks were multiplied by
    std::int64_t elements = 0;
    std::int64_t nonzero = 0;   ///< finite and not zero before
    std::int64_t underflow = 0; ///< of these, zero afterwards
    std::int64_t saturated = 0; ///< of these, beyond the largest value

    ScalingCounts& operator+=(const ScalingCounts& other);
};

class Cpu {
  public:
    /// Allocates every tensor of a finished program, which must outlive this; all zeros. threads: 0 for every core.
    /// Results do not depend on it.
    explicit Cpu(const Program& program, int threads = 0);

    [[nodiscard]] std::span<float> operator[](TensorId id) { return buffers_[storage(id)]; }
    [[nodiscard]] std::span<const float> operator[](TensorId id) const { return buffers_[storage(id)]; }
    [[nodiscard]] const TensorInfo& info(TensorId id) const { return program_[id]; }
    [[nodiscard]] const Program& program() const { return program_; }
    [[nodiscard]] int threads() const { return threads_; }

    StepContext context{};
    bool found_inf = false;        ///< set by CheckFinite; the host clears it
    UpdateCounts updates{};        ///< summed by Update; the host clears them
    bool counts_roundings = false; ///< whether ops count into roundings()
    [[nodiscard]] std::vector<RoundingCounts>& roundings() { return roundings_; } ///< by tensor
    bool counts_scalings = false; ///< whether casts with scales count into scalings()
    [[nodiscard]] const std::vector<ScalingCounts>& scalings() const { return scalings_; } ///< by tensor
    [[nodiscard]] std::vector<ScalingCounts>& scalings() { return scalings_; }

  private:
    [[nodiscard]] std::size_t storage(TensorId id) const {
        const TensorId shown = program_[id].storage;
        return static_cast<std::size_t>(shown ? shown.index : id.index);
    }

    const Program& program_;
    int threads_;
    std::vector<std::vector<float>> buffers_;
    std::vector<RoundingCounts> roundings_;
    std::vector<ScalingCounts> scalings_;
};

} // namespace amp
