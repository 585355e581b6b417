// Counts what a cast does where the magnitude histogram does not suffice: scales that are not powers of two, flushed
// subnormals of the source, and expectations under stochastic rounding; it knows all roundings.
//
// For a given cast and sign an element's class grows with its magnitude, so three boundaries decide it. They are found
// by bisection over the codes of the source, each step an exact product and one rounding; then counting is comparing
// integers.
#pragma once

#include <ampscope/sim/analysis/measure.h>

namespace amp {

/// The cast F(scale * x / recorded_scale): product and quotient are exact, the result is rounded once.
struct Cast {
    FormatSpec format;
    Policy policy{}; ///< overflow and NaN rules do not matter: overflow is judged with an unbounded exponent
    double scale = 1;
    double recorded_scale = 1;
};

enum class CastClass : std::uint8_t { underflow, subnormal, normal, overflow };

/// The class of one finite non-zero number under the cast. If the policy flushes inputs, subnormals of the source count
/// as zero.
CastClass classify(const Cast& cast, const Unpacked& x, std::uint32_t random = 0);

/// Counts for one cast. Under stochastic rounding they are expectations: the exact sum of all elements' probabilities,
/// each a multiple of 2^-random_bits, rounded to double once.
struct CastCounts {
    double underflow = 0, subnormal = 0, normal = 0, overflow = 0;
    bool expected = false; ///< the counts are expectations and need not be integers

    void merge(const CastCounts& other);
};

/// The counts of each cast, in one pass over the tensor. They do not depend on `threads` (0: all cores). Throws
/// FileError.
std::vector<CastCounts> count_casts(const TensorFile& file, std::size_t tensor, std::span<const Cast> casts,
                                    int threads, const Progress& progress = {});

} // namespace amp
