// SGD, Adam, AdamW, Lion, Muon and Adafactor with the order of operations and the roundings of those who implemented
// them.
//
// A row of optimizers() says whose implementation it is. Optimizer state may be in any format. Where a framework rounds
// to the type of its tensors, a result is rounded to the format of the tensor it is stored in; an intermediate that is
// not stored (the denominator, a gradient with weight decay) to the format of the tensor it was computed from first.
// Single operations are done in FP32, as everywhere.
#pragma once

#include <ampscope/formats/names.h>
#include <ampscope/formats/scaled_format.h>

#include <array>
#include <optional>
#include <span>
#include <string_view>

namespace amp {

enum class OptimizerKind : std::uint8_t {
    sgd,
    adam,
    adamw,
    lion,     ///< the sign of beta1 m + (1 - beta1) g is the step; then m is updated with beta2 (arXiv:2302.06675)
    muon,     ///< of a hidden matrix: the momentum, made nearly orthogonal (sim/program/muon.h), is the step
    adafactor ///< a step of Adam without m, from a second moment in factors (arXiv:1804.04235; sim/program/adafactor.h)
};

/// What distinguishes the kinds for those who hold their state or read their options.
struct KindFacts {
    std::string_view name;
    bool has_momentum = false; ///< a momentum, without which there is no m
    bool has_betas = false;
    bool has_v = false;          ///< a second moment, by whose root, and eps, steps are divided
    bool decouples = false;      ///< weight decay is subtracted from the weight, not added to the gradient
    bool orthogonalizes = false; ///< only hidden matrices, whole ones; what is none of them is left to AdamW
    /// A second moment that a matrix has in two factors, a number for each row and one for each column. In place of
    /// has_v, which stands for one of the weight's shape.
    bool factors = false;

