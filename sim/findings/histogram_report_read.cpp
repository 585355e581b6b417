// Reads reports of earlier runs, for --merge. They may come from anywhere, so everything in them is checked.
#include <ampscope/sim/findings/detail/recipe_json.h>
#include <ampscope/sim/findings/detail/report_values.h>
#include <ampscope/sim/findings/histogram_report.h>
#include <ampscope/sim/io/dtype.h>
#include <ampscope/sim/io/json_reader.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;
using detail::count_at, detail::number_at, detail::parse_exponent, detail::whole, detail::wholes;

/// A count; under stochastic rounding an expectation.
double amount_at(const Json& json, const char* key) {
    const double n = number_at(json, key);
    if (!(n >= 0) || !std::isfinite(n)) throw std::invalid_argument(fmt::format("its {} is no count", key));
    return n;
}

/// A sum of squares: a number, or text if a double cannot hold it; null (from earlier versions) means unknown.
SquareSum squares_at(const Json& json, const char* key) {
    if (!json.at(key).is_string()) return SquareSum(number_at(json, key, std::nan("")));
    const std::optional<SquareSum> sum = SquareSum::read(json.at(key).get<std::string>());
    if (!sum) throw std::invalid_argument(fmt::format("its {} is no sum of squares", key));
    return *sum;
}

CastError parse_error(const Json& json) {
    return {count_at(json, "compared"), count_at(json, "excluded"),      squares_at(json, "signal"),
            squares_at(json, "noise"),  number_at(json, "max_relative"), number_at(json, "sum_relative"),
            count_at(json, "nonzero")};
}

ClassCounts parse_counts(const Json& json) {
    return {count_at(json, "underflow"), count_at(json, "subnormal"), count_at(json, "normal"),
            count_at(json, "overflow")};
}

BlockStatistics parse_blocks(const Json& json) {
    BlockStatistics blocks{count_at(json, "count"), count_at(json, "zero"), {}, {}};
    for (const auto& [exponent, n] : json.at("amax_exponents").items())
        blocks.amax_exponents[parse_exponent(exponent)] = whole(n);
    for (const auto& [name, counts] : json.at("formats").items())
        blocks.formats.push_back({format(name), parse_counts(counts.at("mx")), parse_counts(counts.at("amax")),
                                  parse_counts(counts.at("tensor"))});
    return blocks;
}

std::map<int, MantissaRow> parse_rows(const Json& json) {
    std::map<int, MantissaRow> rows;
    for (const auto& [exponent, row] : json.items()) {
        const std::vector<std::uint64_t> counts = wholes(row);
        if (counts.empty() || counts.size() > mantissa_classes)
            throw std::invalid_argument("a row of its state has the wrong length");
        std::ranges::copy(counts, rows[parse_exponent(exponent)].begin());
    }
    return rows;
}

/// Every element is in one of the two directions or, for roundings that depend on more than the sign, in both.
void parse_directions(const Json& state, std::uint64_t nonzero, Rounding rounding, FineHistogram& fine) {
    fine.toward.rows = parse_rows(state.at("toward"));
    fine.away.rows = parse_rows(state.at("away"));
    const std::uint64_t toward = fine.toward.nonzero(), away = fine.away.nonzero();
    const bool by_sign = rounding == Rounding::down || rounding == Rounding::up;
    if (by_sign ? toward > nonzero || away != nonzero - toward : toward != nonzero || away != nonzero)
        throw std::invalid_argument("the directions of its state and its count differ");
}

FineHistogram parse_fine(const Json& state, const MagnitudeHistogram& magnitudes, const FineNeeds& needs) {
    FineHistogram fine;
    if (needs.directed) parse_directions(state, magnitudes.nonzero(), *needs.directed, fine);
    const Json none = Json::object();
    const Json& ends = state.contains("ends") ? state.at("ends") : none;
    for (const int bits : needs.ends) {
        const auto end = ends.find(std::to_string(bits));
        if (end == ends.end() && magnitudes.rows.empty()) continue;
        if (end == ends.end())
            throw std::invalid_argument(fmt::format("it does not tell where formats of {} fraction bits end; run "
                                                    "amp-histogram on the tensors with the formats of this merge",
                                                    bits));
        fine.ends[bits].rows = parse_rows(*end);
        if (fine.ends[bits].exponents() != magnitudes.exponents())
            throw std::invalid_argument("the ends of formats in its state and its rows differ");
    }
    return fine;
}

MagnitudeHistogram parse_state(const Json& json) {
    MagnitudeHistogram histogram{
        .zero = count_at(json, "zero"), .nan = count_at(json, "nan"), .inf = count_at(json, "inf")};
    const Json& state = json.at("state");
    if (state.at("mantissa_classes") != mantissa_classes)
        throw std::invalid_argument("its state has other mantissa classes");
    histogram.rows = parse_rows(state.at("rows"));
    if (histogram.count() != count_at(json, "count")) throw std::invalid_argument("its state and its count differ");
    return histogram;
}

