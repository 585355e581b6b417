#include <ampscope/tools/python/bind.h>

#include <ampscope/formats/codec.h>
#include <ampscope/sim/analysis/conformance/operations.h>
#include <ampscope/sim/base/batch.h>
#include <ampscope/sim/base/parallel.h>
#include <ampscope/tools/amp-format/facts.h>

#include <fmt/format.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nlohmann/json.hpp>

namespace amp::python {

namespace {

using namespace format_tool;

/// How a call rounds, from keywords.
BatchOptions options_of(const std::string& rounding, const std::string& overflow, const std::string& subnormals,
                        const std::string& profile_name, std::uint64_t seed, std::uint32_t stream, std::uint32_t step,
                        std::uint64_t first_index, std::optional<int> random_bits, const std::string& variant) {
    BatchOptions o;
    if (!profile_name.empty()) o.policy = profile(profile_name).policy;
    if (!rounding.empty()) o.policy.rounding = parse_name<Rounding>("rounding", rounding_names, rounding);
    if (!overflow.empty()) o.policy.overflow = parse_name<Overflow>("overflow", overflow_names, overflow);
    if (!subnormals.empty()) o.policy.subnormals = parse_name<Subnormals>("subnormals", subnormals_names, subnormals);
    const int bits = random_bits.value_or(32);
    if (bits < 1 || bits > 32) throw std::invalid_argument("random_bits: expected 1 to 32");
    o.policy.random_bits = static_cast<std::uint8_t>(bits);
    if (!variant.empty())
        o.policy.variant = parse_name<StochasticVariant>("stochastic_variant", stochastic_variant_names, variant);
    if (o.policy.rounding != Rounding::stochastic && (random_bits || !variant.empty()))
        throw std::invalid_argument(fmt::format("{} changes nothing: the rounding is {}, not stochastic",
                                                random_bits ? "random_bits" : "stochastic_variant",
                                                name_of(o.policy.rounding)));
    o.key = {.seed = seed, .stream = stream, .step = step};
    o.first_index = first_index;
    return o;
}

template <class T>
Result<float> quantized(const FormatSpec& f, const Array<T>& x, const BatchOptions& o, int threads) {
    return filled_like<float>(x, [&](std::span<float> out) { quantize(f, span_of(x), out, o, threads); });
}

template <class Code>
nb::object encoded(const FormatSpec& f, const Array<float>& x, const BatchOptions& o, int threads) {
    return nb::cast(filled_like<Code>(x, [&](std::span<Code> out) { encode(f, span_of(x), out, o, threads); }));
}

nb::object encode_any(const FormatSpec& f, const Array<float>& x, const BatchOptions& o, int threads) {
    if (f.bits() <= 8) return encoded<std::uint8_t>(f, x, o, threads);
    return f.bits() <= 16 ? encoded<std::uint16_t>(f, x, o, threads) : encoded<std::uint32_t>(f, x, o, threads);
}

template <class Code>
Result<float> decoded(const FormatSpec& f, const Array<Code>& codes, int threads) {
    return filled_like<float>(
        codes, [&](std::span<float> out) { decode(f, span_of(codes), out, NanRule::canonical, threads); });
}

Result<float> computed(const std::string& name, const FormatSpec& f, const Array<float>& a, const Array<float>& b,
                       const Array<float>& c, const BatchOptions& o, int threads) {
    constexpr std::array<std::string_view, 6> names = {"add", "sub", "mul", "div", "sqrt", "fma"};
    const auto operation = parse_name<Operation>("operation", names, name);
    if (b.size() != a.size() || c.size() != a.size()) throw std::invalid_argument("operands differ in size");
    return filled_like<float>(
        a, [&](std::span<float> out) { apply(operation, f, span_of(a), span_of(b), span_of(c), out, o, threads); });
}

/// Results of a row of conformance::operations(), for operands that are values of the format: numbers, or what its
/// `gives` says.
Result<float> operated(const std::string& name, const FormatSpec& f, const std::vector<Array<float>>& operands,
                       const BatchOptions& o, int threads) {
    const auto rows = conformance::operations();
    const auto row = std::ranges::find(rows, name, &conformance::Operation::name);
    if (row == rows.end()) throw_unknown("operation", name, names_of_rows(rows));
    check_format(*row, f);
    if (operands.size() != row->operands)
        throw std::invalid_argument(name + ": expected " + std::to_string(row->operands) + " operands");
    const bool numbers = row->gives == conformance::Gives::number || row->gives == conformance::Gives::neighbour;
    return filled_like<float>(operands[0], [&](std::span<float> out) {
        for_each_chunk(out.size(), 256, threads, [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i) {
                Arithmetic unit{f, o.policy};
                if (o.policy.rounding == Rounding::stochastic)
                    unit.random = o.key.word(o.first_index + i, o.policy.random_bits);
                conformance::OperandCodes codes{};
                for (std::size_t k = 0; k < operands.size(); ++k) codes[k] = encode(f, span_of(operands[k])[i]);
                const std::uint32_t result = run(*row, unit, codes, false);
                out[i] = numbers ? decode(f, result) : static_cast<float>(result);
            }
        });
    });
}

/// (name, operands, result) of the operations.
std::vector<std::tuple<std::string_view, std::size_t, std::string_view>> operations() {
    constexpr std::array<std::string_view, 4> results = {"number", "truth", "class", "number"};
    std::vector<std::tuple<std::string_view, std::size_t, std::string_view>> all;
    for (const conformance::Operation& row : conformance::operations())
        all.emplace_back(row.name, row.operands, results[static_cast<std::size_t>(row.gives)]);
    return all;
}

std::vector<NumberInFormat> stored(const std::string& text, const std::vector<FormatSpec>& wanted,
                                   const BatchOptions& o) {
    return store_number(text, wanted, o.policy);
}

/// A member of FormatFacts, of the format itself.
template <class Member>
auto fact(Member FormatFacts::*member) {
    return [member](const FormatSpec& f) { return format_facts(f).*member; };
}

nb::object names_of(std::span<const std::string_view> names) {
    return nb::cast(std::vector<std::string>(names.begin(), names.end()));
}

std::string representation(const FormatSpec& f) { return std::string("ampscope.format('") + f.name + "')"; }

void bind_format(nb::module_& m) {
    nb::class_<FormatSpec>(m, "Format", "A binary number format of at most 32 bits; see ampscope.format().")
        .def_prop_ro(
            "name", [](const FormatSpec& f) { return std::string(f.name); }, InEnvironment())
        .def_prop_ro("kind", fact(&FormatFacts::kind), "float, integer, or scale: without 0, for conversion alone.",
                     InEnvironment())
        .def_prop_ro("bits", &FormatSpec::bits, InEnvironment())
        .def_prop_ro(
            "exponent_bits", [](const FormatSpec& f) { return f.exponent_bits; }, InEnvironment())
        .def_prop_ro(
            "fraction_bits", [](const FormatSpec& f) { return f.fraction_bits; }, InEnvironment())
        .def_prop_ro("bias", &FormatSpec::bias, InEnvironment())
        .def_prop_ro(
            "max", [](const FormatSpec& f) { return decode(f, f.max_code()); }, "Largest finite value.",
            InEnvironment())
        .def_prop_ro(
            "min_normal", [](const FormatSpec& f) { return decode(f, f.min_normal_code()); }, "Smallest normal value.",
            InEnvironment())
        .def_prop_ro(
            "min_subnormal", [](const FormatSpec& f) { return std::ldexp(1.0, f.min_subnormal_exponent()); },
            "Smallest positive value.", InEnvironment())
        .def_prop_ro("epsilon", fact(&FormatFacts::epsilon), "Distance from 1 to the next value.", InEnvironment())
        .def_prop_ro("first_overflow", fact(&FormatFacts::first_overflow),
                     "Halfway from max to the next value that there would be; what is above overflows.",
                     InEnvironment())
        .def_prop_ro("tie_overflows", fact(&FormatFacts::tie_overflows),
                     "Whether first_overflow itself overflows, too.", InEnvironment())
        .def_prop_ro("last_to_zero", fact(&FormatFacts::last_to_zero),
                     "The largest magnitude that becomes zero; None without a zero.", InEnvironment())
        .def_prop_ro("binades", fact(&FormatFacts::binades),
                     "The number of powers of two from the smallest positive value to max.", InEnvironment())
        .def_prop_ro("dynamic_range_db", fact(&FormatFacts::dynamic_range_db),
                     "20 log10(max / smallest positive value).", InEnvironment())
        .def_prop_ro("has_infinity", &FormatSpec::has_infinity, InEnvironment())
        .def_prop_ro("has_nan", &FormatSpec::has_nan, InEnvironment())
        .def(
            "facts", [](const FormatSpec& f) { return from_json(facts_json(f, f.bits() <= 8).dump()); },
            "Every fact as amp-format --json prints it, and all values of formats of at most 8 bits.", InEnvironment())
        .def(
            "__eq__", [](const FormatSpec& a, const FormatSpec& b) { return a == b; }, nb::is_operator(), equality,
            InEnvironment())
        .def(
            "__getstate__", [](const FormatSpec& f) { return std::string(f.name); }, InEnvironment())
        .def(
            "__setstate__", [](FormatSpec& f, const std::string& name) { new (&f) FormatSpec(format(name)); },
            InEnvironment())
        .def(
            "__hash__", [](const FormatSpec& f) { return nb::hash(nb::str(f.name)); }, InEnvironment())
        .def(
            "__str__", [](const FormatSpec& f) { return std::string(f.name); }, InEnvironment())
        .def("__repr__", &representation, InEnvironment());
    m.def("format", &format_of, nb::arg("name").none(), // None, too, is refused by format_of()
          "The format of that name, in upper or lower case: a row of ampscope.formats, eXmY for any IEEE-like one, "
          "binaryKpP of IEEE P3109 (signed and extended; or binaryKpPuf and the like), or "
          "a dtype of torch, NumPy or ml_dtypes or its name ('bfloat16', 'half'). Raises ValueError, or TypeError for "
          "what names no format.",
          InEnvironment());
    m.def("formats_in", &formats_in, nb::arg("formats").none(), InEnvironment());
    nb::dict aliases;
    for (const FormatAlias& alias : format_aliases) aliases[nb::cast(alias.name)] = nb::cast(alias.format);
    m.attr("format_aliases") = aliases;
    std::vector<std::string> names;
    for (const FormatSpec& f : formats) names.emplace_back(f.name);
    m.attr("formats") = nb::cast(names);
    std::vector<std::string> profile_names;
    for (const Profile& p : profiles) profile_names.emplace_back(p.name);
    m.attr("profiles") = nb::cast(profile_names);
    m.attr("roundings") = names_of(rounding_names);
    m.attr("overflows") = names_of(overflow_names);
    m.attr("subnormals") = names_of(subnormals_names);
    m.def(
        "profile_for",
        [](std::string_view name, const FormatSpec& f) { return std::string(profile(name, f.name).name); },
        nb::arg("name"), nb::arg("format"), "The row of ampscope.profiles by which the library of that row casts to f.",
        InEnvironment());
}

void bind_stored(nb::module_& m) {
    nb::class_<NumberInFormat>(m, "NumberInFormat", "What a format makes of a number: see ampscope.store_number().")
        .def_ro("format", &NumberInFormat::format)
        .def_ro("code", &NumberInFormat::code)
        .def_ro("value", &NumberInFormat::value, "The value of the code.")
        .def_prop_ro("flags", &NumberInFormat::flag_names,
                     "The IEEE 754 exceptions that rounding raised: inexact, underflow, overflow, invalid ...",
                     InEnvironment())
        .def_prop_ro("is_exact", &NumberInFormat::is_exact, "Whether rounding raised no exception.", InEnvironment())
        .def_ro("error", &NumberInFormat::error, "value - number; None for 0, and where a double cannot tell.")
        .def_ro("relative_error", &NumberInFormat::relative_error, "error / |number|; None where error is.")
        .def_prop_ro("in_place_of", &NumberInFormat::lacking,
                     "'NaN' or 'infinity', if the number is that and the format lacks it.", InEnvironment())
        .def_ro("neighbours", &NumberInFormat::neighbours, "Codes of the values below and above; None for NaN.");
    m.def("store_number", &stored, nb::arg("number"), nb::arg("formats"), nb::arg("policy"), InEnvironment());
}

} // namespace

