// The counting loops: every instruction set against one-by-one counting, for words and codes of every kind, at any
// address.
#include <ampscope/sim/analysis/detail/count_kernel.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cfenv>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace amp;
using detail::FloatTables;

namespace {

std::vector<InstructionSet> instruction_sets() {
    std::vector<InstructionSet> sets;
    for (int i = 0; i <= static_cast<int>(best_instruction_set()); ++i) sets.push_back(static_cast<InstructionSet>(i));
    return sets;
}

struct Counted {
    MagnitudeHistogram histogram;
    std::uint32_t smallest, largest;
    MagnitudeSums sums;
};

Counted count(std::span<const std::byte> bytes, InstructionSet set) {
    const auto tables = std::make_unique<FloatTables>();
    const MagnitudeSums sums = detail::count_words(*tables, bytes, set);
    tables->flush();
    return {tables->histogram, tables->smallest, tables->largest, sums};
}

/// All results of the loop, by its definition: add() for each word, and the 16 partial sums.
Counted count_plainly(std::span<const float> values) {
    Counted result{{}, ~0U, 0, {}};
    double absolute[16]{}, squares[16]{};
    for (std::size_t i = 0; i < values.size(); ++i) {
        result.histogram.add(unpack(values[i]));
        if (!std::isfinite(values[i]) || values[i] == 0) continue;
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffff;
        result.smallest = std::min(result.smallest, bits - 1);
        result.largest = std::max(result.largest, bits);
        const double x = std::fabs(static_cast<double>(values[i]));
        absolute[i % 16] += x;
        squares[i % 16] += x * x;
    }
    for (std::size_t half = 8; half > 0; half /= 2)
        for (std::size_t j = 0; j < half; ++j) absolute[j] += absolute[j + half], squares[j] += squares[j + half];
    result.sums = {absolute[0], squares[0]};
    return result;
}

/// Every boundary of a mantissa class in every exponent, with both signs and its neighbours; then random words.
std::vector<float> words() {
    std::vector<float> result;
    const auto add = [&](std::uint32_t bits) { result.push_back(std::bit_cast<float>(bits)); };
    for (std::uint32_t high = 0; high < 512; ++high)
        for (int ones = 0; ones <= 23; ++ones)
            for (const std::uint32_t mantissa : {0x7fffffU & ~((1U << (23 - ones)) - 1), 0x680000U})
                for (int d = -1; d <= 1; ++d) add(high << 23 | ((mantissa + static_cast<std::uint32_t>(d)) & 0x7fffff));
    for (int shift = 0; shift < 23; ++shift) // subnormals
        for (std::uint32_t i = 0; i < 8; ++i) add((8 | i) << shift >> 3);
    std::mt19937 random(5);
    while (result.size() < 200001) add(static_cast<std::uint32_t>(random()));
    return result;
}

void check(const Counted& got, const Counted& want) {
    CHECK(got.histogram == want.histogram);
    CHECK(got.smallest == want.smallest);
    CHECK(got.largest == want.largest);
    CHECK(got.sums.absolute == want.sums.absolute);
    CHECK(got.sums.squares == want.sums.squares);
}

} // namespace

TEST_CASE("every instruction set counts as one by one does, at any length and address") {
    const std::vector<float> all = words();
    for (const InstructionSet set : instruction_sets()) {
        CAPTURE(static_cast<int>(set));
        for (std::size_t first = 0; first < all.size(); first += sum_block) {
            const auto part = std::span(all).subspan(first, std::min(sum_block, all.size() - first));
            check(count(std::as_bytes(part), set), count_plainly(part));
        }
        std::vector<std::byte> shifted(1 + 300 * sizeof(float));
        for (const std::size_t n : {0UL, 1UL, 15UL, 16UL, 17UL, 300UL}) {
            std::memcpy(shifted.data() + 1, all.data(), n * sizeof(float));
            check(count(std::span(shifted).subspan(1, n * sizeof(float)), set), count_plainly(std::span(all).first(n)));
        }
    }
}

TEST_CASE("as many equal words as overflow a counter of 16 bits, of each kind") {
    for (const InstructionSet set : instruction_sets())
        for (const float x : {0.0F, -1.5F, 0x1p-149F, 0x1.8p-130F, INFINITY, -NAN, 0x1.fffffep127F}) {
            CAPTURE(x);
            const std::vector<float> block(sum_block, x);
            const auto tables = std::make_unique<FloatTables>();
            MagnitudeHistogram want;
            for (int i = 0; i < 20; ++i) detail::count_words(*tables, std::as_bytes(std::span(block)), set);
            want.add(unpack(x), 20 * sum_block);
            tables->flush();
            CHECK(tables->histogram == want);
        }
}

