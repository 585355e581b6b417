#include <ampscope/sim/analysis/conformance/operations.h>

#include <ampscope/formats/p3109_functions.h>

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>
#include <utility>

namespace amp::conformance {

namespace {

constexpr std::array ieee_rows = {
    Operation{"add", 2, Gives::number, [](Arithmetic& f, const OperandCodes& x, bool) { return f.add(x[0], x[1]); }},
    Operation{"sub", 2, Gives::number, [](Arithmetic& f, const OperandCodes& x, bool) { return f.sub(x[0], x[1]); }},
    Operation{"mul", 2, Gives::number, [](Arithmetic& f, const OperandCodes& x, bool) { return f.mul(x[0], x[1]); }},
    Operation{"div", 2, Gives::number, [](Arithmetic& f, const OperandCodes& x, bool) { return f.div(x[0], x[1]); }},
    Operation{"rem", 2, Gives::number,
              [](Arithmetic& f, const OperandCodes& x, bool) { return f.remainder(x[0], x[1]); }},
    Operation{"sqrt", 1, Gives::number, [](Arithmetic& f, const OperandCodes& x, bool) { return f.sqrt(x[0]); }},
    Operation{"mulAdd", 3, Gives::number,
              [](Arithmetic& f, const OperandCodes& x, bool) { return f.fma(x[0], x[1], x[2]); }},
    Operation{"roundToInt", 1, Gives::number,
              [](Arithmetic& f, const OperandCodes& x, bool exact) { return f.round_to_integral(x[0], exact); }},
    Operation{"eq", 2, Gives::truth,
              [](Arithmetic& f, const OperandCodes& x, bool) { return std::uint32_t{f.eq(x[0], x[1])}; }},
    Operation{"le", 2, Gives::truth,
              [](Arithmetic& f, const OperandCodes& x, bool) { return std::uint32_t{f.le(x[0], x[1])}; }},
    Operation{"lt", 2, Gives::truth,
              [](Arithmetic& f, const OperandCodes& x, bool) { return std::uint32_t{f.lt(x[0], x[1])}; }},
    Operation{"eq_signaling", 2, Gives::truth,
              [](Arithmetic& f, const OperandCodes& x, bool) {
                  return std::uint32_t{f.compare(x[0], x[1], true) == Order::equal};
              }},
    Operation{"le_quiet", 2, Gives::truth,
              [](Arithmetic& f, const OperandCodes& x, bool) {
                  const Order order = f.compare(x[0], x[1], false);
                  return std::uint32_t{order == Order::less || order == Order::equal};
              }},
    Operation{"lt_quiet", 2, Gives::truth,
              [](Arithmetic& f, const OperandCodes& x, bool) {
                  return std::uint32_t{f.compare(x[0], x[1], false) == Order::less};
              }},
};
static_assert(ieee_rows.size() == static_cast<std::size_t>(Op::first_of_report));

using Datum = const Unpacked&;
using Value = const p3109::Value&;
using p3109::Prefer, p3109::Comparison;

/// The arithmetic of sections 4.10 and 4.11.
constexpr std::array report_rows = {
    Operation{"Abs", 1, Gives::number, [](Datum x, Datum, Datum) { return p3109::abs(x); }},
    Operation{"Negate", 1, Gives::number, [](Datum x, Datum, Datum) { return p3109::negate(x); }},
    Operation{"CopySign", 2, Gives::number, [](Datum x, Datum y, Datum) { return p3109::copy_sign(x, y); }},
    Operation{"Add", 2, Gives::number, [](Datum x, Datum y, Datum) { return p3109::add(x, y); }, Op::add},
    Operation{"Subtract", 2, Gives::number, [](Datum x, Datum y, Datum) { return p3109::add(x, p3109::negate(y)); },
              Op::sub},
    Operation{"Multiply", 2, Gives::number, [](Datum x, Datum y, Datum) { return p3109::multiply(x, y); }, Op::mul},
    Operation{"Divide", 2, Gives::number, [](Datum x, Datum y, Datum) { return p3109::divide(x, y); }, Op::div},
    Operation{"Recip", 1, Gives::number, [](Datum x, Datum, Datum) { return p3109::recip(x); }},
    Operation{"Sqrt", 1, Gives::number, [](Datum x, Datum, Datum) { return p3109::sqrt(x); }, Op::sqrt},
    Operation{"Hypot", 2, Gives::number, [](Datum x, Datum y, Datum) { return p3109::hypot(x, y); }},
    Operation{"FMA", 3, Gives::number, [](Datum x, Datum y, Datum z) { return p3109::fma(x, y, z); }, Op::mul_add},
    Operation{"FAA", 3, Gives::number, [](Datum x, Datum y, Datum z) { return p3109::faa(x, y, z); }},
    Operation{"ArcTan2", 2, Gives::number, [](Datum y, Datum x, Datum) { return p3109::arc_tan2(y, x); }},
    Operation{"ArcTan2Pi", 2, Gives::number, [](Datum y, Datum x, Datum) { return p3109::arc_tan2(y, x, true); }},
    Operation{"Clamp", 3, Gives::number, [](Datum x, Datum low, Datum high) { return p3109::clamp(x, low, high); }},
    Operation{"Minimum", 2, Gives::number,
              [](Datum x, Datum y, Datum) { return p3109::extremum(x, y, false, Prefer::none); }},
    Operation{"Maximum", 2, Gives::number,
              [](Datum x, Datum y, Datum) { return p3109::extremum(x, y, true, Prefer::none); }},
    Operation{"MinimumNumber", 2, Gives::number,
              [](Datum x, Datum y, Datum) { return p3109::extremum(x, y, false, Prefer::number); }},
    Operation{"MaximumNumber", 2, Gives::number,
              [](Datum x, Datum y, Datum) { return p3109::extremum(x, y, true, Prefer::number); }},
    Operation{"MinimumFinite", 2, Gives::number,
              [](Datum x, Datum y, Datum) { return p3109::extremum(x, y, false, Prefer::finite); }},
    Operation{"MaximumFinite", 2, Gives::number,
              [](Datum x, Datum y, Datum) { return p3109::extremum(x, y, true, Prefer::finite); }},
    Operation{"MinimumMagnitude", 2, Gives::number,
              [](Datum x, Datum y, Datum) { return p3109::extremum_magnitude(x, y, false, Prefer::none); }},
    Operation{"MaximumMagnitude", 2, Gives::number,
              [](Datum x, Datum y, Datum) { return p3109::extremum_magnitude(x, y, true, Prefer::none); }},
    Operation{"MinimumMagnitudeNumber", 2, Gives::number,
              [](Datum x, Datum y, Datum) { return p3109::extremum_magnitude(x, y, false, Prefer::number); }},
    Operation{"MaximumMagnitudeNumber", 2, Gives::number,
              [](Datum x, Datum y, Datum) { return p3109::extremum_magnitude(x, y, true, Prefer::number); }},
};

constexpr bool compares(Comparison comparison, Value x, Value y) { return holds(comparison, decode(x), decode(y)); }

/// Those of sections 4.12, 4.13 and 4.16.
constexpr std::array value_rows = {
    Operation{"CompareLess", 2, Gives::truth,
              [](Value x, Value y) { return std::uint32_t{compares(Comparison::less, x, y)}; }},
    Operation{"CompareLessEqual", 2, Gives::truth,
              [](Value x, Value y) { return std::uint32_t{compares(Comparison::less_equal, x, y)}; }},
    Operation{"CompareEqual", 2, Gives::truth,
              [](Value x, Value y) { return std::uint32_t{compares(Comparison::equal, x, y)}; }},
    Operation{"CompareGreaterEqual", 2, Gives::truth,
              [](Value x, Value y) { return std::uint32_t{compares(Comparison::greater_equal, x, y)}; }},
    Operation{"CompareGreater", 2, Gives::truth,
              [](Value x, Value y) { return std::uint32_t{compares(Comparison::greater, x, y)}; }},
    Operation{"TotalOrder", 2, Gives::truth,
              [](Value x, Value y) { return std::uint32_t{p3109::total_order(decode(x), decode(y))}; }},
    Operation{"IsZero", 1, Gives::truth, [](Value x, Value) { return std::uint32_t{p3109::is_zero(x)}; }},
    Operation{"IsOne", 1, Gives::truth, [](Value x, Value) { return std::uint32_t{p3109::is_one(x)}; }},
    Operation{"IsNaN", 1, Gives::truth, [](Value x, Value) { return std::uint32_t{p3109::is_nan(x)}; }},
    Operation{"IsSignMinus", 1, Gives::truth, [](Value x, Value) { return std::uint32_t{p3109::is_sign_minus(x)}; }},
    Operation{"IsFinite", 1, Gives::truth, [](Value x, Value) { return std::uint32_t{p3109::is_finite(x)}; }},
    Operation{"IsInfinite", 1, Gives::truth, [](Value x, Value) { return std::uint32_t{p3109::is_infinite(x)}; }},
    Operation{"IsNormal", 1, Gives::truth, [](Value x, Value) { return std::uint32_t{p3109::is_normal(x)}; }},
    Operation{"IsSubnormal", 1, Gives::truth, [](Value x, Value) { return std::uint32_t{p3109::is_subnormal(x)}; }},
    Operation{"Class", 1, Gives::number_class,
              [](Value x, Value) { return static_cast<std::uint32_t>(p3109::classify(x)); }},
    Operation{"NextGreaterThan", 1, Gives::neighbour, [](Value x, Value) { return p3109::next_greater_than(x); }},
    Operation{"NextLessThan", 1, Gives::neighbour, [](Value x, Value) { return p3109::next_less_than(x); }},
};

/// A row for each of the table of functions.
template <std::size_t i>
constexpr Operation function_row{p3109::functions[i].name, 1, Gives::number, [](Datum x, Datum, Datum) {
                                     return p3109::apply(static_cast<p3109::Function>(i), x);
                                 }};
template <std::size_t... i>
constexpr auto rows_of_functions(std::index_sequence<i...>) {
    return std::array{function_row<i>...};
}
constexpr auto function_rows = rows_of_functions(std::make_index_sequence<std::size(p3109::functions)>{});

template <std::size_t... n>
constexpr auto joined(const std::array<Operation, n>&... parts) {
    std::array<Operation, (n + ...)> all{};
    auto at = all.begin();
    ((at = std::copy(parts.begin(), parts.end(), at)), ...);
    return all;
}
constexpr auto all_rows = joined(ieee_rows, report_rows, function_rows, value_rows);
static_assert(all_rows.size() < static_cast<std::size_t>(Op::convert));

/// How a row's definition is called.
struct Call {
    Arithmetic& unit;
    const OperandCodes& codes;
    std::size_t operands;
    bool exact;

