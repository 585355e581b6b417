#include <ampscope/sim/io/step_log.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/run_layout.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

namespace amp {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string counted(std::int64_t n, std::string_view noun) { return plural(static_cast<std::uint64_t>(n), noun); }

/// The usual names of a column; the first that a log has counts.
struct ColumnNames {
    std::string said; ///< the name that the user gave
    std::vector<std::string> usual;

    /// The name that an object has; empty if it has none. Throws FileError if it lacks the name that the user gave.
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

/// A number; words as programs print them ("inf", "True") count as numbers.
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

/// The fields of a line of a table; quoted ones without their quotes.
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

/// Reads the lines of a log as objects.
class Lines {
  public:
    Lines(const fs::path& path, Pipe pipe, const std::function<void(std::uint64_t)>& progress)
        : progress_(progress), in_(path, pipe) {
        const std::string extension = path.extension();
        table_ = extension == ".csv" || extension == ".tsv" || (is_pipe(path) && in_.sgetc() != '{');
        if (!table_ || !next_line()) return;
        if (line_.starts_with("\xef\xbb\xbf")) line_.erase(0, 3);
        const auto has = [&](char c) { return line_.find(c) != std::string::npos; };
        separator_ = extension == ".tsv" || (has('\t') && !has(',')) ? '\t' : !has(',') && has(';') ? ';' : ',';
        header_ = fields_of(line_, separator_);
    }

    /// The next line that is not blank: an object, or null if the line cannot be read; std::nullopt at the end.
    std::optional<Json> next() {
        while (next_line())
            if (line_.find_first_not_of(" \t\r") != std::string::npos) return table_ ? row() : object();
        return std::nullopt;
    }

    [[nodiscard]] std::int64_t number() const { return in_.number(); }
    /// Whether the line has no line break: the run may still be writing it.
    [[nodiscard]] bool incomplete() const { return in_.ended(); }
    [[nodiscard]] std::size_t hash() const { return std::hash<std::string>()(line_); }
    /// Whether a line that cannot be read was meant to be a step, and not text that a program prints before and after.
    [[nodiscard]] bool means_step() const { return table_ || line_[line_.find_first_not_of(" \t\r")] == '{'; }

  private:
    bool next_line() {
        if (!in_.next_line(line_)) return false;
        if (progress_) progress_(line_.size() + 1);
        return true;
    }

    [[nodiscard]] Json object() const {
        try {
            Json json = parse_json(line_, in_.path());
            return json.is_object() ? json : Json();
        } catch (const FileError&) {
            return {};
        }
    }

    [[nodiscard]] Json row() const {
        const std::vector<std::string> fields = fields_of(line_, separator_);
        if (fields.size() != header_.size()) return nullptr;
        Json json = Json::object();
        for (std::size_t i = 0; i < fields.size(); ++i) json[header_[i]] = fields[i];
        return json;
    }

    std::function<void(std::uint64_t)> progress_;
    TextFile in_;
    bool table_ = false;
    char separator_ = ',';
    std::vector<std::string> header_;
    std::string line_;
};

/// Turns the objects of one log into steps.
class Reader {
  public:
    Reader(const fs::path& path, const LogColumns& columns, const Json& first)
        : scaled_(columns.amax_scaled),
          step_(ColumnNames{columns.step, {"step", "iteration", "iter", "global_step", "_step"}}.in(first, path)),
          amax_(
              ColumnNames{columns.amax, {"amax", "grad_amax", "max_abs_grad", "max_grad", "grad_max"}}.in(first, path)),
          found_inf_(ColumnNames{columns.found_inf, {"found_inf", "overflow", "is_overflow", "skipped", "skip"}}.in(
              first, path)),
          scale_(ColumnNames{columns.scale, {"scale", "loss_scale", "grad_scale"}}.in(first, path)),
          norm_(ColumnNames{{}, {"grad_norm", "gradient_norm", "total_norm"}}.in(first, path)) {
        if (amax_.empty() && found_inf_.empty() && !columns.losses_suffice)
            throw FileError(path, "has neither a column of largest gradients (amax) nor of overflows (found_inf): name "
                                  "it by --amax or --found-inf");
    }

