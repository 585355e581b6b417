#include <ampscope/sim/findings/histogram_recipe.h>

#include <ampscope/formats/environment.h>
#include <ampscope/formats/instruction_set.h>
#include <ampscope/sim/backend/kernels/quantize.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace amp {

namespace {

/// The random Hadamard transform of an operand: whole groups, each sum in double, rounded once. Drawn signs are those
/// of seed 0, stream 0, step 0.
GroupTransform hadamard(const Rotation& of, const FormatSpec& computed, bool along_columns) {
    kernels::Rotation rotation{.size = of.size, .factor = kernels::Rotation::factor_of(computed, of.size)};
    if (of.draws_signs) rotation.signs = RandomKey{}.word(0);
    const FormatSpec result = of.wide ? fp32_format() : computed;
    const std::vector<double> factors = kernels::factors_of(rotation);
    return {.rows = along_columns ? 1 : of.size,
            .columns = along_columns ? of.size : 1,
            .apply = [=](std::span<float> matrix, std::int64_t columns) {
                const auto rows = static_cast<std::int64_t>(matrix.size()) / columns;
                std::vector<double> wide(matrix.size());
                dispatch<kernels::RotateKernel>(best_instruction_set(), factors.data(), rotation.size,
                                                kernels::MatrixOf{matrix.data(), rows, columns}, std::int64_t{0}, rows,
                                                along_columns, wide.data());
                quantize(result, wide, matrix);
            }};
}

/// The format in which a tensor is computed with: its own, or FP32 if that is no format of the table.
FormatSpec computed_format(DType dtype) {
    const DTypeInfo& type = info(dtype);
    return type.kind == NumberKind::format ? format(type.format) : fp32_format();
}

/// What TransformerEngine, torchao, DeepSeek and OCP do with blocks that a tensor does not fill.
std::string note_on_shapes(const ScalingRecipe& recipe) {
    switch (recipe.shapes) {
    case ShapeRule::any:
        return recipe.input.along == 0 && recipe.weight.along == 0
                   ? "A scale for the whole tensor or row: any shape, tensors of one dimension too."
                   : "Any shape, tensors of one dimension too: the last block of a line has what is left.";
    case ShapeRule::transformer_engine:
        return fmt::format(
            "TransformerEngine quantizes no tensor of one dimension, and none whose last axis or product "
            "of the other axes {} does not divide (is_quantizable).",
            recipe.gradient.along);
    case ShapeRule::deepseek:
        return fmt::format("DeepSeek's kernels refuse activations and gradients whose last axis {} does not divide; "
                           "weights are filled up with zeros.",
                           recipe.gradient.along);
    case ShapeRule::ocp:
        return "OCP MX 1.0 leaves the layout of blocks to the implementation; torchao refuses a tensor whose last axis "
               "the block does not divide.";
    }
    return "";
}

std::string note_on_nonfinite(const OperandScaling& operand) {
    const std::string_view nan = operand.element.has_nan() ? "stays NaN" : "becomes the largest number";
    switch (operand.rule) {
    case ScaleRule::te:
    case ScaleRule::te_pow2:
    case ScaleRule::amax:
        return fmt::format("NaN is left out of amax and {}; a block with an infinity has the scale 1, and infinities "
                           "saturate.",
                           nan);
    case ScaleRule::torchao:
    case ScaleRule::torchao_pow2:
        return "A block with NaN has the scale NaN, one with an infinity the scale 0: all of either becomes NaN.";
    case ScaleRule::deepseek:
    case ScaleRule::deepseek_pow2:
        return fmt::format("NaN is left out of amax and {}; a block with an infinity is divided by it and becomes NaN.",
                           nan);
    case ScaleRule::deepgemm:
        return "A block with NaN has the scale NaN, one with an infinity an infinite scale: all of either becomes NaN.";
    case ScaleRule::deepgemm_pow2:
        return fmt::format("A block with NaN or an infinity has the scale 2^127, so that all but the largest numbers "
                           "become zero; NaN {}.",
                           nan);
    case ScaleRule::mx_te:
        return fmt::format("NaN is left out of amax and {}; a block with an infinity has the scale 2^127, so that all "
                           "but the largest numbers become zero.",
                           nan);
    case ScaleRule::mx_floor:
    case ScaleRule::mx_even:
    case ScaleRule::mx_ceil:
    case ScaleRule::mx_rceil: return "A block with NaN or an infinity has the scale NaN: all of it becomes NaN.";
    case ScaleRule::nvfp4:
        return "NaN is left out of amax; an infinity makes the tensor's scale 1, and its block's scale E4M3's largest; "
               "as numbers are read with the amax as a factor, none stays finite.";
    case ScaleRule::affine:
        return "NaN is left out of the range and becomes its largest number; a block with an infinity has the scale 1.";
    case ScaleRule::quartet:
    case ScaleRule::ms_eden:
    case ScaleRule::ms_amp:
    case ScaleRule::one: break;
    }
    return fmt::format("NaN {}, and infinities saturate.", nan);
}

std::string note_on_delay(const ScalingRecipe& recipe) {
    return fmt::format(
        "Delayed scaling: the scale of a recorded step follows from the {} amax of up to {} recorded steps before it; "
        "recorded loss scales are divided out of all of them. The first step's scale is {}. NaN is left out of amax; "
        "after an infinite amax {}.",
        recipe.most_recent ? "newest" : "largest", recipe.history, recipe.ms_amp ? "that of its own amax" : "1",
        recipe.ms_amp ? "the scale becomes its own inverse" : "the scale stays as it was");
}

/// Throws FileError for a tensor of so many blocks that they do not fit memory.
void check_blocks(const RecordedTensor& tensor, const ScaledCast& cast) {
    constexpr std::int64_t most = 1 << 23;
    const std::uint64_t last = tensor.entry.shape.empty() ? 1 : tensor.entry.shape.back();
    if (tensor.entry.count == 0) return;
    const auto columns = static_cast<std::int64_t>(last), rows = static_cast<std::int64_t>(tensor.entry.count / last);
    if (const BlockGrid grid = cast.scaling.grid(rows, columns); grid.down > most / grid.across)
        throw FileError(tensor.file,
                        fmt::format("tensor '{}': more than {} blocks are too many to write; leave out --blocks",
                                    tensor.entry.name, most));
}

/// The row of that name; for the name of a precision the error says which row that precision trains with.
const ScalingRecipe& recipe_of(std::string_view name) {
    const bool known = std::ranges::find(scaling_recipes(), name, &ScalingRecipe::name) != scaling_recipes().end();
    if (const ScalingRecipe* meant = recipe_of_precision(name); meant != nullptr && !known)
        throw std::invalid_argument(fmt::format("'{0}' is a precision, not a scaling recipe; did you mean {1}, the "
                                                "recipe that {0} trains with?",
                                                name, meant->name));
    return scaling_recipe(name);
}

} // namespace

