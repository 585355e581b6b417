// Names of tensors and layers as people read them: "model.transformer.h.11.mlp.c_fc.weight". What all names begin with
// is said once, above them; a name that has to be shortened keeps the layer's number and its end; layers that differ
// only in their number can share one row.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// What all names begin with, as far as a heading can say it in their place: whole components, such as
/// "model.transformer.". A component with a number stays with the names, and so does the one before a number: "h.11".
/// Empty if there are fewer than two names, or if the prefix is too short to be worth a heading.
std::string shared_prefix(std::span<const std::string> names);

/// Names without what they share. A heading above them says it.
class NamesBelow {
  public:
    explicit NamesBelow(std::span<const std::string> names) : prefix_(shared_prefix(names)) {}
    /// The names of rows, or of what pointers point to: `name` is a member of a row, or a function of one.
    template <class Rows, class Name>
    NamesBelow(const Rows& rows, const Name& name) {
        std::vector<std::string> names;
        for (const auto& row : rows) names.push_back(std::invoke(name, row));
        prefix_ = shared_prefix(names);
    }

    /// One of these names, without the shared prefix.
    [[nodiscard]] std::string of(const std::string& name) const { return name.substr(prefix_.size()); }
    /// "Worst tensors", or "Worst tensors, below model.transformer.".
    [[nodiscard]] std::string heading(std::string_view text) const;

  private:
    std::string prefix_;
};

/// A printable() name shortened to at most `columns` columns. Of its components it keeps those that are numbers, then
/// the last, then the one before a number, then the others from the end on, as far as there is room; an ellipsis stands
/// for what is left out. What does not fit even so, or is no name with components, is clipped().
std::string shortened_name(std::string_view utf8, std::size_t columns);

/// Which numbers of a name to replace.
enum class NameNumbers : unsigned char {
    components, ///< whole components: "h.11.fc1" becomes "h.*.fc1"
    all         ///< every number: "h.11.fc1" becomes "h.*.fc*"
};

/// The name with an asterisk for each of these numbers: equal for layers that differ only in them.
std::string name_pattern(std::string_view name, NameNumbers numbers);

} // namespace amp
