#include <ampscope/tools/amp-format/facts.h>

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
    if (f.negatives != Negatives::sign_and_magnitude) return fmt::format("{:0{}b}", code, f.bits());
    std::string text;
    if (f.is_signed) text += fmt::format("{:b} ", code >> (f.exponent_bits + f.fraction_bits) & 1);
    if (f.exponent_bits > 0)
        text += fmt::format("{:0{}b}", code >> f.fraction_bits & ((1u << f.exponent_bits) - 1), f.exponent_bits);
    if (f.exponent_bits > 0 && f.fraction_bits > 0) text += ' ';
    if (f.fraction_bits > 0) text += fmt::format("{:0{}b}", code & f.fraction_mask(), f.fraction_bits);
    return text;
}

/// The number of a code. The only NaN of a format without -0 has no sign, though its code may have a sign bit.
Unpacked number_of(const FormatSpec& f, std::uint32_t code) {
    Unpacked x = unpack(f, code);
    x.sign = x.sign && (!x.is_nan() || f.has_negative_zero());
    return x;
}

std::string decimal(const FormatSpec& f, std::uint32_t code) { return number_text(number_of(f, code)); }

/// A value; as a JSON number only where a double is exactly that.
Json value_entry(const FormatSpec& f, std::uint32_t code) {
    const Unpacked x = number_of(f, code);
    return {
        {"value", is_double(x) ? Json(to_double(x)) : Json()}, {"hexfloat", hexfloat(x)}, {"code", hex_code(f, code)}};
}

std::string_view layout_rule(const FormatSpec& f) {
    switch (f.nonfinite) {
    case NonFinite::ieee: return "IEEE 754: infinities and NaN in the top binade";
    case NonFinite::nan_only: return "no infinity; all ones is NaN";
    case NonFinite::nan_is_negative_zero: return "no infinity, no -0: its code is the only NaN";
    case NonFinite::none: break;
    case NonFinite::infinity_and_nan_is_negative_zero: return "largest code infinity, no -0: its code is the NaN";
    case NonFinite::infinity_below_nan: return "all ones is NaN, the code before it infinity";
    }
    switch (f.negatives) {
    case Negatives::sign_and_magnitude: break;
    case Negatives::twos_complement: return "two's complement; every code is a finite value";
    case Negatives::twos_complement_symmetric: return "two's complement; the least integer is not used";
    }
    return "every code is a finite value";
}

std::string infinity_codes(const FormatSpec& f) {
    if (!f.has_infinity()) return "none";
    const std::string positive = hex_code(f, f.infinity_code());
    return f.is_signed ? positive + " " + hex_code(f, f.infinity_code() | f.sign_mask()) : positive;
}

std::string codes_text(const FormatSpec& f, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& ranges) {
    std::string text;
    for (const auto& [first, last] : ranges) {
        if (!text.empty()) text += ' ';
        text += first == last ? hex_code(f, first) : hex_code(f, first) + "..." + hex_code(f, last);
    }
    return text.empty() ? "none" : text;
}

/// How a number was rounded: "exact", "in place of NaN", the exceptions that rounding raised.
std::string rounding_words(const Json& row) {
    if (row["exact"].get<bool>()) return "exact";
    std::string words;
    const auto add = [&](const std::string& word) { words += (words.empty() ? "" : ", ") + word; };
    if (row.contains("in_place_of"))
        add(fmt::format("in place of {}, which it lacks", row["in_place_of"].get<std::string>()));
    for (const Json& flag : row["flags"]) add(flag);
    return words;
}

} // namespace

