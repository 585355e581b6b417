// Chains of fused multiply-adds rounded to BF16, TF32, FP16 or the like at every step, with AVX-512: sums stay in
// registers while k passes.
//
// A step is exact before it is rounded. The multiply-add is done twice, rounded down and rounded up: of two neighbours
// that differ, one has an odd last place, and it is what rounding to odd gives, from which a format of two bits less is
// rounded correctly (Boldo and Melquiond 2008). If they are equal, nothing was lost; of +0 and -0 the even one is +0,
// as rounding to nearest asks; of infinity and the largest number the odd one is the number, which a shorter format
// rounds to infinity itself.
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

} // namespace

bool chain_in_registers(const Product& p) {
    const FormatSpec& f = p.accumulator.sum;
    if (p.set != InstructionSet::avx512) return false;
    const bool prefix = f.is_signed && f.nonfinite == NonFinite::ieee && f.has_zero && f.first_binade() == -126 &&
                        f.max_exponent() == 127 && f.fraction_bits > 0 && f.fraction_bits <= 21;
    if (prefix) chain_strips<ToPrefix>(p);
    else if (f == format("fp16")) chain_strips<ToHalf>(p);
    return prefix || f == format("fp16");
}

#else

bool chain_in_registers(const Product&) { return false; }

#endif

} // namespace amp::cpu
