#include <ampscope/tools/python/tool.h>

#include <ampscope/tools/amp-histogram/find.h>
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

Asked findings_of(const HistogramToolOptions& options, const Watch& watch) { return {find(options, watch), options}; }

/// (index of the tensor, format, scale, counts): the rows of frame().
std::vector<std::tuple<std::size_t, std::string, double, CastCounts>> rows_of(const Asked& findings) {
    std::vector<std::tuple<std::size_t, std::string, double, CastCounts>> rows;
    for (std::size_t i = 0; i < findings.tensors.size(); ++i)
        for (const FormatSpec& format : findings.options.formats)
            for (const ScaleCounts& at : format_counts(findings.tensors[i], format, findings.options).scales)
                rows.emplace_back(i, format.name, at.scale, at.counts);
    return rows;
}

std::vector<FormatCounts> counts_by_format(const Asked& findings) {
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
    const auto options = parsed("amp-histogram", words, &histogram_tool::parse_command_line, {"--json", "-"});
    return interruptible([&](const Watch& watch) {
        Said said;
        const Asked findings = findings_of(options, watch);
        for (const std::string& error : findings.errors) said.second.push_back("amp-histogram: " + printable(error));
        if (!options.csv.empty())
            write_report(options.csv, [&](const TextSink& sink) { write_csv(findings, options, sink); });
        if (!options.svg.empty()) write_report(options.svg, svg_report(findings, options));
        if (!options.html.empty()) write_report(options.html, html_report(findings, options));
        if (!options.blocks.empty()) write_report(options.blocks, blocks_archive(options.blocks, findings, options));
        write_json(findings, options, [&](std::string_view piece) { said.first += piece; });
        return said;
    });
}

