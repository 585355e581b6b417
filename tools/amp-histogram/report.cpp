#include <ampscope/tools/amp-histogram/report.h>

#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/tools/amp-histogram/recipe.h>
#include <ampscope/tools/chart/loss_scale_figure.h>
#include <ampscope/tools/document/page.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

namespace amp::histogram_tool {

namespace {

std::string magnitude(double x) { return x > 0 ? fmt::format("{:.3g} (2^{:.1f})", x, std::log2(x)) : "none"; }

/// The smallest and the largest magnitude, as far as they are known.
std::string range_of(const HistogramEntry& entry) {
    const auto& rows = entry.magnitudes.histogram.rows;
    if (entry.measured) return magnitude(entry.magnitudes.min_nonzero) + " to " + magnitude(entry.magnitudes.max);
    return fmt::format("from {} to below {} by histograms", power_of_two(rows.begin()->first),
                       power_of_two(rows.rbegin()->first + 1));
}

Cell largest_cell(const HistogramEntry& entry) {
    const auto& rows = entry.magnitudes.histogram.rows;
    if (rows.empty()) return no_value();
    if (const double largest = entry.magnitudes.max; entry.measured)
        return {fmt::format("2^{:.1f}", std::log2(largest)), largest};
    const int exponent = rows.rbegin()->first + 1;
    return {"<" + power_of_two(exponent), std::ldexp(1.0, exponent)};
}

/// "gradients", "weights and activations".
std::string names_of_kinds(const HistogramFindings& findings) {
    std::string names;
    for (const KindFindings& kind : findings.kinds)
        names += (names.empty()                     ? ""
                  : &kind == &findings.kinds.back() ? " and "
                                                    : ", ") +
                 std::string(kind.group->name);
    return names;
}

std::string subtitle_of(const HistogramFindings& findings) {
    const HistogramEntry& total = findings.total;
    const MagnitudeHistogram& all = total.magnitudes.histogram;
    std::set<std::string> files;
    for (const HistogramEntry& tensor : findings.tensors) files.insert(tensor.file);
    const std::string recorded = !total.recorded_scale ? "recorded scales divided out"
                                 : !total.scale_stated ? "no loss scale stated, taken as unscaled"
                                 : *total.recorded_scale == 1
                                     ? "recorded unscaled"
                                     : fmt::format("recorded scale {} divided out", scale_text(*total.recorded_scale));
    return fmt::format("{} in {}, {}: zero {} ({}), NaN {}, infinite {}. Magnitudes {}; {}.",
                       plural(total.tensors, "tensor"), plural(files.size(), "file"), plural(all.count(), "element"),
                       percent(all.zero, all.count()), grouped(all.zero), grouped(all.nan), grouped(all.inf),
                       range_of(total), recorded);
}

/// A row for each format and scale of the total.
TableBlock format_table(const KindFindings& kind, const HistogramOptions& options) {
    const std::uint64_t nonzero = kind.total.magnitudes.histogram.nonzero();
    const bool random = options.policy.rounding == Rounding::stochastic;
    TableBlock table{.caption =
                         with_counted_text(fmt::format("Of the {}{}.{}", plural(nonzero, "non-zero element"),
                                                       random ? ", expected counts" : "",
                                                       kind.total.is_gradient() ? " *: the recommended scale." : ""),
                                           kind.total.censoring),
                     .header = {"format", "scale", "underflow", "rate", "subnormal", "rate", "overflow", "rate"},
                     .rows = {},
                     .groups = true};
    for (std::size_t i = 0; i < options.formats.size(); ++i) {
        const FormatCounts& result = kind.formats[i];
        for (const auto& [scale, counts] : result.scales) {
            const bool recommended =
                result.recommendation.log2_scale && scale == std::ldexp(1.0, *result.recommendation.log2_scale);
            std::vector<Cell> row = {{options.formats[i].name},
                                     {scale_text(scale) + (recommended ? "*" : " "), std::log2(scale)}};
            for (const double n : {counts.underflow, counts.subnormal, counts.overflow}) {
                row.push_back(count_cell(n));
                row.push_back(share_cell(n, nonzero));
            }
            table.rows.push_back(std::move(row));
        }
    }
    return table;
}

/// How each format holds tensors that no loss scale multiplies.
TableBlock fit_table(const KindFindings& kind, const HistogramOptions& options) {
    const std::uint64_t nonzero = kind.total.magnitudes.histogram.nonzero();
    TableBlock table{.caption = with_counted_text(
                         fmt::format("Of {}: those of which elements overflow without a scale, those that are held "
                                     "without one and under a scale of their own, these scales, and which elements "
                                     "become zero under them.",
                                     plural(kind.total.tensors, "tensor")),
                         kind.total.censoring),
                     .header = {"format", "overflow", "held", "scaled: held", "scales", "underflow", "rate"},
                     .rows = {}};
    for (std::size_t i = 0; i < options.formats.size(); ++i) {
        const FormatFit& fit = kind.total.fits[i];
        const auto [least, most] = fit.log2_scales;
        table.rows.push_back({{options.formats[i].name},
                              count_cell(fit.overflowing),
                              count_cell(fit.held),
                              count_cell(fit.held_scaled),
                              {power_of_two(least) + " ... " + power_of_two(most), static_cast<double>(most)},
                              count_cell(fit.scaled.underflow),
                              share_cell(fit.scaled.underflow, nonzero)});
    }
    return table;
}

/// A table of tensors, or of groups of them: its first columns.
class EntryTable {
  public:
    /// `shown`: those of `entries` that get a row.
    EntryTable(const std::vector<HistogramEntry>& entries, std::span<const HistogramEntry* const> shown, Grouping by)
        : noun_(grouping_names[static_cast<std::size_t>(by)]), names_(names_of(shown, by)) {
        if (by != Grouping::tensor) return; // a group is one row, and its name says what it is
        std::map<std::pair<std::string, std::optional<std::int64_t>>, std::string> file_of;
        for (const HistogramEntry& entry : entries) {
            has_steps_ = has_steps_ || entry.step.has_value();
            const auto [known, is_new] = file_of.try_emplace({entry.name, entry.step}, entry.file);
            has_files_ = has_files_ || known->second != entry.file;
        }
    }

