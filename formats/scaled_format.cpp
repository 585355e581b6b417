#include <ampscope/formats/scaled_format.h>

#include <algorithm>
#include <charconv>

namespace amp {

namespace {

/// The numbers of a table; those of fewer bits are the first ones.
using Numbers = std::array<float, 256>;

constexpr float rounded(double x) { return static_cast<float>(x); }

/// Element i of torch.linspace(0.1, 1, parts + 1), computed from the nearer end. A product of two floats is exact in
/// double, and so is the sum of such a one and of a float between 0.1 and 1: one rounding is that of a fused operation.
constexpr float boundary(int i, int parts, bool contract) {
    const float first = 0.1F, step = rounded(double{rounded(1.0 - double{first})} / parts);
    const bool near = i < (parts + 1) / 2;
    const double change = near ? double{step} * i : -(double{step} * (parts - i));
    return rounded((near ? double{first} : 1.0) + (contract ? change : double{rounded(change)}));
}

/// torchao's create_dynamic_map: a decade is divided into twice as many parts as the one below it, and their middles
/// are the numbers.
constexpr Numbers dynamic_numbers(int decades, int least_parts, bool has_negatives, bool contract) {
    constexpr std::array powers = {1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6};
    Numbers positive{};
    std::size_t n = 0;
    for (int decade = decades - 1, parts = least_parts; decade >= 0; --decade, parts *= 2)
        for (int i = 0; i < parts; ++i) {
            const float middle =
                rounded(double{boundary(i, parts, contract)} + double{boundary(i + 1, parts, contract)}) / 2;
            positive[n++] = rounded(double{rounded(powers[static_cast<std::size_t>(decade)])} * double{middle});
        }
    Numbers all{};
    std::size_t at = 0;
    if (has_negatives)
        for (std::size_t i = n; i-- > 0;) all[at++] = -positive[i];
    all[at++] = 0;
    for (std::size_t i = 0; i < n; ++i) all[at++] = positive[i];
    all[at] = 1;
    return all;
}

/// torchao's map for a v of 4 bits.
constexpr Numbers sixteenths() {
    Numbers all{};
    for (int i = 0; i < 16; ++i) all[static_cast<std::size_t>(i)] = static_cast<float>(i + 1) / 16;
    return all;
}

/// By contraction.
constexpr std::array dynamic8 = {dynamic_numbers(7, 1, true, false), dynamic_numbers(7, 1, true, true)};
constexpr std::array dynamic8_unsigned = {dynamic_numbers(7, 2, false, false), dynamic_numbers(7, 2, false, true)};
constexpr std::array dynamic4 = {dynamic_numbers(3, 1, true, false), dynamic_numbers(3, 1, true, true)};
constexpr std::array linear4 = {sixteenths(), sixteenths()};

constexpr const std::array<Numbers, 2>& numbers_of(CodeMap map, bool has_negatives) {
    if (map == CodeMap::dynamic4) return has_negatives ? dynamic4 : linear4;
    return has_negatives ? dynamic8 : dynamic8_unsigned;
}

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
    throw std::invalid_argument(std::string(text) + ": " + why);
}

} // namespace

std::string ScaledFormat::name() const {
    return std::string(element.name) + (block == 0 ? ":tensor" : ":" + std::to_string(block));
}

std::optional<ScaledFormat> scaled_format(std::string_view text, bool has_negatives) {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) {
        if (std::ranges::find(code_maps.begin() + 1, code_maps.end(), text, &CodeMapRow::name) != code_maps.end())
            refuse(text, "needs blocks, such as " + std::string(text) + ":256");
        return std::nullopt;
    }
    const std::string_view name = text.substr(0, colon), scale = text.substr(colon + 1);
    ScaledFormat result{.element = {}, .has_negatives = has_negatives};
    if (scale != "tensor") {
        const auto [end, error] = std::from_chars(scale.data(), scale.data() + scale.size(), result.block);
        if (error != std::errc() || end != scale.data() + scale.size() || result.block < 2 || result.block > 65'536)
            refuse(text, "expected FORMAT:tensor, or FORMAT:N with a scale for each N elements, 2 to 65536");
    }
    const auto* const row = std::ranges::find(code_maps.begin() + 1, code_maps.end(), name, &CodeMapRow::name);
    if (row != code_maps.end()) {
        if (result.block == 0)
            refuse(text, "a table of numbers up to 1 needs blocks, such as " + std::string(name) + ":256");
        result.map = static_cast<CodeMap>(row - code_maps.begin());
        result.element = detail::integer_format(row->name, row->bits, 0, Negatives::twos_complement);
        return result;
    }
    result.element = format(name);
    if (result.element.is_scale()) refuse(text, "a scale format holds no tensor");
    if (result.block != 0 && result.element.bits() > 8)
        refuse(text, "a scale for each block is for formats of 8 bits or less, and for dynamic8, bnb8 and dynamic4");
    return result;
}

std::span<const float> code_numbers(const ScaledFormat& format, bool contract) {
    if (format.map == CodeMap::none) return {};
    const Numbers& all = numbers_of(format.map, format.has_negatives)[contract ? 1 : 0];
    return std::span(all).first(std::size_t{1} << row_of(format.map).bits);
}

} // namespace amp
