#include <ampscope/sim/program/adafactor.h>

#include <cmath>
#include <fmt/format.h>

namespace amp {

void append_adafactor(Program& program, op::Update update, TensorId v, TensorId v_columns) {
    const OptimizerOptions& options = update.options;
    const TensorId gradient = update.gradient;
    const TensorInfo of = program[gradient];
    const FormatSpec weight_format = program[update.weight].format; // in that of v eps^2 might be 0
    const double eps = options.eps > 0 ? options.eps : std::ldexp(1.0, -weight_format.fraction_bits);
    const auto tensor = [&](std::string_view what, const Shape& shape, const FormatSpec& f) {
        program.tensors.push_back(
            {.name = fmt::format("{}.{}", of.name, what), .shape = shape, .format = f, .role = TensorRole::state});
        return TensorId{static_cast<std::int32_t>(program.tensors.size() - 1)};
    };
    const auto append = [&](const Op& op, std::string rule) { program.update.push_back({op, std::move(rule)}); };
    const auto average = [&](TensorId to, TensorId squares) {
        append(op::Lerp{to, squares, to, 1, options.contract, options.beta2_decay}, "adafactor: second moment");
    };

    update.weight_norm = tensor("weight_norm", {}, weight_format);
    append(op::GlobalNorm{{update.weight}, update.weight_norm}, "adafactor: norm of the weight");
    const TensorId variance = tensor("variance", of.shape, weight_format),
                   direction = tensor("direction", of.shape, weight_format);
    if (v_columns) {
        const std::int64_t rows = of.shape[0], columns = of.shape[1];
        const TensorId of_rows = tensor("row_mean", {rows}, of.format),
                       of_columns = tensor("col_mean", {columns}, of.format),
                       mean = tensor("row_var.mean", {}, weight_format);
        append(op::MeanSquare{gradient, of_rows}, "adafactor: mean squares of rows");
        average(v, of_rows);
        append(op::MeanSquare{gradient, of_columns, true}, "adafactor: mean squares of columns");
        average(v_columns, of_columns);
        op::Matmul outer{.a = v, .b = v_columns, .bias = {}, .out = variance};
        outer.m = rows, outer.n = columns, outer.k = 1;
        append(outer, "adafactor: rows times columns");
        append(op::Reduce{op::ReduceKind::mean, v, mean}, "adafactor: mean of the rows'");
        append(op::Normalize{variance, mean, variance, eps}, "adafactor: V = R C / mean of R");
    } else {
        const TensorId square = tensor("square", of.shape, of.format);
        append(op::Mul{gradient, gradient, square}, "adafactor: squares");
        average(v, square);
        append(op::Cast{v, variance}, "adafactor: V");
    }
    append(op::InverseRoot{variance, variance, eps * eps}, "adafactor: 1 / sqrt(V)");
    append(op::Mul{variance, gradient, direction}, "adafactor: U = g / sqrt(V)");
    update.direction_norm = tensor("direction_norm", {}, weight_format);
    append(op::GlobalNorm{{direction}, update.direction_norm}, "adafactor: norm of U");
    update.gradient = direction;
    append(update, "adafactor: master weights");
}

} // namespace amp
