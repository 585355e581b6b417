#include <ampscope/sim/analysis/detail/count_kernel.h>

#include <ampscope/formats/environment.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__) // g++ 12 warns of deliberately undefined values in its own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif

namespace amp::detail {

namespace {

constexpr std::size_t lanes = 16; // number of partial sums, which their definition fixes
constexpr std::uint32_t magnitude_mask = 0x7fffffff, mantissa_mask = 0x7fffff, infinity = 0x7f800000,
                        smallest_normal = 0x800000;
constexpr std::uint32_t e4m3_tie = 0x680000; // 0.8125

/// Partial sums and extremes of a block, by lane.
struct Partial {
    alignas(64) double absolute[lanes]{};
    alignas(64) double squares[lanes]{};
    alignas(64) std::uint32_t smallest[lanes];
    alignas(64) std::uint32_t largest[lanes]{};

    Partial() { std::ranges::fill(smallest, ~0u); }
};

/// n is a multiple of 8. Four keys are loaded at a time, which leaves the load ports to the counters.
void count_keys(FloatTables& tables, const std::uint16_t* keys, std::size_t n) {
    for (std::size_t i = 0; i < n; i += 8)
        for (std::size_t half = 0; half < FloatTables::halves; ++half) {
            std::uint64_t four = 0;
            std::memcpy(&four, keys + i + 4 * half, sizeof four);
            for (std::size_t j = 0; j < FloatTables::copies; ++j) ++tables.keys[half][four >> 16 * j & 0xffff][j];
        }
}

/// Whole lanes of words, as loops that compilers vectorise.
struct PlainKernel {
    static constexpr std::size_t strip = 256;  // words at a time, so that their keys stay in the first-level cache
    static constexpr std::size_t ahead = 4096; // bytes to prefetch

    AMPSCOPE_KERNEL void make_keys(const std::uint32_t* __restrict words, std::uint16_t* __restrict keys,
                                   std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
            const std::uint32_t magnitude = words[i] & magnitude_mask;
            const bool subnormal = magnitude < smallest_normal;
            const std::uint32_t integer =
                std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)));
            const std::uint32_t x = subnormal ? integer : magnitude; // subnormal bits convert to float exactly
            const std::uint32_t mantissa = x & mantissa_mask;
            // 22 - floor(log2(complement)) leading ones of 23 bits; an exact int-to-float conversion has it as
            // exponent.
            const auto complement = static_cast<float>(static_cast<std::int32_t>(mantissa ^ mantissa_mask));
            const std::uint32_t ones = std::min(149 - (std::bit_cast<std::uint32_t>(complement) >> 23), 23u);
            const std::uint32_t mantissa_class =
                ones + 1 + (mantissa >= e4m3_tie) + (mantissa > e4m3_tie) - (mantissa == 0);
            const std::uint32_t row = (x >> 23) + (subnormal ? std::uint32_t{FloatTables::subnormal_row} : 0);
            keys[i] = static_cast<std::uint16_t>(row * FloatTables::row + mantissa_class + FloatTables::first_key);
        }
    }

    AMPSCOPE_KERNEL void accumulate(const std::uint32_t* __restrict words, std::size_t n, Partial& partial) {
        Partial sums = partial; // a local copy stays in registers
        for (std::size_t i = 0; i < n; i += lanes)
            for (std::size_t j = 0; j < lanes; ++j) {
                const std::uint32_t magnitude = words[i + j] & magnitude_mask;
                const std::uint32_t finite = magnitude < infinity ? magnitude : 0;
                sums.smallest[j] = std::min(sums.smallest[j], finite - 1); // zero wraps to the largest value
                sums.largest[j] = std::max(sums.largest[j], finite);
                const double x = std::bit_cast<float>(finite);
                sums.absolute[j] += x;
                sums.squares[j] += x * x; // the product is exact: 48 bits
            }
        partial = sums;
    }

    AMPSCOPE_KERNEL void run(FloatTables* tables, const std::byte* data, std::size_t n, Partial* partial) {
        alignas(64) std::uint32_t words[strip];
        alignas(64) std::uint16_t keys[strip];
        for (std::size_t i = 0; i < n; i += strip) {
            const std::size_t m = std::min(strip, n - i);
            for (std::size_t line = 0; line < sizeof words; line += 64) // no effect beyond the end
                __builtin_prefetch(data + i * sizeof(std::uint32_t) + ahead + line);
            std::memcpy(words, data + i * sizeof(std::uint32_t),
                        m * sizeof(std::uint32_t)); // they may lie at any address
            make_keys(words, keys, m);
            count_keys(*tables, keys, m);
            accumulate(words, m, *partial);
        }
    }
};

