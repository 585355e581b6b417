#include <ampscope/sim/program/ops.h>

namespace amp {

namespace {

std::vector<TensorId> present(const auto& ids) {
    std::vector<TensorId> result;
    for (const TensorId id : ids)
        if (id) result.push_back(id);
    return result;
}

} // namespace

std::string_view name_of(const Op& op) {
    return std::visit([](const auto& o) { return o.name; }, op);
}

std::vector<TensorId> inputs_of(const Op& op) {
    return std::visit([](const auto& o) { return present(o.inputs()); }, op);
}

std::vector<TensorId> outputs_of(const Op& op) {
    return std::visit([](const auto& o) { return present(o.outputs()); }, op);
}

} // namespace amp
