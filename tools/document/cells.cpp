#include <ampscope/tools/document/document.h>

#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

namespace amp {

Cell number_cell(double x, int digits) { return {fmt::format("{:.{}g}", x, digits), x}; }

Cell count_cell(std::uint64_t n) { return {grouped(n), static_cast<double>(n)}; }

Cell share_cell(double part, std::uint64_t whole) {
    if (whole == 0) return no_value();
    const double rate = part / static_cast<double>(whole);
    return {percent(rate), rate};
}

} // namespace amp
