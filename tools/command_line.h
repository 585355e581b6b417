// What the tools' command lines have in common.
#pragma once

#include <CLI/CLI.hpp>

#include <iostream>
#include <optional>
#include <regex>
#include <stdexcept>
#include <string>

namespace amp {

/// Parses the command line, then calls interpret(), which throws std::invalid_argument for words that mean nothing.
/// Returns an exit code where the program ends here (--help, --version, wrong usage: 2).
template <class Interpret>
std::optional<int> parse_with(CLI::App& app, int argc, char** argv, const Interpret& interpret) {
    try {
        app.parse(argc, argv);
        interpret();
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    } catch (const std::invalid_argument& error) {
        std::cerr << app.get_name() << ": " << error.what() << "\nRun with --help for more information.\n";
        return 2;
    }
    return std::nullopt;
}

/// The regular expression of --tensor; none for "". Throws std::invalid_argument.
inline std::optional<std::regex> tensor_pattern(const std::string& text) {
    if (text.empty()) return std::nullopt;
    try {
        return std::regex(text, std::regex::ECMAScript);
    } catch (const std::regex_error& error) {
        throw std::invalid_argument("--tensor: '" + text + "' is no regular expression: " + error.what());
    }
}

/// Whether the name of a tensor contains a match; std::regex recurses for each character, so that a very long name is
/// judged by its beginning.
inline bool matches(const std::optional<std::regex>& pattern, const std::string& name) {
    constexpr std::size_t longest = 1000;
    return !pattern || std::regex_search(name.substr(0, longest), *pattern);
}

/// Throws std::invalid_argument where both reports were to be standard output.
inline void check_outputs(const std::string& json, const std::string& svg) {
    if (json == "-" && svg == "-") throw std::invalid_argument("only one of --json and --svg can be standard output");
}

} // namespace amp
