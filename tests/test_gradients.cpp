// The result and the gradient of every op in FP32 against its definition in numbers of 60 digits; gradients by central
// differences.
#include "gradient_check.h"

#include <ampscope/sim/train/data/dataset.h>

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;

namespace {

GradientCase activation_case(const reference::ActivationRow& row) {
    REQUIRE_MESSAGE((row.f != nullptr), "reference_ops.h lacks the last rows of activations");
    return {op::activation_names[static_cast<std::size_t>(row.kind)].data(),
            {{3, 5}},
            [row](Graph& g, const auto& x) { return op::activation(g, row.kind, x[0]); },
            [row](const auto& x) { return reference::map(x[0], row.f); }};
}

Reals transposed(const Reals& x, const Shape& shape, const std::array<int, 4>& order) {
    std::array<std::int64_t, 4> stride{shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}, i{};
    const auto extent = [&](std::size_t axis) { return shape[static_cast<std::size_t>(order[axis])]; };
    Reals out;
    for (i[0] = 0; i[0] < extent(0); ++i[0])
        for (i[1] = 0; i[1] < extent(1); ++i[1])
            for (i[2] = 0; i[2] < extent(2); ++i[2])
                for (i[3] = 0; i[3] < extent(3); ++i[3]) {
                    std::int64_t at = 0;
                    for (std::size_t axis = 0; axis < 4; ++axis)
                        at += i[axis] * stride[static_cast<std::size_t>(order[axis])];
                    out.push_back(reference::at(x, at));
                }
    return out;
}

} // namespace

TEST_CASE("products") {
    check_case({"linear",
                {{2, 3, 4}, {5, 4}, {5}},
                [](Graph& g, const auto& x) { return op::linear(g, x[0], x[1], x[2]); },
                [](const auto& x) { return reference::add(reference::matmul(x[0], x[1], 6, 5, 4, true), x[2]); }},
               1);
    for (const bool transpose_b : {false, true})
        check_case({"bmm",
                    {{2, 3, 4}, transpose_b ? Shape{2, 5, 4} : Shape{2, 4, 5}},
                    [=](Graph& g, const auto& x) { return op::matmul(g, x[0], x[1], transpose_b); },
                    [=](const auto& x) {
                        Reals out;
                        for (int b = 0; b < 2; ++b) {
                            const Reals one = reference::matmul({x[0].begin() + 12 * b, x[0].begin() + 12 * b + 12},
                                                                {x[1].begin() + 20 * b, x[1].begin() + 20 * b + 20}, 3,
                                                                5, 4, transpose_b);
                            out.insert(out.end(), one.begin(), one.end());
                        }
                        return out;
                    }},
                   2);
}

TEST_CASE("a weight that is used twice gets the sum") {
    check_case({"w w",
                {{3, 3}},
                [](Graph& g, const auto& x) { return op::matmul(g, op::matmul(g, x[0], x[0]), x[0], true); },
                [](const auto& x) {
                    return reference::matmul(reference::matmul(x[0], x[0], 3, 3, 3, false), x[0], 3, 3, 3, true);
                }},
               3);
}

TEST_CASE("element by element") {
    check_case({"add",
                {{3, 4}, {4}},
                [](Graph& g, const auto& x) { return op::add(g, x[0], x[1]); },
                [](const auto& x) { return reference::add(x[0], x[1]); }},
               4);
    check_case({"mul",
                {{3, 4}, {4}},
                [](Graph& g, const auto& x) { return op::mul(g, x[0], x[1]); },
                [](const auto& x) { return reference::mul(x[0], x[1]); }},
               5);
    check_case({"mul",
                {{3, 4}, {3, 4}},
                [](Graph& g, const auto& x) { return op::mul(g, x[0], x[1]); },
                [](const auto& x) { return reference::mul(x[0], x[1]); }},
               6);
    check_case({"scale",
                {{7}},
                [](Graph& g, const auto& x) { return op::scale(g, x[0], 0.75); },
                [](const auto& x) { return reference::map(x[0], [](const Real& v) { return Real(v * 3 / 4); }); }},
               7);
    for (std::size_t i = 0; i < reference::activations.size(); ++i)
        check_case(activation_case(reference::activations[i]), 8 + i);
}

