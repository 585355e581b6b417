#include <ampscope/tools/document/document.h>

#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <cmath>

namespace amp {

Cell number_cell(double x, int digits) { return {fmt::format("{:.{}g}", x, digits), x}; }

Cell count_cell(std::uint64_t n) {
    return {.text = grouped(n), .value = static_cast<double>(n), .brief = short_count(n)};
}

Cell count_cell(double expected) {
    Cell cell = count_cell(static_cast<std::uint64_t>(std::llround(expected)));
    cell.value = expected;
    return cell;
}

Cell share_cell(double part, std::uint64_t whole) {
    if (whole == 0) return no_value();
    const double rate = part / static_cast<double>(whole);
    return {percent(rate), rate};
}

void Document::add(Block block) { blocks.push_back(std::move(block)); }

} // namespace amp
