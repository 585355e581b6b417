// How far a cast moves the elements of a tensor.
#pragma once

#include <ampscope/sim/analysis/cast_count.h>
#include <ampscope/sim/analysis/exact.h>

namespace amp {

/// Errors of F(scale * x / recorded_scale) / scale compared with x / recorded_scale, over the finite elements with a
/// finite result. The cast rounds the exact number once, and an error is the exact difference rounded to double; if a
/// scale is not a power of two, both start from scale * x / recorded_scale to 64 bits. Sums are taken in blocks of
/// 65536 numbers: element after element, then block after block.
struct CastError {
    std::uint64_t compared = 0;  ///< finite elements with a finite result
    std::uint64_t excluded = 0;  ///< finite elements whose result is infinite or NaN
    SquareSum signal{}, noise{}; ///< sums of the squares of the values and of the errors
    double max_relative = 0;     ///< largest |error| / |x|; 1 if an element becomes zero
    double sum_relative = 0;     ///< sum of |error| / |x| over the non-zero elements
    std::uint64_t nonzero = 0;   ///< number of elements compared that are not zero

    /// Signal-to-quantization-noise ratio in dB; infinity without noise, NaN without signal.
    [[nodiscard]] double sqnr() const;
    [[nodiscard]] double mean_relative() const {
        return nonzero == 0 ? 0 : sum_relative / static_cast<double>(nonzero);
    }
    /// Counts an element that is compared; `relative` is its relative error, empty for zeros.
    void add(std::optional<double> relative);
    /// As if every element occurred `times` times as often.
    void repeat(std::uint64_t times);
    /// Adds the errors of a later block or tensor.
    void merge(const CastError& later);
};

/// The errors of each cast; they do not depend on `threads` (0: all cores). Stochastic rounding uses seed 0, stream 0,
/// step 0 and the element's index. Throws FileError.
std::vector<CastError> measure_errors(const TensorFile& file, std::size_t tensor, std::span<const Cast> casts,
                                      int threads, const Progress& progress = {});

} // namespace amp
