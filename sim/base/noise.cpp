#include <ampscope/formats/random.h>
#include <ampscope/sim/base/noise.h>

namespace amp {

double uniform(std::uint64_t seed, std::uint32_t stream, std::uint64_t index) {
    return (RandomKey{.seed = seed, .stream = stream}.word(index) + 0.5) * 0x1p-32;
}

double normal(std::uint64_t seed, std::uint32_t stream, std::uint64_t index) {
    double sum = -6;
    for (std::uint64_t i = 0; i < 12; ++i) sum += uniform(seed, stream, 12 * index + i);
    return sum;
}

} // namespace amp
