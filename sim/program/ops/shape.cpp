#include <ampscope/sim/program/graph.h>

#include <stdexcept>

namespace amp::op {

TensorId view(Graph& g, TensorId in, Shape shape) {
    if (element_count(shape) != g[in].count())
        throw std::invalid_argument("[view] expected a shape of as many elements");
    return g.append_view(in, std::move(shape));
}

void backward(Graph& g, const View& op) {
    if (g.needs_gradient(op.in)) g.contribute(op.in, g.append_view(g.gradient(op.out), g[op.in].shape));
}

TensorId transpose(Graph& g, TensorId in, std::array<int, 4> order) {
    const Shape from = g[in].shape;
    if (from.size() > 4) shape_error(Transpose::name, "at most four axes", g, {in});
    Shape shape(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) shape[i] = from.at(static_cast<std::size_t>(order[i]));
    if (element_count(shape) != g[in].count()) throw std::invalid_argument("[transpose] expected each axis once");
    const TensorId out = g.result(Transpose::name, shape, g[in].format);
    g.append(Transpose{in, out, order}, "moves numbers");
    return out;
}

void backward(Graph& g, const Transpose& op) {
    if (!g.needs_gradient(op.in)) return;
    std::array<int, 4> inverse{0, 1, 2, 3};
    for (int i = 0; i < 4; ++i) inverse[static_cast<std::size_t>(op.order[static_cast<std::size_t>(i)])] = i;
    const TensorId to = g.new_gradient(op.in);
    g.append(Transpose{g.gradient(op.out), to, inverse}, "moves numbers");
    g.contribute(op.in, to);
}

} // namespace amp::op
