// random.h and stochastic rounding: published vectors, the layout of keyed words, exact probabilities by trying every
// random word, frequencies, and independence of steps, streams and seeds.
#include "cases.h"

#include <ampscope/formats/random.h>

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;

namespace {

using Words = std::array<std::uint32_t, 4>;

/// Whether the number of elements rounded up, out of n with probability p, is within five standard deviations.
bool plausible(std::uint64_t ups, std::uint64_t n, double p) {
    return std::fabs(static_cast<double>(ups) - p * static_cast<double>(n)) <=
           5 * std::sqrt(static_cast<double>(n) * p * (1 - p));
}

} // namespace

TEST_CASE("Philox4x32-10 known answers") {
    // Random123's published kat_vectors, which the tests of TensorFlow and others use, too.
    CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    constexpr std::uint32_t ones = 0xffffffff;
    CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
    static_assert(philox4x32({0, 0, 0, 0}, {0, 0})[0] == 0x6627e8d5);
}

TEST_CASE("where the word of an element comes from") {
    const RandomKey key{.seed = 0x0123456789abcdef, .stream = 7, .step = 42};
    const auto group = [](std::uint64_t g) {
        return philox4x32({static_cast<std::uint32_t>(g), static_cast<std::uint32_t>(g >> 32), 42, 7},
                          {0x89abcdef, 0x01234567});
    };
    for (const std::uint64_t index : {0ull, 1ull, 2ull, 3ull, 4ull, 5ull, 7ull, 8ull, 15ull, 16ull, 1000003ull,
                                      (1ull << 34) + 5, (1ull << 63) + 6, ~0ull}) {
        CAPTURE(index);
        CHECK(key.word(index) == group(index / 4)[index % 4]);
        const std::uint32_t pair = group(index / 8)[index % 8 / 2];
        CHECK(key.word(index, 16) == (index % 2 == 0 ? pair & 0xffff : pair >> 16));
    }
    CHECK(RandomKey{}.words(0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
}

TEST_CASE("stochastic rounding goes up for exactly floor(f * 2^16) of the 2^16 words") {
    for (const Facts& facts : oracle::facts) {
        if (!facts.has_zero) continue;
        const FormatSpec f = format(facts.name);
        const std::uint64_t last = oracle::max_index(facts), normal = std::uint64_t{1} << facts.fraction_bits;
        Tally tally;
        const auto check_count = [&](std::uint64_t k, double fraction, double sign) {
            if (k > last || (sign < 0 && (facts.sign_bits == 0 || (facts.complement && k == last)))) return;
            const oracle::Dyadic low = oracle::magnitude(facts, k);
            const double below = std::ldexp(double(low.n), low.exponent);
            const double x = below + std::ldexp(fraction, low.exponent);
            const double discarded = std::ldexp(x - below, -low.exponent); // exact: neighbours, and a power of two
            const std::uint32_t truncated = encode(f, sign * x, {.rounding = Rounding::toward_zero});
            const auto goes_up = [&](int random_bits, std::uint64_t word) {
                Flags flags; // above the largest value of FP6 and FP4, rounding up shows in the overflow flag only
                const Policy policy{.rounding = Rounding::stochastic,
                                    .random_bits = static_cast<std::uint8_t>(random_bits)};
                const std::uint32_t code = encode(f, sign * x, policy, static_cast<std::uint32_t>(word), flags);
                return code != truncated || flags.test(Flags::overflow);
            };
            const auto where = [&] { return fmt::format("{} {:a}", facts.name, sign * x); };
            std::uint64_t ups = 0;
            for (std::uint64_t r = 0; r < 65536; ++r) ups += goes_up(16, r | mix(r) << 16); // higher bits are ignored
            tally.expect(ups, static_cast<std::uint64_t>(std::floor(discarded * 0x1p16)), where);
            const auto threshold = static_cast<std::uint64_t>(std::floor(discarded * 0x1p32));
            if (threshold > 0) tally.expect(goes_up(32, threshold - 1), true, where);
            tally.expect(goes_up(32, threshold), false, where);
        };
        // Below the smallest subnormal, among the subnormals, at the smallest normal, in the middle, and at overflow.
        for (const std::uint64_t k :
             {std::uint64_t{0}, std::uint64_t{1}, normal - 1, normal, (normal + last) / 2, last - 1, last})
            for (const double fraction : {0x1p-20, 0x1p-17, 0x1.8p-16, 0x1p-3, 0.3, 0.5, 0.7, 1 - 0x1p-16, 1 - 0x1p-20})
                for (const double sign : {1.0, -1.0}) check_count(k, fraction, sign);
        report(fmt::format("{} stochastic rounding by exact probability", facts.name), tally);
    }
}

TEST_CASE("of few random bits, as many words round up as the variant makes of f * 2^b") {
    Tally tally;
    for (const char* name : {"bf16", "e4m3", "e2m1", "binary8p3se"})
        for (const int bits : {1, 2, 3, 4, 8, 11, 16})
            for (int variant = 0; variant < 3; ++variant)
                for (std::uint64_t n = 0; n < 512; ++n) {
                    // x lies f above 1, in units of the last place: every multiple of 2^-9, and next to it.
                    const FormatSpec f = format(name);
                    const double fraction = std::ldexp(double(n), -9) + (n % 3 == 0 ? 0x1p-30 : 0);
                    const double x = 1 + std::ldexp(fraction, -f.fraction_bits);
                    const double scaled = std::ldexp(fraction, bits), down = std::floor(scaled), rest = scaled - down;
                    const bool tie = rest == 0.5, up = variant == 1 ? rest >= 0.5 : rest > 0.5;
                    const bool to_even = variant == 2 && tie && std::fmod(down, 2) != 0;
                    const double want = down + (variant > 0 && (up || to_even) ? 1 : 0);
                    const Policy policy{.rounding = Rounding::stochastic,
                                        .random_bits = static_cast<std::uint8_t>(bits),
                                        .variant = static_cast<StochasticVariant>(variant)};
                    const std::uint32_t one = encode(f, 1.0);
                    std::uint64_t ups = 0;
                    const std::uint64_t step = bits > 11 ? 16 : 1; // of 16 bits, every 16th word
                    for (std::uint64_t r = 0; r < std::uint64_t{1} << bits; r += step)
                        ups += encode(f, x, policy, static_cast<std::uint32_t>(r)) != one;
                    tally.expect(ups, static_cast<std::uint64_t>(std::ceil(want / double(step))), [&] {
                        return fmt::format("{} f = {} with {} bits, variant {}", name, fraction, bits, variant);
                    });
                }
    report("stochastic rounding of few bits by exact counts", tally);
}

TEST_CASE("exact values never move") {
    for (const char* name : {"fp16", "bf16", "e4m3", "e5m2", "e2m1"}) {
        const FormatSpec f = format(name);
        for (std::uint32_t code = 0; code <= f.max_code(); ++code)
            for (const std::uint32_t r : {0u, 1u, 0x7fffffffu, 0xffffffffu}) {
                const float x = decode(f, code);
                if (encode(f, x, {.rounding = Rounding::stochastic}, r) != code) FAIL_CHECK(name << " " << code);
            }
    }
}

TEST_CASE("bytes of the words are uniform") {
    // Pearson's chi-square with 255 degrees of freedom: exceeds 347 once in 10^4 cases. The seed is fixed, so the
    // result is always the same.
    const RandomKey key{.seed = 2026, .stream = 3, .step = 5};
    for (const int random_bits : {16, 32}) {
        for (int shift = 0; shift < random_bits; shift += 8) {
            std::array<int, 256> counts{};
            constexpr int n = 1 << 18;
            for (std::uint64_t i = 0; i < n; ++i) ++counts[key.word(i, random_bits) >> shift & 0xff];
            double chi = 0;
            for (const int c : counts) chi += (c - n / 256.0) * (c - n / 256.0) / (n / 256.0);
            CAPTURE(random_bits);
            CAPTURE(shift);
            CHECK(chi < 347);
            CHECK(chi > 178); // too even would be just as wrong
        }
    }
}

TEST_CASE("frequencies of stochastic rounding") {
    const FormatSpec f = format("bf16");
    const RandomKey key{.seed = 1};
    constexpr std::uint64_t n = 1 << 16;
    for (const int random_bits : {12, 16, 24, 32})
        for (const double p : {0.01, 0.08, 0.3, 0.5, 0.96}) {
            const auto x = static_cast<float>(1 + p / 128);
            std::uint64_t ups = 0;
            for (std::uint64_t i = 0; i < n; ++i)
                ups += encode(f, x,
                              {.rounding = Rounding::stochastic, .random_bits = static_cast<std::uint8_t>(random_bits)},
                              key.word(i, random_bits)) == 0x3f81;
            CAPTURE(p);
            CHECK(plausible(ups, n, p));
        }
}

TEST_CASE("steps, streams, seeds and neighbours are independent") {
    constexpr std::uint64_t n = 1 << 16;
    const RandomKey key{.seed = 9, .stream = 1, .step = 100};
    const auto together = [&](const auto& other) {
        std::uint64_t both = 0;
        for (std::uint64_t i = 0; i < n; ++i) both += key.word(i) < 0x40000000 && other(i) < 0x40000000;
        return both;
    };
    const auto of = [](RandomKey k) { return [k](std::uint64_t i) { return k.word(i); }; };
    CHECK(plausible(together(of({9, 1, 101})), n, 1.0 / 16));
    CHECK(plausible(together(of({9, 2, 100})), n, 1.0 / 16));
    CHECK(plausible(together(of({10, 1, 100})), n, 1.0 / 16));
    CHECK(plausible(together(of({9, 100, 1})), n, 1.0 / 16));
    CHECK(plausible(together([&](std::uint64_t i) { return key.word(i + 1); }), n, 1.0 / 16));
    CHECK(plausible(together(of(key)), n, 0.25)); // the same key gives the same words
}

TEST_CASE("40 updates of 0.1 ulp") {
    const FormatSpec f = format("bf16");
    constexpr int weights = 4096, updates = 40;
    constexpr float ulp = 0x1p-7f;
    struct Moved {
        double mean;
        int unmoved;
    };
    const auto train = [&](bool fresh_steps) {
        Moved moved{0, 0};
        for (std::uint64_t i = 0; i < weights; ++i) {
            float w = 1;
            for (std::uint32_t step = 0; step < updates; ++step)
                w = quantize(f, w + 0.1f * ulp, {.rounding = Rounding::stochastic},
                             RandomKey{.seed = 4, .step = fresh_steps ? step : 0}.word(i));
            moved.mean += (w - 1) / ulp / weights;
            moved.unmoved += w == 1;
        }
        return moved;
    };
    const Moved fresh = train(true), reused = train(false);
    // The mean moves by 4 ulp, plus or minus 5 * sqrt(40 * 0.1 * 0.9 / 4096); 0.9^40 of the weights have not moved.
    CHECK(std::fabs(fresh.mean - 4) < 0.15);
    CHECK(plausible(static_cast<std::uint64_t>(fresh.unmoved), weights, std::pow(0.9, 40)));
    // The fault that this key prevents: with the same words in every step nine weights in ten never move.
    CHECK(plausible(static_cast<std::uint64_t>(reused.unmoved), weights, 0.9));
}