Asked histogram_findings_of(const Words& words) {
    const auto options = parsed_alone("histogram_findings", words, &histogram_tool::parse_command_line);
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
        .def_ro("expected", &CastCounts::expected,
                "Whether they are expectations, as under stochastic rounding, and need not be integers.");
    nb::class_<CastError>(m, "CastError", "The error of a cast, over elements that are finite before and after it.")
        .def_ro("compared", &CastError::compared, "The number of these elements.")
        .def_ro("excluded", &CastError::excluded, "The number of finite elements whose result is infinite or NaN.")
        .def_prop_ro("signal", value_of(&CastError::signal), "The sum of the squares of the values.", InEnvironment())
        .def_prop_ro("noise", value_of(&CastError::noise), "The sum of the squares of the errors.", InEnvironment())
        .def_ro("max_relative", &CastError::max_relative, "The largest |error| / |x|; 1 if an element becomes zero.")
        .def_ro("sum_relative", &CastError::sum_relative, "The sum of |error| / |x| over elements that are not zero.")
        .def_ro("nonzero", &CastError::nonzero, "The number of elements compared that are not zero.")
        .def_prop_ro("mean_relative", &CastError::mean_relative, "sum_relative / nonzero.", InEnvironment())
        .def_prop_ro("sqnr", &CastError::sqnr, "Signal-to-quantization-noise ratio in dB.", InEnvironment());
    nb::class_<ScaleCounts>(m, "ScaleCounts", "What a cast to one format does at one loss scale.")
        .def_ro("scale", &ScaleCounts::scale)
        .def_ro("counts", &ScaleCounts::counts, "The CastCounts.");
    nb::class_<FormatCounts>(m, "FormatCounts", "What a cast to one format does at all its scales.")
        .def_ro("scales", &FormatCounts::scales, "A ScaleCounts for each loss scale, ascending.")
        .def_prop_ro(
            "recommendation", [](const FormatCounts& f) { return recommendation_dict(f.recommendation); },
            "The recommended loss scale, a dict as Histogram.recommend() returns it.", InEnvironment());
    nb::class_<ScaleCurve>(m, "ScaleCurve", "What loss scales do in one format.")
        .def_ro("format", &ScaleCurve::format, "The Format.")
        .def_ro("unscaled", &ScaleCurve::unscaled, "The ClassCounts at loss scale 1.")
        .def_prop_ro(
            "recommendation", [](const ScaleCurve& c) { return recommendation_dict(c.recommendation); },
            "The recommended loss scale, a dict as Histogram.recommend() returns it.", InEnvironment())
        .def_ro("underflow", &ScaleCurve::underflow, "The share of non-zero elements that becomes zero, by scale.")
        .def_ro("overflow", &ScaleCurve::overflow, "The share that overflows.");
    nb::class_<ScaleCurves>(m, "ScaleCurves", "What the loss scales 2^first_log2, 2^(first_log2 + 1) ... do.")
        .def_prop_ro(
            "rounding", [](const ScaleCurves& s) { return name_of(s.rule.rounding); }, "How the casts round.",
            InEnvironment())
        .def_prop_ro(
            "flush", [](const ScaleCurves& s) { return s.rule.flush; }, "Whether subnormal results become zero.",
            InEnvironment())
        .def_ro("first_log2", &ScaleCurves::first_log2)
        .def_ro("curves", &ScaleCurves::curves, "A ScaleCurve for each format.");
    nb::class_<Gate>(m, "Gate", "A limit on what a format may do to the gradients.")
        .def_ro("text", &Gate::text, "The gate as it was asked for: 'fp16.underflow<0.1%'.")
        .def_ro("format", &Gate::format, "The name of the format.")
        .def_ro("scale", &Gate::scale, "The loss scale.")
        .def_prop_ro("number_class", named(&Gate::number_class), "What is counted: underflow, overflow, nan ...",
                     InEnvironment())
        .def_prop_ro("denominator", named(&Gate::denominator),
                     "Whose share is limited: all elements or the finite nonzero ones; none: the limit is a number.",
                     InEnvironment())
        .def_ro("or_equal", &Gate::or_equal, "Whether the limit itself is allowed.")
        .def_ro("limit_digits", &Gate::limit_digits, "The limit is exactly limit_digits / 10^limit_decimals.")
        .def_ro("limit_decimals", &Gate::limit_decimals);
    nb::class_<GateResult>(m, "GateResult", "What became of a Gate on the total.")
        .def_ro("gate", &GateResult::gate)
        .def_prop_ro("empty", &GateResult::empty,
                     "Whether the gate is on a share of no elements; it does not hold then.", InEnvironment())
        .def_ro("part", &GateResult::part,
                "The number of elements of the class; an expectation under stochastic rounding.")
        .def_ro("whole", &GateResult::whole, "The number of elements whose share is limited; 0 if there is no share.")
        .def_ro("holds", &GateResult::holds);
}

