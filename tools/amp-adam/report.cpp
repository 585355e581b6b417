#include <ampscope/tools/amp-adam/report.h>

#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/recorded_run.h>
#include <ampscope/sim/io/json_value.h>
#include <ampscope/tools/document/page.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <climits>
#include <cmath>

namespace amp::adam_tool {

namespace {

using Json = nlohmann::ordered_json;

std::string basis_text(AdamBasis basis) {
    switch (basis) {
    case AdamBasis::recorded:
        return "exact: the state before the step was recorded (in other formats: rounded from it)";
    case AdamBasis::contiguous: return "exact: every gradient from step 0 on was recorded";
    case AdamBasis::checkpoint:
        return "exact: m and v are those that the last step before the checkpoint left (in other formats: rounded)";
    case AdamBasis::unnumbered:
        return "an estimate: m and v are those that the last step before the checkpoint left, but how many steps there "
               "were is not known: many, it is assumed";
    case AdamBasis::held: return "an estimate: gradients are taken to stay until the next recorded one";
    case AdamBasis::stationary: return "an estimate: the one gradient is taken for that of every step";
    }
    return "";
}

/// 2^k, or "0", "inf" where the median is that.
Cell median_cell(const BinadeCounts& counts) {
    if (counts.count() == 0) return no_value();
    const int median = counts.median();
    return {median == INT_MIN ? "0" : median == INT_MAX ? "inf" : power_of_two(median), median};
}

std::string eps_text(double eps) { return fmt::format("{:g}", eps); }

/// "eps in fp16: 1e-08 as 0": where a format does not hold an eps of the sweep within a percent.
void add_stored(Document& document, const AdamFindings& f) {
    const AdamQuestion& q = f.question;
    for (std::size_t s = 0; s < q.states.size(); ++s) {
        std::vector<std::string> parts;
        for (std::size_t e = 0; e < q.eps.size(); ++e)
            if (const double stored = q.stored_eps(s, e); std::abs(stored - q.eps[e]) > 0.01 * q.eps[e])
                parts.push_back(fmt::format("{:g} as {:.4g}", q.eps[e], stored));
        if (!parts.empty())
            document.add(Paragraph{fmt::format("eps in {}: {}.", q.states[s].name(), fmt::join(parts, ", "))});
    }
}

TableBlock eps_table(const AdamFindings& f) {
    TableBlock table{
        .caption = with_counted_text(
            "decides: share of the elements with a gradient whose sqrt(v_hat) is below eps as it is stored: eps, not "
            "v, sets their step. NaN, inf: share of all elements whose step is not finite. *: the eps in use.",
            f.censoring),
        .header = {"eps"},
        .rows = {}};
    for (const AdamState& s : f.question.states) {
        table.header.push_back(fmt::format("{} decides", s.name()));
        table.header.emplace_back("NaN, inf");
    }
    for (std::size_t i = 0; i < f.question.eps.size(); ++i) {
        const double eps = f.question.eps[i];
        table.rows.push_back({{eps_text(eps) + (i == f.question.usual_eps ? " *" : ""), eps}});
        for (const StateEffects& s : f.total.states) {
            table.rows.back().push_back(share_cell(s.eps[i].dominated, f.total.nonzero));
            table.rows.back().push_back(share_cell(s.eps[i].nonfinite, f.total.elements));
        }
    }
    return table;
}

/// How many elements are under scales, by state; empty without scales.
std::string held_text(const AdamFindings& f) {
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < f.total.states.size(); ++i)
        if (f.question.states[i].m)
            parts.push_back(fmt::format("{} {}", f.question.states[i].name(), grouped(f.total.states[i].held)));
    if (parts.empty()) return "";
    const bool all = std::ranges::all_of(
        f.total.states, [&](const StateEffects& s) { return s.held == 0 || s.held == f.total.elements; });
    return fmt::format("Elements whose m and v are under scales, of {}: {}.{}", grouped(f.total.elements),
                       fmt::join(parts, ", "), all ? "" : " Those of other tensors stay in FP32.");
}

TableBlock state_table(const AdamFindings& f) {
    const std::string scaled = f.question.has_scales()
                                   ? "v cannot decay: under scales, while the largest v that shares the scale stays. "
                                   : "";
    TableBlock table{.caption = scaled + "long, short: at least twice, less than half the step with state in FP32.",
                     .header = {"state"},
                     .rows = {{{"m is 0, the gradient is not"}},
                              {{"v is 0, the gradient is not"}},
                              {{"v cannot decay"}},
                              {{"long steps"}},
                              {{"short steps"}}}};
    for (std::size_t i = 0; i < f.total.states.size(); ++i) {
        table.header.push_back(f.question.states[i].name());
        const StateEffects& s = f.total.states[i];
        table.rows[0].push_back(share_cell(s.m_underflow, f.total.nonzero));
        table.rows[1].push_back(share_cell(s.v_underflow, f.total.nonzero));
        table.rows[2].push_back(share_cell(s.v_stuck, f.total.elements));
        table.rows[3].push_back(share_cell(s.longer(), s.stretch.count()));
        table.rows[4].push_back(share_cell(s.shorter(), s.stretch.count()));
    }
    return table;
}

/// "h.0.bias, h.1.bias, h.2.bias and 4 more".
std::string some_of(const std::vector<std::string>& names) {
    constexpr std::size_t most = 3;
    std::vector<std::string> some;
    for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
        some.push_back(shortened_name(printable(names[i]), 40));
    return fmt::format("{}{}", fmt::join(some, ", "),
                       names.size() > most ? fmt::format(" and {} more", names.size() - most) : "");
}

/// What becomes of weight decay where it is a multiplication of its own; empty where it is not.
std::string decay_text(const AdamFindings& f) {
    if (f.total.decaying == 0) return "";
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < f.total.undecayed.size(); ++i)
        parts.push_back(
            fmt::format("{} {}", f.question.weights[i].name, percent(f.total.undecayed[i], f.total.decaying)));
    return fmt::format("Weights that weight decay leaves as they are, by their format: {}. It multiplies them by 1 - "
                       "learning rate * decay before the step.",
                       fmt::join(parts, ", "));
}

