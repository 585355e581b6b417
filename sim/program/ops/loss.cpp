#include <ampscope/sim/program/graph.h>

namespace amp::op {

TensorId cross_entropy(Graph& g, TensorId logits, TensorId targets) {
    const Shape& x = g[logits].shape;
    if (x.empty() || g[logits].count() != g[targets].count() * x.back())
        shape_error(CrossEntropy::name, "... x CLASSES and ...", g, {logits, targets});
    const Graph::Plan plan = g.plan(CrossEntropy::name, {logits});
    const TensorId out = g.result(CrossEntropy::name, {}, plan.output);
    g.append(CrossEntropy{plan.operands[0], targets, out}, plan.rule);
    return out;
}

void backward(Graph& g, const CrossEntropy& op) {
    const TensorId to = g.new_gradient(op.logits);
    if (!to) return;
    g.append(CrossEntropyBackward{op.logits, op.targets, g.gradient(op.out), to}, "formats of forward");
    g.contribute(op.logits, to);
}

TensorId mse_loss(Graph& g, TensorId in, TensorId targets) {
    if (g[in].shape != g[targets].shape) shape_error(MseLoss::name, "equal shapes", g, {in, targets});
    const Graph::Plan plan = g.plan(MseLoss::name, {in, targets});
    const TensorId out = g.result(MseLoss::name, {}, plan.output);
    g.append(MseLoss{plan.operands[0], plan.operands[1], out}, plan.rule);
    return out;
}

void backward(Graph& g, const MseLoss& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    g.append(MseLossBackward{op.in, op.targets, g.gradient(op.out), to}, "formats of forward");
    g.contribute(op.in, to);
}

} // namespace amp::op