Json facts_json(const FormatSpec& f, bool values) {
    if (values && f.bits() > 16)
        throw std::invalid_argument(
            fmt::format("--values lists formats of at most 16 bits; {} has {}", f.name, f.bits()));
    const FormatFacts known = format_facts(f);
    Json facts{{"name", f.name},
               {"kind", known.kind},
               {"bits", f.bits()},
               {"sign_bits", int{f.is_signed}},
               {"exponent_bits", f.exponent_bits},
               {"fraction_bits", f.fraction_bits},
               {"precision", f.precision()}};
    if (!f.is_integer()) facts["bias"] = f.bias();
    facts["special_values"] = layout_rule(f);
    facts["max"] = value_entry(f, f.max_code());
    if (f.max_code(true) != f.max_code()) facts["lowest"] = value_entry(f, f.with_sign(f.max_code(true), true));
    facts[f.is_integer() ? "least" : "min_normal"] = value_entry(f, f.min_normal_code());
    if (f.min_normal_code() > 1) facts["min_subnormal"] = value_entry(f, 1);
    facts["epsilon"] = {{"value", known.epsilon}, {"hexfloat", fmt::format("{:a}", known.epsilon)}};
    Unpacked tie = unpack(f, f.max_code()); // halfway from the largest value to the next that there would be
    tie.significand = 2 * tie.significand + 1;
    --tie.exponent;
    const Unpacked half{.kind = Kind::finite, .exponent = f.min_subnormal_exponent() - 1, .significand = 1};
    facts["first_overflow"] = fmt::format("{} {} (nearest-even)", known.tie_overflows ? ">=" : ">", number_text(tie));
    if (f.has_zero) facts["underflow_to_zero"] = fmt::format("<= {} (nearest-even)", number_text(half));
    facts["infinity"] = infinity_codes(f);
    facts["nan"] = codes_text(f, known.nan_codes);
    facts["zero"] =
        !f.has_zero ? "none" : hex_code(f, 0) + (f.has_negative_zero() ? " " + hex_code(f, f.sign_mask()) : "");
    facts["binades"] = known.binades;
    facts["dynamic_range_db"] = std::round(10 * known.dynamic_range_db) / 10;
    if (values) {
        Json list = Json::array();
        for (std::uint32_t code = 0; code <= f.code_mask(); ++code)
            list.push_back({{"code", hex_code(f, code)}, {"bits", bit_fields(f, code)}, {"value", decimal(f, code)}});
        facts["values"] = std::move(list);
    }
    return facts;
}

Document facts_document(const Json& facts) {
    TableBlock table{.caption = {}, .header = {"fact", "value"}, .rows = {}, .text_columns = 2};
    for (const auto& [key, fact] : facts.items()) {
        if (key == "values") continue;
        std::string shown = fact.is_string() ? fact.get<std::string>() : fact.dump();
        if (fact.is_object()) {
            shown = fact["hexfloat"].get<std::string>();
            if (!fact["value"].is_null()) shown = fmt::format("{} = {}", fact["value"].get<double>(), shown);
            if (fact.contains("code")) shown += ", code " + fact["code"].get<std::string>();
        }
        std::string label = key;
        std::ranges::replace(label, '_', ' ');
        table.rows.push_back({{label}, {shown}});
    }
    Document document{.title = {}, .subtitle = {}, .blocks = {std::move(table)}};
    if (facts.contains("values")) {
        TableBlock values{.caption = {}, .header = {"code", "bits", "value"}, .rows = {}, .text_columns = 3};
        for (const Json& row : facts["values"]) values.rows.push_back({{row["code"]}, {row["bits"]}, {row["value"]}});
        document.add(std::move(values));
    }
    return document;
}

Document format_table() {
    Document document{.title = {}, .subtitle = {}, .blocks = {}};
    for (const std::string_view kind : {"float", "scale", "integer"}) {
        TableBlock table{
            .caption = {},
            .header = {std::string(kind), "bits", "s/e/m", "bias", "max", "min normal", "min subnormal", "inf", "NaN"},
            .rows = {}};
        for (const FormatSpec& f : formats) {
            if (format_facts(f).kind != kind) continue;
            const auto brief = [&](std::uint32_t code) { return fmt::format("{:.5g}", decode(f, code)); };
            table.rows.push_back({{f.name},
                                  {std::to_string(f.bits())},
                                  {fmt::format("{}/{}/{}", int{f.is_signed}, f.exponent_bits, f.fraction_bits)},
                                  {f.is_integer() ? "-" : std::to_string(f.bias())},
                                  {brief(f.max_code())},
                                  {brief(f.min_normal_code())},
                                  {f.min_normal_code() > 1 ? brief(1) : "-"},
                                  {f.has_infinity() ? "yes" : "-"},
                                  {f.has_nan() ? "yes" : "-"}});
        }
        document.add(std::move(table));
    }
    return document;
}

