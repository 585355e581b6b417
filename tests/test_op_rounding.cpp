// The single rounding of every op: its result in each format against its definition in numbers of 60 digits, rounded by
// the oracle. Chains (products, sums, reductions over replicas) round at every step, and so does the definition here.
#include "reference_ops.h"
#include "sweep.h"

#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/base/noise.h>
#include <ampscope/sim/train/data/dataset.h>

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;
using reference::Real;
using reference::Reals;
using reference::rounded;

namespace {

constexpr const char* results[] = {"fp32", "tf32", "fp16", "bf16", "e4m3", "e5m2"};

/// A program of one op, with operands of random values of their formats.
class Bench {
  public:
    TensorId tensor(Shape shape, const char* name) {
        program_.tensors.push_back({.name = "", .shape = std::move(shape), .format = format(name)});
        return {static_cast<std::int32_t>(program_.tensors.size() - 1)};
    }
    /// Fills these tensors with random numbers, then runs the op.
    template <class Op>
    void run(const Op& op, std::initializer_list<TensorId> operands) {
        start(operands);
        cpu_->run(op);
    }
    void start(std::initializer_list<TensorId> operands) {
        cpu_ = std::make_unique<Cpu>(program_, 1);
        for (const TensorId id : operands)
            for (std::size_t i = 0; i < (*cpu_)[id].size(); ++i)
                (*cpu_)[id][i] = quantize(program_[id].format, normal(seed_, static_cast<std::uint32_t>(id.index), i));
        ++seed_;
    }
    [[nodiscard]] Cpu& cpu() { return *cpu_; }
    [[nodiscard]] Reals values(TensorId id) {
        Reals out;
        for (const float x : (*cpu_)[id]) out.emplace_back(x);
        return out;
    }
    void expect(Tally& tally, TensorId out, const Reals& want, const char* what) {
        REQUIRE(want.size() == (*cpu_)[out].size());
        for (std::size_t i = 0; i < want.size(); ++i) {
            const float got = (*cpu_)[out][i];
            tally.expect(want[i] == 0 && got == 0 ? 0.0F : got, rounded(program_[out].format.name, want[i]),
                         [&] { return fmt::format("{} in {}, element {}", what, program_[out].format.name, i); });
        }
    }

  private:
    Program program_;
    std::unique_ptr<Cpu> cpu_;
    static inline std::uint64_t seed_ = 1;
};

void check(const char* what, const Tally& tally, std::uint64_t at_least) {
    report(what, tally);
    CHECK(tally.cases >= at_least);
}

/// Compares element by element: out = f(operands).
template <class Make, class F>
void check_map(const char* what, int operands, const Make& make, const F& f) {
    Tally tally;
    for (const char* result : results) {
        Bench b;
        std::vector<TensorId> in;
        for (int i = 0; i < operands; ++i) in.push_back(b.tensor({2000}, "fp16"));
        const TensorId out = b.tensor({2000}, result);
        if (operands == 1) b.run(make(in, out), {in[0]});
        else b.run(make(in, out), {in[0], in[1]});
        Reals want;
        const Reals x = b.values(in[0]), y = b.values(in.back());
        for (std::size_t i = 0; i < x.size(); ++i) want.push_back(f(x[i], y[i]));
        b.expect(tally, out, want, what);
    }
    check(what, tally, 12000);
}

Real derivative(Real (*f)(const Real&), const Real& x) {
    const Real h = 1e-15; // gives an error of h^2
    return (f(x + h) - f(x - h)) / (2 * h);
}

} // namespace

TEST_CASE("element by element") {
    check_map(
        "add", 2,
        [](const auto& in, TensorId out) {
            return op::Add{in[0], in[1], out};
        },
        [](const Real& x, const Real& y) { return Real(x + y); });
    check_map(
        "mul", 2,
        [](const auto& in, TensorId out) {
            return op::Mul{in[0], in[1], out};
        },
        [](const Real& x, const Real& y) { return Real(x * y); });
    check_map(
        "scale", 1,
        [](const auto& in, TensorId out) {
            return op::Scale{in[0], out, 0x1.8p-9};
        },
        [](const Real& x, const Real&) { return Real(x * 3 / 1024); });
    check_map(
        "cast", 1,
        [](const auto& in, TensorId out) {
            return op::Cast{in[0], out};
        },
        [](const Real& x, const Real&) { return x; });
}

