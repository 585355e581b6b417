// Against the processor's own conversions and arithmetic: F16C (all floats), AVX512_BF16 (all floats) and AVX512_FP16
// (all pairs); FP16 and FP32 arithmetic with flags on hard operands. What the processor lacks is skipped.
#include "cases.h"
#include "needs.h"

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#if !defined(__clang__) || __clang_major__ >= 16
#define AMPSCOPE_FP16_INTRINSICS 1
#endif

namespace {

using oracle::Op;

constexpr std::uint64_t all = std::uint64_t{1} << 32;

// Feature bits by number: the names that __builtin_cpu_supports knows differ between compilers.
bool has_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 29 & 1) != 0;
}
bool has_leaf7(unsigned subleaf, std::size_t which, int bit) {
    std::array<unsigned, 4> r{};
    return __builtin_cpu_supports("avx512vl") && __get_cpuid_count(7, subleaf, &r[0], &r[1], &r[2], &r[3]) != 0 &&
           (r[which] >> bit & 1) != 0;
}
bool has_avx512_bf16() { return has_leaf7(1, 0, 5); }

template <int mode>
__attribute__((target("f16c"))) std::uint32_t f16c(float x) {
    return static_cast<std::uint16_t>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), mode), 0));
}
__attribute__((target("f16c"))) float f16c_decode(std::uint32_t code) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(code))));
}
__attribute__((target("avx512bf16,avx512vl"))) std::uint32_t avx512_bf16(float x) {
    return std::bit_cast<std::array<std::uint16_t, 8>>(_mm_cvtneps_pbh(_mm_set_ss(x)))[0];
}

/// Replaces all NaNs by one: the processor propagates payloads and makes negative NaNs.
std::uint32_t one_nan(const FormatSpec& f, std::uint32_t code) {
    return (code & f.magnitude_mask()) > f.infinity_code() ? f.nan_code() : code;
}

#ifdef AMPSCOPE_FP16_INTRINSICS
bool has_avx512_fp16() { return has_leaf7(0, 3, 23); }
constexpr const char* no_avx512_fp16 = "this processor has no AVX512_FP16 (Sapphire Rapids of 2023 and later have it)";

template <Op op>
__attribute__((target("avx512fp16,avx512vl"))) std::uint32_t fp16_op(std::uint32_t a, std::uint32_t b,
                                                                     std::uint32_t c) {
    const auto load = [](std::uint32_t code) __attribute__((target("avx512fp16,avx512vl"))) {
        return _mm_castsi128_ph(_mm_cvtsi32_si128(static_cast<int>(code)));
    };
    const __m128h x = load(a), y = load(b), z = load(c);
    __m128h r = x;
    if constexpr (op == Op::add) r = _mm_add_sh(x, y);
    if constexpr (op == Op::sub) r = _mm_sub_sh(x, y);
    if constexpr (op == Op::mul) r = _mm_mul_sh(x, y);
    if constexpr (op == Op::div) r = _mm_div_sh(x, y);
    if constexpr (op == Op::sqrt) r = _mm_sqrt_sh(x, x);
    if constexpr (op == Op::fma) r = _mm_fmadd_sh(x, y, z);
    return static_cast<std::uint16_t>(_mm_cvtsi128_si32(_mm_castph_si128(r)));
}

template <Op op>
void prove_fp16_pairs(std::uint64_t count, Shard part) {
    const FormatSpec f = format("fp16");
    prove(
        fmt::format("fp16 {} against AVX512_FP16", oracle::op_names[int(op)]), count,
        [&](std::uint64_t i, Tally& tally) {
            const auto a = static_cast<std::uint32_t>(i & 0xffff), b = static_cast<std::uint32_t>(i >> 16 & 0xffff);
            const auto c = static_cast<std::uint32_t>(mix(i) & 0xffff);
            Arithmetic arithmetic{f};
            tally.expect(run(arithmetic, op, a, b, c).code, one_nan(f, fp16_op<op>(a, b, c)),
                         [&] { return fmt::format("{:#x} {:#x} {:#x}", a, b, c); });
        },
        part);
}

#endif

