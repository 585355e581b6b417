// formats/p3109_functions.h against mpmath's results, of which data/p3109/functions.txt has hashes (functions.py: 63
// bits and a sticky one), and their projections in every rounding and saturation mode against oracle_p3109.h.
#include "p3109_modes.h"
#include "recordings.h"

#include <ampscope/formats/p3109_functions.h>

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;
using ours::Function;

namespace {

Unpacked sample(std::uint32_t i) { return ours::decode({fp32_format(), mixed(i)}); }

/// What a line's operands are: all codes of a format, or numbers made from FP32's.
Unpacked operand(const std::string& operands, std::uint32_t i) {
    if (operands == "fp32") return sample(i);
    if (operands != "fp32*fp32") return ours::decode({format(operands), i});
    const Unpacked x = sample(2 * i), y = sample(2 * i + 1);
    return x.kind == Kind::infinity || y.kind == Kind::infinity ? ours::nan : ours::multiply(x, y);
}

Unpacked result_of(const std::string& function, const std::string& operands, std::uint32_t i) {
    const std::size_t comma = operands.find(',');
    if (comma == std::string::npos) {
        const auto* row = std::ranges::find(ours::functions, function, &ours::FunctionRow::name);
        return apply(static_cast<Function>(row - ours::functions), operand(operands, i));
    }
    const bool sampled = operands == "fp32,fp32";
    const Unpacked y = sampled ? sample(2 * i) : operand(operands.substr(0, comma), i >> 8),
                   x = sampled ? sample(2 * i + 1) : operand(operands.substr(comma + 1), i & 255);
    return function == "Hypot" ? ours::hypot(y, x) : ours::arc_tan2(y, x, function == "ArcTan2Pi");
}

/// Adds the kind, the leading exponent and the bits of a result, as the script has them.
void add_to(std::uint64_t& hash, const Unpacked& u) {
    const int zeros = std::countl_zero(u.significand), leading = u.exponent + 63 - zeros;
    const std::uint64_t sign = u.sign ? 1 : 0;
    std::array<std::uint64_t, 3> words{};
    switch (u.kind) {
    case Kind::zero: break;
    case Kind::infinity: words[0] = 1 + sign; break;
    case Kind::nan: words[0] = 3; break;
    case Kind::finite:
        if (leading >= 32768) words[0] = 4 + sign;
        else if (leading <= -32768) words[0] = 6 + sign;
        else words = {8 + sign, static_cast<std::uint64_t>(leading), u.significand << zeros};
    }
    for (const std::uint64_t word : words) hash = fnv_step(hash, word);
}

/// The datum as a rational number: one between the two that a sticky last bit leaves open.
Real real_of(const Unpacked& u) {
    if (u.is_nan()) return report_of::nan;
    if (u.kind == Kind::infinity) return report_of::infinite(u.sign ? -1 : 1);
    const int exponent = std::clamp(u.exponent, -4000, 4000); // beyond all formats it makes no difference
    const report_of::Rational x = report_of::Rational(u.significand) * report_of::power_of_two(exponent);
    return report_of::number(u.sign ? report_of::Rational(-x) : x);
}

} // namespace

TEST_CASE("P3109 functions: 63 bits of all results, as mpmath has them") {
    const std::vector<RecordedHash> lines = recorded_hashes("p3109/functions.txt");
    REQUIRE(lines.size() == std::size(ours::functions) * 9 + 9);
    std::atomic<std::uint64_t> results = 0;
    prove("P3109 functions, recorded hashes", lines.size(), [&](std::uint64_t i, Tally& tally) {
        const RecordedHash& line = lines[i];
        const bool unary = line.second.find(',') == std::string::npos;
        REQUIRE(unary == (std::ranges::count(ours::functions, line.first, &ours::FunctionRow::name) == 1));
        std::uint64_t hash = fnv_begin;
        for (std::uint32_t j = 0; j < line.count; ++j) add_to(hash, result_of(line.first, line.second, j));
        tally.expect(hash, line.hash, [&] { return fmt::format("{} of {}", line.first, line.second); });
        results += line.count;
    });
    CHECK(results == 26 * (65536 + 40000 + 4096 + 3 * 256 + 64 + 16) + 3 * (2 * 65536 + 20000));
}

TEST_CASE("P3109 functions: projections in every mode") {
    const std::vector<Both>& all = some_formats();
    constexpr std::uint64_t each = 4'000;
    prove("P3109 functions, projected", std::size(ours::functions) * each, [&](std::uint64_t i, Tally& tally) {
        const std::uint64_t h = mix(i);
        const Both &x = all[h % all.size()], &to = all[h / 16 % all.size()];
        const std::uint32_t code = x.code(mix(h));
        const Mode m = mode_at(mix(h + 1));
        const Unpacked result = apply(static_cast<Function>(i / each), x.decode(code));
        tally.expect(projection(to, m)(result), project(to, m, real_of(result)), [&] {
            return fmt::format("{} of {} {:#x} to {}, mode {} saturation {}", ours::functions[i / each].name,
                               x.own.name, code, to.own.name, int(m.rounding.name), int(m.saturation));
        });
    });
}
