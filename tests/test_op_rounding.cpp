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
