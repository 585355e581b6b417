#include <ampscope/sim/io/step_log.h>

#include <ampscope/formats/environment.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>

namespace amp {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t schema_version = 1; // of run.json and metrics.jsonl
constexpr std::size_t longest_line = 1 << 24;

/// The usual names of a column, the first that a log has counts.
struct ColumnNames {
    std::string said; ///< by the user
    std::vector<std::string> usual;

    /// The name that an object has; empty if none. Throws FileError for a name that was said and is not there.
    [[nodiscard]] std::string in(const Json& line, const fs::path& path) const {
        if (!said.empty()) {
            if (line.contains(said)) return said;
            std::vector<std::string> names;
            for (const auto& [name, value] : line.items()) names.push_back(name);
            throw FileError(path, fmt::format("has no column '{}'; it has {}", said, fmt::join(names, ", ")));
        }
        const auto found = std::ranges::find_if(usual, [&](const std::string& name) { return line.contains(name); });
        return found == usual.end() ? std::string() : *found;
    }
};

/// A number; words as programs print them ("inf", "True") count, too.
std::optional<double> number_in(const Json& line, const std::string& name) {
    const auto found = name.empty() ? line.end() : line.find(name);
    if (found == line.end()) return std::nullopt;
    if (found->is_number()) return found->get<double>();
    if (found->is_boolean()) return found->get<bool>() ? 1 : 0;
    if (!found->is_string()) return std::nullopt;
    std::string text = found->get<std::string>();
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (text == "true" || text == "yes") return 1;
    if (text == "false" || text == "no") return 0;
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || end != text.c_str() + text.size()) return std::nullopt;
    return value;
}

/// The fields of a line of a table, quoted ones without their quotes.
std::vector<std::string> fields_of(std::string_view line, char separator) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') fields.back() += line[++i];
        else if (c == '"') quoted = !quoted;
        else if (c == separator && !quoted) fields.emplace_back();
        else if (c != '\r') fields.back() += c;
    }
    return fields;
}

/// Reads lines, as objects; what cannot be read is warned of.
class Lines {
  public:
    Lines(const fs::path& path, StepLog& log, const std::function<void(std::uint64_t)>& progress)
        : path_(path), log_(log), progress_(progress), in_(path, std::ios::binary) {
        if (!in_) throw FileError(path, "cannot be read");
        const std::string extension = path.extension();
        table_ = extension == ".csv" || extension == ".tsv";
        if (!table_ || !next_line()) return;
        if (line_.starts_with("\xef\xbb\xbf")) line_.erase(0, 3);
        separator_ = extension == ".tsv"                                                            ? '\t'
                     : line_.find(',') == std::string::npos && line_.find(';') != std::string::npos ? ';'
                                                                                                    : ',';
        header_ = fields_of(line_, separator_);
    }

    std::optional<Json> next() {
        while (next_line()) {
            if (line_.find_first_not_of(" \t\r") == std::string::npos) continue;
            Json json = table_ ? row() : Json::parse(line_, nullptr, false);
            if (json.is_object()) return json;
            const bool last = in_.eof();
            if (last)
                log_.warnings.push_back(
                    fmt::format("{}: line {} is not complete, and left out: is the run still being written?",
                                path_.string(), number_));
            else if (++unreadable_ == 1) first_unreadable_ = number_;
        }
        if (unreadable_ > 0)
            log_.warnings.push_back(fmt::format("{}: {} lines cannot be read, the first is line {}; left out",
                                                path_.string(), unreadable_, first_unreadable_));
        unreadable_ = 0;
        return std::nullopt;
    }

  private:
    bool next_line() {
        if (!std::getline(in_, line_)) return false;
        ++number_;
        if (progress_) progress_(line_.size() + 1);
        if (line_.size() > longest_line)
            throw FileError(path_, fmt::format("line {} is longer than 16 MiB: no log of steps", number_));
        return true;
    }

    Json row() const {
        const std::vector<std::string> fields = fields_of(line_, separator_);
        if (fields.size() != header_.size()) return nullptr;
        Json json = Json::object();
        for (std::size_t i = 0; i < fields.size(); ++i) json[header_[i]] = fields[i];
        return json;
    }

    fs::path path_;
    StepLog& log_;
    const std::function<void(std::uint64_t)>& progress_;
    std::ifstream in_;
    bool table_ = false;
    char separator_ = ',';
    std::vector<std::string> header_;
    std::string line_;
    std::int64_t number_ = 0, unreadable_ = 0, first_unreadable_ = 0;
};

/// From the objects of one log to steps.
class Reader {
  public:
    Reader(const fs::path& path, const LogColumns& columns, const Json& first)
        : scaled_(columns.amax_scaled),
          step_(ColumnNames{columns.step, {"step", "iteration", "iter", "global_step", "_step"}}.in(first, path)),
          amax_(
              ColumnNames{columns.amax, {"amax", "grad_amax", "max_abs_grad", "max_grad", "grad_max"}}.in(first, path)),
          found_inf_(ColumnNames{columns.found_inf, {"found_inf", "overflow", "is_overflow", "skipped", "skip"}}.in(
              first, path)),
          scale_(ColumnNames{columns.scale, {"scale", "loss_scale", "grad_scale"}}.in(first, path)) {
        if (amax_.empty() && found_inf_.empty() && !columns.losses_suffice)
            throw FileError(path, "has neither a column of largest gradients (amax) nor of overflows (found_inf): name "
                                  "it by --amax or --found-inf");
    }

