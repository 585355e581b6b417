// Names of table rows and of enumerators: how they are looked up, and the error for an unknown one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace amp {

/// A letter of ASCII in lower case; any other character as it is.
constexpr char lower_case(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

constexpr bool equal_ignoring_case(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, [](char x, char y) { return lower_case(x) == lower_case(y); });
}

/// The names of a table's rows, separated by commas.
template <class Rows>
constexpr std::string names_of_rows(const Rows& rows) {
    std::string all;
    for (const auto& row : rows) all += (all.empty() ? "" : ", ") + std::string(row.name);
    return all;
}

/// "unknown format 'fp17'; known: fp32, tf32 ..."
inline std::string unknown_name(std::string_view what, std::string_view name, const std::string& known) {
    return "unknown " + std::string(what) + " '" + std::string(name) + "'; known: " + known;
}

/// Throws that as std::invalid_argument.
[[noreturn]] inline void throw_unknown(std::string_view what, std::string_view name, const std::string& known) {
    throw std::invalid_argument(unknown_name(what, name, known));
}

/// The row of that name. Throws as above if there is none; `others` is added to the list of known names.
template <class Rows>
constexpr const auto& find_row(std::string_view what, const Rows& rows, std::string_view name,
                               std::string_view others = "") {
    for (const auto& row : rows)
        if (name == row.name) return row;
    throw_unknown(what, name, names_of_rows(rows) + std::string(others));
}

/// The names of an enum's enumerators, in their order: name_at(0), name_at(1) ... up to the first empty one.
template <class NameAt>
constexpr auto names_by(NameAt name_at) {
    constexpr std::size_t count = [] {
        std::size_t n = 0;
        while (!NameAt{}(n).empty()) ++n;
        return n;
    }();
    std::array<std::string_view, count> names{};
    for (std::size_t i = 0; i < count; ++i) names[i] = name_at(i);
    return names;
}

/// The enumerator called `text`, for enums that count from 0 in the order of `names`. Throws as above if there is none.
template <class E, std::size_t N>
constexpr E parse_name(std::string_view what, const std::array<std::string_view, N>& names, std::string_view text) {
    std::string all;
    for (std::size_t i = 0; i < N; ++i) {
        if (text == names[i]) return static_cast<E>(i);
        all += (i == 0 ? "" : ", ") + std::string(names[i]);
    }
    throw_unknown(what, text, all);
}

} // namespace amp
