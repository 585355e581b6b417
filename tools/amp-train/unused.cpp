#include <ampscope/tools/amp-train/unused.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <fmt/format.h>

namespace amp::train_tool {

namespace {

/// Whether the user has said it, on the command line or in a file.
bool is_given(const CLI::App& app, const std::string& option) { return app.get_option(option)->count() > 0; }

/// Throws std::invalid_argument for an option that `mode` leaves without effect.
void refuse(const CLI::App& app, std::string_view mode, std::initializer_list<const char*> others) {
    for (const char* option : others)
        if (is_given(app, option)) throw std::invalid_argument(fmt::format("{} has no effect with {}", option, mode));
}

void check_evaluation(const CLI::App& app) {
    constexpr std::string_view used[] = {"--evaluate", "--export",        "--weights-as", "--activations-as",
                                         "--kv-cache", "--text",          "--context",    "--modulus",
                                         "--data",     "--json",          "--threads",    "--config",
                                         "--against",  "--against-batch", "--worst",      "--attention"};
    const bool compares = is_given(app, "--against"); // with training in --precision, if that is given
    for (const CLI::Option* option : app.get_options())
        if (option->count() > 0 && std::ranges::find(used, option->get_name()) == std::end(used) &&
            !(compares && option->get_name() == "--precision"))
            throw std::invalid_argument(fmt::format("{} has no effect with --evaluate", option->get_name()));
}

} // namespace

void refuse_reports(const CLI::App& app, const char* mode) {
    refuse(app, mode, {"--record", "--json", "--reference", "--departure", "--profile"});
}

void refuse_unused(const CLI::App& app, const TrainToolOptions& options) {
    if (!options.evaluate.empty()) check_evaluation(app);
    if (options.explain) refuse_reports(app, "--explain");
    if (options.memory) refuse_reports(app, "--memory");
    if (options.experiment.record_every == 0)
        refuse(app, "--record-every 0", {"--record-activations", "--record-replicas", "--record-state"});
}

void note_unused(const CLI::App& app, TrainToolOptions& options) {
    const auto some = [&](const auto& uses) { return std::ranges::any_of(options.runs, uses); };
    const TrainOptions& first = options.runs.front();
    const bool decoder = model(first.model.name).reads_tokens;
    const KindFacts optimizer = facts_of(first.optimizer.kind);
    struct Use {
        bool used;
        std::string_view by;
        std::initializer_list<const char*> options;
    };
    const Use uses[] = {
        {decoder,
         "--model gpt or llama",
         {"--heads", "--norm", "--norm-eps", "--tied", "--attention", "--fused-projections"}},
        {first.model.name == "llama", "--model llama", {"--kv-heads", "--hidden", "--rope-theta"}},
        {first.model.name == "resnet", "--model resnet", {"--norm-groups"}},
        {decoder && options.text.empty() && options.npz.empty(),
         "--model gpt or llama without --text or --data",
         {"--modulus"}},
        {decoder && !(options.text.empty() && options.npz.empty()), "--text, or --data of tokens", {"--context"}},
        {first.model.name != "linear",
         "a model with hidden layers",
         {"--width", "--depth", "--activation", "--dropout"}},
        {optimizer.has_momentum, "--optimizer sgd or muon", {"--momentum"}},
        {optimizer.has_betas || optimizer.orthogonalizes, "Adam and Lion", {"--beta1", "--beta2"}},
        {optimizer.has_v || optimizer.needs_whole(), "Adam and Adafactor", {"--eps"}},
        {optimizer.orthogonalizes, "--optimizer muon", {"--adamw-lr"}},
        {first.clip > 0, "--clip above 0", {"--clip-before-unscale"}},
        {first.replicas > 1, "--replicas above 1", {"--all-reduce", "--divide"}},
        {first.replicas > 1 || first.all_reduce.scaled, "--replicas above 1", {"--all-reduce-format"}},
        {first.replicas > 1 || first.shard.gather, "--replicas above 1, or --gather-format", {"--shard"}},
        {some([](const TrainOptions& o) { return o.precision.loss_scaler.options.scaling != LossScaling::off; }),
         "a precision with a loss scaler",
         {"--loss-scale", "--init-scale", "--unscale-late"}},
        {some([](const TrainOptions& o) { return o.precision.loss_scaler.options.scaling == LossScaling::dynamic; }),
         "a precision with a dynamic loss scaler",
         {"--growth-factor", "--backoff-factor", "--growth-interval", "--hysteresis"}},
        {some([](const TrainOptions& o) { return o.precision.autocast.enabled; }),
         "a precision with autocast",
         {"--autocast-policy", "--autocast-off", "--no-weight-cache", "--backward-under-autocast"}},
        {some([](const TrainOptions& o) { return o.precision.has_recipe(); }),
         "a precision with a scaling recipe",
         {"--scaling-off"}},
    };
    for (const Use& use : uses)
        for (const char* option : use.options)
            if (!use.used && is_given(app, option))
                options.notes.push_back(fmt::format("{} has no effect: it is for {}", option, use.by));
}

} // namespace amp::train_tool
