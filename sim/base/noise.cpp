#include <ampscope/formats/random.h>
#include <ampscope/sim/base/noise.h>

namespace amp {

namespace {

double uniform(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }

} // namespace

double uniform(std::uint64_t seed, std::uint32_t stream, std::uint64_t index) {
    return uniform(RandomKey{.seed = seed, .stream = stream}.word(index));
}

double normal(std::uint64_t seed, std::uint32_t stream, std::uint64_t index) {
    const RandomKey key{.seed = seed, .stream = stream};
    double sum = -6;
    for (std::uint64_t group = 0; group < 3; ++group) // of four words: numbers 12 * index and on
        for (const std::uint32_t word : key.words(3 * index + group)) sum += uniform(word);
    return sum;
}

} // namespace amp
