// Runs a tool as users do: exit code and both outputs.
#pragma once

#include "io_files.h"
#include "sanitized.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <initializer_list>
#include <sstream>

#include <sys/wait.h>

namespace amp::test {

struct Outcome {
    int code = -1;
    std::string out, err;
};

/// Whether a limit on memory holds here: AddressSanitizer reserves more address space than any test allows. Tests that
/// ask for nothing else, with minutes of input, are left out where none does.
inline constexpr bool memory_is_limited = !under_sanitizers;
inline constexpr const char* shell_prologue =
    memory_is_limited ? "" : "ulimit() { [ \"$1\" = -v ] || command ulimit \"$@\"; }; ";

/// Runs a command under a shell.
inline Outcome run_command(const std::string& command) {
    static const Scratch scratch;
    const std::string out = (scratch / "out").string(), err = (scratch / "err").string();
    const int status = std::system((shell_prologue + command + " >" + out + " 2>" + err).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(out), read_file(err)};
}

inline std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// One of the tools, by its path.
struct Tool {
    std::string path;

    [[nodiscard]] Outcome operator()(const std::string& arguments) const { return run_command(path + " " + arguments); }

    /// Runs the tool with --json - and parses the output.
    nlohmann::json json(const std::string& arguments) const {
        const Outcome o = (*this)("--json - " + arguments);
        CAPTURE(o.err);
        REQUIRE(o.code == 0);
        return nlohmann::json::parse(o.out);
    }

    /// Checks that the tool fails with `code` and one line on standard error that contains all parts; for wrong usage
    /// the line must also point to --help.
    void check_error(const std::string& arguments, int code, std::initializer_list<std::string_view> parts) const {
        const Outcome o = (*this)(arguments);
        CAPTURE(arguments);
        CAPTURE(o.err);
        CHECK(o.code == code);
        CHECK(o.out.empty());
        CHECK(lines_of(o.err).size() == 1);
        CHECK(o.err.ends_with("; see --help\n") == (code == 2));
        for (const std::string_view part : parts) CHECK(contains(o.err, part));
    }
};

} // namespace amp::test
