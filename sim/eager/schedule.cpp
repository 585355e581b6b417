#include <ampscope/sim/eager/schedule.h>

#include <algorithm>
#include <numeric>

namespace amp {

namespace {

TensorId storage(const Program& program, TensorId id) { return program[id].storage ? program[id].storage : id; }

/// The memory that an op reads, or writes to.
std::vector<int> in_memory(const Program& program, const std::vector<TensorId>& ids) {
    std::vector<int> indices;
    for (const TensorId id : ids) indices.push_back(storage(program, id).index);
    return indices;
}

struct Uses {
    std::vector<int> reads, writes;

    Uses(const Program& program, const Op& op)
        : reads(in_memory(program, inputs_of(op))), writes(written_by(program, op)) {}
};

bool meet(const std::vector<int>& a, const std::vector<int>& b) { return std::ranges::find_first_of(a, b) != a.end(); }

/// Whether `later` has to stay behind `earlier`.
bool depends(const Uses& later, const Uses& earlier) {
    return meet(later.reads, earlier.writes) || meet(later.writes, earlier.reads) || meet(later.writes, earlier.writes);
}

} // namespace

std::vector<int> written_by(const Program& program, const Op& op) {
    if (std::holds_alternative<op::View>(op)) return {};
    std::vector<int> writes = in_memory(program, outputs_of(op));
    const auto* const cast = std::get_if<op::Quantize>(&op);
    if (cast != nullptr && cast->history) writes.push_back(cast->history.index); // in place
    return writes;
}

Tape backward_by_itself(const Program& program) {
    Tape tape;
    for (const Instruction& i : program.backward) {
        const Uses uses(program, i.op);
        const auto last = std::find_if(tape.rbegin(), tape.rend(), [&](const Instruction& before) {
            return depends(uses, Uses(program, before.op));
        });
        tape.insert(last.base(), i);
    }
    for (auto i = program.forward.rbegin(); i != program.forward.rend(); ++i) {
        const Uses uses(program, i->op);
        const auto first = std::ranges::find_if(
            tape, [&](const Instruction& after) { return meet(Uses(program, after.op).reads, uses.writes); });
        if (first != tape.end()) tape.insert(first, *i);
    }
    return tape;
}

std::vector<Lifetime> lifetimes(const Program& program, const Tape& tape) {
    std::vector<Lifetime> all(program.tensors.size(), {1, 0});
    for (std::size_t at = 0; at < tape.size(); ++at) {
        const Uses uses(program, tape[at].op);
        for (const std::vector<int>* const used : {&uses.reads, &uses.writes})
            for (const int index : *used) {
                Lifetime& of = all[static_cast<std::size_t>(index)];
                of = {of.end < of.begin ? at : of.begin, at};
            }
    }
    return all;
}

MemoryPlan memory_plan(std::span<const HeldNumbers> held) {
    const auto padded = [&](std::size_t i) { return (held[i].count + 15) / 16 * 16; };
    std::vector<std::size_t> order(held.size()), placed; // the largest first, each in the first gap
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return held[a].count > held[b].count; });
    MemoryPlan plan{.begins = std::vector<std::size_t>(held.size())};
    for (const std::size_t i : order) {
        std::size_t& begin = plan.begins[i];
        for (const std::size_t other : placed) { // in the order in which they lie
            const bool together = held[i].lifetime.begin <= held[other].lifetime.end &&
                                  held[other].lifetime.begin <= held[i].lifetime.end;
            if (!together || plan.begins[other] + padded(other) <= begin) continue;
            if (begin + padded(i) <= plan.begins[other]) break;
            begin = plan.begins[other] + padded(other);
        }
        placed.insert(std::ranges::upper_bound(placed, begin, {}, [&](std::size_t p) { return plan.begins[p]; }), i);
        plan.size = std::max(plan.size, begin + padded(i));
    }
    return plan;
}

} // namespace amp
