// Counts the elements of one tensor into an exact magnitude histogram; the common types at memory speed.
#pragma once

#include <ampscope/sim/analysis/exact_sum.h>
#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/io/dtype.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace amp {

/// One number of a tensor, exactly, given its bits. A complex element has two numbers.
Unpacked unpack_number(DType dtype, std::uint64_t bits);

/// The nearest double; zeros and infinities keep their sign.
double value_of(const Unpacked& x);

/// The bits of number `index` among numbers of `width` bits, packed lowest bits first.
std::uint64_t packed_number(std::span<const std::byte> data, std::size_t index, int width);

/// Calls visit(index, bits) for the numbers [first, last) of packed elements.
template <class Visit>
void for_each_number(DType dtype, std::span<const std::byte> data, std::size_t first, std::size_t last,
                     const Visit& visit) {
    for (std::size_t i = first; i < last; ++i) visit(i, packed_number(data, i, info(dtype).number_bits()));
}

/// The same for all numbers of whole packed elements.
template <class Visit>
void for_each_number(DType dtype, std::span<const std::byte> data, const Visit& visit) {
    for_each_number(dtype, data, 0, data.size() * 8 / static_cast<std::size_t>(info(dtype).number_bits()), visit);
}

/// The size in bytes of so many numbers, which must be a whole number of bytes.
inline std::uint64_t bytes_of(DType dtype, std::uint64_t numbers) {
    return numbers * static_cast<std::uint64_t>(info(dtype).number_bits()) / 8;
}

/// Sums over the finite elements. Floating-point addition is not associative, so the order is fixed: within a block of
/// sum_block numbers, number i belongs to partial sum i % 16, and the 16 are added pairwise (i and i + 8, then i and i
/// + 4 ...). The sums of a tensor's blocks are added exactly, and rounded once; elements of at most 16 bits are added
/// so themselves. Sums of tensors are added in order.
struct MagnitudeSums {
    double absolute = 0, squares = 0;

    MagnitudeSums& operator+=(const MagnitudeSums& other) {
        absolute += other.absolute;
        squares += other.squares;
        return *this;
    }
};
inline constexpr std::size_t sum_block = 65536;

/// Statistics of a tensor's magnitudes.
struct MagnitudeStatistics {
    MagnitudeHistogram histogram{};
    double min_nonzero = 0; ///< smallest finite non-zero magnitude (64-bit integers: the nearest double); 0 if none
    double max = 0;         ///< largest finite magnitude
    MagnitudeSums sums{};

    /// Takes a finite magnitude into min_nonzero and max; a zero changes nothing.
    void include(double magnitude);
    /// Adds the statistics of a later tensor.
    void merge(const MagnitudeStatistics& later);
};

/// The statistics of a tensor, or of a part of it, before its sums are rounded.
struct ExactMagnitudes {
    MagnitudeStatistics rounded{}; ///< all but its sums, which are 0
    ExactSum absolute{}, squares{};

    void add(const MagnitudeSums& block) {
        absolute.add(block.absolute);
        squares.add(block.squares);
    }
    /// Adds those of another part.
    void merge(const ExactMagnitudes& other);
    /// As if every element occurred `times` times as often.
    void repeat(std::uint64_t times);
    /// The same of all elements times 2^exponent.
    [[nodiscard]] ExactMagnitudes scaled(int exponent) const;
    /// With its sums.
    [[nodiscard]] MagnitudeStatistics statistics() const;
};

/// Counts numbers of one dtype. Not thread-safe: each thread has its own counter, and they are merged at the end.
class MagnitudeCounter {
  public:
    explicit MagnitudeCounter(DType dtype);
    ~MagnitudeCounter();
    MagnitudeCounter(MagnitudeCounter&&) noexcept;

    /// Counts one block: whole packed elements, little-endian, at most sum_block numbers.
    void add(std::span<const std::byte> block);
    /// What was added, with each element counted `repeats` times.
    [[nodiscard]] ExactMagnitudes magnitudes(std::uint64_t repeats = 1) const;
    [[nodiscard]] MagnitudeStatistics statistics() const { return magnitudes().statistics(); }
    /// Adds another counter of the same dtype. This function and magnitudes() may reorder a const counter's contents.
    void merge(const MagnitudeCounter& other);

  private:
    struct Tables;
    DType dtype_;
    std::unique_ptr<Tables> tables_;
};

} // namespace amp
