#include <ampscope/sim/analysis/histogram_log.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/analysis/histogram_json.h>
#include <ampscope/sim/analysis/measure.h>
#include <ampscope/sim/base/number.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/run_facts.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/step_log.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <unordered_map>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

constexpr int most_exponent = 20'000; // limit for exponents of magnitudes

/// A count: an integer from 0 to a number that no tensor has, so that sums cannot wrap around. Throws for any other
/// value.
std::uint64_t count_of(const Json& number) {
    constexpr std::uint64_t most = std::uint64_t{1} << 48;
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > most) throw std::runtime_error("no count");
    return number.get<std::uint64_t>();
}

/// Parses a line of histograms.jsonl, which states the version of the names of kinds, or is of version 1; throws for
/// any other text.
RecordedMagnitudes parsed(const std::string& text, const std::filesystem::path& file) {
    const Json line = parse_json(text, file);
    if (!line.at("step").is_number_integer()) throw std::runtime_error("no step");
    RecordedMagnitudes r{
        .step = line["step"],
        .tensor = line.at("tensor"),
        .kind = parse_kind(line.value("kind", "weight_gradient"), line.value("schema_version", std::int64_t{1})),
        .format = line.at("format"),
        .scale = line.at("loss_scale")};
    r.magnitudes.zero = count_of(line.at("zero"));
    r.magnitudes.nan = count_of(line.at("nan"));
    r.magnitudes.inf = count_of(line.at("inf"));
    if (!r.format.empty()) format(r.format); // throws for an unknown name
    if (!(r.scale > 0) || !std::isfinite(r.scale)) throw std::runtime_error("no loss scale");
    if (line.at("mantissa_classes").get<int>() != mantissa_classes) throw std::runtime_error("other mantissa classes");
    for (const auto& [exponent, counts] : line.at("rows").items()) {
        const std::optional<int> e = number_of(exponent, -most_exponent, most_exponent);
        if (!e) throw std::runtime_error("an exponent that no type has");
        MantissaRow row{};
        if (counts.size() > row.size()) throw std::runtime_error("too many mantissa classes");
        for (std::size_t i = 0; i < counts.size(); ++i) row[i] = count_of(counts[i]);
        r.magnitudes.rows[*e] = row;
    }
    if (line.contains("count") && count_of(line["count"]) != r.magnitudes.count())
        throw std::runtime_error("counts that do not add up");
    return r;
}

/// floor(log2) of the least magnitude that is not zero.
std::optional<int> least_log2(const MagnitudeHistogram& histogram) {
    return histogram.rows.empty() ? std::nullopt : std::optional(histogram.rows.begin()->first);
}

/// What a line hides.
Censoring hidden_in(const RecordedMagnitudes& line, std::string_view backward) {
    if (!is_gradient(line.kind)) return {};
    std::optional<int> least = least_log2(line.magnitudes);
    if (least) *least -= std::ilogb(line.scale);
    return censoring_of(
        {line.format, backward, line.scale, line.magnitudes.zero, least, line.kind, line.magnitudes.count()});
}

/// Finds lines with the same step and tensor: two processes may have recorded into one folder.
class Repeats {
  public:
    /// Reads the file once; of lines that repeat, the last that can be read counts.
    explicit Repeats(const std::filesystem::path& file) {
        TextFile in(file);
        for (std::string text; in.next_line(text);) {
            const std::optional<Key> key = key_of(text, file);
            if (!key) continue;
            const Line line{in.number(), std::hash<std::string>()(text)};
            const auto [found, is_new] = last_.try_emplace(*key, line);
            if (is_new || !taken_if_right([&] { return parsed(text, file); })) continue;
            if (count++ == 0) first = line.number;
            differing += found->second.hash != line.hash ? 1 : 0;
            replaced_.push_back(found->second.number);
            found->second = line;
        }
        std::ranges::sort(replaced_);
    }

    [[nodiscard]] bool replaced(std::int64_t number) const { return std::ranges::binary_search(replaced_, number); }

    std::int64_t count = 0, differing = 0, first = 0; ///< repeated lines; those with another text; the first

