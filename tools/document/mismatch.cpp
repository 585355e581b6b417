#include <ampscope/tools/document/mismatch.h>

#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace amp {

namespace {

constexpr std::size_t most_drawn = 40; // ops of a figure: more cannot be read

Cell small_cell(double x) {
    if (std::isnan(x)) return no_value();
    return std::isfinite(x) ? Cell{x == 0 ? "0" : fmt::format("{:.3g}", x), x} : Cell{"inf", x, Tone::bad};
}

std::string name_of(const Mismatch& m, const MismatchReport& report) {
    return printable(m.serving) + (m.batch == report.batch ? "" : fmt::format(", batches of {}", m.batch));
}

Paragraph verdict(const Mismatch& m, const MismatchReport& report) {
    const std::string name = name_of(m, report);
    if (m.tokens == 0) return {name + ": no target has finite logits in both", true, Tone::bad};
    const Tone tone = m.nonfinite > 0 ? Tone::bad : Tone::plain;
    if (m.ops.empty() && m.token.largest == 0)
        return {fmt::format("{}: the same bits in every op, and every probability{} is training's", name,
                            m.nonfinite > 0 ? " that is a number" : ""),
                true, m.nonfinite > 0 ? tone : Tone::good};
    const std::string first =
        m.ops.empty() ? ""
                      : fmt::format("; the first op that differs is {}, by {:.2g} ({} of {})",
                                    printable(m.ops.front().tensor), m.ops.front().relative,
                                    grouped(m.ops.front().differing), plural(m.ops.front().elements, "number"));
    return {fmt::format("{}: a token is {:.3g} % likelier or less likely, the worst (target {}) by {:.3g} %{}", name,
                        100 * (m.token.mult_prob_error - 1), grouped(m.token.largest_at),
                        100 * std::expm1(m.token.largest), first),
            true, tone};
}

TableBlock distribution_table(const MismatchReport& report) {
    TableBlock table{.caption = "Means over tokens, of the probabilities p of training and q of serving, of all "
                                "tokens that could come; natural logarithms. JSD: Jensen-Shannon divergence. Other "
                                "choice: tokens at which another one is the likeliest.",
                     .header = {"served as", "KL(p|q)", "KL(q|p)", "JSD", "chi^2", "max |p - q|", "other choice"},
                     .rows = {}};
    for (const Mismatch& m : report.servings)
        if (const auto& d = m.distribution)
            table.rows.push_back({{name_of(m, report)},
                                  small_cell(d->kl_training),
                                  small_cell(d->kl_serving),
                                  small_cell(d->js_divergence),
                                  small_cell(d->chi2),
                                  small_cell(d->largest),
                                  share_cell(d->other_choice, m.tokens)});
    return table;
}

TableBlock token_table(const MismatchReport& report) {
    TableBlock table{
        .caption = "The same from the probabilities of the text's own tokens, as frameworks for reinforcement learning "
                   "log it, d = log q - log p. mult - 1: token_mult_prob_error, mean of exp |d|, less 1. gen_kl: "
                   "gen_kl_error, k3 "
                   "of KL(q|p). policy_kl: policy_kl_error, k3 of KL(p|q). js: js_divergence_error. ratio - 1: "
                   "sampling_importance_ratio, mean of p / q, less 1 (all NeMo-RL). chi2: chi2_token (verl), mean of "
                   "(p / q)^2 "
                   "less 1, which may be negative here.",
        .header = {"served as", "mult - 1", "gen_kl", "policy_kl", "js", "ratio - 1", "chi2"},
        .rows = {}};
    for (const Mismatch& m : report.servings)
        table.rows.push_back({{name_of(m, report)},
                              small_cell(m.token.mult_prob_error - 1),
                              small_cell(m.token.kl_serving),
                              small_cell(m.token.kl_training),
                              small_cell(m.token.js_divergence),
                              small_cell(m.token.importance_ratio - 1),
                              small_cell(m.token.chi2)});
    return table;
}

/// The ops that a table shows: the first, and those of the largest errors, in the order in which they are computed.
std::vector<const DifferingOp*> shown_ops(const Mismatch& m, std::size_t shown) {
    std::vector<const DifferingOp*> ops;
    for (const DifferingOp& op : m.ops) ops.push_back(&op);
    if (ops.empty()) return ops;
    std::stable_sort(ops.begin() + 1, ops.end(),
                     [](const DifferingOp* a, const DifferingOp* b) { return a->relative > b->relative; });
    ops.resize(std::min(shown, ops.size()));
    std::ranges::sort(ops);
    return ops;
}

TableBlock op_table(const Mismatch& m, std::size_t worst) {
    const std::size_t shown = rows_shown(worst, m.ops.size());
    TableBlock table{.caption = fmt::format("{}: the first that differs, and the largest errors, in the order of "
                                            "forward. error: |x - y| / |y|, where y is training's; inf: or NaN.",
                                            shown_of(shown, m.ops.size(), "op")),
                     .header = {"result", "op", "error", "other bits"},
                     .rows = {},
                     .text_columns = 2};
    for (const DifferingOp* op : shown_ops(m, shown))
        table.rows.push_back({{printable(op->tensor)},
                              {printable(op->op)},
                              small_cell(op->relative),
                              share_cell(op->differing, op->elements)});
    return table;
}

/// The errors of ops along forward, of all servings: those that differ most in one of them.
std::optional<FigureBlock> op_figure(const MismatchReport& report) {
    std::vector<std::string> order; // of forward, as the serving has it that differs in most ops
    const auto fullest = std::ranges::max_element(report.servings, {}, [](const Mismatch& m) { return m.ops.size(); });
    if (fullest == report.servings.end() || fullest->ops.empty()) return std::nullopt;
    for (const DifferingOp* op : shown_ops(*fullest, most_drawn)) order.push_back(op->tensor);
    DotFigure figure{.title = "Where serving leaves training",
                     .subtitle = "Results of ops, in the order in which they are computed.",
                     .x_label = "relative error",
                     .series = {},
                     .rows = {}};
    for (const Mismatch& m : report.servings) figure.series.push_back(name_of(m, report));
    for (const std::string& tensor : order) {
        DotRow row{.name = printable(tensor), .values = {}};
        for (const Mismatch& m : report.servings) {
            const auto op = std::ranges::find(m.ops, tensor, &DifferingOp::tensor);
            row.values.push_back(op == m.ops.end() ? std::nan("") : op->relative);
        }
        figure.rows.push_back(std::move(row));
    }
    return FigureBlock{std::move(figure), "A result without a dot has training's bits, or is not computed there."};
}

} // namespace