template <int mode>
void prove_f16c(Rounding rounding, Shard part) {
    const FormatSpec f = format("fp16");
    Policy policy = profile("vcvtps2ph").policy;
    policy.rounding = rounding;
    prove(
        fmt::format("float to fp16 rounding {} against VCVTPS2PH", int(rounding)), all,
        [&](std::uint64_t i, Tally& tally) {
            const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(i));
            tally.expect(encode(f, x, policy), f16c<mode>(x), [&] { return Tally::show(x); });
        },
        part);
}

template <Op op>
__attribute__((target("fma"))) std::uint32_t fp32_op(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    const __m128 x = _mm_set_ss(std::bit_cast<float>(a)), y = _mm_set_ss(std::bit_cast<float>(b));
    const __m128 z = _mm_set_ss(std::bit_cast<float>(c));
    __m128 r = x;
    if constexpr (op == Op::add) r = _mm_add_ss(x, y);
    if constexpr (op == Op::sub) r = _mm_sub_ss(x, y);
    if constexpr (op == Op::mul) r = _mm_mul_ss(x, y);
    if constexpr (op == Op::div) r = _mm_div_ss(x, y);
    if constexpr (op == Op::sqrt) r = _mm_sqrt_ss(x);
    if constexpr (op == Op::fma) r = _mm_fmadd_ss(x, y, z);
    return std::bit_cast<std::uint32_t>(_mm_cvtss_f32(r));
}

/// Result and flags of `machine` in the i-th of the processor's four rounding modes.
oracle::Outcome on_machine(auto machine, std::uint64_t mode, const std::array<std::uint32_t, 3>& operands) {
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(0x1f80 | static_cast<unsigned>(mode) << 13);
    volatile std::uint32_t a = operands[0]; // volatile keeps the operation between the two control words
    volatile std::uint32_t code = machine(a, operands[1], operands[2]);
    const unsigned raised = _mm_getcsr();
    _mm_setcsr(saved);
    // x86's order: invalid, denormal operand (no IEEE flag), divide by zero, overflow, underflow, inexact.
    const auto flag = [&](int bit, unsigned ours) { return (raised >> bit & 1) != 0 ? ours : 0u; };
    return {code, flag(0, Flags::invalid) | flag(2, Flags::divide_by_zero) | flag(3, Flags::overflow) |
                      flag(4, Flags::underflow) | flag(5, Flags::inexact)};
}

/// Whether the operands are 0 * infinity + quiet NaN: IEEE 754-2019 section 7.2 allows implementations to raise invalid
/// or not. SoftFloat and arithmetic.h raise it, x86 does not.
bool implementation_defined(const FormatSpec& f, const std::array<std::uint32_t, 3>& operands) {
    const Kind a = unpack(f, operands[0]).kind, b = unpack(f, operands[1]).kind;
    const bool invalid = (a == Kind::zero && b == Kind::infinity) || (a == Kind::infinity && b == Kind::zero);
    return invalid && unpack(f, operands[2]).is_nan();
}

/// Proves result and flags for the hard operands of cases.h.
void prove_flags(std::string_view name, Op op, auto machine) {
    constexpr Rounding modes[] = {Rounding::nearest_even, Rounding::down, Rounding::up,
                                  Rounding::toward_zero}; // in MXCSR's order
    const FormatSpec f = format(name);
    prove(
        fmt::format("{} {} with flags, four modes, against the processor", name, oracle::op_names[int(op)]),
        std::uint64_t{1} << 26,
        [&](std::uint64_t i, Tally& tally) {
            const auto operands = hard_operands(f, i);
            if (op == Op::fma && implementation_defined(f, operands)) return;
            const std::uint64_t mode = mix(i) >> 62;
            Arithmetic arithmetic{f, {.rounding = modes[mode]}};
            oracle::Outcome want = on_machine(machine, mode, operands);
            want.code = one_nan(f, want.code);
            tally.expect(run(arithmetic, op, operands[0], operands[1], operands[2]), want, [&] {
                return fmt::format("{:#x} {:#x} {:#x} mode {}", operands[0], operands[1], operands[2], mode);
            });
        },
        shard());
}

} // namespace

