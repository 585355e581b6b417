#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/terminal.h>
#include <ampscope/tools/document/document.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

namespace amp {

namespace {

constexpr std::size_t gap = 2;         ///< columns between two of a table, and those that later lines are indented by
/// Columns that names of rows have at least, if they are so long: a table that does not leave them is broken into
/// several, since a shortened name cannot be pasted into another command.
constexpr std::size_t name_room = 44;

Ink ink_of(Tone tone) {
    constexpr std::array inks = {Ink::plain, Ink::green, Ink::yellow, Ink::red};
    return inks[static_cast<std::size_t>(tone)];
}

/// A table as texts and their widths.
class Grid {
  public:
    Grid(const TableBlock& table, bool brief) : widths_(table.header.size(), 0) {
        std::vector<Cell> head;
        for (const std::string& name : table.header) head.push_back({name});
        std::size_t widest = width(table.header.front());
        for (const std::vector<Cell>& row : table.rows) widest = std::max(widest, width(printable(row.front().text)));
        most_ = terminal_columns - std::min(widest, name_room) - gap;
        add(head, brief);
        const std::string* above = nullptr;
        for (const std::vector<Cell>& row : table.rows) {
            add(row, brief);
            if (table.groups && above != nullptr && *above == row.front().text) rows_.back().front().text.clear();
            above = &row.front().text;
        }
    }

    [[nodiscard]] bool fits() const { return widths_[0] + others() <= terminal_columns; }

    /// The table, or tables that each begin with the names of the rows and go on with the columns there is room for.
    [[nodiscard]] std::string text(std::size_t text_columns, bool color) const {
        const std::size_t left = terminal_columns > others() ? terminal_columns - others() : 0;
        const std::size_t name = std::min(widths_[0], std::max(left, name_room));
        std::string out;
        for (std::size_t first = 1; first < widths_.size() || out.empty();) {
            std::size_t last = first, used = name;
            while (last < widths_.size() && (last == first || used + gap + widths_[last] <= terminal_columns))
                used += gap + widths_[last++];
            if (!out.empty()) out += '\n';
            for (std::size_t row = 0; row < rows_.size(); ++row)
                out += line(row, name, first, last, text_columns, color);
            first = last;
        }
        return out;
    }

  private:
    void add(std::span<const Cell> cells, bool brief) {
        std::vector<Cell>& row = rows_.emplace_back(cells.begin(), cells.end());
        for (std::size_t i = 0; i < row.size(); ++i) {
            if (brief && !row[i].brief.empty()) row[i].text = row[i].brief;
            row[i].text = shortened_name(printable(row[i].text), i == 0 ? terminal_columns : most_);
            widths_[i] = std::max(widths_[i], width(row[i].text));
        }
    }

    /// Columns that all but the names take.
    [[nodiscard]] std::size_t others() const {
        return std::accumulate(widths_.begin() + 1, widths_.end(), gap * (widths_.size() - 1));
    }

    /// The name of a row, and the columns [first, last).
    [[nodiscard]] std::string line(std::size_t number, std::size_t name, std::size_t first, std::size_t last,
                                   std::size_t text_columns, bool color) const {
        const std::vector<Cell>& row = rows_[number];
        std::string out;
        std::size_t spaces = 0; // not written yet: none shall end a line
        const auto put = [&](const std::string& text, Tone tone, std::size_t room, bool right) {
            const std::size_t rest = room - width(text);
            if (right) spaces += rest;
            if (!text.empty()) {
                out.append(spaces, ' ') += inked(text, number == 0 ? Ink::bold : ink_of(tone), color);
                spaces = 0;
            }
            spaces += gap + (right ? 0 : rest);
        };
        put(shortened_name(row[0].text, name), row[0].tone, name, false);
        for (std::size_t i = first; i < std::min(last, row.size()); ++i)
            put(row[i].text, row[i].tone, widths_[i], i >= text_columns);
        return out + '\n';
    }

