#include <ampscope/sim/train/trained.h>

#include <ampscope/formats/batch.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/tensor_file.h>
#include <ampscope/sim/train/configuration.h>
#include <ampscope/sim/train/published.h>
#include <ampscope/sim/train/run_folder.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

namespace amp {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json read_configuration(const fs::path& run) {
    if (!fs::exists(run / run_layout::configuration)) throw FileError(run, "holds no run: no run.json");
    return read_json_object(run / run_layout::configuration);
}

using Tensors = std::map<std::string, std::vector<float>>;

/// The parameters and all else that the last checkpoint of a run on these data has in FP32.
Tensors trained_tensors(const fs::path& run, const Dataset& data) {
    if (const std::string where = difference(read_configuration(run)["data"], data_of(data)); !where.empty())
        throw FileError(run / run_layout::configuration, "was trained on other data (" + where.substr(1) +
                                                             "): give --text, --context, --modulus or --data as then");
    const std::vector<std::int64_t> steps = RunFolder::checkpoints(run);
    if (steps.empty()) throw FileError(run, "holds no checkpoint: train with --checkpoint-every");
    const auto file = RunFolder::open_checkpoint(run, steps.back()).file;
    Tensors values;
    for (std::size_t i = 0; i < file->tensors().size(); ++i) {
        const TensorEntry& entry = file->tensors()[i];
        if (entry.dtype != DType::f32) continue;
        values[entry.name].resize(entry.count);
        file->read_at(i, 0, std::as_writable_bytes(std::span(values[entry.name])));
    }
    return values;
}

/// Those of a published network, whose vocabulary and positions need not all occur in the data.
Tensors published_tensors(const fs::path& path, Dataset& data) {
    PublishedNetwork network = read_published(path);
    if (data.vocabulary == 0 || data.vocabulary > network.vocabulary || data.input[0] > network.context)
        throw FileError(path,
                        fmt::format("reads {} tokens, at most {} at once, not {}, which has {} in sequences of {}",
                                    network.vocabulary, network.context, data.name, data.vocabulary,
                                    fmt::join(data.input, " x ")));
    data.vocabulary = data.classes = network.vocabulary;
    if (const auto positions = network.parameters.find("wpe.weight"); positions != network.parameters.end())
        positions->second.resize(static_cast<std::size_t>(data.input[0] * network.model.width));
    return std::move(network.parameters);
}

/// Copies the values of a tensor to the backend, rounded to its format.
void load(const TrainedNetwork& trained, Cpu& backend, TensorId id) {
    const TensorInfo& info = backend.info(id);
    const std::span<float> to = backend[id];
    const auto values = trained.tensors.find(info.name);
    if (values == trained.tensors.end() || values->second.size() != to.size())
        throw FileError(trained.path, info.name + ": missing or of another shape");
    quantize(info.format, values->second, to);
}

} // namespace

TrainOptions trained_options(const fs::path& run) {
    const FloatEnvironment environment;
    if (is_published(run)) {
        TrainOptions options;
        options.model = read_published_sizes(run).model;
        options.batch = 4; // networks of users are larger than ours
        return options;
    }
    const Json json = read_configuration(run);
    return taken(run / run_layout::configuration, "cannot be read", [&] { return options_of(json); });
}

TrainOptions with_attention(TrainOptions options, const std::string& attention) {
    if (attention.empty()) return options;
    if (!model(options.model.name).reads_tokens)
        throw std::invalid_argument(fmt::format("[serving] attention: a {} has none", options.model.name));
    options.model.attention = op::canonical_attention(attention);
    return options;
}

void export_trained(const fs::path& run, const TrainOptions& options, const Dataset& data, const fs::path& folder) {
    if (is_published(run)) throw FileError(run, "is in Hugging Face's form already: --export takes a run");
    if (!model(options.model.name).reads_tokens)
        throw FileError(run / run_layout::configuration, "a " + options.model.name + " has no Hugging Face form");
    write_published(folder, {options.model, data.vocabulary, data.input[0], trained_tensors(run, data)});
}

TrainedNetwork read_trained(const fs::path& path, const TrainOptions& options, const Dataset& given) {
    const FloatEnvironment environment;
    Dataset data = given;
    Tensors tensors = is_published(path) ? published_tensors(path, data) : trained_tensors(path, data);
    const std::vector<std::int64_t> steps = RunFolder::checkpoints(path);
    return {path, options, std::move(data), std::move(tensors),
            steps.empty() ? std::nullopt : std::optional(steps.back())};
}

void check_precision(const TrainedNetwork& trained, const Precision& precision) {
    TrainOptions options = trained.options;
    options.precision = precision;
    const TrainingProgram own = build_training_program(trained.options, trained.data),
                          other = build_training_program(options, trained.data);
    for (const DelayedScale& d : other.delayed_scales) {
        const auto same = [&](const DelayedScale& o) {
            return own.program[o.scale].name == other.program[d.scale].name && o.rule == d.rule &&
                   own.program[o.history].shape == other.program[d.history].shape && o.most_recent == d.most_recent;
        };
        if (std::ranges::none_of(own.delayed_scales, same))
            throw std::invalid_argument(fmt::format(
                "{}: the training, in {}, left no such delayed scale of {}; expected a precision with current scales",
                precision.name, trained.options.precision.name, other.program[d.scale].name));
    }
}

LoadedNetwork::LoadedNetwork(const TrainedNetwork& trained, const Precision& precision, std::int64_t batch, int threads,
                             const std::string& attention) {
    TrainOptions options = with_attention(trained.options, attention);
    options.precision = precision;
    Graph g(program, with_blocks(options, trained.data));
    network = model(options.model.name).build(g, options.model, trained.data, batch);
    backend = std::make_unique<Cpu>(program, threads);
    backend->context.training = false;
    backend->context.seed = options.seed;
    backend->context.step = static_cast<std::uint32_t>(std::max<std::int64_t>(trained.steps.value_or(0), 1) - 1);
    for (const Parameter& b : g.buffers()) load(trained, *backend, b.weight);
    for (const Parameter& p : g.parameters()) {
        load(trained, *backend, p.weight);
        parameters.push_back(p.weight);
    }
    for (const DelayedScale& d : g.delayed_scales()) {
        load(trained, *backend, d.scale);
        load(trained, *backend, d.history);
    }
}

} // namespace amp
