#include <ampscope/sim/program/ops/all_reduce.h>

#include <stdexcept>
#include <string>

namespace amp {

namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("[all-reduce] " + what); }

std::string orders_with_blocks() {
    std::string all;
    for (const AllReduceRow& row : all_reduce_rows)
        if (row.takes_blocks) all += (all.empty() ? "" : ", ") + std::string(row.name);
    return all;
}

} // namespace

void check(const AllReduceOptions& o) {
    if (o.scaled && o.division == AllReduceDivision::nccl_avg)
        refuse("ms-amp has a factor of its own that divides: nccl-avg does not go with it");
    if (o.blocks == nullptr) return;
    const std::string name(o.blocks->name);
    if (o.scaled) refuse(name + " has scales of its own: ms-amp takes a format such as e4m3");
    if (o.blocks->rows > 1 || o.blocks->rule == ScaleRule::affine)
        refuse(name + ": a message is one row of numbers, and takes no blocks of several rows or with zero points");
    if (!row_of(o.order).takes_blocks)
        refuse(std::string(row_of(o.order).name) +
               (row_of(o.order).in_switch ? ": a switch adds no blocks with scales"
                                          : ": replicas that exchange blocks would end with different sums") +
               "; those that take " + name + ": " + orders_with_blocks());
}

} // namespace amp
