// What the bias of O in BF16 does to a training (arXiv:2510.04212): the error of D = rowsum(dO O) is of one sign, so
// the errors that it makes in the gradient of the queries' weights add up over tokens and over steps, where those of
// the published fix cancel. A small GPT in weights that make the failure certain: two keys share every row's maximum,
// and the gradient of O points one way.
#include "sweep.h"

#include <ampscope/sim/base/noise.h>
#include <ampscope/sim/train/data/tokens.h>
#include <ampscope/sim/train/trainer.h>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

constexpr std::int64_t channels = 32, tokens_of_sequence = 64, vocabulary = 16;

/// The attentions that are compared; all in amp-bf16, whose results are BF16.
constexpr const char *biased = "fused:o=bf16,p-sum=rounded", *moved = "fused:o=bf16,p-sum=rounded,max=shifted";

/// Tokens at random, four of ten of which are token 1.
Dataset skewed_tokens() {
    std::vector<float> tokens(20000);
    for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = uniform(3, 1, i) < 0.4 ? 1.0F : std::floor(static_cast<float>(vocabulary * uniform(3, 2, i)));
    return windows_of("tokens", "tokens", tokens, vocabulary, "0", tokens_of_sequence, "tokens");
}

/// Rows of a Hadamard matrix: +1 and -1, orthogonal, and with mean 0 but for row 0, so that layer norm leaves sums of
/// two of them equally large.
float hadamard(std::size_t row, std::size_t column) { return std::popcount(row & column) % 2 == 0 ? 1.0F : -1.0F; }

/// One training of the GPT, and the same step in FP32 from the same weights.
class SinkTraining {
  public:
    SinkTraining(const Dataset& data, const char* attention, std::int64_t batch)
        : trainer_(options("amp-bf16", attention, batch), data, 1), exact_(options("fp32", "plain", batch), data, 1) {
        arrange();
    }

    /// The gradient of the first block's queries' weights in the next step, and its error.
    void compute() {
        for (std::size_t i = 0; i < trainer_.training().parameters.size(); ++i) {
            const std::span<const float> from = weight(trainer_, i);
            std::ranges::copy(from, exact_.backend()[exact_.training().parameters[i].weight].begin());
        }
        result_ = trainer_.compute();
        const StepResult exact = exact_.compute();
        const std::size_t q = find("h.0.attn.q.weight");
        const std::span<const float> a = gradient(trainer_, q), b = gradient(exact_, q);
        norm = 0, error = 0, summed = 0;
        sum_.resize(a.size());
        for (std::size_t i = 0; i < a.size(); ++i) {
            const double e = double{a[i]} - b[i];
            norm += double{a[i]} * a[i], error += e * e;
            summed += (sum_[i] += e) * sum_[i];
        }
        for (double* x : {&norm, &error, &summed}) *x = std::sqrt(*x);
        static_cast<void>(exact_.apply(exact));
    }
    void step() {
        compute();
        static_cast<void>(trainer_.apply(result_));
    }

    double norm = 0;   ///< The norm of the gradient.
    double error = 0;  ///< norm of its error
    double summed = 0; ///< norm of the sum of the errors of all steps

  private:
    static TrainOptions options(const char* text, const char* attention, std::int64_t batch) {
        TrainOptions o;
        o.model = model("gpt").defaults;
        o.model.width = channels, o.model.depth = 1, o.model.heads = 2;
        o.model.attention = attention;
        o.precision = precision(text);
        o.optimizer = {.kind = OptimizerKind::sgd, .learning_rate = 0.002, .momentum = 0};
        o.batch = batch;
        return o;
    }
    static std::span<const float> weight(const Trainer& t, std::size_t i) {
        return t.backend()[t.training().parameters[i].weight];
    }
    static std::span<const float> gradient(const Trainer& t, std::size_t i) {
        return t.backend()[t.training().parameters[i].gradient];
    }
    [[nodiscard]] std::size_t find(std::string_view name) const {
        const TrainingProgram& p = trainer_.training();
        const auto found = std::ranges::find_if(
            p.parameters, [&](const ParameterTensors& x) { return p.program[x.weight].name == name; });
        REQUIRE(found != p.parameters.end());
        return static_cast<std::size_t>(found - p.parameters.begin());
    }
    /// Sets parameter[row][column] = value(row, column).
    template <class Value>
    void set(std::string_view name, std::size_t columns, const Value& value) {
        const std::span<float> x = trainer_.backend()[trainer_.training().parameters[find(name)].weight];
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = value(i / columns, i % columns);
    }

