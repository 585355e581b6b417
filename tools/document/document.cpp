#include <ampscope/tools/document/document.h>

#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <algorithm>
#include <climits>
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

Cell share_cell(std::uint64_t part, std::uint64_t whole) { return share_cell(static_cast<double>(part), whole); }

std::size_t rows_shown(std::size_t worst, std::size_t all) { return worst == 0 ? all : std::min(worst, all); }

std::string shown_of(std::size_t shown, std::size_t all, std::string_view noun) {
    if (shown == all) return plural(all, noun);
    return fmt::format("{} of {} (--worst 0 shows all)", grouped(shown), plural(all, noun));
}

namespace {

bool is_empty(const Heading& /*counts only by what follows*/) { return false; }
bool is_empty(const Paragraph& p) { return p.text.empty(); }
bool is_empty(const Bullets& list) { return list.items.empty(); }
bool is_empty(const TableBlock& table) { return table.rows.empty(); }
bool is_empty(const FigureBlock& /*draws its axes at least*/) { return false; }
bool is_empty(const CardBlock& block) { return block.cards.empty(); }

} // namespace

std::vector<const Block*> blocks_with_content(std::span<const Block> blocks,
                                              const std::function<bool(const Block&)>& shows) {
    std::vector<const Block*> kept;
    int level = 0; // from the end on: headings above this level have something below them
    for (std::size_t i = blocks.size(); i-- > 0;) {
        const Block& block = blocks[i];
        if (const auto* const heading = std::get_if<Heading>(&block)) {
            if (heading->level >= level) continue;
            level = heading->level;
        } else {
            if (std::visit([](const auto& b) { return is_empty(b); }, block) || (shows && !shows(block))) continue;
            level = INT_MAX;
        }
        kept.push_back(&block);
    }
    std::ranges::reverse(kept);
    return kept;
}

void Document::add(Block block) { blocks.push_back(std::move(block)); }

} // namespace amp
