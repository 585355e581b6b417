/* Casts of CPFloat, which is C alone: see peers.cpp. */
#include <cpfloat_binary32.h>

static void cpfloat_cast(const float* x, float* y, size_t n, int precision, int least, int largest, int infinities) {
    optstruct* format = init_optstruct();
    format->precision = precision;
    format->emin = least;
    format->emax = largest;
    format->explim = CPFLOAT_EXPRANGE_TARG;
    format->infinity = infinities ? CPFLOAT_INF_USE : CPFLOAT_INF_NO;
    format->round = CPFLOAT_RND_NE;
    format->saturation = CPFLOAT_SAT_NO;
    format->subnormal = CPFLOAT_SUBN_USE;
    format->flip = CPFLOAT_SOFTERR_NO;
    cpfloatf(y, x, n, format);
    free_optstruct(format);
}

void cpfloat_fp16(const float* x, float* y, size_t n) { cpfloat_cast(x, y, n, 11, -14, 15, 1); }
void cpfloat_bf16(const float* x, float* y, size_t n) { cpfloat_cast(x, y, n, 8, -126, 127, 1); }
void cpfloat_e4m3(const float* x, float* y, size_t n) { cpfloat_cast(x, y, n, 4, -6, 8, 0); }
void cpfloat_e5m2(const float* x, float* y, size_t n) { cpfloat_cast(x, y, n, 3, -14, 15, 1); }
