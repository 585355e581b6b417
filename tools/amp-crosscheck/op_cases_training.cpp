// Cases of what trains: gradients, optimizers, casts with scales, matrix products.
#include <ampscope/tools/amp-crosscheck/op_case_builder.h>

#include <cmath>

namespace amp::crosscheck_tool {

namespace {

/// An all-reduce of `replicas` tensors with these options.
void add_all_reduce(Cases& cases, const AllReduceOptions& o, int replicas, Fill even, Fill odd, bool gathers = true) {
    OpCaseBuilder b(fmt::format("all_reduce of {} in {}, {}{}", replicas, o.payload().name(), row_of(o.order).name,
                                o.scaled ? ", scaled" : ""));
    op::AllReduce op{{}, {}, o.order, o.division, o.transport, o.scaled, o.blocks, gathers};
    for (int r = 0; r < replicas; ++r) op.in.push_back(b.tensor({331}, "fp32", r % 2 == 0 ? even : odd));
    op.out = b.tensor({331}, "fp32");
    cases.push_back(b.build(op));
}

void all_reduce_cases(Cases& cases, std::string_view f) {
    for (const std::string_view name : all_reduce_order_names) {
        const auto order = parse_name<AllReduceOrder>("all-reduce", all_reduce_order_names, name);
        for (const auto division : {AllReduceDivision::before, AllReduceDivision::after, AllReduceDivision::nccl_avg})
            for (const int replicas : {1, 2, 3, 5, 8})
                add_all_reduce(cases, {.order = order, .division = division, .transport = format(f)}, replicas,
                               Fill::edges, Fill::finite);
        for (const Fill fill : {Fill::finite, Fill::edges})
            for (const int replicas : {1, 2, 3, 8})
                add_all_reduce(cases, {.order = order, .transport = format(f), .scaled = true}, replicas, fill, fill);
    }
}

/// Messages that are cast to blocks, by each algorithm that casts them.
void block_message_cases(Cases& cases) {
    for (const std::string_view name : all_reduce_order_names)
        for (const BlockSpec& blocks : block_formats) {
            const auto order = parse_name<AllReduceOrder>("all-reduce", all_reduce_order_names, name);
            if (!row_of(order).takes_blocks || !takes_messages(blocks)) continue;
            for (const int replicas : {1, 2, 3, 8})
                for (const bool gathers : {true, false})
                    add_all_reduce(cases, {.order = order, .blocks = &blocks}, replicas,
                                   gathers ? Fill::edges : Fill::ordinary, Fill::finite, gathers);
        }
}

} // namespace

void gradient_cases(Cases& cases) {
    block_message_cases(cases);
    for (const std::string_view f : formats_of_tensors) {
        for (const int micro_batch : {0, 1}) {
            OpCaseBuilder b(fmt::format("accumulate_gradient {} {}", f, micro_batch));
            b.context().micro_batch = micro_batch;
            b.context().micro_batches = 2;
            const TensorId in = b.tensor({700}, "fp32", Fill::edges);
            cases.push_back(b.build(op::AccumulateGradient{.in = in, .totals = {b.tensor({700}, f, Fill::edges)}}));
        }
        all_reduce_cases(cases, f);
        for (const auto rule : {UnscaleRule::reciprocal, UnscaleRule::divide})
            for (const double scale : {1.0, 1024.0, 3.7, 0x1p-130}) {
                OpCaseBuilder b(fmt::format("unscale {} by {}", f, scale));
                b.context().unscale_by = scale;
                cases.push_back(b.build(op::Unscale{.gradient = b.tensor({700}, f, Fill::edges), .rule = rule}));
            }
        for (const Fill fill : {Fill::ordinary, Fill::finite, Fill::edges}) {
            OpCaseBuilder c(fmt::format("check_finite {}", f));
            const TensorId first = c.tensor({64}, f, Fill::ordinary), second = c.tensor({65}, f, fill);
            cases.push_back(c.build(op::CheckFinite{.gradients = {first, second}}));
            OpCaseBuilder n(fmt::format("global_norm {}", f));
            const TensorId x = n.tensor({7, 39}, f, fill), y = n.tensor({5}, "fp32", fill);
            cases.push_back(n.build(op::GlobalNorm{.gradients = {x, y}, .norm = n.tensor({}, f)}));
            OpCaseBuilder p(fmt::format("clip {}", f));
            const TensorId norm = p.tensor({}, f, Fill::positive);
            cases.push_back(p.build(op::Clip{.norm = norm, .gradient = p.tensor({300}, f, fill), .max_norm = 0.3}));
        }
    }
}

void orthogonal_cases(Cases& cases) {
    for (const std::string_view f : {"fp32", "bf16", "fp16", "e4m3"})
        for (const Fill fill : {Fill::ordinary, Fill::finite, Fill::edges}) {
            for (const double weight : {0.05, 0.95})
                for (const bool contract : {false, true}) {
                    OpCaseBuilder b(fmt::format("lerp {} {}", f, contract ? "contracted" : ""));
                    const TensorId x = b.tensor({30, 21}, f, fill), y = b.tensor({30, 21}, "fp32", fill);
                    cases.push_back(b.build(op::Lerp{x, y, b.tensor({30, 21}, f), weight, contract}));
                }
            for (const double least : {1e-7, 1e7}) {
                OpCaseBuilder b(fmt::format("normalize {}", f));
                const TensorId x = b.tensor({30, 21}, f, fill), norm = b.tensor({}, f, Fill::positive);
                cases.push_back(b.build(op::Normalize{x, norm, b.tensor({30, 21}, f), least, least < 1}));
                OpCaseBuilder s(fmt::format("normalize {} by a sum", f));
                const TensorId y = s.tensor({30, 21}, f, fill), norm_of_y = s.tensor({}, f, Fill::positive);
                cases.push_back(s.build(op::Normalize{y, norm_of_y, s.tensor({30, 21}, f), least, true, true}));
            }
            OpCaseBuilder b(fmt::format("add_scaled {}", f));
            const TensorId product = b.tensor({30, 21}, "fp32", fill), addend = b.tensor({30, 21}, f, fill);
            cases.push_back(b.build(op::AddScaled{product, addend, b.tensor({30, 21}, f), 2.0315, -4.775}));
        }
}

void second_moment_cases(Cases& cases) {
    for (const std::string_view f : {"fp32", "bf16", "fp16", "e4m3"}) {
        for (const Fill fill : {Fill::ordinary, Fill::finite, Fill::edges}) {
            for (const bool of_columns : {false, true})
                for (const Shape& shape : {Shape{37, 130}, Shape{1, 19}}) {
                    OpCaseBuilder b(fmt::format("mean_square {} {}", f, of_columns ? "of columns" : "of rows"));
                    const TensorId x = b.tensor(shape, f, fill);
                    cases.push_back(b.build(op::MeanSquare{x, b.tensor({shape[of_columns ? 1 : 0]}, f), of_columns}));
                }
            OpCaseBuilder b(fmt::format("lerp {} by a power", f));
            b.context().update = 5;
            const TensorId x = b.tensor({700}, f, fill), y = b.tensor({700}, f, fill);
            cases.push_back(b.build(op::Lerp{x, y, b.tensor({700}, f), 1, false, -0.8}));
        }
        for (const Fill fill : {Fill::positive, Fill::edges}) {
            OpCaseBuilder b(fmt::format("inverse_root {}", f));
            const TensorId x = b.tensor({700}, f, fill);
            cases.push_back(b.build(op::InverseRoot{x, b.tensor({700}, f), 0x1p-6}));
        }
    }
}

/// The norms that Adafactor's step reads.
void add_norms(OpCaseBuilder& b, op::Update& op, std::string_view f) {
    if (!facts_of(op.options.kind).factors) return;
    op.weight_norm = b.tensor({}, f, Fill::positive);
    op.direction_norm = b.tensor({}, f, Fill::positive);
}

void update_cases(Cases& cases) {
    for (const OptimizerRow& row : optimizers())
        for (const UpdateRounding rounding :
             {UpdateRounding::nearest, UpdateRounding::stochastic, UpdateRounding::kahan})
            for (const std::string_view f : {"fp32", "bf16", "fp16"})
                for (const bool contract : {false, true}) {
                    OpCaseBuilder b(fmt::format("update {} {} {}", row.name, f, contract ? "contracted" : ""));
                    b.context().update = 4;
                    OptimizerOptions options = row.options;
                    options.learning_rate = 0.01;
                    options.contract = contract;
                    options.weight_decay = 0.1;
                    if (facts_of(options.kind).has_momentum) options.momentum = 0.9;
                    op::Update op;
                    op.options = options;
                    op.rate_factor = facts_of(options.kind).orthogonalizes ? 1.5 : 1;
                    op.rounding = rounding;
                    op.random_bits = contract ? 5 : 32;
                    op.weight = b.tensor({600}, f, Fill::finite);
                    op.gradient = b.tensor({600}, "fp32", Fill::edges);
                    op.stream = 5;
                    op.m = b.tensor({600}, f, Fill::finite);
                    if (options.has_v()) op.v = b.tensor({600}, f, Fill::positive);
                    if (rounding == UpdateRounding::kahan) op.compensation = b.tensor({600}, f, Fill::ordinary);
                    add_norms(b, op, f);
                    cases.push_back(b.build(op));
                }
}

void scaled_update_cases(Cases& cases) {
    for (const OptimizerRow& row : optimizers())
        for (const Fill fill : {Fill::ordinary, Fill::finite, Fill::zero, Fill::edges}) {
            OpCaseBuilder b(fmt::format("update {} scaled", row.name));
            b.context().update = 4;
            op::Update op;
            op.options = row.options;
            op.options.learning_rate = 0.01;
            op.weight = b.scaled_tensor({600}, "fp16:tensor", fill);
            op.gradient = b.tensor({600}, "fp32", fill);
            op.m = b.scaled_tensor({600}, "e4m3:tensor", fill);
            if (row.options.has_v()) op.v = b.scaled_tensor({600}, "fp16:tensor", Fill::positive);
            if (facts_of(row.options.kind).has_momentum) op.options.momentum = 0.9;
            add_norms(b, op, "fp32");
            cases.push_back(b.build(op));
        }
}

void block_state_cases(Cases& cases) {
    for (const char* const state : {"dynamic8:50", "bnb8:70", "dynamic4:30", "e4m3:60", "int8:256"})
        for (const bool contract : {false, true})
            for (const Fill fill : {Fill::ordinary, Fill::finite, Fill::zero, Fill::edges}) {
                OpCaseBuilder b(fmt::format("update state {} {}", state, contract ? "contracted" : ""));
                b.context().update = 4;
                op::Update op;
                op.options = optimizer("torchao-adamw").options;
                op.options.contract = contract;
                op.weight = b.tensor({600}, "bf16", fill);
                op.gradient = b.tensor({600}, "fp32", fill);
                op.m = b.scaled_tensor({600}, state, fill);
                op.v = b.scaled_tensor({600}, state, Fill::positive, false);
                cases.push_back(b.build(op));
            }
}

void block_cast_cases(Cases& cases) {
    for (const BlockSpec& spec : block_formats)
        for (std::size_t rule = 0; rule < scale_rule_names.size(); ++rule)
            for (const Rounding rounding : {Rounding::nearest_even, Rounding::stochastic})
                for (const Fill fill : {Fill::ordinary, Fill::edges}) {
                    const BlockScaling s{.element = spec.element,
                                         .rows = spec.rows,
                                         .columns = spec.columns,
                                         .rule = static_cast<ScaleRule>(rule)};
                    const BlockGrid grid = s.grid(37, 130);
                    const Shape shape{37, 130}, scales{grid.down, grid.across};
                    OpCaseBuilder b(
                        fmt::format("quantize {} by {} {}", spec.name, scale_rule_names[rule], name_of(rounding)));
                    op::Quantize op;
                    op.in = b.tensor(shape, "fp32", fill);
                    op.scaling = s;
                    op.rounding = rounding;
                    op.stream = 9;
                    op.out = b.tensor(shape, spec.element.name);
                    op.scale = b.tensor(scales, "fp32");
                    if (has_upper_scales(s.rule)) op.upper = b.tensor({}, "fp32");
                    cases.push_back(b.build(op));
                    if (rounding != Rounding::nearest_even) continue;
                    OpCaseBuilder d(fmt::format("dequantize {}", spec.name));
                    const TensorId in = d.tensor(shape, spec.element.name, fill),
                                   scale = d.tensor(scales, "fp32", Fill::positive);
                    cases.push_back(d.build(op::Dequantize{
                        .in = in,
                        .scale = scale,
                        .upper = has_upper_scales(s.rule) ? d.tensor({}, "fp32", Fill::positive) : TensorId{},
                        .out = d.tensor(shape, "bf16"),
                        .scaling = s}));
                }
}

void delayed_cast_cases(Cases& cases) {
    for (const bool ms_amp : {false, true})
        for (const Fill fill : {Fill::ordinary, Fill::finite, Fill::edges}) {
            const op::DelayedRule rule{.max = 448, .margin = 1, .ms_amp = ms_amp};
            OpCaseBuilder b(fmt::format("quantize delayed {}", ms_amp ? "ms-amp" : "te"));
            op::Quantize op;
            op.in = b.tensor({40, 33}, "fp32", fill);
            op.rule = rule;
            op.out = b.tensor({40, 33}, "e4m3");
            op.scale = b.tensor({1, 1}, "fp32");
            op.delayed = b.tensor({1}, "fp32", Fill::one);
            op.history = b.tensor({4}, "fp32", ms_amp ? Fill::zero : Fill::positive);
            cases.push_back(b.build(op));
            for (const bool most_recent : {false, true}) {
                OpCaseBuilder u(fmt::format("update_scale {}", ms_amp ? "ms-amp" : "te"));
                const TensorId history = u.tensor({6}, "fp32", fill == Fill::edges ? Fill::edges : Fill::positive);
                cases.push_back(u.build(op::UpdateScale{.history = history,
                                                        .scale = u.tensor({1}, "fp32", Fill::positive),
                                                        .rule = rule,
                                                        .most_recent = most_recent}));
            }
        }
    for (const int replica : {0, 2}) { // scales of their own
        OpCaseBuilder b("quantize delayed, a replica");
        b.context().replicas = 3;
        b.context().replica = replica;
        op::Quantize op;
        op.in = b.tensor({40, 33}, "fp32", Fill::ordinary);
        op.out = b.tensor({40, 33}, "e4m3");
        op.scale = b.tensor({1, 1}, "fp32");
        op.delayed = b.tensor({3}, "fp32", Fill::positive);
        op.history = b.tensor({3, 4}, "fp32", Fill::positive);
        cases.push_back(b.build(op));
        OpCaseBuilder u("update_scale, replicas");
        const TensorId history = u.tensor({3, 6}, "fp32", Fill::positive);
        cases.push_back(u.build(op::UpdateScale{.history = history, .scale = u.tensor({3}, "fp32", Fill::positive)}));
    }
}

void hadamard_cases(Cases& cases) {
    for (const std::int64_t height : {16, 37, 5}) {
        OpCaseBuilder b(fmt::format("hadamard {}", height));
        const TensorId in = b.tensor({height, 19}, "bf16", Fill::edges);
        cases.push_back(b.build(op::Hadamard{.in = in, .out = b.tensor({height, 19}, "bf16")}));
    }
}

/// Products with every row of the table, in the formats that it takes.
void product_cases(Cases& cases) {
    std::vector<std::string> names = {"fp32",     "bf16",  "fp16",           "e5m2",           "exact",
                                      "pairwise", "kahan", "fp32-promote32", "exact-promote16"};
    for (const HardwareRow& row : hardware_rows) {
        for (const char* sum : {"", "-acc16"}) {
            if (*sum != 0 && row.acc16.empty()) continue;
            const std::string name = std::string(row.name) + sum;
            names.insert(names.end(), {name, name + "-promote128", name + "-promote64-split2"});
        }
    }
    std::vector<std::string_view> operands(std::begin(formats_of_tensors), std::end(formats_of_tensors));
    operands.insert(operands.end(), {"int8", "int4"});
    std::size_t number = 0;
    for (const std::string& name : names)
        for (const std::string_view f : operands) {
            const Accumulator acc = accumulator(name);
            if (!acc.takes(format(f)) || acc.adds_integers() != format(f).is_integer()) continue;
            for (const Fill fill : {Fill::ordinary, Fill::finite, Fill::edges}) {
                if (acc.promote_every > 0 && fill != Fill::ordinary) continue; // long sums, of which one is enough
                ++number;
                const bool ta = number % 2 == 0, tb = number % 3 == 0;
                const std::int64_t batch = number % 4 == 0 ? 3 : 1, m = 5, n = 9;
                // Several periods of what is promoted, and parts of a split.
                const std::int64_t k = acc.promote_every > 0 ? 2 * acc.promote_every + 45 : number % 5 == 0 ? 1 : 77;
                OpCaseBuilder b(fmt::format("matmul {} of {}", name, f));
                op::Matmul op;
                op.batch = batch;
                op.m = m;
                op.n = n;
                op.k = k;
                op.transpose_a = ta;
                op.transpose_b = tb;
                op.a = b.tensor(ta ? Shape{batch, k, m} : Shape{batch, m, k}, f, fill);
                op.b = b.tensor(tb ? Shape{batch, n, k} : Shape{batch, k, n}, f, fill);
                if (number % 3 == 1) op.bias = b.tensor({number % 2 == 0 ? batch * n : n}, "fp32", Fill::finite);
                op.out = b.tensor({batch, m, n}, number % 2 == 0 ? "fp32" : "bf16");
                op.arithmetic.accumulate = acc;
                cases.push_back(b.build(op));
            }
        }
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::toward_zero, Rounding::nearest_away}) {
        OpCaseBuilder b("matmul tf32 mode");
        op::Matmul op;
        op.m = 6;
        op.n = 7;
        op.k = 40;
        op.arithmetic.operands = format("tf32");
        op.arithmetic.operand_rounding = rounding;
        op.a = b.tensor({6, 40}, "fp32", Fill::finite);
        op.b = b.tensor({40, 7}, "fp32", Fill::finite);
        op.out = b.tensor({6, 7}, "fp32");
        op.arithmetic.accumulate = accumulator("ampere-tf32");
        cases.push_back(b.build(op));
    }
}

