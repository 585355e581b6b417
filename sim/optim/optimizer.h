// SGD, Adam and AdamW in the order of operations, and with the roundings, of those who wrote them.
//
// A row of optimizers() says whose. The state may be in any formats: where a framework rounds to the type of its
// tensors, a result is rounded to the format of the tensor that it goes into, and what goes into none (the denominator,
// a gradient with weight decay) to the format of the tensor that it began with. Single operations are done in FP32, as
// everywhere.
#pragma once

#include <ampscope/formats/names.h>
#include <ampscope/formats/spec.h>

#include <array>
#include <optional>
#include <span>
#include <string_view>

namespace amp {

enum class OptimizerKind : std::uint8_t { sgd, adam, adamw };
inline constexpr std::array<std::string_view, 3> optimizer_kind_names = {"sgd", "adam", "adamw"};

/// Whose order of operations.
enum class OptimizerOrder : std::uint8_t {
    torch,       ///< torch.optim, foreach=False, 2.x: every operation rounds to its tensor's type; m by lerp
    torch_1,     ///< the same in 1.x: m * beta1, then + (1 - beta1) g
    torch_fused, ///< fused=True on CUDA: FP32 from loading to storing, some of it in FP64; one rounding of each result
    apex,        ///< Apex FusedAdam, TransformerEngine: FP32, bias corrections divide, weight decay inside the update
    ms_amp       ///< MS-AMP's LBAdamW: FP32, betas rounded to it before 1 - beta^t; eps after the division by its root
};

/// What tells one order from another, besides the kernels of those that are fused.
struct OrderFacts {
    std::string_view name;
    bool rounds_each = false;    ///< each operation rounds to its tensor's type, and eps to that of v
    bool lerps = false;          ///< m + (1 - beta1) (g - m) in place of beta1 m + (1 - beta1) g
    bool rounds_scalars = false; ///< a factor is rounded to the type of the tensor that it multiplies
    bool single_betas = false;   ///< the betas are FP32 numbers where 1 - beta^t is computed
};

/// A new order does not compile until it has a case here and in adam() of backend/kernels/update.h.
constexpr OrderFacts facts_of(OptimizerOrder order) {
    switch (order) {
    case OptimizerOrder::torch: return {.name = "torch", .rounds_each = true, .lerps = true};
    case OptimizerOrder::torch_1: return {.name = "torch-1", .rounds_each = true, .rounds_scalars = true};
    case OptimizerOrder::torch_fused: return {.name = "torch-fused"};
    case OptimizerOrder::apex: return {.name = "apex"};
    case OptimizerOrder::ms_amp: return {.name = "ms-amp", .single_betas = true};
    }
    return {};
}

inline constexpr auto optimizer_order_names = names_by([](std::size_t i) { return facts_of(OptimizerOrder(i)).name; });

/// How the new weight gets into its format.
enum class UpdateRounding : std::uint8_t {
    nearest,
    stochastic, ///< the FP32 result rounded by 32 random bits (torchao does so by 16)
    kahan       ///< what rounding loses is kept in a tensor of the weight's format and added the next time (optimi)
};
inline constexpr std::array<std::string_view, 3> update_rounding_names = {"nearest", "stochastic", "kahan"};

/// The defaults are PyTorch's.
struct OptimizerOptions {
    OptimizerKind kind = OptimizerKind::adamw;
    OptimizerOrder order = OptimizerOrder::torch;
    double learning_rate = 1e-3;
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8; ///< Adam
    double weight_decay = 0;            ///< SGD and Adam add it to the gradient, AdamW takes it from the weight
    double momentum = 0, dampening = 0; ///< SGD
    bool nesterov = false;
    bool contract = false; ///< a * b + c with one rounding where the order is torch's, as its AVX2 kernels do

    constexpr bool operator==(const OptimizerOptions&) const = default;
};

/// The formats in which tensors are kept under a power-of-two scale of the tensor, where they are: MS-AMP's
/// ScalingTensor. Their numbers are then FP32, rounded by keep_scaled() (backend/update.h) at the end of a step.
struct ScaledState {
    std::optional<FormatSpec> weight{}, m{}, v{};
    bool operator==(const ScaledState&) const = default;
};

/// Throws std::invalid_argument for options outside their ranges.
void check(const OptimizerOptions& options);

struct OptimizerRow {
    std::string_view name;
    OptimizerOptions options;
    std::string_view source; ///< what it reproduces
};

std::span<const OptimizerRow> optimizers();

/// The row of that name; throws std::invalid_argument that lists the names for any other.
const OptimizerRow& optimizer(std::string_view name);

} // namespace amp