TEST_CASE("softmax and norms") {
    for (const bool causal : {false, true})
        check_case({"softmax",
                    {{2, 5, 5}},
                    [=](Graph& g, const auto& x) { return op::softmax(g, x[0], causal); },
                    [=](const auto& x) { return reference::softmax(x[0], 5, causal); }},
                   13);
    check_case({"layer_norm",
                {{37, 9}, {9}, {9}},
                [](Graph& g, const auto& x) { return op::layer_norm(g, x[0], x[1], x[2]); },
                [](const auto& x) { return reference::norm(x[0], x[1], x[2], Real(1) / 100000, true); }},
               14);
    check_case({"rms_norm",
                {{4, 9}, {9}},
                [](Graph& g, const auto& x) { return op::rms_norm(g, x[0], x[1]); },
                [](const auto& x) { return reference::norm(x[0], x[1], {}, Real(1) / 1000000, false); }},
               15);
}

TEST_CASE("fused attention") {
    constexpr float no = -std::numeric_limits<float>::infinity();
    const std::vector<float> numbers = {0,  no,     -0.5F, 1.25F, no, no, no, 0.25F, -2, no, -1e9F, 2, 0,
                                        no, -0.75F, -1e4F, no,    1,  0,  -1, no,    0,  0,  -3,    1};
    for (const std::string_view kind : {"plain", "causal", "masked"})
        for (const char* tiles : {"fused", "fused:2x3", "fused:3x2,max=shifted"}) {
            const bool causal = kind == "causal";
            const auto mask = kind == "masked" ? numbers : std::vector<float>();
            check_case({"fused_attention",
                        {{1, 4, 5, 2}, {1, 2, 5, 2}, {1, 2, 5, 2}},
                        [=](Graph& g, const auto& x) {
                            return op::fused_attention(g, x[0], x[1], x[2], 0.7, causal, *op::attention_options(tiles),
                                                       mask.empty() ? TensorId{} : g.input("tokens", {1, 1, 5, 5}));
                        },
                        [=](const auto& x) {
                            return reference::attention(x[0], x[1], x[2], {4, 2, 5, 2}, Real(0.7), causal, mask);
                        },
                        mask},
                       27);
        }
}

TEST_CASE("rotary positions") {
    check_case({"rope",
                {{2, 5, 6}},
                [](Graph& g, const auto& x) { return op::rope(g, x[0], 100); },
                [turns = reference::rotations(5, 6, Real(100))](const auto& x) {
                    return reference::rope(x[0], turns, 6, false);
                }},
               26);
    Program program;
    Graph g(program, precision("fp32"));
    CHECK_THROWS_WITH(op::rope(g, g.input("x", {5, 3})), "[rope] expected ... x T x D with an even D, got (5, 3)");
    CHECK_THROWS_WITH(op::rope(g, g.input("y", {5, 4}), 0.5), "[rope] expected a theta of at least 1");
}

TEST_CASE("batch norm and group norm") {
    check_case({"batch_norm",
                {{2, 5, 4, 3}, {3}, {3}},
                [](Graph& g, const auto& x) {
                    return op::batch_norm(g, x[0], x[1], x[2], g.buffer("m", {3}, {}), g.buffer("v", {3}, {}));
                },
                [](const auto& x) {
                    const reference::Statistics s = reference::statistics(x[0], 3);
                    const Reals inverse =
                        reference::map(s.variance, [](const Real& v) { return Real(1 / sqrt(v + Real(1) / 100000)); });
                    return reference::batch_norm(x[0], x[1], x[2], s.mean, inverse);
                }},
               27);
    Program program;
    Graph g(program, precision("fp32"));
    const TensorId one = g.input("one", {1, 3}), c = g.input("c", {3}), d = g.input("d", {4});
    CHECK_THROWS_WITH(op::batch_norm(g, one, c, c, c, c),
                      "[batch_norm] expected at least two numbers a channel, got (1, 3)");
    CHECK_THROWS_WITH(op::batch_norm(g, one, c, d, c, c), "[batch_norm] expected ... x C and C, got (1, 3) and (4)");
    for (const std::int64_t groups : {1, 2, 6})
        check_case(
            {"group_norm",
             {{3, 6, 2, 5}, {6}, {6}},
             [=](Graph& graph, const auto& x) { return op::group_norm(graph, x[0], x[1], x[2], groups); },
             [=](const auto& x) { return reference::group_norm(x[0], x[1], x[2], groups, 10, Real(1) / 100000); }},
            28);
}

