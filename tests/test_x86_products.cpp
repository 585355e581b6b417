// The rows of x86 against the instructions themselves: VDPBF16PS, TDPBF16PS, TDPBSSD; skipped where there are none.
#include "hardware_inputs.h"
#include "needs.h"
#include "sweep.h"

#include <ampscope/formats/dot.h>
#include <ampscope/formats/integer_dot.h>

#include <doctest/doctest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

using namespace amp;
using namespace amp::test;

#if defined(__x86_64__) && defined(__GNUC__)

namespace {

/// Two BF16 numbers in a word, the first in its lower half.
std::uint32_t pair_of(float first, float second) {
    return std::bit_cast<std::uint32_t>(first) >> 16 | (std::bit_cast<std::uint32_t>(second) & 0xffff0000);
}

/// Operands of every kind, or with products near the least normal number; and a sum so far.
struct Case {
    std::vector<float> a, b;
    float c = 0;

    Case(std::uint32_t index, std::uint32_t k) {
        const std::uint32_t which = index % 7;
        const bool tiny = which == 6;
        const auto kind = static_cast<CodeKind>(tiny ? 0 : which);
        const Codes codes(format("bf16"));
        const auto number = [&](std::uint32_t operand, std::uint32_t i, bool cancels) {
            const std::uint32_t place = cancels ? i / 2 * 2 : i;
            const std::uint32_t code =
                codes.code(operand == 1 && kind == CodeKind::cancelling ? CodeKind::ordinary : kind,
                           word(index, operand, place), i % 2 == 1);
            return std::bit_cast<float>((code - (tiny ? 62U << 7 : 0)) << 16); // 62 binades lower
        };
        for (std::uint32_t i = 0; i < k; ++i) {
            a.push_back(number(0, i, kind == CodeKind::cancelling));
            b.push_back(number(1, i, kind == CodeKind::cancelling));
        }
        const std::uint32_t w = word(index, 2, 0);
        const Codes sums(format("fp32"));
        if (w % 4 != 0) c = std::bit_cast<float>(sums.code(tiny ? CodeKind::subnormal : kind, w, false));
    }
};

void expect_same(Tally& tally, const char* row, const Case& x, float instruction, std::uint64_t index) {
    const float ours = dot(accumulator(row), format("bf16"), format("bf16"), x.a, x.b, x.c);
    if (std::isnan(ours) && std::isnan(instruction)) return tally.expect(true, true, [] { return "a NaN"; });
    tally.expect(ours, instruction, [&] { return fmt::format("{}, case {}", row, index); });
}

[[gnu::target("avx512f,avx512bf16")]] float vdpbf16ps(const Case& x) {
    __m512 sum = _mm512_set1_ps(x.c);
    for (std::size_t i = 0; i < x.a.size(); i += 2) {
        const __m512i a = _mm512_set1_epi32(static_cast<int>(pair_of(x.a[i], x.a[i + 1]))),
                      b = _mm512_set1_epi32(static_cast<int>(pair_of(x.b[i], x.b[i + 1])));
        sum = _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
    }
    return _mm512_cvtss_f32(sum);
}

struct alignas(64) TileConfiguration {
    std::uint8_t palette = 1, start = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {4, 64, 4}; // of the sum, a and b
    std::uint8_t rows[16] = {1, 1, 16};
};

/// One row of a times one column of b, 32 numbers each instruction.
[[gnu::target("amx-tile,amx-bf16")]] float tdpbf16ps(const Case& x) {
    const TileConfiguration configuration;
    float sum = x.c;
    for (std::size_t k = 0; k < x.a.size(); k += 32) {
        std::uint32_t a[16], b[16];
        for (std::size_t i = 0; i < 16; ++i) {
            a[i] = pair_of(x.a[k + 2 * i], x.a[k + 2 * i + 1]);
            b[i] = pair_of(x.b[k + 2 * i], x.b[k + 2 * i + 1]);
        }
        _tile_loadconfig(&configuration);
        _tile_loadd(0, &sum, 4);
        _tile_loadd(1, &a[0], 64);
        _tile_loadd(2, &b[0], 4);
        _tile_dpbf16ps(0, 1, 2);
        _tile_stored(0, &sum, 4);
        _tile_release();
    }
    return sum;
}

bool has_avx512_bf16() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") != 0;
}

