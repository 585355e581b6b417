// Writes SVG text: elements with CSS classes, tooltips, deterministic numbers. No scripts, no external resources. For a
// page also the values that its script shows.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace amp::svg {

/// A number of JSON with so many significant digits; "null" for NaN and infinities.
std::string json_number(double x, int digits);

/// At most two decimals, no exponent, no locale, no "-0".
std::string number(double x);

/// Escapes text for contents and attribute values; it is made printable() first.
std::string escaped(std::string_view text);

enum class Anchor { start, middle, end };

class Canvas {
  public:
    /// `live`: for a page with a script, which reads what open_data() writes.
    Canvas(double width, double height, bool live = false) : width_(width), height_(height), live_(live) {}

    [[nodiscard]] double width() const { return width_; }
    [[nodiscard]] bool is_live() const { return live_; }

    /// A non-empty `tooltip` becomes the element's <title>.
    void rect(double x, double y, double width, double height, std::string_view css, std::string_view tooltip = {});
    void line(double x1, double y1, double x2, double y2, std::string_view css, std::string_view tooltip = {});
    /// `d` is SVG path data.
    void path(std::string_view d, std::string_view css, std::string_view tooltip = {});
    void circle(double x, double y, double radius, std::string_view css, std::string_view tooltip);
    void text(double x, double y, std::string_view css, Anchor anchor, std::string_view content);
    void open_group(std::string_view label);
    void close_group() { body_ += "</g>\n"; }
    /// On a live canvas a group of what is drawn up to close_data(), with an attribute data-NAME for each pair of a
    /// name and a value that is not empty; nothing on others.
    void open_data(const std::vector<std::pair<std::string_view, std::string>>& values);
    void close_data();

    /// The whole document. `title` and `description` are its text alternative; `id` makes its ids unique in a page.
    [[nodiscard]] std::string document(std::string_view id, std::string_view title, std::string_view description,
                                       std::string_view definitions) const;

  private:
    void close_element(std::string_view element, std::string_view tooltip);

    double width_, height_;
    bool live_;
    std::string body_;
};

} // namespace amp::svg
