#include <ampscope/sim/findings/diff_gate.h>

#include <ampscope/formats/policy.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace amp {

namespace {

double figure_of(const DiffFindings& findings, DiffGate::Figure figure) {
    const TensorDiff& d = findings.total;
    const bool odd = d.of(DiffClass::nan) + d.of(DiffClass::inf) > 0; // then distances are infinite
    switch (figure) {
    case DiffGate::Figure::differ:
        return static_cast<double>(d.differing()) / static_cast<double>(std::max<std::uint64_t>(d.elements(), 1));
    case DiffGate::Figure::max_ulps: return odd ? HUGE_VAL : d.max_ulps;
    case DiffGate::Figure::max_relative: return odd ? HUGE_VAL : d.max_relative;
    case DiffGate::Figure::norm: return odd ? HUGE_VAL : d.relative_norm();
    case DiffGate::Figure::nan: return static_cast<double>(d.of(DiffClass::nan));
    case DiffGate::Figure::inf: return static_cast<double>(d.of(DiffClass::inf));
    case DiffGate::Figure::sign: return static_cast<double>(d.of(DiffClass::sign));
    case DiffGate::Figure::zero: return static_cast<double>(d.of(DiffClass::zero) + d.of(DiffClass::zero_sign));
    case DiffGate::Figure::missing: return static_cast<double>(findings.only_a.size() + findings.only_b.size());
    }
    return HUGE_VAL;
}

} // namespace

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

std::vector<DiffGateResult> judge(const DiffFindings& findings, const std::vector<DiffGate>& gates) {
    std::vector<DiffGateResult> results;
    for (const DiffGate& gate : gates) {
        const double value = figure_of(findings, gate.figure);
        // A gate does not hold if nothing could be compared.
        const bool holds = findings.total.elements() > 0 && (gate.or_equal ? value <= gate.limit : value < gate.limit);
        results.push_back({gate, value, holds});
    }
    return results;
}

} // namespace amp