/// The format of the elements: a report names the dtype of a file, or the format of a line of histograms.jsonl.
std::string_view format_of(std::string_view dtype) {
    const auto row = std::ranges::find(dtypes, dtype, &DTypeInfo::name);
    return row == dtypes.end() ? dtype : row->format;
}

/// What the record of a gradient hides, which earlier versions did not write down, by its dtype alone.
Censoring censoring_by_dtype(const HistogramEntry& entry) {
    if (!entry.is_gradient()) return {};
    return censoring_of({.stored = format_of(entry.dtype),
                         .backward = {},
                         .scale = *entry.recorded_scale,
                         .zeros = entry.magnitudes.histogram.zero,
                         .elements = entry.magnitudes.histogram.count()});
}

/// What says which tensor it is, and how it was recorded.
HistogramEntry parse_identity(const Json& json) {
    HistogramEntry entry;
    entry.file = json.at("file").get<std::string>();
    entry.name = json.at("name").get<std::string>();
    entry.layer = json.at("layer").get<std::string>();
    if (const Json& step = json.at("step"); !step.is_null()) {
        if (!step.is_number_integer()) throw std::invalid_argument("its step is no whole number");
        entry.step = step.get<std::int64_t>();
    }
    entry.kinds = {parse_kind(json.at("kind").get<std::string>(), histogram_report_version)};
    entry.dtype = json.at("dtype").get<std::string>();
    entry.shape = wholes(json.at("shape"));
    entry.recorded_scale = json.at("recorded_scale").get<double>();
    if (!(*entry.recorded_scale > 0) || !std::isfinite(*entry.recorded_scale))
        throw std::invalid_argument("a tensor's recorded_scale is not positive and finite");
    entry.scale_stated = json.value("scale_stated", true);
    return entry;
}

/// Its magnitudes, and what their record hides. Throws if they contradict each other.
void parse_magnitudes(const Json& json, HistogramEntry& entry) {
    MagnitudeStatistics& m = entry.magnitudes;
    m.histogram = parse_state(json);
    m.min_nonzero = number_at(json, "min_nonzero", 0);
    m.max = number_at(json, "max", 0);
    m.sums = {number_at(json, "sum_absolute"), number_at(json, "sum_squares")};
    if (const auto hidden = json.find("hidden"); hidden != json.end()) {
        const std::uint64_t zeros = count_at(*hidden, "zeros");
        const bool sums = hidden->value("terms", false);
        const Json& below = hidden->at("below_log2"); // null: it was held in such a format, but has no zeros
        const bool hides = zeros > 0 || sums;
        if (zeros > m.histogram.zero || (hides ? !below.is_number_integer() : !below.is_null()))
            throw std::invalid_argument("what a tensor's record hides contradicts its state");
        entry.censoring = {.zeros = zeros, .sums = sums, .elements = m.histogram.count()};
        if (hides) entry.censoring.below_log2 = below.get<int>();
    }
    const bool any = !m.histogram.rows.empty();
    entry.measured = !any || !json.at("max").is_null();
    if (any && entry.measured ? !(0 < m.min_nonzero && m.min_nonzero <= m.max) : m.max != 0 || m.min_nonzero != 0)
        throw std::invalid_argument("a tensor's min_nonzero and max contradict its state");
    if (m.sums.absolute < 0 || m.sums.squares < 0) throw std::invalid_argument("a tensor's sums are negative");
}

/// Counts and errors that do not follow from the histogram, by format and scale.
void parse_counts_at_scales(const Json& formats, const HistogramOptions& options, HistogramEntry& entry) {
    for (const auto& [format, result] : formats.items())
        for (const Json& at : result.at("scales")) {
            const auto scale = at.at("scale").get<double>();
            if (options.error && at.contains("error")) entry.errors[{format, scale}] = parse_error(at.at("error"));
            if (options.from_histogram(scale)) continue;
            entry.own[{format, scale}] = {amount_at(at, "underflow"), amount_at(at, "subnormal"),
                                          amount_at(at, "normal"), amount_at(at, "overflow"),
                                          options.policy.rounding == Rounding::stochastic};
        }
}

ShardedTensor parse_shard(const Json& json, const HistogramEntry& entry) {
    ShardedTensor shard{.index = count_at(json, "index")};
    if (!json.contains("begin")) return shard;
    shard.begin = count_at(json, "begin");
    shard.end = count_at(json, "end");
    shard.elements = count_at(json, "elements");
    const auto absolute = ExactSum::read(json.at("sum_absolute").get<std::string>()),
               squares = ExactSum::read(json.at("sum_squares").get<std::string>());
    const std::uint64_t counted = entry.magnitudes.histogram.count(), size = shard.end - shard.begin;
    constexpr std::uint64_t most = std::uint64_t{1} << 60; // more than any file holds
    if (shard.begin >= shard.end || shard.end > shard.elements || shard.elements > most || !absolute || !squares ||
        (counted != size && counted != 2 * size)) // complex elements have two numbers
        throw std::invalid_argument("a part of a tensor contradicts its state");
    shard.absolute = *absolute;
    shard.squares = *squares;
    shard.backward = json.at("backward").get<std::string>();
    return shard;
}