/// The same of INT8, 64 numbers each instruction; sums wrap.
[[gnu::target("amx-tile,amx-int8")]] std::int32_t tdpbssd(const std::vector<std::int8_t>& a,
                                                          const std::vector<std::int8_t>& b, std::int32_t sum) {
    const TileConfiguration configuration;
    for (std::size_t k = 0; k < a.size(); k += 64) {
        _tile_loadconfig(&configuration);
        _tile_loadd(0, &sum, 4);
        _tile_loadd(1, &a[k], 64);
        _tile_loadd(2, &b[k], 4);
        _tile_dpbssd(0, 1, 2);
        _tile_stored(0, &sum, 4);
        _tile_release();
    }
    return sum;
}

/// Whether the processor has AMX with a type, by its bit of CPUID, and the kernel lets this process use its tiles.
bool has_amx(int bit) {
    unsigned a = 7, b = 0, c = 0, d = 0;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    const bool instruction = (d >> bit & 1) != 0 && (d >> 24 & 1) != 0;
    constexpr long request_permission = 0x1023, tile_data = 18; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return instruction && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

} // namespace

TEST_CASE("avx512-bf16 is VDPBF16PS" * doctest::test_suite("avx512_bf16")) {
    if (!has_avx512_bf16()) return skip("VDPBF16PS: needs a processor with AVX512_BF16 (Cooper Lake, Zen 4)");
    prove("VDPBF16PS", 100000, [](std::uint64_t index, Tally& tally) {
        const auto i = static_cast<std::uint32_t>(index);
        const Case x(i, 2 * (1 + i / 7 % 5));
        expect_same(tally, "avx512-bf16", x, vdpbf16ps(x), index);
    });
}

TEST_CASE("amx-bf16 is TDPBF16PS" * doctest::test_suite("amx_bf16")) {
    if (!has_amx(22)) return skip("TDPBF16PS: needs a processor with AMX (Sapphire Rapids), and Linux 5.16");
    prove("TDPBF16PS", 100000, [](std::uint64_t index, Tally& tally) {
        const auto i = static_cast<std::uint32_t>(index);
        const Case x(i, 32 * (1 + i / 7 % 3));
        expect_same(tally, "amx-bf16", x, tdpbf16ps(x), index);
    });
}

TEST_CASE("int32 is TDPBSSD, also where sums wrap" * doctest::test_suite("amx_int8")) {
    if (!has_amx(25)) return skip("TDPBSSD: needs a processor with AMX (Sapphire Rapids), and Linux 5.16");
    std::atomic<std::uint64_t> wrapped = 0;
    prove("TDPBSSD", 100000, [&](std::uint64_t index, Tally& tally) {
        const auto i = static_cast<std::uint32_t>(index);
        std::vector<std::int8_t> a, b;
        for (std::uint32_t j = 0; j < 64 * (1 + i / 3 % 4); ++j) { // any codes, those near an end, or all at the ends
            const auto code = [&](std::uint32_t operand) {
                const auto any = static_cast<std::int8_t>(word(i, operand, j) & 255);
                return i % 3 == 0 ? any : i % 3 == 1 ? static_cast<std::int8_t>(-128 + (any & 3)) : std::int8_t{127};
            };
            a.push_back(code(0));
            b.push_back(code(1));
        }
        const auto near_the_end = static_cast<std::int32_t>(0x7fffffff - word(i, 2, 0) % 2000000);
        const std::int32_t c = i % 5 == 0 ? near_the_end : static_cast<std::int32_t>(word(i, 3, 0));
        const std::int32_t want = tdpbssd(a, b, c),
                           got = int32_dot(accumulator("int32"), std::vector<float>(a.begin(), a.end()),
                                           std::vector<float>(b.begin(), b.end()), c);
        tally.expect(got, want, [&] { return fmt::format("case {}", index); });
        if (i % 5 == 0 && want < 0 && i % 3 != 0) ++wrapped;
    });
    CHECK(wrapped > 1000);
}

#else
TEST_CASE("instructions of x86") { skip("the instructions of x86: this is another processor"); }
#endif

TEST_CASE("the order in which rows of x86 add, and what they flush") {
    const FormatSpec bf16 = format("bf16");
    const auto sum = [&](const char* row, std::vector<float> a, float c) {
        return dot(accumulator(row), bf16, bf16, a, std::vector<float>(a.size(), 1.0F), c);
    };
    CHECK(sum("avx512-bf16", {-0x1p24F, 0x1p24F}, 1) == 0);    // the second of a pair first: 1 is lost in 2^24 + 1
    CHECK(sum("amx-bf16", {-0x1p24F, 0x1p24F}, 1) == 1);       // both products first
    CHECK(sum("avx512-bf16", {0x1p-127F, 0x1p-127F}, 0) == 0); // subnormal operands
}
