#include <ampscope/sim/program/precision.h>

#include <ampscope/formats/environment.h>

#include <fmt/format.h>
#include <stdexcept>

namespace amp {

namespace {

Precision amp_with(std::string_view low) {
    Precision p;
    p.autocast = {.enabled = true, .low = format(low)};
    if (low == "fp16") p.loss_scaler = loss_scaler("torch");
    return p;
}

Precision pure(std::string_view name, UpdateRounding update = UpdateRounding::nearest) {
    Precision p;
    const FormatSpec f = format(name);
    p.weights = p.activations = p.gradients = p.loss = p.master = p.m = p.v = f;
    p.update = update;
    return p;
}

Precision tf32(Rounding rounding) {
    Precision p;
    p.operands = format("tf32");
    p.operand_rounding = rounding;
    return p;
}

/// Weights, activations and gradients in FP16 beside FP32 master weights: Apex O2, Megatron, DeepSpeed.
Precision with_master(std::string_view name) {
    Precision p;
    p.weights = p.activations = p.gradients = format(name);
    if (name == "fp16") p.loss_scaler = loss_scaler("megatron");
    return p;
}

/// Linear layers in FP8 or narrower, by the recipe of the precision of that name; all else under autocast to BF16.
Precision scaled(std::string_view name) {
    Precision p = amp_with("bf16");
    p.scaling = *recipe_of_precision(name);
    return p;
}

/// DeepSeek-V3's recipe, with the optimizer's state in BF16, too.
Precision deepseek() {
    Precision p = scaled("deepseek");
    p.m = p.v = format("bf16");
    p.accumulators = p.backward_accumulators = {accumulator("hopper-wgmma-fp8")};
    return p;
}

/// Forward products of integers, summed in INT32.
Precision integers(std::string_view name) {
    Precision p = scaled(name);
    p.accumulators = {accumulator("int32")};
    return p;
}

/// MS-AMP's optimization level O2.
Precision ms_amp() {
    Precision p = scaled("ms-amp");
    p.scaled_state = {
        .weight = ScaledFormat{format("fp16")}, .m = ScaledFormat{format("e4m3")}, .v = ScaledFormat{format("fp16")}};
    return p;
}

constexpr PrecisionRow precision_table[] = {
    {"fp32", "everything in FP32", [] { return Precision{}; }},
    {"tf32", "FP32, operands of matrix products rounded to TF32, ties away (cvt.rna)",
     [] { return tf32(Rounding::nearest_away); }},
    {"tf32-truncate", "FP32, operands of matrix products truncated to TF32 (wgmma)",
     [] { return tf32(Rounding::toward_zero); }},
    {"amp-fp16", "PyTorch autocast to FP16, loss scaling", [] { return amp_with("fp16"); }},
    {"amp-bf16", "PyTorch autocast to BF16", [] { return amp_with("bf16"); }},
    {"master-fp16", "FP16 but for master weights and optimizer in FP32, loss scaling (Apex O2, Megatron)",
     [] { return with_master("fp16"); }},
    {"master-bf16", "BF16 but for master weights and optimizer in FP32 (Megatron)", [] { return with_master("bf16"); }},
    {"pure-fp16", "model.half(): weights, gradients and optimizer in FP16", [] { return pure("fp16"); }},
    {"pure-bf16", "weights, gradients and optimizer in BF16", [] { return pure("bf16"); }},
    {"pure-bf16-stochastic", "pure-bf16, new weights rounded stochastically",
     [] { return pure("bf16", UpdateRounding::stochastic); }},
    {"pure-bf16-kahan", "pure-bf16, what rounding the weights loses is kept beside them",
     [] { return pure("bf16", UpdateRounding::kahan); }},
    {"fp8-delayed", "linear layers in FP8, scales from the amax of 1,024 steps (TransformerEngine), the rest amp-bf16",
     [] { return scaled("fp8-delayed"); }},
    {"fp8-current", "linear layers in FP8, a scale a tensor (TransformerEngine), the rest amp-bf16",
     [] { return scaled("fp8-current"); }},
    {"fp8-block", "linear layers in E4M3, scales for 1 x 128 and 128 x 128 (TransformerEngine), the rest amp-bf16",
     [] { return scaled("fp8-block"); }},
    {"mxfp8", "linear layers in MXFP8, a scale for 32 (TransformerEngine), the rest amp-bf16",
     [] { return scaled("mxfp8"); }},
    {"nvfp4", "linear layers in NVFP4, gradients rounded stochastically (TransformerEngine), the rest amp-bf16",
     [] { return scaled("nvfp4"); }},
    {"nvfp4-plain", "linear layers in NVFP4, all rounded to the nearest, nothing rotated, the rest amp-bf16",
     [] { return scaled("nvfp4-plain"); }},
    {"general", "linear layers in any format, scale and block (scaling-format, scaling-scale ...), the rest amp-bf16",
     [] { return scaled("general"); }},
    {"quartet2", "linear layers in NVFP4, backward by MS-EDEN (Quartet II), the rest amp-bf16",
     [] { return scaled("quartet2"); }},
    {"mxfp6", "linear layers in MXFP6, gradients in E3M2, the rest amp-bf16", [] { return scaled("mxfp6"); }},
    {"mxfp4", "linear layers in MXFP4 with the options of nvfp4, the rest amp-bf16", [] { return scaled("mxfp4"); }},
    {"deepseek", "DeepSeek-V3: E4M3, scales for 1 x 128 and 128 x 128, Hopper's sums promoted every 128, m and v BF16",
     deepseek},
    {"int8", "linear layers in INT8 forward, a scale a token and a row of weights, INT32 sums, the rest amp-bf16",
     [] { return integers("int8"); }},
    {"int4", "int8, weights in INT4 with a scale and a zero point for 128", [] { return integers("int4"); }},
    {"ms-amp",
     "MS-AMP O2: linear layers in FP8, their master weights FP16, m E4M3, v FP16, a scale a tensor; use --optimizer "
     "lbadamw and --all-reduce-scaling ms-amp",
     ms_amp},
};

struct FormatKey {
    std::string_view name;
    FormatSpec& (*field)(Precision&);
};

constexpr FormatKey format_keys[] = {
    {"weights", [](Precision& p) -> FormatSpec& { return p.weights; }},
    {"activations", [](Precision& p) -> FormatSpec& { return p.activations; }},
    {"gradients", [](Precision& p) -> FormatSpec& { return p.gradients; }},
    {"loss", [](Precision& p) -> FormatSpec& { return p.loss; }},
};

/// What the value of master, m or v says of scales.
std::optional<ScaledFormat> scaled_state(std::string_view key, std::string_view value) {
    try {
        const std::optional<ScaledFormat> f = scaled_format(value, key != "v");
        if (f && f->block > 0 && key == "master") throw std::invalid_argument("weights have one scale for each tensor");
        return f;
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(fmt::format("precision: {}: {}", key, error.what()));
    }
}

/// Sets master, m or v to FORMAT or what scaled_format() reads. Returns whether the key is one of them.
bool set_state(Precision& p, std::string_view key, std::string_view value) {
    struct State {
        std::string_view key;
        FormatSpec& plain;
        std::optional<ScaledFormat>& scaled;
    };
    for (const State& s : {State{"master", p.master, p.scaled_state.weight}, State{"m", p.m, p.scaled_state.m},
                           State{"v", p.v, p.scaled_state.v}}) {
        if (s.key != key) continue;
        s.scaled = scaled_state(key, value);
        if (!s.scaled) s.plain = tensor_format(key, value);
        else if (s.scaled->block == 0 || s.scaled->map == CodeMap::bnb8)
            s.plain = fp32_format(); // torchao's blocks leave smaller tensors as they were
        return true;
    }
    return false;
}

void set(Precision& p, std::string_view key, std::string_view value) {
    if (key == "update") {
        p.update = parse_name<UpdateRounding>("update", update_rounding_names, value);
        return;
    }
    if (key == "update-random-bits") {
        p.update_random_bits = static_cast<std::uint8_t>(whole_number(value, 1, 32));
        return;
    }
    if (key == "scaler") {
        p.loss_scaler = loss_scaler(value);
        return;
    }
    if (p.set(key, value) || set_state(p, key, value)) return;
    const FormatKey& known =
        find_row("key of a precision", format_keys, key,
                 fmt::format(", master, m, v, {}, update, update-random-bits, scaler", LayerArithmetic::keys));
    const FormatSpec f = tensor_format(key, value);
    if (p.autocast.enabled)
        throw std::invalid_argument(fmt::format("precision: autocast decides about {}: leave it out", key));
    known.field(p) = f;
}

/// Sets the keys of a text; preset(name, whether it comes first) is called for what has no value.
void read(Precision& p, std::string_view text, const std::function<void(std::string_view, bool)>& preset) {
    bool has_bits = false;
    read_keys(text, preset, [&](std::string_view key, std::string_view value) {
        has_bits = has_bits || key == "update-random-bits";
        set(p, key, value);
    });
    if (p.scaling) check_options(*p.scaling);
    if (has_bits && p.update != UpdateRounding::stochastic)
        throw std::invalid_argument("precision: update-random-bits changes nothing: it is for update=stochastic");
}

} // namespace

std::span<const PrecisionRow> precisions() { return precision_table; }

Precision precision(std::string_view text) {
    const FloatEnvironment environment;
    Precision p;
    read(p, text, [&](std::string_view name, bool first) {
        constexpr std::string_view others = ", or [PRESET,]key=format,...";
        if (!first) throw_unknown("precision", name, names_of_rows(precision_table) + std::string(others));
        p = find_row("precision", precision_table, name, others).make();
    });
    p.name = text;
    return p;
}

Precision changed(const Precision& base, std::string_view keys) {
    const FloatEnvironment environment;
    Precision p = base;
    read(p, keys, [](std::string_view name, bool) {
        throw std::invalid_argument(fmt::format("precision: expected key=value, got '{}'", name));
    });
    p.name = fmt::format("{},{}", base.name, keys);
    return p;
}

} // namespace amp