void bind_statistics(nb::module_& m) {
    nb::class_<MagnitudeSums>(m, "MagnitudeSums", "Sums over the finite elements of a tensor.")
        .def_ro("absolute", &MagnitudeSums::absolute, "The sum of magnitudes.")
        .def_ro("squares", &MagnitudeSums::squares, "The sum of squares.");
    nb::class_<MagnitudeStatistics>(m, "MagnitudeStatistics", "Magnitudes without the recorded loss scale.")
        .def_ro("histogram", &MagnitudeStatistics::histogram)
        .def_ro("min_nonzero", &MagnitudeStatistics::min_nonzero,
                "The smallest finite magnitude above 0; 0 if there is none.")
        .def_ro("max", &MagnitudeStatistics::max, "The largest finite magnitude.")
        .def_ro("sums", &MagnitudeStatistics::sums, "The MagnitudeSums.");
    nb::class_<FineHistogram>(m, "FineHistogram", "What casts need that depend on more than classes of magnitudes.")
        .def_ro("toward", &FineHistogram::toward, "The Histogram of elements that may move toward zero.")
        .def_ro("away", &FineHistogram::away, "The Histogram of elements that may move away from zero.")
        .def_ro(
            "ends", &FineHistogram::ends,
            "By fraction bits of formats that end within a binade: a Histogram in which mantissa classes 3, 4 and 5 "
            "lie below, at and above the tie that follows their largest value.");
    nb::class_<ClassCounts>(m, "ClassCounts", "The non-zero elements by what a cast makes of them.")
        .def_ro("underflow", &ClassCounts::underflow)
        .def_ro("subnormal", &ClassCounts::subnormal)
        .def_ro("normal", &ClassCounts::normal)
        .def_ro("overflow", &ClassCounts::overflow);
    nb::class_<BlockCounts>(m, "BlockCounts", "What three kinds of scales make of blocks in one format.")
        .def_ro("format", &BlockCounts::format)
        .def_ro("mx", &BlockCounts::mx, "The ClassCounts under a power of two for each block, as OCP MX has it.")
        .def_ro("amax", &BlockCounts::amax, "The ClassCounts under amax / max for each block.")
        .def_ro("tensor", &BlockCounts::tensor, "The ClassCounts under amax / max of the whole tensor.");
    nb::class_<BlockStatistics>(m, "BlockStatistics", "Blocks of N elements that share a scale; measured with block=N.")
        .def_ro("blocks", &BlockStatistics::blocks, "The number of blocks.")
        .def_ro("zero_blocks", &BlockStatistics::zero_blocks,
                "The number of blocks without any finite non-zero element.")
        .def_ro("amax_exponents", &BlockStatistics::amax_exponents, "The number of blocks by floor(log2 amax).")
        .def_ro("formats", &BlockStatistics::formats, "A BlockCounts for each format.");
}

