#include <ampscope/tools/amp-format/facts.h>

#include <ampscope/tools/document/document.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace amp::format_tool {

namespace {

using Json = nlohmann::ordered_json;

std::string hex_code(const FormatSpec& f, std::uint32_t code) {
    return fmt::format("0x{:0{}x}", code, (f.bits() + 3) / 4);
}

/// Sign, exponent and fraction fields, a space between.
std::string bit_fields(const FormatSpec& f, std::uint32_t code) {
    std::string text;
    if (f.is_signed) text += fmt::format("{:b} ", code >> (f.exponent_bits + f.fraction_bits) & 1);
    text += fmt::format("{:0{}b}", code >> f.fraction_bits & ((1u << f.exponent_bits) - 1), f.exponent_bits);
    if (f.fraction_bits > 0) text += fmt::format(" {:0{}b}", code & f.fraction_mask(), f.fraction_bits);
    return text;
}

/// Every value of a format is a double; its shortest decimal there is short for short formats. The only NaN of an FNUZ
/// format has no sign, though its code is that of -0.
std::string decimal(const FormatSpec& f, std::uint32_t code) {
    const NanRule rule = f.has_negative_zero() ? NanRule::keep_sign : NanRule::canonical;
    return fmt::format("{}", static_cast<double>(decode(f, code, rule)));
}

Json value_entry(const FormatSpec& f, std::uint32_t code) {
    const double value = decode(f, code);
    return {{"value", value}, {"hexfloat", fmt::format("{:a}", value)}, {"code", hex_code(f, code)}};
}

std::string_view layout_rule(const FormatSpec& f) {
    switch (f.nonfinite) {
    case NonFinite::ieee: return "IEEE 754: infinities and NaN in the top binade";
    case NonFinite::nan_only: return "no infinity; all ones is NaN";
    case NonFinite::nan_is_negative_zero: return "no infinity, no -0: its code is the only NaN";
    case NonFinite::none: return "every code is a finite value";
    }
    return "";
}

std::string nan_codes(const FormatSpec& f) {
    if (!f.has_nan()) return "none";
    if (!f.has_infinity())
        return hex_code(f, f.nan_code()) +
               (f.has_negative_zero() ? " " + hex_code(f, f.nan_code() | f.sign_mask()) : "");
    const std::uint32_t first = f.infinity_code() + 1, last = f.magnitude_mask();
    const auto range = [&](std::uint32_t sign) {
        return first == last ? hex_code(f, first | sign) : hex_code(f, first | sign) + "..." + hex_code(f, last | sign);
    };
    return range(0) + " " + range(f.sign_mask());
}

} // namespace

Json format_facts(const FormatSpec& f, bool values) {
    if (values && f.bits() > 8)
        throw std::invalid_argument(
            fmt::format("--values lists formats of at most 8 bits; {} has {}", f.name, f.bits()));
    const double max = decode(f, f.max_code());
    const std::uint32_t smallest = f.has_zero ? 1 : 0;
    Json facts{{"name", f.name},
               {"bits", f.bits()},
               {"sign_bits", int{f.is_signed}},
               {"exponent_bits", f.exponent_bits},
               {"fraction_bits", f.fraction_bits},
               {"precision", f.precision()},
               {"bias", f.bias()},
               {"special_values", layout_rule(f)},
               {"max", value_entry(f, f.max_code())},
               {"min_normal", value_entry(f, f.min_normal_code())}};
    if (f.has_zero) facts["min_subnormal"] = value_entry(f, smallest);
    facts["epsilon"] = {{"value", std::ldexp(1.0, -f.fraction_bits)},
                        {"hexfloat", fmt::format("{:a}", std::ldexp(1.0, -f.fraction_bits))}};
    const double tie = std::ldexp(1.0, f.max_exponent() - f.fraction_bits - 1) + max;
    const bool tie_overflows = (f.max_code() & 1) != 0;
    facts["first_overflow"] = fmt::format("{} {} (nearest-even)", tie_overflows ? ">=" : ">", tie);
    if (f.has_zero)
        facts["underflow_to_zero"] =
            fmt::format("<= {} (nearest-even)", std::ldexp(1.0, f.min_subnormal_exponent() - 1));
    facts["infinity"] = f.has_infinity()
                            ? hex_code(f, f.infinity_code()) + " " + hex_code(f, f.infinity_code() | f.sign_mask())
                            : "none";
    facts["nan"] = nan_codes(f);
    facts["zero"] =
        !f.has_zero ? "none" : hex_code(f, 0) + (f.has_negative_zero() ? " " + hex_code(f, f.sign_mask()) : "");
    facts["binades"] = f.max_exponent() - (f.has_zero ? f.min_subnormal_exponent() : f.min_exponent()) + 1;
    facts["dynamic_range_db"] = std::round(200 * std::log10(max / static_cast<double>(decode(f, smallest)))) / 10;
    if (values) {
        Json list = Json::array();
        for (std::uint32_t code = 0; code <= f.code_mask(); ++code)
            list.push_back({{"code", hex_code(f, code)}, {"bits", bit_fields(f, code)}, {"value", decimal(f, code)}});
        facts["values"] = std::move(list);
    }
    return facts;
}

