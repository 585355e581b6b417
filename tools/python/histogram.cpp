#include <ampscope/tools/python/tool.h>

#include <ampscope/tools/amp-histogram/recipe.h>
#include <ampscope/tools/amp-histogram/report.h>

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

#include <map>
#include <tuple>

namespace amp::python {

namespace {

using namespace histogram_tool;

/// The result with the options it was asked for, which frame() needs.
struct Asked : HistogramFindings {
    HistogramToolOptions options;
};

Asked findings_of(const HistogramToolOptions& options, const Watch& watch) {
    return {options.merge ? merged_histogram_findings(options.paths, options, watch)
                          : histogram_findings(options.paths, options, watch),
            options};
}

/// (index of the tensor, format, scale, counts): the rows of frame().
std::vector<std::tuple<std::size_t, std::string, double, CastCounts>> rows_of(const Asked& findings) {
    std::vector<std::tuple<std::size_t, std::string, double, CastCounts>> rows;
    for (std::size_t i = 0; i < findings.tensors.size(); ++i)
        for (const FormatSpec& format : findings.options.formats)
            for (const ScaleCounts& at : format_counts(findings.tensors[i], format, findings.options).scales)
                rows.emplace_back(i, format.name, at.scale, at.counts);
    return rows;
}

std::vector<FormatCounts> formats_of(const Asked& findings) {
    std::vector<FormatCounts> formats;
    for (const FormatSpec& format : findings.options.formats)
        formats.push_back(format_counts(findings.total, format, findings.options));
    return formats;
}

std::vector<std::string> advice_of(const Asked& findings) {
    std::vector<std::string> all;
    for (const KindFindings& kind : findings.kinds) all.insert(all.end(), kind.advice.begin(), kind.advice.end());
    return printed(all);
}

/// What amp-histogram says of these words.
Said amp_histogram(const Words& words) {
    const auto options = parsed("amp-histogram", words, &parse_command_line, {"--json", "-"});
    return interruptible([&](const Watch& watch) {
        Said said;
        const Asked findings = findings_of(options, watch);
        for (const std::string& error : findings.errors) said.second.push_back("amp-histogram: " + printable(error));
        if (!options.csv.empty()) write_report(options.csv, csv_report(findings, options));
        if (!options.svg.empty()) write_report(options.svg, svg_report(findings, options));
        if (!options.html.empty()) write_report(options.html, html_report(findings, options));
        if (!options.blocks.empty()) write_report(options.blocks, blocks_archive(options.blocks, findings, options));
        write_json(findings, options, [&](std::string_view piece) { said.first += piece; });
        return said;
    });
}

Asked findings(const Words& words) {
    const auto options = parsed_alone("histogram_findings", words, &parse_command_line);
    if (!options.csv.empty() || !options.blocks.empty())
        throw std::invalid_argument("histogram_findings: csv and blocks are the command's alone");
    return interruptible([&](const Watch& watch) { return findings_of(options, watch); });
}

/// Tuples (format, scale, value) of what an entry knows of casts.
template <class Value>
std::vector<std::tuple<std::string, double, Value>>
by_cast(const std::map<std::pair<std::string, double>, Value>& values) {
    std::vector<std::tuple<std::string, double, Value>> all;
    for (const auto& [cast, value] : values) all.emplace_back(cast.first, cast.second, value);
    return all;
}

void bind_counts(nb::module_& m) {
    nb::class_<CastCounts>(m, "CastCounts", "The non-zero elements by what a cast makes of them.")
        .def_ro("underflow", &CastCounts::underflow)
        .def_ro("subnormal", &CastCounts::subnormal)
        .def_ro("normal", &CastCounts::normal)
        .def_ro("overflow", &CastCounts::overflow)
        .def_ro("expected", &CastCounts::expected, "They are expectations and need not be integers.");
    nb::class_<CastError>(m, "CastError", "The error of a cast, over elements that are finite before and after it.")
        .def_ro("compared", &CastError::compared)
        .def_ro("excluded", &CastError::excluded, "Finite elements whose result is infinite or NaN.")
        .def_ro("max_relative", &CastError::max_relative)
        .def_prop_ro("mean_relative", &CastError::mean_relative, InEnvironment())
        .def_prop_ro("sqnr", &CastError::sqnr, "Signal-to-quantization-noise ratio in dB.", InEnvironment());
    nb::class_<ScaleCounts>(m, "ScaleCounts", "One format at one loss scale.")
        .def_ro("scale", &ScaleCounts::scale)
        .def_ro("counts", &ScaleCounts::counts);
    nb::class_<FormatCounts>(m, "FormatCounts", "One format at all its scales.")
        .def_ro("scales", &FormatCounts::scales, "A ScaleCounts for each, ascending.")
        .def_prop_ro(
            "recommendation", [](const FormatCounts& f) { return recommendation_dict(f.recommendation); },
            "As Histogram.recommend() gives it.", InEnvironment());
    nb::class_<Gate>(m, "Gate", "A limit on what a format may do to the gradients.")
        .def_ro("text", &Gate::text, "As it was asked for.")
        .def_ro("format", &Gate::format)
        .def_ro("scale", &Gate::scale);
    nb::class_<GateResult>(m, "GateResult", "A limit on the total, and whether it holds.")
        .def_ro("gate", &GateResult::gate)
        .def_prop_ro("empty", &GateResult::empty, "A share of no elements, which does not hold.", InEnvironment())
        .def_ro("part", &GateResult::part)
        .def_ro("whole", &GateResult::whole)
        .def_ro("holds", &GateResult::holds);
}

void bind_statistics(nb::module_& m) {
    nb::class_<MagnitudeStatistics>(m, "MagnitudeStatistics", "Magnitudes without the recorded scale.")
        .def_ro("histogram", &MagnitudeStatistics::histogram)
        .def_ro("min_nonzero", &MagnitudeStatistics::min_nonzero, "The smallest finite non-zero one; 0 if none.")
        .def_ro("max", &MagnitudeStatistics::max, "The largest finite one.");
    nb::class_<DirectedHistogram>(m, "DirectedHistogram", "Elements that rounding may move toward and away from zero.")
        .def_ro("toward", &DirectedHistogram::toward)
        .def_ro("away", &DirectedHistogram::away);
    nb::class_<ClassCounts>(m, "ClassCounts", "The non-zero elements by what a cast makes of them.")
        .def_ro("underflow", &ClassCounts::underflow)
        .def_ro("subnormal", &ClassCounts::subnormal)
        .def_ro("normal", &ClassCounts::normal)
        .def_ro("overflow", &ClassCounts::overflow);
    nb::class_<BlockCounts>(m, "BlockCounts", "What three kinds of scales make of blocks in one format.")
        .def_ro("format", &BlockCounts::format)
        .def_ro("mx", &BlockCounts::mx, "A power of two for each block, as OCP MX has it.")
        .def_ro("amax", &BlockCounts::amax, "amax / max for each block.")
        .def_ro("tensor", &BlockCounts::tensor, "amax / max of the whole tensor.");
    nb::class_<BlockStatistics>(m, "BlockStatistics", "Blocks of elements that share a scale, with block=N.")
        .def_ro("blocks", &BlockStatistics::blocks)
        .def_ro("zero_blocks", &BlockStatistics::zero_blocks, "Blocks without any finite non-zero element.")
        .def_ro("amax_exponents", &BlockStatistics::amax_exponents, "Blocks by floor(log2 amax).")
        .def_ro("formats", &BlockStatistics::formats);
}

void bind_recipes(nb::module_& m) {
    nb::class_<ScaledStatistics>(m, "ScaledStatistics", "What a cast with a scale for each block does.")
        .def_ro("elements", &ScaledStatistics::elements)
        .def_ro("nonzero", &ScaledStatistics::nonzero, "Elements that are finite and not zero.")
        .def_ro("nonfinite", &ScaledStatistics::nonfinite, "Elements that are NaN or infinite.")
        .def_ro("underflow", &ScaledStatistics::underflow, "Non-zero elements that become zero.")
        .def_ro("saturated", &ScaledStatistics::saturated, "Finite elements that are clipped.")
        .def_ro("lost", &ScaledStatistics::lost, "Finite elements that become NaN or infinite.")
        .def_ro("signal", &ScaledStatistics::signal, "Sum of squares.")
        .def_ro("noise", &ScaledStatistics::noise, "Sum of squared errors.")
        .def_ro("blocks", &ScaledStatistics::blocks)
        .def_ro("zero_blocks", &ScaledStatistics::zero_blocks, "Blocks of zeros.")
        .def_ro("partial_blocks", &ScaledStatistics::partial_blocks, "Blocks smaller than asked for.")
        .def_ro("nonfinite_blocks", &ScaledStatistics::nonfinite_blocks, "Blocks with NaN or infinity.")
        .def_ro("zero_scales", &ScaledStatistics::zero_scales)
        .def_ro("nonfinite_scales", &ScaledStatistics::nonfinite_scales)
        .def_ro("saturated_scales", &ScaledStatistics::saturated_scales, "At an end of what the rule can give.")
        .def_ro("least_scale", &ScaledStatistics::least_scale)
        .def_ro("largest_scale", &ScaledStatistics::largest_scale)
        .def_ro("scales", &ScaledStatistics::scales, "Blocks by floor(log2 scale); E4M3's by code.")
        .def_ro("ranges", &ScaledStatistics::ranges, "Blocks by floor(log2(amax / least non-zero magnitude)).")
        .def_prop_ro("compared", &ScaledStatistics::compared, "Elements of signal and noise.", InEnvironment())
        .def_prop_ro("sqnr", &ScaledStatistics::sqnr, "Signal-to-quantization-noise ratio in dB.", InEnvironment())
        .def_prop_ro("mean_squared_error", &ScaledStatistics::mean_squared_error, InEnvironment())
        .def_prop_ro("spread", &ScaledStatistics::spread, "largest_scale / least_scale.", InEnvironment());
    nb::class_<ScaledBlock>(m, "ScaledBlock", "A block of elements that share a scale; see ScaledStatistics.")
        .def_ro("row", &ScaledBlock::row, "Its place among the blocks, from 0.")
        .def_ro("column", &ScaledBlock::column)
        .def_ro("scale", &ScaledBlock::scale, "The decode scale.")
        .def_ro("amax", &ScaledBlock::amax, "Largest finite magnitude.")
        .def_ro("least", &ScaledBlock::least, "Smallest non-zero finite magnitude.")
        .def_ro("elements", &ScaledBlock::elements)
        .def_ro("nonzero", &ScaledBlock::nonzero)
        .def_ro("nonfinite", &ScaledBlock::nonfinite)
        .def_ro("underflow", &ScaledBlock::underflow)
        .def_ro("saturated", &ScaledBlock::saturated)
        .def_ro("lost", &ScaledBlock::lost)
        .def_ro("signal", &ScaledBlock::signal)
        .def_ro("noise", &ScaledBlock::noise);
    nb::class_<RecordedBlock, ScaledBlock>(m, "RecordedBlock", "One of the worst blocks, and its tensor.")
        .def_prop_ro("tensor", text_of(&RecordedBlock::tensor), InEnvironment())
        .def_ro("step", &RecordedBlock::step);
    nb::class_<RecipeEffect>(m, "RecipeEffect", "What a scaling recipe does to a tensor, or to several.")
        .def_ro("tensors", &RecipeEffect::tensors)
        .def_ro("unscaled", &RecipeEffect::unscaled, "Tensors that the recipe does not cast.")
        .def_prop_ro(
            "role",
            [](const RecipeEffect& e) { return e.role ? std::optional(std::string(name_of(*e.role))) : std::nullopt; },
            "input, weight or gradient; None where merged tensors differ.", InEnvironment())
        .def_ro("element", &RecipeEffect::element, "Name of the format.")
        .def_ro("block", &RecipeEffect::block, "(height, width).")
        .def_ro("grid", &RecipeEffect::grid, "Blocks (below, beside) each other, of a single tensor.")
        .def_ro("statistics", &RecipeEffect::statistics)
        .def_ro("worst", &RecipeEffect::worst, "A RecordedBlock each, worst first.");
}

void bind_fit(nb::module_& m) {
    nb::class_<FormatFit>(m, "FormatFit", "How a format holds tensors that no loss scale multiplies.")
        .def_ro("tensors", &FormatFit::tensors, "Those with an element that is finite and not zero.")
        .def_ro("overflowing", &FormatFit::overflowing, "Those of which elements overflow without a scale.")
        .def_ro("held", &FormatFit::held, "Those that do not overflow and lose less than the limit without a scale.")
        .def_ro("held_scaled", &FormatFit::held_scaled, "The same under a scale of their own.")
        .def_ro("unscaled", &FormatFit::unscaled, "ClassCounts without a scale.")
        .def_ro("scaled", &FormatFit::scaled, "ClassCounts under the scale of each tensor.")
        .def_prop_ro(
            "log2_scales", [](const FormatFit& f) { return std::pair(f.least_scale, f.most_scale); },
            "The smallest and the largest of these scales: largest powers of two at which nothing overflows.",
            InEnvironment());
    nb::class_<KindFindings>(m, "KindFindings",
                             "Tensors that are judged together: gradients, weights, activations, state.")
        .def_prop_ro(
            "name", [](const KindFindings& k) { return k.group->name; }, InEnvironment())
        .def_ro("total", &KindFindings::total, "A HistogramEntry of them all.")
        .def_ro("formats", &KindFindings::formats, "FormatCounts of the total, one for each format.")
        .def_prop_ro(
            "advice", [](const KindFindings& k) { return printed(k.advice); }, InEnvironment());
}

void bind_entry(nb::module_& m) {
    nb::class_<HistogramEntry>(m, "HistogramEntry", "A tensor, or several.")
        .def_prop_ro("file", text_of(&HistogramEntry::file), InEnvironment())
        .def_prop_ro("name", text_of(&HistogramEntry::name), InEnvironment())
        .def_prop_ro("layer", text_of(&HistogramEntry::layer), InEnvironment())
        .def_ro("step", &HistogramEntry::step)
        .def_prop_ro(
            "kind", [](const HistogramEntry& e) { return names_of(e.kinds); },
            "Several where merged tensors differ in it.", InEnvironment())
        .def_ro("dtype", &HistogramEntry::dtype)
        .def_ro("shape", &HistogramEntry::shape)
        .def_ro("recorded_scale", &HistogramEntry::recorded_scale, "None where merged tensors differ in it.")
        .def_ro("tensors", &HistogramEntry::tensors, "How many tensors it holds.")
        .def_ro("magnitudes", &HistogramEntry::magnitudes)
        .def_ro("directed", &HistogramEntry::directed, "Filled for roundings that are not to nearest.")
        .def_ro("blocks", &HistogramEntry::blocks)
        .def_ro("recipes", &HistogramEntry::recipes, "A RecipeEffect for each recipe, in their order.")
        .def_ro("unscaled", &HistogramEntry::unscaled, "CastCounts at scale 1, one for each format.")
        .def_ro("fits", &HistogramEntry::fits, "A FormatFit for each format; empty for gradients.")
        .def_ro("measured", &HistogramEntry::measured,
                "False where only a histogram was recorded: max and min are unknown.")
        .def_prop_ro(
            "own", [](const HistogramEntry& e) { return by_cast(e.own); },
            "(format, scale, CastCounts) of casts that took a pass of their own.", InEnvironment())
        .def_prop_ro(
            "errors", [](const HistogramEntry& e) { return by_cast(e.errors); },
            "(format, scale, CastError) of every cast, with error=True.", InEnvironment());
}

} // namespace

void bind_histogram(nb::module_& m) {
    bind_counts(m);
    bind_statistics(m);
    bind_recipes(m);
    bind_entry(m);
    bind_fit(m);
    nb::class_<Asked>(m, "HistogramFindings",
                      "What formats make of recorded gradients: see ampscope.histogram_findings().")
        .def_ro("tensors", &Asked::tensors, "A HistogramEntry for each.")
        .def_ro("groups", &Asked::groups, "As `by` asks for; empty for tensors.")
        .def_ro("total", &Asked::total)
        .def_ro("kinds", &Asked::kinds,
                "A KindFindings for gradients, weights, activations, state; of those asked for.")
        .def_prop_ro(
            "other_kinds", [](const Asked& f) { return names_of(f.unselected); },
            "Kinds of tensors of the recording that were not selected.", InEnvironment())
        .def_prop_ro("formats", &formats_of, "FormatCounts of the total, one for each format.", InEnvironment())
        .def_prop_ro("advice", &advice_of, "That of all kinds.", InEnvironment())
        .def_ro("gates", &Asked::gates)
        .def_prop_ro(
            "errors", [](const Asked& f) { return printed(f.errors); }, InEnvironment())
        .def_prop_ro(
            "warnings", [](const Asked& f) { return printed(f.warnings); }, InEnvironment())
        .def_prop_ro(
            "recipe_names",
            [](const Asked& f) {
                std::vector<std::string> names;
                for (const RecipeChoice& choice : f.options.recipes) names.push_back(choice.text);
                return names;
            },
            "The recipes that were asked for.", InEnvironment())
        .def("rows", &rows_of, "(index in tensors, format, scale, CastCounts) of all that is known.", InEnvironment());
    m.def("amp_histogram", &amp_histogram, nb::arg("words"), InEnvironment());
    m.def("histogram_findings", &findings, nb::arg("words"), InEnvironment());
}

} // namespace amp::python
