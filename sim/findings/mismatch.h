// How far the probabilities that serving gives to tokens are from those of training: in reinforcement learning the
// tokens of a rollout come from one, and their probabilities in the gradient from the other.
//
// p are the probabilities of training, q those of serving, natural logarithms throughout. What is averaged over tokens
// has the names and formulas of NeMo-RL (nemo_rl/algorithms/loss/loss_functions.py) and of verl
// (verl/trainer/ppo/rollout_corr_helper.py), where training is "prev" and serving "generation": means over the tokens
// of the data. They estimate the divergences without bias where the tokens were drawn from q; here they are those of a
// text, for which the divergences themselves are computed beside them, from the probabilities of all tokens. Two guards
// are left out: verl clamps log p - log q to +-20, and NeMo-RL counts infinite ratios as 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace amp {

/// Estimates from the probability of each token alone; d = log q - log p.
struct TokenMismatch {
    double mult_prob_error = 1; ///< mean of exp |d|: NeMo-RL's token_mult_prob_error
    double kl_serving = 0;      ///< mean of exp(-d) - 1 + d, k3 of KL(q || p): gen_kl_error
    double kl_training = 0;     ///< mean of exp(d) - 1 - d, k3 of KL(p || q): policy_kl_error
    /// Mean of (exp(a) - 1 - a + exp(b) - 1 - b) / 2, a = log p / m, b = log q / m, m = (p + q) / 2:
    /// js_divergence_error.
    double js_divergence = 0;
    double importance_ratio = 1;  ///< mean of p / q: sampling_importance_ratio
    double chi2 = 0;              ///< mean of (p / q)^2, less 1: verl's chi2_token
    double largest = 0;           ///< the largest |d|
    std::uint64_t largest_at = 0; ///< and which of the tokens that is, from 0
};

/// The same from all probabilities: means over positions.
struct DistributionMismatch {
    double kl_training = 0;         ///< KL(p || q)
    double kl_serving = 0;          ///< KL(q || p)
    double js_divergence = 0;       ///< (KL(p || m) + KL(q || m)) / 2
    double chi2 = 0;                ///< the sum of (p - q)^2 / q
    double largest = 0;             ///< the largest |p - q|
    std::uint64_t other_choice = 0; ///< positions whose likeliest token is another
};

/// An op of forward whose results differ.
struct DifferingOp {
    std::string op, tensor;
    double relative = 0; ///< |x - y| / |y| over all batches, where y is training's; infinite for what is NaN
    std::uint64_t differing = 0, elements = 0;
};

/// A way of serving beside training.
struct Mismatch {
    std::string serving;         ///< its precision and formats
    std::int64_t batch = 0;      ///< sequences that it computes at once
    std::uint64_t tokens = 0;    ///< how many are compared; without any, all means are NaN
    std::uint64_t nonfinite = 0; ///< how many are left out: a logit is infinite or NaN, or the token cannot come
    double training_loss = 0, serving_loss = 0; ///< means of -log p and -log q
    TokenMismatch token{};
    std::optional<DistributionMismatch> distribution{}; ///< none: only the tokens' own probabilities are known
    std::vector<DifferingOp> ops{};                     ///< in the order in which training computes them
};

/// A trained network, and ways of serving it.
struct MismatchReport {
    std::string network;                 ///< its folder
    std::optional<std::int64_t> steps{}; ///< how many it was trained for; none: not known
    std::string trained_in, training;    ///< its own precision, and that in which training computes here
    std::int64_t batch = 0;              ///< sequences that training computes at once
    std::vector<Mismatch> servings;
};

/// Adds up what a Mismatch has of tokens. Sums are taken in the order of the calls. All is exactly zero, or one where
/// it is a ratio, for equal logits.
class MismatchSum {
  public:
    /// A position with the logits of all tokens, of which the text has `token`. A logit of -inf is a probability of 0.
    void add(std::span<const float> training, std::span<const float> serving, std::size_t token);
    void add(std::span<const double> training, std::span<const double> serving, std::size_t token);
    /// A token of which only the logarithms of its probabilities are known.
    void add(double training, double serving);
    [[nodiscard]] Mismatch mean() const;

  private:
    template <class T>
    void add_row(std::span<const T> training, std::span<const T> serving, std::size_t token);
    void take(double training, double serving);

    Mismatch sum_{};
    bool whole_ = true; ///< whether all probabilities of every token are known
    std::vector<double> p_, q_;
};

/// Whether the file begins as one with such a report; false for what cannot be read.
bool is_mismatch_report(const std::filesystem::path& file);
/// Throws FileError "FILE: PLACE: what is wrong".
MismatchReport read_mismatch_report(const std::filesystem::path& file);
nlohmann::ordered_json json_of(const MismatchReport& report);
nlohmann::ordered_json json_of(const Mismatch& mismatch);

} // namespace amp