std::string facts_text(const Json& facts) {
    std::string text;
    for (const auto& [key, fact] : facts.items()) {
        if (key == "values") continue;
        std::string shown = fact.is_string() ? fact.get<std::string>() : fact.dump();
        if (fact.is_object()) {
            shown = fmt::format("{:<24} {:<18}", fmt::format("{}", fact["value"].get<double>()),
                                fact["hexfloat"].get<std::string>());
            if (fact.contains("code")) shown += " code " + fact["code"].get<std::string>();
        }
        std::string label = key;
        std::ranges::replace(label, '_', ' ');
        text += fmt::format("{:<18} {}\n", label, shown);
    }
    if (!facts.contains("values")) return text;
    text += "\n";
    for (const Json& row : facts["values"])
        text += fmt::format("{}  {}  {}\n", row["code"].get<std::string>(), row["bits"].get<std::string>(),
                            row["value"].get<std::string>());
    return text;
}

std::string format_table(bool color) {
    TableBlock table{.caption = {},
                     .header = {"format", "bits", "s/e/m", "bias", "max", "min normal", "min subnormal", "inf", "NaN"},
                     .rows = {}};
    for (const FormatSpec& f : formats) {
        const auto brief = [&](std::uint32_t code) { return fmt::format("{:.5g}", decode(f, code)); };
        table.rows.push_back({{f.name},
                              {std::to_string(f.bits())},
                              {fmt::format("{}/{}/{}", int{f.is_signed}, f.exponent_bits, f.fraction_bits)},
                              {std::to_string(f.bias())},
                              {brief(f.max_code())},
                              {brief(f.min_normal_code())},
                              {f.has_zero ? brief(1) : "-"},
                              {f.has_infinity() ? "yes" : "-"},
                              {f.has_nan() ? "yes" : "-"}});
    }
    return terminal_of({.title = {}, .subtitle = {}, .blocks = {std::move(table)}}, color);
}

Json number_facts(const std::string& text, const std::vector<FormatSpec>& shown, const Policy& policy) {
    const Unpacked x = parse_number(text);
    const double wide = std::strtod(text.c_str(), nullptr);
    Json rows = Json::array();
    for (const FormatSpec& f : shown) {
        Flags flags;
        const std::uint32_t code = pack(f, x, policy, 0, flags);
        const Unpacked stored = unpack(f, code);
        Json row{{"format", f.name},
                 {"code", hex_code(f, code)},
                 {"bits", bit_fields(f, code)},
                 {"value", decimal(f, code)},
                 {"hexfloat", fmt::format("{:a}", static_cast<double>(decode(f, code)))},
                 {"exact", flags.bits == 0}};
        if (x.kind == Kind::finite && (stored.kind == Kind::finite || stored.kind == Kind::zero)) {
            const double error = static_cast<double>(decode(f, code)) - wide;
            if (error != 0 || flags.bits == 0) row["error"] = error; // else a double is too short to tell
            if (wide != 0 && row.contains("error")) row["relative_error"] = error / std::fabs(wide);
        }
        // NaN and infinity in formats without them: pack() has stored something else and raised invalid.
        if (x.is_nan() && !f.has_nan()) row["in_place_of"] = "NaN";
        if (x.kind == Kind::infinity && !f.has_infinity()) row["in_place_of"] = "infinity";
        if (!stored.is_nan() && !x.is_nan()) {
            row["below"] = decimal(f, next_down(f, code));
            row["above"] = decimal(f, next_up(f, code));
        }
        Json raised = Json::array();
        constexpr std::array names = {"inexact", "underflow", "overflow", "divide_by_zero", "invalid"};
        for (std::size_t i = 0; i < names.size(); ++i)
            if ((flags.bits >> i & 1) != 0) raised.push_back(names[i]);
        row["flags"] = std::move(raised);
        rows.push_back(std::move(row));
    }
    return {{"number", text}, {"formats", std::move(rows)}};
}

std::string number_text(const Json& facts) {
    std::string text;
    for (const Json& row : facts["formats"]) {
        text += fmt::format("{:<12} {:<11} {}\n", row["format"].get<std::string>(), row["code"].get<std::string>(),
                            row["bits"].get<std::string>());
        std::string detail = row["value"].get<std::string>();
        if (row["exact"].get<bool>()) detail += "  exact";
        else if (row.contains("error")) detail += fmt::format("  error {:.3g}", row["error"].get<double>());
        if (row.contains("in_place_of"))
            detail += fmt::format("  in place of {}, which {} lacks", row["in_place_of"].get<std::string>(),
                                  row["format"].get<std::string>());
        if (!row["exact"].get<bool>() && row.contains("relative_error"))
            detail += fmt::format(" ({:.3g} %)", 100 * row["relative_error"].get<double>());
        for (const Json& flag : row["flags"])
            if (flag != "inexact" || !row.contains("error")) detail += "  " + flag.get<std::string>();
        text += fmt::format("{:<12} {}\n", "", detail);
        if (row.contains("below"))
            text += fmt::format("{:<12} between {} and {}\n", "", row["below"].get<std::string>(),
                                row["above"].get<std::string>());
    }
    return text;
}

} // namespace amp::format_tool
