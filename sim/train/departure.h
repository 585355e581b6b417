// Finds where a run departs from a reference run (usually FP32) that trains beside it on the same data: the first
// tensor that is far off, infinite or NaN, and the first gradient that is all zeros.
#pragma once

#include <ampscope/sim/train/trainer.h>

#include <array>
#include <optional>

namespace amp {

enum class DepartureKind : std::uint8_t {
    error,        ///< |x - y| / |y| of a result or gradient exceeds the bound; Euclidean norms, y is the reference's
    infinite,     ///< the tensor has an infinite element
    nan,          ///< the tensor has a NaN
    zero_gradient ///< a gradient is all zeros, but the reference's is not
};
inline constexpr std::array<std::string_view, 4> departure_names = {"error", "inf", "NaN", "zero gradient"};

struct Departure {
    std::int64_t step = 0;
    std::string op, tensor;
    double error = 0; ///< the relative error, for kind error
};

/// Compares weights, forward results and gradients of two runs by name, in the order of the run's tapes.
class DepartureWatch {
  public:
    DepartureWatch(const TrainingProgram& run, const TrainingProgram& reference, double bound);

    /// Call it between compute() and apply() of both runs, at the same step. Looks for the kinds not found so far.
    void look(const Trainer& run, const Trainer& reference, const StepResult& step, double reference_scale = 1);
    /// Call it after apply() of the last step: no other will read the weights that it left.
    void look_at_weights(const Trainer& run);
    [[nodiscard]] const std::optional<Departure>& first(DepartureKind kind) const {
        return found_[static_cast<std::size_t>(kind)];
    }
    void restore(DepartureKind kind, Departure departure) {
        found_[static_cast<std::size_t>(kind)] = std::move(departure);
    }

  private:
    struct Pair {
        std::string_view op;
        TensorId run, reference;
        enum Kind : std::uint8_t { updated, result, gradient } kind;
    };
    void note(DepartureKind kind, const Trainer& run, const Pair& pair, std::int64_t step, double error = 0);

    std::vector<Pair> pairs_;
    double bound_;
    std::array<std::optional<Departure>, departure_names.size()> found_;
};

} // namespace amp