CountedShards parse_shards(const Json& json) {
    CountedShards shards{.numbers = wholes(json.at("numbers")),
                         .of = count_at(json, "of"),
                         .recording = json.at("recording").get<std::string>()};
    for (const Json& f : json.at("failed")) {
        const auto text = [&](const char* key) { return f.at(key).get<std::string>(); };
        shards.failed.push_back({text("file"), f.at("whole").get<bool>(), count_at(f, "index"), count_at(f, "begin"),
                                 text("damaged"), text("error")});
    }
    if (!std::ranges::is_sorted(shards.numbers, std::ranges::less_equal()) ||
        (!shards.numbers.empty() && (shards.numbers.front() < 1 || shards.numbers.back() > shards.of)))
        throw std::invalid_argument("the numbers of its shards contradict each other");
    return shards;
}

HistogramEntry parse_tensor(const Json& json, const HistogramOptions& options) {
    HistogramEntry entry = parse_identity(json);
    parse_magnitudes(json, entry);
    if (const auto shard = json.find("shard"); shard != json.end()) entry.shard = parse_shard(*shard, entry);
    entry.fine = parse_fine(json.at("state"), entry.magnitudes.histogram, options.fine_needs());
    parse_counts_at_scales(json.at("formats"), options, entry);
    if (options.block != 0) entry.blocks = parse_blocks(json.at("blocks"));
    for (const RecipeChoice& choice : options.recipes)
        entry.recipes.push_back(detail::parse_effect(json.at("recipes").at(choice.text)));
    for (const auto& [format, scale] : wanted_counts(options))
        if (!knows(entry, format, scale, options) || (options.error && !entry.errors.contains({format.name, scale})))
            throw std::invalid_argument(fmt::format(
                "it lacks {} at scale {:g}; run amp-histogram on the tensors with the options of this merge",
                format.name, scale));
    return entry;
}

void check_counting(const Json& report, const HistogramOptions& options) {
    if (report.at("counting") != counting_json(options))
        throw std::invalid_argument(
            "it was counted with another --rounding, --flush-subnormals, --overflow, --block, --recipe or --worst");
}

/// The version of a report's schema.
std::int64_t version_of(const Json& report) {
    if (report.is_object() && report.contains("tool") && report.at("tool") == "amp-histogram") {
        const Json& version = report.at("schema_version");
        for (std::int64_t known = 1; known <= histogram_report_version; ++known)
            if (version == known) return known;
    }
    throw std::invalid_argument(
        fmt::format("it is no report of amp-histogram with a schema version from 1 to {}", histogram_report_version));
}

} // namespace

HistogramReport read_histogram_report(const ReportSource& source, const HistogramOptions& options) {
    constexpr std::size_t most_rows = 4'000'000; // limit for all histograms together: about 1 GB
    HistogramReport result;
    std::vector<HistogramEntry>& entries = result.tensors;
    std::size_t rows = 0;
    std::string place;
    const auto take = [&](std::string_view array, const Json& element, const Json& before) {
        if (array != "tensors") return;
        if (entries.empty() && before.contains("counting")) check_counting(before, options);
        place = fmt::format("tensors[{}]: ", entries.size());
        entries.push_back(parse_tensor(element, options));
        rows += entries.back().magnitudes.histogram.rows.size();
        if (rows > most_rows) throw std::invalid_argument(fmt::format("more than {} rows of states", most_rows));
        place.clear();
    };
    try {
        const Json report =
            source.text ? read_json_elements(source.name, *source.text, take) : read_json_elements(source.name, take);
        const std::int64_t version = version_of(report);
        check_counting(report, options);
        if (!report.contains("tensors")) throw std::invalid_argument("it has no tensors");
        for (HistogramEntry& entry : entries) {
            entry.kinds = {parse_kind(names_of(entry.kinds), version)};
            if (entry.censoring.elements == 0) entry.censoring = censoring_by_dtype(entry);
            entry.censoring.terms = entry.kinds.has(TensorKind::activation_gradient);
        }
        if (!report.contains("shards")) {
            if (std::ranges::any_of(entries, [](const HistogramEntry& entry) { return entry.shard.has_value(); }))
                throw std::invalid_argument("a tensor is of a shard, and the report says of none");
            return result;
        }
        result.shards = parse_shards(report.at("shards"));
        for (const HistogramEntry& entry : entries)
            if (!entry.shard) throw std::invalid_argument("a tensor of its shards has no place among them");
        result.errors = report.at("errors").get<std::vector<std::string>>();
        result.warnings = report.at("shards").at("warnings").get<std::vector<std::string>>();
        for (const Json& kind : report.at("other_kinds"))
            result.other_kinds |= {parse_kind(kind.get<std::string>(), version)};
        return result;
    } catch (const FileError&) {
        throw;
    } catch (const std::bad_alloc&) { // not a fault of the file
        throw;
    } catch (const std::exception& error) {
        throw FileError(source.name, place + "cannot merge: " + words_of(error));
    }
}

} // namespace amp
