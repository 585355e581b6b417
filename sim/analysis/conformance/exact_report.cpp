// The operations of IEEE P3109 v4.0 a second time, pattern by pattern on exact numbers, where formats/p3109.h has them
// on codes taken apart.
#include <ampscope/sim/analysis/conformance/exact_outcome.h>

#include <algorithm>
#include <variant>

namespace amp::exact {

namespace {

using N = const Number&;

const Number nan_number{.kind = Class::nan};
const Number one_number{.kind = Class::finite, .numerator = 1};

bool any_nan(N x, N y) { return x.kind == Class::nan || y.kind == Class::nan; }
Number with_sign(Number x, bool negative) {
    x.negative = negative && x.kind != Class::nan;
    return x;
}
Number negated(N x) { return with_sign(x, !x.negative); }
Number absolute(N x) { return with_sign(x, false); }

Number report_sum(N x, N y) { return any_nan(x, y) ? nan_number : sum(x, y, Rounding::nearest_even).x; }
Number report_product(N x, N y) { return any_nan(x, y) ? nan_number : product(x, y).x; }
Number report_quotient(N x, N y) {
    return any_nan(x, y) || y.kind == Class::zero ? nan_number : quotient(x, y).x; // x / 0 is NaN for every x
}

Number report_root(Number x) {
    if (x.kind == Class::finite && x.negative) return nan_number;
    if (x.kind == Class::infinity && x.negative) return nan_number;
    x.root = x.kind == Class::finite;
    return x;
}

/// -1, 0 or 1 for x below, equal to or above y, which are no NaN.
int order(N x, N y) {
    const Number difference = report_sum(x, negated(y));
    if (difference.kind == Class::zero || difference.kind == Class::nan) return 0; // NaN: infinities of one sign
    return difference.negative ? -1 : 1;
}

Number arc_tangent(N y, N x, bool over_pi) {
    if (any_nan(x, y) || (x.kind == y.kind && x.kind != Class::finite)) return nan_number;
    const Number none{};
    if (x.kind == Class::infinity) return x.negative ? angle(none, negated(one_number), over_pi) : none;
    if (y.kind == Class::infinity) return angle(with_sign(one_number, y.negative), none, over_pi);
    if (y.kind == Class::zero && !x.negative) return none;
    return angle(y, x, over_pi);
}

/// Bounds may be infinities of one sign, and are then the result.
Number clamped(N x, N low, N high) {
    if (any_nan(x, low) || high.kind == Class::nan || order(high, low) < 0) return nan_number;
    return order(x, low) < 0 ? low : order(high, x) < 0 ? high : x;
}

/// Which operand the extrema of section 4.11 take.
struct Extremum {
    bool largest;
    enum Among : std::uint8_t { all, numbers, finite } among = all;
    bool by_magnitude = false;

