// What eps and state formats do to Adam: compared with closed forms, and with known facts about FP16 and BF16.
#include <ampscope/sim/findings/adam_effects.h>

#include <doctest/doctest.h>

#include <climits>
#include <cmath>

using namespace amp;

namespace {

AdamQuestion question(std::vector<double> eps = {1e-8}) {
    AdamQuestion q;
    q.options = optimizer("adam").options;
    q.eps = std::move(eps);
    for (const char* f : {"fp32", "bf16", "fp16"}) {
        q.states.push_back(format(f));
        q.weights.push_back(format(f));
    }
    return q;
}

/// A history of so many steps with the same gradient.
AdamHistory held(std::vector<float> gradient, std::int64_t steps) {
    AdamHistory h;
    h.gradients = {std::move(gradient)};
    h.repeats = {steps};
    return h;
}

AdamEffects effects(const AdamQuestion& q, const AdamHistory& h) { return adam_effects(q, h); }

} // namespace

TEST_CASE("a gradient that stays: sqrt(v_hat) is its magnitude, so eps decides below it") {
    std::vector<float> gradient;
    for (int k = 0; k < 40; ++k) gradient.push_back((k % 2 == 0 ? 1 : -1) * std::ldexp(1.5F, -k));
    gradient.push_back(0);
    const AdamQuestion q = question({1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 0});
    const AdamEffects e = effects(q, held(gradient, 50));
    CHECK(e.elements == 41);
    CHECK(e.nonzero == 40);
    for (std::size_t i = 0; i < q.eps.size(); ++i) {
        CAPTURE(q.eps[i]);
        std::uint64_t below = 0;
        for (const float g : gradient) below += g != 0 && std::fabs(g) < q.eps[i];
        CHECK(e.states[0].eps[i].dominated == below);
        CHECK(e.states[0].eps[i].ratio.count() == 40);
    }
    CHECK(e.states[0].eps[5].nonfinite == 1); // eps 0 and a zero gradient: 0 / 0
    CHECK(e.states[0].eps[3].nonfinite == 0);
    CHECK(e.root.bins.size() == 40);
    CHECK(e.root.median() == -20);
    CHECK(e.states[0].v_underflow == 0);
    // rate: lr / (sqrt(v_hat) + eps): 1e-3 / 1.5 and up
    CHECK(e.rate.bins.begin()->first == -11);
    CHECK(e.updated == 0);
    CHECK(e.lost.empty());
}

TEST_CASE("FP16: eps is stored as 0, and v is 0 for gradients up to 5.46e-3") {
    const AdamEffects e = effects(question({1e-4, 1e-7, 1e-8}), held({5.45e-3F, 5.47e-3F, 1e-5F, 0}, 1));
    const StateEffects& half = e.states[2];
    CHECK(half.v_underflow == 2);
    CHECK(half.eps[2].nonfinite == 3); // m / 0 and 0 / 0
    CHECK(half.eps[1].nonfinite == 0); // 1e-7 is 2^-23
    CHECK(half.eps[1].dominated == 2);
    CHECK(half.eps[2].dominated == 0); // no ratio is below 0
    CHECK(half.eps[2].ratio.infinite == 3);
    CHECK(e.states[0].v_underflow == 0);
    CHECK(e.states[0].eps[2].nonfinite == 0);
}

TEST_CASE("BF16: v cannot decay by 0.999, by 0.99 it can") {
    std::vector<float> gradient;
    for (int i = 0; i < 128; ++i) gradient.push_back(0.01F * static_cast<float>(i + 1));
    AdamQuestion q = question();
    CHECK(effects(q, held(gradient, 20)).states[1].v_stuck == 128);
    CHECK(effects(q, held(gradient, 20)).states[0].v_stuck == 0);
    q.options.beta2 = 0.99;
    CHECK(effects(q, held(gradient, 20)).states[1].v_stuck == 0);
}