    /// Whether the log names its steps but this line does not, so that it is about something else.
    [[nodiscard]] bool lacks_step(const Json& line) const { return !step_.empty() && !line.contains(step_); }

    /// Empty for a line without a valid step. `number` is the step in a log that does not name its steps.
    [[nodiscard]] std::optional<StepMetrics> read(const Json& line, std::int64_t number) const {
        const double step = step_.empty() ? static_cast<double>(number) : number_in(line, step_).value_or(HUGE_VAL);
        if (!(std::abs(step) < 0x1p53) || step != std::floor(step)) return std::nullopt;
        StepMetrics m;
        m.step = static_cast<std::int64_t>(step);
        m.loss = number_in(line, "loss");
        if (const auto what = line.find("loss_class"); !m.loss && what != line.end())
            m.loss = *what == "inf" ? HUGE_VAL : std::nan(""); // JSON has no numbers for them
        m.gradient_norm = number_in(line, norm_);
        if (m.gradient_norm && !(*m.gradient_norm >= 0 && std::isfinite(*m.gradient_norm))) m.gradient_norm.reset();
        m.scale = number_in(line, scale_);
        if (m.scale && !(*m.scale >= 0 && std::isfinite(*m.scale))) m.scale.reset();
        if (const auto inf = number_in(line, found_inf_)) m.found_inf = *inf != 0;
        const auto nested = line.find(amax_);
        if (nested != line.end() && nested->is_object()) {
            // In schema version 1 of run folders the gradients' kinds were called weight and activation.
            const bool named = nested->contains("weight_gradient") || nested->contains("activation_gradient");
            m.amax_weight = number_in(*nested, named ? "weight_gradient" : "weight");
            m.amax_activation = number_in(*nested, named ? "activation_gradient" : "activation");
        } else {
            m.amax_weight = number_in(line, amax_);
        }
        for (std::optional<double>* amax : {&m.amax_weight, &m.amax_activation}) {
            if (*amax && **amax < 0 && std::isfinite(**amax)) amax->reset(); // not a magnitude
            if (*amax && !std::isfinite(**amax)) {
                m.found_inf = true;
                amax->reset();
            }
            if (*amax && found_inf_.empty() && !m.found_inf) m.found_inf = false; // the largest magnitude was finite
            if (*amax) *amax = **amax / (scaled_ ? m.scale.value_or(1) : 1);
            if (*amax && !std::isfinite(**amax)) amax->reset(); // after division by a scale of 0
        }
        return m;
    }

  private:
    bool scaled_;
    std::string step_, amax_, found_inf_, scale_, norm_;
};

/// Reads the lines of one log into steps; finds out which of them count and what is hidden between them.
class LogReader {
  public:
    LogReader(fs::path file, Pipe pipe, const LogColumns& columns)
        : file_(std::move(file)), pipe_(pipe), columns_(columns) {}

    void read(StepLog& log, const std::function<void(std::uint64_t)>& progress) {
        Lines lines(file_, pipe_, progress);
        while (const std::optional<Json> line = lines.next()) {
            if (line->is_object() && !reader_) reader_.emplace(file_, columns_, *line);
            const auto step = line->is_object() ? reader_->read(*line, meant_) : std::nullopt;
            if (step) add(*step, lines);
            else if (line->is_object() && reader_->lacks_step(*line)) ++without_step_;
            else if (lines.incomplete()) incomplete_ = lines.number();
            else lose(line->is_object(), lines);
        }
        if (steps_.empty())
            throw FileError(file_, unreadable_ > 0
                                       ? fmt::format("holds no step: {} cannot be read, the first is line {}",
                                                     counted(unreadable_, "line"), first_unreadable_)
                                   : without_step_ > 0 ? "holds no step: no line has a whole number of one"
                                                       : "holds no step");
        const std::int64_t last = steps_.back().step.step;
        put_in_order();
        const std::int64_t first = steps_.front().step.step, back = steps_.back().step.step;
        if (back - first >= longest_run)
            throw FileError(file_, fmt::format("logs steps {} and {}, more than {} apart: is one of the two wrong?",
                                               first, back, longest_run));
        find_hidden(last, log);
        report(log);
        for (const Line& line : steps_) log.steps.push_back(line.step);
    }

