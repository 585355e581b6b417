// A report as blocks of text, tables and figures, written as one self-contained HTML page or as Markdown.
#pragma once

#include <ampscope/tools/chart/chart.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace amp {

/// How a cell is coloured; the text beside the table says what decides it.
enum class Tone : std::uint8_t { plain, good, fair, bad };

struct Cell {
    std::string text;
    std::optional<double> value{}; ///< what the column is sorted by; none: the text
    Tone tone = Tone::plain;
};

/// Of what is not known.
inline Cell no_value() { return {"-"}; }
/// So many significant digits.
Cell number_cell(double x, int digits);
/// "1,234".
Cell count_cell(std::uint64_t n);
/// A percentage of a whole; no value of nothing.
Cell share_cell(double part, std::uint64_t whole);

struct Heading {
    std::string text;
    int level = 2; ///< 2 is a section, listed in the contents; 3 a part of one
};
struct Paragraph {
    std::string text;
    bool lead = false; ///< what the whole page says: larger, up to the first colon in bold
};
struct Bullets {
    std::vector<std::string> items;
};
struct TableBlock {
    std::string caption;
    std::vector<std::string> header; ///< of the first column and those with numbers, which are right-aligned
    std::vector<std::vector<Cell>> rows;
    std::size_t text_columns = 1; ///< that many first columns are text, left-aligned
    bool folded = false;          ///< shown on a click; for long lists
};
struct FigureBlock {
    Figure figure;
    std::string caption; ///< what to see in it
};

using Block = std::variant<Heading, Paragraph, Bullets, TableBlock, FigureBlock>;

struct Document {
    std::string title, subtitle;
    std::vector<Block> blocks;
};

/// One file: inline SVG and CSS for light, dark, paper and phone; nothing is loaded, and the few lines of script only
/// sort tables. The same document gives the same bytes.
std::string html_of(const Document& document);

/// GitHub's Markdown; of figures the text alternatives.
std::string markdown_of(const Document& document);

} // namespace amp
