// Where a run leaves another, of FP32 as a rule, that trains beside it on the same data: the first tensor that is far
// off, infinite, NaN, or a gradient of nothing but zeros.
#pragma once

#include <ampscope/sim/train/trainer.h>

#include <array>
#include <optional>

namespace amp {

enum class DepartureKind : std::uint8_t {
    error,        ///< |x - y| / |y| above the bound, y the other run's tensor, both as vectors, gradients unscaled
    infinite,     ///< an infinite element
    nan,          ///< a NaN
    zero_gradient ///< a gradient all zero where the other run's is not
};
inline constexpr std::array<std::string_view, 4> departure_names = {"error", "inf", "NaN", "zero gradient"};

struct Departure {
    std::int64_t step = 0;
    std::string op, tensor;
    double error = 0; ///< of kind error
};

/// Compares weights, forward results and gradients of two runs by name, in the order of the run's tapes.
class DepartureWatch {
  public:
    DepartureWatch(const TrainingProgram& run, const TrainingProgram& reference, double bound);

    /// Between compute() and apply() of both, at the same step. Looks for what has not been seen yet.
    void look(const Trainer& run, const Trainer& reference, const StepResult& step, double reference_scale = 1);
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
