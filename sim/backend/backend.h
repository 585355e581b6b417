// Where the tensors of a program live and its ops run: the processor (cpu/) or a device (cuda/).
#pragma once

#include <ampscope/formats/random.h>
#include <ampscope/sim/backend/update.h>
#include <ampscope/sim/program/ops.h>

#include <functional>
#include <memory>
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

    /// Which of the parts of a step this is: replicas, then micro-batches.
    [[nodiscard]] std::uint64_t part() const {
        return static_cast<std::uint64_t>(replica * micro_batches + micro_batch);
    }
};

/// What one rounding did to the elements of a tensor.
struct RoundingCounts {
    std::int64_t elements = 0;
    std::int64_t nonzero = 0;   ///< finite and not zero before
    std::int64_t underflow = 0; ///< of these, zero afterwards
    std::int64_t overflow = 0;  ///< of these, not finite afterwards

    RoundingCounts& operator+=(const RoundingCounts& other);
    bool operator==(const RoundingCounts&) const = default;
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

class Backend {
  public:
    /// The program must outlive this.
    explicit Backend(const Program& program);
    virtual ~Backend() = default;
    Backend(Backend&&) = default;

    /// The numbers of a tensor, all zeros at first. Of a device, a copy on the host: it is good until the next op runs,
    /// which finds what was written to it.
    [[nodiscard]] virtual std::span<float> operator[](TensorId id) = 0;
    [[nodiscard]] virtual std::span<const float> operator[](TensorId id) const = 0;
    [[nodiscard]] std::span<const float> read(TensorId id) const { return (*this)[id]; }
    virtual void run(const Op& op) = 0;

    [[nodiscard]] const TensorInfo& info(TensorId id) const { return program_[id]; }
    [[nodiscard]] const Program& program() const { return program_; }

    StepContext context{};
    bool found_inf = false;        ///< set by CheckFinite; the host clears it
    UpdateCounts updates{};        ///< summed by Update; the host clears them
    bool counts_roundings = false; ///< whether ops count into roundings()
    [[nodiscard]] std::vector<RoundingCounts>& roundings() { return roundings_; } ///< by tensor
    bool counts_scalings = false; ///< whether casts with scales count into scalings()
    [[nodiscard]] const std::vector<ScalingCounts>& scalings() const { return scalings_; } ///< by tensor
    [[nodiscard]] std::vector<ScalingCounts>& scalings() { return scalings_; }

  protected:
    /// The tensor in which the numbers of `id` lie.
    [[nodiscard]] std::size_t storage(TensorId id) const {
        const TensorId shown = program_[id].storage;
        return static_cast<std::size_t>(shown ? shown.index : id.index);
    }

  private:
    const Program& program_;
    std::vector<RoundingCounts> roundings_;
    std::vector<ScalingCounts> scalings_;
};

/// What a finished cast with scales did, into scalings() and roundings() where they are counted. scales and amax: of
/// each block.
void count_scaled(Backend& backend, const op::Quantize& op, std::span<const float> in, std::span<const float> out,
                  std::span<const BlockScale> scales, std::span<const float> amax);

/// Which of the tensors of an update are kept under a scale.
ScaledState scaled_state(const Program& program, const op::Update& op);

/// Runs the ops of a tape in order.
void replay(Backend& backend, const Tape& tape);

/// Makes the backend of a program.
using MakeBackend = std::function<std::unique_ptr<Backend>(const Program&)>;

} // namespace amp
