// codec.h against the exact oracle: every code of every format, conversions between all formats, and from float and
// double at every boundary, in every mode and under every policy, flags included.
#include "cases.h"

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;

namespace {

/// Compares values, not bits: -0 equals +0 here, and all NaNs are equal.
bool same_value(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

template <class T>
void check_encode(const FormatSpec& format, const Facts& facts, T x, const Policy& policy, std::uint32_t random,
                  Tally& tally) {
    Flags flags;
    const std::uint32_t code = encode(format, x, policy, random, flags);
    tally.expect(oracle::Outcome{code, flags.bits}, oracle::convert({facts, policy, random}, oracle::read(x)),
                 [&] { return fmt::format("{} of {} {}", facts.name, Tally::show(x), describe(policy, random)); });
}

} // namespace

TEST_CASE("every row of the table is known to the oracle") {
    for (const FormatSpec& f : formats) CHECK(oracle::find(f.name).bits() == f.bits());
}

TEST_CASE("every code decodes to its value and comes back") {
    for (const Facts& facts : oracle::facts) {
        if (facts.bits() > 19) continue;
        const FormatSpec f = format(facts.name);
        prove(fmt::format("{} decode and round trip", facts.name), std::uint64_t{1} << facts.bits(),
              [&](std::uint64_t i, Tally& tally) {
                  const auto code = static_cast<std::uint32_t>(i);
                  const auto where = [&] { return fmt::format("{} code {:#x}", facts.name, code); };
                  const float value = decode(f, code);
                  tally.expect(value, oracle::to_float(facts, code), where);
                  tally.expect(decode(f, code | ~f.code_mask()), oracle::to_float(facts, code),
                               where); // higher bits are ignored
                  if (oracle::is_unused(facts, code)) return;
                  const bool is_nan = oracle::read(facts, code).kind == oracle::Class::nan;
                  tally.expect(encode(f, value), is_nan ? facts.nan : code, where);
                  tally.expect(encode(f, double{value}), is_nan ? facts.nan : code, where);
              });
    }
}

TEST_CASE("next_up and next_down walk through the values in order") {
    for (const Facts& facts : oracle::facts) {
        if (facts.bits() > 19) continue;
        const FormatSpec f = format(facts.name);
        Tally tally;
        // The values in order, from the oracle; -0 and +0 count once.
        std::vector<float> values;
        for (std::uint32_t code = 0; code < std::uint32_t{1} << facts.bits(); ++code)
            if (const float v = oracle::to_float(facts, code); !std::isnan(v) && !oracle::is_unused(facts, code))
                values.push_back(v);
        std::sort(values.begin(), values.end());
        values.erase(std::unique(values.begin(), values.end()), values.end());
        for (std::uint32_t code = 0; code < std::uint32_t{1} << facts.bits(); ++code) {
            if (oracle::is_unused(facts, code)) continue;
            const auto where = [&] { return fmt::format("{} code {:#x}", facts.name, code); };
            const float v = oracle::to_float(facts, code);
            const auto here = std::lower_bound(values.begin(), values.end(), v);
            const float up = std::isnan(v) || here + 1 == values.end() ? v : here[1];
            const float down = std::isnan(v) || here == values.begin() ? v : here[-1];
            tally.expect(same_value(oracle::to_float(facts, next_up(f, code)), up), true, where);
            tally.expect(same_value(oracle::to_float(facts, next_down(f, code)), down), true, where);
        }
        report(fmt::format("{} next_up and next_down", facts.name), tally);
    }
}

TEST_CASE("float and double into every format at every boundary") {
    for (const Facts& facts : oracle::facts) {
        const FormatSpec f = format(facts.name);
        const std::vector<double> values = telling_values(facts, telling_indices(facts));
        // Every rounding is combined with some overflow, subnormal and tininess choice, which varies from value to
        // value.
        prove(fmt::format("float and double to {} at every boundary", facts.name), values.size() * roundings.size(),
              [&](std::uint64_t i, Tally& tally) {
                  const double x = values[i / roundings.size()];
                  const std::uint64_t h = mix(i);
                  const Policy policy =
                      policy_at(h % (policy_count / roundings.size()) * roundings.size() + i % roundings.size());
                  check_encode(f, facts, x, policy, random_word(h), tally);
                  check_encode(f, facts, x, {.rounding = policy.rounding}, random_word(h), tally);
                  if (const auto y = static_cast<float>(x); double{y} == x)
                      check_encode(f, facts, y, policy, random_word(h), tally);
              });
    }
}

TEST_CASE("all policies at the ends of every format") {
    for (const Facts& facts : oracle::facts) {
        const FormatSpec f = format(facts.name);
        const std::uint64_t last = oracle::max_index(facts);
        const std::uint64_t normal = std::uint64_t{1} << facts.fraction_bits;
        const std::vector<double> values = telling_values(facts, {0, 1, normal - 1, normal, last, last + 1});
        constexpr std::uint64_t policies = policy_count / 5; // without the NaN rules
        prove(fmt::format("all policies at the ends of {}", facts.name), values.size() * policies,
              [&](std::uint64_t i, Tally& tally) {
                  if (!is_first_of_its_kind(policy_at(i % policies))) return;
                  check_encode(f, facts, values[i / policies], policy_at(i % policies), random_word(i), tally);
                  if (const auto y = static_cast<float>(values[i / policies]); double{y} == values[i / policies])
                      check_encode(f, facts, y, policy_at(i % policies), random_word(i), tally);
              });
    }
}

TEST_CASE("NaN and infinity into every format under every policy") {
    Tally tally;
    for (const Facts& facts : oracle::facts) {
        const FormatSpec f = format(facts.name);
        for (std::uint64_t p = 0; p < policy_count; ++p) {
            if (!is_first_of_its_kind(policy_at(p))) continue;
            for (const std::uint32_t bits : nan_bits) {
                check_encode(f, facts, std::bit_cast<float>(bits), policy_at(p), 0, tally);
                // Same sign, quiet bit and leading payload, with a payload that only a double can hold.
                for (const std::uint64_t low : {std::uint64_t{0}, std::uint64_t{1}})
                    check_encode(f, facts,
                                 std::bit_cast<double>((std::uint64_t{bits} >> 31 << 63) | std::uint64_t{0x7ff} << 52 |
                                                       std::uint64_t{bits & 0x7fffff} << 29 | low),
                                 policy_at(p), 0, tally);
            }
            for (const float inf : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
                check_encode(f, facts, inf, policy_at(p), 0, tally);
                check_encode(f, facts, double{inf}, policy_at(p), 0, tally);
            }
        }
    }
    report("NaN and infinity into every format", tally);
}

TEST_CASE("conversions between any two formats") {
    for (const Facts& from : oracle::facts) {
        if (from.bits() > 16) continue;
        const FormatSpec source = format(from.name);
        const std::uint64_t codes = std::uint64_t{1} << from.bits();
        prove(fmt::format("{} to every format", from.name), codes * oracle::facts.size(),
              [&](std::uint64_t i, Tally& tally) {
                  const Facts& facts = oracle::facts[i / codes];
                  const auto code = static_cast<std::uint32_t>(i % codes);
                  const FormatSpec f = format(facts.name);
                  const std::uint64_t h = mix(i);
                  for (const Policy& policy : {Policy{}, policy_at(h % policy_count)}) {
                      Flags flags;
                      const std::uint32_t got = convert(source, code, f, policy, random_word(h), flags);
                      tally.expect(oracle::Outcome{got, flags.bits},
                                   oracle::convert({facts, policy, random_word(h)}, oracle::read(from, code)), [&] {
                                       return fmt::format("{} {:#x} to {} {}", from.name, code, facts.name,
                                                          describe(policy, random_word(h)));
                                   });
                  }
              });
    }
}

TEST_CASE("quantize is encode and decode") {
    for (const Facts& facts : oracle::facts) {
        const FormatSpec f = format(facts.name);
        Tally tally;
        for (const double x : telling_values(facts, {0, 1, oracle::max_index(facts)})) {
            const std::uint32_t code = oracle::convert({facts}, oracle::read(x)).code;
            tally.expect(quantize(f, x), oracle::to_float(facts, code), [&] { return fmt::format("{:a}", x); });
        }
        for (const std::uint32_t bits : nan_bits) {
            const float want = facts.has_nan() ? std::bit_cast<float>(0x7fc00000) : static_cast<float>(facts.max);
            tally.expect(std::bit_cast<std::uint32_t>(quantize(f, std::bit_cast<float>(bits))),
                         std::bit_cast<std::uint32_t>(want), [&] { return fmt::format("{:#x}", bits); });
        }
        report(fmt::format("quantize to {}", facts.name), tally);
    }
}
