#include <ampscope/sim/program/scaling_recipe.h>

#include <algorithm>
#include <iterator>

namespace amp {

namespace {

constexpr FormatSpec e5m2 = format("e5m2");

/// An operand with the blocks of a row of block_formats; the columns of a block lie along the axis that products sum
/// over.
constexpr OperandScaling in_blocks(std::string_view name) {
    const BlockSpec& b = block_format(name);
    return {.element = b.element, .along = b.columns, .across = b.rows, .rule = b.rule};
}
constexpr OperandScaling in_blocks(std::string_view name, ScaleRule rule) {
    OperandScaling operand = in_blocks(name);
    operand.rule = rule;
    return operand;
}

constexpr OperandScaling square(OperandScaling operand) {
    operand.across = operand.along;
    return operand;
}
/// Where it is rounded stochastically, then by hardware's cvt.rs, which takes 8 random bits for an E2M1 number (PTX ISA
/// 9.0, cvt).
constexpr OperandScaling of_cvt_rs(OperandScaling operand) {
    operand.random_bits = 8;
    return operand;
}
constexpr OperandScaling stochastic(OperandScaling operand) {
    operand.rounding = Rounding::stochastic;
    return of_cvt_rs(operand);
}

/// Quartet II's casts, ties away. Backward reads what forward has cast, and casts it again.
constexpr OperandScaling quartet(ScaleRule rule, bool again = false) {
    OperandScaling operand = in_blocks("nvfp4", rule);
    operand.rounding = Rounding::nearest_away;
    operand.requantizes = again;
    return operand;
}

/// What options make of it is any block format.
constexpr OperandScaling general() {
    OperandScaling operand = in_blocks("mxfp8", ScaleRule::amax);
    operand.scale = format("e8m0");
    operand.upper.level = UpperLevel::none;
    return operand;
}

constexpr ScalingRecipe recipe_table[] = {
    {.name = "te-delayed",
     .precision = "fp8-delayed",
     .source = "TransformerEngine DelayedScaling, HYBRID, 1,024 steps of history, their largest",
     .shapes = ShapeRule::any,
     .gradient = {.element = e5m2},
     .history = 1024},
    {.name = "ms-amp",
     .precision = "ms-amp",
     .source = "MS-AMP's layers: power-of-two scales from 16 steps, the first from the tensor itself",
     .shapes = ShapeRule::any,
     .gradient = {.element = e5m2},
     .history = 16,
     .ms_amp = true},
    {.name = "te-current",
     .precision = "fp8-current",
     .source = "TransformerEngine Float8CurrentScaling, HYBRID: a scale a tensor",
     .shapes = ShapeRule::any,
     .gradient = {.element = e5m2}},
    {.name = "te-block",
     .precision = "fp8-block",
     .source = "TransformerEngine Float8BlockScaling: 1 x 128, weights 128 x 128, power-of-two scales",
     .shapes = ShapeRule::transformer_engine,
     .input = in_blocks("fp8-1x128"),
     .weight = in_blocks("fp8-128x128"),
     .gradient = in_blocks("fp8-1x128")},
    {.name = "te-mxfp8",
     .precision = "mxfp8",
     .source = "TransformerEngine MXFP8BlockScaling: E4M3 in blocks of 32, scales rounded up",
     .shapes = ShapeRule::transformer_engine,
     .input = in_blocks("mxfp8", ScaleRule::mx_te),
     .weight = in_blocks("mxfp8", ScaleRule::mx_te),
     .gradient = in_blocks("mxfp8", ScaleRule::mx_te)},
    {.name = "ocp-mxfp8",
     .source = "OCP MX 1.0 scales (torchao's FLOOR) in the same blocks",
     .shapes = ShapeRule::ocp,
     .input = in_blocks("mxfp8"),
     .weight = in_blocks("mxfp8"),
     .gradient = in_blocks("mxfp8")},
    {.name = "te-nvfp4",
     .precision = "nvfp4",
     .source = "TransformerEngine NVFP4BlockScaling: E2M1, weights 16 x 16, gradients rounded stochastically, "
               "Hadamard transforms for weights' gradients",
     .shapes = ShapeRule::transformer_engine,
     .input = in_blocks("nvfp4"),
     .weight = square(in_blocks("nvfp4")),
     .gradient = stochastic(in_blocks("nvfp4")),
     .rotation = find_row("rotation", rotations, "te")},
    {.name = "nvfp4-plain",
     .precision = "nvfp4-plain",
     .source = "NVFP4 without what recipes add: 1 x 16 blocks, rounded to the nearest, nothing rotated",
     .shapes = ShapeRule::transformer_engine,
     .input = of_cvt_rs(in_blocks("nvfp4")),
     .weight = of_cvt_rs(in_blocks("nvfp4")),
     .gradient = of_cvt_rs(in_blocks("nvfp4"))},
    {.name = "general",
     .precision = "general",
     .source =
         "none: any format of elements and of scales, block and upper scale (options format, scale, block, upper); "
         "as it stands E4M3 in blocks of 32 with E8M0 scales, rounded to nearest",
     .shapes = ShapeRule::any,
     .input = general(),
     .weight = general(),
     .gradient = general()},
    {.name = "quartet2",
     .precision = "quartet2",
     .source = "Quartet II: NVFP4 forward; backward MS-EDEN, both products rotated, weights and inputs cast again",
     .shapes = ShapeRule::any,
     .input = quartet(ScaleRule::quartet),
     .weight = quartet(ScaleRule::quartet),
     .gradient = quartet(ScaleRule::ms_eden),
     .input_in_backward = quartet(ScaleRule::ms_eden, true),
     .weight_in_backward = quartet(ScaleRule::ms_eden, true),
     .rotation = find_row("rotation", rotations, "quartet")},
    {.name = "te-mxfp4",
     .precision = "mxfp4",
     .source = "the MXFP4 of OCP MX 1.0 trained as TransformerEngine trains NVFP4: weights 32 x 32, scales rounded up, "
               "gradients rounded stochastically, Hadamard transforms for weights' gradients",
     .shapes = ShapeRule::transformer_engine,
     .input = in_blocks("mxfp4", ScaleRule::mx_te),
     .weight = square(in_blocks("mxfp4", ScaleRule::mx_te)),
     .gradient = stochastic(in_blocks("mxfp4", ScaleRule::mx_te)),
     .rotation = find_row("rotation", rotations, "te")},
    {.name = "te-mxfp6",
     .precision = "mxfp6",
     .source = "the MXFP6 of OCP MX 1.0 trained as TransformerEngine trains MXFP8; gradients in E3M2",
     .shapes = ShapeRule::transformer_engine,
     .input = in_blocks("mxfp6", ScaleRule::mx_te),
     .weight = in_blocks("mxfp6", ScaleRule::mx_te),
     .gradient = in_blocks("mxfp6-e3m2", ScaleRule::mx_te)},
    {.name = "deepseek",
     .precision = "deepseek",
     .source = "DeepSeek-V3: E4M3, 1 x 128, weights 128 x 128, x / (amax / 448)",
     .shapes = ShapeRule::deepseek,
     .input = in_blocks("fp8-1x128", ScaleRule::deepseek),
     .weight = in_blocks("fp8-128x128", ScaleRule::deepseek),
     .gradient = in_blocks("fp8-1x128", ScaleRule::deepseek)},
    {.name = "int8",
     .precision = "int8",
     .source = "W8A8: symmetric INT8, a scale a token and a row of the weight, from the tensor itself (the baseline of "
               "LLM.int8 and SmoothQuant); backward reads unscaled tensors",
     .shapes = ShapeRule::any,
     .input = in_blocks("int8-row"),
     .weight = in_blocks("int8-row"),
     .gradient = in_blocks("int8-row"),
     .backward = BackwardOperands::high_precision},
    {.name = "int4",
     .precision = "int4",
     .source = "W4A8: weights INT4 with zero points in groups of 128 (GPTQ, AWQ), else as int8",
     .shapes = ShapeRule::any,
     .input = in_blocks("int8-row"),
     .weight = in_blocks("int4-affine-1x128"),
     .gradient = in_blocks("int8-row"),
     .backward = BackwardOperands::high_precision},
    {.name = "torchao-tensorwise",
     .source = "torchao Float8LinearConfig, tensorwise: gradients in E5M2",
     .shapes = ShapeRule::any,
     .input = {.rule = ScaleRule::torchao},
     .weight = {.rule = ScaleRule::torchao},
     .gradient = {.element = e5m2, .rule = ScaleRule::torchao}},
    {.name = "torchao-rowwise",
     .source = "torchao rowwise: E4M3, a power-of-two scale a row or column",
     .shapes = ShapeRule::any,
     .input = in_blocks("fp8-row"),
     .weight = in_blocks("fp8-row"),
     .gradient = in_blocks("fp8-row")},
    {.name = "torchao-rowwise-gw-hp",
     .source =
         "torchao rowwise_with_gw_hp: weights' gradients from unscaled tensors, weights a scale a tensor backward",
     .shapes = ShapeRule::any,
     .input = in_blocks("fp8-row"),
     .weight = in_blocks("fp8-row"),
     .gradient = in_blocks("fp8-row"),
     .weight_in_backward = OperandScaling{.rule = ScaleRule::torchao_pow2},
     .backward = BackwardOperands::weight_gradient_unscaled},
};

} // namespace

bool ScalingRecipe::leaves_out(OperandRole role, std::int64_t rows, std::int64_t columns) const {
    if (shapes == ShapeRule::any || shapes == ShapeRule::ocp || gradient.along == 0) return false;
    const bool columns_fill = columns % gradient.along == 0, rows_fill = rows % gradient.along == 0;
    if (shapes == ShapeRule::deepseek) return role != OperandRole::weight && !columns_fill;
    return !columns_fill || !rows_fill;
}

std::span<const ScalingRecipe> scaling_recipes() { return recipe_table; }

const ScalingRecipe* recipe_of_precision(std::string_view precision) {
    const auto row = std::ranges::find(recipe_table, precision, &ScalingRecipe::precision);
    return row == std::end(recipe_table) || precision.empty() ? nullptr : &*row;
}

const ScalingRecipe& scaling_recipe(std::string_view name) { return find_row("scaling recipe", recipe_table, name); }

} // namespace amp
