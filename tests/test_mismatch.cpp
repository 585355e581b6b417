// Training against serving: the divergences against their definitions in 60 digits.
#include <doctest/doctest.h>

#include <ampscope/sim/findings/mismatch.h>

#include <boost/multiprecision/cpp_bin_float.hpp>

#include <cmath>
#include <limits>
#include <random>

using namespace amp;

namespace {

using Digits = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<60>, boost::multiprecision::et_off>;

std::vector<Digits> softmax(const std::vector<float>& logits) {
    Digits sum = 0;
    std::vector<Digits> p;
    for (const float x : logits) p.push_back(exp(Digits(x)));
    for (const Digits& x : p) sum += x;
    for (Digits& x : p) x /= sum;
    return p;
}

/// Sums of the formulas as their sources have them: NeMo-RL's from logarithms, divergences from their definitions.
struct Formulas {
    Digits mult = 0, gen_kl = 0, policy_kl = 0, js = 0, ratio = 0, squares = 0;
    Digits kl_pq = 0, kl_qp = 0, jsd = 0, chi2 = 0, loss_p = 0, loss_q = 0;
    int n = 0;

    void add(const std::vector<float>& training, const std::vector<float>& serving, std::size_t token) {
        const std::vector<Digits> p = softmax(training), q = softmax(serving);
        const auto k3 = [](const Digits& logprobs, const Digits& reference) {
            return Digits(exp(reference - logprobs) - (reference - logprobs) - 1);
        };
        const Digits prev = log(p[token]), generation = log(q[token]), mixture = log((p[token] + q[token]) / 2);
        mult += exp(abs(generation - prev));
        gen_kl += k3(generation, prev);
        policy_kl += k3(prev, generation);
        js += (exp(prev - mixture) - (prev - mixture) - 1) / 2 +
              (exp(generation - mixture) - (generation - mixture) - 1) / 2;
        ratio += exp(prev - generation);
        squares += exp(2 * (prev - generation));
        loss_p -= prev;
        loss_q -= generation;
        for (std::size_t i = 0; i < p.size(); ++i) {
            const Digits m = (p[i] + q[i]) / 2;
            kl_pq += p[i] * log(p[i] / q[i]);
            kl_qp += q[i] * log(q[i] / p[i]);
            jsd += (p[i] * log(p[i] / m) + q[i] * log(q[i] / m)) / 2;
            chi2 += (p[i] - q[i]) * (p[i] - q[i]) / q[i];
        }
        ++n;
    }
};

struct Random {
    std::mt19937_64 engine{7};
    double operator()() { return static_cast<double>(engine() >> 11) * 0x1p-53; }
};

/// How far a number is from the right one, over it; JSD's k3 form differs from the mixture's by rounding only.
double relative(double x, const Digits& right) {
    return right == 0 ? std::abs(x) : static_cast<double>(abs(Digits(x) - right) / abs(right));
}

} // namespace

TEST_CASE("divergences against their definitions in 60 digits, and NeMo-RL's and verl's formulas") {
    Random random;
    constexpr int rows = 5;
    for (const double distance : {1e-4, 1e-2, 1.0, 30.0})
        for (const std::size_t tokens : {2UL, 7UL, 300UL}) {
            MismatchSum sum;
            Formulas right;
            double largest = 0;
            for (int n = 0; n < rows; ++n) {
                std::vector<float> p, q;
                for (std::size_t i = 0; i < tokens; ++i) {
                    p.push_back(static_cast<float>(8 * random() - 4));
                    q.push_back(static_cast<float>(p.back() + distance * (random() - 0.5)));
                }
                const auto token = static_cast<std::size_t>(random() * static_cast<double>(tokens));
                sum.add(p, q, token);
                right.add(p, q, token);
                largest = std::max(largest, static_cast<double>(abs(log(softmax(p)[token] / softmax(q)[token]))));
            }
            const Mismatch m = sum.mean();
            CAPTURE(distance);
            CAPTURE(tokens);
            CHECK(m.tokens == rows);
            REQUIRE(m.distribution);
            const double near = 1e-8; // of what is left of differences of 1e-4 in doubles
            CHECK(relative(m.token.mult_prob_error, right.mult / right.n) < 1e-13);
            CHECK(relative(m.token.importance_ratio, right.ratio / right.n) < 1e-13);
            CHECK(relative(m.token.kl_serving, right.gen_kl / right.n) < near);
            CHECK(relative(m.token.kl_training, right.policy_kl / right.n) < near);
            CHECK(relative(m.token.js_divergence, right.js / right.n) < near);
            CHECK(relative(m.token.chi2, right.squares / right.n - 1) < near);
            CHECK(m.token.largest == doctest::Approx(largest).epsilon(near));
            CHECK(relative(m.distribution->kl_training, right.kl_pq / right.n) < near);
            CHECK(relative(m.distribution->kl_serving, right.kl_qp / right.n) < near);
            CHECK(relative(m.distribution->js_divergence, right.jsd / right.n) < near);
            CHECK(relative(m.distribution->chi2, right.chi2 / right.n) < near);
            CHECK(relative(m.training_loss, right.loss_p / right.n) < 1e-13);
            CHECK(relative(m.serving_loss, right.loss_q / right.n) < 1e-13);
        }
}

