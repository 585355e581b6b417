#include <ampscope/sim/program/ops/all_reduce.h>

#include <stdexcept>
#include <string>

namespace amp {

namespace {

[[noreturn]] void refuse_collective(const std::string& what) { throw std::invalid_argument("[all-reduce] " + what); }

} // namespace

void check(const AllReduceOptions& o) {
    if (o.scaled && o.division != AllReduceDivision::before)
        refuse_collective("ms-amp has a factor of its own that divides: " +
                          std::string(all_reduce_division_names[static_cast<std::size_t>(o.division)]) +
                          " does not go with it");
    if (o.blocks == nullptr) return;
    const std::string name(o.blocks->name);
    if (o.scaled) refuse_collective(name + " has scales of its own: ms-amp takes a format such as e4m3");
    if (!takes_messages(*o.blocks))
        refuse_collective(name +
                          ": a message is one row of numbers, and takes no blocks of several rows or with zero points");
    if (!row_of(o.order).takes_blocks)
        refuse_collective(std::string(row_of(o.order).name) +
                          (row_of(o.order).in_switch
                               ? ": a switch adds no blocks with scales"
                               : ": replicas that exchange blocks would end with different sums") +
                          "; those that take " + name + ": " + names_of_orders(&AllReduceRow::takes_blocks));
}

} // namespace amp
