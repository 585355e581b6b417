#include <ampscope/sim/train/published.h>

#include <ampscope/formats/names.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/write.h>
#include <ampscope/sim/train/data/arrays.h>

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <type_traits>

namespace amp {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Floats = std::vector<float>;

/// A parameter of ours and the tensor that holds it; '#' stands for the number of a block. Of gpt2's layers the tensor
/// is in x (parts * out): the transpose of ours, or that of a few layers side by side.
struct NameRow {
    std::string_view ours, theirs;
    std::size_t parts = 0, part = 0; ///< parts 0: the same layout
};

constexpr NameRow llama_names[] = {{"wte.weight", "model.embed_tokens.weight"},
                                   {"h.#.ln1.weight", "model.layers.#.input_layernorm.weight"},
                                   {"h.#.attn.q.weight", "model.layers.#.self_attn.q_proj.weight"},
                                   {"h.#.attn.k.weight", "model.layers.#.self_attn.k_proj.weight"},
                                   {"h.#.attn.v.weight", "model.layers.#.self_attn.v_proj.weight"},
                                   {"h.#.attn.o.weight", "model.layers.#.self_attn.o_proj.weight"},
                                   {"h.#.ln2.weight", "model.layers.#.post_attention_layernorm.weight"},
                                   {"h.#.mlp.gate.weight", "model.layers.#.mlp.gate_proj.weight"},
                                   {"h.#.mlp.up.weight", "model.layers.#.mlp.up_proj.weight"},
                                   {"h.#.mlp.down.weight", "model.layers.#.mlp.down_proj.weight"},
                                   {"ln_f.weight", "model.norm.weight"},
                                   {"head.weight", "lm_head.weight"}};

constexpr NameRow gpt2_names[] = {{"wte.weight", "transformer.wte.weight"},
                                  {"wpe.weight", "transformer.wpe.weight"},
                                  {"h.#.ln1.weight", "transformer.h.#.ln_1.weight"},
                                  {"h.#.ln1.bias", "transformer.h.#.ln_1.bias"},
                                  {"h.#.attn.q.weight", "transformer.h.#.attn.c_attn.weight", 3, 0},
                                  {"h.#.attn.q.bias", "transformer.h.#.attn.c_attn.bias", 3, 0},
                                  {"h.#.attn.k.weight", "transformer.h.#.attn.c_attn.weight", 3, 1},
                                  {"h.#.attn.v.weight", "transformer.h.#.attn.c_attn.weight", 3, 2},
                                  {"h.#.attn.v.bias", "transformer.h.#.attn.c_attn.bias", 3, 2},
                                  {"h.#.attn.qkv.weight", "transformer.h.#.attn.c_attn.weight", 1},
                                  {"h.#.attn.qkv.bias", "transformer.h.#.attn.c_attn.bias", 1},
                                  {"h.#.attn.o.weight", "transformer.h.#.attn.c_proj.weight", 1},
                                  {"h.#.attn.o.bias", "transformer.h.#.attn.c_proj.bias", 1},
                                  {"h.#.ln2.weight", "transformer.h.#.ln_2.weight"},
                                  {"h.#.ln2.bias", "transformer.h.#.ln_2.bias"},
                                  {"h.#.mlp.up.weight", "transformer.h.#.mlp.c_fc.weight", 1},
                                  {"h.#.mlp.up.bias", "transformer.h.#.mlp.c_fc.bias", 1},
                                  {"h.#.mlp.down.weight", "transformer.h.#.mlp.c_proj.weight", 1},
                                  {"h.#.mlp.down.bias", "transformer.h.#.mlp.c_proj.bias", 1},
                                  {"ln_f.weight", "transformer.ln_f.weight"},
                                  {"ln_f.bias", "transformer.ln_f.bias"}};

struct ActivationName {
    std::string_view theirs;
    op::ActivationKind kind;
};
constexpr ActivationName activation_table[] = {
    {"silu", op::ActivationKind::silu},          {"gelu", op::ActivationKind::gelu},
    {"gelu_new", op::ActivationKind::gelu_tanh}, {"gelu_pytorch_tanh", op::ActivationKind::gelu_tanh},
    {"relu", op::ActivationKind::relu},          {"tanh", op::ActivationKind::tanh},
    {"sigmoid", op::ActivationKind::sigmoid}};

/// Each parameter of a network: its name, the tensor's, and where in that it lies.
struct Place {
    std::string ours, theirs;
    std::size_t parts, part;
};

std::vector<Place> places_of(const ModelOptions& model) {
    const bool llama = model.name == "llama";
    std::vector<Place> places;
    for (const NameRow& row : llama ? std::span<const NameRow>(llama_names) : std::span<const NameRow>(gpt2_names)) {
        const bool joined = row.ours.find(".qkv.") != std::string_view::npos, apart = row.parts > 1;
        if (row.ours == "head.weight" && model.tied) continue;
        if (model.fused_projections ? apart : joined) continue;
        const bool repeated = row.ours.find('#') != std::string_view::npos;
        for (std::int64_t i = 0; i < (repeated ? model.depth : 1); ++i) {
            const auto named = [&](std::string_view pattern) {
                std::string name(pattern);
                if (repeated) name.replace(name.find('#'), 1, std::to_string(i));
                return name;
            };
            places.push_back({named(row.ours), named(row.theirs), row.parts, row.part});
        }
    }
    return places;
}

/// Calls use(index in the tensor, index in the parameter) for each element of a parameter of `outs` outputs.
template <class Use>
void for_each_element(const Place& place, std::size_t count, std::size_t outs, const Use& use) {
    const std::size_t ins = count / outs;
    for (std::size_t o = 0; o < outs; ++o)
        for (std::size_t i = 0; i < ins; ++i)
            use(place.parts == 0 ? o * ins + i : i * place.parts * outs + place.part * outs + o, o * ins + i);
}

/// A size. JSON's numbers may have fractions, which a conversion would cut off.
std::int64_t whole(const Json& config, const char* key) {
    const Json& value = config.at(key);
    const auto number = value.get<double>(); // throws what reading JSON throws for what is no number
    if (value.is_number_float() && (std::trunc(number) != number || std::abs(number) >= 0x1p63))
        throw std::invalid_argument(fmt::format("{}: expected a whole number, got {}", key, value.dump()));
    return value.get<std::int64_t>();
}

/// The value of a key; `usual` if it is missing or null.
template <class T>
T value_of(const Json& config, const char* key, const T& usual) {
    if (!config.contains(key) || config.at(key).is_null()) return usual;
    if constexpr (std::is_same_v<T, std::int64_t>) return whole(config, key);
    else return config.at(key).get<T>();
}

template <class T>
void expect(const Json& config, const char* key, const T& only) {
    if (value_of(config, key, only) != only)
        throw std::invalid_argument(fmt::format("{}: {} is not supported, only {}", key, config.at(key).dump(), only));
}

op::ActivationKind activation_of(const Json& config, const char* key, const char* usual) {
    const auto name = value_of<std::string>(config, key, usual);
    const auto* const row = std::ranges::find(activation_table, name, &ActivationName::theirs);
    if (row == std::end(activation_table))
        throw std::invalid_argument(fmt::format("{}: '{}' is not supported", key, name));
    return row->kind;
}

void check_sizes(std::initializer_list<std::int64_t> sizes) {
    for (const std::int64_t n : sizes)
        if (n < 1 || n > 1 << 24) throw std::invalid_argument("expected sizes of 1 ... 2^24");
}

PublishedNetwork llama_of(const Json& c) {
    ModelOptions m = model("llama").defaults;
    m.width = whole(c, "hidden_size");
    m.depth = whole(c, "num_hidden_layers");
    m.heads = whole(c, "num_attention_heads");
    m.kv_heads = value_of(c, "num_key_value_heads", m.heads);
    m.hidden = whole(c, "intermediate_size");
    check_sizes({m.width, m.depth, m.heads, m.kv_heads, m.hidden});
    m.tied = value_of(c, "tie_word_embeddings", false);
    m.norm_eps = value_of(c, "rms_norm_eps", 1e-6);
    m.activation = activation_of(c, "hidden_act", "silu");
    const Json rope = value_of<Json>(c, "rope_parameters", Json::object());
    m.rope_theta = value_of(rope, "rope_theta", value_of(c, "rope_theta", 10000.0));
    expect<std::string>(rope, rope.contains("rope_type") ? "rope_type" : "type", "default");
    if (!value_of<Json>(c, "rope_scaling", Json()).is_null())
        throw std::invalid_argument("rope_scaling: scaled rotary positions are not supported");
    expect(c, "attention_bias", false);
    expect(c, "mlp_bias", false);
    expect(c, "head_dim", m.width / m.heads);
    return {.model = m,
            .vocabulary = whole(c, "vocab_size"),
            .context = value_of(c, "max_position_embeddings", std::int64_t{2048})};
}

PublishedNetwork gpt2_of(const Json& c) {
    ModelOptions m = model("gpt").defaults;
    m.width = whole(c, "n_embd");
    m.depth = whole(c, "n_layer");
    m.heads = whole(c, "n_head");
    check_sizes({m.width, m.depth, m.heads});
    m.tied = true;
    m.norm_eps = value_of(c, "layer_norm_epsilon", 1e-5);
    m.activation = activation_of(c, "activation_function", "gelu_new");
    expect(c, "tie_word_embeddings", true);
    expect(c, "scale_attn_weights", true);
    expect(c, "scale_attn_by_inverse_layer_idx", false);
    expect(c, "add_cross_attention", false);
    expect(c, "n_inner", 4 * m.width);
    return {
        .model = m, .vocabulary = whole(c, "vocab_size"), .context = value_of(c, "n_positions", std::int64_t{1024})};
}

/// The folder of a published network: `path`, or where that file lies.
fs::path folder_of(const fs::path& path) { return fs::is_directory(path) ? path : path.parent_path(); }

PublishedNetwork configured(const fs::path& file) {
    const Json config = read_json_object(file);
    return taken(file, "is no network that can be read", [&] {
        const auto type = config.at("model_type").get<std::string>();
        if (type != "llama" && type != "gpt2")
            throw std::invalid_argument(fmt::format("model_type: '{}' is not supported, only llama and gpt2", type));
        PublishedNetwork network = type == "llama" ? llama_of(config) : gpt2_of(config);
        const ModelOptions& m = network.model;
        check_sizes({network.vocabulary, network.context});
        if (!(m.norm_eps > 0)) throw std::invalid_argument("expected a positive eps of the norms");
        if (m.depth > 4096) throw std::invalid_argument("expected at most 4096 layers");
        if (m.width % m.heads != 0 || m.heads % m.groups() != 0)
            throw std::invalid_argument("expected heads that divide the width, and heads of keys that divide theirs");
        return network;
    });
}

/// The shape of a parameter of the network.
Shape shape_of(const PublishedNetwork& n, std::string_view ours) {
    const ModelOptions& m = n.model;
    const std::int64_t keys = m.width / m.heads * m.groups();
    const std::int64_t units = m.name == "llama" ? m.hidden_units() : 4 * m.width;
    const auto ends = [&](std::string_view suffix) { return ours.ends_with(suffix); };
    if (ours == "wte.weight" || ours == "head.weight") return {n.vocabulary, m.width};
    if (ours == "wpe.weight") return {n.context, m.width};
    const bool is_gate_or_up =
        ours.find(".gate.") != std::string_view::npos || ours.find(".up.") != std::string_view::npos;
    const bool is_joined = ours.find(".qkv.") != std::string_view::npos; // the gpt's
    const std::int64_t outs = is_gate_or_up                                    ? units
                              : is_joined                                      ? 3 * m.width
                              : ends("attn.k.weight") || ends("attn.v.weight") ? keys
                                                                               : m.width;
    if (ends(".bias") || ours.find("ln") != std::string_view::npos) return {outs};
    return {outs, ends("down.weight") ? units : m.width};
}

Json config_of(const PublishedNetwork& n) {
    const ModelOptions& m = n.model;
    const auto* const activation = std::ranges::find(activation_table, m.activation, &ActivationName::kind);
    if (m.name == "llama")
        return {{"architectures", {"LlamaForCausalLM"}},
                {"model_type", "llama"},
                {"vocab_size", n.vocabulary},
                {"hidden_size", m.width},
                {"intermediate_size", m.hidden_units()},
                {"num_hidden_layers", m.depth},
                {"num_attention_heads", m.heads},
                {"num_key_value_heads", m.groups()},
                {"hidden_act", activation->theirs},
                {"max_position_embeddings", n.context},
                {"rms_norm_eps", m.norm_eps > 0 ? m.norm_eps : 1e-6},
                {"rope_theta", m.rope_theta},
                {"tie_word_embeddings", m.tied},
                {"bos_token_id", nullptr},
                {"eos_token_id", nullptr},
                {"torch_dtype", "float32"}};
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"vocab_size", n.vocabulary},
            {"n_positions", n.context},
            {"n_embd", m.width},
            {"n_layer", m.depth},
            {"n_head", m.heads},
            {"activation_function", activation->theirs},
            {"layer_norm_epsilon", m.norm_eps > 0 ? m.norm_eps : 1e-5},
            {"tie_word_embeddings", true},
            {"bos_token_id", nullptr},
            {"eos_token_id", nullptr},
            {"torch_dtype", "float32"}};
}

} // namespace