void bind_recipes(nb::module_& m) {
    nb::class_<ScaledStatistics>(m, "ScaledStatistics", "What a cast with a scale for each block does.")
        .def_ro("elements", &ScaledStatistics::elements)
        .def_ro("nonzero", &ScaledStatistics::nonzero, "The number of elements that are finite and not zero.")
        .def_ro("nonfinite", &ScaledStatistics::nonfinite, "The number of elements that are NaN or infinite.")
        .def_ro("underflow", &ScaledStatistics::underflow, "The number of non-zero elements that become zero.")
        .def_ro("saturated", &ScaledStatistics::saturated, "The number of finite elements that are clipped.")
        .def_ro("lost", &ScaledStatistics::lost, "The number of finite elements that become NaN or infinite.")
        .def_ro("signal", &ScaledStatistics::signal, "The sum of squares of the elements.")
        .def_ro("noise", &ScaledStatistics::noise, "The sum of squared errors.")
        .def_ro("blocks", &ScaledStatistics::blocks)
        .def_ro("zero_blocks", &ScaledStatistics::zero_blocks, "The number of blocks of zeros.")
        .def_ro("partial_blocks", &ScaledStatistics::partial_blocks,
                "The number of blocks that are smaller than asked for, at the edges of tensors.")
        .def_ro("nonfinite_blocks", &ScaledStatistics::nonfinite_blocks, "The number of blocks with NaN or infinity.")
        .def_ro("zero_scales", &ScaledStatistics::zero_scales, "The number of blocks whose scale is 0.")
        .def_ro("nonfinite_scales", &ScaledStatistics::nonfinite_scales,
                "The number of blocks whose scale is NaN or infinite.")
        .def_ro("saturated_scales", &ScaledStatistics::saturated_scales,
                "The number of blocks whose scale is the smallest or largest that the recipe has.")
        .def_ro("least_scale", &ScaledStatistics::least_scale, "The smallest scale of a block.")
        .def_ro("largest_scale", &ScaledStatistics::largest_scale, "The largest scale of a block.")
        .def_ro("scales", &ScaledStatistics::scales,
                "The number of blocks by floor(log2 scale), or by code where scales are E4M3.")
        .def_ro("ranges", &ScaledStatistics::ranges,
                "The number of blocks by floor(log2(amax / least non-zero magnitude)).")
        .def_prop_ro("compared", &ScaledStatistics::compared, "The number of elements that signal and noise sum over.",
                     InEnvironment())
        .def_prop_ro("sqnr", &ScaledStatistics::sqnr, "Signal-to-quantization-noise ratio in dB.", InEnvironment())
        .def_prop_ro("mean_squared_error", &ScaledStatistics::mean_squared_error, InEnvironment())
        .def_prop_ro("spread", &ScaledStatistics::spread, "largest_scale / least_scale.", InEnvironment());
    nb::class_<ScaledBlock>(m, "ScaledBlock", "A block of elements that share a scale; see ScaledStatistics.")
        .def_ro("row", &ScaledBlock::row, "The row of the block among the blocks, from 0.")
        .def_ro("column", &ScaledBlock::column, "The column of the block among the blocks, from 0.")
        .def_ro("scale", &ScaledBlock::scale, "The scale by which its codes are multiplied.")
        .def_ro("amax", &ScaledBlock::amax, "Its largest finite magnitude.")
        .def_ro("least", &ScaledBlock::least, "Its smallest non-zero finite magnitude.")
        .def_ro("elements", &ScaledBlock::elements)
        .def_ro("nonzero", &ScaledBlock::nonzero)
        .def_ro("nonfinite", &ScaledBlock::nonfinite)
        .def_ro("underflow", &ScaledBlock::underflow)
        .def_ro("saturated", &ScaledBlock::saturated)
        .def_ro("lost", &ScaledBlock::lost)
        .def_ro("signal", &ScaledBlock::signal)
        .def_ro("noise", &ScaledBlock::noise);
    nb::class_<RecordedBlock, ScaledBlock>(m, "RecordedBlock",
                                           "One of the blocks that a recipe holds worst, and its tensor.")
        .def_prop_ro("tensor", text_of(&RecordedBlock::tensor), InEnvironment())
        .def_ro("step", &RecordedBlock::step);
    nb::class_<RecipeEffect>(m, "RecipeEffect", "What a scaling recipe does to a tensor, or to several.")
        .def_ro("tensors", &RecipeEffect::tensors, "The number of tensors that the recipe casts.")
        .def_ro("unscaled", &RecipeEffect::unscaled, "The number of tensors that the recipe does not cast.")
        .def_prop_ro(
            "role",
            [](const RecipeEffect& e) { return e.role ? std::optional(std::string(name_of(*e.role))) : std::nullopt; },
            "input, weight or gradient; None where merged tensors differ.", InEnvironment())
        .def_ro("element", &RecipeEffect::element, "The name of the format.")
        .def_ro("block", &RecipeEffect::block, "The height and width of a block, in elements.")
        .def_ro("grid", &RecipeEffect::grid, "How many blocks lie below and beside each other, in a single tensor.")
        .def_ro("statistics", &RecipeEffect::statistics, "The ScaledStatistics of all blocks.")
        .def_ro("worst", &RecipeEffect::worst, "The worst blocks, a RecordedBlock each, worst first.");
}

