// What eps and the formats of its state do to Adam, element by element: runs the trainer's optimizer on recorded
// gradients.
#pragma once

#include <ampscope/sim/optim/optimizer.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace amp {

/// How m and v are kept: in a format, or under scales.
struct AdamState {
    FormatSpec format = fp32_format();    ///< the format of tensors that no scales hold
    std::optional<ScaledFormat> m{}, v{}; ///< both or none

    AdamState() = default;
    AdamState(const FormatSpec& f) : format(f) {}
    [[nodiscard]] std::string name() const { return m ? m->name() : std::string(format.name); }
    bool operator==(const AdamState&) const = default;
};

/// Reads the name of a format, or what scaled_format() reads. Throws std::invalid_argument for anything else.
AdamState adam_state(std::string_view text);

/// What is computed for every element.
struct AdamQuestion {
    OptimizerOptions options; ///< where a history has no settings of its own; its eps is ignored
    std::vector<double> eps;
    std::vector<AdamState> states;   ///< how m and v are kept; steps are compared with those of the first one
    std::vector<FormatSpec> weights; ///< weight formats in which updates may be lost; state is FP32
    std::size_t usual_eps = 0;       ///< index in eps of the eps in use

    /// The e-th eps as the s-th state format holds it. Under scales, the step is made in FP32.
    [[nodiscard]] double stored_eps(std::size_t s, std::size_t e) const;
    /// Whether some state has scales, so that what becomes of an element depends on others of its tensor.
    [[nodiscard]] bool has_scales() const;
};

/// Counts of elements by powers of two; zeros, infinities and NaNs are counted apart.
struct BinadeCounts {
    std::vector<std::pair<int, std::uint64_t>> bins{}; ///< (floor(log2 x), count), ascending; a vector, as there are
                                                       ///< dozens of these for each of thousands of tensors
    std::uint64_t zero = 0, infinite = 0;

    void add(double x);
    void add(int bin, std::uint64_t n);
    void merge(const BinadeCounts& other);
    [[nodiscard]] std::uint64_t count() const;
    /// floor(log2) of the lower median; INT_MIN if that is zero, INT_MAX if infinite.
    [[nodiscard]] int median() const;
};

/// The effects of one state format at one eps.
struct EpsEffects {
    std::uint64_t dominated = 0; ///< elements with a gradient and sqrt(v_hat) < eps, as stored: eps decides their step
    std::uint64_t nonfinite = 0; ///< elements whose step is NaN or infinite
    BinadeCounts ratio{};        ///< sqrt(v_hat) / eps of elements with a gradient
    void merge(const EpsEffects& other);
};

/// The effects of one state format, for every eps. Under scales, m and v are rounded after the step that they decide.
struct StateEffects {
    std::uint64_t held = 0;        ///< elements whose m and v are so kept; others' are FP32
    std::uint64_t m_underflow = 0; ///< elements whose m is zero though the gradient is not
    std::uint64_t v_underflow = 0; ///< elements whose v is zero though the gradient is not
    /// Elements with v != 0 where v * beta2 rounds to v: it cannot decay. Under scales: while the largest v that shares
    /// the scale stays; that one itself is not counted.
    std::uint64_t v_stuck = 0;
    /// The step's length, by that with the first state of the question, of elements that one of the two moves; at the
    /// usual eps. Empty for scales and a checkpoint, which has the state after the step alone.
    BinadeCounts stretch{};
    std::vector<EpsEffects> eps{}; ///< in the order of the question

    [[nodiscard]] std::uint64_t longer() const;  ///< elements whose step is at least twice as long, or not finite
    [[nodiscard]] std::uint64_t shorter() const; ///< elements whose step is less than half as long
    void merge(const StateEffects& other);
};

/// The effects on one tensor, or on several together.
struct AdamEffects {
    std::uint64_t elements = 0;
    std::uint64_t nonzero = 0;          ///< elements with a gradient in the examined step
    std::optional<int> least_log2{};    ///< floor(log2) of the least magnitude of these; none: no element has one
    BinadeCounts root{};                ///< sqrt(v_hat) of those elements, with state in FP32
    BinadeCounts rate{};                ///< learning rate / (sqrt(v_hat) + eps) of those elements, at the usual eps
    std::vector<StateEffects> states{}; ///< in the order of the question
    std::uint64_t updated = 0;          ///< elements with a weight and a gradient; 0 if weights are unknown
    std::vector<std::uint64_t> lost{};  ///< how many of `updated` do not change, by format of the weights
    /// Elements with a weight that is not zero, if a weight decay multiplies weights and rounds them before the step;
    /// else 0. Where the decay is part of the step, or there is none, it cannot be lost alone.
    std::uint64_t decaying = 0;
    std::vector<std::uint64_t> undecayed{}; ///< how many of `decaying` it leaves as they are, by format of the weights
    void merge(const AdamEffects& other);
};

/// The steps of some elements of one parameter, up to the examined one; of all elements if the question has scales.
/// Gradients contain no loss scale.
struct AdamHistory {
    /// Before the last step; empty: unknown. Where there are no gradients, those that the step left: what is lost is
    /// then an estimate, as the step is made once more, from them.
    std::vector<float> weight;
    std::vector<float> m, v; ///< before the first of these steps; empty: zeros
    std::int64_t first = 1;  ///< number of the first of these steps, counted from 1
    /// Gradients of successive steps; the last step is the examined one. None: `first` is the examined step, and m and
    /// v are those that it left; elements have a gradient if one of the two is not zero.
    std::vector<std::vector<float>> gradients;
    std::vector<std::int64_t> repeats; ///< number of successive steps that have each gradient
    std::vector<OptimizerOptions>
        settings{}; ///< what the step with each gradient had, but for eps; empty: the question's
};

/// Throws std::invalid_argument if an option is outside its range.
AdamEffects adam_effects(const AdamQuestion& question, const AdamHistory& history);

} // namespace amp
