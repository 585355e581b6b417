#include <ampscope/sim/optim/optimizer.h>

#include <ampscope/formats/names.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace amp {

namespace {

constexpr OptimizerRow optimizer_table[] = {
    {"sgd", {.kind = OptimizerKind::sgd}, "torch.optim.SGD"},
    {"adam", {.kind = OptimizerKind::adam}, "torch.optim.Adam, foreach=False"},
    {"adamw", {.weight_decay = 0.01}, "torch.optim.AdamW, foreach=False"},
    {"adam-1", {.kind = OptimizerKind::adam, .order = OptimizerOrder::torch_1}, "torch.optim.Adam of PyTorch 1.x"},
    {"adamw-1", {.order = OptimizerOrder::torch_1, .weight_decay = 0.01}, "torch.optim.AdamW of PyTorch 1.x"},
    {"adam-fused",
     {.kind = OptimizerKind::adam, .order = OptimizerOrder::torch_fused},
     "torch.optim.Adam, fused=True on CUDA, before its scalars became FP32"},
    {"adamw-fused",
     {.order = OptimizerOrder::torch_fused, .weight_decay = 0.01},
     "torch.optim.AdamW, fused=True on CUDA, before its scalars became FP32"},
    {"sgd-fused-cpu",
     {.kind = OptimizerKind::sgd, .order = OptimizerOrder::torch_fused_cpu},
     "torch.optim.SGD, fused=True on the processor"},
    {"adam-fused-cpu",
     {.kind = OptimizerKind::adam, .order = OptimizerOrder::torch_fused_cpu},
     "torch.optim.Adam, fused=True on the processor"},
    {"adamw-fused-cpu",
     {.order = OptimizerOrder::torch_fused_cpu, .weight_decay = 0.01},
     "torch.optim.AdamW, fused=True on the processor"},
    {"apex-adam",
     {.kind = OptimizerKind::adam, .order = OptimizerOrder::apex},
     "apex.optimizers.FusedAdam(adam_w_mode=False), TransformerEngine's"},
    {"apex-adamw", {.order = OptimizerOrder::apex}, "apex.optimizers.FusedAdam, TransformerEngine's"},
    {"lbadam", {.kind = OptimizerKind::adam, .order = OptimizerOrder::ms_amp}, "msamp.optim.LBAdam"},
    {"lbadamw", {.order = OptimizerOrder::ms_amp, .weight_decay = 0.01}, "msamp.optim.LBAdamW"},
    {"torchao-adam",
     {.kind = OptimizerKind::adam, .order = OptimizerOrder::torchao},
     "torchao.optim's Adam8bit, with m=dynamic8:256,v=dynamic8:256; Adam4bit: dynamic4:128, AdamFp8: e4m3:256"},
    {"torchao-adamw",
     {.order = OptimizerOrder::torchao, .weight_decay = 0.01},
     "torchao.optim's AdamW8bit, likewise; with update=stochastic,update-random-bits=16 its bf16_stochastic_round"},
    {"bnb-adamw",
     {.order = OptimizerOrder::bitsandbytes, .weight_decay = 0.01},
     "bitsandbytes' AdamW8bit on the processor, with m=bnb8:256,v=bnb8:256; Adam8bit has another default decay"},
    {"optimi-adam",
     {.kind = OptimizerKind::adam, .order = OptimizerOrder::optimi, .beta2 = 0.99, .eps = 1e-6},
     "optimi.Adam, triton=False; with update=kahan its kahan_sum, in BF16 its default"},
    {"optimi-adamw",
     {.order = OptimizerOrder::optimi, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.01},
     "optimi.AdamW, triton=False; with update=kahan its kahan_sum, in BF16 its default"},
    {"optimi-lion",
     {.kind = OptimizerKind::lion, .order = OptimizerOrder::optimi, .beta2 = 0.99},
     "optimi.Lion, triton=False; with update=kahan its kahan_sum, in BF16 its default"},
    {"muon",
     {.kind = OptimizerKind::muon, .weight_decay = 0.1, .momentum = 0.95, .nesterov = true},
     "torch.optim.Muon; what is no hidden matrix is left to torch.optim.AdamW, --adamw-lr"},
    {"muon-rms",
     {.kind = OptimizerKind::muon,
      .weight_decay = 0.1,
      .momentum = 0.95,
      .nesterov = true,
      .rate_scale = RateScale::match_rms_adamw},
     "torch.optim.Muon, adjust_lr_fn=\"match_rms_adamw\", and AdamW with the same learning rate"},
    {"muon-spectral",
     {.kind = OptimizerKind::muon,
      .weight_decay = 0.1,
      .momentum = 0.95,
      .nesterov = true,
      .rate_scale = RateScale::spectral_unclamped},
     "torch.optim.Muon, adjust_lr_fn=\"spectral_unclamped\", and AdamW"},
    {"muon-jordan",
     {.kind = OptimizerKind::muon, .order = OptimizerOrder::keller_jordan, .momentum = 0.95, .nesterov = true},
     "Keller Jordan's SingleDeviceMuon (github.com/KellerJordan/Muon, 857d1ad), and torch.optim.AdamW"},
    {"adafactor", {.kind = OptimizerKind::adafactor, .eps = 0}, "torch.optim.Adafactor, foreach=False"},
    {"lion",
     {.kind = OptimizerKind::lion, .order = OptimizerOrder::lion_pytorch, .beta2 = 0.99},
     "lion_pytorch.Lion, use_triton=False"},
};

} // namespace

