// A backend holds the tensors of a program and runs its ops: on the processor (cpu/) or on a device (cuda/).
#pragma once

#include <ampscope/formats/random.h>
#include <ampscope/sim/backend/profile.h>
#include <ampscope/sim/backend/update.h>
#include <ampscope/sim/program/ops.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace amp {

/// What varies from step to step, other than tensors.
struct StepContext {
    std::uint64_t seed = 0;
    std::uint32_t step = 0; ///< number of the step; skipped steps count, too
    int replica = 0, replicas = 1;
    int micro_batch = 0, micro_batches = 1;
    bool training = true;    ///< false: dropout passes all elements
    double loss_scale = 1;   ///< scale by which the loss is multiplied
    double unscale_by = 1;   ///< scale by which gradients are divided
    std::int64_t update = 1; ///< number of this update, from 1; skipped steps do not count
    double warmup = 1;       ///< part of the learning rate that this step has

    /// The index of this part of a step: replicas, then micro-batches.
    [[nodiscard]] std::uint64_t part() const {
        return static_cast<std::uint64_t>(replica * micro_batches + micro_batch);
    }
};

/// What one rounding did to the elements of a tensor.
struct RoundingCounts {
    std::int64_t elements = 0;
    std::int64_t nonzero = 0;   ///< elements finite and not zero before
    std::int64_t underflow = 0; ///< those of them that became zero
    std::int64_t overflow = 0;  ///< those of them that became infinite or NaN

    RoundingCounts& operator+=(const RoundingCounts& other);
    bool operator==(const RoundingCounts&) const = default;
};

/// What the casts with a scale did to a tensor, over the parts of a step.
struct ScalingCounts {
    float amax = 0;                           ///< largest magnitude; infinite if an element was
    float least_scale = 0, largest_scale = 0; ///< smallest and largest scale by which blocks were multiplied
    std::int64_t elements = 0;
    std::int64_t nonzero = 0;   ///< elements finite and not zero before
    std::int64_t underflow = 0; ///< those of them that are read as zero
    std::int64_t saturated = 0; ///< those of them that exceeded the format's largest value

    ScalingCounts& operator+=(const ScalingCounts& other);
};

class Backend {
  public:
    /// The program must outlive the backend.
    explicit Backend(const Program& program);
    virtual ~Backend() = default;
    Backend(Backend&&) = default;

    /// The elements of a tensor; zeros at first, unless it shares memory. For a device this is a copy on the host,
    /// valid until the next op runs; that op sees what was written to the copy.
    [[nodiscard]] virtual std::span<float> operator[](TensorId id) = 0;
    [[nodiscard]] virtual std::span<const float> operator[](TensorId id) const = 0;
    [[nodiscard]] std::span<const float> read(TensorId id) const { return (*this)[id]; }
    virtual void run(const Op& op) = 0;

    [[nodiscard]] const TensorInfo& info(TensorId id) const { return program_[id]; }
    [[nodiscard]] const Program& program() const { return program_; }

    StepContext context{};
    bool found_inf = false;        ///< set by CheckFinite; cleared by the host
    UpdateCounts updates{};        ///< summed by Update; cleared by the host
    bool counts_roundings = false; ///< whether ops add their counts to roundings()
    [[nodiscard]] std::vector<RoundingCounts>& roundings() { return roundings_; } ///< counts by tensor
    bool counts_scalings = false; ///< whether casts with a scale add their counts to scalings()
    /// counts by tensor
    [[nodiscard]] const std::vector<ScalingCounts>& scalings() const { return scalings_; }
    [[nodiscard]] std::vector<ScalingCounts>& scalings() { return scalings_; }
    TimeProfile* profile = nullptr; ///< if not null, run_op() adds the time of each op

  protected:
    /// The index of the tensor that holds the elements of `id`, which may be a view.
    [[nodiscard]] std::size_t storage(TensorId id) const {
        const TensorId shown = program_[id].storage;
        return static_cast<std::size_t>(shown ? shown.index : id.index);
    }

  private:
    const Program& program_;
    std::vector<RoundingCounts> roundings_;
    std::vector<ScalingCounts> scalings_;
};

/// Which tensors of an update are kept under a scale, and in which format.
ScaledState scaled_state(const Program& program, const op::Update& op);

/// Runs an op of the tape of that name. A device's times are those of launching its work.
void run_op(Backend& backend, std::string_view tape, const Op& op);
/// The same where `work` runs it.
void run_op(Backend& backend, std::string_view tape, const Op& op, const std::function<void()>& work);

/// Runs the ops of one of the program's tapes in order.
void replay(Backend& backend, const Tape& tape);

/// A function that makes a backend for a program.
using MakeBackend = std::function<std::unique_ptr<Backend>(const Program&)>;

} // namespace amp