TEST_CASE("images") {
    for (const op::ConvAxis axis : {op::ConvAxis{3, 1, 1}, {3, 2, 0}, {3, 2, 2}})
        check_case({"conv2d",
                    {{2, 5, 4, 3}, {2, 27}, {2}},
                    [=](Graph& g, const auto& x) {
                        return op::conv2d(g, x[0], x[1], x[2], axis.kernel, axis.stride, axis.padding);
                    },
                    [=](const auto& x) { return reference::conv2d(x[0], x[1], x[2], 2, 5, 4, 3, axis, axis); }},
                   16);
    for (const auto& axes : {std::pair<op::ConvAxis, op::ConvAxis>{{1, 1, 0, 1}, {4, 2, 1, 1}},
                             {{3, 2, 1, 1}, {2, 3, 3, 1}},
                             {{3, 1, 2, 2}, {2, 1, 1, 3}},
                             {{2, 2, 0, 3}, {3, 1, 2, 2}}}) {
        const op::ConvAxis v = axes.first, h = axes.second;
        check_case({"conv2d with two different axes",
                    {{2, 5, 4, 3}, {2, v.kernel * h.kernel * 3}, {2}},
                    [=](Graph& g, const auto& x) { return op::conv2d(g, x[0], x[1], x[2], v, h); },
                    [=](const auto& x) { return reference::conv2d(x[0], x[1], x[2], 2, 5, 4, 3, v, h); }},
                   25);
    }
    for (const std::int64_t groups : {2, 4})
        check_case({"conv2d of groups",
                    {{2, 5, 4, 4}, {4, 6 * 4 / groups}, {4}},
                    [=](Graph& g, const auto& x) {
                        return op::conv2d(g, x[0], x[1], x[2], {3, 1, 1}, {2, 2}, groups);
                    },
                    [=](const auto& x) {
                        return reference::conv2d(x[0], x[1], x[2], 2, 5, 4, 4, {3, 1, 1}, {2, 2}, groups);
                    }},
                   16);
    for (const bool max : {false, true})
        check_case({"pool",
                    {{2, 5, 4, 3}},
                    [=](Graph& g, const auto& x) {
                        return op::pool(g, max ? op::PoolKind::max : op::PoolKind::average, x[0], 2);
                    },
                    [=](const auto& x) { return reference::pool(x[0], 2, 5, 4, 3, 2, max); }},
                   17);
}

TEST_CASE("convolutions that do not fit") {
    Program program;
    Graph g(program, precision("fp32"));
    const TensorId image = g.input("x", {2, 5, 4, 3}), weight = g.parameter("w", {2, 2 * 3 * 3}, {});
    const auto conv2d = [&](const op::ConvAxis& v, const op::ConvAxis& h) {
        return g[op::conv2d(g, image, weight, {}, v, h)].shape;
    };
    CHECK(conv2d({2, 1, 0, 4}, {3, 1, 1, 2}) == Shape{2, 1, 2, 2}); // just as large as the image
    CHECK_THROWS_WITH(
        conv2d({3}, {3}),
        "[conv2d] expected N x H x W x C and OUT x (KERNEL_H * KERNEL_W * C), got (2, 5, 4, 3) and (2, 18)");
    const TensorId halves = g.parameter("v", {3, 2}, {}), wide = g.input("y", {2, 5, 4, 4});
    CHECK_THROWS_WITH(
        op::conv2d(g, wide, halves, {}, op::ConvAxis{1}, op::ConvAxis{1}, 2),
        "[conv2d] expected N x H x W x C and OUT x (KERNEL_H * KERNEL_W * C / GROUPS), whose OUT and C the "
        "groups divide, got (2, 5, 4, 4) and (3, 2)");
    for (const auto& axes : {std::pair<op::ConvAxis, op::ConvAxis>{{2, 1, 0, 5}, {3}},
                             {{2}, {3, 1, 0, 2}},
                             {{2}, {3, 1, 0, std::int64_t{1} << 62}},
                             {{2, 0}, {3}},
                             {{2}, {3, 0}},
                             {{2, 1, -1}, {3}},
                             {{2, 1, 0, 0}, {3}},
                             {{-2}, {-3}}})
        CHECK_THROWS_WITH(conv2d(axes.first, axes.second),
                          "[conv2d] expected a padded image at least as large as the dilated kernel, got (2, 5, 4, 3)");
}

