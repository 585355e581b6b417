#include <ampscope/sim/io/optimizer_state.h>

#include <algorithm>
#include <array>

namespace amp {

namespace {

struct RoleName {
    std::string_view name;
    StateRole role;
};

constexpr std::array role_names = {
    RoleName{"exp_avg", StateRole::m},             // torch.optim, Apex, TransformerEngine, Megatron
    RoleName{"exp_avg_sq", StateRole::v},          //
    RoleName{"step", StateRole::step},             //
    RoleName{"max_exp_avg_sq", StateRole::v_max},  // torch.optim, amsgrad
    RoleName{"momentum_buffer", StateRole::other}, // torch.optim.SGD
    RoleName{"master_param", StateRole::master},   // TransformerEngine's FusedAdam
    RoleName{"master", StateRole::master},         //
    RoleName{"fp32_param", StateRole::master},     // Megatron's distributed optimizer
};

const RoleName* role_of(std::string_view name) {
    const auto* row = std::ranges::find(role_names, name, &RoleName::name);
    return row == role_names.end() ? nullptr : row;
}

} // namespace

std::optional<StateName> state_name(std::string_view tensor) {
    constexpr std::string_view state = "state.";
    std::size_t at = 0; // of "state." as a part of its own
    while (!tensor.substr(at).starts_with(state)) {
        const std::size_t dot = tensor.find('.', at);
        if (dot == std::string_view::npos) return std::nullopt;
        at = dot + 1;
    }
    const std::string_view rest = tensor.substr(at + state.size());
    const std::size_t first = rest.find('.'), last = rest.rfind('.');
    if (first == std::string_view::npos) return std::nullopt;
    const std::string owner(tensor.substr(0, at));
    if (const RoleName* row = role_of(rest.substr(last + 1))) // PARAMETER.exp_avg: torch.optim
        return StateName{owner, std::string(rest.substr(0, last)), row->role};
    if (const RoleName* row = role_of(rest.substr(0, first))) // exp_avg.PARAMETER: Megatron
        return StateName{owner, std::string(rest.substr(first + 1)), row->role};
    return std::nullopt;
}

bool is_setting(std::string_view tensor) {
    constexpr std::string_view groups = "param_groups.";
    return tensor.starts_with(groups) || tensor.find("." + std::string(groups)) != std::string_view::npos;
}

} // namespace amp
