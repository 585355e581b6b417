#include <ampscope/sim/program/graph.h>

#include <ampscope/formats/codec.h>

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdexcept>

namespace amp {

namespace {

/// FNV-1a.
std::uint32_t hash_of(std::string_view text) {
    std::uint32_t hash = 0x811c9dc5;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
    return hash;
}

bool is_loss(std::string_view op) { return op == op::CrossEntropy::name || op == op::MseLoss::name; }

} // namespace

void shape_error(std::string_view op, std::string_view expected, const Graph& g, std::initializer_list<TensorId> got) {
    std::vector<std::string> shapes;
    for (const TensorId id : got) shapes.push_back(fmt::format("({})", fmt::join(g[id].shape, ", ")));
    throw std::invalid_argument(fmt::format("[{}] expected {}, got {}", op, expected, fmt::join(shapes, " and ")));
}

Graph::Scope::Scope(Graph& graph, std::string_view name) : graph_(graph), length_(graph.scope_.size()) {
    graph.scope_ += std::string(name) + ".";
}

TensorId Graph::add_tensor(std::string name, Shape shape, const FormatSpec& format, TensorRole role) {
    if (std::ranges::any_of(shape, [](std::int64_t n) { return n < 1; }))
        throw std::invalid_argument(
            fmt::format("[{}] expected extents of at least 1, got ({})", name, fmt::join(shape, ", ")));
    if (const int count = ++names_[name]; count > 1) name += fmt::format("_{}", count);
    program_.tensors.push_back({.name = std::move(name), .shape = std::move(shape), .format = format, .role = role});
    return {static_cast<std::int32_t>(program_.tensors.size() - 1)};
}

TensorId Graph::result(std::string_view op, Shape shape, const FormatSpec& format, TensorRole role) {
    return add_tensor(scope_ + std::string(op), std::move(shape), format, role);
}

TensorId Graph::input(std::string_view name, Shape shape) {
    return result(name, std::move(shape), fp32_format(), TensorRole::input);
}

TensorId Graph::parameter(std::string_view name, Shape shape, Init init) {
    const TensorId id = result(name, std::move(shape), precision_.master, TensorRole::parameter);
    program_[id].needs_gradient = true;
    parameters_.push_back({id, init});
    return id;
}

TensorId Graph::buffer(std::string_view name, Shape shape, Init init) {
    const TensorId id = result(name, std::move(shape), fp32_format(), TensorRole::state);
    buffers_.push_back({id, init});
    return id;
}

TensorId Graph::given(std::string_view name, Shape shape, const FormatSpec& format, bool weight, bool needs_gradient) {
    const TensorId id = result(name, std::move(shape), format, weight ? TensorRole::parameter : TensorRole::activation);
    program_[id].needs_gradient = needs_gradient;
    return id;
}

void Graph::watch(TensorId activation, std::string_view name, bool with_gradient) {
    watched_.push_back({scope_ + std::string(name), activation, with_gradient});
}

void Graph::append(Op op, std::string rule) {
    if (differentiating_) {
        program_.backward.push_back({std::move(op), std::move(rule)});
        return;
    }
    const bool needs = std::ranges::any_of(inputs_of(op), [&](TensorId x) { return needs_gradient(x); });
    for (const TensorId out : outputs_of(op))
        program_[out].needs_gradient = needs && program_[out].role != TensorRole::state;
    program_.forward.push_back({std::move(op), std::move(rule)});
    forward_scopes_.push_back(scope_);
}

TensorId Graph::cast(TensorId x, const FormatSpec& format, std::string rule) {
    if (program_[x].format == format) return x;
    const bool weight = program_[x].role == TensorRole::parameter;
    const std::pair key(x.index, std::string(format.name));
    // Without autocast, one low-precision copy of the weights exists; with it, weight_cache decides.
    const bool caches = weight && (precision_.weight_cache || !precision_.autocast.enabled);
    if (const auto known = weight_casts_.find(key); caches && known != weight_casts_.end()) return known->second;
    const TensorInfo from = program_[x];
    const TensorId out = add_tensor(fmt::format("{}:{}", from.name, format.name), from.shape, format,
                                    weight ? TensorRole::weight : TensorRole::activation);
    append(op::Cast{x, out}, std::move(rule));
    if (caches) weight_casts_[key] = out;
    return out;
}

TensorId Graph::append_view(TensorId x, Shape shape) {
    const TensorInfo from = program_[x];
    const TensorId out = result("view", std::move(shape), from.format,
                                from.role == TensorRole::gradient ? TensorRole::gradient : TensorRole::activation);
    program_[out].storage = from.storage ? from.storage : x;
    append(op::View{x, out}, "the same numbers");
    return out;
}

const std::string& Graph::scope() const { return differentiating_ ? forward_scopes_[differentiated_] : scope_; }

const LayerArithmetic& Graph::arithmetic() {
    const auto known = arithmetics_.find(scope());
    return known != arithmetics_.end() ? known->second
                                       : arithmetics_.emplace(scope(), precision_.at(scope())).first->second;
}

Graph::Plan Graph::plan(std::string_view op, std::vector<TensorId> operands) {
    if (!precision_.autocast.enabled) return plan_uniform(op, std::move(operands));
    Autocast autocast = precision_.autocast;
    std::string where = fmt::format("{} policy", name_of(autocast.policy));
    if (differentiating_ && !precision_.backward_under_autocast) {
        autocast.enabled = false;
        where = "formats of forward";
    } else if (!differentiating_ && arithmetic().autocast_off) {
        autocast.enabled = false;
        where = "autocast off here";
        for (TensorId& x : operands) x = cast(x, fp32_format(), "autocast off here: what enters is cast up");
    }
    std::vector<FormatSpec> given;
    for (const TensorId x : operands) given.push_back(program_[x].format);
    const OpFormats decided = op_formats(autocast, op, given);
    Plan result{.operands = {}, .output = decided.output, .rule = where};
    if (autocast.enabled) result.rule += fmt::format(": {}", name_of(decided.rule));
    for (std::size_t i = 0; i < operands.size(); ++i)
        result.operands.push_back(cast(operands[i], decided.inputs[i], fmt::format("{}, for {}", result.rule, op)));
    return result;
}

Graph::Plan Graph::plan_uniform(std::string_view op, std::vector<TensorId> operands) {
    if (differentiating_) return {std::move(operands), precision_.gradients, "gradients"};
    for (TensorId& x : operands) {
        if (program_[x].role == TensorRole::parameter) x = cast(x, precision_.weights, "weights");
        else if (program_[x].role == TensorRole::input) x = cast(x, precision_.activations, "activations");
    }
    return {std::move(operands), is_loss(op) ? precision_.loss : precision_.activations,
            is_loss(op) ? "loss" : "activations"};
}

/// Streams are hashes of what is cast, so that the same layer has the same stream in any program.
std::uint32_t Graph::stream_of(OperandRole role, const BlockScaling& blocks) {
    const std::string name = fmt::format("{}{}:{}x{}", scope(), static_cast<int>(role), blocks.rows, blocks.columns);
    return hash_of(fmt::format("{}:{}", name, streams_[name]++));
}

op::Quantize Graph::append_cast(TensorId source, OperandRole role, const OperandScaling& operand,
                                const BlockScaling& blocks, const ScalingRecipe* recipe) {
    const TensorInfo from = program_[source];
    const std::int64_t columns = from.shape.back();
    const BlockGrid grid = blocks.grid(from.count() / columns, columns);
    const TensorRole kind = role == OperandRole::weight     ? TensorRole::weight
                            : role == OperandRole::gradient ? TensorRole::gradient
                                                            : TensorRole::activation;
    const auto tensor = [&](std::string_view what, Shape shape, const FormatSpec& f, TensorRole of) {
        return add_tensor(fmt::format("{}{}", from.name, what), std::move(shape), f, of);
    };
    op::Quantize op{.in = source,
                    .out = tensor(fmt::format(":{}", operand.element.name), from.shape, blocks.stored(), kind),
                    .scale = tensor(".scale", {grid.down, grid.across}, fp32_format(), kind),
                    .upper = {},
                    .delayed = {},
                    .history = {},
                    .scaling = blocks,
                    .rounding = operand.rounding,
                    .random_bits = operand.random_bits};
    if (has_upper_scales(blocks.rule)) {
        const Shape lines = blocks.upper.lines() ? Shape{blocks.upper_count(from.count() / columns, columns)} : Shape{};
        op.upper = tensor(".upper_scale", lines, fp32_format(), kind);
    }
    if (op.rounding == Rounding::stochastic || blocks.rule == ScaleRule::ms_eden) op.stream = stream_of(role, blocks);
    const bool delayed = recipe != nullptr && recipe->delayed();
    if (delayed) {
        op.rule = {.max = decode(operand.element, operand.element.max_code()),
                   .margin = recipe->margin,
                   .ms_amp = recipe->ms_amp};
        op.delayed = tensor(".delayed_scale", {}, fp32_format(), TensorRole::state);
        op.history = tensor(".amax_history", {recipe->history}, fp32_format(), TensorRole::state);
        delayed_scales_.push_back(
            {op.delayed, op.history, op.rule, recipe->most_recent, recipe->reduces_amax, recipe->name});
    }
    append(op, fmt::format("{}{}", delayed ? "delayed, " : "", name_of(blocks.rule)));
    return op;
}

Graph::Scaled Graph::scaled(TensorId source, OperandRole role, bool sums_rows) {
    return scaled(source, role, sums_rows, differentiating_);
}

Graph::Scaled Graph::scaled(TensorId source, OperandRole role, bool sums_rows, bool in_backward) {
    const ScalingRecipe& recipe = *arithmetic().scaling;
    const OperandScaling& operand = recipe.operand(role, in_backward);
    const bool again = in_backward && operand.requantizes && role != OperandRole::gradient;
    auto same = std::ranges::find(recipes_, recipe);
    if (same == recipes_.end()) same = recipes_.insert(same, recipe);
    const CastKey key{same - recipes_.begin(), operand.blocks(sums_rows), again, recipe.rotates(role, sums_rows)};
    const auto& known = scaled_[source.index];
    const auto found = std::ranges::find(known, key, &std::pair<CastKey, Scaled>::first);
    if (found != known.end()) return found->second;
    TensorId from = again ? restored(source, role, program_[source].format) : source;
    if (key.rotates) from = rotated(from, recipe.rotation, !sums_rows);
    const op::Quantize op = append_cast(from, role, operand, key.blocks, &recipe);
    const Scaled result{op.out, {op.scale, op.upper, key.blocks}};
    scaled_[source.index].emplace_back(key, result);
    scaled_sources_[op.out.index] = {source, role};
    return result;
}

TensorId Graph::restored(TensorId source, OperandRole role, const FormatSpec& format) {
    const Scaled narrow = scaled(source, role, false, false);
    const TensorInfo from = program_[source];
    const TensorId out = add_tensor(from.name + ":restored", from.shape, format, from.role);
    append(op::Dequantize{narrow.tensor, narrow.scale.scale, narrow.scale.upper, out, narrow.scale.scaling},
           "what forward has read");
    return out;
}

TensorId Graph::rotated(TensorId x, const Rotation& rotation, bool along_columns) {
    const TensorInfo from = program_[x];
    const TensorId out =
        add_tensor(from.name + ".hadamard", from.shape, rotation.wide ? fp32_format() : from.format, from.role);
    append(op::Hadamard{.in = x,
                        .out = out,
                        .size = rotation.size,
                        .along_columns = along_columns,
                        .draws_signs = rotation.draws_signs,
                        .stream = rotation.draws_signs ? hash_of(scope() + "hadamard") : 0},
           fmt::format("spreads outliers, {}", rotation.name));
    return out;
}

TensorId Graph::through(const std::optional<OperandScaling>& narrow, TensorId x) {
    if (!narrow) return x;
    const bool weight = program_[x].role == TensorRole::parameter;
    if (weight && !precision_.autocast.enabled) x = cast(x, precision_.weights, "weights");
    const op::Quantize op =
        append_cast(x, weight ? OperandRole::weight : OperandRole::input, *narrow, narrow->blocks(false), nullptr);
    const TensorInfo from = program_[x];
    const TensorId out = add_tensor(from.name + ":restored", from.shape, from.format,
                                    weight ? TensorRole::weight : TensorRole::activation);
    append(op::Dequantize{op.out, op.scale, op.upper, out, op.scaling}, "computed with in its own format");
    return out;
}

FormatSpec Graph::gradient_format(TensorId x) const {
    if (wide_gradients_.contains(x.index)) return fp32_format();
    const TensorInfo& info = (*this)[x];
    const bool own = precision_.autocast.enabled || info.role == TensorRole::parameter ||
                     (info.shape.empty() && info.role == TensorRole::activation);
    return own ? info.format : precision_.gradients;
}

TensorId Graph::gradient(TensorId of) const {
    const auto found = gradients_.find(of.index);
    return found == gradients_.end() ? TensorId{} : found->second;
}

TensorId Graph::new_gradient(TensorId x) {
    if (!needs_gradient(x)) return {};
    const TensorInfo of = program_[x];
    const TensorId out = add_tensor(of.name + ".grad", of.shape, gradient_format(x), TensorRole::gradient);
    program_[out].gradient_of = x;
    return out;
}

void Graph::contribute(TensorId x, TensorId contribution) {
    if (!needs_gradient(x)) return;
    if (const FormatSpec f = gradient_format(x); program_[contribution].format != f) {
        const TensorId rounded = new_gradient(x);
        append(op::Cast{contribution, rounded}, "a gradient has its tensor's format");
        contribution = rounded;
    }
    const auto [known, first] = gradients_.try_emplace(x.index, contribution);
    if (first) return;
    const TensorId sum = new_gradient(x);
    append(op::Add{known->second, contribution, sum}, "sum of the gradients of all uses");
    known->second = sum;
}

void Graph::differentiate(TensorId loss) {
    if (!program_[loss].shape.empty()) shape_error("differentiate", "a scalar loss", *this, {loss});
    if (!needs_gradient(loss)) throw std::invalid_argument("[differentiate] the loss depends on no parameter");
    differentiating_ = true;
    const TensorId seed = new_gradient(loss);
    append(op::LossGradient{seed}, "loss scale in the format of the loss");
    gradients_[loss.index] = seed;
    append_gradients();
}

TensorId Graph::differentiate_from(TensorId result) {
    differentiating_ = true;
    const TensorId seed = new_gradient(result);
    gradients_[result.index] = seed;
    append_gradients();
    return seed;
}

void Graph::append_gradients() {
    for (std::size_t i = program_.forward.size(); i-- > 0;) {
        differentiated_ = i;
        const Op op = program_.forward[i].op; // a copy: tapes grow
        const std::vector<TensorId> outputs = outputs_of(op);
        if (std::ranges::none_of(outputs, [&](TensorId out) { return gradient(out) && needs_gradient(out); })) continue;
        std::visit(
            [&](const auto& o) {
                if constexpr (requires { backward(*this, o); }) backward(*this, o);
                else throw std::logic_error(fmt::format("[{}] has no gradient", o.name));
            },
            op);
    }
    differentiating_ = false;
}

} // namespace amp
