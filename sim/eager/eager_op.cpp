#include <ampscope/sim/eager/eager_op.h>

#include <ampscope/formats/environment.h>
#include <ampscope/formats/names.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/backend/kernels/quantize.h>
#include <ampscope/sim/base/batch.h>
#include <ampscope/sim/eager/schedule.h>
#include <ampscope/sim/program/memory_plan.h>

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <set>
#include <stdexcept>

namespace amp {

namespace {

using Ids = std::span<const TensorId>;
using Settings = const EagerSettings&;
using op::ActivationKind;

template <ActivationKind kind>
TensorId apply(Graph& g, Ids in, Settings) {
    return op::activation(g, kind, in[0]);
}

constexpr EagerRow table[] = {
    {"linear", 3, 0, "x W^T + bias over the last axis of x: x, weight (OUT x IN), bias or none",
     [](Graph& g, Ids in, Settings) { return op::linear(g, in[0], in[1], in[2]); }, true},
    {"conv2d", 3, 9,
     "a convolution: images (N x H x W x C), weight (OUT x KERNEL ROWS * KERNEL COLUMNS * C / GROUPS), bias or none; "
     "kernel, stride, padding and dilation down, the same across, and groups",
     [](Graph& g, Ids in, Settings s) {
         const auto n = [&](std::size_t i) { return static_cast<std::int64_t>(s[i]); };
         return op::conv2d(g, in[0], in[1], in[2], {n(0), n(1), n(2), n(3)}, {n(4), n(5), n(6), n(7)}, n(8));
     },
     true},
    {"matmul", 3, 0, "a b + bias for each matrix of a batch: ... x M x K and ... x K x N, bias (N) or none",
     [](Graph& g, Ids in, Settings) { return op::matmul(g, in[0], in[1], false, in[2]); }, true},
    {"matmul-transposed", 3, 0,
     "a b^T + bias for each matrix of a batch: ... x M x K and ... x N x K, bias (N) or none",
     [](Graph& g, Ids in, Settings) { return op::matmul(g, in[0], in[1], true, in[2]); }, true},
    {"fused", 4, 2,
     "attention in tiles, with a text as op::attention_options() reads it: q, k, v, mask or none; scale, whether "
     "causal",
     [](Graph& g, Ids in, Settings s) {
         return op::fused_attention(g, in[0], in[1], in[2], s[0], s[1] != 0, *op::attention_options(s.text), in[3]);
     },
     true},
    {"add", 2, 0, "a + b, whose shape ends a's", [](Graph& g, Ids in, Settings) { return op::add(g, in[0], in[1]); }},
    {"mul", 2, 0, "a b, whose shape ends a's", [](Graph& g, Ids in, Settings) { return op::mul(g, in[0], in[1]); }},
    {"scale", 1, 1, "x times a number", [](Graph& g, Ids in, Settings s) { return op::scale(g, in[0], s[0]); }},
    {"relu", 1, 0, "max(x, 0)", &apply<ActivationKind::relu>},
    {"gelu", 1, 0, "x Phi(x)", &apply<ActivationKind::gelu>},
    {"gelu_tanh", 1, 0, "the approximation of gelu by tanh", &apply<ActivationKind::gelu_tanh>},
    {"tanh", 1, 0, "tanh(x)", &apply<ActivationKind::tanh>},
    {"sigmoid", 1, 0, "1 / (1 + exp(-x))", &apply<ActivationKind::sigmoid>},
    {"silu", 1, 0, "x sigmoid(x)", &apply<ActivationKind::silu>},
    {"softmax", 1, 0, "over the last axis", [](Graph& g, Ids in, Settings) { return op::softmax(g, in[0]); }},
    {"layer_norm", 3, 1, "over the last axis: x, weight, bias or none; eps",
     [](Graph& g, Ids in, Settings s) { return op::layer_norm(g, in[0], in[1], in[2], s[0]); }},
    {"rms_norm", 2, 1, "over the last axis: x, weight; eps",
     [](Graph& g, Ids in, Settings s) { return op::rms_norm(g, in[0], in[1], s[0]); }},
    {"group_norm", 3, 2, "N x C x ..., over each sample's groups of channels: x, weight, bias or none; groups, eps",
     [](Graph& g, Ids in, Settings s) {
         return op::group_norm(g, in[0], in[1], in[2], static_cast<std::int64_t>(s[0]), s[1]);
     }},
    {"embedding", 2, 0, "rows of a table (ENTRIES x WIDTH), by their numbers",
     [](Graph& g, Ids in, Settings) { return op::embedding(g, in[0], in[1]); }},
    {"cross_entropy", 2, 2,
     "the mean over rows of logits of -log softmax at their target; below 0: a row without one; label smoothing and "
     "the factor of the z-loss",
     [](Graph& g, Ids in, Settings s) {
         return op::cross_entropy(g, in[0], in[1], {s[0], s[1], true}); // the caller's function knows no evaluation
     }},
    {"mse_loss", 2, 0, "the mean of (x - target)^2",
     [](Graph& g, Ids in, Settings) { return op::mse_loss(g, in[0], in[1]); }},
};

/// The precision for a call whose operands have their formats already, as autocast or the user gave them.
Precision as_given(Precision p, const FormatSpec& operands, const FormatSpec& result) {
    p.autocast.enabled = false;
    p.weights = p.gradients = operands == fp32_format() ? result : operands; // FP32 is cast with scales as it is
    p.activations = p.loss = result;
    p.serving = {};
    return p;
}

/// Memory for tensors that live as long as a call. It grows to what the largest call of the thread needs.
std::span<float> scratch_memory(std::size_t count) {
    thread_local std::vector<float> memory;
    if (memory.size() < count) memory = std::vector<float>(count);
    return memory;
}

/// The results of a tape's casts with scales, and whose they are.
std::vector<std::pair<TensorId, OperandRole>> casts_in(const Graph& g, const Tape& tape) {
    std::vector<std::pair<TensorId, OperandRole>> casts;
    for (const Instruction& i : tape)
        if (const auto* const cast = std::get_if<op::Quantize>(&i.op))
            casts.emplace_back(cast->out, g.source_of(cast->out).role);
    return casts;
}

} // namespace

std::span<const EagerRow> eager_ops() { return table; }

void EagerState::advance() {
    for (EagerScale& s : scales)
        kernels::update_scale(s.rule, s.most_recent, s.history.data(), static_cast<std::int64_t>(s.history.size()),
                              s.scale[0]);
}

EagerOp::EagerOp(std::string_view op, const Precision& precision, std::string_view layer,
                 std::span<const EagerOperand> operands, const FormatSpec& result, std::span<const double> settings) {
    constexpr std::string_view with_text = "fused"; // and its options after a colon
    const bool has_text = op.starts_with(with_text) && op.substr(with_text.size()).starts_with(':');
    const EagerRow& row = find_row("op", table, has_text ? with_text : op);
    if (operands.size() != row.operands || settings.size() != row.settings)
        throw std::invalid_argument(fmt::format("[{}] expected {} operands and {} settings, got {} and {}", op,
                                                row.operands, row.settings, operands.size(), settings.size()));
    Graph g(program_, as_given(precision, operands[0].format, result));
    const Graph::Scope scope = g.scope(layer);
    for (const EagerOperand& o : operands)
        operands_.push_back(o.absent ? TensorId{} : g.given("operand", o.shape, o.format, o.weight, o.needs_gradient));
    out_ = row.append(g, operands_, {settings, op});
    if (!row.product && result == fp32_format()) g.keep_gradient_wide(out_);
    if (g.needs_gradient(out_)) out_gradient_ = g.differentiate_from(out_);
    delayed_ = g.delayed_scales();
    std::vector<TensorId> callers = operands_;
    callers.push_back(out_);
    forward_ = layout(program_.forward, callers);
    forward_.casts = casts_in(g, program_.forward);
    if (!out_gradient_) return;
    const auto casts = casts_in(g, program_.backward); // without those of forward, which it repeats
    program_.backward = backward_by_itself(program_);
    callers.back() = out_gradient_;
    for (const TensorId id : operands_) gradients_.push_back(id ? g.gradient(id) : TensorId{});
    for (std::size_t i = 0; i < operands_.size(); ++i)
        if (gradients_[i] && program_[gradients_[i]].format != program_[operands_[i]].format)
            throw std::invalid_argument(fmt::format("[{}] operand {} is {}, and its gradient would be {}", op, i,
                                                    program_[operands_[i]].format.name,
                                                    program_[gradients_[i]].format.name));
    callers.insert(callers.end(), gradients_.begin(), gradients_.end());
    backward_ = layout(program_.backward, callers);
    backward_.casts = casts;
}

EagerOp::Layout EagerOp::layout(const Tape& tape, std::vector<TensorId> callers) const {
    for (const DelayedScale& d : delayed_) callers.insert(callers.end(), {d.scale, d.history});
    std::set<int> written;
    for (const Instruction& i : tape)
        for (const int index : written_by(program_, i.op)) written.insert(index);
    const std::vector<Lifetime> lives = lifetimes(program_, {&tape});
    Layout result;
    std::vector<HeldNumbers> held;
    for (std::size_t index = 0; index < lives.size(); ++index) {
        Lifetime life = lives[index];
        if (life.end < life.begin) continue;
        const TensorId id{static_cast<int>(index)};
        Place p{
            .id = id, .count = static_cast<std::size_t>(program_[id].count()), .written = written.contains(id.index)};
        const auto caller =
            std::ranges::find_if(callers, [&](TensorId other) { return other && storage(other) == id; });
        p.caller = static_cast<std::size_t>(caller - callers.begin());
        p.in_place = caller != callers.end() && program_[id].format == fp32_format();
        if (caller != callers.end() && p.written) life.end = tape.size(); // it is encoded when all is done
        held.push_back({p.in_place ? 0 : p.count, life});
        result.places.push_back(p);
    }
    const MemoryPlan plan = memory_plan(held);
    for (std::size_t i = 0; i < held.size(); ++i) result.places[i].scratch = plan.begins[i];
    result.scratch = plan.size;
    return result;
}

void EagerOp::forward(std::span<const void* const> operands, void* out, const EagerContext& context) const {
    std::vector<void*> callers;
    for (const void* const operand : operands) callers.push_back(const_cast<void*>(operand)); // no op writes to it
    callers.push_back(out);
    run(program_.forward, forward_, std::move(callers), context);
}

void EagerOp::backward(std::span<const void* const> operands, const void* gradient, std::span<void* const> gradients,
                       const EagerContext& context) const {
    if (!out_gradient_) throw std::logic_error("[eager] backward of an op that needs no gradient");
    std::vector<void*> callers;
    for (const void* const operand : operands) callers.push_back(const_cast<void*>(operand));
    callers.push_back(const_cast<void*>(gradient));
    callers.insert(callers.end(), gradients.begin(), gradients.end());
    run(program_.backward, backward_, std::move(callers), context);
    for (std::size_t i = 0; i < gradients_.size(); ++i) // a sum hands its gradient on
        if (gradients_[i] && storage(gradients_[i]) == storage(out_gradient_)) {
            const TensorInfo& info = program_[out_gradient_];
            std::memcpy(gradients[i], gradient,
                        static_cast<std::size_t>(info.count()) * (info.format == fp32_format() ? 4 : 2));
        }
}

void EagerOp::run(const Tape& tape, const Layout& layout, std::vector<void*> callers,
                  const EagerContext& context) const {
    const FloatEnvironment environment;
    if (!delayed_.empty() && context.state == nullptr) throw std::logic_error("[eager] delayed scaling needs a state");
    for (std::size_t i = 0; i < delayed_.size(); ++i) {
        if (context.state->scales.size() == i)
            context.state->scales.push_back(
                {.rule = delayed_[i].rule,
                 .most_recent = delayed_[i].most_recent,
                 .scale = {1.0F},
                 .history = std::vector<float>(static_cast<std::size_t>(program_[delayed_[i].history].count()))});
        EagerScale& s = context.state->scales[i];
        callers.insert(callers.end(), {s.scale.data(), s.history.data()});
    }
    Cpu cpu(program_, Cpu::Borrowed{}, context.threads);
    cpu.context = {.seed = context.seed,
                   .step = context.step,
                   .micro_batch = static_cast<int>(context.call),
                   .micro_batches = 1 << 24,
                   .training = context.training};
    cpu.counts_scalings = context.casts != nullptr;
    const std::span<float> scratch = scratch_memory(layout.scratch);
    for (const Place& p : layout.places) {
        if (p.in_place) {
            cpu.lend(p.id, {static_cast<float*>(callers[p.caller]), p.count});
            continue;
        }
        const std::span<float> elements = scratch.subspan(p.scratch, p.count);
        if (p.caller == callers.size()) cpu.lend(p.id, elements);
        else cpu.lend(p.id, elements, static_cast<std::uint16_t*>(callers[p.caller]), !p.written);
    }
    replay(cpu, tape);
    if (context.casts != nullptr)
        for (const auto& [out, role] : layout.casts)
            context.casts->counts[static_cast<std::size_t>(role)] +=
                cpu.scalings()[static_cast<std::size_t>(out.index)];
    for (const Place& p : layout.places)
        if (!p.in_place && p.caller < callers.size() && p.written) cpu.encode(p.id);
}

} // namespace amp
