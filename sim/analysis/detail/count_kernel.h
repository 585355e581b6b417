// The inner loop over FP32 words, private to count.cpp: plain loops for any machine, and a version for AVX-512.
#pragma once

#include <ampscope/formats/instruction_set.h>
#include <ampscope/sim/analysis/count.h>

namespace amp::detail {

/// The counters that the kernels increment. An element's key is 32 * row + mantissa class + first_key. Its row is its
/// exponent field; zeros and subnormals have row subnormal_row + the exponent field of their magnitude bits converted
/// to float.
struct FloatTables {
    static constexpr std::size_t halves = 2, copies = 4; ///< neighbours use other copies and do not wait for stores
    static constexpr std::size_t row = 32;               ///< mantissa_classes, rounded up to a power of two
    static constexpr std::size_t subnormal_row = 256;
    static constexpr std::size_t rows = subnormal_row + 127 + 23;
    static constexpr std::size_t first_key = 7; ///< an offset that the AVX-512 kernel's keys have
    static constexpr std::size_t size = (rows + 1) * row;

    /// Four copies of a counter lie side by side, in the eight bytes that an address can be scaled by, the other four
    /// not a multiple of 4096 bytes from them, or a load would wait for the store to another copy. They are small, so
    /// that those of gradients, which have 40 binades, fit into the first-level cache. A row is 256 bytes of each half,
    /// with its common classes in the first 128.
    using Counters = std::array<std::uint16_t, copies>;
    alignas(256) std::array<std::array<Counters, size>, halves> keys{};
    std::uint64_t pending = 0; ///< elements since `keys` was last emptied
    std::array<std::uint64_t, size> counts{};
    std::uint32_t smallest = ~0u; ///< (magnitude bits - 1) of the smallest non-zero finite element
    std::uint32_t largest = 0;    ///< magnitude bits of the largest finite element
    MagnitudeHistogram histogram{};

    /// Empties `keys` into `counts`; to be called before one of its counters can overflow.
    void drain();
    void flush(); ///< moves all counts into the histogram
    void merge(FloatTables& other);

  private:
    void drain_row(std::size_t r);
};

/// Counts FP32 words (little-endian, at most sum_block of them, at any address) and returns their sums.
MagnitudeSums count_words(FloatTables& tables, std::span<const std::byte> words,
                          InstructionSet set = best_instruction_set());

/// The counters of numbers of up to 16 bits, by code.
class CodeTable {
  public:
    /// `counted`: the bits of a code that count; a sign, which no statistic tells, makes twice as many counters.
    /// `small_counters`, for 16 bits alone: where data have more codes than counters of 32 bits fit into a cache.
    CodeTable(int width, std::uint32_t counted, bool small_counters);

    /// Counts n packed numbers, at most sum_block.
    void count(std::span<const std::byte> block, std::size_t n, InstructionSet set = best_instruction_set());
    /// Calls visit(code, count) in ascending order of the codes that occurred.
    template <class Visit>
    void for_each(const Visit& visit) {
        flush();
        for (std::size_t code = 0; code < counts_.size(); ++code)
            if (counts_[code] != 0) visit(code, counts_[code]);
    }
    void add(std::size_t code, std::uint64_t times) { counts_[code & counted_] += times; }

  private:
    int width_;
    std::uint32_t counted_;
    std::size_t copies_; ///< of a counter: neighbours use others and do not wait for stores, where there is room
    std::size_t spread_; ///< counters of the code that a block has most often, if keys of 16 bits reach them; or 0
    std::vector<std::uint32_t> recent_;
    std::vector<std::uint8_t> small_; ///< in place of `recent_`; `counts_` has what overflowed
    std::vector<std::uint64_t> counts_;
    std::uint64_t pending_ = 0; ///< how many numbers either may hold

    template <class Code, class Counter>
    void count_whole(std::vector<Counter>& counters, const std::byte* data, std::size_t n, InstructionSet set);
    void count_packed(std::span<const std::byte> block, std::size_t n);
    void flush();
};

} // namespace amp::detail
