#include <ampscope/tools/chart/svg.h>

#include <ampscope/sim/base/text.h>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>

namespace amp::svg {

std::string number(double x) {
    std::string s = fmt::format("{:.2f}", x);
    while (s.back() == '0') s.pop_back();
    if (s.back() == '.') s.pop_back();
    return s == "-0" ? "0" : s;
}

std::string json_number(double x, int digits) { return std::isfinite(x) ? fmt::format("{:.{}g}", x, digits) : "null"; }

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : printable(text)) {
        switch (c) {
        case '&': out += "&amp;"; break;
        case '<': out += "&lt;"; break;
        case '>': out += "&gt;"; break;
        case '"': out += "&quot;"; break;
        case '\'': out += "&#39;"; break;
        default: out += c;
        }
    }
    return out;
}

void Canvas::close_element(std::string_view element, std::string_view tooltip) {
    if (tooltip.empty()) body_ += "/>\n";
    else fmt::format_to(std::back_inserter(body_), "><title>{}</title></{}>\n", escaped(tooltip), element);
}

void Canvas::rect(double x, double y, double width, double height, std::string_view css, std::string_view tooltip) {
    fmt::format_to(std::back_inserter(body_), R"(<rect class="{}" x="{}" y="{}" width="{}" height="{}")", css,
                   number(x), number(y), number(width), number(height));
    close_element("rect", tooltip);
}

void Canvas::line(double x1, double y1, double x2, double y2, std::string_view css, std::string_view tooltip) {
    fmt::format_to(std::back_inserter(body_), R"(<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}")", css, number(x1),
                   number(y1), number(x2), number(y2));
    close_element("line", tooltip);
}

void Canvas::path(std::string_view d, std::string_view css, std::string_view tooltip) {
    fmt::format_to(std::back_inserter(body_), R"(<path class="{}" d="{}")", css, d);
    close_element("path", tooltip);
}

void Canvas::circle(double x, double y, double radius, std::string_view css, std::string_view tooltip) {
    fmt::format_to(std::back_inserter(body_), R"(<circle class="{}" cx="{}" cy="{}" r="{}")", css, number(x), number(y),
                   number(radius));
    close_element("circle", tooltip);
}

void Canvas::text(double x, double y, std::string_view css, Anchor anchor, std::string_view content) {
    constexpr std::array anchors = {"start", "middle", "end"};
    fmt::format_to(std::back_inserter(body_), R"(<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>)", css,
                   number(x), number(y), anchors[static_cast<std::size_t>(anchor)], escaped(content));
    body_ += '\n';
}

void Canvas::open_group(std::string_view label) {
    fmt::format_to(std::back_inserter(body_), "<g role=\"group\" aria-label=\"{}\">\n", escaped(label));
}

void Canvas::open_data(const std::vector<std::pair<std::string_view, std::string>>& values) {
    if (!live_) return;
    body_ += "<g";
    for (const auto& [name, value] : values)
        if (!value.empty()) fmt::format_to(std::back_inserter(body_), " data-{}=\"{}\"", name, escaped(value));
    body_ += ">\n";
}

void Canvas::close_data() {
    if (live_) close_group();
}

std::string Canvas::document(std::string_view id, std::string_view title, std::string_view description,
                             std::string_view definitions) const {
    return fmt::format(
        R"(<svg xmlns="http://www.w3.org/2000/svg" class="amp-chart" role="img" viewBox="0 0 {0} {1}" width="{0}" height="{1}" aria-labelledby="{2}-title {2}-desc">
<title id="{2}-title">{3}</title>
<desc id="{2}-desc">{4}</desc>
{5}{6}</svg>
)",
        number(width_), number(height_), escaped(id), escaped(title), escaped(description), definitions, body_);
}

} // namespace amp::svg
