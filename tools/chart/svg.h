// Writes SVG text: elements with CSS classes, tooltips, deterministic numbers. No scripts, no external resources.
#pragma once

#include <string>
#include <string_view>

namespace amp::svg {

/// At most two decimals, no exponent, no locale, no "-0".
std::string number(double x);

/// Escapes text for contents and attribute values; it is made printable() first.
std::string escaped(std::string_view text);

enum class Anchor { start, middle, end };

class Canvas {
  public:
    Canvas(double width, double height) : width_(width), height_(height) {}

    [[nodiscard]] double width() const { return width_; }

    /// A non-empty `tooltip` becomes the element's <title>.
    void rect(double x, double y, double width, double height, std::string_view css, std::string_view tooltip = {});
    void line(double x1, double y1, double x2, double y2, std::string_view css, std::string_view tooltip = {});
    /// `d` is SVG path data.
    void path(std::string_view d, std::string_view css, std::string_view tooltip = {});
    void circle(double x, double y, double radius, std::string_view css, std::string_view tooltip);
    void text(double x, double y, std::string_view css, Anchor anchor, std::string_view content);
    void open_group(std::string_view label);
    void close_group() { body_ += "</g>\n"; }

    /// The whole document. `title` and `description` are its text alternative; `id` makes its ids unique in a page.
    [[nodiscard]] std::string document(std::string_view id, std::string_view title, std::string_view description,
                                       std::string_view definitions) const;

  private:
    void close_element(std::string_view element, std::string_view tooltip);

    double width_, height_;
    std::string body_;
};

} // namespace amp::svg
