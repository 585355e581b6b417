#include <ampscope/sim/program/ops/concat.h>

#include <ampscope/sim/program/graph.h>

#include <algorithm>
#include <numeric>

namespace amp::op {

namespace {

using Extents = std::array<std::int64_t, 3>;

/// The parts' numbers in a row of the whole, which has this shape.
Parts parts_of(const Shape& whole, std::size_t axis, const Extents& extents) {
    const std::int64_t inner = element_count(Shape(whole.begin() + static_cast<std::ptrdiff_t>(axis) + 1, whole.end()));
    Parts parts;
    std::ranges::transform(extents, parts.widths.begin(), [&](std::int64_t extent) { return extent * inner; });
    return parts;
}

bool is_absent(TensorId x) { return !x; }

} // namespace

TensorId concat(Graph& g, const std::array<TensorId, 3>& parts, std::size_t axis, const Extents& extents) {
    const auto first = std::ranges::find_if_not(parts, is_absent);
    if (first == parts.end()) throw std::invalid_argument("[cat] expected tensors, got none");
    Shape whole = g[*first].shape;
    std::vector<TensorId> operands;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (!parts[i]) continue;
        Shape shape = whole;
        if (axis < whole.size()) shape[axis] = extents[i];
        if (axis >= whole.size() || g[parts[i]].shape != shape)
            shape_error(Concat::name, "tensors that differ along the joined axis alone", g, {*first, parts[i]});
        operands.push_back(parts[i]);
    }
    whole[axis] = std::accumulate(extents.begin(), extents.end(), std::int64_t{0});
    const Graph::Plan plan = g.plan(Concat::name, operands);
    Concat op{.parts = parts_of(whole, axis, extents), .out = {}};
    auto operand = plan.operands.begin();
    for (std::size_t i = 0; i < parts.size(); ++i)
        if (parts[i]) op.parts.tensors[i] = *operand++;
    op.out = g.result(Concat::name, whole, plan.output);
    g.append(op, plan.rule);
    return op.out;
}

void backward(Graph& g, const Concat& op) {
    Split split{.in = g.gradient(op.out), .parts = {.tensors = {}, .widths = op.parts.widths}};
    for (std::size_t i = 0; i < 3; ++i) split.parts.tensors[i] = g.new_gradient(op.parts.tensors[i]);
    if (std::ranges::all_of(split.parts.tensors, is_absent)) return;
    g.append(split, "moves numbers");
    for (std::size_t i = 0; i < 3; ++i)
        if (split.parts.tensors[i]) g.contribute(op.parts.tensors[i], split.parts.tensors[i]);
}

std::array<TensorId, 3> split(Graph& g, TensorId in, std::size_t axis, const Extents& extents) {
    Shape shape = g[in].shape;
    const bool whole = std::ranges::all_of(extents, [](std::int64_t extent) { return extent >= 0; }) &&
                       axis < shape.size() &&
                       std::accumulate(extents.begin(), extents.end(), std::int64_t{0}) == shape[axis];
    if (!whole) shape_error(Split::name, "extents that add up to that of the axis", g, {in});
    Split op{.in = in, .parts = parts_of(shape, axis, extents)};
    for (std::size_t i = 0; i < 3; ++i) {
        if (extents[i] == 0) continue;
        shape[axis] = extents[i];
        op.parts.tensors[i] = g.result(Split::name, shape, g[in].format);
    }
    g.append(op, "moves numbers");
    return op.parts.tensors;
}

void backward(Graph& g, const Split& op) {
    Concat concat{.parts = {.tensors = {}, .widths = op.parts.widths}, .out = g.new_gradient(op.in)};
    if (!concat.out) return;
    for (std::size_t i = 0; i < 3; ++i)
        if (op.parts.tensors[i]) concat.parts.tensors[i] = g.gradient(op.parts.tensors[i]);
    g.append(concat, "moves numbers");
    g.contribute(op.in, concat.out);
}

} // namespace amp::op
