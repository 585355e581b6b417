// torch.amp.GradScaler's rules of use: every error where torch raises it, and what it leaves behind.
#include <ampscope/sim/optim/grad_scaler_protocol.h>

#include <ampscope/sim/optim/loss_scaler.h>

#include <doctest/doctest.h>

#include <string>

using namespace amp;

namespace {

/// The fault that a call raises.
template <class Call>
GradScalerFault fault_of(const Call& call) {
    try {
        call();
    } catch (const GradScalerError& error) {
        CHECK(std::string(error.what()).starts_with("[grad_scaler] "));
        return error.fault;
    }
    FAIL("no error");
    return {};
}

GradScalerProtocol scaled(GradScalerKind kind = GradScalerKind::torch) {
    GradScalerProtocol protocol(kind);
    protocol.scale();
    return protocol;
}

constexpr GradientFacts overflowed{.found_inf = true}, none{.any = false}, fp16{.fp16 = true};

} // namespace

TEST_CASE("the two usual loops") {
    GradScalerProtocol protocol = scaled();
    for (int i = 0; i < 3; ++i) { // step alone
        protocol.scale();
        CHECK(protocol.step(0));
        CHECK_FALSE(protocol.update());
    }
    for (int i = 0; i < 3; ++i) { // with clipping
        protocol.scale();
        protocol.unscale(0, overflowed);
        CHECK_FALSE(protocol.step(0)); // what unscale_ found holds, whatever the gradients are now
        CHECK(protocol.update());
    }
}

TEST_CASE("nothing before scale()") {
    GradScalerProtocol protocol;
    CHECK(fault_of([&] { protocol.unscale(0); }) == GradScalerFault::scale_not_called);
    CHECK(fault_of([&] { protocol.step(0); }) == GradScalerFault::scale_not_called);
    CHECK(fault_of([&] { protocol.update(); }) == GradScalerFault::scale_not_called);
    CHECK(fault_of([&] { protocol.set_scale(); }) == GradScalerFault::scale_not_called);
    protocol.scale();
    CHECK(protocol.step(0));
    protocol.update();
    CHECK(protocol.step(0)); // once is enough for good
}

TEST_CASE("unscale_ and step once each, in this order") {
    GradScalerProtocol protocol = scaled();
    protocol.unscale(0);
    CHECK(fault_of([&] { protocol.unscale(0); }) == GradScalerFault::unscaled_twice);
    protocol.unscale(1); // another optimizer
    CHECK(protocol.step(0));
    CHECK(fault_of([&] { protocol.step(0); }) == GradScalerFault::stepped_twice);
    CHECK(fault_of([&] { protocol.unscale(0); }) == GradScalerFault::unscaled_after_step);
    CHECK(fault_of([&] { protocol.unscale(1); }) == GradScalerFault::unscaled_twice);
    CHECK_FALSE(protocol.update());
    protocol.unscale(0); // a new iteration
    CHECK(protocol.step(0));
}

TEST_CASE("closures, for any optimizer and stage") {
    GradScalerProtocol protocol;
    CHECK(fault_of([&] { protocol.step(0, {}, {.closure = true}); }) == GradScalerFault::closure);
    CHECK(fault_of([&] { protocol.step(0, {}, {.fused = true, .closure = true}); }) == GradScalerFault::closure);
}

TEST_CASE("FP16 gradients: torch refuses to unscale, fused steps and sharded scalers take them") {
    GradScalerProtocol protocol = scaled();
    CHECK(fault_of([&] { protocol.unscale(0, fp16); }) == GradScalerFault::fp16_gradients);
    CHECK(fault_of([&] { protocol.step(0, fp16); }) == GradScalerFault::fp16_gradients); // still ready
    CHECK(fault_of([&] { protocol.update(); }) == GradScalerFault::nothing_checked_before_update);
    CHECK(protocol.step(0, fp16, {.fused = true}));

    GradScalerProtocol sharded = scaled(GradScalerKind::sharded);
    sharded.unscale(0, fp16);
    CHECK(sharded.step(0));
    for (const LossScalerRow& row : loss_scalers) CHECK(row.options.fp16_gradients == (row.name != "torch"));
}

TEST_CASE("an optimizer without gradients") {
    GradScalerProtocol protocol = scaled();
    CHECK(fault_of([&] { protocol.step(0, none); }) == GradScalerFault::nothing_checked_for_optimizer);
    CHECK(fault_of([&] { protocol.unscale(0); }) ==
          GradScalerFault::unscaled_twice); // the step unscaled before it fell
    CHECK(fault_of([&] { protocol.update(); }) == GradScalerFault::nothing_checked_before_update);
    CHECK(protocol.step(1)); // another one makes the update possible
    CHECK_FALSE(protocol.update());

    CHECK(protocol.step(0, none, {.fused = true})); // a sum over nothing is 0
    CHECK(fault_of([&] { protocol.update(); }) == GradScalerFault::nothing_checked_before_update);

    GradScalerProtocol sharded = scaled(GradScalerKind::sharded);
    CHECK(sharded.step(0, none));
    CHECK_FALSE(sharded.update());
}

TEST_CASE("update needs a check, update(new_scale) does not; both begin a new iteration") {
    GradScalerProtocol protocol = scaled();
    CHECK(fault_of([&] { protocol.update(); }) == GradScalerFault::nothing_checked_before_update);
    protocol.set_scale();
    CHECK(protocol.step(0));
    protocol.set_scale();
    CHECK(protocol.step(0));
    CHECK_FALSE(protocol.update());
    CHECK(fault_of([&] { protocol.update(); }) == GradScalerFault::nothing_checked_before_update);
}

TEST_CASE("each optimizer is skipped for its own gradients, the scale backs off for any") {
    GradScalerProtocol protocol = scaled();
    CHECK(protocol.step(0));
    CHECK_FALSE(protocol.step(1, overflowed));
    CHECK(protocol.step(2));
    const LossScalerOptions& options = loss_scaler("torch").options;
    CHECK(update_scale(options, initial_state(options), protocol.update()).state.scale == 32768);

    CHECK_FALSE(protocol.step(0, overflowed, {.fused = true}));
    CHECK(protocol.update());
    protocol.unscale(0, overflowed); // unscaled and never stepped counts too
    CHECK(protocol.update());
}
