#include <ampscope/formats/batch.h>
#include <ampscope/sim/base/noise.h>
#include <ampscope/sim/program/models/networks.h>

#include <algorithm>
#include <fmt/format.h>

namespace amp {

namespace {

const ModelRow model_table[] = {
    {"linear", "one linear layer: regression on 10 numbers", linear_network, {.name = "linear"}},
    {"mlp",
     "hidden layers with ReLU on 8 x 8 digits",
     mlp_network,
     {.name = "mlp", .width = 128, .activation = op::ActivationKind::relu}},
    {"cnn",
     "convolutions with ReLU on 8 x 8 digits",
     cnn_network,
     {.name = "cnn", .width = 16, .activation = op::ActivationKind::relu}},
    {"resnet",
     "residual blocks of convolutions with batch norm on 8 x 8 digits",
     resnet_network,
     {.name = "resnet", .width = 16, .depth = 3, .activation = op::ActivationKind::relu}},
    {"gpt", "a decoder on modular addition, or on the characters of a text", gpt_network, {}, true},
    {"llama",
     "a decoder with rotary positions, RMSNorm, SwiGLU and grouped-query attention, on the data of the gpt",
     llama_network,
     {.name = "llama", .activation = op::ActivationKind::silu, .norm = op::NormKind::rms, .kv_heads = 2},
     true},
};

} // namespace

std::span<const ModelRow> models() { return model_table; }

const ModelRow& model(std::string_view name) { return find_row("model", model_table, name); }

std::vector<float> initial_values(const Parameter& parameter, std::size_t number, const TensorInfo& info,
                                  std::uint64_t seed) {
    constexpr std::uint32_t first_stream = 0x17170000; // different from the streams of ops and data
    const auto stream = first_stream + static_cast<std::uint32_t>(number);
    std::vector<double> exact(static_cast<std::size_t>(info.count()), parameter.init.value);
    for (std::size_t i = 0; i < exact.size(); ++i) {
        if (parameter.init.kind == Init::Kind::uniform) exact[i] *= 2 * uniform(seed, stream, i) - 1;
        if (parameter.init.kind == Init::Kind::normal) exact[i] *= normal(seed, stream, i);
    }
    std::vector<float> values(exact.size());
    quantize(info.format, exact, values);
    return values;
}

} // namespace amp
