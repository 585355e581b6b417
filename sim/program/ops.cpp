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

bool writes_all(const Op& op) {
    return std::visit(
        [](const auto& o) {
            return !requires { o.adds; };
        },
        op);
}

std::vector<op::MatmulArithmetic> products_of(const Op& op) {
    return std::visit(
        [](const auto& o) -> std::vector<op::MatmulArithmetic> {
            if constexpr (requires { o.products(); }) {
                const auto all = o.products();
                return {all.begin(), all.end()};
            } else {
                return {};
            }
        },
        op);
}

} // namespace amp
