#include <ampscope/sim/findings/detail/checkpoint_weights.h>

#include <ampscope/sim/io/optimizer_state.h>

#include <algorithm>

namespace amp::detail {

namespace {

namespace fs = std::filesystem;

bool is_folder_of_shards(const fs::path& file) {
    std::error_code none;
    return names_files(file) || fs::is_directory(file, none);
}

fs::path folder_of(const fs::path& file) {
    std::error_code none;
    return fs::is_directory(file, none) ? file : file.parent_path();
}

/// The level of a file beside the one that holds the state; none if it is another checkpoint's.
std::optional<std::size_t> level_of(const fs::path& file, const fs::path& state) {
    if (file == state) return 0;
    const fs::path own = folder_of(file), other = folder_of(state);
    if (own == other) return 1;
    const bool are_shards = is_folder_of_shards(file) && is_folder_of_shards(state);
    return are_shards && own.parent_path() == other.parent_path() ? std::optional<std::size_t>(2) : std::nullopt;
}

/// Whether layers keep a tensor of that name beside their parameters.
bool is_buffer(const std::string& name) {
    return name.ends_with("running_mean") || name.ends_with("running_var") || name.ends_with("num_batches_tracked");
}

} // namespace

CheckpointWeights::CheckpointWeights(const std::vector<RecordedTensor>& tensors, const fs::path& state)
    : keeps_order_(state.extension() == ".pt" || state.extension() == ".pth") {
    constexpr int most_words = 4; // "app.state_dict.model.module."
    std::map<fs::path, std::optional<std::size_t>> known_levels;
    for (const RecordedTensor& t : tensors) {
        if (state_name(t.entry.name) || is_setting(t.entry.name)) continue;
        const auto [known, is_new] = known_levels.try_emplace(t.file);
        if (is_new) known->second = level_of(t.file, state);
        if (!known->second) continue;
        Level& level = levels_[*known->second];
        level.all.push_back(&t);
        std::size_t at = 0;
        for (int words = 0; words <= most_words && at < t.entry.name.size(); ++words) {
            level.named[t.entry.name.substr(at)].push_back(&t);
            const std::size_t dot = t.entry.name.find('.', at);
            if (dot == std::string::npos) break;
            at = dot + 1;
        }
    }
}

bool CheckpointWeights::empty() const {
    return std::ranges::all_of(levels_, [](const Level& level) { return level.all.empty(); });
}

const RecordedTensor* CheckpointWeights::of(const std::string& parameter, std::uint64_t count) const {
    for (const Level& level : levels_) {
        const auto found = level.named.find(parameter);
        if (found == level.named.end()) continue;
        Tensors fitting = found->second;
        std::erase_if(fitting, [&](const RecordedTensor* t) { return t->entry.count != count; });
        if (fitting.empty()) continue;
        if (fitting.size() == 1) return fitting.front();
        for (const std::string& name : {parameter, "model." + parameter}) { // beside an average of the weights, say
            const auto is_named = [&](const RecordedTensor* t) { return t->entry.name == name; };
            if (std::ranges::count_if(fitting, is_named) == 1) return *std::ranges::find_if(fitting, is_named);
        }
        return nullptr;
    }
    return nullptr;
}

std::map<std::size_t, const RecordedTensor*>
CheckpointWeights::in_order_of_file(const std::map<std::size_t, Shape>& shapes) const {
    Tensors parameters = levels_[0].all;
    std::erase_if(parameters, [](const RecordedTensor* t) { return is_buffer(t->entry.name); });
    if (parameters.size() != shapes.size() || shapes.rbegin()->first + 1 != shapes.size()) return {};
    std::map<std::size_t, const RecordedTensor*> weights;
    for (const auto& [number, shape] : shapes) {
        if (parameters[number]->entry.shape != shape) return {};
        weights[number] = parameters[number];
    }
    return weights;
}

std::map<std::size_t, const RecordedTensor*> CheckpointWeights::of_numbers(const std::map<std::size_t, Shape>& shapes,
                                                                           bool in_order) const {
    if (shapes.empty()) return {};
    if (in_order && keeps_order_)
        if (auto weights = in_order_of_file(shapes); !weights.empty()) return weights;
    const auto nearest = std::ranges::find_if(levels_, [](const Level& level) { return !level.all.empty(); });
    if (nearest == levels_.end()) return {};
    std::map<Shape, Tensors> by_shape;
    for (const RecordedTensor* t : nearest->all)
        if (!is_buffer(t->entry.name)) by_shape[t->entry.shape].push_back(t);
    std::map<std::size_t, const RecordedTensor*> weights;
    for (const auto& [number, shape] : shapes) {
        const auto same = by_shape.find(shape);
        if (same == by_shape.end() || same->second.size() != 1) return {};
        weights[number] = same->second.front();
        by_shape.erase(same); // another parameter of this shape finds none
    }
    return weights;
}

} // namespace amp::detail