TEST_CASE("views, transposes, sums and means") {
    check_case({"view",
                {{2, 6}},
                [](Graph& g, const auto& x) {
                    return op::softmax(g, op::view(g, x[0], {3, 4}));
                },
                [](const auto& x) { return reference::softmax(x[0], 4, false); }},
               18);
    for (const std::array<int, 4> order : {std::array{0, 2, 1, 3}, std::array{3, 0, 1, 2}, std::array{1, 2, 3, 0}})
        check_case({"transpose",
                    {{2, 3, 4, 5}},
                    [=](Graph& g, const auto& x) { return op::transpose(g, x[0], order); },
                    [=](const auto& x) {
                        return transposed(x[0], {2, 3, 4, 5}, order);
                    }},
                   19);
    // Joined along the first axis, with zeros between, and parted along the last: the middle part is not read.
    check_case({"cat and split",
                {{2, 6}, {1, 6}},
                [](Graph& g, const auto& x) {
                    const auto parts = op::split(g, op::concat(g, {x[0], {}, x[1]}, 0, {2, 1, 1}), 1, {2, 1, 3});
                    return op::concat(g, {op::softmax(g, parts[2]), parts[0], {}}, 1, {3, 2, 0});
                },
                [](const auto& x) {
                    Reals rows = x[0], result;
                    rows.resize(18);
                    rows.insert(rows.end(), x[1].begin(), x[1].end());
                    for (std::ptrdiff_t r = 0; r < 4; ++r) {
                        const auto row = rows.begin() + 6 * r;
                        const Reals last = reference::softmax(Reals(row + 3, row + 6), 3, false);
                        result.insert(result.end(), last.begin(), last.end());
                        result.insert(result.end(), row, row + 2);
                    }
                    return result;
                }},
               20);
    const auto total = [](const Reals& x) {
        Real sum = 0;
        for (const Real& v : x) sum += v;
        return sum;
    };
    check_case({"sum",
                {{3, 4}},
                [](Graph& g, const auto& x) { return op::sum(g, x[0]); },
                [=](const auto& x) { return Reals{total(x[0])}; }},
               20);
    check_case({"mean",
                {{3, 4}},
                [](Graph& g, const auto& x) { return op::mean(g, x[0]); },
                [=](const auto& x) { return Reals{total(x[0]) / 12}; }},
               21);
}

TEST_CASE("losses and tables") {
    check_case({"cross_entropy",
                {{3, 4}},
                [](Graph& g, const auto& x) { return op::cross_entropy(g, x[0], g.input("tokens", {3})); },
                [](const auto& x) {
                    return Reals{reference::cross_entropy(x[0], {2, -1, 0})};
                },
                {2, -1, 0}},
               22);
    for (const op::LossTerms& terms : {op::LossTerms{0.25, 0}, {1, 0}, {0, 0.5}, {0.125, 2}})
        check_case({"cross_entropy with terms",
                    {{3, 4}},
                    [=](Graph& g, const auto& x) { return op::cross_entropy(g, x[0], g.input("tokens", {3}), terms); },
                    [=](const auto& x) {
                        return Reals{reference::cross_entropy(x[0], {2, -1, 0}, terms.label_smoothing, terms.z_loss)};
                    },
                    {2, -1, 0}},
                   24);
    check_case({"mse_loss",
                {{3}},
                [](Graph& g, const auto& x) { return op::mse_loss(g, x[0], g.input("tokens", {3})); },
                [](const auto& x) {
                    const Reals d = {x[0][0] - 2, x[0][1] + 1, x[0][2] - 5};
                    return Reals{(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]) / 3};
                },
                {2, -1, 5}},
               23);
    check_case({"embedding",
                {{4, 3}},
                [](Graph& g, const auto& x) { return op::embedding(g, x[0], g.input("tokens", {5})); },
                [](const auto& x) {
                    Reals out;
                    for (const int i : {3, 0, 1, 3, 3})
                        out.insert(out.end(), x[0].begin() + 3 * i, x[0].begin() + 3 * i + 3);
                    return out;
                },
                {3, 0, 1, 3, 3}},
               24);
}
