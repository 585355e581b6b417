#include <ampscope/formats/codec.h>
#include <ampscope/formats/environment.h>
#include <ampscope/tools/amp-crosscheck/op_case_builder.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/ranges.h>

namespace amp::crosscheck_tool {

void elementwise_cases(Cases& cases) {
    for (const std::string_view f : formats_of_tensors) {
        const auto binary = [&]<class T>(T op) {
            OpCaseBuilder b(fmt::format("{} {}", T::name, f));
            op.a = b.tensor({5, 7, 33}, "fp32", Fill::edges);
            op.b = b.tensor({7, 33}, f, Fill::edges);
            op.out = b.tensor({5, 7, 33}, f);
            cases.push_back(b.build(op));
        };
        binary(op::Add{});
        binary(op::Mul{});
        const auto unary = [&]<class T>(T op, const char* what, Fill fill) {
            OpCaseBuilder b(fmt::format("{} {} {}", T::name, what, f));
            op.in = b.tensor({3, 431}, "fp32", fill);
            op.out = b.tensor({3, 431}, f);
            cases.push_back(b.build(op));
        };
        op::Scale scale;
        for (const double factor : {0.1, 0x1p-20}) {
            scale.factor = factor;
            unary(scale, "by a factor", Fill::edges);
        }
        scale.in_single = true;
        unary(scale, "by a factor in FP32", Fill::edges);
        unary(op::Cast{}, "edges", Fill::edges);
        op::Dropout dropout;
        dropout.probability = 0.3;
        dropout.stream = 11;
        unary(dropout, "0.3", Fill::edges);
    }
}

void activation_cases(Cases& cases) {
    for (const std::string_view f : formats_of_tensors)
        for (std::size_t i = 0; i < op::activation_names.size(); ++i) {
            const auto kind = static_cast<op::ActivationKind>(i);
            OpCaseBuilder b(fmt::format("activation {} {}", op::activation_names[i], f));
            const TensorId in = b.tensor({1200}, "fp32", Fill::edges), out = b.tensor({1200}, f);
            cases.push_back(b.build(op::Activation{.kind = kind, .in = in, .out = out}));
            OpCaseBuilder g(fmt::format("activation_backward {} {}", op::activation_names[i], f));
            const TensorId saved = g.tensor({1200}, "fp32", Fill::edges), up = g.tensor({1200}, f, Fill::edges);
            cases.push_back(g.build(
                op::ActivationBackward{.kind = kind, .saved = saved, .grad_out = up, .grad_in = g.tensor({1200}, f)}));
        }
}

void row_cases(Cases& cases) {
    for (const std::string_view f : formats_of_tensors)
        for (const std::int64_t width : {1, 5, 16, 33, 130})
            for (const Fill fill : {Fill::ordinary, Fill::edges}) {
                const Shape shape{2, width, width};
                const std::string what = fmt::format("{} wide, {}, {}", width, f, fill == Fill::edges ? "edges" : "");
                for (const bool causal : {false, true}) {
                    OpCaseBuilder b(fmt::format("softmax {}", what));
                    const TensorId in = b.tensor(shape, "fp32", fill), out = b.tensor(shape, f);
                    cases.push_back(b.build(op::Softmax{.in = in, .out = out, .causal = causal}));
                    OpCaseBuilder g(fmt::format("softmax_backward {}", what));
                    const TensorId y = g.tensor(shape, f, fill), up = g.tensor(shape, f, fill);
                    cases.push_back(g.build(
                        op::SoftmaxBackward{.y = y, .grad_out = up, .grad_in = g.tensor(shape, f), .causal = causal}));
                }
                for (const bool inverse : {false, true}) {
                    OpCaseBuilder b(fmt::format("rope {}", what));
                    const TensorId in = b.tensor({2, width, 2 * width}, f, fill);
                    cases.push_back(
                        b.build(op::Rope{.in = in, .out = b.tensor({2, width, 2 * width}, f), .inverse = inverse}));
                }
                for (const op::NormKind kind : {op::NormKind::layer, op::NormKind::rms}) {
                    const bool layer = kind == op::NormKind::layer;
                    OpCaseBuilder b(fmt::format("norm {}", what));
                    const TensorId in = b.tensor({70, width}, f, fill), weight = b.tensor({width}, "fp32", fill),
                                   bias = layer ? b.tensor({width}, "fp32", fill) : TensorId{};
                    cases.push_back(b.build(op::Norm{
                        .kind = kind, .in = in, .weight = weight, .bias = bias, .out = b.tensor({70, width}, f)}));
                    OpCaseBuilder g(fmt::format("norm_backward {}", what));
                    const TensorId x = g.tensor({70, width}, f, fill), w = g.tensor({width}, "fp32", fill),
                                   up = g.tensor({70, width}, f, fill);
                    cases.push_back(g.build(op::NormBackward{.kind = kind,
                                                             .in = x,
                                                             .weight = w,
                                                             .grad_out = up,
                                                             .grad_in = g.tensor({70, width}, f),
                                                             .grad_weight = g.tensor({width}, "fp32"),
                                                             .grad_bias = layer ? g.tensor({width}, f) : TensorId{}}));
                }
            }
}

namespace {

std::string text_of(const op::ConvAxis& a) {
    return fmt::format("{} stride {} padding {} dilation {}", a.kernel, a.stride, a.padding, a.dilation);
}

/// Rows of a norm that are groups of channels.
void group_norm_cases(Cases& cases, std::string_view f) {
    for (const auto& [groups, channels, positions] :
         {std::tuple<std::int64_t, std::int64_t, std::int64_t>{3, 6, 7}, {1, 4, 33}, {5, 5, 16}, {2, 66, 1}})
        for (const Fill fill : {Fill::ordinary, Fill::edges}) {
            const Shape rows{15 * groups, channels / groups * positions};
            const op::NormRows of{groups, positions};
            const std::string what = fmt::format("{} groups of {} channels, {}", groups, channels, f);
            OpCaseBuilder b("norm, " + what);
            const TensorId in = b.tensor(rows, f, fill), weight = b.tensor({channels}, "fp32", fill),
                           bias = b.tensor({channels}, "fp32", fill);
            cases.push_back(
                b.build(op::Norm{.in = in, .weight = weight, .bias = bias, .out = b.tensor(rows, f), .rows = of}));
            OpCaseBuilder g("norm_backward, " + what);
            const TensorId x = g.tensor(rows, f, fill), w = g.tensor({channels}, "fp32", fill),
                           up = g.tensor(rows, f, fill);
            cases.push_back(g.build(op::NormBackward{.in = x,
                                                     .weight = w,
                                                     .grad_out = up,
                                                     .grad_in = g.tensor(rows, f),
                                                     .grad_weight = g.tensor({channels}, "fp32"),
                                                     .grad_bias = g.tensor({channels}, f),
                                                     .rows = of}));
        }
}

} // namespace

void image_cases(Cases& cases) {
    for (const std::string_view f : formats_of_tensors) {
        for (const auto& [vertical, horizontal] : {std::pair<op::ConvAxis, op::ConvAxis>{{3, 1, 1}, {3, 1, 1}},
                                                   {{2, 2, 0}, {2, 2, 0}},
                                                   {{3, 2, 1}, {3, 2, 1}},
                                                   {{1, 1, 0}, {1, 1, 0}},
                                                   {{1, 1, 0}, {4, 2, 1}},
                                                   {{3, 2, 1}, {2, 3, 3}},
                                                   {{3, 1, 2, 2}, {2, 1, 1, 3}},
                                                   {{3, 2, 0, 3}, {3, 2, 4, 4}}}) {
            const std::int64_t groups = cases.size() % 4 == 0 ? 3 : 1;
            const op::ConvGeometry g{2, 7, 6, 3, vertical, horizontal, groups};
            const Shape image{2, 7, 6, 3}, patches{groups * g.patches(), g.patch_size()};
            const std::string what =
                fmt::format("{}, {}, groups {}, {}", text_of(vertical), text_of(horizontal), groups, f);
            OpCaseBuilder b("im2col " + what);
            const TensorId in = b.tensor(image, f, Fill::edges);
            cases.push_back(b.build(op::Im2Col{.in = in, .out = b.tensor(patches, f), .geometry = g}));
            OpCaseBuilder c("col2im " + what);
            const TensorId sums = c.tensor(patches, "fp32", Fill::edges);
            cases.push_back(c.build(op::Col2Im{.in = sums, .out = c.tensor(image, f), .geometry = g}));
        }
        for (const bool training : {true, false}) {
            OpCaseBuilder b(fmt::format("batch_norm {}", f));
            op::BatchNorm op;
            op.in = b.tensor({4, 33, 5}, f, Fill::ordinary);
            op.weight = b.tensor({5}, "fp32", Fill::ordinary);
            op.bias = b.tensor({5}, f, Fill::ordinary);
            op.running_mean = b.tensor({5}, "fp32", Fill::ordinary);
            op.running_variance = b.tensor({5}, "fp32", Fill::positive);
            op.out = b.tensor({4, 33, 5}, f);
            op.mean = b.tensor({5}, "fp32");
            op.inverse = b.tensor({5}, "fp32");
            b.context().training = training;
            cases.push_back(b.build(op));
        }
        for (const Fill fill : {Fill::ordinary, Fill::edges}) {
            OpCaseBuilder b(fmt::format("batch_norm_backward {}", f));
            op::BatchNormBackward op;
            op.in = b.tensor({4, 33, 5}, f, fill);
            op.weight = b.tensor({5}, "fp32", fill);
            op.mean = b.tensor({5}, "fp32", Fill::ordinary);
            op.inverse = b.tensor({5}, "fp32", Fill::positive);
            op.grad_out = b.tensor({4, 33, 5}, f, fill);
            op.grad_in = b.tensor({4, 33, 5}, f);
            op.grad_weight = b.tensor({5}, "fp32");
            op.grad_bias = b.tensor({5}, "fp32");
            cases.push_back(b.build(op));
        }
        group_norm_cases(cases, f);
        for (const op::PoolKind kind : {op::PoolKind::max, op::PoolKind::average})
            for (const std::int64_t size : {2, 3}) {
                const Shape image{2, 7, 6, 3}, pooled{2, 7 / size, 6 / size, 3};
                OpCaseBuilder b(fmt::format("pool2d {} {}", size, f));
                const TensorId in = b.tensor(image, f, Fill::edges);
                cases.push_back(b.build(op::Pool{.kind = kind, .in = in, .out = b.tensor(pooled, f), .size = size}));
                OpCaseBuilder g(fmt::format("pool2d_backward {} {}", size, f));
                const TensorId x = g.tensor(image, f, Fill::edges), up = g.tensor(pooled, f, Fill::edges);
                cases.push_back(g.build(op::PoolBackward{
                    .kind = kind, .in = x, .grad_out = up, .grad_in = g.tensor(image, f), .size = size}));
            }
    }
}

void move_cases(Cases& cases) {
    for (const auto& [shape, order] : {std::pair<Shape, std::array<int, 4>>{{5, 7}, {1, 0, 2, 3}},
                                       {{2, 3, 4}, {0, 2, 1, 3}},
                                       {{2, 3, 4, 5}, {0, 2, 1, 3}},
                                       {{2, 3, 4, 5}, {3, 1, 0, 2}}}) {
        OpCaseBuilder b(fmt::format("transpose {}", fmt::join(shape, "x")));
        Shape out;
        for (std::size_t i = 0; i < shape.size(); ++i) out.push_back(shape[static_cast<std::size_t>(order[i])]);
        const TensorId in = b.tensor(shape, "fp32", Fill::edges);
        cases.push_back(b.build(op::Transpose{.in = in, .out = b.tensor(out, "fp32"), .order = order}));
    }
    for (const std::string_view f : formats_of_tensors) {
        const Shape shapes[] = {
            {4, 7, 1}, {4, 2, 1}, {4, 300, 1}}; // joined along the middle, the second is absent once
        for (const bool whole : {true, false}) {
            OpCaseBuilder b(fmt::format("cat {} {}", f, whole ? "three" : "two and zeros"));
            OpCaseBuilder s(fmt::format("split {} {}", f, whole ? "three" : "two"));
            op::Parts joined{.widths = {7, 2, 300}}, parted = joined;
            for (std::size_t i = 0; i < 3; ++i) {
                if (i == 1 && !whole) continue;
                joined.tensors[i] = b.tensor(shapes[i], f, Fill::edges);
                parted.tensors[i] = s.tensor(shapes[i], f);
            }
            cases.push_back(b.build(op::Concat{.parts = joined, .out = b.tensor({4, 309, 1}, f)}));
            const TensorId in = s.tensor({4, 309, 1}, f, Fill::edges);
            cases.push_back(s.build(op::Split{.in = in, .parts = parted}));
        }
    }
    OpCaseBuilder v("view");
    const TensorId in = v.tensor({6, 4}, "fp32", Fill::edges), out = v.tensor({24}, "fp32");
    OpCase view = v.build(op::View{.in = in, .out = out});
    view.program[out].storage = in;
    cases.push_back(std::move(view));
    for (const std::string_view f : formats_of_tensors) {
        OpCaseBuilder e(fmt::format("embedding {}", f));
        e.limit(9);
        const TensorId weight = e.tensor({9, 13}, "fp32", Fill::edges),
                       indices = e.tensor({4, 10}, "fp32", Fill::indices);
        cases.push_back(e.build(op::Embedding{.weight = weight, .indices = indices, .out = e.tensor({4, 10, 13}, f)}));
        OpCaseBuilder g(fmt::format("embedding_backward {}", f));
        g.limit(9);
        const TensorId uses = g.tensor({4, 10}, "fp32", Fill::indices), up = g.tensor({4, 10, 13}, f, Fill::edges);
        cases.push_back(
            g.build(op::EmbeddingBackward{.indices = uses, .grad_out = up, .grad_weight = g.tensor({9, 13}, f)}));
    }
}

void sum_cases(Cases& cases) {
    for (const std::string_view f : formats_of_tensors)
        for (const std::string_view accumulate : formats_of_tensors)
            for (const op::ReduceKind kind : {op::ReduceKind::sum, op::ReduceKind::mean})
                for (const Fill fill : {Fill::ordinary, Fill::edges}) {
                    OpCaseBuilder b(fmt::format("reduce in {} to {}", accumulate, f));
                    const std::int64_t batch = fill == Fill::edges ? 2 : 1;
                    const TensorId in = b.tensor({batch, 70, 37}, "fp32", fill), out = b.tensor({batch, 37}, f);
                    cases.push_back(b.build(op::Reduce{
                        .kind = kind, .in = in, .out = out, .batch = batch, .accumulate = format(accumulate)}));
                }
    for (const std::string_view f : formats_of_tensors) {
        OpCaseBuilder b(fmt::format("reduce_backward {}", f));
        const TensorId up = b.tensor({37}, "fp32", Fill::edges);
        cases.push_back(
            b.build(op::ReduceBackward{.grad_out = up, .grad_in = b.tensor({5, 37}, f), .factor = 1.0 / 5}));
    }
}

void cross_entropy_cases(Cases& cases, std::string_view f, Fill fill, const op::LossTerms& terms) {
    const std::string_view with = terms == op::LossTerms{} ? "" : " with terms";
    OpCaseBuilder b(fmt::format("cross_entropy {}{}", f, with));
    b.limit(17);
    const TensorId logits = b.tensor({40, 17}, f, fill), targets = b.tensor({40}, "fp32", Fill::targets);
    cases.push_back(
        b.build(op::CrossEntropy{.logits = logits, .targets = targets, .out = b.tensor({}, "fp32"), .terms = terms}));
    OpCaseBuilder g(fmt::format("cross_entropy_backward {}{}", f, with));
    g.limit(17);
    const TensorId x = g.tensor({40, 17}, f, fill), t = g.tensor({40}, "fp32", Fill::targets),
                   up = g.tensor({}, "fp32", Fill::ordinary);
    cases.push_back(g.build(op::CrossEntropyBackward{
        .logits = x, .targets = t, .grad_out = up, .grad_in = g.tensor({40, 17}, f), .terms = terms}));
}

void loss_cases(Cases& cases) {
    for (const std::string_view f : formats_of_tensors)
        for (const Fill fill : {Fill::ordinary, Fill::finite, Fill::edges}) {
            cross_entropy_cases(cases, f, fill, {});
            cross_entropy_cases(cases, f, fill, {0.1, 0.25});
            OpCaseBuilder m(fmt::format("mse_loss {}", f));
            const TensorId in = m.tensor({333}, f, fill), want = m.tensor({333}, "fp32", fill);
            cases.push_back(m.build(op::MseLoss{.in = in, .targets = want, .out = m.tensor({}, "fp32")}));
            OpCaseBuilder h(fmt::format("mse_loss_backward {}", f));
            const TensorId y = h.tensor({333}, f, fill), z = h.tensor({333}, "fp32", fill),
                           g0 = h.tensor({}, "fp32", Fill::ordinary);
            cases.push_back(
                h.build(op::MseLossBackward{.in = y, .targets = z, .grad_out = g0, .grad_in = h.tensor({333}, f)}));
        }
    for (const double scale : {1.0, 65536.0, 0x1p127, 3e-5}) {
        OpCaseBuilder b(fmt::format("loss_gradient {}", scale));
        b.context().loss_scale = scale;
        b.context().micro_batches = 3;
        cases.push_back(b.build(op::LossGradient{.out = b.tensor({}, "fp16")}));
    }
}

namespace {

/// A number that an operand begins with, from 64 random bits.
double number_of(Fill fill, const FormatSpec& f, std::uint64_t random, std::int64_t limit) {
    const auto low = static_cast<std::uint32_t>(random), high = static_cast<std::uint32_t>(random >> 32);
    // Box and Muller, near enough: the sum of four uniform numbers.
    double normal = -2;
    for (int i = 0; i < 4; ++i) normal += static_cast<double>(random >> (16 * i) & 0xffff) * 0x1p-16;
    switch (fill) {
    case Fill::indices: return low % static_cast<std::uint32_t>(limit);
    case Fill::targets: return high % 5 == 0 ? -1.0 : low % static_cast<std::uint32_t>(limit);
    case Fill::positive: return std::fabs(normal) + 0x1p-10;
    case Fill::mask:
        switch (high % 12) { // -1e9 and the least number are in use for -infinity
        case 0: return -1e9;
        case 1: return decode(f, f.max_code() | f.sign_mask());
        case 2:
        case 3:
        case 4: return -std::numeric_limits<double>::infinity();
        case 5:
        case 6: return 0;
        default: return normal;
        }
    case Fill::one: return 1;
    case Fill::zero: return 0;
    case Fill::ordinary: return normal * 1.7;
    case Fill::edges:
    case Fill::finite: break;
    }
    const double sign = (high & 1) != 0 ? -1 : 1;
    switch (high / 2 % 24) {
    case 0: return sign * 0.0;
    case 1: return sign * decode(f, f.max_code());
    case 2: return sign * decode(f, 1);
    case 3: return sign * decode(f, f.min_normal_code());
    case 4: return sign * (1 + 0x1p-9);      // a tie of BF16
    case 5: return sign * (1 + 3 * 0x1p-11); // one of FP16
    case 6: return sign * 464;               // of E4M3, at its end
    case 7: return sign * 65520;
    case 8: return sign * 0x1p-25;
    case 9: return fill == Fill::edges && high % 7 == 0 ? sign * std::numeric_limits<double>::infinity() : 3;
    case 10: return fill == Fill::edges && high % 7 == 0 ? std::numeric_limits<double>::quiet_NaN() : -3;
    case 11:
    case 12: { // any bits
        const double x = std::bit_cast<float>(low);
        return std::isfinite(x) ? x : 1;
    }
    default: return normal * 1.7;
    }
}

/// Whether a mask hides the whole tile of 4 queries and 3 keys, of a head, to which a number of it belongs.
bool is_in_hidden_tile(const RandomKey& key, const Shape& shape, std::uint64_t index) {
    const auto rows = static_cast<std::uint64_t>(shape[2]), columns = static_cast<std::uint64_t>(shape[3]);
    const std::uint64_t head = index / columns / rows, down = index / columns % rows / 4, across = index % columns / 3;
    const std::uint64_t tile = (head * rows + down) * columns + across;
    return key.words(tile + (std::uint64_t{1} << 32))[0] % 3 == 0;
}

} // namespace

std::vector<OpCase> op_cases() {
    Cases cases;
    for (const auto add :
         {elementwise_cases, activation_cases, row_cases, attention_cases, image_cases, move_cases, sum_cases,
          loss_cases, gradient_cases, orthogonal_cases, second_moment_cases, update_cases, scaled_update_cases,
          block_state_cases, block_cast_cases, delayed_cast_cases, hadamard_cases, product_cases, scaled_product_cases})
        add(cases);
    return cases;
}

void fill_operands(Backend& backend, const OpCase& c, std::uint64_t seed) {
    const FloatEnvironment environment; // here a conversion to FP32 is the same rounding, and ten times as fast
    backend.context = c.context;
    for (const auto& [id, fill] : c.operands) {
        const RandomKey key{.seed = seed, .stream = static_cast<std::uint32_t>(id.index)};
        const FormatSpec f = backend.info(id).format;
        const bool is_fp32 = f == fp32_format();
        std::uint64_t index = 0;
        for (float& x : backend[id]) {
            const auto words = key.words(index++);
            const std::uint64_t random = words[0] | static_cast<std::uint64_t>(words[1]) << 32;
            // A format without infinities keeps its largest value, or what is wide would be all NaN.
            const bool infinite = fill == Fill::edges || fill == Fill::mask;
            const bool hidden = fill == Fill::mask && is_in_hidden_tile(key, backend.info(id).shape, index - 1);
            const double number =
                hidden ? -std::numeric_limits<double>::infinity() : number_of(fill, f, random, c.limit);
            if (is_fp32 && std::fabs(number) <= std::numeric_limits<float>::max()) x = static_cast<float>(number);
            else x = quantize(f, number, {.overflow = infinite ? Overflow::infinity : Overflow::saturate_all});
        }
    }
}

} // namespace amp::crosscheck_tool