  private:
    struct Line {
        std::int64_t number;
        std::size_t hash; ///< hash of its text
    };
    using Key = std::pair<std::int64_t, std::size_t>; ///< step, and number of the tensor

    std::optional<Key> key_of(const std::string& text, const std::filesystem::path& file) {
        constexpr std::array<std::string_view, 2> keys = {"step", "tensor"};
        return taken_if_right([&] {
            const Json head = parse_json_head(text, keys, file);
            const auto tensor = tensors_.try_emplace(head.at("tensor").get<std::string>(), tensors_.size()).first;
            return Key(head.at("step").get<std::int64_t>(), tensor->second);
        });
    }

    std::unordered_map<std::string, std::size_t> tensors_;
    std::map<Key, Line> last_;
    std::vector<std::int64_t> replaced_;
};

} // namespace

Censoring censoring_of(const RecordedTensor& tensor, const MagnitudeHistogram& unscaled, double scale) {
    if (!is_gradient(tensor.kind)) return {};
    return censoring_of({tensor.entry.stored().format, tensor.backward, scale, unscaled.zero, least_log2(unscaled),
                         tensor.kind, unscaled.count()});
}

Json histogram_line(const RecordedMagnitudes& r) {
    const FloatEnvironment environment;
    return {{"schema_version", run_layout::schema_version},
            {"step", r.step},
            {"tensor", r.tensor},
            {"kind", name_of(r.kind)},
            {"loss_scale", r.scale},
            {"format", r.format},
            {"count", r.magnitudes.count()},
            {"zero", r.magnitudes.zero},
            {"nan", r.magnitudes.nan},
            {"inf", r.magnitudes.inf},
            {"mantissa_classes", mantissa_classes},
            {"rows", rows_of(r.magnitudes)}};
}

void read_histogram_log(const std::filesystem::path& file, const MagnitudesSink& sink,
                        std::vector<std::string>& warnings, const std::function<void(std::uint64_t)>& progress) {
    const FloatEnvironment environment;
    if (!is_there(file)) return;
    const Repeats repeats(file);
    if (repeats.count > 0)
        warnings.push_back(fmt::format("{}: {} with the step and tensor of an earlier one, {} of them with other "
                                       "counts, the first is line {}; the last counts",
                                       file.string(), plural(static_cast<std::uint64_t>(repeats.count), "line"),
                                       repeats.differing, repeats.first));
    const std::string backward = facts_of_run(file.parent_path()).backward_format();
    TextFile in(file);
    std::uint64_t broken = 0;
    bool holds_any = false;
    for (std::string text; in.next_line(text);) {
        if (progress) progress(text.size() + 1);
        if (repeats.replaced(in.number())) continue;
        std::optional line = taken_if_right([&] { return parsed(text, file); });
        if (!line && !in.ended() && ++broken == 1)
            warnings.push_back(
                fmt::format("{}: line {} cannot be read; left out, as are others like it", file.string(), in.number()));
        if (!line) continue;
        holds_any = true;
        line->censoring = hidden_in(*line, backward);
        sink(*line);
    }
    if (broken > 0 && !holds_any) {
        warnings.pop_back();
        throw FileError(file, fmt::format("none of {} can be read", plural(broken, "line")));
    }
}

void measure_gradients(const Recording& recording, int threads, const MagnitudesSink& sink,
                       std::vector<std::string>& errors, const std::function<void(std::uint64_t)>& progress) {
    const FloatEnvironment environment;
    std::unique_ptr<TensorFile> file;
    for (const RecordedTensor& t : recording.tensors) {
        RecordedMagnitudes found{.step = t.step.value_or(0),
                                 .tensor = t.entry.name,
                                 .kind = t.kind,
                                 .format = std::string(t.entry.stored().format),
                                 .divided = t.recorded_scale};
        try {
            if (!file || file->path() != t.file) file = open_tensor_file(t.file);
            found.magnitudes = measure_divided(*file, t.index, t.recorded_scale, threads, progress).histogram;
        } catch (const FileError& error) {
            add_error(errors, error);
            continue;
        }
        found.censoring = censoring_of(t, found.magnitudes, t.recorded_scale);
        sink(found);
    }
}

} // namespace amp