TEST_CASE("mismatches: equal logits, logits that are no numbers, probabilities that are zero") {
    MismatchSum equal, broken, far, alone;
    Random random;
    for (int n = 0; n < 50; ++n) {
        std::vector<float> p;
        for (int i = 0; i < 40; ++i) p.push_back(static_cast<float>(40 * random()));
        equal.add(p, p, 3);
    }
    const Mismatch none = equal.mean();
    CHECK(none.token.mult_prob_error == 1);
    CHECK(none.token.importance_ratio == 1);
    for (const double zero : {none.token.kl_serving, none.token.kl_training, none.token.js_divergence, none.token.chi2,
                              none.token.largest, none.distribution->kl_training, none.distribution->kl_serving,
                              none.distribution->js_divergence, none.distribution->chi2, none.distribution->largest})
        CHECK(zero == 0);
    CHECK(none.distribution->other_choice == 0);
    CHECK(none.training_loss == none.serving_loss);

    constexpr float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> fine = {1, 2, 4};
    broken.add(fine, std::vector<float>{1, inf, 3}, 0);
    broken.add(std::vector<float>{1, std::nanf(""), 3}, fine, 0);
    broken.add(std::vector<float>{1, 2, 3}, fine, 2);
    CHECK(broken.mean().nonfinite == 2);
    CHECK(broken.mean().tokens == 1);
    CHECK(broken.mean().token.largest_at == 2);
    CHECK(broken.mean().distribution->other_choice == 0);

    // Neither gives the last token a probability, and only training the first; an FP64 logit may be anything.
    MismatchSum masked;
    constexpr double none_at_all = -std::numeric_limits<double>::infinity();
    masked.add(std::vector<double>{0, 0, none_at_all}, std::vector<double>{none_at_all, 0, none_at_all}, 1);
    CHECK(masked.mean().token.kl_training == doctest::Approx(1 - std::log(2)));
    CHECK(masked.mean().distribution->kl_serving == doctest::Approx(std::log(2)));
    CHECK(std::isinf(masked.mean().distribution->kl_training));
    CHECK(std::isinf(masked.mean().distribution->chi2));
    CHECK(masked.mean().distribution->js_divergence ==
          doctest::Approx((std::log(2.) / 2 + std::log(2. / 3) / 2 + std::log(4. / 3)) / 2));
    masked.add(std::vector<double>{0, 0, none_at_all}, std::vector<double>{none_at_all, 0, none_at_all}, 0);
    CHECK(masked.mean().nonfinite == 1);                           // log q of the token itself is no number
    CHECK(std::isnan(MismatchSum().mean().token.mult_prob_error)); // of no token at all
    MismatchSum tiny; // p^2 / q = exp(-1600 + 1600), where neither is a number in double
    tiny.add(std::vector<double>{0, -800}, std::vector<double>{0, -1600}, 0);
    CHECK(tiny.mean().distribution->chi2 == doctest::Approx(1));

    // exp(-2000) is 0 in double: what serving gives to the second token is all of KL(q | p).
    far.add(std::vector<float>{2000, 0}, std::vector<float>{0, 2000}, 0);
    CHECK(far.mean().distribution->kl_training == 2000);
    CHECK(far.mean().distribution->kl_serving == 2000);
    CHECK(far.mean().distribution->js_divergence == doctest::Approx(std::log(2)));
    CHECK(far.mean().distribution->largest == 1);
    CHECK(std::isinf(far.mean().distribution->chi2));
    CHECK(far.mean().distribution->other_choice == 1);
    CHECK(far.mean().token.largest == 2000);

    alone.add(-1.0, -1.5);
    alone.add(-std::numeric_limits<double>::infinity(), -1.5);
    CHECK(alone.mean().nonfinite == 1);
    CHECK_FALSE(alone.mean().distribution);
    CHECK(alone.mean().token.kl_training == doctest::Approx(std::exp(-0.5) - 1 + 0.5));
    CHECK(alone.mean().token.kl_serving == doctest::Approx(std::exp(0.5) - 1 - 0.5));
}
