#include <ampscope/sim/analysis/conformance/detail/header.h>

#include <ampscope/sim/base/number.h>
#include <ampscope/sim/io/tensor_file.h>

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace amp::conformance {

namespace {

constexpr std::array<std::string_view, 2> tininess_names = {"after", "before"}, yes_no = {"no", "yes"};

std::string columns_text(const Question& q) {
    std::string text;
    for (const Column& column : columns_of(q)) {
        if (!text.empty()) text += ' ';
        if (column.words > 1) text += fmt::format("{}*", column.words);
        text += column.name;
    }
    return text + (has_flags(q) ? " flags" : "");
}

std::uint64_t whole(std::string_view text) {
    if (const auto value = number_of<std::uint64_t>(text)) return *value;
    throw std::invalid_argument(fmt::format("'{}' is no whole number", text));
}

/// A line of the header: how it is written, or nothing where the operation does not have it, and how it is read.
struct Field {
    std::string_view key;
    std::optional<std::string> (*write)(const Question&);
    void (*read)(Question&, std::string_view);
};

using Text = std::optional<std::string>;

bool has_scales(const Question& q) { return q.op == Op::dot && q.scales; }
DotScales& scales_in(Question& q) { return q.scales ? *q.scales : q.scales.emplace(); }
Text if_arithmetic(const Question& q, std::string_view text) { return has_flags(q) ? Text(text) : std::nullopt; }

constexpr std::array fields = {
    Field{"operation", [](const Question& q) { return Text(name_of(q.op)); },
          [](Question& q, std::string_view text) { q.op = parse_op(text); }},
    Field{"format", [](const Question& q) { return Text(q.format.name); },
          [](Question& q, std::string_view text) { q.format = format(text); }},
    Field{"to", [](const Question& q) { return q.op == Op::convert ? Text(q.to->name) : std::nullopt; },
          [](Question& q, std::string_view text) { q.to = format(text); }},
    Field{"b", [](const Question& q) { return q.op == Op::dot ? Text(q.b.value_or(q.format).name) : std::nullopt; },
          [](Question& q, std::string_view text) { q.b = format(text); }},
    Field{"accumulator", [](const Question& q) { return q.op == Op::dot ? Text(q.sum->name) : std::nullopt; },
          [](Question& q, std::string_view text) { q.sum = accumulator(text); }},
    Field{"k", [](const Question& q) { return q.op == Op::dot ? Text(std::to_string(q.k)) : std::nullopt; },
          [](Question& q, std::string_view text) { q.k = whole(text); }},
    Field{"scale", [](const Question& q) { return has_scales(q) ? Text(q.scales->format.name) : std::nullopt; },
          [](Question& q, std::string_view text) { scales_in(q).format = format(text); }},
    Field{"block",
          [](const Question& q) { return has_scales(q) ? Text(std::to_string(q.scales->block)) : std::nullopt; },
          [](Question& q, std::string_view text) { scales_in(q).block = whole(text); }},
    Field{"profile", [](const Question& q) { return if_arithmetic(q, q.profile); },
          [](Question& q, std::string_view text) {
              q.policy = profile(text).policy;
              q.profile = text;
          }},
    Field{"rounding", [](const Question& q) { return if_arithmetic(q, name_of(q.policy.rounding)); },
          [](Question& q, std::string_view text) {
              const auto directed = std::array{rounding_names[0], rounding_names[1], rounding_names[2],
                                               rounding_names[3], rounding_names[4], rounding_names[5]};
              q.policy.rounding = parse_name<Rounding>("rounding", directed, text);
          }},
    Field{"overflow", [](const Question& q) { return if_arithmetic(q, name_of(q.policy.overflow)); },
          [](Question& q, std::string_view text) {
              q.policy.overflow = parse_name<Overflow>("overflow", overflow_names, text);
          }},
    Field{"subnormals",
          [](const Question& q) {
              return if_arithmetic(q, subnormals_names[static_cast<std::size_t>(q.policy.subnormals)]);
          },
          [](Question& q, std::string_view text) {
              q.policy.subnormals = parse_name<Subnormals>("subnormals", subnormals_names, text);
          }},
    Field{
        "tininess",
        [](const Question& q) { return if_arithmetic(q, tininess_names[static_cast<std::size_t>(q.policy.tininess)]); },
        [](Question& q, std::string_view text) {
            q.policy.tininess = parse_name<Tininess>("tininess", tininess_names, text);
        }},
    Field{"exact",
          [](const Question& q) { return q.op == Op::round_to_int ? Text(yes_no[q.exact ? 1 : 0]) : std::nullopt; },
          [](Question& q, std::string_view text) { q.exact = parse_name<std::uint8_t>("exact", yes_no, text) != 0; }},
    Field{"kinds",
          [](const Question& q) {
              Text text("");
              const std::vector<std::uint64_t> counts = counts_of(q);
              for (std::size_t i = 0; i < q.kinds.size(); ++i)
                  *text += fmt::format("{}{} {}", i == 0 ? "" : ", ", name_of(q.kinds[i]), counts[i]);
              return text;
          },
          [](Question&, std::string_view) {}}, // for readers: how the cases were made does not change what they are
    Field{"seed", [](const Question& q) { return Text(std::to_string(q.seed)); },
          [](Question& q, std::string_view text) { q.seed = whole(text); }},
};

} // namespace

std::string header_of(const Question& q) {
    std::string text = fmt::format("{}\n", first_line);
    for (const Field& field : fields)
        if (const auto value = field.write(q)) text += fmt::format("{}: {}\n", field.key, *value);
    return text + fmt::format("columns: {}\n", columns_text(q));
}

namespace detail {

void HeaderReader::line(std::string_view text) {
    if (++count_ == 1) {
        if (text != first_line) throw std::invalid_argument(fmt::format("expected '{}', got '{}'", first_line, text));
        return;
    }
    const std::size_t colon = text.find(": ");
    if (colon == std::string_view::npos)
        throw std::invalid_argument(fmt::format("expected 'key: value', got '{}'", text));
    const std::string_view key = text.substr(0, colon), value = text.substr(colon + 2);
    if (std::ranges::count(seen_, key) > 0) throw std::invalid_argument(fmt::format("has '{}' a second time", key));
    seen_.emplace_back(key);
    if (key == "columns") {
        finish(value);
        return;
    }
    for (const Field& field : fields)
        if (field.key == key) return field.read(question_, value);
    std::string known;
    for (const Field& field : fields) known += std::string(field.key) + ", ";
    throw_unknown("key", key, known + "columns");
}

void HeaderReader::finish(std::string_view columns) {
    for (const std::string_view key : {"operation", "format"})
        if (std::ranges::count(seen_, key) == 0) throw std::invalid_argument(fmt::format("lacks the key {}", key));
    check(question_);
    for (const Field& field : fields) {
        if (field.write(question_) && std::ranges::count(seen_, field.key) == 0)
            throw std::invalid_argument(fmt::format("lacks the key {}", field.key));
        if (!field.write(question_) && std::ranges::count(seen_, field.key) != 0)
            throw std::invalid_argument(
                fmt::format("has the key {}, which {} does not have", field.key, name_of(question_.op)));
    }
    if (columns != columns_text(question_))
        throw std::invalid_argument(fmt::format("expected columns: {}, got {}", columns_text(question_), columns));
    complete_ = true;
}

} // namespace detail

} // namespace amp::conformance
