// What layers compute whose arithmetic differs from the rest of the network: each has the bits of a network that is
// like it throughout. The text of policies is tested in test_layer_policies.cpp.
#include <ampscope/formats/batch.h>
#include <ampscope/sim/eager/eager_op.h>
#include <ampscope/sim/train/configuration.h>
#include <ampscope/sim/train/data/dataset.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

using namespace amp;

namespace {

using Policies = std::vector<LayerPolicy>;

Precision with_layers(const std::string& text, const Policies& policies) {
    Precision p = precision(text);
    for (const LayerPolicy& policy : policies) p.add_layer(policy.modules, policy.text);
    return p;
}

TrainOptions options_with(const std::string& network, const Precision& precision) {
    TrainOptions o{.model = model(network).defaults, .precision = precision, .batch = 8};
    o.model.width = 32;
    o.optimizer = optimizer("adamw").options;
    o.optimizer.learning_rate = 0.01;
    return o;
}

std::string trained(const TrainOptions& o, const Dataset& data) {
    Trainer trainer(o, data, 1);
    for (int i = 0; i < 3; ++i) trainer.step();
    return fingerprint_of(trainer);
}

TensorId tensor(const Program& p, const std::string& name) {
    const auto found = std::ranges::find(p.tensors, name, &TensorInfo::name);
    REQUIRE_MESSAGE(found != p.tensors.end(), name);
    return {static_cast<std::int32_t>(found - p.tensors.begin())};
}

/// What a product reads: its operands' formats, or that to which it rounds them.
std::string operands_of(const Program& p, const op::Matmul& m) {
    const FormatSpec& as = m.arithmetic.operands;
    const auto name = [&](TensorId id) { return std::string(as == format("fp32") ? p[id].format.name : as.name); };
    return name(m.a) + " x " + name(m.b);
}

/// The products of forward and backward whose result's name begins so.
std::vector<std::string> products(const Program& p, const std::string& name) {
    std::vector<std::string> all;
    for (const Tape* tape : {&p.forward, &p.backward})
        for (const Instruction& i : *tape)
            if (const auto* const m = std::get_if<op::Matmul>(&i.op); m != nullptr && p[m->out].name.starts_with(name))
                all.push_back(operands_of(p, *m));
    return all;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
    return std::ranges::equal(
        a, b, [](float x, float y) { return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y); });
}

/// A tensor as a framework holds it: in BF16, or FP32.
struct Held {
    bool wide;
    std::vector<float> floats;
    std::vector<std::uint16_t> halves;

    Held(std::span<const float> values, bool is_wide)
        : wide(is_wide), floats(values.begin(), values.end()), halves(values.size()) {
        if (!wide) encode(format("bf16"), values, std::span(halves));
    }
    void* data() { return wide ? static_cast<void*>(floats.data()) : halves.data(); }
    [[nodiscard]] bool is(std::span<const float> values) const {
        std::vector<float> own = floats;
        if (!wide) decode(format("bf16"), halves, std::span(own));
        return same_bits(own, values);
    }
};

/// Whether a layer of a trained network computes what it does alone, in a network of that precision throughout, from
/// the same operands and gradient. `wide`: it reads the weight in FP32.
void compare_alone(const Trainer& trainer, const std::string& name, const std::string& input, const std::string& text,
                   bool wide) {
    CAPTURE(name);
    const Program& p = trainer.training().program;
    const Backend& b = trainer.backend();
    const TensorId x = tensor(p, input), weight = tensor(p, name + ".weight"), out = tensor(p, name + ".linear");
    const std::vector<EagerOperand> operands = {
        {.shape = p[x].shape, .format = format("bf16"), .needs_gradient = true},
        {.shape = p[weight].shape, .format = format(wide ? "fp32" : "bf16"), .weight = true, .needs_gradient = true},
        {.shape = {p[weight].shape[0]}, .format = format("bf16"), .weight = true}};
    Held held_x(b[x], false), held_weight(b[weight], wide), bias(b[tensor(p, name + ".bias")], false),
        gradient(b[tensor(p, name + ".linear.grad")], false), result(b[out], false), to_x(b[x], false),
        to_weight(b[weight], wide);
    std::ranges::fill(result.halves, std::uint16_t{0x7FFF});
    const EagerOp layer("linear", precision(text), "alone", operands, format("bf16"));
    const std::vector<const void*> read = {held_x.data(), held_weight.data(), bias.data()};
    layer.forward(read, result.data(), {});
    CHECK(result.is(b[out]));
    layer.backward(read, gradient.data(), std::vector<void*>{to_x.data(), to_weight.data(), nullptr}, {});
    const auto parameter = std::ranges::find(trainer.training().parameters, weight, &ParameterTensors::weight);
    CHECK(to_weight.is(b[parameter->gradient]));
    if (input != "view:bf16") CHECK(to_x.is(b[tensor(p, input + ".grad")]));
}

} // namespace

