// What-if by recipe: what a scaling recipe of the trainer (program/scaling_recipe.h) would do to a recorded tensor.
#pragma once

#include <ampscope/sim/analysis/scaled_cast.h>
#include <ampscope/sim/io/recording.h>
#include <ampscope/sim/program/scaling_recipe.h>

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amp {

/// How blocks lie in a matrix: for a product that sums over its columns, for one that sums over its rows, or squares
/// that serve both.
enum class BlockOrientation : std::uint8_t { row, column, square };
inline constexpr std::array<std::string_view, 3> block_orientation_names = {"row", "column", "2d"};

inline constexpr std::array<std::string_view, 3> operand_role_names = {"input", "weight", "gradient"};
constexpr std::string_view name_of(OperandRole role) { return operand_role_names[static_cast<std::size_t>(role)]; }

/// A recipe that was asked for.
struct RecipeChoice {
    std::string text; ///< the recipe as it was asked for, which is its name in reports
    ScalingRecipe recipe{};
    BlockOrientation orientation = BlockOrientation::row;
    std::optional<OperandRole> role{}; ///< the role of every tensor; none: it follows from the tensor's kind

    /// The role that a tensor of that kind has in the products of a linear layer; none for what is no operand.
    [[nodiscard]] std::optional<OperandRole> role_of(TensorKind kind) const;
    /// How the recipe scales an operand of that role; none where the product that this orientation is for reads the
    /// original tensor. A weight in columns is the operand of backward.
    [[nodiscard]] std::optional<OperandScaling> operand(OperandRole role) const;
    /// Whether a Hadamard transform of the operand comes before that.
    [[nodiscard]] bool rotates(OperandRole of) const {
        return recipe.rotates(of, orientation == BlockOrientation::column);
    }
};

/// Reads "NAME[,OPTION]...": a row of scaling_recipes(), words of block_orientation_names and operand_role_names, and
/// KEY=VALUE for what set_option() changes in the row. Throws std::invalid_argument, listing what is known; for the
/// name of a precision it says which row it trains with.
RecipeChoice recipe_choice(std::string_view text);

/// How a tensor is scaled that is cast by itself.
struct TensorScaling {
    BlockScaling blocks{};
    Rounding rounding = Rounding::nearest_even;
    std::uint8_t random_bits = 32;
};

/// That of a row of block_formats, or of an operand of a recipe that recipe_choice() reads: an input unless it says
/// otherwise. Throws std::invalid_argument for other names, listing them, and for what the tensor alone does not
/// decide: scales from earlier steps, Hadamard transforms, operands that the recipe does not scale.
TensorScaling tensor_scaling(std::string_view text);

/// What a source says of shapes that its blocks do not fill, and of NaN and infinities: lines of at most two sentences.
std::vector<std::string> recipe_notes(const RecipeChoice& choice);

/// One of the worst blocks, and the tensor that it is in.
struct RecordedBlock : ScaledBlock {
    std::string tensor;
    std::optional<std::int64_t> step;
};

/// What a recipe does to a tensor, or to several.
struct RecipeEffect {
    std::uint64_t tensors = 0;  ///< number of tensors that were cast
    std::uint64_t unscaled = 0; ///< number of tensors that the recipe does not cast
    /// Facts of the cast; none where merged tensors differ in them.
    std::optional<OperandRole> role;
    std::optional<std::string> element;                         ///< name of the element format
    std::optional<std::pair<std::int64_t, std::int64_t>> block; ///< height and width of a block
    ScaledStatistics statistics;
    std::vector<RecordedBlock> worst;  ///< worst first; those of equal loss in the order of the recording
    std::vector<ScaledBlock> blocks{}; ///< all blocks in C order, if asked for; empty for merged tensors
    /// How many blocks lie below and beside each other; zeros for merged tensors.
    std::pair<std::int64_t, std::int64_t> grid{};

    /// Adds the effect on later tensors, and keeps the `most` worst blocks.
    void merge(const RecipeEffect& later, std::size_t most);
};

/// Measures recipes on the tensors of a recording. Delayed scaling takes the scale of a step from the amax of the steps
/// before, so tensors must come in the order of their steps; a tensor's history is that of its name in its folder. The
/// first step has the scale that the source begins with: 1 (TransformerEngine), or that of its own amax (MS-AMP).
class RecipePass {
  public:
    explicit RecipePass(const RecipeChoice& choice) : choice_(choice) {}

    /// `file` must have the tensor. Throws FileError.
    RecipeEffect measure(const TensorFile& file, const RecordedTensor& tensor, double recorded_scale,
                         const ScaledOptions& options, const Progress& progress);
    /// The number of passes over that tensor.
    [[nodiscard]] int passes(const RecordedTensor& tensor) const;

  private:
    struct History {
        std::vector<float> amax;
        float scale = 1;
    };
    [[nodiscard]] std::optional<ScaledCast> cast_of(const RecordedTensor& tensor) const;

    const RecipeChoice& choice_;
    std::map<std::pair<std::filesystem::path, std::string>, History> histories_;
};

} // namespace amp
