#include <ampscope/sim/program/memory_plan.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace amp {

namespace {

std::vector<int> in_memory(const Program& program, const std::vector<TensorId>& ids) {
    std::vector<int> indices;
    for (const TensorId id : ids) indices.push_back(program[id].storage ? program[id].storage.index : id.index);
    return indices;
}

/// For each tensor whether the tapes write all of it before they read it.
std::vector<bool> made_by(const Program& program, std::initializer_list<const Tape*> tapes) {
    std::vector<bool> seen, made(program.tensors.size());
    for (const TensorInfo& t : program.tensors) // what steps are given, or leave to the next
        seen.push_back(t.role == TensorRole::input || t.role == TensorRole::parameter || t.role == TensorRole::state);
    const auto use = [&](const std::vector<int>& tensors, bool makes) {
        for (const int tensor : tensors) {
            const auto index = static_cast<std::size_t>(tensor);
            if (!seen[index]) made[index] = makes;
            seen[index] = true;
        }
    };
    for (const Tape* const tape : tapes)
        for (const Instruction& i : *tape) {
            use(read_by(program, i.op), false);
            use(written_by(program, i.op), writes_all(i.op));
        }
    return made;
}

} // namespace

std::vector<int> read_by(const Program& program, const Op& op) { return in_memory(program, inputs_of(op)); }

std::vector<int> written_by(const Program& program, const Op& op) {
    if (std::holds_alternative<op::View>(op)) return {};
    std::vector<int> writes = in_memory(program, outputs_of(op));
    const auto* const cast = std::get_if<op::Quantize>(&op);
    if (cast != nullptr && cast->history) writes.push_back(cast->history.index); // in place
    return writes;
}

std::vector<Lifetime> lifetimes(const Program& program, std::initializer_list<const Tape*> tapes) {
    std::vector<Lifetime> all(program.tensors.size(), {1, 0});
    std::size_t at = 0;
    for (const Tape* const tape : tapes)
        for (const Instruction& i : *tape) {
            for (const std::vector<int>& used : {read_by(program, i.op), written_by(program, i.op)})
                for (const int index : used) {
                    Lifetime& of = all[static_cast<std::size_t>(index)];
                    of = {of.end < of.begin ? at : of.begin, at};
                }
            ++at;
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

SharedMemory share_memory(const Program& program, std::span<const TensorId> results) {
    const std::initializer_list<const Tape*> step = {&program.forward, &program.backward, &program.check,
                                                     &program.unscale, &program.update};
    const std::vector<bool> made = made_by(program, step);
    std::vector<Lifetime> lives = lifetimes(program, step);
    for (const int result : in_memory(program, {results.begin(), results.end()}))
        lives[static_cast<std::size_t>(result)].end = std::numeric_limits<std::size_t>::max();
    std::vector<std::size_t> sharing;
    std::vector<HeldNumbers> held;
    for (std::size_t i = 0; i < lives.size(); ++i) {
        if (!made[i]) continue;
        sharing.push_back(i);
        held.push_back({static_cast<std::size_t>(program.tensors[i].count()), lives[i]});
    }
    const MemoryPlan plan = memory_plan(held);
    SharedMemory shared{.places = std::vector<std::optional<std::size_t>>(lives.size()), .size = plan.size};
    for (std::size_t i = 0; i < sharing.size(); ++i) shared.places[sharing[i]] = plan.begins[i];
    return shared;
}

} // namespace amp
