#include <ampscope/sim/findings/mismatch.h>

#include <algorithm>
#include <cmath>

namespace amp {

namespace {

/// exp(r) - 1 - r, of which a small r leaves r^2 / 2; never negative.
double k3(double r) { return std::max(std::expm1(r) - r, 0.0); }

/// log m - log p for m = (p + q) / 2, from r = log q - log p.
double log_of_middle(double r) { return r > 0 ? r + std::log1p(std::expm1(-r) / 2) : std::log1p(std::expm1(r) / 2); }

/// The part of KL(p || q) that one token has, as p k3(r), r = log q - log p: over all tokens p exp(r) = q and p each
/// add up to one. Parts are not negative, so that nothing cancels between them.
double divergence(double p, double q, double r) {
    constexpr double most = 700; // exp(r) would be infinite
    if (p == 0) return q;
    return r < most ? p * k3(r) : q - p * (1 + r);
}

/// (p - q)^2 / q, from log p and log q, of which q may be too small for a double.
double chi2(double log_p, double log_q) {
    constexpr double most = 300; // the square of exp would be infinite
    const double r = log_q - log_p, q = std::exp(log_q);
    if (-r < most) return q * std::expm1(-r) * std::expm1(-r);
    return std::exp(2 * log_p - log_q) - 2 * std::exp(log_p) + q;
}

/// Logarithms of the probabilities, a softmax in double. Returns whether they are numbers: a logit of -inf is a
/// probability of 0, one of inf or NaN says nothing.
template <class T>
bool log_softmax(std::span<const T> logits, std::vector<double>& log_p) {
    const double largest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const T x : logits) sum += std::exp(x - largest);
    log_p.clear();
    for (const T x : logits) log_p.push_back(x - largest - std::log(sum));
    return std::isfinite(largest) && std::isfinite(sum);
}

std::size_t likeliest(std::span<const double> log_p) {
    return static_cast<std::size_t>(std::ranges::max_element(log_p) - log_p.begin());
}

} // namespace

void MismatchSum::add(double training, double serving) {
    whole_ = false;
    if (std::isfinite(training) && std::isfinite(serving)) take(training, serving);
    else ++sum_.nonfinite;
}

template <class T>
void MismatchSum::add_row(std::span<const T> training, std::span<const T> serving, std::size_t token) {
    const bool numbers = log_softmax(training, p_), also = log_softmax(serving, q_);
    if (!numbers || !also || !std::isfinite(p_[token]) || !std::isfinite(q_[token])) {
        ++sum_.nonfinite;
        return;
    }
    take(p_[token], q_[token]);
    DistributionMismatch& d = sum_.distribution ? *sum_.distribution : sum_.distribution.emplace();
    for (std::size_t i = 0; i < p_.size(); ++i) {
        const double r = q_[i] - p_[i], p = std::exp(p_[i]), q = std::exp(q_[i]), m = (p + q) / 2;
        if (std::isnan(r)) continue; // neither gives it a probability
        d.kl_training += divergence(p, q, r);
        d.kl_serving += divergence(q, p, -r);
        d.js_divergence += (divergence(p, m, log_of_middle(r)) + divergence(q, m, log_of_middle(-r))) / 2;
        d.chi2 += chi2(p_[i], q_[i]);
        d.largest = std::max(d.largest, std::abs(p - q));
    }
    d.other_choice += likeliest(p_) != likeliest(q_) ? 1 : 0;
}

void MismatchSum::add(std::span<const float> training, std::span<const float> serving, std::size_t token) {
    add_row(training, serving, token);
}

void MismatchSum::add(std::span<const double> training, std::span<const double> serving, std::size_t token) {
    add_row(training, serving, token);
}

void MismatchSum::take(double training, double serving) {
    const double d = serving - training;
    TokenMismatch& t = sum_.token;
    t.mult_prob_error += std::expm1(std::abs(d));
    t.kl_serving += k3(-d);
    t.kl_training += k3(d);
    t.js_divergence += (k3(-log_of_middle(d)) + k3(-log_of_middle(-d))) / 2; // as NeMo-RL has the signs
    t.importance_ratio += std::expm1(-d);
    t.chi2 += std::expm1(-2 * d);
    if (std::abs(d) > t.largest) {
        t.largest = std::abs(d);
        t.largest_at = sum_.tokens + sum_.nonfinite;
    }
    sum_.training_loss -= training;
    sum_.serving_loss -= serving;
    ++sum_.tokens;
}

Mismatch MismatchSum::mean() const {
    Mismatch m = sum_;
    const auto n = static_cast<double>(m.tokens); // of none all means are NaN
    TokenMismatch& t = m.token;
    for (double* sum : {&m.training_loss, &m.serving_loss, &t.kl_serving, &t.kl_training, &t.js_divergence, &t.chi2})
        *sum /= n;
    if (m.tokens == 0) t.largest = n / n;
    for (double* sum : {&t.mult_prob_error, &t.importance_ratio}) *sum = 1 + (*sum - 1) / n; // of what exceeds one
    if (!whole_) m.distribution.reset();
    if (m.distribution)
        for (double DistributionMismatch::*sum : {&DistributionMismatch::kl_training, &DistributionMismatch::kl_serving,
                                                  &DistributionMismatch::js_divergence, &DistributionMismatch::chi2})
            (*m.distribution).*sum /= n;
    return m;
}

} // namespace amp
