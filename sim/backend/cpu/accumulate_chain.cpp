// Chains of fused multiply-adds rounded to BF16, TF32, FP16 or the like at every step, with AVX-512 and AVX2: sums stay
// in registers while k passes.
//
// A step is exact before it is rounded. With AVX-512 the multiply-add is done twice, rounded down and up: of two
// neighbours that differ, one has an odd last place, and it is what rounding to odd gives, from which a format of two
// bits less is rounded correctly (Boldo and Melquiond 2008). If they are equal, nothing was lost; of +0 and -0 the even
// one is +0, as rounding to nearest asks; of infinity and the largest number the odd one is the number, which a shorter
// format rounds to infinity itself.
//
// AVX2 has one rounding direction at a time, toward zero here. Where FP32 holds every product, the sum is exact if
// subtracting one term from it gives the other, for both terms; if not, its last place becomes odd.
#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/detail/strips.h>

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__) // g++ 12 warns of deliberately undefined values in its own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif

namespace amp::cpu {

#if defined(__x86_64__)
#define AMPSCOPE_AVX512 [[gnu::target(AMPSCOPE_TARGET_AVX512), gnu::always_inline]]

namespace {

constexpr std::int64_t lanes = 16, vectors = 4, width = lanes * vectors;

AMPSCOPE_AVX512 inline __m512 fma_to_odd(__m512 a, __m512 b, __m512 c) {
    const __m512 down = _mm512_fmadd_round_ps(a, b, c, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const __m512 up = _mm512_fmadd_round_ps(a, b, c, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    const __mmask16 odd = _mm512_test_epi32_mask(_mm512_castps_si512(down), _mm512_set1_epi32(1));
    return _mm512_mask_mov_ps(up, odd, down);
}

/// To a format with FP32's exponents, to nearest-even. NaN stays.
struct ToPrefix {
    __m512i drop, half, kept;

    AMPSCOPE_AVX512 explicit ToPrefix(const FormatSpec& f)
        : drop(_mm512_set1_epi32(23 - f.fraction_bits)), half(_mm512_set1_epi32((1 << (22 - f.fraction_bits)) - 1)),
          kept(_mm512_set1_epi32(-(1 << (23 - f.fraction_bits)))) {}
    AMPSCOPE_AVX512 __m512 operator()(__m512 x) const {
        const __m512i u = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
        const __m512i up = _mm512_add_epi32(_mm512_and_si512(_mm512_srlv_epi32(u, drop), one), half);
        const __mmask16 number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
        return _mm512_castsi512_ps(_mm512_and_si512(_mm512_mask_add_epi32(u, number, u, up), kept));
    }
};

/// To FP16, by the processor.
struct ToHalf {
    AMPSCOPE_AVX512 explicit ToHalf(const FormatSpec&) {}
    AMPSCOPE_AVX512 __m512 operator()(__m512 x) const {
        return _mm512_cvt_roundph_ps(_mm512_cvt_roundps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                                     _MM_FROUND_NO_EXC);
    }
};

/// The sums of a row of a and the columns of a strip.
template <class Round>
[[gnu::target(AMPSCOPE_TARGET_AVX512)]] void chain_row(const Product& p, const float* a, const float* b, float* out) {
    const Round round(p.accumulator.sum);
    __m512 sums[vectors];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    for (std::int64_t l = 0; l < p.k; ++l, a += p.a.column_stride, b += width) {
        const __m512 x = _mm512_set1_ps(*a);
#pragma GCC unroll 4
        for (std::int64_t v = 0; v < vectors; ++v)
            sums[v] = round(fma_to_odd(x, _mm512_load_ps(b + v * lanes), sums[v]));
    }
    for (std::int64_t v = 0; v < vectors; ++v) _mm512_store_ps(out + v * lanes, sums[v]);
}

template <class Round>
void chain_strips(const Product& p) {
    by_strips<width>(p, [&](const float* a, const float* strip, std::int64_t, float* out, std::uint64_t*) {
        chain_row<Round>(p, a, strip, out);
    });
}

/// The same as above for AVX2, for products that FP32 holds.
#define AMPSCOPE_AVX2 [[gnu::target(AMPSCOPE_TARGET_AVX2), gnu::always_inline]]

constexpr std::int64_t lanes_avx2 = 8, width_avx2 = lanes_avx2 * vectors;

AMPSCOPE_AVX2 inline __m256 fma_to_odd(__m256 a, __m256 b, __m256 c) {
    const __m256 product = _mm256_mul_ps(a, b), sum = _mm256_fmadd_ps(a, b, c);
    const __m256 lost = _mm256_or_ps(_mm256_cmp_ps(_mm256_sub_ps(sum, product), c, _CMP_NEQ_OQ),
                                     _mm256_cmp_ps(_mm256_sub_ps(sum, c), product, _CMP_NEQ_OQ));
    return _mm256_or_ps(sum, _mm256_and_ps(lost, _mm256_castsi256_ps(_mm256_set1_epi32(1))));
}

struct ToPrefixAvx2 {
    __m128i drop;
    __m256i half, kept;

    AMPSCOPE_AVX2 explicit ToPrefixAvx2(const FormatSpec& f)
        : drop(_mm_cvtsi32_si128(23 - f.fraction_bits)), half(_mm256_set1_epi32((1 << (22 - f.fraction_bits)) - 1)),
          kept(_mm256_set1_epi32(-(1 << (23 - f.fraction_bits)))) {}
    AMPSCOPE_AVX2 __m256 operator()(__m256 x) const {
        const __m256i u = _mm256_castps_si256(x), one = _mm256_set1_epi32(1);
        const __m256i up = _mm256_add_epi32(_mm256_and_si256(_mm256_srl_epi32(u, drop), one), half);
        const __m256i number = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q));
        return _mm256_castsi256_ps(_mm256_and_si256(_mm256_add_epi32(u, _mm256_and_si256(number, up)), kept));
    }
};

struct ToHalfAvx2 {
    AMPSCOPE_AVX2 explicit ToHalfAvx2(const FormatSpec&) {}
    AMPSCOPE_AVX2 __m256 operator()(__m256 x) const {
        return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
};

template <class Round>
[[gnu::target(AMPSCOPE_TARGET_AVX2), gnu::noinline]] void chain_row_avx2(const Product& p, const float* a,
                                                                         const float* b, float* out) {
    const Round round(p.accumulator.sum);
    __m256 sums[vectors];
    for (__m256& sum : sums) sum = _mm256_setzero_ps();
    for (std::int64_t l = 0; l < p.k; ++l, a += p.a.column_stride, b += width_avx2) {
        const __m256 x = _mm256_set1_ps(*a);
#pragma GCC unroll 4
        for (std::int64_t v = 0; v < vectors; ++v)
            sums[v] = round(fma_to_odd(x, _mm256_load_ps(b + v * lanes_avx2), sums[v]));
    }
    for (std::int64_t v = 0; v < vectors; ++v) _mm256_store_ps(out + v * lanes_avx2, sums[v]);
}

template <class Round>
void chain_strips_avx2(const Product& p) {
    by_strips<width_avx2>(p, [&](const float* a, const float* strip, std::int64_t, float* out, std::uint64_t*) {
        const FloatEnvironment environment(HostRounding::toward_zero);
        chain_row_avx2<Round>(p, a, strip, out);
    });
}

/// The exponent fields of the numbers of a matrix that are neither zero nor infinite nor NaN.
struct Fields {
    std::uint32_t least = 255, most = 0;