TEST_CASE("activations and their gradients") {
    for (const reference::ActivationRow& row : reference::activations) {
        REQUIRE((row.f != nullptr)); // reference_ops.h lacks its last rows
        const auto* const name = op::activation_names[static_cast<std::size_t>(row.kind)].data();
        check_map(
            name, 1,
            [&](const auto& in, TensorId out) {
                return op::Activation{row.kind, in[0], out};
            },
            [&](const Real& x, const Real&) { return row.f(x); });
        check_map(
            name, 2,
            [&](const auto& in, TensorId out) {
                return op::ActivationBackward{row.kind, in[0], in[1], out};
            },
            [&](const Real& x, const Real& g) {
                if (row.kind == op::ActivationKind::relu) return x > 0 ? g : Real(0);
                // x is the op's result here
                if (row.kind == op::ActivationKind::tanh) return Real(g * (1 - x * x));
                if (row.kind == op::ActivationKind::sigmoid) return Real(g * x * (1 - x));
                return Real(g * derivative(row.f, x));
            });
    }
}

TEST_CASE("softmax and its gradient") {
    for (const bool causal : {false, true}) {
        Tally tally;
        for (const char* result : results) {
            Bench b;
            const TensorId in = b.tensor({3, 37, 37}, "bf16"), out = b.tensor({3, 37, 37}, result);
            b.run(op::Softmax{in, out, causal}, {in});
            b.expect(tally, out, reference::softmax(b.values(in), 37, causal), "softmax");

            Bench c;
            const TensorId y = c.tensor({3, 37, 37}, "fp16"), g = c.tensor({3, 37, 37}, "fp16"),
                           to = c.tensor({3, 37, 37}, result);
            c.run(op::SoftmaxBackward{y, g, to, causal}, {y, g});
            Reals want = c.values(y);
            const Reals grad = c.values(g);
            for (std::size_t row = 0; row < want.size() / 37; ++row) {
                const std::size_t known = causal ? row % 37 + 1 : 37;
                Real sum = 0;
                for (std::size_t j = 0; j < known; ++j) sum += want[row * 37 + j] * grad[row * 37 + j];
                for (std::size_t j = 0; j < 37; ++j)
                    want[row * 37 + j] *= j < known ? Real(grad[row * 37 + j] - sum) : Real(0);
            }
            c.expect(tally, to, want, "softmax_backward");
        }
        check("softmax and its gradient", tally, 40000);
    }
}

TEST_CASE("norms and their gradients") {
    constexpr std::int64_t rows = 70, n = 19;
    for (const op::NormKind kind : {op::NormKind::layer, op::NormKind::rms}) {
        Tally tally;
        const bool centers = kind == op::NormKind::layer;
        const Real eps = 1e-5;
        for (const char* result : results) {
            Bench b;
            const TensorId in = b.tensor({rows, n}, "fp16"), w = b.tensor({n}, "fp32"),
                           bias = centers ? b.tensor({n}, "fp32") : TensorId{}, out = b.tensor({rows, n}, result);
            if (centers) b.run(op::Norm{kind, in, w, bias, out, 1e-5}, {in, w, bias});
            else b.run(op::Norm{kind, in, w, bias, out, 1e-5}, {in, w});
            b.expect(tally, out,
                     reference::norm(b.values(in), b.values(w), centers ? b.values(bias) : Reals{}, eps, centers),
                     "norm");

            Bench c;
            const TensorId x = c.tensor({rows, n}, "fp16"), v = c.tensor({n}, "fp32"), g = c.tensor({rows, n}, "fp16");
            const TensorId to_x = c.tensor({rows, n}, result), to_w = c.tensor({n}, result),
                           to_b = centers ? c.tensor({n}, result) : TensorId{};
            c.run(op::NormBackward{kind, x, v, g, to_x, to_w, to_b, 1e-5}, {x, v, g});
            // y is the norm without weight: the gradient of weight is the sum of g y; x has the textbook's formula.
            const Reals y = reference::norm(c.values(x), Reals(n, Real(1)), {}, eps, centers), grad = c.values(g),
                        weight = c.values(v), values = c.values(x);
            Reals want_x, want_w(n, Real(0)), want_b(n, Real(0));
            for (std::size_t r = 0; r < rows; ++r) {
                Real mean = 0, along = 0, moment = 0, center = 0;
                for (std::size_t j = 0; j < n; ++j) {
                    const Real d = grad[r * n + j] * weight[j];
                    mean += d / n;
                    along += d * y[r * n + j] / n;
                    center += values[r * n + j] / n;
                    want_w[j] += grad[r * n + j] * y[r * n + j];
                    want_b[j] += grad[r * n + j];
                }
                for (std::size_t j = 0; j < n; ++j) {
                    const Real d = values[r * n + j] - (centers ? center : Real(0));
                    moment += d * d / n;
                }
                for (std::size_t j = 0; j < n; ++j)
                    want_x.push_back((grad[r * n + j] * weight[j] - (centers ? mean : Real(0)) - y[r * n + j] * along) /
                                     sqrt(moment + eps));
            }
            c.expect(tally, to_x, want_x, "norm_backward x");
            c.expect(tally, to_w, want_w, "norm_backward weight");
            if (centers) c.expect(tally, to_b, want_b, "norm_backward bias");
        }
        check("norms and their gradients", tally, 15000);
    }
}

