#include <ampscope/tools/command_line.h>

#include <ampscope/sim/analysis/gate.h>
#include <ampscope/sim/base/number.h>
#include <ampscope/sim/base/ranks.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/tensor_file.h>
#include <ampscope/sim/io/write.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/options_file.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <sys/stat.h>

namespace amp {

namespace {

namespace fs = std::filesystem;

constexpr const char* exit_codes = R"(
Exit codes:
  0  fine; a warning names what was left out, as broken lines of a log
  1  bad input or a failure: a line on standard error names the file and the
     place; what can be read beside a damaged file is still reported
  2  wrong usage
  3  a gate that was asked for does not hold; amp-crosscheck: a mismatch)";

/// By name, or as the file or pipe that the shell has put there: replaced, that file would lose what is printed.
bool is_standard_output(const std::string& path) {
    for (const char* name : {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})
        if (path == name) return true;
    struct stat file {
    }, output{};
    return ::stat(path.c_str(), &file) == 0 && ::fstat(1, &output) == 0 && !S_ISCHR(file.st_mode) &&
           file.st_dev == output.st_dev && file.st_ino == output.st_ino;
}

/// Where a file of that name is, or is to be.
fs::path place_of(const fs::path& path) {
    std::error_code none;
    return fs::weakly_canonical(fs::absolute(target_of(path), none), none);
}

/// Whether writing to one path changes what the other names: a file, or one that both are yet to be. A device may be
/// written to twice.
bool is_same_file(const fs::path& a, const fs::path& b) {
    struct stat x {
    }, y{};
    if (::stat(a.c_str(), &x) == 0 && ::stat(b.c_str(), &y) == 0)
        return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    return place_of(a) == place_of(b);
}

bool is_below(const fs::path& path, const fs::path& folder) {
    const fs::path below = place_of(path).lexically_relative(place_of(folder));
    return !below.empty() && *below.begin() != "..";
}

/// Whether the path is one of a file below the folder of a kind that tools read from folders.
bool is_record_in(const fs::path& path, const fs::path& folder) {
    const std::string name = path.filename(), extension = path.extension();
    return is_below(path, folder) &&
           (is_tensor_file(path) || extension == ".bin" || extension == ".raw" || extension == ".distcp" ||
            extension == ".jsonl" || name == run_layout::configuration || name == run_layout::result);
}

bool is_file(const fs::path& path) {
    std::error_code none;
    return fs::is_regular_file(path, none);
}

/// "3", "-1.5", "-inf": CLI11 takes what begins with a minus and a letter for an option.
bool is_negative_number(const std::string& word) {
    char* end = nullptr;
    std::strtod(word.c_str(), &end);
    return word.starts_with('-') && word.size() > 1 && *end == '\0';
}

std::string list_of_commands(const CLI::App& app) {
    std::string names;
    for (const CLI::App* command : app.get_subcommands({})) names += (names.empty() ? "" : ", ") + command->get_name();
    return names.empty() ? "" : "; commands are " + names;
}

/// Help in at most 80 columns, with two spaces at least before what an option means.
class FoldedHelp final : public CLI::Formatter {
  public:
    std::string make_option_opts(const CLI::Option* option) const override {
        return Formatter::make_option_opts(option) + ' ';
    }
    std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
        return folded(Formatter::make_help(app, std::move(name), mode));
    }
};

/// With a + in front, or without.
template <class T>
std::optional<T> signed_number_of(std::string_view text) {
    return number_of<T>(text.starts_with('+') ? text.substr(1) : text);
}

} // namespace

CommandLine::CommandLine(const std::string& name, const std::string& description, const std::string& examples)
    : CLI::App(description, name) {
    footer(examples + "\n" + exit_codes);
    formatter(std::make_shared<FoldedHelp>());
    set_version_flag("--version", name + " " AMPSCOPE_VERSION);
}