Json number_json(const std::string& text, const std::vector<NumberInFormat>& stored) {
    Json rows = Json::array();
    for (const NumberInFormat& n : stored) {
        Json row{{"format", n.format.name},
                 {"code", hex_code(n.format, n.code)},
                 {"bits", bit_fields(n.format, n.code)},
                 {"value", decimal(n.format, n.code)},
                 {"hexfloat", hexfloat(number_of(n.format, n.code))},
                 {"exact", n.is_exact()}};
        if (n.error) row["error"] = *n.error;
        if (n.relative_error) row["relative_error"] = *n.relative_error;
        if (n.in_place_of) row["in_place_of"] = *n.lacking();
        if (n.neighbours) {
            row["below"] = decimal(n.format, n.neighbours->first);
            row["above"] = decimal(n.format, n.neighbours->second);
        }
        row["flags"] = n.flag_names();
        rows.push_back(std::move(row));
    }
    return {{"number", text}, {"formats", std::move(rows)}};
}

Document number_document(const Json& facts) {
    TableBlock codes{.caption = {}, .header = {"format", "code", "bits", "value"}, .rows = {}, .text_columns = 3};
    TableBlock errors{
        .caption = {}, .header = {"format", "rounding", "error", "error, %"}, .rows = {}, .text_columns = 2};
    TableBlock neighbours{.caption = {}, .header = {"format", "next below", "next above"}, .rows = {}};
    bool unsaid = false;
    const auto number = [](const Json& row, const char* key, double unit) {
        return row.contains(key) ? number_cell(unit * row[key].get<double>(), 3) : no_value();
    };
    for (const Json& row : facts["formats"]) {
        unsaid = unsaid || (!row.contains("error") && rounding_words(row) == "inexact");
        codes.rows.push_back({{row["format"]}, {row["code"]}, {row["bits"]}, {row["value"]}});
        errors.rows.push_back(
            {{row["format"]}, {rounding_words(row)}, number(row, "error", 1), number(row, "relative_error", 100)});
        if (row.contains("below")) neighbours.rows.push_back({{row["format"]}, {row["below"]}, {row["above"]}});
    }
    Document document{.title = {}, .subtitle = {}, .blocks = {std::move(codes), std::move(errors)}};
    if (unsaid) document.add(Paragraph{"An error of - is too small beside the number for a double to state."});
    if (!neighbours.rows.empty()) document.add(std::move(neighbours));
    return document;
}

Json choices_json(const std::string& text, const std::vector<StochasticChoice>& choices, const Policy& policy) {
    Json rows = Json::array();
    for (const StochasticChoice& c : choices)
        rows.push_back({{"format", c.format.name},
                        {"down", decimal(c.format, c.down)},
                        {"up", decimal(c.format, c.up)},
                        {"words_up", c.words_up},
                        {"probability", c.probability},
                        {"exact_probability", c.fraction},
                        {"bias_ulp", c.bias()}});
    return {{"number", text},
            {"random_bits", policy.random_bits},
            {"stochastic_variant", name_of(policy.variant)},
            {"formats", std::move(rows)}};
}

Document choices_document(const Json& facts) {
    TableBlock table{.caption = {}, .header = {"format", "down", "up", "P(up)", "exact", "bias, ulp"}, .rows = {}};
    for (const Json& row : facts["formats"])
        table.rows.push_back({{row["format"]},
                              {row["down"]},
                              {row["up"]},
                              number_cell(row["probability"].get<double>(), 6),
                              number_cell(row["exact_probability"].get<double>(), 6),
                              number_cell(row["bias_ulp"].get<double>(), 3)});
    return {.title = {}, .subtitle = {}, .blocks = {std::move(table)}};
}

} // namespace amp::format_tool