TEST_CASE("losses and their gradients") {
    Tally tally;
    const std::vector<int> targets = {3, 0, -1, 10, 7, -1, 2};
    for (const char* result : results) {
        Bench b;
        const TensorId x = b.tensor({7, 11}, "fp16"), t = b.tensor({7}, "fp32"), out = b.tensor({}, result),
                       g = b.tensor({}, "fp32"), to = b.tensor({7, 11}, result);
        b.start({x, g});
        std::ranges::copy(targets, b.cpu()[t].begin());
        b.cpu().run(op::CrossEntropy{x, t, out});
        b.cpu().run(op::CrossEntropyBackward{x, t, g, to});
        b.expect(tally, out, {reference::cross_entropy(b.values(x), targets)}, "cross_entropy");
        Reals want = reference::softmax(b.values(x), 11, false);
        for (std::size_t i = 0; i < want.size(); ++i) {
            const int target = targets[i / 11];
            if (target == static_cast<int>(i % 11)) want[i] -= 1;
            want[i] *= target < 0 ? Real(0) : Real(b.values(g)[0] / 5);
        }
        b.expect(tally, to, want, "cross_entropy_backward");

        Bench c;
        const TensorId u = c.tensor({50}, "fp16"), v = c.tensor({50}, "fp16"), mse = c.tensor({}, result),
                       h = c.tensor({}, "fp32"), back = c.tensor({50}, result);
        c.start({u, v, h});
        c.cpu().run(op::MseLoss{u, v, mse});
        c.cpu().run(op::MseLossBackward{u, v, h, back});
        Real sum = 0;
        Reals slopes;
        for (std::size_t i = 0; i < 50; ++i) {
            const Real d = c.values(u)[i] - c.values(v)[i];
            sum += d * d / 50;
            slopes.push_back(2 * d * c.values(h)[0] / 50);
        }
        c.expect(tally, mse, {sum}, "mse_loss");
        c.expect(tally, back, slopes, "mse_loss_backward");
    }
    check("losses and their gradients", tally, 700);
}

TEST_CASE("pooling and spreading") {
    Tally tally;
    for (const char* result : results) {
        Bench b;
        const TensorId x = b.tensor({2, 7, 9, 3}, "fp16"), out = b.tensor({2, 2, 3, 3}, result);
        b.run(op::Pool{op::PoolKind::average, x, out, 3}, {x});
        b.expect(tally, out, reference::pool(b.values(x), 2, 7, 9, 3, 3, false), "avg_pool2d");
        Bench c;
        const TensorId g = c.tensor({5}, "fp16"), to = c.tensor({20, 5}, result);
        c.run(op::ReduceBackward{g, to, 1.0 / 3}, {g});
        Reals want;
        for (int i = 0; i < 100; ++i) want.push_back(c.values(g)[static_cast<std::size_t>(i % 5)] * Real(1.0 / 3));
        c.expect(tally, to, want, "reduce_backward");
    }
    check("pooling and spreading", tally, 700);
}

TEST_CASE("chains of a matrix product round at every link to the accumulator, then once to the result") {
    Tally tally;
    constexpr std::int64_t m = 7, n = 13, k = 33;
    for (const char* accumulate : {"fp32", "fp16", "bf16", "e5m2", "e8m21", "e6m9"})
        for (const char* operand : {"fp32", "fp16", "e4m3"})
            for (const char* result : {"fp32", "fp16", "bf16"}) {
                if (oracle::facts.end() ==
                    std::ranges::find(oracle::facts, std::string_view(accumulate), &oracle::Facts::name))
                    continue;
                Bench b;
                const TensorId x = b.tensor({m, k}, operand), w = b.tensor({n, k}, operand),
                               bias = b.tensor({n}, "fp16"), out = b.tensor({m, n}, result);
                b.run(op::Matmul{.a = x,
                                 .b = w,
                                 .bias = bias,
                                 .out = out,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .transpose_b = true,
                                 .arithmetic = {.accumulate = accumulator(accumulate)}},
                      {x, w, bias});
                const Reals a = b.values(x), c = b.values(w), d = b.values(bias);
                Reals want;
                for (std::int64_t i = 0; i < m; ++i)
                    for (std::int64_t j = 0; j < n; ++j) {
                        float sum = 0;
                        for (std::int64_t l = 0; l < k; ++l)
                            sum = rounded(accumulate, reference::at(a, i * k + l) * reference::at(c, j * k + l) + sum);
                        // The bias is added in FP32 or wider, as in a kernel's epilogue.
                        sum = rounded(accumulate, Real(rounded("fp32", Real(sum) + reference::at(d, j))));
                        want.emplace_back(sum);
                    }
                b.expect(tally, out, want, "matmul");
            }
    check("chains of a matrix product round at every link to the accumulator, then once to the result", tally, 4000);
}