    /// Nothing for a line without a sensible step.
    [[nodiscard]] std::optional<StepMetrics> read(const Json& line, std::int64_t number) const {
        const double step = number_in(line, step_).value_or(static_cast<double>(number));
        if (!(std::abs(step) < 0x1p53)) return std::nullopt;
        StepMetrics m;
        m.step = static_cast<std::int64_t>(step);
        m.loss = number_in(line, "loss");
        if (const auto what = line.find("loss_class"); !m.loss && what != line.end())
            m.loss = *what == "inf" ? HUGE_VAL : std::nan(""); // which are no numbers in JSON
        m.scale = number_in(line, scale_);
        if (const auto inf = number_in(line, found_inf_)) m.found_inf = *inf != 0;
        const auto nested = line.find(amax_);
        if (nested != line.end() && nested->is_object()) {
            m.amax_weight = number_in(*nested, "weight");
            m.amax_activation = number_in(*nested, "activation");
        } else {
            m.amax_weight = number_in(line, amax_);
        }
        for (std::optional<double>* amax : {&m.amax_weight, &m.amax_activation}) {
            if (*amax && !std::isfinite(**amax)) {
                m.found_inf = true;
                amax->reset();
            }
            if (*amax && found_inf_.empty() && !m.found_inf) m.found_inf = false; // the largest was finite
            if (*amax) *amax = std::abs(**amax) / (scaled_ ? m.scale.value_or(1) : 1);
            if (*amax && !std::isfinite(**amax)) amax->reset(); // a scale of 0
        }
        return m;
    }

  private:
    bool scaled_;
    std::string step_, amax_, found_inf_, scale_;
};

/// Puts steps in order; tells of those that come again and those that are missing.
void put_in_order(StepLog& log, const fs::path& path) {
    std::ranges::stable_sort(log.steps, {}, &StepMetrics::step);
    const std::size_t before = log.steps.size();
    std::vector<StepMetrics> kept;
    for (StepMetrics& m : log.steps)
        if (!kept.empty() && kept.back().step == m.step) kept.back() = std::move(m);
        else kept.push_back(std::move(m));
    log.steps = std::move(kept);
    if (before > log.steps.size())
        log.warnings.push_back(fmt::format("{}: {} steps are logged more than once; the last counts", path.string(),
                                           before - log.steps.size()));
    const auto span = static_cast<std::size_t>(log.steps.back().step - log.steps.front().step) + 1;
    if (span > log.steps.size() && log.steps.size() > 1)
        log.warnings.push_back(fmt::format("{}: {} of {} steps are missing; they are taken for like the step before",
                                           path.string(), span - log.steps.size(), span));
}

} // namespace

Json read_run_configuration(const fs::path& folder) {
    const FloatEnvironment environment;
    const fs::path path = folder / "run.json";
    std::error_code none;
    if (!fs::exists(path, none)) return nullptr;
    std::ifstream in(path, std::ios::binary);
    Json json = Json::parse(in, nullptr, false);
    if (!json.is_object()) throw FileError(path, "is no JSON object");
    return json;
}

StepLog read_step_log(const fs::path& path, const LogColumns& columns,
                      const std::function<void(std::uint64_t)>& progress, const StepSink& sink) {
    const FloatEnvironment environment;
    std::error_code none;
    const bool folder = fs::is_directory(path, none);
    const fs::path file = folder ? path / "metrics.jsonl" : path;
    StepLog log;
    if (folder) {
        const Json run = read_run_configuration(path);
        const std::optional<double> version = run.is_null() ? std::nullopt : number_in(run, "schema_version");
        if (version && *version > schema_version)
            log.warnings.push_back(
                fmt::format("{}: schema version {:g} is newer than this program's ({}): what it does "
                            "not know is left out",
                            (path / "run.json").string(), *version, schema_version));
    }
    Lines lines(file, log, progress);
    std::optional<Reader> reader;
    std::int64_t without = 0;
    while (std::optional<Json> line = lines.next()) {
        if (!reader) reader.emplace(file, columns, *line);
        std::optional<StepMetrics> step = reader->read(*line, static_cast<std::int64_t>(log.steps.size()));
        if (step && sink) sink(*step, *line);
        if (step) log.steps.push_back(*std::move(step));
        else ++without;
    }
    if (log.steps.empty()) throw FileError(file, "holds no step");
    if (without > 0)
        log.warnings.push_back(
            fmt::format("{}: {} lines without a whole number of a step; left out", file.string(), without));
    put_in_order(log, file);
    return log;
}

} // namespace amp
