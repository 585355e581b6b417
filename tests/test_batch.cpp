// The loops over arrays against the plain code: every format, rounding, overflow, subnormal and NaN policy, on every
// instruction set this processor has, whatever rounding mode and flush bits the caller has set.
#include "sweep.h"

#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/detail/convert.h>
#include <ampscope/sim/base/batch.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <random>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace amp;
using namespace amp::test;

namespace {

/// A caller's own environment: the i-th of the four rounding directions, with flush bits if i / 4 is odd.
class HostEnvironment {
  public:
    explicit HostEnvironment(unsigned i) {
        std::fegetenv(&saved_);
        constexpr int directions[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
        std::fesetround(directions[i % 4]);
#if defined(__x86_64__)
        if (i / 4 % 2 != 0) _mm_setcsr(_mm_getcsr() | 0x8040); // FTZ and DAZ
#endif
    }
    ~HostEnvironment() { std::fesetenv(&saved_); }
    HostEnvironment(const HostEnvironment&) = delete;
    HostEnvironment& operator=(const HostEnvironment&) = delete;

  private:
    std::fenv_t saved_{};
};

std::vector<InstructionSet> instruction_sets() {
    std::vector<InstructionSet> sets;
    for (int i = 0; i <= static_cast<int>(best_instruction_set()); ++i) sets.push_back(static_cast<InstructionSet>(i));
    return sets;
}

std::vector<FormatSpec> all_formats() {
    std::vector<FormatSpec> all(formats.begin(), formats.end());
    for (const char* name :
         {"e4m3ieee",    "e6m9",        "e2m1ieee",    "e2m23",        "e7m23",        "e7m22",  "e8m22",
          "e8m21",       "e8m1",        "e3m12",       "e7m1",         "e6m10",        "e5m11",  "binary8p3se",
          "binary8p1se", "binary8p3ue", "binary6p4uf", "binary16p8se", "binary12p5sf", "int8sym"})
        all.push_back(format(name));
    return all;
}

/// The i-th combination of rounding (fastest), overflow, subnormals, random bits and NaN rule.
constexpr unsigned policy_count = 7 * 6 * 4 * 4 * 5;
Policy policy_at(unsigned i) {
    Policy p;
    p.rounding = static_cast<Rounding>(i % 7);
    p.overflow = static_cast<Overflow>(i / 7 % 6);
    p.subnormals = static_cast<Subnormals>(i / 42 % 4);
    constexpr std::uint8_t bits[] = {32, 16, 8, 21};
    p.random_bits = bits[i / 168 % 4];
    p.nan = static_cast<NanRule>(i / 672);
    return p;
}

/// Values of every kind of code: all values of a format of up to 8 bits, the ends of every range of a wider one.
std::vector<float> values_of(const FormatSpec& f, std::size_t random_codes) {
    std::vector<std::uint32_t> codes;
    if (f.bits() <= 8) {
        for (std::uint32_t code = 0; code <= f.code_mask(); ++code) codes.push_back(code);
    } else {
        const std::uint32_t anchors[] = {0, f.min_normal_code(), f.max_code(), f.max_code() / 2,
                                         f.fraction_mask() / 2 + 1};
        for (const std::uint32_t anchor : anchors)
            for (std::uint32_t d = 0; d < 7; ++d) codes.push_back(anchor + d - 3);
        std::mt19937 random(static_cast<unsigned>(f.bits()));
        for (std::size_t i = 0; i < random_codes; ++i) codes.push_back(static_cast<std::uint32_t>(random()));
        for (std::size_t i = codes.size(); i-- > 0;) codes.push_back(codes[i] ^ f.sign_mask());
    }
    std::vector<float> values;
    for (const std::uint32_t code : codes) {
        const bool unused =
            f.negatives == Negatives::twos_complement_symmetric && (code & f.code_mask()) == f.sign_mask();
        if (!unused) values.push_back(decode(f, code & f.code_mask(), NanRule::payload));
    }
    return values;
}

/// The values, the midpoints between consecutive ones, the FP32 neighbours of both, and FP32's own special classes.
std::vector<float> conversion_samples(const FormatSpec& f) {
    std::vector<float> samples;
    const auto around = [&](float x) {
        const auto u = std::bit_cast<std::uint32_t>(x);
        for (std::uint32_t d = 0; d < 3; ++d) samples.push_back(std::bit_cast<float>(u + d - 1));
    };
    for (const float x : values_of(f, 60)) {
        around(x);
        if (!std::isfinite(x)) continue;
        const double next = decode(f, next_up(f, encode(f, x)));
        for (const double part : {0.25, 0.5, 0.75})
            if (std::isfinite(next)) around(static_cast<float>(x + (next - x) * part));
    }
    const double max = decode(f, f.max_code()), last = std::ldexp(1.0, f.max_exponent() - f.fraction_bits);
    for (const double beyond : {0.25, 0.5, 0.75, 1.0, 1.5, 2.0})
        for (const double sign : {-1.0, 1.0})
            around(static_cast<float>(sign * std::min(max + last * beyond, 3.4028234663852886e38)));
    const double first = std::ldexp(1.0, f.has_zero ? f.min_subnormal_exponent() : f.min_exponent());
    for (int e = 0; e < 40; ++e)
        for (const double m : {1.0, 1.5, -1.0, -1.5}) around(static_cast<float>(std::ldexp(first * m, -e)));
    constexpr std::uint32_t patterns[] = {0,          1,          2,          0x3fffff,   0x400000,   0x7fffff,
                                          0x800000,   0x800001,   0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fbfffff,
                                          0x7fc00000, 0x7fc12345, 0x7fffffff, 0x7fa00000};
    for (const std::uint32_t u : patterns)
        for (const std::uint32_t sign : {0U, 0x80000000U}) samples.push_back(std::bit_cast<float>(u | sign));
    std::mt19937 random(7);
    for (int i = 0; i < 300; ++i) samples.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    return samples;
}

template <class Real>
std::vector<std::uint32_t> plain_codes(const FormatSpec& f, const std::vector<Real>& in, const BatchOptions& o) {
    std::vector<std::uint32_t> codes(in.size());
    for (std::size_t i = 0; i < in.size(); ++i)
        codes[i] =
            encode(f, in[i], o.policy,
                   o.policy.rounding == Rounding::stochastic ? o.key.word(o.first_index + i, o.policy.random_bits) : 0);
    return codes;
}

template <class Out>
void check_round(const FormatSpec& f, const std::vector<float>& in, const std::vector<std::uint32_t>& codes,
                 const BatchOptions& o, detail::Execution execution, unsigned host, Tally& tally) {
    std::vector<Out> out(in.size());
    {
        const HostEnvironment environment(host);
        detail::round_array(f, in.data(), out.data(), in.size(), o, execution);
    }
    for (std::size_t i = 0; i < in.size(); ++i) {
        Out want{};
        if constexpr (std::is_same_v<Out, float>) want = decode(f, codes[i], o.policy.nan);
        else want = static_cast<Out>(codes[i]);
        tally.expect(out[i], want, [&] {
            return fmt::format(
                "{} e{}m{} of {}, rounding {}, overflow {}, subnormals {}, NaN {}, bits {}, set {}, host {}", f.name,
                f.exponent_bits, f.fraction_bits, Tally::show(in[i]), int(o.policy.rounding), int(o.policy.overflow),
                int(o.policy.subnormals), int(o.policy.nan), int(o.policy.random_bits), int(execution.set), host);
        });
    }
}

BatchOptions options_at(unsigned i) {
    return {policy_at(i), {.seed = 0x123456789abcdef0, .stream = 3, .step = 9}, 0xfffffffbULL + i % 11};
}

float plain_apply(Operation operation, const FormatSpec& f, float a, float b, float c, const Policy& policy) {
    Arithmetic unit{f, policy};
    const std::uint32_t x = encode(f, a), y = encode(f, b), z = encode(f, c);
    switch (operation) {
    case Operation::add: return decode(f, unit.add(x, y), policy.nan);
    case Operation::sub: return decode(f, unit.sub(x, y), policy.nan);
    case Operation::mul: return decode(f, unit.mul(x, y), policy.nan);
    case Operation::div: return decode(f, unit.div(x, y), policy.nan);
    case Operation::sqrt: return decode(f, unit.sqrt(x), policy.nan);
    case Operation::fma: return decode(f, unit.fma(x, y, z), policy.nan);
    }
    return 0;
}

/// Applies one operation under one policy to all pairs of the operands (and a varying third), on every instruction set.
void check_apply(Operation operation, const FormatSpec& f, const std::vector<float>& values, const Policy& policy,
                 unsigned host, Tally& tally) {
    std::vector<float> a, b, c, want;
    for (std::size_t i = 0; i < values.size(); ++i)
        for (std::size_t j = 0; j < (operation == Operation::sqrt ? 1 : values.size()); ++j) {
            a.push_back(values[i]);
            b.push_back(values[j]);
            c.push_back(values[(31 * i + 17 * j + i * j) % values.size()]);
            want.push_back(plain_apply(operation, f, a.back(), b.back(), c.back(), policy));
        }
    std::vector<float> out(a.size());
    for (const InstructionSet set : instruction_sets()) {
        {
            const HostEnvironment environment(host);
            detail::apply_array(operation, f, a.data(), b.data(), c.data(), out.data(), out.size(), {.policy = policy},
                                {.set = set});
        }
        for (std::size_t i = 0; i < a.size(); ++i)
            tally.expect(out[i], want[i], [&] {
                return fmt::format(
                    "{} e{}m{} operation {} of {}, {}, {}, rounding {}, subnormals {}, NaN {}, set {}, host {}", f.name,
                    f.exponent_bits, f.fraction_bits, int(operation), Tally::show(a[i]), Tally::show(b[i]),
                    Tally::show(c[i]), int(policy.rounding), int(policy.subnormals), int(policy.nan), int(set), host);
            });
    }
}

} // namespace

TEST_CASE("quantize and encode of class-complete samples under every policy") {
    const std::vector<FormatSpec> all = all_formats();
    std::vector<std::vector<float>> samples;
    for (const FormatSpec& f : all) samples.push_back(conversion_samples(f));
    prove("arrays: quantize and encode, formats x policies", all.size() * policy_count,
          [&](std::uint64_t i, Tally& tally) {
              const FormatSpec& f = all[i / policy_count];
              const std::vector<float>& in = samples[i / policy_count];
              const BatchOptions o = options_at(static_cast<unsigned>(i % policy_count));
              if (o.policy.rounding != Rounding::stochastic && o.policy.random_bits != 32) return;
              if (o.policy.projects() && o.policy.nan != NanRule::canonical) return; // P3109 has one NaN
              const std::vector<std::uint32_t> codes = plain_codes(f, in, o);
              auto host = static_cast<unsigned>(i + i / 8);
              for (const InstructionSet set : instruction_sets()) {
                  check_round<float>(f, in, codes, o, {.set = set, .streams = host % 2 != 0}, host, tally);
                  if (f.bits() <= 8) check_round<std::uint8_t>(f, in, codes, o, {.set = set}, ++host, tally);
                  if (f.bits() <= 16) check_round<std::uint16_t>(f, in, codes, o, {.set = set}, ++host, tally);
                  check_round<std::uint32_t>(f, in, codes, o, {.set = set}, ++host, tally);
              }
          });
}

TEST_CASE("quantize of doubles under every policy") {
    const std::vector<FormatSpec> all = all_formats();
    prove("arrays: quantize of doubles, formats x policies", all.size() * policy_count,
          [&](std::uint64_t i, Tally& tally) {
              const FormatSpec& f = all[i / policy_count];
              const BatchOptions o = options_at(static_cast<unsigned>(i % policy_count));
              if (o.policy.random_bits != 32) return;
              std::vector<double> in = {5e-324, -5e-324, 1e-310,   2.2250738585072014e-308, 1e300, -1e300,
                                        1e-40,  3.5e38,  -HUGE_VAL};
              for (const float x : values_of(f, 10)) {
                  const double exact = x;
                  for (const double y :
                       {exact, std::nextafter(exact, 1e300), std::nextafter(exact, -1e300), exact * 1.03125})
                      in.push_back(y);
                  if (!std::isfinite(x)) continue;
                  const double middle = (exact + decode(f, next_up(f, encode(f, x)))) / 2;
                  for (const double y : {middle, std::nextafter(middle, 1e300), std::nextafter(middle, -1e300)})
                      in.push_back(y);
              }
              const std::vector<std::uint32_t> codes = plain_codes(f, in, o);
              std::vector<float> out(in.size());
              for (const InstructionSet set : instruction_sets()) {
                  {
                      const HostEnvironment environment(static_cast<unsigned>(i));
                      detail::quantize_array(f, in.data(), out.data(), in.size(), o, {.set = set});
                  }
                  for (std::size_t j = 0; j < in.size(); ++j)
                      tally.expect(out[j], decode(f, codes[j], o.policy.nan), [&] {
                          return fmt::format("{} of {}, policy {}", f.name, Tally::show(in[j]), i % policy_count);
                      });
              }
          });
}

TEST_CASE("decode of every code up to 16 bits, and of samples of wider ones, with higher bits set") {
    const std::vector<FormatSpec> all = all_formats();
    prove("arrays: decode, formats x NaN rules", all.size() * 5, [&](std::uint64_t i, Tally& tally) {
        const FormatSpec& f = all[i / 5];
        const auto rule = static_cast<NanRule>(i % 5);
        std::vector<std::uint32_t> wide;
        for (std::uint32_t code = 0; code < 1 << 16; ++code)
            wide.push_back(f.bits() <= 16 ? code : code * 65537 + (code >> 3));
        const std::vector<std::uint16_t> middle(wide.begin(), wide.end());
        const std::vector<std::uint8_t> narrow(wide.begin(), wide.end());
        std::vector<float> out(wide.size());
        const auto check = [&](const auto& codes, detail::Execution execution) {
            {
                const HostEnvironment environment(static_cast<unsigned>(i));
                detail::decode_array(f, codes.data(), out.data(), codes.size(), rule, execution);
            }
            for (std::size_t j = 0; j < codes.size(); ++j)
                tally.expect(out[j], decode(f, codes[j], rule),
                             [&] { return fmt::format("{} code {:#x}", f.name, codes[j]); });
        };
        for (const InstructionSet set : instruction_sets()) {
            check(wide, {.set = set, .streams = true});
            check(middle, {.set = set});
            if (f.bits() <= 8) check(narrow, {.set = set});
        }
    });
}

TEST_CASE("arithmetic: all pairs of the 8-bit formats, samples of the wider ones") {
    const std::vector<FormatSpec> all = all_formats();
    constexpr unsigned cases = 6 * 6 * 4; // operation, rounding (all but stochastic), subnormals
    prove("arrays: arithmetic, formats x operations x policies", all.size() * cases,
          [&](std::uint64_t i, Tally& tally) {
              const FormatSpec& f = all[i / cases];
              const auto j = static_cast<unsigned>(i % cases);
              Policy policy{.rounding = static_cast<Rounding>(j / 6 % 6),
                            .overflow = static_cast<Overflow>(j % 3),
                            .subnormals = static_cast<Subnormals>(j / 36),
                            .nan = static_cast<NanRule>(i % 5)};
              const bool every_pair = f.bits() <= 8 && policy.subnormals == Subnormals::keep &&
                                      (policy.rounding == Rounding::nearest_even || f.bits() <= 6);
              std::vector<float> values = values_of(f, 10);
              if (!every_pair) { // about thirty pairs, always different ones
                  std::shuffle(values.begin(), values.end(), std::mt19937(j));
                  values.resize(std::min<std::size_t>(values.size(), 40));
              }
              check_apply(static_cast<Operation>(j % 6), f, values, policy, static_cast<unsigned>(i), tally);
          });
}

TEST_CASE("arithmetic with stochastic rounding draws the words of its elements") {
    const FormatSpec f = format("bf16");
    const BatchOptions o{{.rounding = Rounding::stochastic}, {.seed = 4, .stream = 1, .step = 2}, 77};
    const std::vector<float> a(1000, 1.0F), b(1000, 0.001953125F), none;
    std::vector<float> out(1000);
    apply(Operation::add, f, a, b, none, out, o);
    for (std::size_t i = 0; i < out.size(); ++i) {
        Arithmetic unit{f, o.policy, o.key.word(77 + i)};
        CHECK(out[i] == decode(f, unit.add(encode(f, 1.0F), encode(f, 0.001953125F))));
    }
}

TEST_CASE("every length up to 70, any alignment, in place") {
    const FormatSpec f = format("fp16");
    std::vector<float> in(80);
    for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = std::ldexp(1.0F + 0.013F * static_cast<float>(i), static_cast<int>(i % 40) - 26);
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::to_odd, Rounding::stochastic})
        for (const bool streams : {false, true})
            for (std::size_t offset = 0; offset < 5; ++offset)
                for (std::size_t n = 0; n <= 70; ++n) {
                    const BatchOptions o{{.rounding = rounding}, {.seed = 5}, offset};
                    std::vector<float> out(80, -1.0F), same = in;
                    detail::round_array(f, in.data() + offset, out.data() + 3 * offset % 7, n, o, {.streams = streams});
                    detail::round_array(f, same.data() + offset, same.data() + offset, n, o, {.streams = streams});
                    for (std::size_t i = 0; i < n; ++i) {
                        const float want = quantize(f, in[offset + i], o.policy, o.key.word(offset + i));
                        REQUIRE(out[3 * offset % 7 + i] == want);
                        REQUIRE(same[offset + i] == want);
                    }
                    REQUIRE(out[3 * offset % 7 + n] == -1.0F);
                    REQUIRE(same[offset + n] == in[offset + n]);
                }
}