TEST_CASE("operands are read in the format of the product's mode") {
    Tally tally;
    for (const Rounding rounding : {Rounding::nearest_away, Rounding::toward_zero}) {
        Bench b;
        const TensorId x = b.tensor({4, 9}, "fp32"), w = b.tensor({9, 5}, "fp32"), out = b.tensor({4, 5}, "fp32");
        b.run(op::Matmul{.a = x,
                         .b = w,
                         .bias = {},
                         .out = out,
                         .m = 4,
                         .n = 5,
                         .k = 9,
                         .arithmetic = {.operands = format("tf32"), .operand_rounding = rounding}},
              {x, w});
        const auto read = [&](const Real& v) {
            const oracle::Facts& tf32 = oracle::find("tf32");
            return Real(oracle::to_float(
                tf32, oracle::convert({tf32, {.rounding = rounding}}, oracle::read(static_cast<float>(v))).code));
        };
        Reals want;
        for (std::int64_t i = 0; i < 4; ++i)
            for (std::int64_t j = 0; j < 5; ++j) {
                float sum = 0;
                for (std::int64_t l = 0; l < 9; ++l)
                    sum = rounded("fp32", read(reference::at(b.values(x), i * 9 + l)) *
                                                  read(reference::at(b.values(w), l * 5 + j)) +
                                              sum);
                want.emplace_back(sum);
            }
        b.expect(tally, out, want, "tf32");
    }
    check("operands are read in the format of the product's mode", tally, 40);
}

TEST_CASE("sums round at every link") {
    Tally tally;
    for (const char* accumulate : {"fp32", "fp16", "bf16"})
        for (const op::ReduceKind kind : {op::ReduceKind::sum, op::ReduceKind::mean}) {
            Bench b;
            const TensorId x = b.tensor({61, 3}, "fp16"), out = b.tensor({3}, "fp16");
            b.run(op::Reduce{kind, x, out, format(accumulate)}, {x});
            Reals want;
            for (std::int64_t j = 0; j < 3; ++j) {
                float sum = 0;
                for (std::int64_t i = 0; i < 61; ++i)
                    sum = rounded(accumulate, Real(sum) + reference::at(b.values(x), 3 * i + j));
                want.push_back(kind == op::ReduceKind::mean ? Real(Real(sum) / 61) : Real(sum));
            }
            b.expect(tally, out, want, "reduce");
        }
    check("sums round at every link", tally, 18);
}

TEST_CASE("an all-reduce rounds what it sends and every sum") {
    Tally tally;
    constexpr std::size_t replicas = 3, count = 10;
    for (const char* transport : {"fp32", "bf16", "fp16"})
        for (const op::AllReduceOrder order : {op::AllReduceOrder::ring, op::AllReduceOrder::tree})
            for (const op::AllReduceDivision division : {op::AllReduceDivision::before, op::AllReduceDivision::after}) {
                Bench b;
                const TensorId x = b.tensor({count}, "fp32"), y = b.tensor({count}, "fp32"),
                               z = b.tensor({count}, "fp32"), out = b.tensor({count}, "fp32");
                b.run(op::AllReduce{{x, y, z}, out, order, division, format(transport)}, {x, y, z});
                Reals want;
                for (std::size_t i = 0; i < count; ++i) {
                    Real sent[replicas];
                    std::size_t r = 0;
                    for (const TensorId id : {x, y, z}) {
                        const Real v = b.values(id)[i];
                        sent[r++] = rounded(transport, division == op::AllReduceDivision::before ? Real(v / 3) : v);
                    }
                    // Chunks of 4, 3 and 3 elements: chunk c is summed from replica c + 1 on.
                    const std::size_t chunk = i < 4   ? 0
                                              : i < 7 ? 1
                                                      : 2,
                                      first = order == op::AllReduceOrder::ring ? (chunk + 1) % 3 : 0;
                    float sum = rounded(transport, sent[first] + sent[(first + 1) % 3]);
                    sum = rounded(transport, Real(sum) + sent[(first + 2) % 3]);
                    want.emplace_back(division == op::AllReduceDivision::after ? rounded(transport, Real(sum) / 3)
                                                                               : sum);
                }
                b.expect(tally, out, want, "all_reduce");
            }
    check("an all-reduce rounds what it sends and every sum", tally, 120);
}
