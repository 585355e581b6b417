#include <ampscope/tools/amp-train/serving_options.h>

#include <ampscope/tools/command_line.h>

#include <fmt/format.h>

#include <stdexcept>

namespace amp::train_tool {

void add_serving_options(CLI::App& app, ServingWords& w, TrainToolOptions& options) {
    constexpr const char* group = "A trained network as it is served";
    app.add_option("--evaluate", options.evaluate,
                   "Folder of a run with checkpoints, or of a llama or gpt2 in Hugging Face's form: print the loss and "
                   "bytes of the network as served; train nothing")
        ->group(group);
    app.add_option("--export", options.exported,
                   "Write the decoder of the run that --evaluate names to this folder, in Hugging Face's form")
        ->group(group);
    app.add_option("--weights-as", w.weights_as,
                   "Format of weights, and what shares a scale: e4m3:channel (default), :tensor or a block, int4:1x64; "
                   "or a block format with FP32 scales: int8-row, int4-affine-1x128, int4-affine-1x128:1x32 ...")
        ->group(group);
    app.add_option("--activations-as", w.activations_as, "The same for activations: e4m3:token (default) or :tensor")
        ->group(group);
    app.add_option("--kv-cache", w.kv_cache,
                   "The same for keys and values: e4m3:tensor (default), :token, or :one for no scale")
        ->group(group);
    CLI::Option* const against =
        app.add_option(
               "--against", w.against,
               "Compare the probabilities of serving in these precisions, and in the formats above, with those of "
               "training (the run's own, or --precision); as-trained, or as-trained,key=value: that of training")
            ->group(group);
    app.add_option("--against-batch", options.against_batch,
                   "Examples that serving computes at once, a divisor of training's batch; default: the same")
        ->transform(whole_number(1, 1 << 20))
        ->needs(against)
        ->group(group);
    app.add_option("--worst", options.worst, "Ops that are listed of those that differ; 0: all; default 10")
        ->transform(whole_number(0, 1 << 30))
        ->needs(against)
        ->group(group);
}

void interpret_serving(const CLI::App& app, const ServingWords& w, const PrecisionWords& precisions,
                       const std::string& attention, TrainToolOptions& options) {
    const auto served = [&](const char* option, Served what, std::string_view name, const std::string& text) {
        if (text.empty()) return std::optional<OperandScaling>();
        options.serving_words += fmt::format(", {} {}", name, text);
        return of_option(option, [&] { return std::optional(served_scaling(what, text)); });
    };
    options.serving.weights = served("--weights-as", Served::weights, "weights", w.weights_as);
    options.serving.activations = served("--activations-as", Served::activations, "activations", w.activations_as);
    options.serving.kv_cache = served("--kv-cache", Served::kv_cache, "KV cache", w.kv_cache);
    if (app.count("--attention") > 0 && !options.evaluate.empty()) {
        options.attention = of_option("--attention", [&] { return op::canonical_attention(attention); });
        options.serving_words += fmt::format(", attention {}", options.attention);
    }
    const bool any = options.serving.weights || options.serving.activations || options.serving.kv_cache ||
                     !options.attention.empty();
    options.against = precision_texts("--against", w.against);
    if ((any || !options.against.empty() || !options.exported.empty()) == options.evaluate.empty())
        throw std::invalid_argument(
            "--evaluate goes with --weights-as, --activations-as, --kv-cache, --attention, --against or --export");
    for (const std::string& text : options.against) // throws here, before anything is read
        if (!begins_as_trained(text)) of_option("--against", [&] { static_cast<void>(precision(text)); });
    if (!options.against.empty() && app.count("--precision") > 0) {
        const std::vector<Precision> training = precisions_of(precisions);
        if (training.size() > 1) throw std::invalid_argument("--precision: --against compares with one precision");
        options.trained_as = training.front();
    }
}

} // namespace amp::train_tool
