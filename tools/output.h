// Where the tools write: reports to files or standard output, lines for the user to standard error; and how they end.
#pragma once

#include <ampscope/sim/base/progress.h>

#include <nlohmann/json_fwd.hpp>

#include <exception>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// Words of a command line that mean nothing: the tool ends with 2.
class UsageError : public std::invalid_argument {
  public:
    using std::invalid_argument::invalid_argument;
};

/// Writes to standard output, at once. Throws FileError where it takes no more (a full disk, a closed pipe), so that no
/// tool ends with 0 whose report is lost.
void print_text(std::string_view text);

/// Writes to standard error. What that does not take is lost: nobody is left who could be told.
void print_error(std::string_view text) noexcept;

/// A JSON document as it is written: what is no UTF-8 becomes U+FFFD, and what printable() would replace is escaped, so
/// that a reader gets it as it was and a terminal does not.
std::string json_text(const nlohmann::ordered_json& document, int indent = 1);

/// Takes the pieces of a text, one after the other.
using TextSink = std::function<void(std::string_view)>;

/// Arrays of a JSON document that are made and written one element at a time: of tens of thousands of tensors the
/// document would take ten times as much memory as its text, and that hundreds of megabytes.
class LongArrays {
  public:
    /// Returns what is to stand in the document in place of an array of element(0) ... element(size - 1).
    nlohmann::ordered_json add(std::size_t size, std::function<nlohmann::ordered_json(std::size_t)> element);
    /// json_text() of the document with its arrays.
    void write(const nlohmann::ordered_json& document, const TextSink& sink) const;

  private:
    struct Array {
        std::size_t size;
        std::function<nlohmann::ordered_json(std::size_t)> element;
    };
    void write(const nlohmann::ordered_json& json, const std::string& margin, const TextSink& sink) const;

    std::vector<Array> arrays_;
};

/// Throws what write_report() would throw before it writes, so that no work is done in vain.
void probe_report(const std::filesystem::path& path);

/// "-" is standard output; what exists and is no regular file (a pipe, a device) cannot be replaced by renaming.
/// Throws FileError.
void write_report(const std::filesystem::path& path, std::string_view text);
/// The same of a text that body(sink) makes in pieces.
void write_report(const std::filesystem::path& path, const std::function<void(const TextSink&)>& body);

/// Whether one of these reports goes to standard output, which then holds nothing else.
bool takes_standard_output(std::initializer_list<std::string_view> paths);

/// A line on standard error, with the name of the tool.
struct Complain {
    std::string_view tool;
    void operator()(const std::string& line) const;
};

/// Takes a line for the user: a Complain, or whoever collects them.
using Tell = std::function<void(const std::string& line)>;

/// body(path) for every input. The std::exception that it throws is told to the user, and returned as lines; the others
/// go on. Whatever else it throws ends the work.
std::vector<std::string> for_each_input(const std::vector<std::filesystem::path>& paths, const Tell& tell,
                                        const std::function<void(const std::filesystem::path&)>& body);

/// Watches for a user who ends the tool (SIGINT, SIGTERM, SIGHUP), so that what is to be removed is removed: the
/// progress that `watch` returns then throws, and exit_code() ends the program by that signal.
Watch until_stopped(const Watch& watch);

/// The whole of a tool, in a FloatEnvironment: the exit code of run(); 1 after a line with what it throws or
/// where standard output could not be written to the end, 2 for a UsageError. It says if threads were refused.
int exit_code(const Complain& complain, const std::function<int()>& run);

} // namespace amp