std::optional<OperandRole> RecipeChoice::role_of(TensorKind kind) const {
    if (role) return role;
    switch (kind) {
    case TensorKind::weight: return OperandRole::weight;
    case TensorKind::activation: return OperandRole::input;
    case TensorKind::weight_gradient:
    case TensorKind::activation_gradient: return OperandRole::gradient;
    case TensorKind::state: break;
    }
    return std::nullopt;
}

std::optional<OperandScaling> RecipeChoice::operand(OperandRole of) const {
    const bool column = orientation == BlockOrientation::column;
    // The product that sums over the rows of inputs and gradients is that for the weight's gradient.
    if (column && recipe.reads_unscaled(of != OperandRole::weight)) return std::nullopt;
    if (of == OperandRole::gradient && recipe.reads_unscaled(column)) return std::nullopt;
    OperandScaling scaling = recipe.operand(of, column);
    if (orientation == BlockOrientation::square) scaling.across = scaling.along;
    return scaling;
}

TensorScaling tensor_scaling(std::string_view text) {
    const auto has_name = [](std::string_view name) { return [name](const auto& row) { return row.name == name; }; };
    if (const auto row = std::ranges::find_if(block_formats, has_name(text)); row != block_formats.end())
        return {.blocks = {.element = row->element, .rows = row->rows, .columns = row->columns, .rule = row->rule}};
    if (std::ranges::none_of(scaling_recipes(), has_name(text.substr(0, text.find(',')))))
        throw_unknown("block format or recipe", text,
                      names_of_rows(block_formats) + ", " + names_of_rows(scaling_recipes()));
    const RecipeChoice choice = recipe_choice(text);
    const auto refuse = [&](std::string_view why) {
        throw std::invalid_argument(fmt::format("{}: {}: the tensor alone does not say what becomes of it", text, why));
    };
    const std::optional<OperandScaling> operand = choice.operand(choice.role.value_or(OperandRole::input));
    if (!operand) refuse("the recipe does not scale that operand");
    if (choice.rotates(choice.role.value_or(OperandRole::input))) refuse("a Hadamard transform comes first");
    if (choice.recipe.delayed()) refuse("scales follow from earlier steps");
    return {.blocks = operand->blocks(choice.orientation == BlockOrientation::column),
            .rounding = operand->rounding,
            .random_bits = operand->random_bits};
}

RecipeChoice recipe_choice(std::string_view text) {
    RecipeChoice choice{.text = std::string(text)};
    choice.recipe = recipe_of(text.substr(0, text.find(',')));
    const auto named = [&](std::string_view word, bool first) {
        if (first) return;
        const auto orientation = std::ranges::find(block_orientation_names, word);
        const auto role = std::ranges::find(operand_role_names, word);
        if (orientation != block_orientation_names.end())
            choice.orientation = static_cast<BlockOrientation>(orientation - block_orientation_names.begin());
        else if (role != operand_role_names.end())
            choice.role = static_cast<OperandRole>(role - operand_role_names.begin());
        else
            throw_unknown("option of a recipe", word,
                          fmt::format("{}, {}; as KEY=VALUE: {}", fmt::join(block_orientation_names, ", "),
                                      fmt::join(operand_role_names, ", "), recipe_options()));
    };
    const auto set = [&](std::string_view key, std::string_view value) {
        try {
            set_option(choice.recipe, key, value);
        } catch (const std::invalid_argument& error) {
            throw std::invalid_argument(fmt::format("{}: {}={}: {}", text, key, value, error.what()));
        }
    };
    read_keys(text, named, set);
    if (text.ends_with(',')) named("", false); // something is missing
    try {
        check_options(choice.recipe);
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(fmt::format("{}: {}", text, error.what()));
    }
    return choice;
}

