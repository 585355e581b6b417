// The torch row of the loss scalers against torch.amp.GradScaler("cpu") itself, on 10,000 random sequences.
#include <ampscope/sim/optim/loss_scaler.h>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <string>

using namespace amp;

namespace {

/// splitmix64, used as in tests/data/torch/grad_scaler.py.
struct Words {
    std::uint64_t state;
    std::uint64_t next() {
        std::uint64_t z = state += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(next() >> 32) % n; }
};

std::uint32_t bits(float x) { return std::isnan(x) ? 0x7fc00000 : std::bit_cast<std::uint32_t>(x); }

std::uint32_t trace_hash(std::uint64_t number) {
    constexpr double init[] = {65536, 1, 1000, 0x1p-130, 0x1p120, 3.0e38, 0.1}, growth[] = {2, 1.5, 4, 1.1, 1.0000001},
                     backoff[] = {0.5, 0.25, 0.7, 0.9999999};
    constexpr std::uint32_t nonfinite[] = {0x7f800000, 0xff800000, 0x7fc00000};
    Words words{number};
    LossScalerOptions options = loss_scaler("torch").options;
    options.init_scale = init[words.below(7)];
    options.growth_factor = growth[words.below(5)];
    options.backoff_factor = backoff[words.below(4)];
    options.growth_interval = 1 + words.below(5);
    const std::uint32_t overflows = words.below(4);
    std::uint64_t hash = 0xcbf29ce484222325;
    const auto add = [&](std::uint32_t value) {
        for (int i = 0; i < 4; ++i) hash = (hash ^ (value >> 8 * i & 0xff)) * 0x100000001b3;
    };
    LossScalerState state = initial_state(options);
    for (int step = 0; step < 40; ++step) {
        std::uint32_t code = 0;
        if (words.below(4) < overflows) code = nonfinite[words.below(3)];
        else {
            code = static_cast<std::uint32_t>(words.next() >> 32);
            if ((code & 0x7f800000) == 0x7f800000) code ^= 0x40000000;
        }
        const float gradient = std::bit_cast<float>(code);
        const float unscaled = unscale(options, state.scale, gradient);
        // torch looks for infinities in the scaled gradient
        const LossScalerUpdate update = update_scale(options, state, !std::isfinite(gradient));
        state = update.state;
        add(bits(unscaled));
        add(update.verdict == ScalerVerdict::step ? 1 : 0);
        add(bits(static_cast<float>(state.scale)));
        add(static_cast<std::uint32_t>(state.growth_tracker));
    }
    return static_cast<std::uint32_t>(hash);
}

} // namespace

TEST_CASE("10,000 sequences of 40 steps: unscaled gradients, skips, scales and trackers") {
    std::ifstream file(AMPSCOPE_TEST_DATA "/torch/grad_scaler.txt");
    std::uint64_t sequences = 0, different = 0;
    for (std::string line; std::getline(file, line); ++sequences)
        different += std::stoul(line, nullptr, 16) != trace_hash(sequences);
    CHECK(sequences == 10000);
    CHECK(different == 0);
}
