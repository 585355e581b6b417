#include <ampscope/tools/amp-train/network.h>

#include <ampscope/tools/command_line.h>

#include <fmt/format.h>

#include <limits>

namespace amp::train_tool {

namespace {

std::string text_of(std::int64_t n) { return std::to_string(n); }
std::string text_of(op::ActivationKind kind) {
    return std::string(op::activation_names[static_cast<std::size_t>(kind)]);
}
std::string text_of(op::NormKind kind) { return std::string(op::norm_names[static_cast<std::size_t>(kind)]); }

/// "default 64, of the mlp 128": what the default model has, and those that have something else.
template <class T>
std::string defaults_of(T ModelOptions::*member) {
    const T usual = ModelOptions{}.*member;
    std::string text = "default " + text_of(usual);
    for (const ModelRow& row : models())
        if (row.defaults.*member != usual)
            text += fmt::format(", of the {} {}", row.name, text_of(row.defaults.*member));
    return text;
}

} // namespace

void add_network_options(CLI::App& app, NetworkWords& w) {
    constexpr const char* group = NetworkWords::group;
    app.add_option("--model", w.model.name, "Network: linear, mlp, cnn, resnet, gpt (default) or llama")->group(group);
    app.add_option("--width", w.width,
                   "Units of hidden layers; channels of the first convolution; " + defaults_of(&ModelOptions::width))
        ->transform(whole_number(1, 65536))
        ->group(group);
    app.add_option("--depth", w.depth,
                   "Blocks of a decoder or the resnet, hidden layers of the mlp, convolutions of the cnn; " +
                       defaults_of(&ModelOptions::depth))
        ->transform(whole_number(1, 1024))
        ->group(group);
    app.add_option("--heads", w.heads, "Heads of attention; " + defaults_of(&ModelOptions::heads))
        ->transform(whole_number(1, 1024))
        ->group(group);
    app.add_flag("--tied", w.model.tied, "The head of a decoder is its table of tokens")->group(group);
    app.add_flag("--fused-projections", w.model.fused_projections,
                 "A decoder's q, k and v are one product, the llama's gate and up another: scales span them")
        ->group(group);
    app.add_option("--kv-heads", w.kv_heads, "Heads of the llama's keys and values; default 2")
        ->transform(whole_number(1, 1024))
        ->group(group);
    app.add_option("--hidden", w.hidden,
                   "Units of the llama's MLP; default: 8 / 3 of the width, up to a multiple of 32")
        ->transform(whole_number(1, 262144))
        ->group(group);
    app.add_option("--rope-theta", w.model.rope_theta, "Base of the llama's rotary positions; default 10000")
        ->transform(real_number(1, std::numeric_limits<double>::infinity()))
        ->group(group);
    app.add_option(
           "--attention", w.model.attention,
           "Attention of a decoder: plain (default), fused, or fused:ROWSxKEYS,key=value,... with tiles of so "
           "many queries and keys (64x64) and p, ds, s, l, o, steps (formats), offset, p-sum, max (plain, shifted)")
        ->group(group);
    app.add_option("--dropout", w.model.dropout, "Probability that dropout zeroes an element; default 0: none")
        ->transform(real_number(0, 1, Ends::low))
        ->group(group);
    app.add_option("--activation", w.activation,
                   "Activation function: " + either(op::activation_names) + "; " +
                       defaults_of(&ModelOptions::activation))
        ->group(group);
    app.add_option("--norm", w.norm,
                   "Normalization of a decoder: " + either(op::norm_names) + "; " + defaults_of(&ModelOptions::norm))
        ->group(group);
    app.add_option("--norm-eps", w.model.norm_eps, "What it adds to the variance; default 1e-5 for layer, 1e-6 for rms")
        ->transform(real_number(0, 1))
        ->group(group);
    app.add_option(
           "--norm-groups", w.norm_groups,
           "The resnet has group norm in place of batch norm, with so many groups of channels; default: batch norm")
        ->transform(whole_number(1, 65536))
        ->group(group);
    app.add_option("--label-smoothing", w.model.label_smoothing,
                   "Share of each target that all classes divide; in training, not in validation; default 0")
        ->transform(real_number(0, 1))
        ->group(group);
    app.add_option("--z-loss", w.model.z_loss,
                   "Factor of (log of the sum of e^logits)^2 in the loss; in training, not in validation; default 0; "
                   "PaLM: 1e-4")
        ->transform(real_number(0, std::numeric_limits<double>::infinity(), Ends::low))
        ->group(group);
}

ModelOptions model_of(const NetworkWords& w) {
    ModelOptions m = of_option("--model", [&] { return model(w.model.name).defaults; });
    if (w.width) m.width = *w.width;
    if (w.depth) m.depth = *w.depth;
    if (w.heads) m.heads = *w.heads;
    if (w.kv_heads) m.kv_heads = *w.kv_heads;
    if (w.hidden) m.hidden = *w.hidden;
    m.tied = w.model.tied;
    m.fused_projections = w.model.fused_projections;
    // An error is thrown here, before anything is made.
    m.attention = of_option("--attention", [&] { return op::canonical_attention(w.model.attention); });
    m.norm_eps = w.model.norm_eps;
    if (w.norm_groups) m.norm_groups = *w.norm_groups;
    m.label_smoothing = w.model.label_smoothing;
    m.z_loss = w.model.z_loss;
    m.rope_theta = w.model.rope_theta;
    m.dropout = w.model.dropout;
    if (!w.activation.empty())
        m.activation =
            enumerator_of<op::ActivationKind>("--activation", "activation", op::activation_names, w.activation);
    if (!w.norm.empty()) m.norm = enumerator_of<op::NormKind>("--norm", "norm", op::norm_names, w.norm);
    return m;
}

} // namespace amp::train_tool