    std::uint32_t operator()(OnCodes f) const { return f(unit, codes, exact); }

    std::uint32_t operator()(OnValues f) const { return f(value(0), value(1)); }

    std::uint32_t operator()(OnData f) const {
        std::array<Unpacked, 3> x{};
        bool nan = false, infinite = false;
        for (std::size_t i = 0; i < operands; ++i) {
            x[i] = decode(value(i));
            nan = nan || x[i].is_nan();
            infinite = infinite || x[i].kind == amp::Kind::infinity;
        }
        const Unpacked result = f(x[0], x[1], x[2]);
        if (result.is_nan() && !nan) unit.flags.raise(Flags::invalid);
        if (result.kind != amp::Kind::infinity || infinite || nan)
            return pack(unit.format, result, unit.policy, unit.random, unit.flags);
        unit.flags.raise(Flags::divide_by_zero);
        Flags unused; // the infinity is exact, whatever the format makes of it
        return pack(unit.format, result, unit.policy, unit.random, unused);
    }

    /// An operand, zero if it is subnormal and the policy flushes.
    [[nodiscard]] p3109::Value value(std::size_t i) const {
        const bool flushed = unit.policy.flushes_input() && unpack(unit.format, codes[i]).subnormal;
        return {unit.format, flushed ? 0 : codes[i]};
    }
};

} // namespace

std::span<const Operation> operations() { return all_rows; }
std::span<const Operation> testfloat_operations() { return ieee_rows; }

void refuse_scale(const FormatSpec& f, std::string_view operation) {
    if (f.is_scale())
        throw std::invalid_argument(
            fmt::format("{} holds scales, which can only be converted; {} needs another format", f.name, operation));
}

void check_format(const Operation& operation, const FormatSpec& f) {
    refuse_scale(f, operation.name);
    const bool one_nan = f.has_nan() && !f.has_nan_payload();
    if (operation.gives == Gives::neighbour && (!one_nan || f.has_negative_zero()))
        throw std::invalid_argument(fmt::format("{} needs a format with one NaN and no -0, such as binary8p3se, not {}",
                                                operation.name, f.name));
}

std::uint32_t run(const Operation& operation, Arithmetic& unit, const OperandCodes& codes, bool exact) {
    return std::visit(Call{unit, codes, operation.operands, exact}, operation.definition);
}

} // namespace amp::conformance