namespace {

/// Blocks of which each has another code most often, and random ones beside it: all, or few.
template <class Code>
void check_codes(int width, std::uint32_t counted, bool small_counters = false) {
    std::mt19937 random(7);
    for (const InstructionSet set : instruction_sets()) {
        detail::CodeTable table(width, counted, small_counters);
        std::map<std::size_t, std::uint64_t> want, got;
        for (const std::size_t n : {sum_block, sum_block, std::size_t{70}, std::size_t{511}, std::size_t{4097}})
            for (const std::uint32_t share : {0U, 3U, 7U, 10U}) {
                const auto frequent = static_cast<Code>(random());
                std::vector<std::byte> bytes(1 + n * sizeof(Code));
                for (std::size_t i = 0; i < n; ++i) {
                    const Code code = random() % 10 < share ? frequent : static_cast<Code>(random());
                    std::memcpy(bytes.data() + 1 + i * sizeof(Code), &code, sizeof code);
                    ++want[code & counted];
                }
                table.count(std::span(bytes).subspan(1), n, set);
            }
        table.for_each([&](std::size_t code, std::uint64_t times) { got[code] = times; });
        CHECK(got == want);
    }
}

} // namespace

TEST_CASE("codes of 8 and 16 bits, with and without their sign") {
    check_codes<std::uint8_t>(8, 0xff);
    check_codes<std::uint8_t>(8, 0x7f);
    for (const bool small_counters : {false, true}) {
        check_codes<std::uint16_t>(16, 0xffff, small_counters);
        check_codes<std::uint16_t>(16, 0x7fff, small_counters);
    }
}

TEST_CASE("as many equal codes as overflow their counters of 8 bits: the most frequent one, and another") {
    for (const InstructionSet set : instruction_sets())
        for (const std::uint32_t counted : {0x7fffU, 0xffffU}) {
            std::vector<std::uint16_t> block(sum_block, 0x3c00);
            for (std::size_t i = 0; i < block.size(); i += 3) block[i] = 0x7fff;
            detail::CodeTable table(16, counted, true);
            std::map<std::size_t, std::uint64_t> got;
            for (int i = 0; i < 10; ++i) table.count(std::as_bytes(std::span(block)), block.size(), set);
            for (int part = 0; part < 2; ++part) { // the second part after a flush
                table.for_each([&](std::size_t code, std::uint64_t times) { got[code] = times; });
                const std::uint64_t others = (sum_block + 2) / 3, blocks = part == 0 ? 10 : 11;
                CHECK(got == std::map<std::size_t, std::uint64_t>{{0x3c00, blocks * (sum_block - others)},
                                                                  {0x7fff, blocks * others}});
                table.count(std::as_bytes(std::span(block)), block.size(), set);
            }
        }
}

TEST_CASE("a word of its own decides its row and class") {
    const std::vector<float> all = words();
    std::uint64_t cases = 0, mismatches = 0;
    const auto tables = std::make_unique<FloatTables>();
    for (const InstructionSet set : instruction_sets())
        for (std::size_t i = 0; i < all.size(); i += 7, ++cases) {
            detail::count_words(*tables, std::as_bytes(std::span(all)).subspan(i * sizeof(float), sizeof(float)), set);
            tables->histogram.add(unpack(all[i]), ~std::uint64_t{0}); // removes the element again, modulo 2^64
        }
    tables->flush();
    for (const auto& [exponent, row] : tables->histogram.rows)
        for (const std::uint64_t times : row) mismatches += times != 0;
    mismatches += tables->histogram.zero + tables->histogram.nan + tables->histogram.inf;
    fmt::print("proof: FP32 words counted by each instruction set: {} cases, {} mismatches\n", cases, mismatches);
    CHECK(mismatches == 0);
}

TEST_CASE("a host that rounds upward and flushes subnormals gets the same sums") {
    const std::vector<float> all = words();
    const auto part = std::span(all).first(sum_block);
    const Counted want = count_plainly(part);
    for (const InstructionSet set : instruction_sets()) {
        std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
        const unsigned control = _mm_getcsr();
        _mm_setcsr(control | 0x8040); // flush to zero, denormals are zero
#endif
        const Counted got = count(std::as_bytes(part), set);
#if defined(__x86_64__)
        _mm_setcsr(control);
#endif
        std::fesetround(FE_TONEAREST);
        check(got, want);
    }
}
