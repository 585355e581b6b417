#include <ampscope/sim/train/plan.h>

#include <ampscope/sim/backend/kernels/matmul.h>

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>

namespace amp {

namespace {

std::string described(const Program& p, TensorId id) {
    const TensorInfo& t = p[id];
    const std::string kept = t.scaled_as ? t.scaled_as->name() : std::string(t.format.name);
    return t.shape.empty() ? fmt::format("{} {}", t.name, kept)
                           : fmt::format("{} {} {}", t.name, kept, fmt::join(t.shape, "x"));
}

std::string described(const Accumulator& acc) {
    if (acc.method == Accumulation::chain) return acc.name;
    return fmt::format("{} ({}){}", acc.name, name_of(acc.evidence),
                       acc.flushes() ? "; subnormal operands and sums become zero" : "");
}

/// The accumulators of an op's products, each of them once.
std::string accumulators_of(const Op& op) {
    std::vector<std::string> all;
    for (const op::MatmulArithmetic& product : products_of(op))
        if (const std::string text = described(product.accumulate); std::ranges::find(all, text) == all.end())
            all.push_back(text);
    return fmt::format("{}", fmt::join(all, " and "));
}

std::string steps_of(const op::AttentionArithmetic& how) {
    return how.by_steps ? fmt::format(", steps {}", how.steps.name) : "";
}

std::string accumulator_of(const Op& op) {
    if (const auto* m = std::get_if<op::Matmul>(&op))
        return described(m->arithmetic.accumulate) + (m->arithmetic.accumulate.method == Accumulation::chain
                                                          ? ", fused multiply-adds in the order of k"
                                                          : "");
    if (const auto* a = std::get_if<op::FusedAttention>(&op))
        return fmt::format("{}; tiles of {} x {}, S {}, P {}{}{}, l {}, O {}{}{}", accumulators_of(op), a->how.row_tile,
                           a->how.key_tile, a->how.scores.name, a->p.name,
                           a->offset == 0 ? "" : fmt::format(" times 2^{}", a->offset),
                           a->sums_rounded ? " before l" : "", a->sums.name, a->o.name,
                           a->shift == 0 ? "" : fmt::format(", maxima shifted by {}", a->shift), steps_of(a->how));
    if (const auto* a = std::get_if<op::FusedAttentionBackward>(&op))
        return fmt::format("{}; tiles of {} x {}, P and dS {}{}", accumulators_of(op), a->how.row_tile, a->how.key_tile,
                           a->ds.name, steps_of(a->how));
    if (const auto* l = std::get_if<op::CrossEntropy>(&op))
        return fmt::format("{}{}{}", op::CrossEntropy::accumulation,
                           l->terms.label_smoothing == 0 ? ""
                                                         : fmt::format("; smoothed by {}", l->terms.label_smoothing),
                           l->terms.z_loss == 0 ? "" : fmt::format("; z-loss {}", l->terms.z_loss));
    if (const auto* r = std::get_if<op::Reduce>(&op)) return fmt::format("{}, in order", r->accumulate.name);
    if (const auto* r = std::get_if<op::AllReduce>(&op)) {
        const ReduceSum sum = row_of(r->order).sum;
        if (sum == ReduceSum::exact) return fmt::format("exactly, rounded once to {}", r->transport.name);
        if (sum == ReduceSum::fp32) return fmt::format("fp32, in the order of replicas, then {}", r->transport.name);
        return fmt::format("{}, replica by replica", r->transport.name);
    }
    return std::visit(
        [](const auto& o) -> std::string {
            if constexpr (requires { o.accumulation; }) return std::string(o.accumulation);
            else return "";
        },
        op);
}

/// The formats of the numbers that are multiplied: those of the operands, or the one they are rounded to when read.
std::pair<FormatSpec, FormatSpec> multiplied_formats(const Program& p, const op::Matmul& m) {
    const FormatSpec& mode = m.arithmetic.operands;
    if (mode != format("fp32")) return {mode, mode};
    return {p[m.a].format, p[m.b].format};
}

std::string described(const Traffic& all) {
    return fmt::format("{} bytes a replica, in {} message{}", all.bytes, all.messages, all.messages == 1 ? "" : "s");
}

/// What gathering a weight sends in a step. The weight is cast whole, to blocks of its own grid, and a chunk comes with
/// the scales of the blocks that it has elements of.
Traffic traffic_of_gathers(const TrainingProgram& t, const ParameterTensors& q) {
    const Schedule schedule(t.all_reduce.order, t.replicas);
    const TensorInfo& weight = t.program[q.weight];
    const Payload payload = t.shard.gather.value_or(Payload{t.program[q.gathered].format, nullptr});
    const BlockGrid grid = payload.blocks != nullptr ? grid_of(scaling_of(*payload.blocks), weight.shape) : BlockGrid{};
    std::vector<double> bytes;
    for (int c = 0; c < schedule.chunks(); ++c) bytes.push_back(payload.bytes(schedule.chunk(c, weight.count()), grid));
    Traffic all = traffic_of(schedule, bytes, schedule.reducing_steps(), schedule.steps());
    all.bytes *= t.gathers_in_step();
    all.messages *= t.gathers_in_step();
    return all;
}

/// What an op of a collective sends: an all-reduce, or the cast of weights that are gathered.
std::string sends_of(const TrainingProgram& t, const Op& op) {
    if (const auto* r = std::get_if<op::AllReduce>(&op)) {
        const Schedule schedule = r->schedule();
        return described(traffic_of(schedule, r->payload(), t.program[r->out].count(), 0,
                                    r->gathers ? schedule.steps() : schedule.reducing_steps()));
    }
    const std::vector<TensorId> in = inputs_of(op), out = outputs_of(op);
    for (const ParameterTensors& q : t.parameters)
        if (q.master && in.front() == q.master && out.front() == q.gathered) return described(traffic_of_gathers(t, q));
    return "";
}

void append(std::vector<PlannedOp>& plan, const TrainingProgram& t, std::string_view name, const Tape& tape) {
    const Program& p = t.program;
    for (const Instruction& i : tape) {
        if (std::holds_alternative<op::View>(i.op)) continue;
        PlannedOp line{.tape = name,
                       .op = std::string(name_of(i.op)),
                       .output = {},
                       .inputs = {},
                       .result = {},
                       .accumulate = accumulator_of(i.op),
                       .rule = i.rule,
                       .sends = name == "check" || name == "update" ? sends_of(t, i.op) : "",
                       .tensor_cores = {}};
        for (const TensorId in : inputs_of(i.op)) line.inputs.push_back(described(p, in));
        if (const auto out = outputs_of(i.op); !out.empty()) {
            line.output = p[out.front()].name;
            line.result = fmt::format("{} {}", p[out.front()].format.name, fmt::join(p[out.front()].shape, "x"));
        }
        if (const auto* a = std::get_if<op::Activation>(&i.op))
            line.op = op::activation_names[static_cast<std::size_t>(a->kind)];
        if (const auto* m = std::get_if<op::Matmul>(&i.op)) {
            if (m->arithmetic.operands != format("fp32"))
                line.rule += fmt::format(", operands read as {} ({})", m->arithmetic.operands.name,
                                         name_of(m->arithmetic.operand_rounding));
            const auto [a, b] = multiplied_formats(p, *m);
            line.tensor_cores = tensor_core_use(*m, a, b);
        }
        plan.push_back(std::move(line));
    }
}

} // namespace

std::vector<PlannedOp> plan_of(const TrainingProgram& t) {
    std::vector<PlannedOp> plan;
    append(plan, t, "forward", t.program.forward);
    append(plan, t, "backward", t.program.backward);
    append(plan, t, "check", t.program.check);
    append(plan, t, "unscale", t.program.unscale);
    append(plan, t, "update", t.program.update);
    return plan;
}

std::string tensor_core_use(const op::Matmul& op, const FormatSpec& a, const FormatSpec& b) {
    std::vector<std::string> usable;
    for (const HardwareRow& row : hardware_rows) {
        if (!multiplies(row.generation(), a, b)) continue;
        std::string name(row.generation());
        name[0] = static_cast<char>(std::toupper(name[0]));
        if (usable.empty() || usable.back() != name) usable.push_back(std::move(name));
    }
    // PTX ISA 9.0: mma .s8 and .s4 since sm_75; what has a zero point takes corrections beside the product.
    if (a.is_integer() && b.is_integer()) usable = {"Turing and later"};
    if (usable.empty())
        return a == b ? fmt::format("no ({} is not an operand format)", a.name)
                      : fmt::format("no ({} and {} are not multiplied by each other)", a.name, b.name);
    // NVIDIA, "Matrix Multiplication Background User's Guide" (DU-09799-001), section "Requirements to use Tensor
    // Cores": since cuBLAS 11 any dimensions may use them; best where each is a multiple of 16 bytes (128 on A100).
    const std::int64_t stored = std::min(a.bits(), b.bits()), // codes less zero points have a bit more
        integer = std::max(a.bits(), b.bits()) <= 4 ? 4 : 8,  // of different widths the narrow one is widened
        bits = a == format("tf32") ? 32
               : a.is_integer()    ? integer
                                   : stored,
                       multiple = 128 / bits;
    std::vector<std::string> off;
    for (const auto& [name, extent] : {std::pair{"m", op.m}, std::pair{"n", op.n}, std::pair{"k", op.k}})
        if (extent % multiple != 0) off.push_back(fmt::format("{}={}", name, extent));
    std::string text = fmt::format("{}", fmt::join(usable, ", "));
    if (off.empty()) return text + fmt::format("; m, n, k are multiples of {} (16 bytes)", multiple);
    return text + fmt::format("; {} no multiple of {}: cuBLAS before 11 would not, later pads", fmt::join(off, ", "),
                              multiple);
}

std::int64_t longest_sum(const TrainingProgram& t) {
    std::int64_t chosen = 0, any = 0;
    for (const Tape* tape : {&t.program.forward, &t.program.backward})
        for (const Instruction& i : *tape)
            if (const auto* m = std::get_if<op::Matmul>(&i.op)) {
                const std::int64_t block = m->a_scale.scale ? kernels::scaled_block(*m) : m->k;
                const bool within = applies_scales(m->arithmetic.accumulate, kernels::scales_of_product(*m), block);
                const std::int64_t products = within ? m->k : std::min(m->k, block);
                any = std::max(any, products);
                if (m->arithmetic.accumulate != Accumulator{}) chosen = std::max(chosen, products);
            }
    return chosen > 0 ? chosen : any;
}

namespace {

using MemoryRows = std::vector<MemoryAccount::Row>;
constexpr std::string_view gradients_kept = "gradients";

/// The bytes of the rows that grow with the number of parameters.
double kept_bytes(const MemoryRows& rows) {
    double sum = 0;
    for (const MemoryAccount::Row& row : rows)
        if (row.per_parameter) sum += row.bytes();
    return sum;
}

/// Adds so many elements to the row of that purpose and format.
void add_elements(MemoryRows& rows, std::string_view purpose, const FormatSpec& f, std::int64_t elements,
                  bool per_parameter = true) {
    const auto same = std::ranges::find_if(rows, [&](const auto& r) { return r.purpose == purpose && r.format == f; });
    if (same != rows.end()) same->elements += elements;
    else rows.push_back({std::string(purpose), f, elements, per_parameter});
}

/// Adds a tensor to the row of its purpose and format. A view takes no memory, and an absent tensor none.
void add_kept(MemoryRows& rows, std::string_view purpose, const Program& p, TensorId id, bool per_parameter = true) {
    if (id && !p[id].storage) add_elements(rows, purpose, p[id].kept_as(), p[id].count(), per_parameter);
}

/// The same of a tensor of which a replica keeps its share, if `shared`.
void add_share(MemoryRows& rows, std::string_view purpose, const TrainingProgram& t, TensorId id, bool shared) {
    if (!id) return;
    const TensorInfo& info = t.program[id];
    add_elements(rows, purpose, info.kept_as(), shared ? t.share(info.count()) : info.count());
    if (info.scaled_as && info.scaled_as->block > 0)
        add_elements(rows, fmt::format("scales of {}", purpose), fp32_format(), info.scaled_as->scales(info.count()));
}

/// The weights that a sharded optimizer gathers. What is sent in the master weight's own format needs no second copy:
/// the master weight is the replica's part of it. FSDP keeps nothing that it has gathered.
void add_gathered(MemoryRows& rows, const TrainingProgram& t, const ParameterTensors& q) {
    constexpr std::string_view purpose = "weights, gathered", scales = "scales of gathered weights";
    const bool keeps = !t.shard.row().weights;
    if (!keeps || q.gathered != q.weight) add_share(rows, "master weights", t, q.master, true);
    if (!keeps) return;
    const TensorInfo& weight = t.program[q.weight];
    if (!t.shard.gather || t.shard.gather->blocks == nullptr)
        return add_elements(rows, purpose, t.program[q.gathered].format, weight.count());
    const BlockScaling scaling = scaling_of(*t.shard.gather->blocks);
    const std::int64_t blocks = grid_of(scaling, weight.shape).count();
    add_elements(rows, purpose, scaling.element, weight.count());
    add_elements(rows, scales, scaling.scale_format(), blocks);
    if (scaling.rule == ScaleRule::affine)
        add_elements(rows, "zero points of gathered weights", scaling.element, blocks);
    if (has_upper_scales(scaling.rule)) add_elements(rows, scales, fp32_format(), 1);
}

/// The casts of weights that forward and backward make; what the optimizer gathers is not among them, nor what is cast
/// to the format in which it was gathered.
std::vector<TensorId> casts_of_weights(const TrainingProgram& t) {
    std::vector<TensorId> all;
    for (std::size_t i = 0; i < t.program.tensors.size(); ++i)
        if (t.program.tensors[i].role == TensorRole::weight) all.push_back({static_cast<std::int32_t>(i)});
    for (const Instruction& gather : t.gathers())
        for (const TensorId out : outputs_of(gather.op)) std::erase(all, out);
    for (const Instruction& i : t.program.forward)
        if (const auto* const cast = std::get_if<op::Cast>(&i.op))
            for (const ParameterTensors& q : t.parameters)
                if (q.gathered && cast->in == q.weight && t.program[cast->out].format == t.program[q.gathered].format)
                    std::erase(all, cast->out);
    return all;
}

/// The gradient as backward computes it: before it is widened and those of micro-batches and replicas are added.
TensorId computed_gradient(const Program& p, TensorId gradient) {
    const auto made_from = [&](const Op& op) -> TensorId {
        const std::vector<TensorId> outputs = outputs_of(op);
        if (std::ranges::find(outputs, gradient) == outputs.end()) return {};
        if (const auto* mean = std::get_if<op::AllReduce>(&op)) return mean->in.front();
        if (const auto* sum = std::get_if<op::AccumulateGradient>(&op)) return sum->in;
        const auto* const cast = std::get_if<op::Cast>(&op);
        return cast != nullptr && p[cast->in].format.bits() < p[cast->out].format.bits() ? cast->in : TensorId{};
    };
    for (const Tape* tape : {&p.check, &p.backward})
        for (auto i = tape->rbegin(); i != tape->rend(); ++i)
            if (const TensorId from = made_from(i->op)) gradient = from;
    return gradient;
}

} // namespace

double MemoryAccount::bytes_per_parameter() const { return kept_bytes(rows) / static_cast<double>(parameters); }

double MemoryAccount::bytes_with_computed_gradients() const {
    MemoryRows kept = computed_gradients;
    std::ranges::copy_if(rows, std::back_inserter(kept), [](const Row& r) { return r.purpose != gradients_kept; });
    return kept_bytes(kept) / static_cast<double>(parameters);
}

MemoryAccount memory_of(const TrainingProgram& t) {
    MemoryAccount account;
    const Program& p = t.program;
    for (const ParameterTensors& q : t.parameters) {
        account.parameters += p[q.weight].count();
        if (q.master) add_gathered(account.rows, t, q);
        else add_kept(account.rows, "master weights", p, q.weight);
    }
    const std::vector<TensorId> casts = casts_of_weights(t);
    for (const TensorId id : casts) add_kept(account.rows, "weights, cast", p, id);
    for (const ParameterTensors& q : t.parameters) {
        const bool divided = t.divides_gradients();
        add_share(account.rows, gradients_kept, t, q.gradient, divided);
        add_share(account.computed_gradients, gradients_kept, t, computed_gradient(p, q.gradient), divided);
    }
    for (const ParameterTensors& q : t.parameters) {
        const bool divided = t.shard.is_sharded();
        add_share(account.rows, "optimizer m", t, q.m, divided);
        for (const TensorId v : {q.v, q.v_columns}) add_share(account.rows, "optimizer v", t, v, divided);
        add_share(account.rows, "Kahan compensation", t, q.compensation, divided);
    }
    for (const Instruction& i : p.forward)
        for (const TensorId out : outputs_of(i.op))
            if (p[out].role == TensorRole::activation) add_kept(account.rows, "activations", p, out, false);
    return account;
}

} // namespace amp
