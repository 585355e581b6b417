#include <ampscope/sim/backend/backend.h>

#include <algorithm>
#include <chrono>

namespace amp {

RoundingCounts& RoundingCounts::operator+=(const RoundingCounts& other) {
    elements += other.elements;
    nonzero += other.nonzero;
    underflow += other.underflow;
    overflow += other.overflow;
    return *this;
}

ScalingCounts& ScalingCounts::operator+=(const ScalingCounts& other) {
    least_scale = elements == 0 ? other.least_scale : std::min(least_scale, other.least_scale);
    largest_scale = std::max(largest_scale, other.largest_scale);
    amax = std::max(amax, other.amax);
    elements += other.elements;
    nonzero += other.nonzero;
    underflow += other.underflow;
    saturated += other.saturated;
    return *this;
}

Backend::Backend(const Program& program)
    : program_(program), roundings_(program.tensors.size()), scalings_(program.tensors.size()) {}

ScaledState scaled_state(const Program& program, const op::Update& op) {
    const auto kept = [&](TensorId id) { return id ? program[id].scaled_as : std::nullopt; };
    return {.weight = kept(op.weight), .m = kept(op.m), .v = kept(op.v)};
}

namespace {

/// The scores of an attention, in all tiles that are not left out.
std::int64_t scores_of(const op::AttentionArithmetic& how, const Shape& q, const Shape& k) {
    std::int64_t scores = 0;
    for (std::int64_t row = 0; row < q[2]; row += how.row_tile) {
        const std::int64_t end = std::min(row + how.row_tile, q[2]);
        const std::int64_t seen = (end + how.key_tile - 1) / how.key_tile * how.key_tile; // by the tile's last row
        scores += (end - row) * (how.causal ? std::min(seen, k[2]) : k[2]);
    }
    return q[0] * q[1] * scores;
}

double multiply_adds_of(const Program& program, const Op& op) {
    if (const auto* const m = std::get_if<op::Matmul>(&op))
        return static_cast<double>(m->batch * m->m * m->n) * static_cast<double>(m->k);
    const auto of_attention = [&](const auto* a) {
        const Shape &q = program[a->q].shape, &k = program[a->k].shape;
        return static_cast<double>(scores_of(a->how, q, k)) * static_cast<double>(q[3] * std::ssize(a->products()));
    };
    if (const auto* const a = std::get_if<op::FusedAttention>(&op)) return of_attention(a);
    if (const auto* const a = std::get_if<op::FusedAttentionBackward>(&op)) return of_attention(a);
    return 0;
}

} // namespace

void OpProfile::add(const Program& program, const Op& op, double took) {
    ++runs;
    seconds += took;
    multiply_adds += multiply_adds_of(program, op);
    std::vector<TensorId> tensors = inputs_of(op);
    for (const TensorId id : outputs_of(op)) tensors.push_back(id);
    for (const TensorId id : tensors) bytes += 4 * static_cast<double>(program[id].count());
}

void run_op(Backend& backend, std::string_view tape, const Op& op) {
    run_op(backend, tape, op, [&] { backend.run(op); });
}

void run_op(Backend& backend, std::string_view tape, const Op& op, const std::function<void()>& work) {
    if (backend.profile == nullptr) return work();
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    work();
    const std::chrono::duration<double> took = Clock::now() - begin;
    (*backend.profile)[{tape, name_of(op)}].add(backend.program(), op, took.count());
}

void replay(Backend& backend, const Tape& tape) {
    const Program& p = backend.program();
    const std::pair<const Tape*, std::string_view> names[] = {
        {&p.forward, "forward"}, {&p.backward, "backward"}, {&p.check, "check"}, {&p.unscale, "unscale"}};
    const auto* const named = std::ranges::find(names, &tape, &std::pair<const Tape*, std::string_view>::first);
    for (const Instruction& i : tape) run_op(backend, named == std::end(names) ? "update" : named->second, i.op);
}

} // namespace amp
