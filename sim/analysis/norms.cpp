#include <ampscope/sim/analysis/norms.h>

#include <ampscope/formats/environment.h>
#include <ampscope/formats/instruction_set.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace amp {

namespace {

struct NormsKernel {
    template <std::size_t lanes>
    AMPSCOPE_KERNEL void run(std::array<double, lanes>* squares_at, std::array<std::int32_t, lanes>* largest_at,
                             std::span<const float> x) {
        auto squares = *squares_at; // copies, so that the compiler keeps them in registers
        auto largest = *largest_at;
        const auto magnitude = [](float value) {
            return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
        };
        const std::size_t whole = x.size() / lanes * lanes;
        for (std::size_t i = 0; i < whole; i += lanes) { // two loops: g++ vectorises each, but not one loop with both
            for (std::size_t lane = 0; lane < lanes; ++lane) squares[lane] += double{x[i + lane]} * x[i + lane];
            for (std::size_t lane = 0; lane < lanes; ++lane)
                largest[lane] = std::max(largest[lane], magnitude(x[i + lane]));
        }
        for (std::size_t i = whole; i < x.size(); ++i) {
            squares[i - whole] += double{x[i]} * x[i];
            largest[i - whole] = std::max(largest[i - whole], magnitude(x[i]));
        }
        *squares_at = squares;
        *largest_at = largest;
    }
};

} // namespace

void Norms::add(std::span<const float> x) {
    const FloatEnvironment environment;
    dispatch<NormsKernel>(best_instruction_set(), &squares_, &largest_, x);
}

double Norms::two() const {
    const FloatEnvironment environment;
    return std::sqrt(std::accumulate(squares_.begin(), squares_.end(), 0.0));
}

float Norms::largest() const { return std::bit_cast<float>(*std::ranges::max_element(largest_)); }

} // namespace amp