TEST_CASE("a network whose layers are all changed to an arithmetic has the bits of one that begins with it") {
    const Dataset digits = digits_data(), text = modular_data(7);
    const auto same = [&](const std::string& whole, const std::string& other, Policies policies) {
        CAPTURE(whole);
        for (const auto& [network, data] : {std::pair("mlp", &digits), {"gpt", &text}}) {
            const std::string want = trained(options_with(network, precision(whole)), *data);
            CHECK(trained(options_with(network, with_layers(other, policies)), *data) == want);
            CHECK(trained(options_with(network, precision(other)), *data) != want);
        }
    };
    same("tf32", "fp32", {{"*", "tf32"}});
    same("fp32,operands=bf16", "tf32", {{"*", "bf16"}});
    same("fp32,accumulate=kahan,accumulate-backward=fp16", "fp32",
         {{"*", "accumulate=kahan,accumulate-backward=fp16"}});
    for (const std::string recipe : {"fp8-delayed", "fp8-current,accumulate=hopper-wgmma-fp8", "mxfp8", "nvfp4"}) {
        same(recipe, "amp-bf16", {{"*", recipe}, {"head", "scaling=none"}});
    }
    same("amp-bf16,scaling=te-delayed,scaling-history=4", "mxfp8", {{"h", "fp8-delayed,scaling-history=4"}});
}

TEST_CASE("each layer computes forward and backward what it computes in a network that is like it throughout") {
    const Dataset data = digits_data();
    const std::string fp8 = "fp8-current,accumulate=hopper-wgmma-fp8";
    Trainer trainer(options_with("mlp", with_layers(fp8, {{"h.0", "bf16"}, {"head", "fp8-block,accumulate=fp32"}})),
                    data, 1, Keeps::all);
    trainer.step();
    trainer.compute();
    const Program& p = trainer.training().program;
    CHECK(products(p, "h.0") == std::vector<std::string>{"bf16 x bf16", "bf16 x bf16"}); // the input has no gradient
    CHECK(products(p, "h.1.linear") == std::vector<std::string>{"e4m3 x e4m3"});
    CHECK(products(p, "h.1.weight.grad") == std::vector<std::string>{"e5m2 x e4m3"});
    CHECK(products(p, "head") == std::vector<std::string>{"e4m3 x e4m3", "e4m3 x e4m3"});
    compare_alone(trainer, "h.0", "view:bf16", "amp-bf16", false);
    compare_alone(trainer, "h.1", "relu", fp8, true);
    compare_alone(trainer, "head", "relu_2", "fp8-block", true);
}

TEST_CASE("the product of a layer in BF16 is the sum of its rounded operands' products") {
    const Dataset data = digits_data();
    Trainer trainer(options_with("mlp", with_layers("fp32", {{"h.1", "bf16"}})), data, 1, Keeps::all);
    trainer.compute();
    const Program& p = trainer.training().program;
    const Backend& b = trainer.backend();
    const auto rounded = [&](const std::string& name) {
        std::vector<float> values(b[tensor(p, name)].begin(), b[tensor(p, name)].end());
        quantize(format("bf16"), values, std::span(values));
        return values;
    };
    const auto check = [&](const std::vector<float>& x, const std::string& layer) {
        const std::vector<float> w = rounded("h.1.weight");
        const auto own = layer == "h.1" ? std::span<const float>(w) : b[tensor(p, layer + ".weight")];
        const auto bias = b[tensor(p, layer + ".bias")], out = b[tensor(p, layer + ".linear")];
        const std::size_t n = bias.size(), k = own.size() / n;
        for (std::size_t i = 0; i < out.size(); ++i) {
            float sum = 0;
            for (std::size_t l = 0; l < k; ++l) sum = std::fma(x[i / n * k + l], own[i % n * k + l], sum);
            CHECK(out[i] == sum + bias[i % n]);
        }
    };
    check(rounded("relu"), "h.1");
    check({b[tensor(p, "relu_2")].begin(), b[tensor(p, "relu_2")].end()}, "head");
    // Backward rounds the gradient, too.
    const std::vector<float> grad = rounded("h.1.linear.grad"), x = rounded("relu");
    const std::size_t outputs = 32, inputs = 32, rows = grad.size() / outputs;
    for (std::size_t i = 0; i < outputs * inputs; ++i) {
        float sum = 0;
        for (std::size_t l = 0; l < rows; ++l)
            sum = std::fma(grad[l * outputs + i / inputs], x[l * inputs + i % inputs], sum);
        CHECK(b[tensor(p, "h.1.weight.grad")][i] == sum);
    }
}