    Fields(MatrixView x, std::int64_t rows, std::int64_t columns) {
        if (x.row_stride == 1) std::swap(rows, columns), x = x.transposed();
        constexpr std::uint32_t infinity = 0x7f800000;
        std::uint32_t smallest = infinity, largest = 0;
        for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < columns; ++j) {
                const std::uint32_t u = std::bit_cast<std::uint32_t>(at(x, i, j)) & 0x7fffffff;
                smallest = std::min(smallest, u == 0 ? infinity : u);
                largest = std::max(largest, u >= infinity ? 0 : u);
            }
        least = smallest >> 23;
        most = largest >> 23;
    }
};

/// Whether FP32 holds every product exactly, as a normal number.
bool holds_products(const Product& p) {
    if (p.a_format.precision() + p.b_format.precision() > 24) return false;
    const Fields a(p.a, p.m, p.k), b(p.b, p.k, p.n);
    constexpr std::uint32_t bias = 127;
    return a.least > 0 && b.least > 0 && a.least + b.least > bias && a.most + b.most < 3 * bias - 1;
}

} // namespace

bool chain_in_registers(const Product& p) {
    const FormatSpec& f = p.accumulator.sum;
    const bool prefix = f.is_signed && f.nonfinite == NonFinite::ieee && f.has_zero && f.first_binade() == -126 &&
                        f.max_exponent() == 127 && f.fraction_bits > 0 && f.fraction_bits <= 21;
    if (p.set == InstructionSet::baseline || !(prefix || f == format("fp16"))) return false;
    if (p.set == InstructionSet::avx512) prefix ? chain_strips<ToPrefix>(p) : chain_strips<ToHalf>(p);
    else if (!holds_products(p)) return false;
    else prefix ? chain_strips_avx2<ToPrefixAvx2>(p) : chain_strips_avx2<ToHalfAvx2>(p);
    return true;
}

#else

bool chain_in_registers(const Product&) { return false; }

#endif

} // namespace amp::cpu
