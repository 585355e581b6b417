// What the command line of amp-diff says.
#pragma once

#include <ampscope/sim/io/recording.h>

#include <regex>

namespace amp::diff_tool {

/// A limit on one figure of the whole comparison.
struct DiffGate {
    enum class Figure : std::uint8_t { differ, max_ulps, max_relative, norm, nan, inf, sign, zero, missing };
    std::string text;
    Figure figure = Figure::differ;
    bool or_equal = false;
    double limit = 0;
};
inline constexpr std::array<std::string_view, 9> diff_gate_names = {
    "differ", "max-ulps", "max-relative", "norm", "nan", "inf", "sign", "zero", "missing"};

struct DiffOptions {
    std::filesystem::path a, b;
    OpenOptions open;
    std::optional<std::regex> tensor;
    std::optional<double> a_scale, b_scale; ///< recorded scales, where the files do not say them
    std::size_t worst = 10;
    std::vector<DiffGate> gates;
    std::string json, svg; ///< empty: none; "-": standard output
    int threads = 0;
};

/// Parses the command line. Returns an exit code where the program ends here (--help, --version, wrong usage: 2).
std::optional<int> parse_command_line(int argc, char** argv, DiffOptions& options);

} // namespace amp::diff_tool