    /// Tokens are rows 1 to 16 of a Hadamard matrix; positions 0 and 1 add row 17, which keys read,
    /// the others rows 18 to 31.
    /// So all queries see the first two positions with one score, 14 above the others, and their values, which are 3
    /// and a part that depends on the token, differ. What attention adds to the stream is against token 1.
    void arrange() {
        constexpr std::size_t n = channels, head_size = n / 2;
        const auto noise = [](std::uint32_t stream, std::size_t r, std::size_t c, double deviation) {
            return static_cast<float>(deviation * normal(5, stream, r * n + c));
        };
        set("wte.weight", n, [](std::size_t r, std::size_t c) { return hadamard(r + 1, c); });
        set("wpe.weight", n, [](std::size_t r, std::size_t c) { return hadamard(r < 2 ? 17 : 18 + r % 14, c); });
        set("h.0.attn.q.weight", n, [&](std::size_t r, std::size_t c) { return noise(1, r, c, 0.02); });
        set("h.0.attn.q.bias", 1, [](std::size_t r, std::size_t) { return r % head_size == 0 ? 4.0F : 0; });
        set("h.0.attn.k.weight", n, [](std::size_t r, std::size_t c) {
            return r % head_size == 0 ? 14 * hadamard(17, c) / static_cast<float>(n) : 0;
        });
        set("h.0.attn.v.weight", n, [&](std::size_t r, std::size_t c) { return noise(2, r, c, 0.09); });
        set("h.0.attn.v.bias", 1, [](std::size_t, std::size_t) { return 3.0F; });
        set("head.weight", n, [&](std::size_t r, std::size_t c) { return noise(3, r, c, 0.3); });
        double length = 0;
        for (std::size_t c = 0; c < n; ++c) length += std::pow(noise(3, 1, c, 0.3), 2);
        set("h.0.attn.o.weight", n, [&](std::size_t r, std::size_t) {
            return -2 * noise(3, 1, r, 0.3) / static_cast<float>(std::sqrt(length) * n);
        });
        set("h.0.mlp.down.weight", 1, [](std::size_t, std::size_t) { return 0.0F; });
    }

    Trainer trainer_, exact_;
    StepResult result_{};
    std::vector<double> sum_;
};

/// The error of the sum over all tokens of a batch, by the number of sequences: loss and gradient are means.
std::vector<double> errors_by_batch(const Dataset& data, const char* attention) {
    std::vector<double> errors;
    for (std::int64_t batch = 4; batch <= 256; batch *= 4) {
        SinkTraining t(data, attention, batch);
        t.compute();
        errors.push_back(t.error * static_cast<double>(batch));
    }
    return errors;
}

/// By which power of the number of tokens it grows.
double power_of(const std::vector<double>& errors) {
    return std::log(errors.back() / errors.front()) / std::log(4.0) / static_cast<double>(errors.size() - 1);
}

} // namespace

TEST_CASE(
    "the error of a weight's gradient grows nearly as the number of tokens, and with the fix nearer to its root") {
    const Dataset data = skewed_tokens();
    const std::vector<double> with_bias = errors_by_batch(data, biased), fixed = errors_by_batch(data, moved);
    fmt::print("error of dW of the queries, 4 to 256 sequences of 64 tokens: {:.3g} to {:.3g} with the bias, as the "
               "{:.2f}th power; {:.3g} to {:.3g} with the moved maximum, {:.2f}\n",
               with_bias.front(), with_bias.back(), power_of(with_bias), fixed.front(), fixed.back(), power_of(fixed));
    CHECK(power_of(with_bias) > 0.85);
    CHECK(power_of(fixed) < 0.75);
    CHECK(with_bias.back() > 10 * fixed.back());
    SinkTraining added_exactly(data, "fused:o=bf16,max=shifted", 64); // the rounding of P does not cancel in O / l
    added_exactly.compute();
    CHECK(added_exactly.error * 64 > 2 * fixed[2]);
}

TEST_CASE("in a training the errors of all steps add up, and the gradient's norm is what they make it") {
    const Dataset data = skewed_tokens();
    SinkTraining with_bias(data, biased, 32), fixed(data, moved, 32);
    std::vector<double> bias_sums, fixed_sums;
    double bias_norm = 0, fixed_norm = 0;
    constexpr int steps = 12;
    for (int step = 0; step < steps; ++step) {
        with_bias.step();
        fixed.step();
        bias_sums.push_back(with_bias.summed);
        fixed_sums.push_back(fixed.summed);
        bias_norm += with_bias.norm / steps;
        fixed_norm += fixed.norm / steps;
    }
    fmt::print(
        "mean norm of dW of the queries in {} steps: {:.3g} with the bias, {:.3g} with the moved maximum; sum of "
        "its errors {:.3g} after one step and {:.3g} after all, {:.3g} and {:.3g}\n",
        steps, bias_norm, fixed_norm, bias_sums.front(), bias_sums.back(), fixed_sums.front(), fixed_sums.back());
    CHECK(bias_norm > 8 * fixed_norm);
    CHECK(bias_sums.back() > 0.7 * steps * bias_sums.front()); // they point one way
    CHECK(bias_sums.back() > 15 * fixed_sums.back());
}
