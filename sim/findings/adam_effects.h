// What eps and the formats of its state do to Adam, element by element: the trainer's optimizer, run on recorded
// gradients.
#pragma once

#include <ampscope/sim/optim/optimizer.h>

#include <span>
#include <utility>
#include <vector>

namespace amp {

/// What is asked of every element.
struct AdamQuestion {
    OptimizerOptions options; ///< eps is not read
    std::vector<double> eps;
    std::vector<FormatSpec> states;  ///< of m and v
    std::vector<FormatSpec> weights; ///< in which updates may be lost; asked with state in FP32 and the first eps
    std::size_t usual_eps = 0;       ///< the index of that eps
};

/// Counts of elements by powers of two; those that are zero, infinite or NaN apart.
struct BinadeCounts {
    std::vector<std::pair<int, std::uint64_t>> bins{}; ///< floor(log2 x), ascending, and how many; no map, as there
                                                       ///< are dozens of these for each of thousands of tensors
    std::uint64_t zero = 0, infinite = 0;

    void add(double x);
    void add(int bin, std::uint64_t n);
    void merge(const BinadeCounts& other);
    [[nodiscard]] std::uint64_t count() const;
    /// floor(log2) of the lower median; INT_MIN for zero, INT_MAX for infinite.
    [[nodiscard]] int median() const;
};

/// One state format at one eps.
struct EpsEffects {
    std::uint64_t dominated = 0; ///< with a gradient, sqrt(v_hat) < eps as stored: eps decides the step
    std::uint64_t nonfinite = 0; ///< the step is NaN or infinite
    BinadeCounts ratio{};        ///< sqrt(v_hat) / eps, of elements with a gradient
    void merge(const EpsEffects& other);
};

/// One state format, whatever eps is.
struct StateEffects {
    std::uint64_t v_underflow = 0; ///< v is zero though the gradient is not
    std::uint64_t v_stuck = 0;     ///< v is not zero, and v * beta2 rounds to v: it cannot decay
    std::vector<EpsEffects> eps{}; ///< in the question's order
    void merge(const StateEffects& other);
};

/// A tensor, or several.
struct AdamEffects {
    std::uint64_t elements = 0;
    std::uint64_t nonzero = 0;          ///< with a gradient in the step asked about
    BinadeCounts root{};                ///< sqrt(v_hat) with state in FP32, of those
    BinadeCounts rate{};                ///< learning rate / (sqrt(v_hat) + eps), likewise, at the usual eps
    std::vector<StateEffects> states{}; ///< in the question's order
    std::uint64_t updated = 0;          ///< elements with a weight and a gradient; 0 where weights are not known
    std::vector<std::uint64_t> lost{};  ///< of these, weights that do not change, by format of the weights
    void merge(const AdamEffects& other);
};

/// The steps of some elements of one parameter that lead to the one asked about; gradients without a loss scale.
struct AdamHistory {
    std::vector<float> weight;                 ///< before the last step; empty: not known
    std::vector<float> m, v;                   ///< before the first of these steps; empty: zeros
    std::int64_t first = 1;                    ///< the number of that step, from 1
    std::vector<std::vector<float>> gradients; ///< of one step each; the last is asked about
    std::vector<std::int64_t> repeats;         ///< how many steps in a row had it
};

/// Throws std::invalid_argument for options outside their ranges.
AdamEffects adam_effects(const AdamQuestion& question, const AdamHistory& history);

} // namespace amp
