// formats/p3109.h against the report's operations on exact rationals: operands and results of different formats, one
// projection, in every rounding and saturation mode.
#include "p3109_modes.h"

#include <ampscope/formats/p3109_functions.h>

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;

namespace {

struct Operation {
    const char* name;
    Unpacked (*own)(const Unpacked&, const Unpacked&, const Unpacked&);
    Real (*theirs)(const Real&, const Real&, const Real&);
};

using U = const Unpacked&;
using R = const Real&;
constexpr auto number = ours::Prefer::number, finite = ours::Prefer::finite, propagate = ours::Prefer::none;

const Real one = report_of::number(1);

Real either(R x, R y, Real (*choose)(R, R)) { // the variants for numbers: section 4.11
    return x == report_of::nan ? y : y == report_of::nan ? x : choose(x, y);
}

const Operation operations[] = {
    {"Convert", [](U x, U, U) { return x; }, [](R x, R, R) { return x; }},
    {"Abs", [](U x, U, U) { return ours::abs(x); }, [](R x, R, R) { return report_of::absolute(x); }},
    {"Negate", [](U x, U, U) { return ours::negate(x); }, [](R x, R, R) { return x == report_of::nan ? x : -x; }},
    {"CopySign", [](U x, U y, U) { return ours::copy_sign(x, y); },
     [](R x, R y, R) {
         if (x == report_of::nan || y == report_of::nan) return report_of::nan;
         return report_of::sign(y) < 0 ? -report_of::absolute(x) : report_of::absolute(x);
     }},
    {"Add", [](U x, U y, U) { return ours::add(x, y); }, [](R x, R y, R) { return report_of::add(x, y); }},
    {"Subtract", [](U x, U y, U) { return ours::add(x, ours::negate(y)); },
     [](R x, R y, R) { return y == report_of::nan ? y : report_of::add(x, -y); }},
    {"Multiply", [](U x, U y, U) { return ours::multiply(x, y); },
     [](R x, R y, R) { return report_of::multiply(x, y); }},
    {"Divide", [](U x, U y, U) { return ours::divide(x, y); }, [](R x, R y, R) { return report_of::divide(x, y); }},
    {"Recip", [](U x, U, U) { return ours::recip(x); }, [](R x, R, R) { return report_of::divide(one, x); }},
    {"Sqrt", [](U x, U, U) { return ours::sqrt(x); }, [](R x, R, R) { return report_of::square_root(x); }},
    {"RSqrt", [](U x, U, U) { return apply(ours::Function::rsqrt, x); },
     [](R x, R, R) {
         if (x == report_of::nan || report_of::sign(x) <= 0) return report_of::nan;
         return report_of::square_root(report_of::divide(one, x));
     }},
    {"Hypot", [](U x, U y, U) { return ours::hypot(x, y); },
     [](R x, R y, R) {
         const Real a = report_of::absolute(x), b = report_of::absolute(y);
         return report_of::square_root(report_of::add(report_of::multiply(a, a), report_of::multiply(b, b)));
     }},
    {"Clamp", [](U x, U y, U z) { return ours::clamp(x, y, z); },
     [](R x, R y, R z) { return report_of::clamp(x, y, z); }},
    {"FMA", [](U x, U y, U z) { return ours::fma(x, y, z); },
     [](R x, R y, R z) { return report_of::add(report_of::multiply(x, y), z); }},
    {"FAA", [](U x, U y, U z) { return ours::faa(x, y, z); },
     [](R x, R y, R z) { return report_of::add(report_of::add(x, y), z); }},
    {"Minimum", [](U x, U y, U) { return ours::extremum(x, y, false, propagate); },
     [](R x, R y, R) { return report_of::minimum(x, y); }},
    {"Maximum", [](U x, U y, U) { return ours::extremum(x, y, true, propagate); },
     [](R x, R y, R) { return report_of::maximum(x, y); }},
    {"MinimumNumber", [](U x, U y, U) { return ours::extremum(x, y, false, number); },
     [](R x, R y, R) { return either(x, y, report_of::minimum); }},
    {"MaximumNumber", [](U x, U y, U) { return ours::extremum(x, y, true, number); },
     [](R x, R y, R) { return either(x, y, report_of::maximum); }},
    {"MinimumFinite", [](U x, U y, U) { return ours::extremum(x, y, false, finite); },
     [](R x, R y, R) { return report_of::minimum_finite(x, y); }},
    {"MaximumFinite", [](U x, U y, U) { return ours::extremum(x, y, true, finite); },
     [](R x, R y, R) { return report_of::maximum_finite(x, y); }},
    {"MinimumMagnitude", [](U x, U y, U) { return ours::extremum_magnitude(x, y, false, propagate); },
     [](R x, R y, R) { return report_of::minimum_magnitude(x, y); }},
    {"MaximumMagnitude", [](U x, U y, U) { return ours::extremum_magnitude(x, y, true, propagate); },
     [](R x, R y, R) { return report_of::maximum_magnitude(x, y); }},
    {"MinimumMagnitudeNumber", [](U x, U y, U) { return ours::extremum_magnitude(x, y, false, number); },
     [](R x, R y, R) { return either(x, y, report_of::minimum_magnitude); }},
    {"MaximumMagnitudeNumber", [](U x, U y, U) { return ours::extremum_magnitude(x, y, true, number); },
     [](R x, R y, R) { return either(x, y, report_of::maximum_magnitude); }}};

/// Codes of a block; NaN and infinities, which decide everything, only in every fourth block.
std::vector<std::uint32_t> elements(const Both& f, std::size_t size, std::uint64_t seed) {
    std::vector<std::uint32_t> codes;
    for (std::uint64_t i = 0; codes.size() < size; ++i) {
        const std::uint32_t code = f.code(mix(seed + i));
        if (seed % 4 == 0 || report_of::is_number(f.real(code))) codes.push_back(code);
    }
    return codes;
}

} // namespace

