#include <ampscope/sim/base/tensor_names.h>

#include <ampscope/sim/base/text.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace amp {

namespace {

constexpr std::size_t least_prefix = 6;     ///< a shorter one takes less room than the words that name it
constexpr std::size_t most_components = 64; ///< of a name that a framework makes

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool stands_for_number(char c) { return is_digit(c) || c == '*'; } // see name_pattern()
bool is_separator(char c) { return c == '.' || c == '/'; }

/// The components of a name, each with the separator behind it.
std::vector<std::string> components_of(std::string_view name) {
    std::vector<std::string> components(1);
    for (const char c : name) {
        components.back() += c;
        if (is_separator(c)) components.emplace_back();
    }
    if (components.back().empty() && components.size() > 1) components.pop_back();
    return components;
}

bool has_digit(std::string_view component) { return std::ranges::any_of(component, stands_for_number); }

/// "11", "11." or "11/".
bool is_number(std::string_view component) {
    if (!component.empty() && is_separator(component.back())) component.remove_suffix(1);
    return !component.empty() && std::ranges::all_of(component, stands_for_number);
}

/// Whether the component of `name` that begins at `at` is a number.
bool is_number_at(std::string_view name, std::size_t at) {
    const std::string_view rest = name.substr(std::min(at, name.size()));
    return is_number(rest.substr(0, static_cast<std::size_t>(std::ranges::find_if(rest, is_separator) - rest.begin())));
}

/// The components that are kept; an ellipsis stands for each gap between them.
std::string joined(const std::vector<std::string>& components, const std::vector<bool>& kept) {
    std::string text;
    bool gap = false;
    for (std::size_t i = 0; i < components.size(); ++i) {
        if (kept[i]) text += components[i];
        else if (!gap) text += "…";
        gap = !kept[i];
    }
    return text;
}

/// The components' indices, those first without which a reader could not tell which layer it is.
std::vector<std::size_t> by_importance(const std::vector<std::string>& components) {
    const auto rank = [&](std::size_t i) {
        if (is_number(components[i])) return 0;
        if (i + 1 == components.size()) return 1;
        if (is_number(components[i + 1])) return 2;
        return has_digit(components[i]) ? 3 : 4;
    };
    std::vector<std::size_t> order(components.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0}); // of equal rank the last first
    std::ranges::stable_sort(order, {}, rank);
    return order;
}

} // namespace

std::string shared_prefix(std::span<const std::string> names) {
    if (names.size() < 2) return "";
    std::string_view common = names.front();
    for (const std::string& name : names)
        common = common.substr(0, static_cast<std::size_t>(std::ranges::mismatch(common, name).in1 - common.begin()));
    std::size_t end = 0;
    for (const std::string& component : components_of(common)) {
        const std::size_t next = end + component.size();
        const bool stays = component.empty() || !is_separator(component.back()) || has_digit(component) ||
                           std::ranges::any_of(names, [next](const std::string& name) {
                               return name.size() == next || is_number_at(name, next);
                           });
        if (stays) break;
        end = next;
    }
    return end < least_prefix ? "" : std::string(common.substr(0, end));
}

std::string NamesBelow::heading(std::string_view text) const {
    return prefix_.empty() ? std::string(text) : std::string(text) + ", below " + prefix_;
}

std::string shortened_name(std::string_view utf8, std::size_t columns) {
    if (width(utf8) <= columns) return std::string(utf8);
    std::vector<std::string> components = components_of(utf8);
    if (components.size() < 2 || components.size() > most_components) return clipped(utf8, columns);
    std::vector<bool> kept(components.size(), false);
    for (const std::size_t i : by_importance(components)) {
        kept[i] = true;
        const std::size_t wide = width(joined(components, kept));
        if (wide <= columns) continue;
        const bool is_last = i + 1 == components.size();
        if (!is_last && !is_number(components[i])) {
            kept[i] = false;
            continue;
        }
        // Not even numbers and the end fit: of the end as much as there is room for.
        constexpr std::size_t least_end = 5;
        const std::size_t end = width(components[i]), over = wide - columns;
        if (!is_last || end < over + least_end) return clipped(utf8, columns);
        components[i] = clipped(components[i], end - over);
    }
    return joined(components, kept);
}

std::string name_pattern(std::string_view name, NameNumbers numbers) {
    std::string pattern;
    for (const std::string& component : components_of(name)) {
        if (numbers == NameNumbers::components && !is_number(component)) {
            pattern += component;
            continue;
        }
        for (std::size_t i = 0; i < component.size(); ++i)
            if (!is_digit(component[i])) pattern += component[i];
            else if (i == 0 || !is_digit(component[i - 1])) pattern += '*';
    }
    return pattern;
}

} // namespace amp