    /// Reads the lines that count a second time, for the sink.
    void tell(const StepSink& sink) {
        std::ranges::sort(steps_, {}, &Line::number);
        Lines lines(file_, pipe_, {});
        for (auto at = steps_.begin(); at != steps_.end();) {
            const std::optional<Json> line = lines.next();
            if (!line) return; // truncated meanwhile
            if (lines.number() != at->number) continue;
            if (line->is_object()) sink(at->step, *line);
            ++at;
        }
    }

  private:
    struct Line {
        StepMetrics step;
        std::int64_t number;
        std::size_t hash; ///< hash of its text
    };

    void add(const StepMetrics& step, const Lines& lines) {
        if (steps_.size() == most_logged_steps)
            throw FileError(file_, fmt::format("line {}: more than {} steps", lines.number(), most_logged_steps));
        if (lost_ > 0 && steps_.empty()) leading_ = meant_;
        else if (lost_ > 0) after_.push_back(steps_.back().step.step);
        lost_ = meant_lost_ = 0;
        steps_.push_back({step, lines.number(), lines.hash()});
        ++meant_;
    }

    /// Counts a line that should have been a step.
    void lose(bool is_object, const Lines& lines) {
        ++(is_object ? without_step_ : unreadable_);
        if (!is_object && unreadable_ == 1) first_unreadable_ = lines.number();
        ++lost_;
        if (!lines.means_step()) return;
        ++meant_;
        ++meant_lost_;
    }

    /// Sorts the steps; of repeated ones the last stays.
    void put_in_order() {
        std::ranges::stable_sort(steps_, {}, [](const Line& line) { return line.step.step; });
        std::size_t kept = 0;
        for (const Line& line : steps_) {
            if (kept > 0 && steps_[kept - 1].step.step == line.step.step) {
                if (++repeated_ == 1) first_repeated_ = line.step.step;
                differing_ += steps_[kept - 1].hash != line.hash ? 1 : 0;
                --kept;
            }
            steps_[kept++] = line;
        }
        steps_.resize(kept, steps_.front());
    }

    /// Finds the missing steps that follow one after which lines cannot be read. At both ends, where nothing tells how
    /// many are missing, each such line counts as one step. `last` is the last step of the file.
    void find_hidden(std::int64_t last, StepLog& log) {
        const std::int64_t front = steps_.front().step.step, back = steps_.back().step.step;
        for (std::int64_t n = std::clamp<std::int64_t>(leading_, 0, std::max<std::int64_t>(front, 0)); n > 0; --n)
            log.hidden.push_back(front - n);
        hidden_ = static_cast<std::int64_t>(log.hidden.size());
        if (lost_ > 0 && last != back) after_.push_back(last);
        std::ranges::sort(after_);
        after_.erase(std::unique(after_.begin(), after_.end()), after_.end());
        for (const std::int64_t step : after_) {
            const auto next = std::ranges::upper_bound(steps_, step, {}, [](const Line& l) { return l.step.step; });
            const std::int64_t gap = next == steps_.end() ? 0 : next->step.step - step - 1;
            if (gap > 0) log.hidden.push_back(step + 1);
            hidden_ += gap;
            hidden_inside_ += gap;
        }
        for (std::int64_t n = 1; last == back && n <= meant_lost_; ++n, ++hidden_) log.hidden.push_back(back + n);
    }