TEST_CASE("P3109 operations: all pairs of the formats that a conforming implementation has") {
    std::vector<Both> all = some_formats();
    all.erase(all.begin() + 3, all.end()); // Binary8p4se, Binary8p3se, Binary4p2sf: section 4.5
    constexpr std::uint64_t pairs = 65536;
    prove("P3109 operations, all pairs", all.size() * all.size() * pairs, [&](std::uint64_t i, Tally& tally) {
        const Both &x = all[i / pairs % 3], &y = all[i / pairs / 3];
        const auto a = static_cast<std::uint32_t>(i % 256), b = static_cast<std::uint32_t>(i / 256 % 256);
        if (a >= x.theirs.codes() || b >= y.theirs.codes()) return;
        const Operation& op = operations[mix(i) % std::size(operations)];
        const Both& to = all[mix(i + 1) % 3];
        const Mode m = mix(i) / 64 % 4 == 0
                           ? Mode{{}, report_of::Saturation::sat_none, {.overflow = Overflow::sat_none}}
                           : mode_at(mix(i) / 256);
        const std::uint32_t c = to.code(mix(i + 2));
        tally.expect(projection(to, m)(op.own(x.decode(a), y.decode(b), to.decode(c))),
                     project(to, m, op.theirs(x.real(a), y.real(b), to.real(c))), [&] {
                         return fmt::format("{} of {} {:#x}, {} {:#x}, {} {:#x}", op.name, x.own.name, a, y.own.name, b,
                                            to.own.name, c);
                     });
    });
}

TEST_CASE("P3109 operations: random operands of formats of every kind") {
    const std::vector<Both>& all = some_formats();
    constexpr std::uint64_t each = 12'000;
    prove("P3109 operations, sampled", std::size(operations) * each, [&](std::uint64_t i, Tally& tally) {
        const Operation& op = operations[i / each];
        const std::uint64_t h = mix(i);
        const Both &x = all[h % all.size()], &y = all[h / 16 % all.size()], &z = all[h / 256 % all.size()],
                   &to = all[h / 4096 % all.size()];
        const std::uint32_t a = x.code(mix(h)), b = y.code(mix(h + 1)), c = z.code(mix(h + 2));
        const Mode m = mode_at(mix(h + 3));
        tally.expect(projection(to, m)(op.own(x.decode(a), y.decode(b), z.decode(c))),
                     project(to, m, op.theirs(x.real(a), y.real(b), z.real(c))), [&] {
                         return fmt::format("{} of {} {:#x}, {} {:#x}, {} {:#x} to {}, mode {} saturation {}", op.name,
                                            x.own.name, a, y.own.name, b, z.own.name, c, to.own.name,
                                            int(m.rounding.name), int(m.saturation));
                     });
    });
}