TEST_CASE("8-bit state: in a block with larger gradients v of small ones is 0, or too large, and so are their steps") {
    // Half of the gradients are 1, half 2^-12: their v is 2^-24 of the block's largest, below half of the table's first
    // number, 3.25e-7, and their m is 2^-12, which the table has. E4M3 has no v below 2^-10 / 448 of it, but that m.
    constexpr std::size_t count = 4096;
    std::vector<float> gradient(count, 1.0F);
    for (std::size_t i = 0; i < count; i += 2) gradient[i] = 0x1p-12F;
    AdamQuestion q = question({1e-12});
    q.states = {format("fp32"), adam_state("dynamic8:256"), adam_state("e4m3:256"), adam_state("dynamic4:128"),
                adam_state("bnb8:256")};
    const AdamEffects e = effects(q, held(gradient, 200));
    CHECK(e.states[0].held == 0);
    CHECK(e.states[0].stretch.bins == std::vector<std::pair<int, std::uint64_t>>{{0, count}});
    // What the step itself adds to v is all that it is divided by: (1 - beta2) g^2, in place of (1 - beta2^200) g^2.
    const int log2 = std::ilogb(std::sqrt((1 - std::pow(0.999, 200)) / 0.001)); // 13.5 times as long
    for (const auto s : {std::size_t{1}, std::size_t{2}}) {
        CAPTURE(q.states[s].name());
        CHECK(e.states[s].held == count);
        CHECK(e.states[s].m_underflow == 0);
        CHECK(e.states[s].v_underflow == count / 2);
        CHECK(e.states[s].eps[0].ratio.zero == 0); // of the v that the step divides by, before it is rounded
        CHECK(e.states[s].longer() == count / 2);
        CHECK(e.states[s].stretch.bins.back() == std::pair(log2, count / 2));
        CHECK(e.states[s].v_stuck == count / 2 - count / 256); // but the largest of each block, while that one stays
    }
    // 4 bits have no v of 0: a sixteenth of the largest one is the least, and small gradients move no weight.
    CHECK(e.states[3].v_underflow == 0);
    CHECK(e.states[3].shorter() == count / 2);
    CHECK(e.states[3].m_underflow == count / 2);
    CHECK(e.states[4].v_underflow == 0); // nor have bitsandbytes' bins: 1.6e-5 of the largest v is the least
    CHECK(e.states[4].shorter() == count / 2);

    gradient.pop_back(); // too few for scales
    const AdamEffects few = effects(q, held(gradient, 200));
    CHECK(few.states[1].held == 0);
    CHECK(few.states[1].longer() == 0);
    AdamEffects sum = e;
    sum.merge(few);
    CHECK(sum.states[1].held == count);
    CHECK(sum.states[1].longer() == count / 2);
    CHECK_THROWS_AS(adam_state("e8m0"), std::invalid_argument);

    // Where v was rounded to 0, an element without a gradient moves by m / eps, which no bound holds.
    gradient.push_back(1);
    AdamHistory silent = held(gradient, 200);
    silent.gradients.push_back(std::vector<float>(count));
    silent.repeats.push_back(1);
    const AdamEffects still = effects(q, silent);
    CHECK(still.states[1].longer() == count / 2);
    CHECK(still.states[1].stretch.bins.back().first > 10);
    CHECK(still.states[0].stretch.bins == std::vector<std::pair<int, std::uint64_t>>{{0, count}});

    // A checkpoint has the state after its last step, which was made before it was rounded: as with FP32.
    AdamHistory checkpoint;
    checkpoint.first = 200;
    checkpoint.m = checkpoint.v = gradient;
    for (float& v : checkpoint.v) v *= v;
    const AdamEffects left = effects(q, checkpoint);
    CHECK(left.states[1].eps[0].dominated == left.states[0].eps[0].dominated);
    CHECK(left.states[1].stretch.count() == 0);
    CHECK(left.states[1].v_underflow == count / 2);

    // Steps that are no numbers with FP32 either say nothing.
    gradient[7] = std::nanf("");
    const AdamEffects broken = effects(q, held(gradient, 200));
    CHECK(broken.states[0].stretch.count() == count - 1);
    CHECK(broken.states[0].longer() == 0);
    CHECK_THROWS_AS(adam_state("dynamic8"), std::invalid_argument);
}