    void report(StepLog& log) const {
        const auto warn = [&](const std::string& what) { log.warnings.push_back(file_.string() + ": " + what); };
        if (incomplete_ > 0)
            warn(fmt::format("line {} is not complete, and left out: is the run still being written?", incomplete_));
        if (unreadable_ > 0)
            warn(fmt::format("{} cannot be read, the first is line {}; left out", counted(unreadable_, "line"),
                             first_unreadable_));
        if (without_step_ > 0)
            warn(fmt::format("{} without a whole number of a step; left out", counted(without_step_, "line")));
        if (hidden_ > 0)
            warn(fmt::format("nothing is known of {}, which lines hide that were left out", counted(hidden_, "step")));
        if (repeated_ > 0)
            warn(fmt::format("{} logged more than once, {} of them differently, the first is step {}; the last counts",
                             counted(repeated_, "step"), differing_, first_repeated_));
        const auto count = static_cast<std::int64_t>(steps_.size());
        const std::int64_t span = steps_.back().step.step - steps_.front().step.step + 1;
        const std::int64_t missing = span - count - hidden_inside_;
        if (missing > 0)
            warn(fmt::format("{} of {} steps {} missing; where nothing else is known, {} taken to be like the step "
                             "before",
                             missing, span, missing == 1 ? "is" : "are", missing == 1 ? "it is" : "they are"));
    }

    fs::path file_;
    Pipe pipe_;
    const LogColumns& columns_;
    std::optional<Reader> reader_;
    std::vector<Line> steps_;
    std::vector<std::int64_t> after_;        ///< steps followed by lines that cannot be read
    std::int64_t meant_ = 0;                 ///< lines meant to be steps, including those that cannot be read
    std::int64_t lost_ = 0, meant_lost_ = 0; ///< lines not read since the last that was; those that meant a step
    std::int64_t leading_ = 0;               ///< such lines before the first step
    std::int64_t unreadable_ = 0, first_unreadable_ = 0, without_step_ = 0, incomplete_ = 0;
    std::int64_t repeated_ = 0, differing_ = 0, first_repeated_ = 0, hidden_ = 0, hidden_inside_ = 0;
};

} // namespace

bool was_skipped(const StepMetrics& step, const Json& line) {
    const auto said = line.find("skipped"); // a run without a loss scaler takes steps that overflow
    return said != line.end() && said->is_boolean() ? said->get<bool>() : step.found_inf.value_or(false);
}

std::size_t final_losses(std::size_t logged) { return std::min(logged, std::max<std::size_t>(10, logged / 10)); }

double final_loss_of(std::span<const double> losses) {
    const std::span<const double> last = losses.last(final_losses(losses.size()));
    return std::accumulate(last.begin(), last.end(), 0.0) / static_cast<double>(last.size());
}

Json read_run_configuration(const fs::path& folder) {
    const FloatEnvironment environment;
    const fs::path path = folder / run_layout::configuration;
    if (!is_there(path)) return nullptr;
    return read_json_object(path);
}

RunFacts facts_of_run(const fs::path& folder) {
    return taken_if_right([&] { return run_facts(read_run_configuration(folder)); }).value_or(RunFacts{});
}

std::optional<std::string> newer_schema(const fs::path& folder) {
    try {
        const Json run = read_run_configuration(folder);
        const std::optional<double> version = run.is_null() ? std::nullopt : number_in(run, "schema_version");
        if (!version || *version <= run_layout::schema_version) return std::nullopt;
        return fmt::format("{}: schema version {:g} is newer than this program's ({}): what it does not know is left "
                           "out",
                           (folder / run_layout::configuration).string(), *version, run_layout::schema_version);
    } catch (const FileError& error) {
        return error.what();
    }
}

StepLog read_step_log(const fs::path& path, const LogColumns& columns,
                      const std::function<void(std::uint64_t)>& progress, const StepSink& sink) {
    const FloatEnvironment environment;
    std::error_code none;
    const bool folder = fs::is_directory(path, none);
    const fs::path file = folder ? path / run_layout::metrics : path;
    StepLog log;
    if (folder)
        if (auto warning = newer_schema(path)) log.warnings.push_back(std::move(*warning));
    LogReader reader(file, folder ? Pipe::refused : Pipe::accepted, columns);
    reader.read(log, progress);
    if (sink) reader.tell(sink);
    return log;
}

} // namespace amp
