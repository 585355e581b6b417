#include <ampscope/sim/program/muon.h>

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace amp {

namespace {

constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
constexpr int iterations = 5;
constexpr double least_norm = 1e-7;

/// Whether the first output of an op holds the numbers of its first input in another format or layout.
bool passes_on(const Op& op) {
    return std::holds_alternative<op::Cast>(op) || std::holds_alternative<op::Quantize>(op) ||
           std::holds_alternative<op::Dequantize>(op) || std::holds_alternative<op::Hadamard>(op) ||
           std::holds_alternative<op::View>(op) || std::holds_alternative<op::Transpose>(op);
}

} // namespace

std::vector<TensorId> hidden_matrices(const Program& program, std::span<const Parameter> parameters) {
    std::map<std::int32_t, TensorId> source; // the matrix that a tensor holds in some format
    for (const Parameter& p : parameters)
        if (program[p.weight].shape.size() == 2) source[p.weight.index] = p.weight;
    std::vector<TensorId> multiplied;
    for (const Instruction& i : program.forward) {
        const std::vector<TensorId> in = inputs_of(i.op), out = outputs_of(i.op);
        if (in.empty() || out.empty()) continue;
        for (const TensorId operand : in) {
            const auto from = source.find(operand.index);
            if (from == source.end()) continue;
            const TensorId matrix = from->second;
            if (std::holds_alternative<op::Matmul>(i.op)) multiplied.push_back(matrix);
            if (passes_on(i.op)) source[out[0].index] = matrix;
        }
    }
    std::vector<TensorId> hidden;
    for (const Parameter& p : parameters)
        if (std::ranges::find(multiplied, p.weight) != multiplied.end() && p.weight != multiplied.back())
            hidden.push_back(p.weight);
    return hidden;
}

void append_muon(Program& program, op::Update update, TensorId m, const op::MatmulArithmetic& products) {
    const OptimizerOptions options = update.options;
    const TensorId gradient = update.gradient;
    const TensorInfo of = program[gradient];
    const FormatSpec bf16 = format("bf16"), fp32 = fp32_format();
    const std::int64_t rows = of.shape[0], columns = of.shape[1], side = std::min(rows, columns);
    const bool tall = rows > columns;
    const auto tensor = [&](std::string_view what, const Shape& shape, const FormatSpec& f) {
        program.tensors.push_back(
            {.name = fmt::format("{}.{}", of.name, what), .shape = shape, .format = f, .role = TensorRole::state});
        return TensorId{static_cast<std::int32_t>(program.tensors.size() - 1)};
    };
    const auto append = [&](const Op& op, std::string rule) { program.update.push_back({op, std::move(rule)}); };

    append(op::Lerp{m, gradient, m, 1 - options.momentum, options.contract}, "muon: momentum");
    TensorId direction = m;
    if (options.nesterov) {
        direction = tensor("direction", of.shape, of.format);
        append(op::Lerp{gradient, m, direction, options.momentum, options.contract}, "muon: Nesterov's momentum");
    }
    const TensorId x = tensor("orthogonal", of.shape, bf16), norm = tensor("orthogonal.norm", {}, bf16);
    append(op::Cast{direction, x}, "muon: Newton-Schulz in BF16");
    append(op::GlobalNorm{{x}, norm}, "muon: Frobenius norm");
    const bool rounds_each = options.order == OptimizerOrder::keller_jordan;
    append(op::Normalize{x, norm, x, least_norm, true, rounds_each}, "muon: X of norm 1");
    const FormatSpec& sums = rounds_each ? bf16 : fp32; // what is added to them is added before or after they round
    const TensorId gram = tensor("gram", {side, side}, bf16), square = tensor("gram.square", {side, side}, sums),
                   polynomial = tensor("gram.polynomial", {side, side}, bf16),
                   product = tensor("orthogonal.product", of.shape, sums);
    const auto multiply = [&](TensorId left, TensorId right, TensorId out, bool transpose_a, bool transpose_b) {
        op::Matmul op{.a = left, .b = right, .bias = {}, .out = out};
        op.m = program[out].shape[0], op.n = program[out].shape[1];
        op.k = program[left].shape[transpose_a ? 0 : 1];
        op.transpose_a = transpose_a, op.transpose_b = transpose_b, op.arithmetic = products;
        append(op, "muon: Newton-Schulz");
    };
    const auto scale = [&](TensorId in, TensorId out, double factor) {
        append(op::Scale{in, out, factor, true}, "muon: Newton-Schulz");
    };
    const TensorId scaled = rounds_each ? tensor("gram.scaled", {side, side}, bf16) : gram;
    for (int i = 0; i < iterations; ++i) {
        multiply(x, x, gram, tall, !tall); // A = X X^T
        if (rounds_each) scale(gram, scaled, c);
        multiply(scaled, gram, square, false, false);
        if (rounds_each) {
            scale(gram, gram, b);
            append(op::Add{square, gram, polynomial}, "muon: B = b A + (c A) A");
        } else {
            append(op::AddScaled{square, gram, polynomial, c, b}, "muon: B = b A + c A A");
        }
        if (tall) multiply(x, polynomial, product, false, true);
        else multiply(polynomial, x, product, false, false);
        if (rounds_each) {
            scale(x, x, a);
            append(op::Add{product, x, x}, "muon: X = a X + B X");
        } else {
            append(op::AddScaled{product, x, x, 1, a}, "muon: X = a X + B X");
        }
    }
    update.gradient = x;
    const double factor = rate_factor(options.rate_scale, rows, columns);
    if (rounds_each) append(op::Scale{x, x, factor, true}, "muon: X by the shape of the matrix");
    else update.rate_factor = factor;
    // PyTorch's kernels for AVX2 contract what lies in a row of memory, as a transpose does not; one that is read as
    // another type is copied into rows first. Keller Jordan's X keeps the layout of the gradient, in rows.
    if (tall && program[update.weight].format == bf16 && !rounds_each) update.options.contract = false;
    append(update, "muon: master weights");
}

} // namespace amp