bool is_published(const fs::path& path) {
    if (path.extension() == ".safetensors") return fs::is_regular_file(path);
    return fs::exists(path / "config.json") && !fs::exists(path / "run.json");
}

PublishedNetwork read_published_sizes(const fs::path& path) {
    const fs::path sizes = folder_of(path) / "config.json";
    if (!fs::exists(sizes))
        throw FileError(path, "there is no config.json beside it, which says what the network's sizes are");
    return configured(sizes);
}

PublishedNetwork read_published(const fs::path& path) {
    const fs::path folder = folder_of(path);
    PublishedNetwork network = read_published_sizes(path);
    const auto file = open_tensor_file(fs::is_directory(path) ? folder / "model.safetensors" : path);
    constexpr std::string_view prefix = "transformer."; // which gpt2's own file lacks
    std::map<std::string, Floats> known;
    for (const Place& place : places_of(network.model)) {
        auto entry = std::ranges::find(file->tensors(), place.theirs, &TensorEntry::name);
        if (entry == file->tensors().end() && place.theirs.starts_with(prefix))
            entry = std::ranges::find(file->tensors(), place.theirs.substr(prefix.size()), &TensorEntry::name);
        const Shape shape = shape_of(network, place.ours);
        const auto count = static_cast<std::size_t>(element_count(shape));
        if (entry == file->tensors().end()) throw FileError(file->path(), place.theirs + ": missing");
        std::vector<std::uint64_t> expected(shape.begin(), shape.end());
        if (place.parts > 0) {
            std::ranges::reverse(expected);
            expected.back() *= place.parts;
        }
        if (!std::ranges::equal(entry->shape, expected))
            throw FileError(file->path(), fmt::format("{}: has shape ({}), which the sizes in config.json contradict",
                                                      place.theirs, fmt::join(entry->shape, ", ")));
        Floats& values = known[place.theirs];
        if (values.empty()) values = read_floats(*file, static_cast<std::size_t>(entry - file->tensors().begin()));
        Floats& to = network.parameters[place.ours];
        to.resize(count);
        for_each_element(place, count, static_cast<std::size_t>(shape[0]),
                         [&](std::size_t theirs, std::size_t ours) { to[ours] = values[theirs]; });
    }
    return network;
}

