// Formats, rounding modes and saturations of IEEE P3109, each as policy.h and as oracle_p3109.h have it.
#pragma once

#include "cases.h"
#include "oracle_p3109.h"

#include <ampscope/formats/p3109.h>

namespace amp::test {

namespace report_of = oracle::p3109;
namespace ours = amp::p3109;
using report_of::Real;

/// A format under both descriptions.
struct Both {
    report_of::Format theirs;
    FormatSpec own = format(theirs.name());
    report_of::Range range{theirs};
    std::vector<Real> reals{}; ///< what each code stands for

    Both(int k, int p, bool is_signed, bool extended) : theirs{k, p, is_signed, extended} {
        for (std::uint32_t code = 0; code < theirs.codes(); ++code) reals.push_back(report_of::decode(theirs, code));
    }
    Unpacked decode(std::uint32_t code) const { return ours::decode({own, code}); }
    const Real& real(std::uint32_t code) const { return reals[code]; }
    std::uint32_t code(std::uint64_t random) const { return static_cast<std::uint32_t>(random % theirs.codes()); }
};

inline const std::vector<Both>& some_formats() {
    static const std::vector<Both> some = {{8, 4, true, true},   {8, 3, true, true},   {4, 2, true, false},
                                           {8, 1, false, false}, {6, 1, true, true},   {5, 3, false, true},
                                           {12, 7, true, false}, {16, 11, true, true}, {8, 7, true, true}};
    return some;
}

struct Mode {
    report_of::Mode rounding;
    report_of::Saturation saturation;
    Policy policy;
    std::uint32_t word = 0;
};

inline Mode mode_at(std::uint64_t i) {
    constexpr Rounding own[] = {Rounding::nearest_even, Rounding::nearest_away, Rounding::up,
                                Rounding::down,         Rounding::toward_zero,  Rounding::to_odd};
    const auto name = static_cast<int>(i % 9), saturation = static_cast<int>(i / 9 % 3);
    Mode m{{static_cast<report_of::Mode::Name>(name)},
           static_cast<report_of::Saturation>(saturation),
           {.overflow = static_cast<Overflow>(static_cast<int>(Overflow::sat_finite) + saturation)}};
    if (name < 6) m.policy.rounding = own[name];
    else {
        const auto bits = static_cast<std::uint8_t>(1 + i / 27 % 11);
        const std::uint32_t last = (1U << bits) - 1, random = static_cast<std::uint32_t>(mix(i)) & last;
        m.policy.rounding = Rounding::stochastic;
        m.policy.variant = static_cast<StochasticVariant>(name - 6);
        m.policy.random_bits = bits;
        m.rounding.bits = bits;
        m.rounding.random = random;
        m.word = last - random;
    }
    return m;
}

inline std::uint32_t project(const Both& f, const Mode& m, const Real& x) {
    return report_of::encode(f.theirs, report_of::saturate(f.theirs, m.saturation, m.rounding.name,
                                                           report_of::round_to_precision(f.theirs, m.rounding, x),
                                                           f.range.low, f.range.high));
}
inline ours::Projection projection(const Both& f, const Mode& m) { return {f.own, m.policy, m.word}; }

} // namespace amp::test