#if defined(__x86_64__)

/// Counts so many keys as there are lanes: a load and an addition each, half as many instructions as with keys of 16
/// bits. What the keys are too large by goes into the constant part of the addresses.
[[gnu::always_inline]] inline void count_at(FloatTables& tables, const std::uint32_t* keys, std::size_t too_large) {
#pragma GCC unroll 16
    for (std::size_t j = 0; j < lanes; ++j) {
        FloatTables::Counters* const half = tables.keys[j / 4 % 2].data();
        const auto address = std::bit_cast<std::uintptr_t>(half) + (keys[j] - too_large) * sizeof *half;
        ++(*std::bit_cast<FloatTables::Counters*>(address))[j % 4];
    }
}

/// The same with intrinsics. Counting lags behind the making of keys: the vector work of some words overlaps with the
/// stores for earlier ones, and the addresses of the counters are known early. Otherwise the processor mispredicts
/// whether a counter to be loaded was stored just before, and repeats the load (1.5 times the time for data in few
/// binades).
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]] void
count_avx512(FloatTables& tables, const std::byte* data, std::size_t n, Partial& partial) {
    const __m512i magnitude = _mm512_set1_epi32(magnitude_mask), mantissa = _mm512_set1_epi32(mantissa_mask);
    const __m512i normal = _mm512_set1_epi32(smallest_normal), inf = _mm512_set1_epi32(infinity),
                  one = _mm512_set1_epi32(1);
    const __m512i below = _mm512_set1_epi32(e4m3_tie - 1), above = _mm512_set1_epi32(e4m3_tie + 1);
    const __m512i row_mask = _mm512_set1_epi32(0xff * FloatTables::row);
    const __m512i subnormal_keys = _mm512_set1_epi32(FloatTables::subnormal_row * FloatTables::row);
    __m512d absolute_low = _mm512_load_pd(partial.absolute), absolute_high = _mm512_load_pd(partial.absolute + 8);
    __m512d squares_low = _mm512_load_pd(partial.squares), squares_high = _mm512_load_pd(partial.squares + 8);
    __m512i smallest = _mm512_load_si512(partial.smallest), largest = _mm512_load_si512(partial.largest);
    constexpr std::size_t ahead = 4096; // bytes to prefetch, which the processor does not do itself here
    // Counters follow `lag` words behind. Their keys are kept in the second halves of four times 256 bytes. The
    // counters of common classes lie in the first halves of theirs, so their low address bits differ: a load whose low
    // 12 address bits equal those of an earlier store waits for it (up to three times as long).
    constexpr std::size_t lag = 64;
    alignas(256) std::uint32_t ring[4 * lag];
    const auto slot_of = [&ring](std::size_t i) { return ring + (i & 96) * 2 + 32 + (i & 31); };
    for (std::size_t i = 0; i < n; i += lanes) {
        const std::byte* const here = data + i * sizeof(std::uint32_t);
        __builtin_prefetch(here + ahead, 0, 2); // into the second-level cache; no effect beyond the end
        const __m512i word = _mm512_loadu_si512(here);
        const __m512i a = _mm512_and_si512(word, magnitude);
        const __mmask16 subnormal = _mm512_cmplt_epu32_mask(a, normal);
        const __m512i x = _mm512_castps_si512(_mm512_mask_cvtepi32_ps(_mm512_castsi512_ps(a), subnormal, a));

        // The key is 32 * row, plus 9 + the number of leading ones, plus the tie and -1, 0 or 1 for below, at or above
        // it, less 1 for mantissa 0. That is 32 * row + class + 7 + the tie, which count_at() subtracts.
        const __m512i m = _mm512_and_si512(x, mantissa);
        __m512i key = _mm512_and_si512(_mm512_srli_epi32(x, 18), row_mask);
        key = _mm512_add_epi32(key, _mm512_lzcnt_epi32(_mm512_andnot_si512(x, mantissa)));
        key = _mm512_add_epi32(key, _mm512_min_epu32(_mm512_max_epu32(m, below), above));
        key = _mm512_mask_sub_epi32(key, _mm512_testn_epi32_mask(x, mantissa), key, one);
        key = _mm512_mask_add_epi32(key, subnormal, key, subnormal_keys);
        _mm512_store_si512(slot_of(i), key);
        if (i >= lag) count_at(tables, slot_of(i - lag), e4m3_tie);

        const __m512i finite = _mm512_maskz_mov_epi32(_mm512_cmplt_epu32_mask(a, inf), a);
        smallest = _mm512_min_epu32(smallest, _mm512_sub_epi32(finite, one));
        largest = _mm512_max_epu32(largest, finite);
        const __m512d low = _mm512_cvtps_pd(_mm256_castsi256_ps(_mm512_castsi512_si256(finite)));
        const __m512d high = _mm512_cvtps_pd(_mm256_castsi256_ps(_mm512_extracti64x4_epi64(finite, 1)));
        absolute_low = _mm512_add_pd(absolute_low, low);
        absolute_high = _mm512_add_pd(absolute_high, high);
        squares_low = _mm512_fmadd_pd(low, low, squares_low); // the product is exact, so fusing changes nothing
        squares_high = _mm512_fmadd_pd(high, high, squares_high);
    }
    for (std::size_t i = n - std::min(n, lag); i < n; i += lanes) count_at(tables, slot_of(i), e4m3_tie);
    _mm512_store_pd(partial.absolute, absolute_low);
    _mm512_store_pd(partial.absolute + 8, absolute_high);
    _mm512_store_pd(partial.squares, squares_low);
    _mm512_store_pd(partial.squares + 8, squares_high);
    _mm512_store_si512(partial.smallest, smallest);
    _mm512_store_si512(partial.largest, largest);
}

