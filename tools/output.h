// Where the tools write: reports to files or standard output, lines for the user to standard error.
#pragma once

#include <ampscope/sim/io/write.h>
#include <ampscope/tools/chart/text.h>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// Throws FileError where standard output takes no more.
inline void print_text(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
        throw FileError("standard output", std::string("cannot be written: ") + std::strerror(errno));
}

/// "-" is standard output; what exists and is no regular file (a pipe, a device) cannot be replaced by renaming.
/// Throws FileError.
inline void write_report(const std::filesystem::path& path, std::string_view text) {
    std::error_code none;
    if (path == "-") return print_text(text);
    if (!std::filesystem::exists(path, none) || std::filesystem::is_regular_file(path, none))
        return write_text_file(path, text);
    std::ofstream out(path, std::ios::binary);
    out << text << std::flush;
    if (!out) throw FileError(path, "cannot be written");
}

/// A line on standard error, with the name of the tool.
struct Complain {
    std::string_view tool;
    void operator()(const std::string& line) const { fmt::print(stderr, "{}: {}\n", tool, printable(line)); }
};

/// body(path) for every input. What it throws is told to the user, and returned as lines; the others go on.
template <class Body>
std::vector<std::string> for_each_input(const std::vector<std::filesystem::path>& paths, const Complain& complain,
                                        const Body& body) {
    std::vector<std::string> errors;
    for (const std::filesystem::path& path : paths) {
        try {
            body(path);
        } catch (const std::exception& error) {
            errors.emplace_back(error.what());
            complain(errors.back());
        }
    }
    return errors;
}

/// The exit code of run(), or 1 after a line with what it throws.
template <class Run>
int exit_code(const Complain& complain, const Run& run) {
    try {
        return run();
    } catch (const std::exception& error) {
        complain(error.what());
        return 1;
    }
}

} // namespace amp