TEST_CASE("P3109 blocks: conversion with the largest finite magnitude as scale, sums and dot products") {
    const std::vector<Both>& all = some_formats();
    prove("P3109 block operations", 6'000, [&](std::uint64_t i, Tally& tally) {
        const std::uint64_t h = mix(i);
        const Both &x = all[h % all.size()], &y = all[h / 16 % all.size()], &s = all[h / 256 % all.size()],
                   &to = all[h / 4096 % all.size()];
        const std::size_t size = 1 + h / 65536 % 40;
        const Mode scale_mode = mode_at(mix(h + 1)), mode = mode_at(mix(h + 2));
        const auto where = [&] {
            return fmt::format("block {} of {} x {}: {}, {} to {}", i, size, x.own.name, y.own.name, s.own.name,
                               to.own.name);
        };
        // 1. ConvertToBlockMaxAbsFinite.
        const std::vector<std::uint32_t> in = elements(x, size, h), other = elements(y, size, h / 2);
        std::vector<std::uint32_t> out(size);
        const std::uint32_t scale =
            ours::convert_to_block(x.own, in, projection(s, scale_mode), projection(to, mode), out);
        Real largest = report_of::nan;
        for (const std::uint32_t code : in)
            largest = report_of::maximum_finite(largest, report_of::absolute(x.real(code)));
        const std::uint32_t their_scale = project(s, scale_mode, largest);
        tally.expect(scale, their_scale, where);
        const Real divisor = s.real(their_scale);
        for (std::size_t j = 0; j < size; ++j) {
            const Real z = report_of::block_element(divisor, x.real(in[j]));
            tally.expect(out[j], project(to, mode, z), where);
        }
        // 2. Reductions, with scales of any kind.
        const std::uint32_t sx = s.code(mix(h + 3)), sy = to.code(mix(h + 4));
        const ours::Block bx{{s.own, sx}, x.own, in}, by{{to.own, sy}, y.own, other};
        Real sum = report_of::number(0), dot = sum, product = one;
        for (std::size_t j = 0; j < size; ++j) {
            const Real a = report_of::multiply(s.real(sx), x.real(in[j]));
            sum = report_of::add(sum, a);
            product = report_of::multiply(product, a);
            dot = report_of::add(dot, report_of::multiply(a, report_of::multiply(to.real(sy), y.real(other[j]))));
        }
        tally.expect(projection(to, mode)(ours::reduce_add(bx)), project(to, mode, sum), where);
        tally.expect(projection(to, mode)(ours::dot_product(bx, by)), project(to, mode, dot), where);
        tally.expect(projection(to, mode)(ours::reduce_multiply(bx)), project(to, mode, product), where);
        // 3. Elementwise: an operation of two operands, and the conversion to numbers.
        ours::block_operation([](U a, U b) { return ours::add(a, b); }, {s.own, their_scale}, projection(to, mode), out,
                              bx, by);
        std::vector<std::uint32_t> plain(size);
        ours::convert_from_block(bx, projection(to, mode), plain);
        for (std::size_t j = 0; j < size; ++j) {
            const Real a = report_of::multiply(s.real(sx), x.real(in[j])),
                       b = report_of::multiply(to.real(sy), y.real(other[j]));
            tally.expect(out[j], project(to, mode, report_of::block_element(divisor, report_of::add(a, b))), where);
            tally.expect(plain[j], project(to, mode, a), where);
        }
    });
}

TEST_CASE("P3109 comparisons and the total order: all pairs of formats of at most 8 bits") {
    std::vector<Both> small;
    for (const Both& f : some_formats())
        if (f.theirs.k <= 8) small.push_back(f);
    const std::uint64_t pairs = small.size() * small.size();
    prove("P3109 comparisons", pairs * 65536, [&](std::uint64_t i, Tally& tally) {
        const Both &x = small[i % small.size()], &y = small[i / small.size() % small.size()];
        const auto a = static_cast<std::uint32_t>(i / pairs % 256), b = static_cast<std::uint32_t>(i / pairs / 256);
        if (a >= x.theirs.codes() || b >= y.theirs.codes()) return;
        const Unpacked p = x.decode(a), q = y.decode(b);
        const Real &r = x.real(a), &t = y.real(b);
        const bool ordered = r != report_of::nan && t != report_of::nan;
        const bool below = ordered && report_of::less(r, t), above = ordered && report_of::less(t, r);
        const std::array own{
            ours::holds(ours::Comparison::less, p, q),    ours::holds(ours::Comparison::less_equal, p, q),
            ours::holds(ours::Comparison::equal, p, q),   ours::holds(ours::Comparison::greater_equal, p, q),
            ours::holds(ours::Comparison::greater, p, q), ours::total_order(p, q)};
        const std::array theirs{below,
                                ordered && !above,
                                ordered && r == t,
                                ordered && !below,
                                above,
                                r == report_of::nan || (ordered && !above)};
        for (std::size_t j = 0; j < own.size(); ++j)
            tally.expect(own[j], theirs[j],
                         [&] { return fmt::format("{} {:#x}, {} {:#x}: {}", x.own.name, a, y.own.name, b, j); });
    });
}