#endif

void count_lanes(FloatTables& tables, const std::byte* data, std::size_t n, Partial& partial, InstructionSet set) {
#if defined(__x86_64__)
    if (set == InstructionSet::avx512 && __builtin_cpu_supports("avx512cd"))
        return count_avx512(tables, data, n, partial);
#endif
    dispatch<PlainKernel>(set, &tables, data, n, &partial);
}

/// Counts codes. The most frequent one has many counters, behind those of all codes, if keys of 16 bits reach them:
/// additions to one counter wait for each other, and of zeros a tensor may have 70 %. The codes that gradients have
/// should fit into the first-level cache: BF16's of 40 binades take 20 KiB. FP16's, of which there are eight times as
/// many, have 8 bits, and what overflows them is added to `counts`, which takes an instruction more.
template <class Code, class Counter>
struct CodeKernel {
    static constexpr std::uint32_t copies = sizeof(Code) == 1 ? 4 : 1;
    static constexpr std::size_t strip = 256 / sizeof(Code); // numbers at a time, whose keys are to stay in the cache
    static constexpr std::size_t ahead = 2048; // bytes to prefetch: in wide data counters push what is read next out

    /// What the code of a number becomes: `frequent` one of `spread` keys from `beyond` on.
    struct Keys {
        std::uint16_t counted, frequent, beyond;
        std::size_t spread;
    };

    AMPSCOPE_KERNEL void run(Counter* counters, std::uint64_t* counts, const std::byte* data, std::size_t n,
                             const Keys* rule) {
        const Keys to = *rule;
        std::size_t i = 0;
        for (; i + strip <= n; i += strip) count(counters, counts, data + i * sizeof(Code), strip, to);
        count(counters, counts, data + i * sizeof(Code), n - i, to);
    }

    AMPSCOPE_KERNEL void increment(Counter* counters, std::uint64_t* counts, std::size_t key) {
        if constexpr (sizeof(Counter) > 1) ++counters[key];
        else if (++counters[key] == 0) [[unlikely]] counts[key] += 256;
    }

