#include <ampscope/sim/program/graph.h>

namespace amp::op {

TensorId embedding(Graph& g, TensorId weight, TensorId indices) {
    if (g[weight].shape.size() != 2) shape_error(Embedding::name, "a table of ENTRIES x WIDTH", g, {weight});
    const Graph::Plan plan = g.plan(Embedding::name, {weight});
    Shape shape = g[indices].shape;
    shape.push_back(g[weight].shape[1]);
    const TensorId out = g.result(Embedding::name, shape, plan.output);
    g.append(Embedding{plan.operands[0], indices, out}, plan.rule);
    return out;
}

void backward(Graph& g, const Embedding& op) {
    const TensorId to = g.new_gradient(op.weight);
    if (!to) return;
    g.append(EmbeddingBackward{op.indices, g.gradient(op.out), to}, "formats of forward");
    g.contribute(op.weight, to);
}

} // namespace amp::op