    Number operator()(N x, N y) const {
        if (any_nan(x, y)) return among == all ? nan_number : x.kind == Class::nan ? y : x;
        if (among == finite && x.kind == Class::infinity && y.kind != Class::infinity) return y;
        if (among == finite && y.kind == Class::infinity && x.kind != Class::infinity) return x;
        int which = by_magnitude ? order(absolute(x), absolute(y)) : 0;
        if (which == 0) which = order(x, y);
        return (which > 0) == largest ? x : y;
    }
};

using Rule = Number (*)(N, N, N);
struct ReportRow {
    std::string_view name;
    std::variant<Rule, Extremum> rule;
};

const ReportRow report_rows_exact[] = {
    {"Abs", [](N x, N, N) { return absolute(x); }},
    {"Negate", [](N x, N, N) { return negated(x); }},
    {"CopySign", [](N x, N y, N) { return any_nan(x, y) ? nan_number : with_sign(x, y.negative); }},
    {"Add", [](N x, N y, N) { return report_sum(x, y); }},
    {"Subtract", [](N x, N y, N) { return report_sum(x, negated(y)); }},
    {"Multiply", [](N x, N y, N) { return report_product(x, y); }},
    {"Divide", [](N x, N y, N) { return report_quotient(x, y); }},
    {"Recip", [](N x, N, N) { return report_quotient(one_number, x); }},
    {"Sqrt", [](N x, N, N) { return report_root(x); }},
    {"Hypot", [](N x, N y, N) { return report_root(report_sum(report_product(x, x), report_product(y, y))); }},
    {"FMA", [](N x, N y, N z) { return report_sum(report_product(x, y), z); }},
    {"FAA", [](N x, N y, N z) { return report_sum(report_sum(x, y), z); }},
    {"ArcTan2", [](N y, N x, N) { return arc_tangent(y, x, false); }},
    {"ArcTan2Pi", [](N y, N x, N) { return arc_tangent(y, x, true); }},
    {"Clamp", clamped},
    {"Minimum", Extremum{false}},
    {"Maximum", Extremum{true}},
    {"MinimumNumber", Extremum{false, Extremum::numbers}},
    {"MaximumNumber", Extremum{true, Extremum::numbers}},
    {"MinimumFinite", Extremum{false, Extremum::finite}},
    {"MaximumFinite", Extremum{true, Extremum::finite}},
    {"MinimumMagnitude", Extremum{false, Extremum::all, true}},
    {"MaximumMagnitude", Extremum{true, Extremum::all, true}},
    {"MinimumMagnitudeNumber", Extremum{false, Extremum::numbers, true}},
    {"MaximumMagnitudeNumber", Extremum{true, Extremum::numbers, true}},
};

/// Section 4.13.1, table 2.
std::uint32_t class_of(N x) {
    const bool normal = !x.subnormal;
    switch (x.kind) {
    case Class::nan: return 0;
    case Class::infinity: return x.negative ? 1 : 7;
    case Class::zero: return 4;
    case Class::finite: break;
    }
    if (x.negative) return normal ? 2 : 3;
    return normal ? 6 : 5;
}

/// The nearest number of the format above x or below it; NaN where there is none. Codes count up from 0, and those of
/// negative numbers from the first one down, so that a neighbour is beside x or the first of either kind.
Number neighbour(const FormatSpec& f, N x, bool above) {
    if (x.kind == Class::nan) return x;
    const std::uint32_t code = store(f, {}, x).code;
    Number nearest = nan_number;
    for (const std::uint32_t other : {code + 1, code - 1, 0U, 1U, f.sign_mask() + 1}) {
        const Number y = read(f, other & f.code_mask());
        if (y.kind == Class::nan || order(y, x) != (above ? 1 : -1)) continue;
        if (nearest.kind == Class::nan || order(nearest, y) == (above ? 1 : -1)) nearest = y;
    }
    return nearest;
}

struct TruthRow {
    std::string_view name;
    std::uint32_t (*rule)(N, N);
};

constexpr TruthRow truth_rows[] = {
    {"CompareLess", [](N x, N y) -> std::uint32_t { return !any_nan(x, y) && order(x, y) < 0; }},
    {"CompareLessEqual", [](N x, N y) -> std::uint32_t { return !any_nan(x, y) && order(x, y) <= 0; }},
    {"CompareEqual", [](N x, N y) -> std::uint32_t { return !any_nan(x, y) && order(x, y) == 0; }},
    {"CompareGreaterEqual", [](N x, N y) -> std::uint32_t { return !any_nan(x, y) && order(x, y) >= 0; }},
    {"CompareGreater", [](N x, N y) -> std::uint32_t { return !any_nan(x, y) && order(x, y) > 0; }},
    {"TotalOrder",
     [](N x, N y) -> std::uint32_t { return x.kind == Class::nan || (y.kind != Class::nan && order(x, y) <= 0); }},
    {"IsZero", [](N x, N) -> std::uint32_t { return x.kind == Class::zero; }},
    {"IsOne", [](N x, N) -> std::uint32_t { return x.kind == Class::finite && order(x, one_number) == 0; }},
    {"IsNaN", [](N x, N) -> std::uint32_t { return x.kind == Class::nan; }},
    {"IsSignMinus", [](N x, N) -> std::uint32_t { return x.negative; }},
    {"IsFinite", [](N x, N) -> std::uint32_t { return x.kind == Class::zero || x.kind == Class::finite; }},
    {"IsInfinite", [](N x, N) -> std::uint32_t { return x.kind == Class::infinity; }},
    {"IsNormal", [](N x, N) -> std::uint32_t { return x.kind == Class::finite && !x.subnormal; }},
    {"IsSubnormal", [](N x, N) -> std::uint32_t { return x.subnormal; }},
    {"Class", [](N x, N) { return class_of(x); }},
};

Number result_of(std::string_view name, N x, N y, N z) {
    const auto* row = std::ranges::find(report_rows_exact, name, &ReportRow::name);
    if (row == std::end(report_rows_exact)) return x.kind == Class::nan ? nan_number : function(name, x);
    if (const auto* extremum = std::get_if<Extremum>(&row->rule)) return (*extremum)(x, y);
    return std::get<Rule>(row->rule)(x, y, z);
}

} // namespace

Result apply_report(const FormatSpec& f, const Policy& policy, Op operation, std::array<Number, 3> x) {
    const conformance::Operation& row = conformance::operations()[static_cast<std::size_t>(operation)];
    bool from_nan = false, from_finite = true;
    for (std::size_t i = 0; i < row.operands; ++i) {
        if (x[i].kind == Class::nan) x[i] = nan_number; // without sign, payload or signal
        if (x[i].kind == Class::zero) x[i] = {};
        from_nan = from_nan || x[i].kind == Class::nan;
        from_finite = from_finite && (x[i].kind == Class::zero || x[i].kind == Class::finite);
    }
    const auto* truth = std::ranges::find(truth_rows, row.name, &TruthRow::name);
    if (truth != std::end(truth_rows)) return {truth->rule(x[0], x[1]), 0};
    if (row.gives == conformance::Gives::neighbour)
        return {store(f, {}, neighbour(f, x[0], row.name == "NextGreaterThan")).code, 0};
    Number result = result_of(row.name, x[0], x[1], x[2]);
    if (result.kind == Class::zero) result = {};
    const bool pole = result.kind == Class::infinity && from_finite;
    if (pole) return {store(f, policy, result).code, Flags::divide_by_zero};
    return store(f, policy, result, result.kind == Class::nan && !from_nan ? unsigned{Flags::invalid} : 0U);
}

} // namespace amp::exact