CLI::App& CommandLine::add_command(const std::string& name, const std::string& description,
                                   const std::string& examples) {
    CLI::App& command = *add_subcommand(name, description);
    command.footer(examples + "\n" + exit_codes);
    return command;
}

CLI::Option* CommandLine::reads(CLI::Option* paths) {
    read_.push_back(paths);
    return paths;
}

CLI::Option* CommandLine::writes(CLI::Option* path) {
    written_.push_back(path);
    return path->transform([](const std::string& text) { return is_standard_output(text) ? "-" : text; });
}

void CommandLine::writes_into(CLI::Option* folder) { folders_.push_back(folder); }

CLI::Option* CommandLine::add_json(std::string& path, const std::string& help) {
    return writes(add_option("--json", path, help));
}

void CommandLine::add_svg(std::string& path, const std::string& help) {
    writes(add_option("--svg", path, help + " ('-': standard output)"));
}

void CommandLine::add_html(std::string& path) {
    writes(add_option("--html", path, "Write a page with pictures and tables ('-': standard output)"));
}

void CommandLine::add_tensor(std::string& pattern) {
    add_option("--tensor", pattern, "Only tensors whose name contains a match of this regular expression");
}

void CommandLine::add_worst(std::size_t& rows, const std::string& help) {
    add_option("--worst", rows, help)->transform(whole_number(0, 1'000'000'000));
}

void CommandLine::add_recorded_scale(std::optional<double>& scale) {
    const auto to_number = [](std::string& text) -> std::string {
        try {
            text = fmt::format("{}", parse_scale(text));
        } catch (const std::invalid_argument& error) {
            return error.what();
        }
        return "";
    };
    add_option("--recorded-scale", scale, "Loss scale that the gradients still contain; overrides their files'")
        ->transform(CLI::Validator(to_number, ""));
}

CLI::Option* CommandLine::add_threads(int& threads) {
    return add_option("--threads", threads, "Threads to use; default 0: one for each core; results do not depend on it")
        ->transform(whole_number(0, 4096));
}

void CommandLine::add_recommendation(RecommendationOptions& options, const std::string& called) {
    add_option("--margin", options.margin, "Binades between the " + called + " scale and overflow; default 2")
        ->transform(whole_number(0, 200));
    add_option("--limit", options.limit, "Tolerated underflow of non-zero elements, above 0; default 0.001")
        ->transform(real_number(0, 1, Ends::high));
}

void CommandLine::add_config(const std::string& description) {
    options_file_ = std::make_shared<OptionsFile>(*this);
    config_formatter(options_file_);
    set_config("--config", "", description)->check([file = options_file_](const std::string& path) {
        file->read(path);
        return std::string();
    });
}

std::optional<int> CommandLine::read(int argc, char** argv, const std::function<void()>& interpret) {
    try {
        check_values(argc, argv);
        parse(argc, argv);
        check_words(argc, argv);
        check_paths();
        interpret();
    } catch (const CLI::CallForHelp&) {
        print_text(help());
        return 0;
    } catch (const CLI::CallForVersion& version) {
        print_text(version.what() + std::string("\n"));
        return 0;
    } catch (const CLI::ParseError& error) {
        throw UsageError(wording(argc, argv)(usage_text(error)));
    } catch (const std::invalid_argument& error) {
        throw UsageError(wording(argc, argv)(error.what()));
    }
    return std::nullopt;
}

/// "--json=", of which CLI11 would take the next word for the value.
void CommandLine::check_values(int argc, char** argv) const {
    std::vector<const CLI::App*> apps = get_subcommands([](const CLI::App*) { return true; });
    apps.push_back(this);
    for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
        const std::string_view word = argv[i];
        if (!word.starts_with("--") || word.find('=') != word.size() - 1) continue;
        const std::string name(word.substr(0, word.size() - 1));
        for (const CLI::App* app : apps)
            if (const CLI::Option* option = app->get_option_no_throw(name);
                option != nullptr && option->get_items_expected_max() != 0)
                throw UsageError(name + " needs a value");
    }
}

/// The tool, and the command that is given.
std::vector<const CLI::App*> CommandLine::apps_in_use() const {
    std::vector<const CLI::App*> apps = {this};
    for (const CLI::App* command : get_subcommands()) apps.push_back(command);
    return apps;
}

/// Flags with a value, and values that are nothing, as in --json "$UNSET".
void CommandLine::check_words(int argc, char** argv) const {
    for (const CLI::App* app : apps_in_use())
        for (const CLI::Option* option : app->get_options()) {
            const bool is_flag = option->get_items_expected_max() == 0;
            for (const std::string& value : option->results()) {
                if (value.empty()) throw UsageError(option->get_name() + " needs a value");
                if (is_flag && value != option->results().front())
                    throw UsageError(option->get_name(false, true) + " contradict each other");
            }
            for (int i = 1; i < argc && is_flag && std::string_view(argv[i]) != "--"; ++i)
                if (std::string_view(argv[i]).starts_with(option->get_name() + "="))
                    throw UsageError(option->get_name() + " takes no value");
        }
}

void CommandLine::check_paths() const {
    for (auto output = written_.begin(); output != written_.end(); ++output) {
        if ((*output)->empty()) continue;
        const std::string option = (*output)->get_name(), path = (*output)->results().front();
        for (auto other = written_.begin(); other != output; ++other) {
            if ((*other)->empty()) continue;
            const std::string& second = (*other)->results().front();
            if (path == "-" && second == "-")
                throw UsageError("only one of " + (*other)->get_name() + " and " + option + " can be standard output");
            if (path != "-" && second != "-" && is_same_file(path, second))
                throw UsageError((*other)->get_name() + " and " + option + " both name the file '" + path + "'");
        }
        if (path == "-") continue;
        for (const CLI::Option* inputs : read_)
            for (const std::string& input : inputs->results())
                if (is_same_file(path, input) || (is_file(path) && is_record_in(path, input)))
                    throw UsageError(option + ": '" + path + "' is an input, which would be overwritten");
        for (const CLI::Option* folder : folders_)
            for (const std::string& other : folder->results())
                if (is_below(other, path) || is_record_in(path, other))
                    throw UsageError(option + ": '" + path + "' is what " + folder->get_name() + " writes");
        if (launched_rank() == 0) probe_report(path); // of several ranks the first writes
    }
}

/// The first thing that is wrong, in our words. CLI11 looks for what is missing before it looks at what is unknown.
std::string CommandLine::usage_text(const CLI::ParseError& error) const {
    const std::string what = error.what();
    const bool of_values = error.get_name() == "ConversionError" || error.get_name() == "ValidationError" ||
                           error.get_name() == "ArgumentMismatch";
    std::vector<std::string> unknown = remaining(true);
    std::erase(unknown, "--");
    const std::string commands = get_subcommands().empty() ? list_of_commands(*this) : "";
    if (!of_values && !unknown.empty()) {
        const auto option =
            std::ranges::find_if(unknown, [](const std::string& word) { return word.starts_with('-'); });
        if (option != unknown.end() && is_negative_number(*option))
            return "unknown option '" + *option + "' (options first, then --, then a negative number)";
        if (option != unknown.end()) return "unknown option '" + option->substr(0, option->find('=')) + "'";
        return "unexpected argument '" + unknown.front() + "'" + commands;
    }
    if (const std::string prefix = "Could not convert: "; what.starts_with(prefix)) {
        const std::size_t equals = what.find(" = ");
        return what.substr(prefix.size(), equals - prefix.size()) + ": '" +
               what.substr(std::min(equals + 3, what.size())) + "' is no number in range";
    }
    if (error.get_name() == "ArgumentMismatch") {
        const std::string option = what.substr(0, what.find(": "));
        return option + (what.find("At Most") != std::string::npos ? " is given more than once" : " needs a value");
    }
    return what + commands;
}

Wording CommandLine::wording(int argc, char** argv) const {
    std::map<std::string, std::string, std::less<>> places; // of all options; "" for those that no file gives
    for (const CLI::App* app : apps_in_use())
        for (const CLI::Option* option : app->get_options()) {
            const std::string name = option->get_name();
            const auto gives_it = [&](const std::string& word) { return word == name || word.starts_with(name + "="); };
            const bool in_file =
                options_file_ != nullptr && name.starts_with("--") && std::none_of(argv + 1, argv + argc, gives_it);
            places[name] = in_file ? options_file_->place_of(name.substr(2)) : "";
        }
    return [places = std::move(places)](const std::string& what) {
        std::string text = what;
        if (const std::size_t begin = what.find("] "), end = what.find(": ", begin);
            what.starts_with('[') && end != std::string::npos) {
            std::string option = "--" + what.substr(begin + 2, end - begin - 2);
            std::ranges::replace(option, '_', '-');
            if (places.contains(option)) text = option + what.substr(end);
        }
        const auto place = places.find(std::string_view(text).substr(0, text.find_first_of(" :")));
        return place == places.end() || place->second.empty() ? text : place->second + text.substr(2);
    };
}

CLI::Validator whole_number(std::int64_t low, std::uint64_t high) {
    const auto check = [low, high](std::string& text) -> std::string {
        const bool negative = text.starts_with('-');
        const std::optional<std::int64_t> below = negative ? signed_number_of<std::int64_t>(text) : std::nullopt;
        const std::optional<std::uint64_t> above = negative ? std::nullopt : signed_number_of<std::uint64_t>(text);
        if (!(below && *below >= low) && !(above && *above <= high && (low <= 0 || *above >= std::uint64_t(low))))
            return fmt::format("expected a whole number from {} to {}, not '{}'", low, high, text);
        text = below ? std::to_string(*below) : std::to_string(*above);
        return "";
    };
    return {check, fmt::format("in [{} - {}]", low, high)};
}

CLI::Validator one_of(std::span<const std::string_view> names) {
    std::string known;
    for (const std::string_view name : names) (known += known.empty() ? "" : ", ") += name;
    const std::set<std::string, std::less<>> all(names.begin(), names.end());
    const auto check = [=](const std::string& text) {
        return all.contains(text) ? "" : unknown_name("value", text, known);
    };
    return {check, "{" + known + "}"};
}

std::string either(std::span<const std::string_view> names) {
    return fmt::format("{} or {}", fmt::join(names.first(names.size() - 1), ", "), names.back());
}

CLI::Validator real_number(double low, double high, Ends ends) {
    const auto check = [=](std::string& text) -> std::string {
        const std::optional<double> x = signed_number_of<double>(text);
        const bool has_low = ends == Ends::both || ends == Ends::low,
                   has_high = ends == Ends::both || ends == Ends::high;
        const bool above = x && (has_low ? *x >= low : *x > low);
        if (above && (has_high ? *x <= high : *x < high) && std::isfinite(*x)) return "";
        const std::string lower = fmt::format("{} {}", has_low ? "from" : "above", low);
        const std::string upper = fmt::format("{} {}", !has_high ? " and below" : has_low ? " to" : ", at most", high);
        return fmt::format("expected a number {}{}, not '{}'", lower, std::isinf(high) ? "" : upper, text);
    };
    return {check, ""};
}

std::string command_text(int argc, char** argv) {
    std::string text = fs::path(argv[0]).filename();
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const auto is_plain = [](unsigned char c) {
            return std::isalnum(c) != 0 || std::string_view("_-+=./,:@%^").find(char(c)) != std::string_view::npos;
        };
        if (!word.empty() && std::ranges::all_of(word, is_plain)) {
            (text += ' ') += word;
            continue;
        }
        text += " '";
        for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
        text += '\'';
    }
    return text;
}

} // namespace amp