TEST_CASE("P3109 classes and neighbours: every code") {
    Tally tally;
    for (const Both& f : some_formats()) {
        std::vector<std::pair<report_of::Rational, std::uint32_t>> numbers; // in the order of values
        for (std::uint32_t code = 0; code < f.theirs.codes(); ++code)
            if (const Real r = f.real(code); report_of::is_number(r)) numbers.emplace_back(r.x, code);
        std::ranges::sort(numbers);
        std::vector<std::uint32_t> order; // from -infinity to infinity
        const std::uint32_t nan = report_of::encode(f.theirs, report_of::nan);
        if (f.theirs.extended && f.theirs.is_signed)
            order.push_back(report_of::encode(f.theirs, report_of::minus_infinity));
        for (const auto& [x, code] : numbers) order.push_back(code);
        if (f.theirs.extended) order.push_back(report_of::encode(f.theirs, report_of::plus_infinity));
        order.insert(order.begin(), nan);
        order.push_back(nan);
        const auto where = [&] { return f.own.name; };
        for (std::size_t i = 1; i + 1 < order.size(); ++i) {
            tally.expect(ours::next_greater_than({f.own, order[i]}), order[i + 1], where);
            tally.expect(ours::next_less_than({f.own, order[i]}), order[i - 1], where);
        }
        tally.expect(ours::next_greater_than({f.own, nan}), nan, where);
        tally.expect(ours::next_less_than({f.own, nan}), nan, where);
        for (std::uint32_t code = 0; code < f.theirs.codes(); ++code) {
            bool subnormal = false;
            const Real r = report_of::decode(f.theirs, code, &subnormal);
            const bool is_number = report_of::is_number(r), zero = is_number && r.x == 0,
                       minus = r != report_of::nan && report_of::sign(r) < 0;
            const ours::Value x{f.own, code};
            tally.expect(ours::is_zero(x), zero, where);
            tally.expect(ours::is_one(x), is_number && r.x == 1, where);
            tally.expect(ours::is_nan(x), r == report_of::nan, where);
            tally.expect(ours::is_infinite(x), !is_number && r != report_of::nan, where);
            tally.expect(ours::is_finite(x), is_number, where);
            tally.expect(ours::is_sign_minus(x), minus, where);
            tally.expect(ours::is_normal(x), is_number && !zero && !subnormal, where);
            tally.expect(ours::is_subnormal(x), subnormal, where);
            const int side = minus ? -1 : 1; // table 2 goes from NaN and -infinity to infinity, zero in the middle
            const int table = r == report_of::nan ? 0
                              : zero              ? 4
                              : !is_number        ? 4 + 3 * side
                                                  : 4 + (subnormal ? 1 : 2) * side;
            tally.expect(static_cast<int>(ours::classify(x)), table, where);
        }
    }
    report("P3109 classes and neighbours", tally);
}

TEST_CASE("P3109 exact sums: cancellation over the whole of FP32's range") {
    const FormatSpec fp32 = format("fp32");
    Tally tally;
    for (std::uint64_t i = 0; i < 2000; ++i) {
        ours::ExactSum sum;
        std::vector<std::uint32_t> codes;
        for (std::uint64_t j = 0; j < 9; ++j) codes.push_back(static_cast<std::uint32_t>(mix(16 * i + j)) % 0x7f800000);
        for (const std::uint32_t code : codes) sum.add(ours::decode({fp32, code}));
        for (std::size_t j = codes.size() - 1; j > 0; --j) sum.add(ours::decode({fp32, codes[j] | 0x80000000}));
        tally.expect(ours::Projection{fp32}(sum.total()), codes[0], [&] { return fmt::format("{}", i); });
        sum.add(ours::decode({fp32, codes[0] | 0x80000000}));
        tally.expect(ours::Projection{fp32}(sum.total()), 0U, [&] { return fmt::format("{}", i); });
    }
    report("P3109 exact sums that cancel", tally);
}