void scaled_product_cases(Cases& cases) {
    struct Row {
        const char *element, *accumulate;
        BlockScaling a, b;
        bool upper;
    };
    const FormatSpec e4m3 = format("e4m3"), e2m1 = format("e2m1"), int8 = format("int8");
    const Row table[] = {
        {"e4m3", "hopper-wgmma-fp8", {e4m3, 0, 0, ScaleRule::te}, {e4m3, 0, 0, ScaleRule::te}, false},
        {"e4m3", "hopper-wgmma-fp8", {e4m3, 1, 128, ScaleRule::te_pow2}, {e4m3, 128, 128, ScaleRule::te_pow2}, false},
        {"e4m3", "blackwell-fp8", {e4m3, 1, 32, ScaleRule::mx_floor}, {e4m3, 1, 32, ScaleRule::mx_floor}, false},
        {"e4m3", "fp32", {e4m3, 1, 32, ScaleRule::mx_floor}, {e4m3, 1, 32, ScaleRule::mx_floor}, false},
        {"e2m1", "fp32", {e2m1, 1, 16, ScaleRule::nvfp4}, {e2m1, 1, 16, ScaleRule::nvfp4}, true},
        {"int8", "int32", {int8, 1, 0, ScaleRule::te}, {int8, 1, 128, ScaleRule::affine}, false},
        {"int8", "int32-satfinite", {int8, 1, 0, ScaleRule::te}, {int8, 1, 128, ScaleRule::te}, false},
    };
    for (const Row& row : table)
        for (const Fill fill : {Fill::ordinary, Fill::edges}) {
            constexpr std::int64_t m = 6, n = 9, k = 200;
            OpCaseBuilder b(fmt::format("matmul {} scaled", row.accumulate));
            op::Matmul op;
            op.m = m;
            op.n = n;
            op.k = k;
            op.transpose_b = true;
            op.a = b.tensor({m, k}, row.element, fill);
            op.b = b.tensor({n, k}, row.element, fill);
            const auto scale = [&](const BlockScaling& s, std::int64_t others) {
                const bool mx = is_mx(s.rule);
                const BlockGrid grid = s.grid(others, k);
                return op::OperandScale{.scale =
                                            b.tensor({grid.down, grid.across}, mx ? "e8m0" : "fp32", Fill::positive),
                                        .upper = row.upper ? b.tensor({}, "fp32", Fill::positive) : TensorId{},
                                        .scaling = s};
            };
            op.a_scale = scale(row.a, m);
            op.b_scale = scale(row.b, n);
            op.out = b.tensor({m, n}, "bf16");
            op.arithmetic.accumulate = accumulator(row.accumulate);
            cases.push_back(b.build(op));
        }
}

} // namespace amp::crosscheck_tool
