#include <ampscope/sim/analysis/conformance/cases.h>

#include <ampscope/formats/scaled_dot.h>
#include <ampscope/sim/analysis/conformance/detail/operands.h>
#include <ampscope/sim/analysis/conformance/exact_arithmetic.h>

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace amp::conformance {

namespace {

constexpr std::uint64_t most_codes = std::uint64_t{1} << 28, most_products = 1 << 20;

const Operation& row_of(Op op) { return operations()[static_cast<std::size_t>(op)]; }

/// Codes as the numbers that dot() takes; NaN is canonical.
std::vector<float> decoded(const FormatSpec& f, std::span<const std::uint32_t> codes) {
    std::vector<float> values;
    values.reserve(codes.size());
    for (const std::uint32_t code : codes) values.push_back(decode(f, code));
    return values;
}

/// The codes of a dot product's operands.
struct DotCodes {
    std::span<const std::uint32_t> a, b, a_scales, b_scales;
    std::uint32_t c;
};

DotCodes dot_codes(const Question& q, std::span<const std::uint32_t> operands) {
    const std::uint64_t n = scales_of(q);
    return {.a = operands.first(q.k),
            .b = operands.subspan(q.k, q.k),
            .a_scales = operands.subspan(2 * q.k, n),
            .b_scales = operands.subspan(2 * q.k + n, n),
            .c = operands.back()};
}

std::uint32_t dot_answer(const Question& q, std::span<const std::uint32_t> operands) {
    const FormatSpec total = total_of(q), b_format = q.b.value_or(q.format);
    const DotCodes codes = dot_codes(q, operands);
    const std::vector<float> a = decoded(q.format, codes.a), b = decoded(b_format, codes.b);
    const float c = decode(total, codes.c);
    float sum = 0;
    if (q.scales) {
        const std::vector<float> a_scales = decoded(q.scales->format, codes.a_scales),
                                 b_scales = decoded(q.scales->format, codes.b_scales);
        sum =
            scaled_dot(*q.sum, q.format, b_format, {a, a_scales}, {b, b_scales}, q.scales->block, q.scales->format, c);
    } else {
        sum = dot(*q.sum, q.format, b_format, a, b, c);
    }
    return encode(total, sum, {.nan = NanRule::payload}); // hardware's NaN has every bit set
}

OperandCodes three(std::span<const std::uint32_t> operands) {
    OperandCodes codes{};
    std::ranges::copy(operands, codes.begin());
    return codes;
}

void check_formats(const Question& q) {
    if (q.op == Op::convert) {
        if (!q.to) throw std::invalid_argument("[convert] to: expected the format of the result");
        return;
    }
    if (q.op != Op::dot) return check_format(row_of(q.op), q.format);
    refuse_scale(q.format, "dot");
    if (!q.sum) throw std::invalid_argument("[dot] accumulate: expected a row of the table of accumulators");
    for (const FormatSpec& f : {q.format, q.b.value_or(q.format)}) {
        refuse_scale(f, "dot");
        if (!q.sum->takes(f))
            throw std::invalid_argument(fmt::format("{} takes {}, not {}", q.sum->name, q.sum->operands, f.name));
    }
    if (q.k < 1 || q.k > most_products)
        throw std::invalid_argument(fmt::format("a dot product has 1 to {} products, not {}", most_products, q.k));
    if (q.scales && (q.scales->block < 1 || q.scales->block > most_products))
        throw std::invalid_argument(fmt::format(
            "[dot] block: expected the number of products that share a scale, from 1 to {}", most_products));
}

} // namespace

int Column::shift() const { return format && *format == amp::format("tf32") ? 13 : 0; }
int Column::digits() const { return format ? (format->bits() + shift() + 3) / 4 : 1; }
std::uint32_t Column::mask() const { return format ? format->code_mask() : last; }

std::vector<Column> columns_of(const Question& q) {
    if (q.op == Op::dot) {
        std::vector<Column> columns = {{"a", q.format, q.k}, {"b", q.b.value_or(q.format), q.k}};
        for (const std::string_view name : {"a_scale", "b_scale"})
            if (q.scales) columns.push_back({name, q.scales->format, scales_of(q)});
        columns.push_back({"c", total_of(q)});
        columns.push_back({"result", total_of(q)});
        return columns;
    }
    if (q.op == Op::convert) return {{"a", q.format}, {"result", *q.to}};
    std::vector<Column> columns;
    for (std::size_t i = 0; i < row_of(q.op).operands; ++i)
        columns.push_back({std::array<std::string_view, 3>{"a", "b", "c"}[i], q.format});
    const Gives gives = row_of(q.op).gives;
    const bool code = gives == Gives::number || gives == Gives::neighbour;
    columns.push_back({.name = "result",
                       .format = code ? std::optional(q.format) : std::nullopt,
                       .last = gives == Gives::truth ? 1U : 7U});
    return columns;
}

std::uint64_t operands_of(const Question& q) {
    return q.op == Op::dot ? 2 * (q.k + scales_of(q)) + 1 : q.op == Op::convert ? 1 : row_of(q.op).operands;
}

std::uint64_t scales_of(const Question& q) { return q.scales ? (q.k + q.scales->block - 1) / q.scales->block : 0; }

FormatSpec total_of(const Question& q) {
    const bool behind = // sums of blocks are added in FP32
        q.scales && !applies_scales(*q.sum, q.scales->format, static_cast<std::int64_t>(q.scales->block));
    return behind ? fp32_format() : q.sum->total();
}

std::string_view name_of(Op op) { return op == Op::convert ? "convert" : op == Op::dot ? "dot" : row_of(op).name; }

std::string op_names() {
    const auto report = operations().subspan(testfloat_operations().size());
    return names_of_rows(testfloat_operations()) +
           ", convert, dot (fma is mulAdd); of IEEE P3109: " + names_of_rows(report);
}

Op parse_op(std::string_view name) {
    if (name == "fma") return Op::mul_add;
    for (std::size_t i = 0; i < operations().size(); ++i)
        if (operations()[i].name == name) return static_cast<Op>(i);
    for (const Op op : {Op::convert, Op::dot})
        if (name_of(op) == name) return op;
    throw_unknown("operation", name, op_names());
}

std::vector<Kind> kinds_of(const Question& q) {
    if (q.op == Op::dot) return {Kind::edges, Kind::random, Kind::cancel, Kind::one_large, Kind::specials};
    std::vector<Kind> kinds = {Kind::edges, Kind::random};
    if (detail::tie(q, {}, 0)) kinds.push_back(Kind::ties);
    return kinds;
}

std::optional<std::uint64_t> number_of_all(const Question& q) {
    const int bits = q.format.bits() * static_cast<int>(std::min<std::uint64_t>(operands_of(q), 3));
    return q.op == Op::dot || bits > 24 ? std::nullopt : std::optional(std::uint64_t{1} << bits);
}

void check(const Question& q) {
    check_formats(q);
    std::vector<Kind> known = kinds_of(q);
    if (number_of_all(q)) known.push_back(Kind::all);
    for (const Kind kind : q.kinds)
        if (std::ranges::count(known, kind) == 0) {
            std::string names;
            for (const Kind k : known) names += (names.empty() ? "" : ", ") + std::string(name_of(k));
            throw std::invalid_argument(fmt::format("{} from {} has no cases of the kind {}; it has {}", name_of(q.op),
                                                    q.format.name, name_of(kind), names));
        }
    if (q.count > most_codes / operands_of(q))
        throw std::invalid_argument(fmt::format("{} cases of {} operands are too many: at most {}", q.count,
                                                operands_of(q), most_codes / operands_of(q)));
}

std::vector<std::uint64_t> counts_of(const Question& q) {
    const std::uint64_t kinds = q.kinds.empty() ? kinds_of(q).size() : q.kinds.size();
    std::vector<std::uint64_t> counts;
    for (std::uint64_t i = 0; i < kinds; ++i) counts.push_back(q.count / kinds + (i < q.count % kinds ? 1 : 0));
    return counts;
}

Answer answer(const Question& q, std::span<const std::uint32_t> operands) {
    if (q.op == Op::dot) return {dot_answer(q, operands)};
    if (q.op == Op::convert) {
        Flags flags;
        const std::uint32_t code = amp::convert(q.format, operands[0], *q.to, q.policy, 0, flags);
        return {code, flags.bits};
    }
    Arithmetic unit{q.format, q.policy};
    const std::uint32_t code = run(row_of(q.op), unit, three(operands), q.exact);
    return {code, unit.flags.bits};
}

Answer exact_answer(const Question& q, std::span<const std::uint32_t> operands) {
    if (q.op == Op::dot) {
        const DotCodes codes = dot_codes(q, operands);
        const exact::Formats of{q.format, q.b.value_or(q.format)};
        if (!q.scales) return {exact::dot(*q.sum, of, codes.a, codes.b, codes.c)};
        const exact::Scales scales{q.scales->format, q.scales->block, codes.a_scales, codes.b_scales};
        const bool within = applies_scales(*q.sum, q.scales->format, static_cast<std::int64_t>(q.scales->block));
        return {within ? exact::dot(*q.sum, of, codes.a, codes.b, codes.c, scales)
                       : exact::dot_of_blocks(*q.sum, of, codes.a, codes.b, codes.c, scales)};
    }
    const exact::Result result = q.op == Op::convert ? exact::convert(q.format, operands[0], *q.to, q.policy)
                                                     : exact::apply(q.format, q.policy, q.op, three(operands), q.exact);
    return {result.code, result.flags};
}

Cases make_cases(const Question& question, const Watch& watch) {
    check(question);
    Cases cases{.question = question};
    Question& q = cases.question;
    if (q.kinds.empty()) q.kinds = kinds_of(q);
    const std::vector<std::uint64_t> counts = counts_of(q);
    cases.operands.reserve(q.count * operands_of(q));
    const Progress progress = begin(watch, q.count);
    for (std::size_t i = 0; i < q.kinds.size(); ++i)
        for (std::uint64_t at = 0; at < counts[i]; ++at) {
            const RandomKey key{.seed = q.seed, .stream = static_cast<std::uint32_t>(q.kinds[i]) + 1};
            const std::vector<std::uint32_t> operands = detail::operands(q, q.kinds[i], key, at, counts[i]);
            cases.operands.insert(cases.operands.end(), operands.begin(), operands.end());
            const Answer a = answer(q, operands);
            cases.results.push_back(a.result);
            if (has_flags(q)) cases.flags.push_back(a.flags);
            if (progress) progress(1);
        }
    return cases;
}

} // namespace amp::conformance