    [[nodiscard]] std::string_view noun() const { return noun_; }
    [[nodiscard]] std::string heading(std::string_view text) const { return names_.heading(text); }
    [[nodiscard]] TableBlock empty() const {
        TableBlock table{.caption = {}, .header = {std::string(noun_)}, .rows = {}};
        if (has_files_) table.header.emplace_back("file");
        table.text_columns = table.header.size();
        if (has_steps_) table.header.emplace_back("step");
        return table;
    }
    [[nodiscard]] std::vector<Cell> cells(const HistogramEntry& entry) const {
        std::vector<Cell> cells = {{names_.of(entry.name)}};
        if (has_files_) cells.push_back({entry.file});
        if (has_steps_)
            cells.push_back(entry.step ? Cell{std::to_string(*entry.step), static_cast<double>(*entry.step)}
                                       : no_value());
        return cells;
    }

  private:
    /// The names of tensors or layers; files, steps and kinds have none.
    static NamesBelow names_of(std::span<const HistogramEntry* const> shown, Grouping by) {
        const bool named = by == Grouping::tensor || by == Grouping::layer || by == Grouping::pattern;
        return {named ? shown : shown.first(0), &HistogramEntry::name};
    }

    std::string_view noun_;
    NamesBelow names_;
    bool has_files_ = false; ///< tensors of one name and step are in several files
    bool has_steps_ = false;
};

/// What helps where a table of tensors leaves most of them out, because every block of the network has its own.
std::string folding_hint(std::span<const HistogramEntry* const> ranked, std::size_t shown, Grouping by) {
    if (by != Grouping::tensor || shown == ranked.size()) return "";
    std::set<std::string> patterns;
    for (const HistogramEntry* entry : ranked) patterns.insert(name_pattern(entry->name, NameNumbers::components));
    return 2 * patterns.size() > ranked.size() ? "" : " --by pattern puts the blocks of the network together.";
}

/// Rates and counts of one class at scale 1, a column for each format; tensors without such elements are left out.
void add_entries(Document& document, const HistogramFindings& findings, const HistogramToolOptions& options,
                 const std::string& title, double CastCounts::*part) {
    const std::vector<HistogramEntry>& entries = options.by == Grouping::tensor ? findings.tensors : findings.groups;
    const std::vector<const HistogramEntry*> ranked = worst_first(entries, part);
    const std::size_t shown = rows_shown(options.worst, ranked.size());
    const EntryTable columns(entries, std::span(ranked).first(shown), options.by);
    TableBlock table = columns.empty();
    if (ranked.empty()) return;
    const auto& worst = ranked.front()->unscaled;
    const auto by = std::ranges::find_if(worst, [&](const CastCounts& n) { return n.*part > 0; }) - worst.begin();
    table.caption = with_counted_text(
        fmt::format("{}, the worst by {} first. Under each format: the share of the non-zero elements and, "
                    "where there is room, their number.{}",
                    shown_of(shown, ranked.size(), columns.noun()), options.formats[static_cast<std::size_t>(by)].name,
                    folding_hint(ranked, shown, options.by)),
        findings.total.censoring);
    table.header.insert(table.header.end(), {"non-zero", "largest"});
    for (const FormatSpec& format : options.formats) table.header.push_back(format.name);
    for (std::size_t i = 0; i < shown; ++i) {
        const HistogramEntry& entry = *ranked[i];
        const std::uint64_t nonzero = entry.magnitudes.histogram.nonzero();
        std::vector<Cell> row = columns.cells(entry);
        row.push_back(count_cell(nonzero));
        row.push_back(largest_cell(entry));
        for (const CastCounts& counts : entry.unscaled) {
            Cell cell = share_cell(counts.*part, nonzero);
            cell.brief = cell.text;
            if (counts.*part > 0) cell.text += fmt::format(" {:>5}", count_cell(counts.*part).brief);
            row.push_back(std::move(cell));
        }
        table.rows.push_back(std::move(row));
    }
    document.add(Heading{columns.heading(title), 3});
    document.add(std::move(table));
}

/// Where NaN and infinities are, in order of appearance: the first step that has them is the one to look at.
void add_nonfinite(Document& document, const std::vector<HistogramEntry>& tensors, std::size_t most) {
    std::vector<const HistogramEntry*> shown;
    std::size_t all = 0;
    for (const HistogramEntry& tensor : tensors) {
        const MagnitudeHistogram& histogram = tensor.magnitudes.histogram;
        if (histogram.nan + histogram.inf > 0 && (++all <= most || most == 0)) shown.push_back(&tensor);
    }
    const EntryTable columns(tensors, shown, Grouping::tensor);
    TableBlock table = columns.empty();
    table.header.insert(table.header.end(), {"NaN", "infinite", "elements"});
    for (const HistogramEntry* tensor : shown) {
        const MagnitudeHistogram& histogram = tensor->magnitudes.histogram;
        table.rows.push_back(columns.cells(*tensor));
        for (const std::uint64_t n : {histogram.nan, histogram.inf, histogram.count()})
            table.rows.back().push_back(count_cell(n));
    }
    table.caption = shown_of(table.rows.size(), all, columns.noun()) + ", in the order of the files.";
    document.add(Heading{columns.heading("NaN or infinities"), 3});
    document.add(std::move(table));
}

TableBlock error_table(const HistogramEntry& total, const HistogramOptions& options) {
    TableBlock table{.caption = with_counted_text("Over elements that stay finite. SQNR: signal-to-quantization-noise "
                                                  "ratio.",
                                                  total.censoring),
                     .header = {"format", "scale", "SQNR", "mean |error/x|", "max", "not finite"},
                     .rows = {},
                     .groups = true};
    for (const FormatSpec& format : options.formats)
        for (const auto& [key, error] : total.errors) {
            if (key.first != format.name) continue;
            const double sqnr = error.sqnr();
            table.rows.push_back({{format.name},
                                  {scale_text(key.second), std::log2(key.second)},
                                  std::isfinite(sqnr) ? Cell{fmt::format("{:.1f} dB", sqnr), sqnr}
                                  : std::isinf(sqnr)  ? Cell{"exact", sqnr}
                                                      : no_value(),
                                  error.nonzero == 0 ? no_value() : number_cell(error.mean_relative(), 3),
                                  number_cell(error.max_relative, 3),
                                  count_cell(error.excluded)});
        }
    return table;
}

TableBlock block_table(const HistogramEntry& total, const HistogramToolOptions& options) {
    const std::uint64_t nonzero = total.magnitudes.histogram.nonzero();
    const auto cell = [&](const ClassCounts& counts) {
        const Cell underflow = share_cell(static_cast<double>(counts.underflow), nonzero);
        return Cell{underflow.text + ", " + percent(counts.overflow, nonzero), underflow.value};
    };
    TableBlock table{.caption = with_counted_text(
                         fmt::format("The share of the non-zero elements that underflows, then the share that is "
                                     "clipped to the largest value. {}, {} of them zero.",
                                     plural(total.blocks.blocks, "block"), grouped(total.blocks.zero_blocks)),
                         total.censoring),
                     .header = {"format", "MX scale a block", "amax a block", "amax a tensor"},
                     .rows = {}};
    for (const BlockCounts& f : total.blocks.formats)
        if (std::ranges::find(options.elements, f.format) != options.elements.end())
            table.rows.push_back({{f.format.name}, cell(f.mx), cell(f.amax), cell(f.tensor)});
    return table;
}

/// An integer, or an expectation with the digits that may decide.
std::string amount(double n) {
    return n == std::floor(n) ? grouped(static_cast<std::uint64_t>(n)) : fmt::format("{:.10g} expected", n);
}

std::string measured(const GateResult& result) {
    if (result.gate.denominator == Denominator::none) return "it is " + amount(result.part);
    if (result.empty())
        return result.gate.denominator == Denominator::all ? "there are no elements"
                                                           : "there are no finite non-zero elements";
    return fmt::format("it is {} ({} of {})", share_cell(result.part, result.whole).text, amount(result.part),
                       grouped(result.whole));
}

void add_gates(Document& document, const std::vector<GateResult>& gates) {
    document.add(Heading{"Gates", 3});
    for (const GateResult& result : gates)
        document.add(Paragraph{.text = fmt::format("gate {}: {}; {}", result.gate.text,
                                                   result.holds ? "holds" : "FAILS", measured(result)),
                               .tone = result.holds ? Tone::good : Tone::bad});
}

std::string_view words_of(Rounding rounding) {
    switch (rounding) {
    case Rounding::nearest_even: return "to nearest even";
    case Rounding::nearest_away: return "to nearest, ties away from zero";
    case Rounding::toward_zero: return "toward zero";
    case Rounding::down: return "down";
    case Rounding::up: return "up";
    case Rounding::to_odd: return "to odd";
    case Rounding::stochastic: return "stochastically";
    }
    return "";
}

std::string terms_of(const KindFindings& kind, const HistogramOptions& options) {
    const RecommendationOptions& limits = options.recommendation;
    const Rounding rounding = options.policy.rounding;
    const bool random = rounding == Rounding::stochastic;
    const std::string classes =
        fmt::format("Rounded once {}{}. Underflow: becomes zero. Subnormal: smaller than the format's normal values. "
                    "Overflow: beyond the largest finite value. {}",
                    words_of(rounding), options.policy.flushes_output() ? ", subnormals flushed to zero" : "",
                    random ? "Counts are expectations. " : "");
    const std::string whatever = random ? ", whatever the random bits" : "";
    if (!kind.total.is_gradient())
        return fmt::format("{}Held: no element of the tensor overflows and underflow stays under {} of its non-zero "
                           "elements{}. Its own scale: the largest power of two at which none overflows.",
                           classes, limit_percent(limits.limit), whatever);
    return fmt::format("{}Safe scales: no overflow and underflow under {} of non-zero{}. Recommended: 1 if safe, "
                       "else {} below overflow.",
                       classes, limit_percent(limits.limit), whatever,
                       plural(static_cast<std::uint64_t>(limits.margin), "binade"));
}

/// What becomes of one kind of tensors in the formats.
void add_formats(Document& document, const KindFindings& kind, bool several, const HistogramOptions& options) {
    if (kind.total.magnitudes.histogram.count() == 0) return;
    const std::string_view name = kind.group->name;
    if (several) document.add(Heading{fmt::format("{:c}{}", name.front() - 'a' + 'A', name.substr(1)), 3});
    document.add(FigureBlock{magnitude_figure(kind, options), ""});
    if (kind.total.is_gradient())
        document.add(FigureBlock{loss_scale_figure(kind.scales, options.recommendation.limit), ""});
    document.add(format_table(kind, options));
    if (!kind.total.fits.empty()) document.add(fit_table(kind, options));
    document.add(Paragraph{terms_of(kind, options)});
}

} // namespace

Document document_of(const HistogramFindings& findings, const HistogramToolOptions& options) {
    Document document{.title = "What number formats do to recorded " + names_of_kinds(findings),
                      .subtitle = subtitle_of(findings),
                      .blocks = {}};
    const bool empty = findings.total.magnitudes.histogram.count() == 0;
    if (options.sample)
        document.add(Paragraph{"The sample gradients of the project; name files or folders for your own."});
    if (!findings.other_kinds.empty())
        document.add(Paragraph{
            fmt::format("The recording also holds {}, which --kind selects.", names_of(findings.other_kinds))});
    document.add(Heading{"Verdict"});
    if (empty) document.add(Paragraph{"There are no elements, and so nothing to lose."});
    else
        for (const KindFindings& kind : findings.kinds)
            for (const std::string& advice : kind.advice) document.add(Paragraph{advice, true});
    add_gates(document, findings.gates);
    if (empty) return document;
    document.add(Heading{"Magnitudes and formats"});
    for (const KindFindings& kind : findings.kinds) add_formats(document, kind, findings.kinds.size() > 1, options);
    document.add(Heading{fmt::format("Worst {}s", grouping_names[static_cast<std::size_t>(options.by)])});
    add_nonfinite(document, findings.tensors, options.worst);
    add_entries(document, findings, options, "Non-zero elements that become zero at scale 1", &CastCounts::underflow);
    add_entries(document, findings, options, "Non-zero elements that overflow at scale 1", &CastCounts::overflow);
    if (options.error) {
        document.add(Heading{"Error of the cast"});
        document.add(error_table(findings.total, options));
    }
    if (options.block != 0) {
        document.add(Heading{fmt::format("A scale for each {} elements", grouped(options.block))});
        document.add(block_table(findings.total, options));
    }
    add_recipes(document, findings, options);
    return document;
}

std::string html_report(const HistogramFindings& findings, const HistogramToolOptions& options) {
    PageFacts facts{.command = options.command, .errors = findings.errors, .warnings = findings.warnings};
    for (const HistogramEntry& entry : findings.tensors) facts.inputs.insert(entry.file);
    for (const auto& [term, text] : definitions_of(findings, options)) facts.definitions.push_back(term + ": " + text);
    return page_of(document_of(findings, options), facts);
}

} // namespace amp::histogram_tool
