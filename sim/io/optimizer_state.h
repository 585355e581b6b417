// The names that frameworks give the state of an optimizer in checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amp {

/// What a tensor of an optimizer's state is to its parameter.
enum class StateRole : std::uint8_t { m, v, step, master, other };

/// A tensor of an optimizer's state: "optim.state.layers.0.weight.exp_avg" is m of "layers.0.weight" below "optim.".
struct StateName {
    std::string owner;     ///< what stands before "state.": the optimizer's own name in the checkpoint
    std::string parameter; ///< a name, or a number where the optimizer counts its parameters
    StateRole role = StateRole::other;
};

/// The parts of such a name; std::nullopt for the name of another tensor.
std::optional<StateName> state_name(std::string_view tensor);

} // namespace amp
