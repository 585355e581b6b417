#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/base/parallel.h>
#include <ampscope/sim/eager/eager_op.h>
#include <ampscope/sim/train/configuration.h>

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nlohmann/json.hpp>

#include <dlfcn.h>

namespace amp::python {

namespace {

/// Of which tensors a precision says in which format they are.
std::map<std::string, std::string> formats_of(const Precision& p) {
    return {{"weights", p.weights.name},
            {"activations", p.activations.name},
            {"gradients", p.gradients.name},
            {"loss", p.loss.name},
            {"master", p.master.name},
            {"m", p.m.name},
            {"v", p.v.name}};
}

/// The keys of a precision about what only an optimizer can do, as texts; empty: there are none.
std::vector<std::string> optimizer_keys(const Precision& p) {
    std::vector<std::string> keys;
    for (const auto& [key, f] : {std::pair("master", p.master), {"m", p.m}, {"v", p.v}})
        if (f != fp32_format()) keys.push_back(fmt::format("{}={}", key, f.name));
    for (const auto& [key, f] :
         {std::pair("master", p.scaled_state.weight), {"m", p.scaled_state.m}, {"v", p.scaled_state.v}})
        if (f) keys.push_back(fmt::format("{}={}", key, f->name()));
    if (p.update != UpdateRounding::nearest)
        keys.push_back(fmt::format("update={}", update_rounding_names[static_cast<std::size_t>(p.update)]));
    if (p.update_random_bits != 32) keys.push_back(fmt::format("update-random-bits={}", p.update_random_bits));
    return keys;
}

EagerOperand operand_of(const std::optional<nb::tuple>& described) {
    if (!described) return {.absent = true};
    return {.shape = nb::cast<Shape>((*described)[0]),
            .format = format(nb::cast<std::string>((*described)[1])),
            .weight = nb::cast<bool>((*described)[2]),
            .needs_gradient = nb::cast<bool>((*described)[3])};
}

EagerOp make_op(const std::string& name, const Precision& precision, const std::string& layer,
                const std::vector<std::optional<nb::tuple>>& described, const std::string& result,
                const std::vector<double>& settings) {
    std::vector<EagerOperand> operands;
    for (const std::optional<nb::tuple>& o : described) operands.push_back(operand_of(o));
    return {name, precision, layer, operands, format(result), settings};
}

/// The name of an operand's format: of numbers less a zero point, which take a bit more, that of the codes.
std::string operand_name(const Program& program, const FormatSpec& stored) {
    for (const Tape* tape : {&program.forward, &program.backward})
        for (const Instruction& i : *tape)
            if (const auto* const cast = std::get_if<op::Quantize>(&i.op);
                cast != nullptr && cast->scaling.rule == ScaleRule::affine && cast->scaling.stored() == stored)
                return cast->scaling.element.name;
    return stored.name;
}

/// What the op's products multiply: "e4m3 x e4m3"; of several, "e5m2 x e4m3, e4m3 x e5m2".
std::string operands_of(const EagerOp& op, bool backward) {
    std::vector<std::string> all;
    for (const Instruction& i : backward ? op.program().backward : op.program().forward)
        if (const auto* const fused = std::get_if<op::FusedAttention>(&i.op); fused != nullptr) {
            for (const auto& [x, y] :
                 {std::pair(op.program()[fused->q].format.name, op.program()[fused->k].format.name),
                  {fused->p.name, op.program()[fused->v].format.name}})
                if (const std::string text = fmt::format("{} x {}", x, y); std::ranges::find(all, text) == all.end())
                    all.push_back(text);
        } else if (const auto* const product = std::get_if<op::Matmul>(&i.op); product != nullptr) {
            const auto read = [&](TensorId id) {
                const FormatSpec& as = product->arithmetic.operands;
                return as == fp32_format() ? operand_name(op.program(), op.program()[id].format) : std::string(as.name);
            };
            const std::string text = read(product->a) + " x " + read(product->b);
            if (std::ranges::find(all, text) == all.end()) all.push_back(text);
        }
    return fmt::format("{}", fmt::join(all, ", "));
}

/// The operands of the op's casts that the layer's recipe would leave out where it comes from, and their shapes.
std::vector<std::pair<std::string, std::string>> left_out(const EagerOp& op, const Precision& precision,
                                                          const std::string& layer) {
    std::vector<std::pair<std::string, std::string>> all;
    const std::optional<ScalingRecipe> recipe = precision.at(layer + ".").scaling;
    for (const Tape* tape : {&op.program().forward, &op.program().backward})
        for (const Instruction& i : *tape) {
            const auto* const cast = std::get_if<op::Quantize>(&i.op);
            if (cast == nullptr || !recipe) continue;
            const TensorInfo& from = op.program()[cast->in];
            const std::int64_t columns = from.shape.back(), rows = from.count() / columns;
            const TensorRole is = op.program()[cast->out].role;
            const auto [role, name] = is == TensorRole::weight     ? std::pair(OperandRole::weight, "weight")
                                      : is == TensorRole::gradient ? std::pair(OperandRole::gradient, "gradient")
                                                                   : std::pair(OperandRole::input, "input");
            std::pair<std::string, std::string> operand(name, fmt::format("{}x{}", rows, columns));
            if (recipe->leaves_out(role, rows, columns) && std::ranges::find(all, operand) == all.end())
                all.push_back(std::move(operand));
        }
    return all;
}

using Address = std::uintptr_t; // of a tensor's elements, which the caller keeps alive; 0: absent

std::vector<void*> pointers(const std::vector<Address>& addresses) {
    std::vector<void*> all;
    for (const Address a : addresses) all.push_back(reinterpret_cast<void*>(a));
    return all;
}

/// The threads of PyTorch's OpenMP, if it computes with that, for what is computed between its own ops.
Team pytorch_threads() {
    static const auto team = reinterpret_cast<Team>(::dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    return team;
}

/// The named accumulators that take none of these formats. Integers of any name are taken by those of integers.
std::vector<std::string> unused_accumulators(const Precision& p, const std::vector<std::string>& formats) {
    std::vector<std::string> unused;
    for (const auto* const named : {&p.accumulators, &p.backward_accumulators})
        for (const Accumulator& acc : *named) {
            const auto takes = [&](const std::string& f) {
                return acc.takes(f.starts_with("int") ? format("int8") : format(f));
            };
            const std::string name(acc.name);
            if (std::ranges::none_of(formats, takes) && std::ranges::find(unused, name) == unused.end())
                unused.push_back(name);
        }
    return unused;
}

} // namespace

void bind_eager(nb::module_& m) {
    m.attr("most_threads") = max_threads;
    nb::class_<Precision>(m, "AskedPrecision") // what emulate() needs of it
        .def(
            "__init__", [](Precision* self, const std::string& text) { new (self) Precision(precision(text)); },
            nb::arg("text"), InEnvironment())
        .def_prop_ro("name", [](const Precision& p) { return p.name; })
        .def_prop_ro("autocast",
                     [](const Precision& p) -> std::optional<std::string> {
                         if (!p.autocast.enabled) return std::nullopt;
                         return p.autocast.low.name;
                     })
        .def_prop_ro("formats", &formats_of)
        .def_prop_ro("optimizer_keys", &optimizer_keys)
        .def_prop_ro(
            "scaled_state",
            [](const Precision& p) { return std::tuple(p.scaled_state.weight, p.scaled_state.m, p.scaled_state.v); })
        .def_prop_ro(
            "update",
            [](const Precision& p) { return std::string(update_rounding_names[static_cast<std::size_t>(p.update)]); })
        .def_ro("update_random_bits", &Precision::update_random_bits)
        .def("facts", [](const Precision& p) { return from_json(precision_json(p).dump()); })
        .def_prop_ro("is_delayed", [](const Precision& p) { return p.scaling && p.scaling->delayed(); })
        .def_prop_ro("loss_scale", // at which its loss scaler begins; 1 without one
                     [](const Precision& p) {
                         const LossScalerOptions& o = p.loss_scaler.options;
                         return o.scaling == LossScaling::off ? 1.0 : o.init_scale;
                     })
        .def_prop_ro("has_recipe", &Precision::has_recipe)
        .def(
            "set_layers",
            [](Precision& p, const std::vector<std::pair<std::string, std::string>>& policies) {
                p.layers.clear();
                for (const auto& [modules, text] : policies) p.add_layer(modules, text);
            },
            nb::arg("policies"), InEnvironment())
        .def("in_backward",
             [](const Precision& p, const std::string& layer) { // for products that a user's own backward calls
                 Precision backward = p;
                 static_cast<LayerArithmetic&>(backward) = p.at(layer + ".");
                 backward.accumulators = backward.backward_accumulators;
                 backward.layers.clear();
                 return backward;
             })
        .def("unused_accumulators", &unused_accumulators, nb::arg("formats"), InEnvironment())
        .def("scales",
             [](const Precision& p, const std::string& layer) { return p.at(layer + ".").scaling.has_value(); })
        .def("leaves_autocast",
             [](const Precision& p, const std::string& layer) { return p.at(layer + ".").autocast_off; });

    m.def(
        "expand_blocks",
        [](const std::string& modules, const std::vector<std::string>& known) { return expand_blocks(modules, known); },
        nb::arg("modules"), nb::arg("known"));
    m.def(
        "canonical_attention", [](const std::string& text) { return op::canonical_attention(text); }, nb::arg("text"),
        InEnvironment());
    m.def("names_module", &names_module, nb::arg("modules"), nb::arg("module"));

    nb::class_<EagerState>(m, "EagerState")
        .def(nb::init<>())
        .def("advance", &EagerState::advance, InEnvironment())
        .def("scales", [](const EagerState& state) {
            std::vector<float> scales;
            for (const EagerScale& s : state.scales) scales.push_back(s.scale[0]);
            return scales;
        });

    nb::class_<EagerCasts>(m, "EagerCasts").def(nb::init<>()).def_prop_ro("counts", [](const EagerCasts& casts) {
        nb::dict by;
        for (const auto& [role, name] : {std::pair(OperandRole::input, "input"),
                                         {OperandRole::weight, "weight"},
                                         {OperandRole::gradient, "gradient"}}) {
            const ScalingCounts& c = casts.counts[static_cast<std::size_t>(role)];
            nb::dict counts;
            counts["nonzero"] = c.nonzero;
            counts["underflow"] = c.underflow;
            counts["saturated"] = c.saturated;
            if (c.elements > 0) by[name] = counts;
        }
        return by;
    });

    nb::class_<EagerContext>(m, "EagerContext")
        .def(
            "__init__",
            [](EagerContext* self, std::uint64_t seed, std::uint32_t step, std::uint32_t call, bool training,
               int threads, EagerState* state,
               EagerCasts* casts) { new (self) EagerContext{seed, step, call, training, threads, state, casts}; },
            nb::arg("seed"), nb::arg("step"), nb::arg("call"), nb::arg("training"), nb::arg("threads"),
            nb::arg("state").none(), nb::arg("casts").none() = nb::none(), nb::keep_alive<1, 7>(),
            nb::keep_alive<1, 8>())
        .def_ro("seed", &EagerContext::seed)
        .def_ro("step", &EagerContext::step)
        .def_ro("call", &EagerContext::call)
        .def_ro("training", &EagerContext::training)
        .def_ro("threads", &EagerContext::threads)
        .def_ro("state", &EagerContext::state)
        .def_ro("casts", &EagerContext::casts);

    nb::class_<EagerOp>(m, "EagerOp")
        .def(
            "__init__",
            [](EagerOp* self, const std::string& name, const Precision& precision, const std::string& layer,
               const std::vector<std::optional<nb::tuple>>& operands, const std::string& result,
               const std::vector<double>& settings) {
                new (self) EagerOp(make_op(name, precision, layer, operands, result, settings));
            },
            nb::arg("name"), nb::arg("precision"), nb::arg("layer"), nb::arg("operands"), nb::arg("result"),
            nb::arg("settings"), InEnvironment())
        .def_prop_ro("shape", [](const EagerOp& op) { return op.shape(); })
        .def_prop_ro("gradient_format", [](const EagerOp& op) { return op.gradient_format().name; })
        .def("operands", &operands_of, nb::arg("backward"))
        .def("left_out", &left_out, nb::arg("precision"), nb::arg("layer"), InEnvironment())
        .def(
            "forward",
            [](const EagerOp& op, const std::vector<Address>& operands, Address out, const EagerContext& context) {
                const std::vector<void*> from = pointers(operands);
                const nb::gil_scoped_release release;
                const WithTeam team(pytorch_threads());
                op.forward(std::vector<const void*>(from.begin(), from.end()), reinterpret_cast<void*>(out), context);
            },
            nb::arg("operands"), nb::arg("out"), nb::arg("context"), InEnvironment())
        .def(
            "backward",
            [](const EagerOp& op, const std::vector<Address>& operands, Address gradient,
               const std::vector<Address>& gradients, const EagerContext& context) {
                const std::vector<void*> from = pointers(operands), to = pointers(gradients);
                const nb::gil_scoped_release release;
                const WithTeam team(pytorch_threads());
                op.backward(std::vector<const void*>(from.begin(), from.end()), reinterpret_cast<const void*>(gradient),
                            to, context);
            },
            nb::arg("operands"), nb::arg("gradient"), nb::arg("gradients"), nb::arg("context"), InEnvironment());
}

} // namespace amp::python