TEST_CASE("layers that read the same tensor cast it each by its own recipe, and without one not at all") {
    const Dataset data = modular_data(7);
    const Precision mixed =
        with_layers("fp32,scaling=te-current", {{"h.*.attn.k", "mxfp8"},
                                                {"h.*.attn.v", "tf32"},
                                                {"h.1.attn.v", "fp8-current,scaling-forward=e5m2"},
                                                {"h.*.attn.o", "fp8-current,scaling-forward=e5m2"}});
    const Program p = build_training_program(options_with("gpt", mixed), data).program;
    std::vector<std::string> rules;
    for (const Instruction& i : p.forward)
        if (const auto* const cast = std::get_if<op::Quantize>(&i.op);
            cast != nullptr && p[cast->in].name == "h.0.ln1.layer_norm")
            rules.push_back(i.rule);
    CHECK(rules == std::vector<std::string>{"te", "mx-te"}); // q's and k's
    CHECK(products(p, "h.0.attn.q.linear") == std::vector<std::string>{"e4m3 x e4m3"});
    CHECK(products(p, "h.0.attn.v.linear") == std::vector<std::string>{"tf32 x tf32"});
    // The blocks of h.1's q and v are the same, but not their elements.
    CHECK(products(p, "h.1.attn.q.linear") == std::vector<std::string>{"e4m3 x e4m3"});
    CHECK(products(p, "h.1.attn.v.linear") == std::vector<std::string>{"e5m2 x e5m2"});
    CHECK(products(p, "h.0.attn.o.linear") == std::vector<std::string>{"e5m2 x e5m2"});
    CHECK(products(p, "h.0.attn.k.weight.grad") ==
          std::vector<std::string>{"e4m3 x e4m3"}); // gradients of MXFP8 are E4M3
    CHECK(products(p, "h.0.attn.q.weight.grad") == std::vector<std::string>{"e5m2 x e4m3"});
}

TEST_CASE("delayed scaling is of the layers that have it, each with its own history") {
    const Dataset data = digits_data();
    TrainOptions o = options_with(
        "mlp",
        with_layers("amp-bf16", {{"h.0", "fp8-delayed,scaling-history=3"},
                                 {"h.1", "fp8-delayed,scaling-history=1,scaling-amax=most-recent,scaling-margin=1,"
                                         "scaling-reduce=off"}}));
    o.replicas = 2;
    Trainer trainer(o, data, 1);
    const Program& p = trainer.training().program;
    REQUIRE(trainer.training().delayed_scales.size() == 6); // input, weight and gradient of each
    const auto state = [&](const std::string& name) { return tensor(p, name); };
    CHECK(p[state("h.0.weight.amax_history")].shape == Shape{3});
    CHECK(p[state("h.1.weight.amax_history")].shape == Shape{2, 1}); // each replica's
    const auto update = [&](const std::string& name) {
        for (const Instruction& i : p.check)
            if (const auto* const u = std::get_if<op::UpdateScale>(&i.op); u != nullptr && u->scale == state(name))
                return *u;
        FAIL(name);
        return op::UpdateScale{};
    };
    CHECK_FALSE(update("h.0.weight.delayed_scale").most_recent);
    CHECK(update("h.1.weight.delayed_scale").most_recent);
    const auto amax = [&](const std::string& name) {
        float largest = 0;
        for (const float w : trainer.backend()[state(name)]) largest = std::max(largest, std::abs(w));
        return largest;
    };
    const float first = amax("h.0.weight"), second = amax("h.1.weight");
    trainer.step();
    CHECK(trainer.backend()[state("h.0.weight.delayed_scale")][0] == 448 / first);
    CHECK(trainer.backend()[state("h.1.weight.delayed_scale")][0] == 448 / second / 2);
}

TEST_CASE("an eager op has the arithmetic of its layer") {
    const Precision mixed = with_layers("fp8-current", {{"h.*", "mxfp8,accumulate=exact"}, {"h.1", "bf16"}});
    const std::vector<EagerOperand> operands = {
        {.shape = {4, 64}, .format = format("bf16"), .needs_gradient = true},
        {.shape = {32, 64}, .format = format("bf16"), .weight = true, .needs_gradient = true},
        {.absent = true}};
    std::vector<float> numbers(64 * 32);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<float>(i * i));
    const std::span<const float> all = numbers;
    const Held x(all.first(4 * 64), false), w(all, false), grad(all.first(4 * 32), false);
    const auto results = [&](const Precision& precision, const std::string& layer) {
        const EagerOp op("linear", precision, layer, operands, format("bf16"));
        std::vector<std::uint16_t> out(4 * 32), to_x(4 * 64), to_w(32 * 64);
        const std::vector<const void*> read = {x.halves.data(), w.halves.data(), nullptr};
        op.forward(read, out.data(), {});
        op.backward(read, grad.halves.data(), std::vector<void*>{to_x.data(), to_w.data(), nullptr}, {});
        return std::vector{out, to_x, to_w};
    };
    CHECK(results(mixed, "up") == results(precision("fp8-current"), "up"));
    CHECK(results(mixed, "h.0.up") == results(precision("mxfp8,accumulate=exact"), "up"));
    CHECK(results(mixed, "h.1.up") == results(precision("amp-bf16"), "up"));
    CHECK(results(mixed, "head") == results(precision("amp-bf16"), "head"));
    CHECK(results(precision("mxfp8"), "up") != results(precision("fp8-current"), "up"));
    CHECK(results(precision("mxfp8"), "up") != results(precision("amp-bf16"), "up"));
}