    AMPSCOPE_KERNEL void count(Counter* counters, std::uint64_t* counts, const std::byte* data, std::size_t n,
                               const Keys& to) {
        alignas(64) Code codes[strip];
        alignas(64) std::uint16_t keys[strip];
        for (std::size_t line = 0; line < sizeof codes; line += 64) // no effect beyond the end
            __builtin_prefetch(data + ahead + line);
        std::memcpy(codes, data, n * sizeof(Code));
        make_keys(codes, keys, n, to);
        std::size_t j = 0;
        for (; j + 8 <= n; j += 8)
#pragma GCC unroll 8
            for (std::size_t k = 0; k < 8; ++k) increment(counters, counts, keys[j + k]);
        for (; j < n; ++j) increment(counters, counts, keys[j]);
    }

    AMPSCOPE_KERNEL void make_keys(const Code* __restrict codes, std::uint16_t* __restrict keys, std::size_t n,
                                   const Keys& to) {
        for (std::size_t j = 0; j < n; ++j) {
            const auto code = static_cast<std::uint16_t>(codes[j] & to.counted);
            const auto own = static_cast<std::uint16_t>(code * copies + j % copies);
            const auto other = static_cast<std::uint16_t>(to.beyond + (j & (to.spread - 1)));
            keys[j] = code == to.frequent ? other : own;
        }
    }
};

/// The code that occurs most often in a sample.
template <class Code>
std::uint32_t frequent_code(const std::byte* data, std::size_t n, std::uint32_t counted) {
    constexpr std::size_t samples = 15;
    std::array<std::uint32_t, samples> sample{};
    for (std::size_t i = 0; i < samples; ++i) {
        Code code = 0;
        std::memcpy(&code, data + i * n / samples * sizeof(Code), sizeof code);
        sample[i] = code & counted;
    }
    return *std::ranges::max_element(sample, {}, [&](std::uint32_t code) { return std::ranges::count(sample, code); });
}

double pairwise(double (&x)[lanes]) {
    for (std::size_t half = lanes / 2; half > 0; half /= 2)
        for (std::size_t j = 0; j < half; ++j) x[j] += x[j + half];
    return x[0];
}

} // namespace

void FloatTables::drain_row(std::size_t r) {
    for (std::size_t key = r * row + first_key; key < r * row + first_key + std::size_t{mantissa_classes}; ++key)
        for (auto& half : keys)
            for (std::uint16_t& copy : half[key]) counts[key] += std::exchange(copy, std::uint16_t{0});
}

void FloatTables::drain() {
    // Only the rows of what occurred, which are few: of zeros, of infinities and NaN, and those between the extremes.
    drain_row(subnormal_row);
    drain_row(255);
    const std::size_t first = (std::size_t{smallest} + 1) >> 23, last = largest >> 23;
    for (std::size_t r = std::max<std::size_t>(first, 1); r <= last; ++r) drain_row(r);
    for (std::size_t r = subnormal_row + 1; first == 0 && r < rows; ++r) drain_row(r);
    pending = 0;
}

void FloatTables::flush() {
    drain();
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < static_cast<std::size_t>(mantissa_classes); ++c) {
            const std::uint64_t times = std::exchange(counts[r * row + c + first_key], 0);
            if (times == 0) continue;
            const int field = static_cast<int>(r);
            if (r == 255) (c == 0 ? histogram.inf : histogram.nan) += times;
            else if (r < subnormal_row) histogram.rows[field - 127][c] += times;
            else if (r == subnormal_row) histogram.zero += times;
            else histogram.rows[field - static_cast<int>(subnormal_row) - 127 - 149][c] += times; // units of 2^-149
        }
}

void FloatTables::merge(FloatTables& other) {
    other.flush();
    histogram.merge(other.histogram);
    smallest = std::min(smallest, other.smallest);
    largest = std::max(largest, other.largest);
}