    std::vector<std::vector<Cell>> rows_; ///< the header is the first
    std::vector<std::size_t> widths_;     ///< the width of the widest cell of each column
    std::size_t most_ = 0;                ///< columns that a cell beside a name may have
};

/// Writes the blocks one after the other, an empty line between two of them.
class TerminalWriter {
  public:
    explicit TerminalWriter(bool color) : color_(color) {}
    std::string out;

    void title(const Document& document) {
        if (document.title.empty()) return;
        out += bold(document.title);
        if (!document.subtitle.empty()) out += wrapped(printable(document.subtitle));
    }

    void write(const Heading& h) {
        begin(After::heading);
        out += bold(h.text);
    }
    void write(const Paragraph& p) {
        begin(After::paragraph);
        std::string text = wrapped(printable(p.text), p.lead || p.tone != Tone::plain ? gap : 0);
        text.pop_back(); // the end of the line is not coloured
        const std::size_t colon = p.lead ? text.find(':') : std::string::npos;
        const std::size_t lead = colon == std::string::npos ? 0 : colon + 1;
        out += inked(text.substr(0, lead), Ink::bold, color_) + inked(text.substr(lead), ink_of(p.tone), color_) + '\n';
    }
    void write(const Bullets& list) {
        begin(After::other);
        for (const std::string& item : list.items) out += wrapped("- " + printable(item), gap);
    }
    void write(const TableBlock& table) {
        begin(After::other);
        const Grid whole(table, false);
        out += (whole.fits() ? whole : Grid(table, true)).text(table.text_columns, color_);
        if (!table.caption.empty()) out += wrapped(printable(table.caption));
    }
    void write(const CardBlock& block) {
        begin(After::other);
        std::size_t widest = 0;
        for (const Card& card : block.cards) widest = std::max(widest, width(printable(card.about)));
        for (const Card& card : block.cards) {
            const std::string about = upper_case(printable(card.about));
            const Ink ink = card.tone == Tone::plain ? Ink::bold : ink_of(card.tone);
            out += about + std::string(widest + gap - width(about), ' ');
            out += inked(wrapped_from(widest + gap, printable(card.words)), ink, color_) + '\n';
            out += std::string(gap, ' ') + wrapped_from(gap, printable(card.text)) + '\n';
        }
    }
    void write(const FigureBlock& block) {
        const MagnitudeFigure& magnitudes = std::get<MagnitudeFigure>(block.figure);
        begin(After::other);
        out += printable(magnitudes.title) + "\n\n" + magnitude_text(magnitudes, color_);
        if (!block.caption.empty()) out += wrapped(printable(block.caption));
    }

  private:
    /// wrapped() text whose first line begins at a column, as the others do; without the end of the last line.
    static std::string wrapped_from(std::size_t column, const std::string& text) {
        std::string lines = wrapped(std::string(column, '.') + text, column); // the dots belong to the first word
        lines.pop_back();
        return lines.substr(column);
    }

    [[nodiscard]] std::string bold(const std::string& line) const {
        std::string text = wrapped(printable(line));
        text.pop_back(); // the end of the line is not bold
        return inked(text, Ink::bold, color_) + '\n';
    }

    enum class After { nothing, heading, paragraph, other };

    /// An empty line before a block, except below a heading and between two paragraphs.
    void begin(After block) {
        if (!out.empty() && after_ != After::heading && !(block == After::paragraph && after_ == block)) out += '\n';
        after_ = block;
    }

    bool color_;
    After after_ = After::nothing;
};

/// Whether a terminal shows it: long lists and other figures are for pages.
bool is_shown(const Block& block) {
    if (const auto* const table = std::get_if<TableBlock>(&block)) return !table->folded;
    if (const auto* const figure = std::get_if<FigureBlock>(&block))
        return std::holds_alternative<MagnitudeFigure>(figure->figure);
    return true;
}

} // namespace

std::string terminal_of(const Document& document, bool color) {
    TerminalWriter writer(color);
    writer.title(document);
    for (const Block* block : blocks_with_content(document.blocks, is_shown))
        std::visit([&](const auto& b) { writer.write(b); }, *block);
    return writer.out;
}

} // namespace amp
