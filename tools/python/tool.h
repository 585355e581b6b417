// Tools in this process: their options from words, and what they say with --json.
#pragma once

#include <ampscope/tools/python/interrupt.h>

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
    if (!options.json.empty() || !options.svg.empty())
        throw std::invalid_argument(tool + ": json and svg are the command's alone");
    return options;
}

/// The JSON text of a tool's report, and the lines that it has for the user.
using Said = std::pair<std::string, std::vector<std::string>>;

} // namespace amp::python
