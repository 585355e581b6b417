#include <ampscope/sim/train/serving.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/train/published.h>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace amp {

namespace {

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

ServedResult evaluate_one(std::string name, const TrainedNetwork& trained, const Serving& serving,
                          const std::string& attention, int threads) {
    const std::int64_t batch = trained.options.batch;
    const Precision precision = served_precision(trained.options.precision, serving);
    LoadedNetwork loaded(trained, precision, batch, threads, attention);
    const Program& program = loaded.program;
    const FormatSpec served = precision.autocast.enabled ? precision.autocast.low : precision.weights;
    ServedResult result{.name = std::move(name)};
    for (const TensorId p : loaded.parameters) result.weight_bytes += bytes_of(program, p, served);
    for (const TensorId t : loaded.network.kv_cache)
        result.kv_bytes_per_token +=
            bytes_of(program, t, program[t].format) / static_cast<double>(batch * element_count(trained.data.input));
    result.validation = evaluate_network(*loaded.backend, loaded.network, trained.data, batch);
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

Precision served_precision(const Precision& trained, const Serving& serving) {
    Precision precision = trained;
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
    return precision;
}

Precision with_serving(const Precision& precision, const Serving& serving) {
    if (serving.weights || serving.activations) return served_precision(precision, serving);
    Precision served = precision;
    served.serving = serving;
    return served;
}

void check_serving(const std::filesystem::path& trained, const TrainOptions& options, const Serving& serving) {
    if (serving.kv_cache && !model(options.model.name).reads_tokens)
        throw FileError(is_published(trained) ? trained : trained / run_layout::configuration,
                        "a " + options.model.name + " has no cache of keys and values");
}

std::vector<ServedResult> evaluate_served(const TrainedNetwork& trained, const Serving& serving,
                                          const std::string& attention, int threads) {
    const FloatEnvironment environment;
    std::vector<ServedResult> results;
    const auto add = [&](std::string name, const Serving& s, const std::string& tiles = {}) {
        results.push_back(evaluate_one(std::move(name), trained, s, tiles, threads));
    };
    add("as trained", {});
    if (!attention.empty()) add("attention " + attention, {}, attention);
    if (serving.weights) add("weights", {.weights = serving.weights});
    if (serving.activations) add("activations", {.activations = serving.activations});
    if (serving.kv_cache) add("KV cache", {.kv_cache = serving.kv_cache});
    if (results.size() > 2) add("all", serving, attention);
    return results;
}

} // namespace amp