double rate_factor(RateScale scale, std::int64_t rows, std::int64_t columns) {
    const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
    switch (scale) {
    case RateScale::original: return std::sqrt(std::max(1.0, r / c));
    case RateScale::match_rms_adamw: return 0.2 * std::sqrt(std::max(r, c));
    case RateScale::spectral_unclamped: return std::sqrt(r / c);
    }
    return 1;
}

OptimizerOptions OptimizerOptions::adamw() const {
    return {.learning_rate = adamw_learning_rate > 0 ? adamw_learning_rate : learning_rate,
            .beta1 = beta1,
            .beta2 = beta2,
            .eps = eps,
            .weight_decay = weight_decay,
            .contract = contract};
}

void check(const OptimizerOptions& o) {
    const auto expect = [](const char* name, bool holds, const char* what) {
        if (!holds) throw std::invalid_argument(fmt::format("[optimizer] {}: expected {}", name, what));
    };
    const auto is_size = [](double x) { return x >= 0 && std::isfinite(x); };
    constexpr const char* not_negative = "a finite number that is not negative";
    expect("learning_rate", is_size(o.learning_rate), not_negative);
    expect("beta1", o.beta1 >= 0 && o.beta1 < 1, "a number in [0, 1)");
    expect("beta2", o.beta2 >= 0 && o.beta2 < 1, "a number in [0, 1)");
    expect("eps", is_size(o.eps), not_negative);
    expect("weight_decay", is_size(o.weight_decay), not_negative);
    expect("adamw_learning_rate", is_size(o.adamw_learning_rate), not_negative);
    expect("momentum", is_size(o.momentum), not_negative);
    expect("momentum", !facts_of(o.kind).orthogonalizes || (o.momentum > 0 && o.momentum <= 1),
           "a momentum in (0, 1] for Muon");
    expect("nesterov", !o.nesterov || o.momentum > 0, "a momentum above 0");
    expect("nesterov", !o.nesterov || o.dampening == 0, "no dampening");
    expect("beta2_decay", o.beta2_decay <= 0 && std::isfinite(o.beta2_decay), "a finite number that is not positive");
    expect("eps2", is_size(o.eps2), not_negative);
    expect("update_clip", o.update_clip >= 1 && std::isfinite(o.update_clip),
           "a limit of an update's root mean square of at least 1");
}

std::span<const OptimizerRow> optimizers() { return optimizer_table; }

const OptimizerRow& optimizer(std::string_view name) { return find_row("optimizer", optimizer_table, name); }

} // namespace amp