void bind_fit(nb::module_& m) {
    nb::class_<FormatFit>(m, "FormatFit", "How a format holds tensors that no loss scale multiplies.")
        .def_ro("tensors", &FormatFit::tensors, "The number of tensors with an element that is finite and not zero.")
        .def_ro("overflowing", &FormatFit::overflowing,
                "The number of tensors of which elements overflow without a scale.")
        .def_ro("held", &FormatFit::held,
                "The number of tensors that do not overflow and lose less than the limit without a scale.")
        .def_ro("held_scaled", &FormatFit::held_scaled,
                "The number of tensors for which the same is true under a scale of their own.")
        .def_ro("unscaled", &FormatFit::unscaled, "The ClassCounts without a scale.")
        .def_ro("scaled", &FormatFit::scaled, "The ClassCounts under the scale of each tensor.")
        .def_ro("log2_scales", &FormatFit::log2_scales,
                "log2 of the smallest and the largest of these scales: largest powers of two without overflow.");
    nb::class_<KindFindings>(m, "KindFindings",
                             "Tensors that are judged together: gradients, weights, activations, state.")
        .def_prop_ro(
            "name", [](const KindFindings& k) { return k.group->name; }, "gradients, weights, activations or state.",
            InEnvironment())
        .def_ro("total", &KindFindings::total, "A HistogramEntry of them all.")
        .def_ro("formats", &KindFindings::formats, "The FormatCounts of the total for each format.")
        .def_ro("scales", &KindFindings::scales, "The ScaleCurves of gradients; without curves for other kinds.")
        .def_prop_ro("advice", text_of(&KindFindings::advice),
                     "A sentence or two on each format; before them, one on gradients that are NaN or infinite.",
                     InEnvironment());
}

void bind_shards(nb::module_& m) {
    nb::class_<CountedShards>(m, "CountedShards", "Which shards of a recording were counted, with shard=\"K/N\".")
        .def_ro("numbers", &CountedShards::numbers, "The numbers of the shards, from 1.")
        .def_ro("of", &CountedShards::of, "How many shards there are.")
        .def_ro("recording", &CountedShards::recording, "A fingerprint of all that is to be counted.")
        .def_ro("failed", &CountedShards::failed,
                "A FailedCount for each file or tensor of which nothing may be counted.");
    nb::class_<FailedCount>(m, "FailedCount", "A file, or a tensor of a checkpoint, that could not be counted.")
        .def_prop_ro("file", text_of(&FailedCount::file), InEnvironment())
        .def_ro("whole", &FailedCount::whole, "Whether nothing of the file may be counted, or only this tensor not.")
        .def_ro("index", &FailedCount::index, "The position of the tensor in the recording.")
        .def_ro("begin", &FailedCount::begin, "The first element of the part that was to be counted.")
        .def_prop_ro("damaged", text_of(&FailedCount::damaged), "The file that the error names.", InEnvironment())
        .def_prop_ro("error", text_of(&FailedCount::error), InEnvironment());
    nb::class_<ShardedTensor>(m, "ShardedTensor", "A tensor's place in a recording, and the part that was counted.")
        .def_ro("index", &ShardedTensor::index, "The position of the tensor in the recording.")
        .def_ro("begin", &ShardedTensor::begin, "The first element that was counted.")
        .def_ro("end", &ShardedTensor::end, "The element behind the last one that was counted.")
        .def_ro("elements", &ShardedTensor::elements,
                "The number of elements of the whole tensor; 0 if it was counted.")
        .def_prop_ro(
            "absolute", [](const ShardedTensor& t) { return t.absolute.value(); }, "The part's sum of magnitudes.")
        .def_prop_ro(
            "squares", [](const ShardedTensor& t) { return t.squares.value(); }, "The part's sum of squares.")
        .def_ro("backward", &ShardedTensor::backward,
                "The format in which the run's backward computes gradients; empty where it is not known.");
}