std::vector<std::string> recipe_notes(const RecipeChoice& choice) {
    const ScalingRecipe& recipe = choice.recipe;
    std::vector<std::string> notes = {note_on_shapes(recipe)};
    if (recipe.reads_unscaled(false) && !choice.role)
        notes.push_back(
            fmt::format("Gradients are read as they are: {},input casts them as if they were inputs.", choice.text));
    notes.push_back(recipe.delayed() ? note_on_delay(recipe) : note_on_nonfinite(recipe.gradient));
    return notes;
}

void RecipeEffect::merge(const RecipeEffect& later, std::size_t most) {
    const auto agree = [&](auto& mine, const auto& other) { // a tensor without elements has no blocks
        if (statistics.elements == 0) mine = other;
        else if (later.statistics.elements > 0 && mine != other) mine.reset();
    };
    agree(role, later.role);
    agree(element, later.element);
    agree(block, later.block);
    tensors += later.tensors;
    unscaled += later.unscaled;
    statistics.merge(later.statistics);
    std::vector<RecordedBlock> both;
    std::ranges::merge(worst, later.worst, std::back_inserter(both), [](const ScaledBlock& a, const ScaledBlock& b) {
        const double x = a.relative_noise(), y = b.relative_noise();
        return x != y ? x > y : a.noise > b.noise; // of equal blocks the earlier comes first
    });
    worst = std::move(both);
    if (worst.size() > most) worst.resize(most);
}

std::optional<ScaledCast> RecipePass::cast_of(const RecordedTensor& tensor) const {
    const std::optional<OperandRole> role = choice_.role_of(tensor.kind);
    const std::optional<OperandScaling> operand = role ? choice_.operand(*role) : std::nullopt;
    if (!operand) return std::nullopt;
    ScaledCast cast{.scaling = operand->blocks(choice_.orientation == BlockOrientation::column),
                    .rounding = operand->rounding,
                    .random_bits = operand->random_bits};
    if (choice_.rotates(*role))
        cast.transform = hadamard(choice_.recipe.rotation, computed_format(tensor.entry.dtype),
                                  choice_.orientation != BlockOrientation::column);
    if (!can_scale(tensor.entry, cast)) return std::nullopt;
    return cast;
}

int RecipePass::passes(const RecordedTensor& tensor) const {
    const std::optional<ScaledCast> cast = cast_of(tensor);
    return !cast ? 0 : choice_.recipe.delayed() ? 2 : passes_over(tensor.entry, *cast);
}

RecipeEffect RecipePass::measure(const TensorFile& file, const RecordedTensor& tensor, double recorded_scale,
                                 const ScaledOptions& options, const Progress& progress) {
    const FloatEnvironment environment;
    RecipeEffect effect;
    std::optional<ScaledCast> cast = cast_of(tensor);
    if (!cast) {
        effect.unscaled = 1;
        return effect;
    }
    cast->recorded_scale = recorded_scale;
    if (options.blocks) check_blocks(tensor, *cast);
    const ScalingRecipe& recipe = choice_.recipe;
    if (recipe.delayed()) {
        const op::DelayedRule rule{.max = decode(cast->scaling.element, cast->scaling.element.max_code()),
                                   .margin = recipe.margin,
                                   .ms_amp = recipe.ms_amp};
        History& history = histories_[{tensor.file.parent_path(), tensor.entry.name}];
        history.amax.resize(static_cast<std::size_t>(recipe.history));
        const float amax = scaled_amax(file, tensor.index, *cast, options.threads, progress);
        cast->given = kernels::delayed_scale(rule, amax, true, history.amax.data(), recipe.history, history.scale);
        kernels::update_scale(rule, recipe.most_recent, history.amax.data(), recipe.history, history.scale);
    }
    ScaledResult result = measure_scaled(file, tensor.index, *cast, options, progress);
    effect.tensors = 1;
    effect.role = choice_.role_of(tensor.kind);
    effect.element = cast->scaling.element.name;
    if (tensor.entry.count > 0) effect.block = {result.height, result.width};
    effect.grid = {result.down, result.across};
    effect.statistics = std::move(result.statistics);
    effect.blocks = std::move(result.blocks);
    for (const ScaledBlock& block : result.worst) effect.worst.push_back({block, tensor.entry.name, tensor.step});
    return effect;
}

} // namespace amp
