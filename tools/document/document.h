// A report as blocks of text, tables and figures. A tool says once what is to be said; it is written for terminals, as
// one self-contained HTML page or as Markdown.
#pragma once

#include <ampscope/tools/chart/chart.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace amp {

/// How a cell is coloured; the text beside the table says what decides it.
enum class Tone : std::uint8_t { plain, good, fair, bad };

struct Cell {
    std::string text;
    std::optional<double> value{}; ///< the number by which the column is sorted; none: sorted by the text
    Tone tone = Tone::plain;
    std::string brief{}; ///< shown instead where the table is too wide for a terminal; empty: the text
};

/// Stands for what is not known.
inline Cell no_value() { return {"-"}; }
/// `x` with that many significant digits.
Cell number_cell(double x, int digits);
/// "1,234", or "1.23k" where that is too wide.
Cell count_cell(std::uint64_t n);
/// An expected count, shown as the nearest whole one.
Cell count_cell(double expected);
/// `part` as a percentage of `whole`; "-" where `whole` is 0.
Cell share_cell(double part, std::uint64_t whole);
Cell share_cell(std::uint64_t part, std::uint64_t whole);

struct Heading {
    std::string text;
    int level = 2; ///< 2 is a section, listed in the contents; 3 a part of one
};
struct Paragraph {
    std::string text;
    bool lead = false; ///< the main finding: larger, up to the first colon in bold
    Tone tone = Tone::plain;
};
struct Bullets {
    std::vector<std::string> items;
};
struct TableBlock {
    std::string caption;
    std::vector<std::string> header;     ///< the name of each column
    std::vector<std::vector<Cell>> rows; ///< a cell for each column
    std::size_t text_columns = 1;        ///< the first columns, left-aligned; the others hold numbers, right-aligned
    bool groups = false;                 ///< rows of one name belong together: a terminal shows the name once
    bool folded = false;                 ///< a long list: shown on a click, and not in a terminal
};
struct FigureBlock {
    Figure figure;
    std::string caption; ///< what the figure shows
};

/// An answer to be read at a glance.
struct Card {
    std::string about; ///< the question in a word or two
    std::string words; ///< the answer in a few, shown large
    std::string text;  ///< a sentence
    Tone tone = Tone::plain;
};
/// Cards stand above all else in a page.
struct CardBlock {
    std::vector<Card> cards;
};

using Block = std::variant<Heading, Paragraph, Bullets, TableBlock, FigureBlock, CardBlock>;

struct Document {
    std::string title, subtitle;
    std::vector<Block> blocks;
    std::vector<Block> appendix{}; ///< what a page says and a terminal does not: definitions, files, hashes

    void add(Block block);
    template <class Part>
    void add(const std::optional<Part>& part) {
        if (part) add(Block(*part));
    }
    template <class Part>
    void add(const std::vector<Part>& parts) {
        blocks.insert(blocks.end(), parts.begin(), parts.end());
    }
};

/// The number of rows that a table shows of `all` under --worst, of which 0 asks for all.
std::size_t rows_shown(std::size_t worst, std::size_t all);

/// "98 tensors", or "10 of 98 tensors (--worst 0 shows all)".
std::string shown_of(std::size_t shown, std::size_t all, std::string_view noun);

/// The blocks that `shows`, if there is something in them, and the headings under which there are any.
std::vector<const Block*> blocks_with_content(std::span<const Block> blocks,
                                              const std::function<bool(const Block&)>& shows = {});

/// One file: inline SVG and CSS for light, dark, paper and phone; nothing is loaded. All is there without script, with
/// which tables can be sorted, charts show values under the pointer, and lines of charts can be hidden. The same
/// document gives the same bytes.
std::string html_of(const Document& document);

/// GitHub's Markdown; figures become their text alternatives.
std::string markdown_of(const Document& document);

/// Lines of at most 80 columns; escape sequences only if `color`. A table that is too wide shows brief cells, and is
/// broken into several where that does not help. Of the figures magnitudes are drawn.
std::string terminal_of(const Document& document, bool color);

} // namespace amp
