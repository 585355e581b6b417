#include <ampscope/sim/program/graph.h>

#include <cmath>
#include <fmt/format.h>
#include <stdexcept>

namespace amp::op {

TensorId cross_entropy(Graph& g, TensorId logits, TensorId targets, const LossTerms& terms) {
    if (!(terms.label_smoothing >= 0 && terms.label_smoothing <= 1))
        throw std::invalid_argument(fmt::format("[{}] expected a label smoothing from 0 to 1, got {}",
                                                CrossEntropy::name, terms.label_smoothing));
    if (!(terms.z_loss >= 0 && std::isfinite(terms.z_loss)))
        throw std::invalid_argument(
            fmt::format("[{}] expected a z-loss of 0 or more, got {}", CrossEntropy::name, terms.z_loss));
    const Shape& x = g[logits].shape;
    if (x.empty() || g[logits].count() != g[targets].count() * x.back())
        shape_error(CrossEntropy::name, "... x CLASSES and ...", g, {logits, targets});
    const Graph::Plan plan = g.plan(CrossEntropy::name, {logits});
    const TensorId out = g.result(CrossEntropy::name, {}, plan.output);
    g.append(CrossEntropy{plan.operands[0], targets, out, terms}, plan.rule);
    return out;
}

void backward(Graph& g, const CrossEntropy& op) {
    const TensorId to = g.new_gradient(op.logits);
    if (!to) return;
    g.append(CrossEntropyBackward{op.logits, op.targets, g.gradient(op.out), to, op.terms}, "formats of forward");
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