    /// Whether a step computes with a tensor as a whole, by ops before op::Update: it cannot be divided among replicas.
    [[nodiscard]] constexpr bool needs_whole() const { return orthogonalizes || factors; }
};

/// A new kind does not compile until it has a case here and in update_block() of backend/kernels/update.h.
/// Names are ...sv, which needs no strlen: devices call this, and formats/bits.h says what they lack.
constexpr KindFacts facts_of(OptimizerKind kind) {
    using namespace std::string_view_literals;
    switch (kind) {
    case OptimizerKind::sgd: return {.name = "sgd"sv, .has_momentum = true};
    case OptimizerKind::adam: return {.name = "adam"sv, .has_betas = true, .has_v = true};
    case OptimizerKind::adamw: return {.name = "adamw"sv, .has_betas = true, .has_v = true, .decouples = true};
    case OptimizerKind::muon:
        return {.name = "muon"sv, .has_momentum = true, .decouples = true, .orthogonalizes = true};
    case OptimizerKind::lion: return {.name = "lion"sv, .has_betas = true, .decouples = true};
    case OptimizerKind::adafactor: return {.name = "adafactor"sv, .decouples = true, .factors = true};
    }
    return {};
}

inline constexpr auto optimizer_kind_names = names_by([](std::size_t i) { return facts_of(OptimizerKind(i)).name; });

/// Whose order of operations is followed.
enum class OptimizerOrder : std::uint8_t {
    torch,       ///< torch.optim 2.x, foreach=False: every operation rounds to its tensor's type; m is updated by lerp
    torch_1,     ///< torch.optim 1.x: as above, but m * beta1, then + (1 - beta1) g
    torch_fused, ///< fused=True on CUDA: FP32, some of it FP64, from loading to storing; each result is rounded once
    torch_fused_cpu, ///< Adam, fused=True on the processor: FP32 from loading to storing, m is updated by lerp
    apex,            ///< Apex FusedAdam, TransformerEngine: FP32, bias corrections divide, decay inside the update
    ms_amp,          ///< MS-AMP's LBAdamW: FP32, also for beta in 1 - beta^t; eps is added after division by its root
    torchao,         ///< torchao.optim, not compiled: FP32 to the store, m and v by lerp, beta^t rounded to FP32
    bitsandbytes,    ///< bitsandbytes on the processor: FP32 to the store, m * beta1, then + (1 - beta1) g
    optimi,          ///< optimi, triton=False: every operation rounds, m by lerp, the betas of step t have no bias
    lion_pytorch,    ///< lion_pytorch on PyTorch 2.x: every operation rounds, m * beta, then + (1 - beta) g
    keller_jordan    ///< Muon's first implementation: its products and sums round one by one, torch's addmm once
};

/// What distinguishes the orders, apart from the kernels of fused ones.
struct OrderFacts {
    std::string_view name;
    bool rounds_each = false;    ///< each operation rounds to its tensor's type, and eps is rounded to the type of v
    bool lerps = false;          ///< m + (1 - beta1) (g - m) instead of beta1 m + (1 - beta1) g
    bool rounds_scalars = false; ///< a factor is rounded to the type of the tensor it multiplies
    bool single_betas = false;   ///< betas are rounded to FP32 before 1 - beta^t is computed
    bool single_powers = false;  ///< beta^t is rounded to FP32, too
    bool debiases = false;       ///< (beta - beta^t) / (1 - beta^t) in place of beta: moments need no correction
};

/// A new order does not compile until it has a case here and in backend/kernels/update.h: in adam() and is_fused_sgd().
constexpr OrderFacts facts_of(OptimizerOrder order) {
    using namespace std::string_view_literals;
    switch (order) {
    case OptimizerOrder::torch: return {.name = "torch"sv, .rounds_each = true, .lerps = true};
    case OptimizerOrder::torch_1: return {.name = "torch-1"sv, .rounds_each = true, .rounds_scalars = true};
    case OptimizerOrder::torch_fused: return {.name = "torch-fused"sv};
    case OptimizerOrder::torch_fused_cpu: return {.name = "torch-fused-cpu"sv, .lerps = true};
    case OptimizerOrder::apex: return {.name = "apex"sv};
    case OptimizerOrder::ms_amp: return {.name = "ms-amp"sv, .single_betas = true};
    case OptimizerOrder::torchao:
        return {.name = "torchao"sv, .lerps = true, .single_betas = true, .single_powers = true};
    case OptimizerOrder::bitsandbytes: return {.name = "bitsandbytes"sv};
    case OptimizerOrder::optimi: return {.name = "optimi"sv, .rounds_each = true, .lerps = true, .debiases = true};
    case OptimizerOrder::lion_pytorch: return {.name = "lion-pytorch"sv, .rounds_each = true};
    case OptimizerOrder::keller_jordan: return {.name = "keller-jordan"sv, .rounds_each = true, .lerps = true};
    }
    return {};
}

inline constexpr auto optimizer_order_names = names_by([](std::size_t i) { return facts_of(OptimizerOrder(i)).name; });

/// How the new weight is rounded to its format.
enum class UpdateRounding : std::uint8_t {
    nearest,
    stochastic, ///< the FP32 result is rounded with random bits: 32, or as many as an option says (torchao uses 16)
    kahan       ///< the rounding error is kept in a tensor of the weight's format and added at the next step (optimi)
};
inline constexpr std::array<std::string_view, 3> update_rounding_names = {"nearest", "stochastic", "kahan"};

/// How Muon's learning rate depends on the shape of a matrix, as torch.optim.Muon's adjust_lr_fn says: times
/// sqrt(max(1, rows / columns)), times 0.2 sqrt(max(rows, columns)), which suits AdamW's learning rates, or times
/// sqrt(rows / columns).
enum class RateScale : std::uint8_t { original, match_rms_adamw, spectral_unclamped };
inline constexpr std::array<std::string_view, 3> rate_scale_names = {"original", "match_rms_adamw",
                                                                     "spectral_unclamped"};
double rate_factor(RateScale scale, std::int64_t rows, std::int64_t columns);

/// The defaults are PyTorch's.
struct OptimizerOptions {
    OptimizerKind kind = OptimizerKind::adamw;
    OptimizerOrder order = OptimizerOrder::torch;
    double learning_rate = 1e-3;
    /// Adam, also Muon's; Lion has betas, too. Adafactor's eps1 is eps; 0 stands for that of the weights' format, 2^-23
    /// in FP32.
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
    double weight_decay = 0;            ///< SGD and Adam add it to the gradient, others subtract it from the weight
    double momentum = 0, dampening = 0; ///< SGD; Muon has a momentum, too
    bool nesterov = false;
    RateScale rate_scale = RateScale::original; ///< Muon's
    double adamw_learning_rate = 0;             ///< of what Muon leaves to AdamW; 0: the learning rate
    /// Adafactor's: in step t its second moment moves t^beta2_decay of the way to the new squares, its learning rate is
    /// multiplied by the root mean square of the weights, or by eps2 if that is less, and a direction whose root mean
    /// square is larger than update_clip (torch's d) is scaled down to it.
    double beta2_decay = -0.8, eps2 = 1e-3, update_clip = 1;
    /// a * b + c with one rounding, as PyTorch's kernels for AVX2 compute it: in all orders but torch_fused, apex and
    /// ms_amp.
    bool contract = false;

    constexpr bool operator==(const OptimizerOptions&) const = default;
    [[nodiscard]] constexpr bool has_m() const {
        return facts_of(kind).has_betas || (facts_of(kind).has_momentum && momentum != 0);
    }
    [[nodiscard]] constexpr bool has_v() const { return facts_of(kind).has_v; }
    /// AdamW, for the parameters that Muon leaves to it: with these betas, eps and weight decay.
    [[nodiscard]] OptimizerOptions adamw() const;
};

/// The formats of tensors that are kept under scales, if any. Their numbers are FP32 values that keep_scaled()
/// (backend/update.h) rounds at the end of a step.
struct ScaledState {
    std::optional<ScaledFormat> weight{}, m{}, v{};
    bool operator==(const ScaledState&) const = default;
};

/// Throws std::invalid_argument if an option is outside its range.
void check(const OptimizerOptions& options);

struct OptimizerRow {
    std::string_view name;
    OptimizerOptions options;
    std::string_view source; ///< the implementation that the row reproduces
};

std::span<const OptimizerRow> optimizers();

/// The row of that name; throws std::invalid_argument, listing the names, for any other.
const OptimizerRow& optimizer(std::string_view name);

} // namespace amp
