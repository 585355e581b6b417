#include <ampscope/sim/train/serving.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/tensor_file.h>
#include <ampscope/sim/train/configuration.h>
#include <ampscope/sim/train/published.h>
#include <ampscope/sim/train/run_folder.h>

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <stdexcept>

namespace amp {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json read_configuration(const fs::path& run) {
    if (!fs::exists(run / run_layout::configuration)) throw FileError(run, "holds no run: no run.json");
    return read_json_object(run / run_layout::configuration);
}

using Parameters = std::map<std::string, std::vector<float>>;

/// The parameters and running statistics by name, read from the last checkpoint of a run on these data.
Parameters trained_parameters(const fs::path& run, const Dataset& data) {
    if (const std::string where = difference(read_configuration(run)["data"], data_of(data)); !where.empty())
        throw FileError(run / run_layout::configuration, "was trained on other data (" + where.substr(1) +
                                                             "): give --text, --context, --modulus or --data as then");
    const std::vector<std::int64_t> steps = RunFolder::checkpoints(run);
    if (steps.empty()) throw FileError(run, "holds no checkpoint: train with --checkpoint-every");
    const auto file = RunFolder::open_checkpoint(run, steps.back()).file;
    Parameters values;
    for (std::size_t i = 0; i < file->tensors().size(); ++i) {
        const TensorEntry& entry = file->tensors()[i];
        if (entry.dtype != DType::f32) continue;
        values[entry.name].resize(entry.count);
        file->read_at(i, 0, std::as_writable_bytes(std::span(values[entry.name])));
    }
    return values;
}

/// Those of a published network, whose vocabulary and positions need not all occur in the data.
Parameters published_parameters(const fs::path& path, Dataset& data) {
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

/// The bytes of a tensor in its own format, or in the format it is cast to.
double bytes_of(const Program& p, TensorId id, const FormatSpec& own) {
    const auto cast_of = [&](const Instruction& i) {
        const auto* const q = std::get_if<op::Quantize>(&i.op);
        return q != nullptr && q->in == id;
    };
    const auto found = std::ranges::find_if(p.forward, cast_of);
    if (found == p.forward.end()) return static_cast<double>(p[id].count() * own.bits()) / 8;
    const auto& q = std::get<op::Quantize>(found->op);
    const int bits = q.scaling.element.bits(), zero_point = q.scaling.rule == ScaleRule::affine ? bits : 0;
    return static_cast<double>(p[id].count() * bits) / 8 +
           (q.scaling.rule == ScaleRule::one ? 0.0 : static_cast<double>(p[q.scale].count() * (32 + zero_point)) / 8);
}

ServedResult evaluate_one(std::string name, const TrainOptions& o, const Serving& serving, const Dataset& data,
                          const Parameters& parameters, const fs::path& run, int threads) {
    Precision precision = o.precision;
    precision.scaling.reset();
    precision.serving = serving;
    precision.accumulators.push_back(accumulator("int32")); // for products of two integers
    precision.serving.replaces_recipes = true;
    if (serving.weights && serving.activations) { // a product of two narrow operands
        precision.scaling = ScalingRecipe{.name = "served",
                                          .source = "",
                                          .shapes = ShapeRule::any,
                                          .input = *serving.activations,
                                          .weight = *serving.weights};
        precision.serving.weights.reset();
        precision.serving.activations.reset();
    }
    Program program;
    Graph g(program, precision);
    const Network network = model(o.model.name).build(g, o.model, data, o.batch);
    Cpu cpu(program, threads);
    cpu.context.training = false;
    const FormatSpec served = precision.autocast.enabled ? precision.autocast.low : precision.weights;
    ServedResult result{.name = std::move(name)};
    const auto load = [&](TensorId id) {
        const TensorInfo& info = program[id];
        const auto values = parameters.find(info.name);
        if (values == parameters.end() || values->second.size() != cpu[id].size())
            throw FileError(run, info.name + ": missing or of another shape");
        std::ranges::copy(values->second, cpu[id].begin());
    };
    for (const Parameter& b : g.buffers()) load(b.weight);
    for (const Parameter& p : g.parameters()) {
        load(p.weight);
        result.weight_bytes += bytes_of(program, p.weight, served);
    }
    for (const TensorId t : network.kv_cache)
        result.kv_bytes_per_token +=
            bytes_of(program, t, program[t].format) / static_cast<double>(o.batch * element_count(data.input));
    result.validation = evaluate_network(cpu, network, data, o.batch);
    return result;
}

} // namespace

OperandScaling served_scaling(Served what, std::string_view text) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const std::string_view own = what == Served::weights ? "channel" : "token";
    const std::string_view shares =
        colon == text.size() ? what == Served::kv_cache ? "tensor" : own : text.substr(colon + 1);
    const std::string_view name = text.substr(0, colon);
    const auto row = std::ranges::find(block_formats, name, &BlockSpec::name);
    OperandScaling scaling{.element = row == block_formats.end() ? format(name) : row->element};
    if (scaling.element.bits() > 8 || scaling.element.is_scale())
        throw std::invalid_argument(fmt::format("'{}': expected a format of at most 8 bits", text));
    if (row != block_formats.end()) {
        if (scale_format(row->rule) != format("fp32"))
            throw std::invalid_argument(fmt::format("'{}': what is served has scales in FP32", text));
        scaling.rule = row->rule;
        scaling.along = row->columns;
        scaling.across = row->rows;
        if (colon == text.size()) return scaling;
    }
    if (shares.find('x') != std::string_view::npos) set_block(scaling, shares);
    else if (shares == own) scaling.across = 1;
    else if (shares == "one") scaling.rule = ScaleRule::one;
    else if (shares != "tensor")
        throw std::invalid_argument(
            fmt::format("'{}': expected tensor, {}, one or a block such as 1x32 after the colon", text, own));
    return scaling;
}

