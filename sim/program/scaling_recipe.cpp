#include <ampscope/sim/program/scaling_recipe.h>

namespace amp {

namespace {

constexpr FormatSpec e5m2 = format("e5m2"), e2m1 = format("e2m1");

constexpr ScalingRecipe rows[] = {
    {.name = "te-delayed",
     .source = "TransformerEngine DelayedScaling, HYBRID, 1,024 steps of history, their largest",
     .gradient = {.element = e5m2},
     .history = 1024},
    {.name = "ms-amp",
     .source = "MS-AMP's layers: power-of-two scales from 16 steps, the first from the tensor itself",
     .gradient = {.element = e5m2},
     .history = 16,
     .ms_amp = true},
    {.name = "te-current",
     .source = "TransformerEngine Float8CurrentScaling, HYBRID: a scale a tensor",
     .gradient = {.element = e5m2}},
    {.name = "te-block",
     .source = "TransformerEngine Float8BlockScaling: 1 x 128, weights 128 x 128, power-of-two scales",
     .input = {.along = 128, .across = 1, .rule = ScaleRule::te_pow2},
     .weight = {.along = 128, .across = 128, .rule = ScaleRule::te_pow2},
     .gradient = {.along = 128, .across = 1, .rule = ScaleRule::te_pow2}},
    {.name = "te-mxfp8",
     .source = "TransformerEngine MXFP8BlockScaling: E4M3 in blocks of 32, scales rounded up",
     .input = {.along = 32, .across = 1, .rule = ScaleRule::mx_te},
     .weight = {.along = 32, .across = 1, .rule = ScaleRule::mx_te},
     .gradient = {.along = 32, .across = 1, .rule = ScaleRule::mx_te}},
    {.name = "ocp-mxfp8",
     .source = "OCP MX 1.0 scales (torchao's FLOOR) in the same blocks",
     .input = {.along = 32, .across = 1, .rule = ScaleRule::mx_floor},
     .weight = {.along = 32, .across = 1, .rule = ScaleRule::mx_floor},
     .gradient = {.along = 32, .across = 1, .rule = ScaleRule::mx_floor}},
    {.name = "te-nvfp4",
     .source = "TransformerEngine NVFP4BlockScaling: E2M1, weights 16 x 16, gradients rounded stochastically, "
               "Hadamard transforms for weights' gradients",
     .input = {.element = e2m1, .along = 16, .across = 1, .rule = ScaleRule::nvfp4, .hadamard = true},
     .weight = {.element = e2m1, .along = 16, .across = 16, .rule = ScaleRule::nvfp4},
     .gradient = {.element = e2m1,
                  .along = 16,
                  .across = 1,
                  .rule = ScaleRule::nvfp4,
                  .rounding = Rounding::stochastic,
                  .hadamard = true}},
    {.name = "deepseek",
     .source = "DeepSeek-V3: E4M3, 1 x 128, weights 128 x 128, x / (amax / 448)",
     .input = {.along = 128, .across = 1, .rule = ScaleRule::deepseek},
     .weight = {.along = 128, .across = 128, .rule = ScaleRule::deepseek},
     .gradient = {.along = 128, .across = 1, .rule = ScaleRule::deepseek}},
    {.name = "torchao-tensorwise",
     .source = "torchao Float8LinearConfig, tensorwise: gradients in E5M2",
     .input = {.rule = ScaleRule::torchao},
     .weight = {.rule = ScaleRule::torchao},
     .gradient = {.element = e5m2, .rule = ScaleRule::torchao}},
    {.name = "torchao-rowwise",
     .source = "torchao rowwise: E4M3, a power-of-two scale a row or column",
     .input = {.across = 1, .rule = ScaleRule::torchao_pow2},
     .weight = {.across = 1, .rule = ScaleRule::torchao_pow2},
     .gradient = {.across = 1, .rule = ScaleRule::torchao_pow2}},
    {.name = "torchao-rowwise-gw-hp",
     .source =
         "torchao rowwise_with_gw_hp: weights' gradients from unscaled tensors, weights a scale a tensor backward",
     .input = {.across = 1, .rule = ScaleRule::torchao_pow2},
     .weight = {.across = 1, .rule = ScaleRule::torchao_pow2},
     .gradient = {.across = 1, .rule = ScaleRule::torchao_pow2},
     .weight_in_backward = OperandScaling{.rule = ScaleRule::torchao_pow2},
     .weight_gradient_unscaled = true},
};

} // namespace

std::span<const ScalingRecipe> scaling_recipes() { return rows; }

const ScalingRecipe& scaling_recipe(std::string_view name) { return find_row("scaling recipe", rows, name); }

} // namespace amp