TEST_CASE("arithmetic in place, and the shortest span bounds the work") {
    const FormatSpec f = format("e4m3");
    std::vector<float> a = {1, 2, 3, 4}, b = {1, 1, 1};
    apply(Operation::add, f, a, b, {}, a);
    CHECK(a == std::vector<float>{2, 3, 4, 4});
    apply(Operation::fma, f, a, a, std::vector<float>{1, 1}, a);
    CHECK(a == std::vector<float>{5, 10, 4, 4});
    apply(Operation::sqrt, f, a, {}, {}, std::span(a).subspan(0, 3));
    CHECK(a == std::vector<float>{2.25F, 3.25F, 2, 4});
}

TEST_CASE("threads do not change a bit") {
    constexpr std::size_t n = (std::size_t{1} << 19) + 12345;
    std::vector<float> in(n), one(n), many(n);
    std::mt19937 random(3);
    for (float& x : in) x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    const FormatSpec f = format("bf16");
    const BatchOptions o{{.rounding = Rounding::stochastic, .random_bits = 16}, {.seed = 8}, 3};
    quantize(f, in, one, o);
    for (const int threads : {1, 2, 3}) {
        std::fill(many.begin(), many.end(), 0.0F);
        quantize(f, in, many, o, threads);
        CHECK(std::equal(one.begin(), one.end(), many.begin(), [](float a, float b) { return Tally::same(a, b); }));
    }
    std::vector<std::uint16_t> codes(n), codes_many(n);
    encode(f, in, codes, o);
    encode(f, in, codes_many, o, 2);
    CHECK(codes == codes_many);
    decode(f, codes, one);
    decode(f, codes, many, NanRule::canonical, 2);
    CHECK(std::equal(one.begin(), one.end(), many.begin(), [](float a, float b) { return Tally::same(a, b); }));
    apply(Operation::mul, f, one, one, {}, in, {});
    apply(Operation::mul, f, one, one, {}, many, {}, 2);
    CHECK(std::equal(in.begin(), in.end(), many.begin(), [](float a, float b) { return Tally::same(a, b); }));
}

TEST_CASE("the caller's rounding mode and flush bits come back") {
    std::vector<float> x(3000, 1.1F);
    std::fesetround(FE_UPWARD);
    quantize(format("fp16"), x, x);
    apply(Operation::add, format("fp16"), x, x, {}, x);
    const int direction = std::fegetround();
    std::fesetround(FE_TONEAREST);
    CHECK(direction == FE_UPWARD);
}

#if defined(__x86_64__)
TEST_CASE("the best instruction set of this processor is the one that runs") {
    CHECK(best_instruction_set() == (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                                             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx2")
                                         ? InstructionSet::avx512
                                     : __builtin_cpu_supports("avx2") ? InstructionSet::avx2
                                                                      : InstructionSet::baseline));
    CHECK(detail::Execution{}.set == best_instruction_set());
}
#endif