Document document_of(const MismatchReport& report, std::size_t worst) {
    const Mismatch& first = report.servings.front();
    std::string subtitle = printable(report.network);
    if (report.steps) subtitle += fmt::format(" after {}", plural(static_cast<std::uint64_t>(*report.steps), "step"));
    subtitle += fmt::format("; training computes in {}{}, batches of {}; {} of the validation data.",
                            printable(report.training),
                            report.training == report.trained_in
                                ? ""
                                : fmt::format(" here (it was trained in {})", printable(report.trained_in)),
                            report.batch, plural(first.tokens + first.nonfinite, "target"));
    Document document{.title = "Training against serving", .subtitle = std::move(subtitle), .blocks = {}};
    // Not by add(), of which, inlined in this batch of files, g++ 12 warns without cause.
    for (const Mismatch& m : report.servings) document.blocks.emplace_back(verdict(m, report));
    TableBlock all = distribution_table(report);
    if (!all.rows.empty()) document.blocks.emplace_back(std::move(all));
    document.blocks.emplace_back(token_table(report));
    for (const Mismatch& m : report.servings) {
        if (m.nonfinite > 0)
            document.add(
                Paragraph{fmt::format("{}: {} left out: a logit is infinite or NaN, or the target has no probability",
                                      name_of(m, report), plural(m.nonfinite, "target")),
                          false, Tone::bad});
        if (m.ops.empty()) continue;
        document.blocks.emplace_back(Heading{name_of(m, report), 3});
        document.blocks.emplace_back(op_table(m, worst));
    }
    document.add(op_figure(report));
    return document;
}

} // namespace amp
