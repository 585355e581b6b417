// Numbers in texts.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace amp {

/// The number that all of a text is, in decimal; nothing where it is no number, or one that T cannot hold.
template <class T>
std::optional<T> number_of(std::string_view text) {
    T value{};
    const char* const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, value);
    return problem == std::errc{} && stop == end ? std::optional(value) : std::nullopt;
}

/// The same of a number from `least` to `most`.
template <class T>
std::optional<T> number_of(std::string_view text, T least, T most) {
    const std::optional<T> value = number_of<T>(text);
    return value && *value >= least && *value <= most ? value : std::nullopt;
}

} // namespace amp