std::string lost_text(const AdamFindings& f) {
    const std::string unmatched =
        f.unmatched.empty() ? "" : "which weights are those of " + some_of(f.unmatched) + " is not known";
    if (f.total.updated == 0)
        return fmt::format("Updates lost in the weights' format: {}.",
                           unmatched.empty() ? "the weights are not recorded" : unmatched);
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < f.total.lost.size(); ++i)
        parts.push_back(fmt::format("{} {}", f.question.weights[i].name, percent(f.total.lost[i], f.total.updated)));
    const bool is_later = f.basis == AdamBasis::checkpoint || f.basis == AdamBasis::unnumbered;
    return fmt::format("Weights with a gradient that the step leaves as they are (state in FP32), by their format: "
                       "{}.{}{}",
                       fmt::join(parts, ", "),
                       is_later ? " This is an estimate: the step is made once more, from the weights after it, as the "
                                  "checkpoint does not have those before it."
                                : "",
                       unmatched.empty() ? "" : " Not all weights are counted: " + unmatched + ".");
}

TableBlock tensor_table(const AdamFindings& f, const AdamToolOptions& options) {
    const std::vector<const AdamTensor*> tensors = f.most_muted_first();
    const std::size_t shown = rows_shown(options.worst, tensors.size());
    const NamesBelow names(f.tensors, &AdamTensor::name);
    TableBlock table{
        .caption = fmt::format("{} Medians over elements with a gradient, state in FP32. muted from: the eps of the "
                               "sweep from which on it decides most steps. rate: learning rate / (sqrt(v_hat) + eps).",
                               sentence(names.heading(shown_of(shown, tensors.size(), "tensor")))),
        .header = {"tensor", "sqrt(v_hat)", "eps decides", "muted from", "rate"},
        .rows = {}};
    for (std::size_t i = 0; i < shown; ++i) {
        const AdamEffects& e = tensors[i]->effects;
        const std::optional<double>& muting = tensors[i]->muted_from;
        table.rows.push_back({{names.of(tensors[i]->name)},
                              median_cell(e.root),
                              share_cell(e.states.front().eps[tensors[i]->usual_eps].dominated, e.nonzero),
                              muting ? Cell{eps_text(*muting), *muting} : no_value(),
                              median_cell(e.rate)});
    }
    return table;
}

/// "learning rate 0.0001 to 0.001, weight decay 0 to 0.1": what differs from tensor to tensor; empty if nothing does.
std::string differing_settings(const AdamFindings& f) {
    std::vector<std::string> parts;
    for (const auto& [name, least, most] : f.differing_settings())
        parts.push_back(fmt::format("{} {:g} to {:g}", name, least, most));
    return fmt::format("{}", fmt::join(parts, ", "));
}

void add_findings(Document& document, const AdamFindings& f, const AdamToolOptions& options) {
    const OptimizerOptions& o = f.question.options;
    document.add(Heading{fmt::format("{}: {}{}, {}", clipped(printable(f.name), 40),
                                     f.step ? fmt::format("step {}, ", *f.step) : "",
                                     plural(f.tensors.size(), "tensor"), plural(f.total.elements, "element"))});
    document.add(Paragraph{f.advice, true});
    document.add(Paragraph{fmt::format("{}{}; {} in {}'s order, learning rate {:g}, betas {:g} and {:g}.",
                                       f.known() == Known::exact ? "" : "Of the gradients as they were recorded ",
                                       basis_text(f.basis), optimizer_kind_names[static_cast<std::size_t>(o.kind)],
                                       optimizer_order_names[static_cast<std::size_t>(o.order)], o.learning_rate,
                                       o.beta1, o.beta2)});
    if (const std::string differing = differing_settings(f); !differing.empty())
        document.add(Paragraph{fmt::format("Parameter groups differ: {}. Each update has the settings of its group and "
                                           "step; those above are the ones of most elements.",
                                           differing)});
    document.add(FigureBlock{ratio_figure(f), ""});
    document.add(FigureBlock{sweep_figure(f), ""});
    document.add(eps_table(f));
    add_stored(document, f);
    document.add(state_table(f));
    if (const std::string held = held_text(f); !held.empty()) document.add(Paragraph{held});
    document.add(Paragraph{lost_text(f)});
    if (const std::string decay = decay_text(f); !decay.empty()) document.add(Paragraph{decay});
    document.add(tensor_table(f, options));
}