TEST_CASE("weight decay is lost where it is below half a last place of the weight") {
    // Below 1, BF16 has steps of 2^-8 and FP16 of 2^-11; from 1 to 2 twice that. A decay of 3e-3 takes 3e-3 of 1, which
    // is more than 2^-9; 3.75e-3 of 1.25 and -1.25, less than 2^-8; and 4.5e-3 of 1.5, which is more.
    struct Row {
        double decay;
        std::uint64_t fp32, bf16, fp16;
    };
    for (const Row& row : {Row{3e-3, 0, 2, 0}, Row{1e-2, 0, 0, 0}, Row{1e-4, 0, 4, 4}, Row{1e-8, 4, 4, 4}}) {
        CAPTURE(row.decay);
        AdamQuestion q = question();
        q.options.kind = OptimizerKind::adamw;
        q.options.learning_rate = 0.25;
        q.options.weight_decay = row.decay * 4;
        AdamHistory h = held({0.5F, 0, 0, 0.5F, 0.5F}, 10);
        h.weight = {1, 1.25F, -1.25F, 1.5F, 0};
        AdamEffects e = effects(q, h);
        CHECK(e.decaying == 4); // of zero there is nothing to take
        REQUIRE(e.undecayed == std::vector<std::uint64_t>{row.fp32, row.bf16, row.fp16});
        e.merge(effects(q, h));
        CHECK(e.decaying == 8);
        CHECK(e.undecayed[1] == 2 * row.bf16);
        q.options.order = OptimizerOrder::apex; // decay is part of the step
        CHECK(effects(q, h).decaying == 0);
        q.options.order = OptimizerOrder::torch;
        q.options.kind = OptimizerKind::adam; // and here of the gradient
        CHECK(effects(q, h).undecayed.empty());
    }
}

TEST_CASE("updates are lost where they are below half a last place of the weight") {
    // With a constant gradient the step equals the learning rate. In BF16 the ulp above 1 is 2^-7, below 1 it is 2^-8.
    struct Row {
        double rate;
        std::uint64_t fp32, bf16, fp16;
    };
    for (const Row& row : {Row{1e-3, 0, 1, 0}, Row{2e-3, 0, 0, 0}, Row{2e-4, 0, 1, 1}, Row{1e-9, 1, 1, 1}}) {
        CAPTURE(row.rate);
        AdamQuestion q = question();
        q.options.learning_rate = row.rate;
        AdamHistory h = held({0.5F, 0}, 10);
        h.weight = {1, 1};
        const AdamEffects e = effects(q, h);
        CHECK(e.updated == 1); // the one with a gradient
        CHECK(e.lost == std::vector<std::uint64_t>{row.fp32, row.bf16, row.fp16});
    }
}

TEST_CASE("a history may begin from a state, and gradients may repeat") {
    const AdamQuestion q = question({1e-3, 1e-8});
    AdamHistory whole = held({0.5F, 1e-3F, 0}, 3), parts = whole;
    whole.gradients.push_back({0.25F, 1e-5F, 1e-6F});
    whole.repeats.push_back(2);
    parts.gradients.clear();
    parts.repeats.clear();
    for (int i = 0; i < 5; ++i) {
        parts.gradients.push_back(whole.gradients[i < 3 ? 0 : 1]);
        parts.repeats.push_back(1);
    }
    const AdamEffects a = effects(q, whole), b = effects(q, parts);
    CHECK(a.root.bins == b.root.bins);
    for (std::size_t s = 0; s < 3; ++s) CHECK(a.states[s].eps[0].ratio.bins == b.states[s].eps[0].ratio.bins);

    // The same, starting from the state after four of the steps, which the formulas give.
    AdamHistory state;
    state.first = 5;
    state.gradients = {whole.gradients.back()};
    state.repeats = {1};
    state.m = state.v = {0, 0, 0};
    for (int t = 0; t < 4; ++t)
        for (std::size_t i = 0; i < 3; ++i) {
            const float g = whole.gradients[t < 3 ? 0 : 1][i];
            state.m[i] += 0.1F * (g - state.m[i]);
            state.v[i] = 0.999F * state.v[i] + 0.001F * g * g;
        }
    CHECK(effects(q, state).root.bins == a.root.bins);
}

TEST_CASE("counts by binade") {
    BinadeCounts c;
    for (const double x : {1.0, 1.9, 2.0, 0.0, HUGE_VAL}) c.add(x);
    CHECK(c.count() == 5);
    CHECK(c.bins == std::vector<std::pair<int, std::uint64_t>>{{0, 2}, {1, 1}});
    CHECK(c.median() == 0);
    c.add(HUGE_VAL);
    c.add(HUGE_VAL);
    c.add(HUGE_VAL);
    c.add(HUGE_VAL);
    CHECK(c.median() == INT_MAX);
    AdamEffects none = effects(question(), {}), sum;
    sum.merge(none);
    CHECK(sum.elements == 0);
    AdamQuestion wrong = question();
    wrong.options.beta2 = 1;
    CHECK_THROWS_AS(effects(wrong, held({1}, 1)), std::invalid_argument);
}
