#include <ampscope/sim/eager/schedule.h>

#include <ampscope/sim/program/memory_plan.h>

#include <algorithm>

namespace amp {

namespace {

struct Uses {
    std::vector<int> reads, writes;

    Uses(const Program& program, const Op& op) : reads(read_by(program, op)), writes(written_by(program, op)) {}
};

bool meet(const std::vector<int>& a, const std::vector<int>& b) { return std::ranges::find_first_of(a, b) != a.end(); }

/// Whether `later` has to stay behind `earlier`.
bool depends(const Uses& later, const Uses& earlier) {
    return meet(later.reads, earlier.writes) || meet(later.writes, earlier.reads) || meet(later.writes, earlier.writes);
}

} // namespace

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

} // namespace amp
