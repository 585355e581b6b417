// What the tools' command lines have in common: options, paths, wording, exit codes.
#pragma once

#include <ampscope/formats/names.h>
#include <ampscope/sim/analysis/histogram.h>

#include <CLI/CLI.hpp>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

class OptionsFile;

/// Returns the text of an error as users are told it.
using Wording = std::function<std::string(const std::string& what)>;

/// A tool's command line. --help ends with the examples and the exit codes.
class CommandLine : public CLI::App {
  public:
    CommandLine(const std::string& name, const std::string& description, const std::string& examples);

    /// A command of the tool, with options and examples of its own.
    CLI::App& add_command(const std::string& name, const std::string& description, const std::string& examples);

    /// The option's values are files or folders that the tool reads.
    CLI::Option* reads(CLI::Option* paths);
    /// The option's value is a file that the tool writes; "-" and other names of standard output become "-". It is
    /// wrong usage to name a file that is read, or the same file twice. That it cannot be written is said at once.
    CLI::Option* writes(CLI::Option* path);
    /// The option's value is a folder that gets run folders: no other file may take their place.
    void writes_into(CLI::Option* folder);

    CLI::Option* add_json(std::string& path, const std::string& help = "Write the full report ('-': standard output)");
    void add_svg(std::string& path, const std::string& help);
    void add_html(std::string& path);
    void add_tensor(std::string& pattern);
    void add_worst(std::size_t& rows, const std::string& help = "Rows in tables of tensors; 0: all; default 10");
    void add_recorded_scale(std::optional<double>& scale);
    CLI::Option* add_threads(int& threads);
    /// --config: options from a file. Errors in what it gives begin with "FILE:LINE: ".
    void add_config(const std::string& description);
    /// --margin and --limit of the scale that a tool calls "recommended" or "advised".
    void add_recommendation(RecommendationOptions& options, const std::string& called);

    /// Parses the command line, then calls interpret(), which throws std::invalid_argument for words that mean nothing.
    /// Returns an exit code where the program ends here (--help, --version). Throws UsageError; FileError where
    /// standard output takes no help, a report cannot be written or a file of options cannot be read.
    std::optional<int> read(int argc, char** argv, const std::function<void()>& interpret);

    /// How users are told an error: where it begins with "[op] field: ", as the library's do, with the option of that
    /// name, if there is one; where an option is given in the file of options alone, with its place there. read() tells
    /// its errors so; it also serves for later ones.
    [[nodiscard]] Wording wording(int argc, char** argv) const;

  private:
    void check_values(int argc, char** argv) const;
    void check_words(int argc, char** argv) const;
    void check_paths() const;
    [[nodiscard]] std::vector<const CLI::App*> apps_in_use() const;
    [[nodiscard]] std::string usage_text(const CLI::ParseError& error) const;

    std::shared_ptr<OptionsFile> options_file_;
    std::vector<const CLI::Option*> read_, written_, folders_;
};

/// For Option::transform: a whole number, in decimal digits. CLI11 by itself takes 010 for 8 and NaN for any range.
CLI::Validator whole_number(std::int64_t low, std::uint64_t high);

/// For Option::check: one of these names.
CLI::Validator one_of(std::span<const std::string_view> names);

/// "relu, gelu or tanh": names in a help text.
std::string either(std::span<const std::string_view> names);

/// Which ends of an interval belong to it.
enum class Ends { both, high, low, none };

/// For Option::transform: a finite number from low to high, which may be infinite.
CLI::Validator real_number(double low, double high, Ends ends = Ends::both);

/// What f() returns. Errors of it begin with the option that has asked for it: "--model: unknown model ...". Where its
/// word is what they begin with, it gets its dashes: "layer head:x: ..." is "--layer head:x: ...".
template <class F>
auto of_option(const std::string& option, F f) {
    try {
        return f();
    } catch (const std::invalid_argument& error) {
        const std::string what = error.what();
        if (what.starts_with("--")) throw;
        throw std::invalid_argument(what.starts_with(option.substr(2) + " ") ? "--" + what : option + ": " + what);
    }
}

/// The enumerator of that name, which the option gives.
template <class E, std::size_t N>
E enumerator_of(const char* option, std::string_view what, const std::array<std::string_view, N>& names,
                const std::string& text) {
    return of_option(option, [&] { return parse_name<E>(what, names, text); });
}

/// The command as one would type it again: words with spaces or signs in quotes, the program without its folder.
std::string command_text(int argc, char** argv);

} // namespace amp