TrainOptions trained_options(const fs::path& run) {
    const FloatEnvironment environment;
    if (is_published(run)) {
        TrainOptions options;
        options.model = read_published(run).model;
        options.batch = 4; // networks of users are larger than ours
        return options;
    }
    const Json json = read_configuration(run);
    return taken(run / run_layout::configuration, "cannot be read", [&] { return options_of(json); });
}

void export_trained(const fs::path& run, const TrainOptions& options, const Dataset& data, const fs::path& folder) {
    if (is_published(run)) throw FileError(run, "is in Hugging Face's form already: --export takes a run");
    if (!model(options.model.name).reads_tokens)
        throw FileError(run / run_layout::configuration, "a " + options.model.name + " has no Hugging Face form");
    write_published(folder, {options.model, data.vocabulary, data.input[0], trained_parameters(run, data)});
}

std::vector<ServedResult> evaluate_served(const fs::path& run, const TrainOptions& options, const Dataset& given,
                                          const Serving& serving, int threads) {
    const FloatEnvironment environment;
    if (serving.kv_cache && !model(options.model.name).reads_tokens)
        throw FileError(is_published(run) ? run : run / run_layout::configuration,
                        "a " + options.model.name + " has no cache of keys and values");
    Dataset data = given;
    const Parameters parameters = is_published(run) ? published_parameters(run, data) : trained_parameters(run, data);
    std::vector<ServedResult> results;
    const auto add = [&](std::string name, const Serving& s) {
        results.push_back(evaluate_one(std::move(name), options, s, data, parameters, run, threads));
    };
    add("as trained", {});
    if (serving.weights) add("weights", {.weights = serving.weights});
    if (serving.activations) add("activations", {.activations = serving.activations});
    if (serving.kv_cache) add("KV cache", {.kv_cache = serving.kv_cache});
    if (results.size() > 2) add("all", serving);
    return results;
}

} // namespace amp