FormatSpec format_of(const nb::object& named) {
    if (nb::isinstance<FormatSpec>(named)) return nb::cast<FormatSpec>(named);
    if (nb::isinstance<nb::str>(named)) return format(nb::cast<std::string>(named));
    for (const char* attribute : {"name", "__name__"}) // of a dtype of NumPy; of a class, as np.float16
        if (const nb::object name = nb::getattr(named, attribute, nb::none()); nb::isinstance<nb::str>(name))
            return format(nb::cast<std::string>(name));
    const std::string text = nb::cast<std::string>(nb::str(nb::repr(named)));
    if (text.starts_with("torch.")) return format(std::string_view(text).substr(6));
    throw nb::type_error(("format: expected a Format, a name such as 'bf16', or a dtype of torch or NumPy, got " +
                          nb::cast<std::string>(named.type().attr("__name__")))
                             .c_str());
}

std::vector<FormatSpec> formats_in(const nb::object& named) {
    if (nb::isinstance<nb::str>(named) || !nb::hasattr(named, "__iter__")) return {format_of(named)};
    std::vector<FormatSpec> all;
    for (const nb::handle one : named) all.push_back(format_of(nb::borrow(one)));
    return all;
}

void bind_formats(nb::module_& m) {
    bind_format(m);
    bind_stored(m);
    nb::class_<BatchOptions>(m, "Policy", "How results are rounded; what the keywords of conversions make.")
        .def(nb::init<BatchOptions>());
    m.def("policy", &options_of, nb::arg("rounding") = "", nb::arg("overflow") = "", nb::arg("subnormals") = "",
          nb::arg("profile") = "", nb::arg("seed") = 0, nb::arg("stream") = 0, nb::arg("step") = 0,
          nb::arg("first_index") = 0, nb::arg("random_bits") = nb::none(), nb::arg("stochastic_variant") = "",
          InEnvironment());
    m.def("quantize", &quantized<float>, nb::arg("format"), nb::arg("x").noconvert(), nb::arg("policy"),
          nb::arg("threads") = 0, InEnvironment());
    m.def("quantize", &quantized<double>, nb::arg("format"), nb::arg("x").noconvert(), nb::arg("policy"),
          nb::arg("threads") = 0, InEnvironment());
    m.def("encode", &encode_any, nb::arg("format"), nb::arg("x").noconvert(), nb::arg("policy"), nb::arg("threads") = 0,
          InEnvironment());
    m.def("decode", &decoded<std::uint8_t>, nb::arg("format"), nb::arg("codes").noconvert(), nb::arg("threads") = 0,
          InEnvironment());
    m.def("decode", &decoded<std::uint16_t>, nb::arg("format"), nb::arg("codes").noconvert(), nb::arg("threads") = 0,
          InEnvironment());
    m.def("decode", &decoded<std::uint32_t>, nb::arg("format"), nb::arg("codes").noconvert(), nb::arg("threads") = 0,
          InEnvironment());
    m.def("apply", &computed, nb::arg("operation"), nb::arg("format"), nb::arg("a").noconvert(),
          nb::arg("b").noconvert(), nb::arg("c").noconvert(), nb::arg("policy"), nb::arg("threads") = 0,
          InEnvironment());
    m.def("operate", &operated, nb::arg("operation"), nb::arg("format"), nb::arg("operands"), nb::arg("policy"),
          nb::arg("threads") = 0, InEnvironment());
    m.def("operations", &operations, InEnvironment());
}

} // namespace amp::python
