#include <ampscope/sim/findings/diff_gate.h>

#include <ampscope/formats/policy.h>

#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace amp {

std::string_view name_of(DiffGate::Figure figure) { return diff_gate_names[static_cast<std::size_t>(figure)]; }

DiffGate parse_diff_gate(const std::string& text) {
    DiffGate gate;
    gate.text = text;
    const std::size_t less = text.find('<');
    const auto fail = [&](const char* expected) {
        throw std::invalid_argument("gate '" + text + "': expected " + expected);
    };
    if (less == std::string::npos) fail("FIGURE<LIMIT or FIGURE<=LIMIT");
    const auto trimmed = [](std::string word) {
        word.erase(0, word.find_first_not_of(' '));
        word.erase(word.find_last_not_of(' ') + 1);
        return word;
    };
    gate.figure = parse_name<DiffGate::Figure>("figure", diff_gate_names, trimmed(text.substr(0, less)));
    gate.or_equal = less + 1 < text.size() && text[less + 1] == '=';
    std::string limit = trimmed(text.substr(less + (gate.or_equal ? 2 : 1)));
    const bool percent = limit.ends_with('%');
    if (percent) limit.pop_back();
    char* end = nullptr;
    gate.limit = std::strtod(limit.c_str(), &end);
    if (limit.empty() || end != limit.c_str() + limit.size() || !(gate.limit >= 0) || std::isinf(gate.limit))
        fail("a limit such as 1, 1e-3 or 0.1%");
    if (percent) gate.limit /= 100;
    const bool share = gate.figure == DiffGate::Figure::differ || gate.figure == DiffGate::Figure::norm ||
                       gate.figure == DiffGate::Figure::max_relative;
    if (gate.figure == DiffGate::Figure::differ && gate.limit > 1)
        fail("a share of at most 1 or 100%, since no share is larger");
    if (percent && !share) fail("a number without %: this figure is a count");
    return gate;
}

} // namespace amp
