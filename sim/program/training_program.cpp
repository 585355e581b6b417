#include <ampscope/sim/program/training_program.h>

#include <ampscope/formats/names.h>
#include <ampscope/sim/program/adafactor.h>
#include <ampscope/sim/program/muon.h>

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdexcept>

namespace amp {

namespace {

/// Adds a tensor that no op of the network uses: a total of gradients, or optimizer state.
TensorId add_tensor(Program& p, std::string name, const Shape& shape, const FormatSpec& format, TensorRole role) {
    p.tensors.push_back({.name = std::move(name), .shape = shape, .format = format, .role = role});
    return {static_cast<std::int32_t>(p.tensors.size() - 1)};
}

/// The tensors that forward casts with scales.
std::vector<TensorId> scaled_tensors(const Program& program) {
    std::vector<TensorId> all;
    for (const Instruction& i : program.forward)
        if (const auto* const cast = std::get_if<op::Quantize>(&i.op)) all.push_back(cast->in);
    return all;
}

/// Whether the parameter's tensors are kept under a scale, if any are: with scaling recipes only those of layers that
/// they scale.
bool has_scale(const Program& program, TensorId parameter) {
    const std::vector<TensorId> scaled = scaled_tensors(program);
    return scaled.empty() || std::ranges::find(scaled, parameter) != scaled.end();
}

/// Adds the gradients of several micro-batches and combines those of replicas; with one of each, backward's gradient is
/// used as it is.
void collect_gradient(TrainingProgram& t, const TrainOptions& o, TensorId gradient, ParameterTensors& to) {
    Program& p = t.program;
    const bool scaled = o.all_reduce.scaled && has_scale(p, to.weight);
    if (o.micro_batches == 1 && o.replicas == 1 && !scaled) {
        to.contributions = {gradient};
        to.gradient = gradient;
        return;
    }
    const TensorInfo info = p[gradient];
    for (int r = 0; r < o.replicas; ++r) {
        to.contributions.push_back(
            add_tensor(p, fmt::format("{}.total_{}", info.name, r), info.shape, info.format, TensorRole::gradient));
        p[to.contributions.back()].gradient_of = to.weight;
    }
    p.backward.push_back({op::AccumulateGradient{gradient, to.contributions}, "a gradient has its parameter's format"});
    to.gradient = to.contributions.front();
    if (o.replicas == 1 && !scaled) return;
    to.gradient = add_tensor(p, info.name + ".mean", info.shape, info.format, TensorRole::gradient);
    p[to.gradient].gradient_of = to.weight;
    const AllReduceOptions& all = o.all_reduce;
    const Payload payload{all.scaled && !scaled ? format("fp32") : all.transport, all.blocks};
    p.check.push_back({op::AllReduce{to.contributions, to.gradient, all.order, all.division, payload.format, scaled,
                                     payload.blocks, !o.shard.is_sharded()},
                       fmt::format("{}, sent as {}{}{}", row_of(all.order).name, payload.name(),
                                   scaled ? ", a scale for the tensor of all replicas" : "",
                                   payload.blocks != nullptr ? ", cast for each hop" : "")});
}

/// What is sent of a master weight: the weight itself in its format, or what a cast makes of it, which is then read.
void gather_weight(TrainingProgram& t, const TrainOptions& o, ParameterTensors& to) {
    Program& p = t.program;
    const TensorInfo weight = p[to.weight];
    const Payload payload = o.shard.gather.value_or(Payload{weight.format, nullptr});
    const std::string rule = fmt::format("{}: gathered as {}{}{}", o.shard.row().name, payload.name(),
                                         o.shard.row().weights ? ", for forward and again for backward" : "",
                                         o.shard.row().weights && o.micro_batches > 1 ? " of each micro-batch" : "");
    if (payload.blocks == nullptr && payload.format == weight.format) {
        to.gathered = to.weight;
        p.update.push_back({op::Cast{to.master, to.weight}, rule});
        return;
    }
    const auto tensor = [&](std::string_view what, const Shape& shape, const FormatSpec& f) {
        return add_tensor(p, fmt::format("{}.{}", weight.name, what), shape, f, TensorRole::weight);
    };
    if (payload.blocks == nullptr) {
        to.gathered = tensor("gathered", weight.shape, payload.format);
        p.update.push_back({op::Cast{to.master, to.gathered}, rule});
        p.update.push_back({op::Cast{to.gathered, to.weight}, "computed with in its own format"});
        return;
    }
    const BlockScaling scaling = scaling_of(*payload.blocks);
    const BlockGrid grid = grid_of(scaling, weight.shape);
    op::Quantize cast{.in = to.master,
                      .out = to.gathered = tensor("gathered", weight.shape, scaling.stored()),
                      .scale = tensor("gathered.scale", {grid.down, grid.across}, fp32_format()),
                      .upper = {},
                      .delayed = {},
                      .history = {},
                      .scaling = scaling};
    if (has_upper_scales(scaling.rule)) cast.upper = tensor("gathered.upper_scale", {}, fp32_format());
    p.update.push_back({cast, rule});
    p.update.push_back({op::Dequantize{cast.out, cast.scale, cast.upper, to.weight, scaling}, "as it is read"});
}

void add_clipping(TrainingProgram& t, Tape& tape, double max_norm) {
    for (const ParameterTensors& p : t.parameters) tape.push_back({op::Clip{t.norm, p.gradient, max_norm}, "clipping"});
}

/// Adds the optimizer's state of a parameter and the ops of its step. `hidden`: Muon updates it, not AdamW.
void add_update(TrainingProgram& t, const TrainOptions& o, const Precision& q, ParameterTensors& to, bool hidden) {
    Program& p = t.program;
    const TensorInfo weight = p[to.weight];
    const auto plain_state = [&](std::string_view name, const Shape& shape, const FormatSpec& f) {
        return add_tensor(p, fmt::format("{}.{}", weight.name, name), shape, f, TensorRole::state);
    };
    const auto state = [&](std::string_view name, const FormatSpec& f, const std::optional<ScaledFormat>& scaled) {
        const std::optional<ScaledFormat> held = held_in(scaled, element_count(weight.shape));
        const TensorId id = plain_state(name, weight.shape, held ? fp32_format() : f);
        p[id].scaled_as = held;
        return id;
    };
    const bool orthogonal = facts_of(o.optimizer.kind).orthogonalizes;
    const OptimizerOptions options = orthogonal && !hidden ? o.optimizer.adamw() : o.optimizer;
    if (options.has_m()) to.m = state("m", q.m, q.scaled_state.m);
    if (options.has_v()) to.v = state("v", q.v, q.scaled_state.v);
    if (const bool factors = facts_of(options.kind).factors; factors && weight.shape.size() == 2) {
        to.v = plain_state("row_var", {weight.shape[0]}, q.v);
        to.v_columns = plain_state("col_var", {weight.shape[1]}, q.v);
    } else if (factors) {
        to.v = plain_state("v", weight.shape, q.v);
    }
    if (q.update == UpdateRounding::kahan) to.compensation = state("compensation", weight.format, {});
    op::Update update{.options = options,
                      .rounding = q.update,
                      .random_bits = q.update_random_bits,
                      .weight = to.updated(),
                      .gradient = to.gradient,
                      .m = to.m,
                      .v = to.v,
                      .compensation = to.compensation,
                      .stream = static_cast<std::uint32_t>(&to - t.parameters.data())};
    if (facts_of(options.kind).factors) {
        update.v = {}; // read and written by ops before the update
        append_adafactor(p, update, to.v, to.v_columns);
        return;
    }
    if (!hidden) {
        p.update.push_back({update, orthogonal ? "AdamW: no hidden matrix" : "master weights"});
        return;
    }
    update.m = {}; // read and written by ops before the update
    append_muon(p, update, to.m, q.at("").product(format("bf16"), format("bf16"), false));
}

/// Adds the optimizer's step. Throws if Muon has no matrix to update.
void add_updates(TrainingProgram& t, const TrainOptions& o, const Precision& precision) {
    std::vector<TensorId> hidden;
    if (facts_of(o.optimizer.kind).orthogonalizes) {
        hidden = hidden_matrices(t.program, t.initial);
        if (hidden.empty())
            throw std::invalid_argument(fmt::format(
                "[train] muon: the model {} has no hidden matrix, only such as AdamW updates", o.model.name));
    }
    for (ParameterTensors& parameter : t.parameters)
        add_update(t, o, precision, parameter, std::ranges::find(hidden, parameter.weight) != hidden.end());
}

void check_options(const TrainOptions& o) {
    if (o.batch < 1 || o.micro_batches < 1 || o.replicas < 1)
        throw std::invalid_argument("[train] expected a batch, micro-batches and replicas of at least 1");
    if (!(o.clip >= 0)) throw std::invalid_argument("[train] expected a norm to clip at that is not negative");
    if (!(o.loss_weight > 0) || !std::isfinite(o.loss_weight))
        throw std::invalid_argument("[train] expected a loss weight that is positive and finite");
    const LossScalerOptions& scaler = o.precision.loss_scaler.options;
    check(scaler);
    if (scaler.scaling != LossScaling::off && !scaler.fp16_gradients && o.precision.master == format("fp16"))
        throw std::invalid_argument(fmt::format(
            "[train] {}: gradients are FP16, which torch.amp.GradScaler refuses (\"Attempting to unscale FP16 "
            "gradients.\"): keep master weights in FP32, or take another loss scaler such as apex or none",
            o.precision.name));
}

/// Throws for accumulators that are named but that no product can use, which must be a mistake.
void check_accumulators(const Program& program, const Precision& precision) {
    const auto check = [&](const std::string& of, const std::vector<Accumulator>& named, const Tape& tape) {
        const bool backward = &tape == &program.backward;
        const auto uses = [&](const Instruction& i) {
            return std::ranges::any_of(products_of(i.op), [&](const op::MatmulArithmetic& product) {
                return std::ranges::find(named, product.accumulate) != named.end();
            });
        };
        const bool in_update = std::ranges::any_of(program.update, uses); // Muon's
        if (!named.empty() && !in_update && std::ranges::none_of(tape, uses))
            throw std::invalid_argument(fmt::format(
                "[train] {}: no matrix product of {} has operands that {} takes; accumulate-{} is for {} alone", of,
                backward ? "backward" : "forward", names_of(named), backward ? "forward" : "backward",
                backward ? "forward" : "backward"));
    };
    check(precision.name, precision.accumulators, program.forward);
    check(precision.name, precision.backward_accumulators, program.backward);
    for (const LayerPolicy& policy : precision.layers) {
        const LayerArithmetic layer = precision.at(policy.modules + ".");
        const std::string name = fmt::format("layer {}:{}", policy.modules, policy.text);
        if (layer.accumulators != precision.accumulators) check(name, layer.accumulators, program.forward);
        if (layer.backward_accumulators != precision.backward_accumulators)
            check(name, layer.backward_accumulators, program.backward);
    }
}

/// The modules with parameters, and those that contain such.
std::vector<std::string> modules_of(const Program& program, std::span<const Parameter> parameters) {
    std::vector<std::string> known;
    for (const Parameter& parameter : parameters) {
        const std::string& name = program[parameter.weight].name; // such as h.0.attn.q.weight
        for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
            if (const std::string module = name.substr(0, dot); std::ranges::find(known, module) == known.end())
                known.push_back(module);
    }
    return known;
}

/// Throws for recipes that scale nothing, and for policies of layers that say nothing of this network.
void check_policies(const Program& program, const Precision& precision, std::span<const Parameter> parameters) {
    check_layers(precision, modules_of(program, parameters));
    if (!precision.has_recipe() || !scaled_tensors(program).empty()) return;
    std::vector<std::string> others;
    for (const LayerPolicy& policy : precision.layers) others.push_back(policy.modules);
    throw std::invalid_argument(
        fmt::format("[train] {}: no layer to scale outside {}", precision.name, fmt::join(others, ", ")));
}

/// The scales of delayed scaling follow from the amax of this step and those before it.
void add_scale_updates(TrainingProgram& t, const TrainOptions& o) {
    Program& p = t.program;
    for (const DelayedScale& d : t.delayed_scales) {
        if (!d.reduces_amax) { // each replica has its own scale and history
            p[d.scale].shape = {o.replicas};
            p[d.history].shape = {o.replicas, p[d.history].count()};
        }
        p.check.push_back({op::UpdateScale{d.history, d.scale, d.rule, d.most_recent}, std::string(d.recipe)});
    }
}

/// Between backward and update: gradients are checked, divided by the loss scale, and clipped.
void add_unscaling(TrainingProgram& t, const TrainOptions& o) {
    Program& p = t.program;
    std::vector<TensorId> gradients;
    for (const ParameterTensors& q : t.parameters) gradients.push_back(q.gradient);
    p.check.push_back({op::CheckFinite{gradients}, ""});
    t.norm = add_tensor(p, "gradient_norm", {}, o.precision.master, TensorRole::gradient);
    const op::GlobalNorm norm{gradients, t.norm};
    if (o.clip > 0 && o.clip_before_unscale) {
        p.unscale.push_back({norm, "before unscaling"});
        add_clipping(t, p.unscale, o.clip);
    }
    if (const LossScalerOptions& scaler = o.precision.loss_scaler.options; scaler.scaling != LossScaling::off)
        for (const ParameterTensors& q : t.parameters)
            p.unscale.push_back({op::Unscale{q.gradient, scaler.unscale}, "loss scale"});
    p.unscale.push_back({norm, "after unscaling"});
    if (o.clip > 0 && !o.clip_before_unscale) add_clipping(t, p.update, o.clip);
}

} // namespace

Precision with_blocks(const TrainOptions& o, const Dataset& data) {
    Precision precision = o.precision;
    const auto names_blocks = [](const LayerPolicy& policy) {
        return policy.modules.starts_with("first-") || policy.modules.starts_with("last-");
    };
    if (std::ranges::none_of(precision.layers, names_blocks)) return precision;
    Program names;
    Graph g(names, {});
    model(o.model.name).build(g, o.model, data, o.batch);
    const std::vector<std::string> modules = modules_of(names, g.parameters());
    precision.layers.clear();
    for (const LayerPolicy& policy : o.precision.layers)
        for (const std::string& module : expand_blocks(policy.modules, modules))
            precision.layers.push_back({module, policy.text});
    return precision;
}

BlockGrid grid_of(const BlockScaling& scaling, const Shape& shape) {
    const std::int64_t columns = shape.empty() ? 1 : shape.back();
    return scaling.grid(element_count(shape) / columns, columns);
}

void check_sharding(const TrainOptions& o) {
    check(o.all_reduce);
    const ScaledState& scaled = o.precision.scaled_state;
    const KindFacts kind = facts_of(o.optimizer.kind);
    if (kind.needs_whole() && (o.shard.is_sharded() || scaled.m || scaled.v))
        throw std::invalid_argument(
            fmt::format("[train] {}: {} without scales: {}", kind.name,
                        kind.orthogonalizes ? "makes whole matrices orthogonal, from momentum"
                                            : "adds up squares of whole tensors, in second moments",
                        o.shard.is_sharded() ? "it takes no sharded optimizer" : "not for ms-amp, nor 8-bit state"));
    if (!o.shard.is_sharded()) {
        if (o.shard.gather)
            throw std::invalid_argument("[train] gather_format: it is for sharded optimizers, and shard is none");
        return;
    }
    const std::string_view sharding = o.shard.row().name, order = row_of(o.all_reduce.order).name;
    if (!row_of(o.all_reduce.order).scatters)
        throw std::invalid_argument(fmt::format("[train] {}: {} leaves no chunks with the replicas; those that do: {}",
                                                sharding, order, names_of_orders(&AllReduceRow::scatters)));
    if (o.all_reduce.order == AllReduceOrder::halving_doubling && (o.replicas & (o.replicas - 1)) != 0)
        throw std::invalid_argument(
            fmt::format("[train] {}: of {} replicas, no power of two, {} leaves some without a chunk", sharding,
                        o.replicas, order));
    if (o.all_reduce.scaled || scaled.weight || scaled.m || scaled.v)
        throw std::invalid_argument(fmt::format(
            "[train] {}: tensors whose elements share scales (ms-amp, 8-bit state) are not divided among replicas",
            sharding));
}

std::vector<TensorId> results_of(const TrainingProgram& t, bool recorded) {
    std::vector<TensorId> all = {t.network.outputs, t.network.loss, t.norm};
    for (const ParameterTensors& p : t.parameters) {
        all.push_back(p.gradient);
        all.insert(all.end(), p.contributions.begin(), p.contributions.end());
    }
    for (const auto& [name, id] : t.watched_gradients) all.push_back(id);
    if (!recorded) return all;
    for (const auto& [name, id] : t.watched_activations) all.push_back(id);
    return all;
}

TrainingProgram build_training_program(const TrainOptions& o, const Dataset& data) {
    check_options(o);
    check_sharding(o);
    TrainingProgram t;
    t.all_reduce = o.all_reduce;
    t.shard = o.shard;
    t.replicas = o.replicas;
    t.micro_batches = o.micro_batches;
    Program& p = t.program;
    const Precision precision = with_blocks(o, data);
    Graph g(p, precision);
    t.network = model(o.model.name).build(g, o.model, data, o.batch);
    t.initial = g.parameters();
    t.buffers = g.buffers();
    check_policies(p, precision, t.initial);
    g.differentiate(o.loss_weight == 1 ? t.network.loss : op::scale(g, t.network.loss, o.loss_weight));
    for (const Parameter& parameter : g.parameters()) {
        if (has_scale(p, parameter.weight)) p[parameter.weight].scaled_as = o.precision.scaled_state.weight;
        ParameterTensors tensors{
            .weight = parameter.weight, .contributions = {}, .gradient = {}, .m = {}, .v = {}, .compensation = {}};
        collect_gradient(t, o, g.gradient(parameter.weight), tensors);
        if (o.shard.is_sharded()) {
            const TensorInfo info = p[parameter.weight];
            tensors.master = add_tensor(p, info.name + ".master", info.shape, info.format, TensorRole::state);
        }
        t.parameters.push_back(std::move(tensors));
    }
    for (const Graph::Watched& w : g.watched())
        if (const TensorId gradient = g.gradient(w.activation)) {
            t.watched_activations.emplace_back(w.name + ".out", w.activation);
            if (w.with_gradient) t.watched_gradients.emplace_back(w.name + ".out.grad", gradient);
        }

    t.delayed_scales = g.delayed_scales();
    add_scale_updates(t, o);
    add_unscaling(t, o);
    add_updates(t, o, precision);
    check_accumulators(p, precision);
    t.gathering = p.update.size();
    for (ParameterTensors& parameter : t.parameters)
        if (parameter.master) gather_weight(t, o, parameter);
    return t;
}

} // namespace amp
