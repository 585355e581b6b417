#include <ampscope/tools/amp-train/precisions.h>

#include <ampscope/tools/command_line.h>

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace amp::train_tool {

namespace {

constexpr std::string_view as_trained = "as-trained";

/// The precision, with the policies of layers in the order of the options: those that say most come last.
Precision with_layers(const std::string& name, const PrecisionWords& words) {
    Precision p = precision(name);
    if (!words.scaling_off.empty()) p.layers.clear();
    for (const std::string& module : words.scaling_off) p.add_layer(module, "scaling=none");
    for (const std::string& module : words.autocast_off) p.add_layer(module, "autocast=off");
    for (const std::string& layer : words.layers) {
        const std::size_t expression = layer.starts_with("/") ? layer.find("/:", 1) : 0, // which may have colons
            colon = expression == std::string::npos ? expression : layer.find(':', expression);
        if (colon == 0 || colon >= layer.size() - 1)
            throw std::invalid_argument(fmt::format("--layer {}: expected MODULES:TEXT, as in head:bf16", layer));
        of_option("--layer", [&] { p.add_layer(layer.substr(0, colon), layer.substr(colon + 1)); });
    }
    return p;
}

} // namespace

std::vector<std::string> precision_texts(std::string_view option, const std::vector<std::string>& lists) {
    std::vector<std::string> names;
    for (const std::string& list : lists)
        for (std::size_t begin = 0, end = 0; begin <= list.size(); begin = end + 1) {
            end = std::min(list.find(',', begin), list.size());
            const std::string word = list.substr(begin, end - begin);
            if (word.empty()) throw std::invalid_argument(fmt::format("{}: a name is missing in '{}'", option, list));
            if (word.find('=') != std::string::npos && !names.empty()) names.back() += "," + word;
            else names.push_back(word);
        }
    return names;
}

bool begins_as_trained(std::string_view text) { return text == as_trained || text.starts_with("as-trained,"); }

Precision precision_against(const std::string& text, const Precision& own) {
    if (!begins_as_trained(text)) return precision(text);
    return text == as_trained ? own : changed(own, text.substr(as_trained.size() + 1));
}

std::vector<Precision> precisions_of(const PrecisionWords& words) {
    std::vector<Precision> all;
    for (const std::string& name : precision_texts("--precision", words.precisions))
        all.push_back(of_option("--precision", [&] { return with_layers(name, words); }));
    if (words.accumulate.empty()) return all;
    // --accumulate is the key accumulate of the precisions whose products can use one of the accumulators.
    const std::vector<Accumulator> wanted = of_option("--accumulate", [&] { return accumulators(words.accumulate); });
    bool used = false;
    for (Precision& p : all) {
        std::string usable;
        for (const Accumulator& acc : wanted)
            if (p.may_use(acc)) usable += (usable.empty() ? "" : "+") + std::string(acc.name);
        if (usable.empty() || p.name.find("accumulate") != std::string::npos) continue;
        p = with_layers(p.name + ",accumulate=" + usable, words);
        used = true;
    }
    if (!used)
        throw std::invalid_argument(
            fmt::format("--accumulate {}: no run multiplies operands that it takes", words.accumulate));
    return all;
}

} // namespace amp::train_tool
