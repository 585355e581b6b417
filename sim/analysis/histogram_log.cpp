#include <ampscope/sim/analysis/histogram_log.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/analysis/histogram_json.h>
#include <ampscope/sim/analysis/measure.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <stdexcept>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

constexpr int most_exponent = 20'000; // of a magnitude

/// A count; a number with a fraction or a sign is none.
std::uint64_t count_of(const Json& number) {
    if (!number.is_number_unsigned()) throw std::runtime_error("no count");
    return number.get<std::uint64_t>();
}

/// Throws for anything that is no line of histograms.jsonl.
RecordedMagnitudes parsed(const std::string& text) {
    const Json line = Json::parse(text);
    if (!line.at("step").is_number_integer()) throw std::runtime_error("no step");
    RecordedMagnitudes r{.step = line["step"],
                         .tensor = line.at("tensor"),
                         .kind = line.value("kind", "weight") == "activation" ? GradientKind::activation
                                                                              : GradientKind::weight,
                         .format = line.at("format"),
                         .scale = line.at("loss_scale")};
    r.magnitudes.zero = count_of(line.at("zero"));
    r.magnitudes.nan = count_of(line.at("nan"));
    r.magnitudes.inf = count_of(line.at("inf"));
    if (!r.format.empty()) format(r.format); // throws for a name that is none
    if (!(r.scale > 0) || !std::isfinite(r.scale)) throw std::runtime_error("no loss scale");
    if (line.at("mantissa_classes").get<int>() != mantissa_classes) throw std::runtime_error("other mantissa classes");
    for (const auto& [exponent, counts] : line.at("rows").items()) {
        const int e = std::stoi(exponent);
        if (std::abs(e) > most_exponent) throw std::runtime_error("an exponent that no type has");
        MantissaRow row{};
        if (counts.size() > row.size()) throw std::runtime_error("too many mantissa classes");
        for (std::size_t i = 0; i < counts.size(); ++i) row[i] = count_of(counts[i]);
        r.magnitudes.rows[e] = row;
    }
    return r;
}

} // namespace

Json histogram_line(const RecordedMagnitudes& r) {
    const FloatEnvironment environment;
    return {{"step", r.step},
            {"tensor", r.tensor},
            {"kind", r.kind == GradientKind::weight ? "weight" : "activation"},
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
    std::ifstream in(file, std::ios::binary);
    std::int64_t number = 0, broken = 0;
    for (std::string text; std::getline(in, text);) {
        ++number;
        if (progress) progress(text.size() + 1);
        std::optional<RecordedMagnitudes> line;
        try {
            line = parsed(text);
        } catch (const std::exception&) {
            if (!in.eof() && ++broken == 1)
                warnings.push_back(
                    fmt::format("{}: line {} cannot be read; left out, as are others like it", file.string(), number));
        }
        if (line) sink(*line);
    }
}

void measure_gradients(const Recording& recording, int threads, const MagnitudesSink& sink,
                       std::vector<std::string>& warnings, const std::function<void(std::uint64_t)>& progress) {
    const FloatEnvironment environment;
    std::unique_ptr<TensorFile> file;
    for (const RecordedTensor& t : recording.tensors) {
        RecordedMagnitudes found{.step = t.step.value_or(0),
                                 .tensor = t.entry.name,
                                 .kind = t.kind,
                                 .format = std::string(info(t.entry.dtype).format)};
        try {
            if (!file || file->path() != t.file) file = open_tensor_file(t.file);
            found.magnitudes = measure_divided(*file, t.index, t.recorded_scale, threads, progress).histogram;
        } catch (const FileError& error) {
            warnings.emplace_back(error.what());
            continue;
        }
        sink(found);
    }
}

} // namespace amp
