// What the tools' command lines have in common.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <optional>
#include <regex>
#include <stdexcept>
#include <string>
#include <string_view>

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

/// The command as one would type it again: words with spaces or signs in quotes, the program without its folder.
inline std::string command_text(int argc, char** argv) {
    std::string text = std::filesystem::path(argv[0]).filename();
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

/// Throws std::invalid_argument where both reports were to be standard output.
inline void check_outputs(const std::string& json, const std::string& svg) {
    if (json == "-" && svg == "-") throw std::invalid_argument("only one of --json and --svg can be standard output");
}

} // namespace amp
