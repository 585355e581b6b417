#include <ampscope/tools/amp-histogram/recipe.h>

#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/write.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

namespace amp::histogram_tool {

namespace {

Cell decibel_cell(double sqnr) {
    if (std::isfinite(sqnr)) return {fmt::format("{:.1f} dB", sqnr), sqnr};
    return std::isinf(sqnr) ? Cell{"exact", sqnr} : no_value();
}

Cell finite_cell(double x, int digits) { return std::isfinite(x) ? number_cell(x, digits) : no_value(); }

/// A scale or a magnitude as a power of two.
Cell log2_cell(double x) {
    if (x == 0) return {"0", 0.0};
    return std::isfinite(x) && x > 0 ? Cell{fmt::format("2^{:.1f}", std::log2(x)), x} : no_value();
}

std::string cast_text(const RecipeEffect& effect) {
    const std::string element = effect.element ? upper_case(*effect.element) : "several formats";
    if (!effect.block) return element;
    return fmt::format("{}, {} x {}", element, effect.block->first, effect.block->second);
}

/// Adds a row for each recipe and group of kinds, since what holds of loud tensors need not hold of gradients; the
/// column that names the group comes after the recipe's, where there are several groups.
template <class Cells>
void add_recipe_rows(TableBlock& table, const HistogramFindings& findings, const HistogramOptions& options,
                     const Cells& cells_of) {
    const bool several = findings.kinds.size() > 1;
    if (several) table.header.insert(table.header.begin() + 1, "of");
    table.text_columns = several ? 3 : 2;
    for (std::size_t i = 0; i < options.recipes.size(); ++i)
        for (const KindFindings& kind : findings.kinds) {
            std::vector<Cell> row = {{options.recipes[i].text}};
            if (several) row.push_back({std::string(kind.group->name)});
            std::ranges::move(cells_of(kind.total.recipes[i], options.recipes[i].recipe), std::back_inserter(row));
            table.rows.push_back(std::move(row));
        }
}

TableBlock comparison_table(const HistogramFindings& findings, const HistogramOptions& options) {
    TableBlock table{.caption =
                         "SQNR: signal-to-quantization-noise ratio, 10 log10(sum of x^2 / sum of squared errors). "
                         "Underflow: of the non-zero elements; as TransformerEngine counts it: of all.",
                     .header = {"recipe", "cast", "tensors", "SQNR", "MSE", "underflow", "of all", "saturated", "lost"},
                     .rows = {}};
    add_recipe_rows(table, findings, options, [](const RecipeEffect& effect, const ScalingRecipe&) {
        const ScaledStatistics& s = effect.statistics;
        return std::vector<Cell>{{effect.tensors > 0 ? cast_text(effect) : "-"},
                                 count_cell(effect.tensors),
                                 decibel_cell(s.sqnr()),
                                 finite_cell(s.mean_squared_error(), 3),
                                 share_cell(s.underflow, s.nonzero),
                                 share_cell(s.underflow, s.elements),
                                 share_cell(s.saturated, s.nonzero),
                                 count_cell(s.lost)};
    });
    return table;
}

TableBlock scale_table(const HistogramFindings& findings, const HistogramOptions& options) {
    TableBlock table{.caption =
                         "Scales are those that numbers are multiplied by to get them back. Saturated: at an end "
                         "of what the rule can give. Zero: the whole block becomes zero.",
                     .header = {"recipe", "scales", "blocks", "of zeros", "partial", "smallest", "largest", "spread",
                                "zero", "saturated", "not finite"},
                     .rows = {}};
    add_recipe_rows(table, findings, options, [](const RecipeEffect& effect, const ScalingRecipe& recipe) {
        const ScaledStatistics& s = effect.statistics;
        return std::vector<Cell>{{upper_case(recipe.gradient.scale_format().name)},
                                 count_cell(s.blocks),
                                 count_cell(s.zero_blocks),
                                 count_cell(s.partial_blocks),
                                 s.scales.empty() ? no_value() : log2_cell(s.least_scale),
                                 s.scales.empty() ? no_value() : log2_cell(s.largest_scale),
                                 log2_cell(s.spread()),
                                 count_cell(s.zero_scales),
                                 count_cell(s.saturated_scales),
                                 count_cell(s.nonfinite_scales)};
    });
    return table;
}

std::string name_in(const HistogramEntry& entry) {
    return entry.step ? fmt::format("{} @{}", entry.name, *entry.step) : entry.name;
}

/// The tensors, or groups of them, with the lowest SQNR of the first recipe first.
void add_entries(Document& document, const HistogramFindings& findings, const HistogramToolOptions& options) {
    const bool groups = options.by != Grouping::tensor;
    const std::string_view noun = grouping_names[static_cast<std::size_t>(options.by)];
    std::vector<const HistogramEntry*> ranked;
    for (const HistogramEntry& entry : groups ? findings.groups : findings.tensors)
        if (entry.recipes.front().statistics.signal > 0) ranked.push_back(&entry);
    std::ranges::stable_sort(ranked, {}, [](const HistogramEntry* e) { return e->recipes.front().statistics.sqnr(); });
    if (ranked.empty()) return;
    const std::size_t shown = rows_shown(options.worst, ranked.size());
    const NamesBelow names{std::span(ranked).first(shown), &HistogramEntry::name};
    TableBlock table{.caption = fmt::format("{}, the lowest SQNR of {} first. In brackets: underflow.",
                                            shown_of(shown, ranked.size(), noun), options.recipes.front().text),
                     .header = {std::string(noun), "non-zero"},
                     .rows = {}};
    for (const RecipeChoice& choice : options.recipes) table.header.push_back(choice.text);
    for (std::size_t i = 0; i < shown; ++i) {
        const HistogramEntry& entry = *ranked[i];
        std::vector<Cell> row = {{names.of(groups ? entry.name : name_in(entry))},
                                 count_cell(entry.recipes.front().statistics.nonzero)};
        for (const RecipeEffect& effect : entry.recipes) {
            const ScaledStatistics& s = effect.statistics;
            Cell cell = decibel_cell(s.sqnr());
            if (s.underflow > 0) cell.text += fmt::format(" ({})", percent(s.underflow, s.nonzero));
            row.push_back(std::move(cell));
        }
        table.rows.push_back(std::move(row));
    }
    document.add(Heading{names.heading(fmt::format("Each {}", noun)), 3});
    document.add(std::move(table));
}

TableBlock block_table(const RecipeEffect& effect, const std::string& recipe, const NamesBelow& names) {
    TableBlock table{.caption = "Row and column: the place of the block among the blocks, from 0.",
                     .header = {recipe, "row", "column", "largest", "smallest", "scale", "non-zero", "underflow",
                                "saturated", "lost", "SQNR"},
                     .rows = {}};
    for (const RecordedBlock& block : effect.worst) {
        const std::string step = block.step ? fmt::format(" @{}", *block.step) : "";
        table.rows.push_back({{names.of(block.tensor) + step},
                              {std::to_string(block.row), static_cast<double>(block.row)},
                              {std::to_string(block.column), static_cast<double>(block.column)},
                              log2_cell(block.amax),
                              log2_cell(block.least),
                              log2_cell(block.scale),
                              count_cell(block.nonzero),
                              share_cell(block.underflow, block.nonzero),
                              count_cell(block.saturated),
                              count_cell(block.lost),
                              decibel_cell(block.sqnr())});
    }
    return table;
}

/// The SQNR of every tensor, a colour a recipe.
LineFigure sqnr_figure(const HistogramFindings& findings, const HistogramOptions& options) {
    LineFigure figure{
        .title = "What recipes leave of each tensor",
        .subtitle = "signal-to-quantization-noise ratio in dB, and the share of non-zero elements that "
                    "become zero in %",
        .x_label = "number of the tensor in the recording, from 0",
        .marks = {},
        .last = static_cast<double>(std::max<std::size_t>(findings.tensors.size(), 2) - 1),
        .panels = {{.name = "SQNR, dB", .note = {}, .series = {}}, {.name = "underflow, %", .note = {}, .series = {}}}};
    for (std::size_t i = 0; i < options.recipes.size(); ++i) {
        LineSeries sqnr{.name = options.recipes[i].text, .points = {}, .apart = true}, lost = sqnr;
        for (std::size_t t = 0; t < findings.tensors.size(); ++t) {
            const ScaledStatistics& s = findings.tensors[t].recipes[i].statistics;
            if (s.nonzero == 0) continue;
            sqnr.points.emplace_back(static_cast<double>(t), s.sqnr());
            lost.points.emplace_back(static_cast<double>(t),
                                     100 * static_cast<double>(s.underflow) / static_cast<double>(s.nonzero));
        }
        figure.panels[0].series.push_back(std::move(sqnr));
        figure.panels[1].series.push_back(std::move(lost));
    }
    return figure;
}

/// Scales by powers of two, and how far apart the numbers of a block are.
BarFigure bar_figure(const HistogramEntry& total, const HistogramOptions& options, bool scales) {
    BarFigure figure{.title = scales ? "Scales of the blocks" : "Range of the blocks",
                     .subtitle = scales ? "blocks by floor(log2 scale)"
                                        : "blocks by floor(log2(largest / smallest non-zero magnitude))",
                     .x_label = scales ? "scale" : "largest / smallest",
                     .panels = {}};
    for (std::size_t i = 0; i < options.recipes.size(); ++i) {
        const ScaledStatistics& s = total.recipes[i].statistics;
        figure.panels.push_back(
            {.name = options.recipes[i].text,
             .note = plural(s.blocks, "block"),
             .bins = scales ? exponents_of_scales(s, options.recipes[i].recipe.gradient.scale_format()) : s.ranges,
             .elements = s.blocks});
    }
    return figure;
}

/// What is said of all recipes, and of each.
std::vector<std::string> notes_on(const HistogramFindings& findings, const HistogramOptions& options) {
    std::vector<std::string> notes = {
        "Numbers are the recorded ones, divided by the recorded loss scale, in FP32. The last axis is the columns, all "
        "others the rows; a tensor of one dimension is one row. A block at the end of a row or column holds what is "
        "left."};
    if (casts_weight_gradients(findings, options))
        notes.emplace_back(
            "Recipes cast gradients of activations. Some of these tensors are gradients of weights, which no "
            "recipe casts: for them this is what the same cast would do.");
    for (std::size_t i = 0; i < options.recipes.size(); ++i) {
        const std::string& name = options.recipes[i].text;
        for (const std::string& note : recipe_notes(options.recipes[i])) notes.push_back(name + ": " + note);
        if (const std::uint64_t n = findings.total.recipes[i].unscaled; n > 0)
            notes.push_back(
                fmt::format("{}: {} not cast: no operand, read unscaled by that product, not stored in C order, or of "
                            "rows too long for memory.",
                            name, plural(n, "tensor")));
    }
    if (const std::string counted = counted_text(findings.total.censoring); !counted.empty()) notes.push_back(counted);
    return notes;
}

/// The numbers of a block, as arrays of an archive.
struct BlockField {
    const char* name;
    DType dtype;
    void (*append)(const ScaledBlock&, std::vector<std::byte>&);
};

template <auto member>
void append(const ScaledBlock& block, std::vector<std::byte>& bytes) {
    const auto number = std::as_bytes(std::span(&(block.*member), 1));
    bytes.insert(bytes.end(), number.begin(), number.end());
}

constexpr BlockField block_fields[] = {
    {"scale", DType::f32, append<&ScaledBlock::scale>},
    {"amax", DType::f32, append<&ScaledBlock::amax>},
    {"least", DType::f32, append<&ScaledBlock::least>},
    {"elements", DType::u64, append<&ScaledBlock::elements>},
    {"nonzero", DType::u64, append<&ScaledBlock::nonzero>},
    {"nonfinite", DType::u64, append<&ScaledBlock::nonfinite>},
    {"underflow", DType::u64, append<&ScaledBlock::underflow>},
    {"saturated", DType::u64, append<&ScaledBlock::saturated>},
    {"lost", DType::u64, append<&ScaledBlock::lost>},
    {"signal", DType::f64, append<&ScaledBlock::signal>},
    {"noise", DType::f64, append<&ScaledBlock::noise>},
};

} // namespace

std::vector<Figure> recipe_figures(const HistogramFindings& findings, const HistogramOptions& options) {
    if (options.recipes.empty()) return {};
    return {sqnr_figure(findings, options), bar_figure(findings.total, options, true),
            bar_figure(findings.total, options, false)};
}

void add_recipes(Document& document, const HistogramFindings& findings, const HistogramToolOptions& options) {
    if (options.recipes.empty()) return;
    document.add(Heading{"What recipes would do"});
    document.add(comparison_table(findings, options));
    for (const Figure& figure : recipe_figures(findings, options)) document.add(FigureBlock{figure, ""});
    document.add(Heading{"Scales", 3});
    document.add(scale_table(findings, options));
    add_entries(document, findings, options);
    std::vector<std::string> all;
    for (const RecipeEffect& effect : findings.total.recipes)
        for (const RecordedBlock& block : effect.worst) all.push_back(block.tensor);
    const NamesBelow names(all);
    if (!all.empty()) document.add(Heading{names.heading("Worst blocks"), 3});
    for (std::size_t i = 0; i < options.recipes.size(); ++i)
        document.add(block_table(findings.total.recipes[i], options.recipes[i].text, names));
    document.add(Bullets{notes_on(findings, options)});
}

std::string blocks_archive(const std::filesystem::path& path, const HistogramFindings& findings,
                           const HistogramOptions& options) {
    std::vector<NpzArray> arrays;
    std::map<std::string, int> seen;
    for (const HistogramEntry& entry : findings.tensors) {
        std::string name = printable(entry.name);
        if (entry.step) name += fmt::format("@{}", *entry.step);
        if (const int n = ++seen[name]; n > 1) name += fmt::format("#{}", n);
        for (std::size_t i = 0; i < options.recipes.size(); ++i) {
            const RecipeEffect& effect = entry.recipes[i];
            if (effect.tensors == 0) continue;
            for (const BlockField& field : block_fields) {
                NpzArray array;
                array.entry.name = fmt::format("{}/{}/{}", name, options.recipes[i].text, field.name);
                array.entry.dtype = field.dtype;
                array.entry.shape = {static_cast<std::uint64_t>(effect.grid.first),
                                     static_cast<std::uint64_t>(effect.grid.second)};
                for (const ScaledBlock& block : effect.blocks) field.append(block, array.bytes);
                arrays.push_back(std::move(array));
            }
        }
    }
    if (arrays.empty()) throw FileError(path, "cannot be written: no recipe casts any of these tensors");
    return npz_archive(path, arrays);
}

} // namespace amp::histogram_tool
