#include <ampscope/sim/io/dump_path.h>

#include <ampscope/sim/base/number.h>

#include <array>

namespace amp {

namespace {

struct DumpedTensor {
    std::string_view name;
    TensorKind kind;
};

constexpr std::array dumped_tensors = {
    DumpedTensor{"activation", TensorKind::activation},        // fprop's input, with weight
    DumpedTensor{"weight", TensorKind::weight},                //
    DumpedTensor{"output", TensorKind::activation},            // what fprop gives
    DumpedTensor{"gradient", TensorKind::activation_gradient}, // of the output: an input of the products below
    DumpedTensor{"dgrad", TensorKind::activation_gradient},    // gradient * weight: of the input
    DumpedTensor{"wgrad", TensorKind::weight_gradient},        // gradient^T * activation
};

/// The number that follows `prefix`, and nothing else.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view prefix) {
    if (!text.starts_with(prefix) || text.size() == prefix.size() || text[prefix.size()] == '-') return std::nullopt;
    return number_of<std::int64_t>(text.substr(prefix.size()));
}

} // namespace

std::optional<DumpPath> dump_path(const std::filesystem::path& file) {
    std::error_code none;
    const std::filesystem::path folder = std::filesystem::absolute(file, none).lexically_normal().parent_path();
    const std::string rank = folder.parent_path().filename().string(), stem = file.stem().string();
    const auto step = number_after(folder.filename().string(), "iter_");
    const auto number = number_after(rank, "rank_");
    if (file.extension() != ".pt" || !step || !number) return std::nullopt;
    for (const DumpedTensor& tensor : dumped_tensors) {
        const std::string suffix = "_" + std::string(tensor.name);
        if (stem.size() <= suffix.size() || !stem.ends_with(suffix)) continue;
        return DumpPath{.step = *step,
                        .rank = rank,
                        .rank_number = *number,
                        .root = folder.parent_path().parent_path(),
                        .layer = stem.substr(0, stem.size() - suffix.size()),
                        .stem = stem,
                        .kind = tensor.kind};
    }
    return std::nullopt;
}

} // namespace amp
