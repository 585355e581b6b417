// What an all-reduce computes of one element, from the definition of each algorithm: exact rationals, rounded hop by
// hop. It knows no schedule and no code of sim/ but the names of the algorithms.
#pragma once

#include "oracle_arithmetic.h"

#include <ampscope/formats/block.h>
#include <ampscope/sim/program/collective.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

namespace amp::test {

using Numbers = std::vector<float>;

/// Arithmetic in a format, each result the exact one rounded once.
struct Exactly {
    std::string_view format = "fp32";
    Policy policy{};

    [[nodiscard]] float stored(const oracle::Number& x) const {
        const oracle::Facts& f = oracle::find(format);
        return oracle::to_float(f, oracle::store({f, policy}, x).code);
    }
    [[nodiscard]] float stored(float x) const { return stored(oracle::read(x)); }
    template <class F>
    [[nodiscard]] float of(float x, float y, const F& f) const {
        const oracle::Number a = oracle::read(x), b = oracle::read(y);
        const bool nan = a.kind == oracle::Class::nan || b.kind == oracle::Class::nan;
        return stored(nan ? oracle::quiet_nan() : f(a, b).x);
    }
    [[nodiscard]] float sum(float x, float y) const {
        const oracle::Context context{oracle::find(format), policy};
        return of(x, y, [&](const auto& a, const auto& b) { return oracle::detail::sum(context, a, b); });
    }
    [[nodiscard]] float quotient(float x, float y) const { return of(x, y, oracle::detail::quotient); }
    [[nodiscard]] float product(float x, float y) const { return of(x, y, oracle::detail::product); }

    /// The sum of all, rounded once. Infinities of both signs make a NaN.
    [[nodiscard]] float sum_of(const Numbers& all) const {
        if (all.size() == 1) return all[0];
        bool nan = false, up = false, down = false;
        oracle::Integer units = 0; // of 2^-149
        for (const float x : all) {
            nan = nan || std::isnan(x);
            up = up || x == HUGE_VALF;
            down = down || x == -HUGE_VALF;
            const oracle::Number n = oracle::read(x);
            if (n.kind == oracle::Class::finite) units += oracle::detail::in_units(n, -149);
        }
        if (nan || (up && down)) return stored(oracle::quiet_nan());
        if (up || down) return stored(down ? -HUGE_VALF : HUGE_VALF);
        return stored(oracle::detail::from_units(units, -149));
    }
};

/// What the definitions below know of an all-reduce.
struct Definition {
    AllReduceOrder order;
    Exactly math;

    /// The sum of neighbours in pairs, then of pairs of neighbours.
    [[nodiscard]] float in_pairs(Numbers x) const {
        while (x.size() > 1) {
            Numbers next;
            for (std::size_t i = 0; i < x.size(); i += 2)
                next.push_back(i + 1 < x.size() ? math.sum(x[i], x[i + 1]) : x[i]);
            x = next;
        }
        return x[0];
    }
    /// Beyond a power of two the first are paired, so that as many remain.
    [[nodiscard]] float paired_first(const Numbers& x) const {
        std::size_t power = 1;
        while (2 * power <= x.size()) power *= 2;
        const std::size_t paired = x.size() - power;
        Numbers rest;
        for (std::size_t i = 0; i < x.size(); ++i) {
            if (i >= 2 * paired) rest.push_back(x[i]);
            else if (i % 2 == 1) rest.push_back(math.sum(x[i], x[i - 1]));
        }
        return in_pairs(rest);
    }
    [[nodiscard]] float around(const Numbers& x, std::size_t first) const {
        float sum = x[first % x.size()];
        for (std::size_t i = 1; i < x.size(); ++i) sum = math.sum(sum, x[(first + i) % x.size()]);
        return sum;
    }
    /// The sum of what replicas send of an element of that chunk.
    [[nodiscard]] float sum(const Numbers& x, std::size_t chunk) const {
        switch (order) {
        case AllReduceOrder::ring: return around(x, chunk + 1);
        case AllReduceOrder::tree: return in_pairs(x);
        case AllReduceOrder::halving_doubling:
        case AllReduceOrder::doubling: return paired_first(x);
        case AllReduceOrder::one_shot:
        case AllReduceOrder::all_to_all: {
            float sum = x[0];
            for (std::size_t i = 1; i < x.size(); ++i) sum = Exactly{}.sum(sum, x[i]);
            return x.size() == 1 ? sum : math.stored(sum);
        }
        case AllReduceOrder::exact: return math.sum_of(x);
        }
        return 0;
    }
};

/// The message of a chunk as it is read, from the definitions: of MXFP8 (OCP MX 1.0), and for other blocks with the
/// scales of formats/, which test_block.cpp proves.
inline void cast_message(const BlockSpec& spec, float* x, std::size_t count) {
    const Exactly element{spec.element.name, {.overflow = Overflow::saturate_all}};
    const std::size_t width = spec.columns == 0 ? count : static_cast<std::size_t>(spec.columns);
    const bool mx = spec.rule == ScaleRule::mx_floor;
    const int largest = std::ilogb(oracle::find(spec.element.name).max);
    const auto amax_of = [&](std::size_t begin, std::size_t end) {
        float most = 0;
        for (std::size_t i = begin; i < end; ++i)
            if (std::isnan(x[i]) ? mx : std::fabs(x[i]) > most) most = std::isnan(x[i]) ? x[i] : std::fabs(x[i]);
            else if (std::isnan(most)) break;
        return most;
    };
    const float upper = amax_of(0, count);
    for (std::size_t begin = 0; begin < count; begin += width) {
        const std::size_t end = std::min(begin + width, count);
        const float amax = amax_of(begin, end);
        BlockScale scale;
        if (mx && std::isfinite(amax)) {
            const int e = std::clamp(amax == 0 ? -127 : std::ilogb(amax) - largest, -127, 127);
            scale = {.encode = std::ldexp(1.0F, -e), .decode = std::ldexp(1.0F, e)};
        } else {
            scale = block_scale(spec.rule, spec.element, amax, nvfp4_tensor_scale(upper));
        }
        for (std::size_t i = begin; i < end; ++i) {
            const float q = element.stored(Exactly{}.product(x[i], scale.encode));
            float factor = scale.decode;
            if (spec.rule == ScaleRule::nvfp4)
                factor = Exactly{}.product(Exactly{}.product(factor, upper), Exactly{}.quotient(1, 2688));
            x[i] = Exactly{}.product(q, factor);
        }
    }
}

} // namespace amp::test
