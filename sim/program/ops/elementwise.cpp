#include <ampscope/sim/program/graph.h>

#include <algorithm>
#include <stdexcept>

namespace amp::op {

namespace {

/// Throws unless b's shape is a suffix of a's.
void check_suffix(std::string_view op, const Graph& g, TensorId a, TensorId b) {
    const Shape &x = g[a].shape, &y = g[b].shape;
    if (y.size() > x.size() || !std::equal(y.rbegin(), y.rend(), x.rbegin()))
        shape_error(op, "a second shape that ends the first", g, {a, b});
}

/// The gradient of a repeated operand is the sum over its repetitions.
void contribute_sum(Graph& g, TensorId b, TensorId grad) {
    if (!g.needs_gradient(b)) return;
    if (g[b].count() == g[grad].count()) return g.contribute(b, grad);
    const Graph::Plan plan = g.plan("sum", {grad});
    const TensorId summed = g.new_gradient(b);
    g.append(
        Reduce{.kind = ReduceKind::sum, .in = plan.operands[0], .out = summed, .accumulate = g.arithmetic().sums()},
        plan.rule);
    g.contribute(b, summed);
}

} // namespace

TensorId add(Graph& g, TensorId a, TensorId b) {
    check_suffix(Add::name, g, a, b);
    const Graph::Plan plan = g.plan(Add::name, {a, b});
    const TensorId out = g.result(Add::name, g[a].shape, plan.output);
    g.append(Add{plan.operands[0], plan.operands[1], out}, plan.rule);
    return out;
}

void backward(Graph& g, const Add& op) {
    const TensorId grad = g.gradient(op.out);
    g.contribute(op.a, grad);
    contribute_sum(g, op.b, grad);
}

TensorId mul(Graph& g, TensorId a, TensorId b) {
    check_suffix(Mul::name, g, a, b);
    const Graph::Plan plan = g.plan(Mul::name, {a, b});
    const TensorId out = g.result(Mul::name, g[a].shape, plan.output);
    g.append(Mul{plan.operands[0], plan.operands[1], out}, plan.rule);
    return out;
}

void backward(Graph& g, const Mul& op) {
    const TensorId grad = g.gradient(op.out);
    if (const TensorId to_a = g.new_gradient(op.a)) {
        g.append(Mul{grad, op.b, to_a}, "formats of forward");
        g.contribute(op.a, to_a);
    }
    if (!g.needs_gradient(op.b)) return;
    const bool repeated = g[op.b].count() != g[op.a].count();
    const TensorId to_b =
        repeated ? g.result(g[op.b].name + ".grad_terms", g[op.a].shape, g.gradient_format(op.b), TensorRole::gradient)
                 : g.new_gradient(op.b);
    g.append(Mul{grad, op.a, to_b}, "formats of forward");
    contribute_sum(g, op.b, to_b);
}

TensorId scale(Graph& g, TensorId in, double factor) {
    const Graph::Plan plan = g.plan(Scale::name, {in});
    const TensorId out = g.result(Scale::name, g[in].shape, plan.output);
    g.append(Scale{plan.operands[0], out, factor}, plan.rule);
    return out;
}

void backward(Graph& g, const Scale& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    g.append(Scale{g.gradient(op.out), to, op.factor}, "formats of forward");
    g.contribute(op.in, to);
}

void backward(Graph& g, const Cast& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    g.append(Cast{g.gradient(op.out), to}, "gradient of a cast");
    g.contribute(op.in, to);
}

TensorId dropout(Graph& g, TensorId in, double probability) {
    if (!(probability >= 0 && probability < 1))
        throw std::invalid_argument("[dropout] expected a probability in [0, 1)");
    if (probability == 0) return in;
    const Graph::Plan plan = g.plan(Dropout::name, {in});
    const TensorId out = g.result(Dropout::name, g[in].shape, plan.output);
    g.append(Dropout{plan.operands[0], out, probability, g.next_stream()}, plan.rule);
    return out;
}

void backward(Graph& g, const Dropout& op) {
    const TensorId to = g.new_gradient(op.in);
    if (!to) return;
    g.append(Dropout{g.gradient(op.out), to, op.probability, op.stream}, "formats of forward");
    g.contribute(op.in, to);
}

} // namespace amp::op