TEST_CASE("F16C" * doctest::test_suite("f16c")) {
    if (!has_f16c()) return skip("this processor has no F16C (Ivy Bridge of 2012 and later have it)");
    prove_f16c<_MM_FROUND_TO_NEAREST_INT>(Rounding::nearest_even, shard());
    const Shard part{shard().first, shard().count * 61};
    prove_f16c<_MM_FROUND_TO_ZERO>(Rounding::toward_zero, part);
    prove_f16c<_MM_FROUND_TO_NEG_INF>(Rounding::down, part);
    prove_f16c<_MM_FROUND_TO_POS_INF>(Rounding::up, part);
    prove("fp16 decode against VCVTPH2PS", 65536, [&](std::uint64_t i, Tally& tally) {
        const auto code = static_cast<std::uint32_t>(i);
        tally.expect(decode(format("fp16"), code, NanRule::payload), f16c_decode(code),
                     [&] { return fmt::format("{:#x}", code); });
    });
}

TEST_CASE("AVX512_BF16" * doctest::test_suite("avx512_bf16")) {
    if (!has_avx512_bf16())
        return skip("this processor has no AVX512_BF16 (Cooper Lake of 2020, Zen 4 and later have it)");
    const Policy policy = profile("vcvtneps2bf16").policy;
    prove(
        "float to bf16 against VCVTNEPS2BF16", all,
        [&](std::uint64_t i, Tally& tally) {
            const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(i));
            tally.expect(encode(format("bf16"), x, policy), avx512_bf16(x), [&] { return Tally::show(x); });
        },
        shard());
}

#ifdef AMPSCOPE_FP16_INTRINSICS

TEST_CASE("AVX512_FP16, all pairs" * doctest::test_suite("avx512_fp16")) {
    if (!has_avx512_fp16()) return skip(no_avx512_fp16);
    prove_fp16_pairs<Op::add>(all, shard());
    prove_fp16_pairs<Op::sub>(all, shard());
    prove_fp16_pairs<Op::mul>(all, shard());
    prove_fp16_pairs<Op::div>(all, shard());
    prove_fp16_pairs<Op::sqrt>(65536, {});
    prove_fp16_pairs<Op::fma>(all, shard()); // all pairs of factors, each with one addend
}

TEST_CASE("AVX512_FP16 with flags" * doctest::test_suite("avx512_fp16")) {
    if (!has_avx512_fp16()) return skip(no_avx512_fp16);
    prove_flags("fp16", Op::add, fp16_op<Op::add>);
    prove_flags("fp16", Op::sub, fp16_op<Op::sub>);
    prove_flags("fp16", Op::mul, fp16_op<Op::mul>);
    prove_flags("fp16", Op::div, fp16_op<Op::div>);
    prove_flags("fp16", Op::sqrt, fp16_op<Op::sqrt>);
    prove_flags("fp16", Op::fma, fp16_op<Op::fma>);
}

#else

TEST_CASE("AVX512_FP16" * doctest::test_suite("avx512_fp16")) {
    skip("this compiler has no AVX512_FP16 intrinsics (g++ 12, clang 16 and later have them)");
}

#endif

TEST_CASE("float arithmetic with flags") {
    prove_flags("fp32", Op::add, fp32_op<Op::add>);
    prove_flags("fp32", Op::sub, fp32_op<Op::sub>);
    prove_flags("fp32", Op::mul, fp32_op<Op::mul>);
    prove_flags("fp32", Op::div, fp32_op<Op::div>);
    prove_flags("fp32", Op::sqrt, fp32_op<Op::sqrt>);
}

TEST_CASE("fused multiply-add of floats with flags" * doctest::test_suite("fma")) {
    if (!__builtin_cpu_supports("fma")) return skip("this processor has no FMA (Haswell of 2013 and later have it)");
    prove_flags("fp32", Op::fma, fp32_op<Op::fma>);
}

#else

TEST_CASE("hardware") { skip("F16C, AVX512_BF16 and AVX512_FP16 are instructions of x86-64"); }

#endif