void bind_entry(nb::module_& m) {
    nb::class_<HistogramEntry>(m, "HistogramEntry", "What was counted of a tensor, or of several.")
        .def_prop_ro("file", text_of(&HistogramEntry::file), InEnvironment())
        .def_prop_ro("name", text_of(&HistogramEntry::name), InEnvironment())
        .def_prop_ro("layer", text_of(&HistogramEntry::layer), InEnvironment())
        .def_ro("censoring", &HistogramEntry::censoring, "What the records of gradients hide, a Censoring.")
        .def_ro("step", &HistogramEntry::step, "None where the file names no step.")
        .def_prop_ro(
            "kind", [](const HistogramEntry& e) { return names_of(e.kinds); },
            "What the tensor is: weight_gradient, activation ...; several names where merged tensors differ in it.",
            InEnvironment())
        .def_ro("dtype", &HistogramEntry::dtype,
                "The name of the element type; empty where merged tensors differ in it.")
        .def_ro("shape", &HistogramEntry::shape)
        .def_ro("recorded_scale", &HistogramEntry::recorded_scale,
                "The loss scale that the file's values contain; None where merged tensors differ in it.")
        .def_ro("scale_stated", &HistogramEntry::scale_stated,
                "False for gradients whose file states no loss scale, which is then taken for 1.")
        .def_ro("tensors", &HistogramEntry::tensors, "The number of tensors that were counted.")
        .def_ro("magnitudes", &HistogramEntry::magnitudes, "The MagnitudeStatistics.")
        .def_ro("fine", &HistogramEntry::fine,
                "A FineHistogram, filled for directed roundings and formats that end within a binade.")
        .def_ro("blocks", &HistogramEntry::blocks, "The BlockStatistics, filled with block=N.")
        .def_ro("recipes", &HistogramEntry::recipes, "A RecipeEffect for each recipe, in their order.")
        .def_ro("unscaled", &HistogramEntry::unscaled, "The CastCounts at scale 1 for each format.")
        .def_ro("shard", &HistogramEntry::shard, "A ShardedTensor, with shard=\"K/N\"; else None.")
        .def_ro("fits", &HistogramEntry::fits, "A FormatFit for each format; empty for gradients.")
        .def_ro("measured", &HistogramEntry::measured,
                "Whether tensors were read; if only a histogram was recorded, max and min are unknown.")
        .def_prop_ro(
            "own", [](const HistogramEntry& e) { return by_cast(e.own); },
            "A tuple (format, scale, CastCounts) for each cast whose counts do not follow from the histogram.",
            InEnvironment())
        .def_prop_ro(
            "errors", [](const HistogramEntry& e) { return by_cast(e.errors); },
            "A tuple (format, scale, CastError) for each cast, with error=True.", InEnvironment());
}

} // namespace

void bind_histogram(nb::module_& m) {
    bind_counts(m);
    bind_statistics(m);
    bind_recipes(m);
    bind_shards(m);
    bind_entry(m);
    bind_fit(m);
    nb::class_<Asked>(m, "HistogramFindings",
                      "What formats make of recorded gradients: see ampscope.histogram_findings().")
        .def_ro("tensors", &Asked::tensors, "A HistogramEntry for each tensor.")
        .def_ro("groups", &Asked::groups, "A HistogramEntry for each group that `by` asks for; empty for tensors.")
        .def_ro("total", &Asked::total, "A HistogramEntry of all selected tensors.")
        .def_ro("kinds", &Asked::kinds,
                "A KindFindings for each of gradients, weights, activations and state that was asked for.")
        .def_prop_ro(
            "other_kinds", [](const Asked& f) { return names_of(f.other_kinds); },
            "The kinds of tensors of the recording that were not selected.", InEnvironment())
        .def_prop_ro("formats", &counts_by_format, "The FormatCounts of the total for each format.", InEnvironment())
        .def_prop_ro("advice", &advice_of, "The advice of all kinds, in sentences.", InEnvironment())
        .def_ro("shards", &Asked::shards, "The CountedShards, with shard=\"K/N\"; else None.")
        .def_ro("gates", &Asked::gates, "A GateResult for each gate that was asked for.")
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
            "The names of the recipes that were asked for.", InEnvironment())
        .def("rows", &rows_of, "A tuple (index in tensors, format, scale, CastCounts) for each count that is known.",
             InEnvironment());
    m.def("amp_histogram", &amp_histogram, nb::arg("words"), InEnvironment());
    m.def("histogram_findings", &histogram_findings_of, nb::arg("words"), InEnvironment());
}

} // namespace amp::python