Json json_of(const BinadeCounts& counts) {
    Json json = {{"zero", counts.zero}, {"infinite", counts.infinite}, {"bins", Json::object()}};
    for (const auto& [bin, n] : counts.bins) json["bins"][std::to_string(bin)] = n;
    return json;
}

Json json_of(const AdamFindings& f, const AdamEffects& e, const std::optional<double>& muted_from) {
    Json json = {
        {"elements", e.elements}, {"nonzero", e.nonzero}, {"sqrt_v_hat", json_of(e.root)}, {"rate", json_of(e.rate)}};
    for (std::size_t s = 0; s < e.states.size(); ++s) {
        Json state = {{"format", f.question.states[s].name()},  {"held", e.states[s].held},
                      {"m_underflow", e.states[s].m_underflow}, {"v_underflow", e.states[s].v_underflow},
                      {"v_stuck", e.states[s].v_stuck},         {"stretch", json_of(e.states[s].stretch)}};
        for (std::size_t i = 0; i < f.question.eps.size(); ++i)
            state["eps"].push_back({{"eps", f.question.eps[i]},
                                    {"stored", f.question.stored_eps(s, i)},
                                    {"dominated", e.states[s].eps[i].dominated},
                                    {"nonfinite", e.states[s].eps[i].nonfinite},
                                    {"ratio", json_of(e.states[s].eps[i].ratio)}});
        json["states"].push_back(state);
    }
    json["updated"] = e.updated;
    json["lost"] = Json::object();
    for (std::size_t i = 0; i < e.lost.size(); ++i) json["lost"][f.question.weights[i].name] = e.lost[i];
    json["decaying"] = e.decaying;
    json["undecayed"] = Json::object();
    for (std::size_t i = 0; i < e.undecayed.size(); ++i) json["undecayed"][f.question.weights[i].name] = e.undecayed[i];
    json["muted_from_eps"] = or_null(muted_from);
    return json;
}

} // namespace

Document document_of(const std::vector<AdamFindings>& inputs, const AdamToolOptions& options) {
    Document document{.title = "What eps and the formats of its state do to Adam", .subtitle = {}, .blocks = {}};
    for (const AdamFindings& f : inputs) add_findings(document, f, options);
    return document;
}

void write_json(const std::vector<AdamFindings>& inputs, const std::vector<std::string>& errors, const TextSink& sink) {
    Json json = {{"schema_version", 1},
                 {"tool", "amp-adam"},
                 {"version", AMPSCOPE_VERSION},
                 {"errors", errors},
                 {"inputs", Json::array()}};
    LongArrays arrays;
    for (const AdamFindings& f : inputs) {
        const OptimizerOptions& o = f.question.options;
        Json input = {{"input", printable(f.name)},
                      {"basis", name_of(f.basis)},
                      {"exact", f.is_exact()},
                      {"lost_exact", f.is_lost_exact()},
                      {"known", name_of(f.known())},
                      {"step", or_null(f.step)},
                      {"kind", optimizer_kind_names[static_cast<std::size_t>(o.kind)]},
                      {"order", optimizer_order_names[static_cast<std::size_t>(o.order)]},
                      {"lr", o.learning_rate},
                      {"beta1", o.beta1},
                      {"beta2", o.beta2},
                      {"eps", f.usual_eps()},
                      {"warnings", f.warnings},
                      {"advice", f.advice},
                      {"total", json_of(f, f.total, f.muted_from)}};
        input["tensors"] = arrays.add(f.tensors.size(), [&f](std::size_t i) {
            const OptimizerOptions& own = f.tensors[i].settings;
            Json tensor = {{"tensor", printable(f.tensors[i].name)},
                           {"lr", own.learning_rate},
                           {"beta1", own.beta1},
                           {"beta2", own.beta2},
                           {"eps", own.eps},
                           {"weight_decay", own.weight_decay}};
            tensor.update(json_of(f, f.tensors[i].effects, f.tensors[i].muted_from));
            return tensor;
        });
        json["inputs"].push_back(std::move(input));
    }
    arrays.write(json, sink);
}

std::string html_report(const AdamAnswer& answer, const AdamToolOptions& options) {
    PageFacts facts{.command = options.command, .errors = answer.errors};
    facts.inputs.insert(options.paths.begin(), options.paths.end());
    for (const AdamFindings& f : answer.inputs)
        facts.warnings.insert(facts.warnings.end(), f.warnings.begin(), f.warnings.end());
    return page_of(document_of(answer.inputs, options), facts);
}

std::string svg_report(const std::vector<AdamFindings>& inputs) {
    std::vector<Figure> figures;
    for (const AdamFindings& f : inputs) {
        figures.emplace_back(ratio_figure(f));
        figures.emplace_back(sweep_figure(f));
    }
    return svg_document(figures);
}

} // namespace amp::adam_tool
