// The rounding of every op: its results against its definition in numbers of 60 digits, rounded by the oracle. What is
// computed at once rounds once; chains (products, sums, reductions over replicas) round at every link, and optimizers
// at every operation, and so do the definitions.
#include "op_proofs_attention.h"
#include "op_proofs_batch.h"
#include "op_proofs_layers.h"
#include "op_proofs_layout.h"
#include "op_proofs_products.h"
#include "op_proofs_step.h"
#include "op_proofs_update.h"

#include <ampscope/sim/program/ops.h>

#include <bit>
#include <limits>

using namespace amp;
using namespace amp::test;

namespace {

/// Calls the proof of each alternative of Op. An op without one does not compile: it needs an overload of prove_op.
template <class... Ops>
void prove_each(Of<std::variant<Ops...>>) {
    const auto prove_one = [](auto which) {
        using Alternative = typename decltype(which)::type;
        Tally tally;
        Bench::start_anew();
        prove_op(which, tally);
        report(fmt::format("op {}: its definition in 60 digits, rounded", Alternative::name), tally);
        CHECK_MESSAGE(tally.cases >= 100, Alternative::name);
    };
    (prove_one(Of<Ops>{}), ...);
}

} // namespace

TEST_CASE("every op rounds as its definition says") { prove_each(Of<Op>{}); }

TEST_CASE("a NaN is the largest pixel of a window; the first of several has the gradient") {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    Bench b;
    const TensorId in = b.tensor({1, 2, 2, 5}, "fp32"), out = b.tensor({1, 1, 1, 5}, "fp32"),
                   grad_out = b.tensor({1, 1, 1, 5}, "fp32"), grad_in = b.tensor({1, 2, 2, 5}, "fp32");
    b.start({});
    b.write(in, {1, nan, -0.0F, 3, 1, 2, 5, 0, nan, 1, 3, nan, 0, nan, 1, 4, 6, -1, 9, 1});
    b.write(grad_out, {1, 2, 3, 4, 5});
    b.cpu().run(op::Pool{op::PoolKind::max, in, out, 2});
    b.cpu().run(op::PoolBackward{op::PoolKind::max, in, grad_out, grad_in, 2});
    Tally tally;
    const float named = std::bit_cast<float>(0x7fc00000);
    b.expect_bits(tally, out, {4, named, 0, named, 1}, "pool2d");
    b.expect_bits(tally, grad_in, {0, 2, 3, 0, 5, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}, "pool2d_backward");
    report("the largest pixel", tally);
}
