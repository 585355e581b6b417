// The names that frameworks give the state of an optimizer in checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amp {

/// What a tensor of an optimizer's state is to its parameter; `v_max` is the largest v so far, which AMSGrad keeps.
enum class StateRole : std::uint8_t { m, v, v_max, step, master, other };

/// A tensor of an optimizer's state: "optim.state.layers.0.weight.exp_avg" is m of "layers.0.weight" below "optim.".
struct StateName {
    std::string owner;     ///< what stands before "state.": the optimizer's own name in the checkpoint
    std::string parameter; ///< a name, or a number where the optimizer counts its parameters
    StateRole role = StateRole::other;
};

/// The parts of such a name; std::nullopt for the name of another tensor.
std::optional<StateName> state_name(std::string_view tensor);

/// Whether a tensor of that name is a setting of a parameter group, such as a learning rate that is kept as a tensor:
/// "optim.param_groups.0.lr".
bool is_setting(std::string_view tensor);

} // namespace amp