void write_published(const fs::path& folder, const PublishedNetwork& network) {
    const ModelOptions& m = network.model;
    const bool llama = m.name == "llama";
    if (!model(m.name).reads_tokens || m.norm != (llama ? op::NormKind::rms : op::NormKind::layer))
        throw FileError(folder, "only a llama with --norm rms, or a gpt with --norm layer, has Hugging Face's form");
    if (llama && m.fused_projections)
        throw FileError(folder, "Hugging Face's llama keeps q, k and v apart: train it without --fused-projections");
    if (!llama && !m.tied) throw FileError(folder, "GPT-2's head is its table of tokens: train the gpt with --tied");
    std::map<std::string, Floats> tensors;
    std::map<std::string, std::vector<std::uint64_t>> shapes;
    for (const Place& place : places_of(m)) {
        const Shape shape = shape_of(network, place.ours);
        const Floats& from = network.parameters.at(place.ours);
        Floats& to = tensors[place.theirs];
        to.resize(from.size() * std::max<std::size_t>(place.parts, 1)); // zeros
        for_each_element(place, from.size(), static_cast<std::size_t>(shape[0]),
                         [&](std::size_t theirs, std::size_t ours) { to[theirs] = from[ours]; });
        std::vector<std::uint64_t> theirs(shape.begin(), shape.end());
        if (place.parts > 0) {
            std::ranges::reverse(theirs);
            theirs.back() *= place.parts;
        }
        shapes[place.theirs] = theirs;
    }
    std::vector<TensorEntry> entries;
    for (const auto& [name, shape] : shapes) entries.push_back({.name = name, .dtype = DType::f32, .shape = shape});
    fs::create_directories(folder);
    TensorWriter writer = create_tensor_file(folder / "model.safetensors", entries, {{"format", "pt"}});
    for (const auto& [name, values] : tensors) writer.append(std::as_bytes(std::span(values)));
    writer.commit();
    write_text_file(folder / "config.json", config_of(network).dump(2) + "\n");
}

} // namespace amp
