#include <ampscope/sim/findings/selection.h>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace amp {

std::vector<std::string> unneeded_options(const OpenOptions& said, std::initializer_list<const Recording*> recordings) {
    const auto is_doubtful = [](const Recording* r) { return !r->errors.empty() || !r->warnings.empty(); };
    if (std::ranges::any_of(recordings, is_doubtful)) return {};
    const auto none = [&](const auto& needs) {
        return std::ranges::none_of(recordings,
                                    [&](const Recording* r) { return std::ranges::any_of(r->tensors, needs); });
    };
    std::vector<std::string> lines;
    if (said.dtype && none([](const RecordedTensor& t) { return !is_tensor_file(t.file); }))
        lines.emplace_back("--dtype changes nothing: it is for raw files, and none of these is one");
    if (said.as && none([&](const RecordedTensor& t) { return may_lack_format(t.file) && t.entry.dtype == *said.as; }))
        lines.emplace_back(
            "--as changes nothing: it is for .npy and .npz files that lost their number format, and none of these did");
    return lines;
}

constexpr std::size_t longest_pattern = 1000; // std::regex recurses for each character

/// Matching takes time that grows with pattern and name, without trying over and over again ("(a+)+$").
#ifdef __GLIBCXX__
constexpr auto regex_options = std::regex::ECMAScript | std::regex_constants::__polynomial;
#else
constexpr auto regex_options = std::regex::ECMAScript;
#endif

std::optional<std::regex> tensor_pattern(const std::string& text) {
    if (text.empty()) return std::nullopt;
    if (text.size() > longest_pattern)
        throw std::invalid_argument(fmt::format("--tensor: longer than {} characters", longest_pattern));
    try {
        return std::regex(text, regex_options);
    } catch (const std::regex_error& error) {
        if (error.code() == std::regex_constants::error_complexity)
            throw std::invalid_argument("--tensor: '" + text +
                                        "' refers back to a part of itself, which is not supported");
        throw std::invalid_argument("--tensor: '" + text + "' is no regular expression: " + error.what());
    }
}

bool matches(const std::optional<std::regex>& pattern, const std::string& name) {
    return !pattern || std::regex_search(name, *pattern);
}

} // namespace amp
