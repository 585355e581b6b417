// Tools in this process: their options from words, and what they say with --json.
#pragma once

#include <ampscope/tools/python/interrupt.h>

#include <ampscope/sim/analysis/exact.h>
#include <ampscope/sim/base/text.h>

#include <stdexcept>

namespace amp::python {

/// Words of a command line, which may be paths of any bytes.
using Words = std::vector<nb::bytes>;

/// What the words say. Throws std::invalid_argument for those that mean nothing.
template <class Options>
Options parsed(const std::string& tool, const Words& words, std::optional<int> (*parse)(int, char**, Options&),
               std::initializer_list<const char*> more = {}) {
    std::vector<std::string> all = {tool};
    for (const nb::bytes& word : words) all.emplace_back(word.c_str(), word.size());
    all.insert(all.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    Options options;
    if (parse(static_cast<int>(argv.size()), argv.data(), options))
        throw std::invalid_argument(tool + ": help and version are the command's alone");
    return options;
}

/// The same for findings, which are an object: nothing is written.
template <class Options>
Options parsed_alone(const std::string& tool, const Words& words, std::optional<int> (*parse)(int, char**, Options&)) {
    Options options = parsed(tool, words, parse);
    if (!options.json.empty() || !options.svg.empty() || !options.html.empty())
        throw std::invalid_argument(tool + ": json, svg and html are the command's alone");
    return options;
}

/// The JSON text of a tool's report, and the lines that it has for the user.
using Said = std::pair<std::string, std::vector<std::string>>;

inline std::string printed(const std::string& text) { return printable(text); }
inline std::vector<std::string> printed(std::vector<std::string> texts) {
    for (std::string& text : texts) text = printable(text);
    return texts;
}

/// A member that holds text of files, as JSON and terminals show it: it may be anything.
template <class Struct, class Text>
auto text_of(Text Struct::*member) {
    return [member](const Struct& x) { return printed(x.*member); };
}

/// A member that has a name.
template <class Struct, class Enum>
auto named(Enum Struct::*member) {
    return [member](const Struct& x) { return name_of(x.*member); };
}

/// A sum of squares, as the nearest double.
template <class Struct>
auto value_of(SquareSum Struct::*member) {
    return [member](const Struct& x) { return (x.*member).value(); };
}

} // namespace amp::python
