// The weights beside an optimizer's state: which of them belong to which parameters.
#pragma once

#include <ampscope/sim/io/recording.h>

#include <array>
#include <map>

namespace amp::detail {

/// The tensors of a checkpoint that may be weights. Those of the file that holds the state come first, then those of
/// its folder; where the state is a folder of shards, those of the folders of shards beside it come last.
class CheckpointWeights {
  public:
    using Shape = std::vector<std::uint64_t>;

    CheckpointWeights(const std::vector<RecordedTensor>& tensors, const std::filesystem::path& state);

    [[nodiscard]] bool empty() const;
    /// The weight of a parameter of that name and size, perhaps with words before it in the checkpoint ("model."); null
    /// if there is none, or if several could be it.
    [[nodiscard]] const RecordedTensor* of(const std::string& parameter, std::uint64_t count) const;
    /// The weights of parameters that have numbers and these shapes, if no other assignment is possible: if each shape
    /// is that of one parameter and of one weight, or, where `in_order` says that the optimizer counts its parameters
    /// in the order of the state dict, if the weights beside the state in its .pt file have these shapes in this order.
    /// Empty otherwise.
    [[nodiscard]] std::map<std::size_t, const RecordedTensor*> of_numbers(const std::map<std::size_t, Shape>& shapes,
                                                                          bool in_order) const;

  private:
    using Tensors = std::vector<const RecordedTensor*>;
    struct Level {
        Tensors all;
        std::map<std::string, Tensors> named; ///< by their names, and by what is left of these without some words
    };
    [[nodiscard]] std::map<std::size_t, const RecordedTensor*>
    in_order_of_file(const std::map<std::size_t, Shape>& shapes) const;

    bool keeps_order_; ///< whether the state's file has its tensors in the order of the state dict
    std::array<Level, 3> levels_;
};

} // namespace amp::detail