MagnitudeSums count_words(FloatTables& tables, std::span<const std::byte> words, InstructionSet set) {
    const FloatEnvironment environment; // the same sums on a thread that flushes subnormals
    const std::size_t n = words.size() / sizeof(std::uint32_t), whole = n / lanes * lanes;
    Partial partial;
    count_lanes(tables, words.data(), whole, partial, set);
    if (n != whole) {
        std::byte last[lanes * sizeof(std::uint32_t)]{};
        std::ranges::copy(words.subspan(whole * sizeof(std::uint32_t)), last);
        count_lanes(tables, last, lanes, partial, set);
        tables.histogram.zero -= whole + lanes - n; // less the padding's zeros; modulo 2^64 until the flush
    }
    tables.smallest = std::min(tables.smallest, *std::ranges::min_element(partial.smallest));
    tables.largest = std::max(tables.largest, *std::ranges::max_element(partial.largest));
    tables.pending += n + lanes;
    constexpr std::uint64_t alike = std::uint64_t{FloatTables::halves * FloatTables::copies} * 0xffff;
    if (tables.pending > alike - sum_block - lanes) tables.drain(); // so many equal elements may fill their counters
    return {pairwise(partial.absolute), pairwise(partial.squares)};
}

CodeTable::CodeTable(int width, std::uint32_t counted, bool small_counters)
    : width_(width), counted_(counted), copies_(width > 8 ? 1 : 4),
      spread_((counted + 1) * copies_ + 64 > 0x10000 ? 0 : 64), counts_(counted + std::size_t{1}) {
    const std::size_t size = (counted + 1) * copies_ + spread_;
    if (small_counters) {
        small_.resize(size);
        counts_.resize(size);
    } else {
        recent_.resize(size);
    }
}

template <class Code, class Counter>
void CodeTable::count_whole(std::vector<Counter>& counters, const std::byte* data, std::size_t n, InstructionSet set) {
    const std::uint32_t frequent = frequent_code<Code>(data, n, counted_);
    const std::size_t first = spread_ == 0 ? frequent : counters.size() - spread_;
    using Kernel = CodeKernel<Code, Counter>;
    const typename Kernel::Keys keys{static_cast<std::uint16_t>(counted_), static_cast<std::uint16_t>(frequent),
                                     static_cast<std::uint16_t>(first), std::max(spread_, std::size_t{1})};
    dispatch<Kernel>(set, counters.data(), counts_.data(), data, n, &keys);
    for (std::size_t i = first; i < first + spread_; ++i) {
        counts_[frequent] += std::exchange(counters[i], Counter{0});
        if (sizeof(Counter) == 1) counts_[frequent] += std::exchange(counts_[i], 0);
    }
}

void CodeTable::count(std::span<const std::byte> block, std::size_t n, InstructionSet set) {
    if (n == 0) return;
    if (pending_ + n > 0xffffffff) flush();
    pending_ += n;
    if (width_ == 8) count_whole<std::uint8_t>(recent_, block.data(), n, set);
    else if (!small_.empty()) count_whole<std::uint16_t>(small_, block.data(), n, set);
    else if (width_ == 16) count_whole<std::uint16_t>(recent_, block.data(), n, set);
    else count_packed(block, n);
}

void CodeTable::count_packed(std::span<const std::byte> block, std::size_t n) {
    const auto bits = static_cast<std::size_t>(width_), per_word = 64 / bits;
    const std::size_t whole = 64 % bits == 0 ? n / per_word * per_word : 0;
    for (std::size_t i = 0; i < whole; i += per_word) {
        std::uint64_t word = 0;
        std::memcpy(&word, block.data() + i * bits / 8, sizeof word);
        for (std::size_t j = 0; j < per_word; ++j, word >>= bits) ++recent_[(word & counted_) * copies_ + j % copies_];
    }
    for (std::size_t i = whole; i < n; ++i) ++recent_[(packed_number(block, i, width_) & counted_) * copies_];
}

void CodeTable::flush() {
    for (std::size_t code = 0; pending_ != 0 && code < counts_.size(); ++code) {
        if (!small_.empty()) counts_[code] += std::exchange(small_[code], std::uint8_t{0});
        for (std::size_t copy = 0; copy < copies_ && small_.empty(); ++copy)
            counts_[code] += std::exchange(recent_[code * copies_ + copy], 0);
    }
    pending_ = 0;
}

} // namespace amp::detail
