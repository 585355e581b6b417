#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/eager/eager_update.h>

#include <fmt/format.h>
#include <nanobind/stl/tuple.h>

namespace amp::python {

namespace {

using Floats = nb::ndarray<nb::numpy, float, nb::c_contig>;

std::span<float> span_of_writable(const Floats& array) { return {array.data(), array.size()}; }

/// What the steps of an ampscope.Optimizer have in common.
struct Update {
    OptimizerOptions options;
    UpdateRounding rounding;
    std::uint8_t random_bits;
    Precision precision; ///< of Muon's products
};

/// The numbers of the second moment: none, one for each weight, or one for each row and column.
std::size_t numbers_of_v(const OptimizerOptions& o, const Floats& weight) {
    const bool factors = facts_of(o.kind).factors;
    if (factors && weight.ndim() == 2) return weight.shape(0) + weight.shape(1);
    return factors || o.has_v() ? weight.size() : 0;
}

Update update_of(const std::string& name, double lr, double beta1, double beta2, double eps, double weight_decay,
                 double momentum, const std::string& rounding, double dampening, bool nesterov, int random_bits,
                 bool contract, const Precision* precision,
                 const std::optional<std::tuple<double, double, double>>& adafactor) {
    OptimizerOptions o = optimizer(name).options;
    o.learning_rate = lr;
    o.beta1 = beta1;
    o.beta2 = beta2;
    o.eps = eps;
    o.weight_decay = weight_decay;
    o.momentum = momentum;
    o.dampening = dampening;
    o.nesterov = nesterov;
    o.contract = contract;
    if (adafactor) std::tie(o.beta2_decay, o.eps2, o.update_clip) = *adafactor;
    check(o);
    if (random_bits < 1 || random_bits > 32) throw std::invalid_argument("random_bits: expected 1 to 32");
    return {.options = o,
            .rounding = parse_name<UpdateRounding>("rounding", update_rounding_names, rounding),
            .random_bits = static_cast<std::uint8_t>(random_bits),
            .precision = precision == nullptr ? Precision{} : *precision};
}

/// Step t, from 1, of the arrays in place, with the seed, stream and step of stochastic rounding. Formats are those of
/// weight, m and v, and `kept` those under which they are kept with a scale each. Lost, changed and non-finite weights.
std::tuple<std::int64_t, std::int64_t, std::int64_t>
step(const Update& how, std::int64_t t, const std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>& key,
     const std::vector<FormatSpec>& formats, const std::vector<std::optional<ScaledFormat>>& kept, const Floats& weight,
     const Array<float>& gradient, const Floats& m, const Floats& v, const Floats& compensation) {
    if (gradient.size() != weight.size()) throw std::invalid_argument("gradient and weight differ in size");
    const auto expect_size = [&](const Floats& state, std::size_t numbers, const char* name) {
        if (numbers > 0 && state.size() != numbers)
            throw std::invalid_argument(
                fmt::format("{} has {} numbers, and the weight {}{}", name, state.size(), weight.size(),
                            numbers == weight.size() ? "" : fmt::format(", which needs {}", numbers)));
    };
    expect_size(m, how.options.has_m() ? weight.size() : 0, "m");
    expect_size(v, numbers_of_v(how.options, weight), "v");
    expect_size(compensation, how.rounding == UpdateRounding::kahan ? weight.size() : 0, "the compensation");
    const nb::gil_scoped_release release;
    Shape shape;
    for (std::size_t i = 0; i < weight.ndim(); ++i) shape.push_back(static_cast<std::int64_t>(weight.shape(i)));
    const UpdateCounts counts =
        eager_update(how.options,
                     {.t = t,
                      .learning_rate = how.options.learning_rate,
                      .key = {.seed = std::get<0>(key), .stream = std::get<1>(key), .step = std::get<2>(key)}},
                     {.weight_format = formats.at(0),
                      .m_format = formats.at(1),
                      .v_format = formats.at(2),
                      .weight = span_of_writable(weight),
                      .gradient = span_of(gradient),
                      .m = span_of_writable(m),
                      .v = span_of_writable(v),
                      .compensation = span_of_writable(compensation),
                      .scaled = {.weight = kept.at(0), .m = kept.at(1), .v = kept.at(2)},
                      .rounding = how.rounding,
                      .random_bits = how.random_bits},
                     shape, how.precision, 0);
    return {counts.lost, counts.changed, counts.nonfinite};
}

} // namespace

void bind_optimizer(nb::module_& m) {
    nb::class_<OptimizerOptions>(m, "OptimizerOptions", "An optimizer's hyperparameters.")
        .def_prop_ro(
            "kind",
            [](const OptimizerOptions& o) {
                return std::string(optimizer_kind_names[static_cast<std::size_t>(o.kind)]);
            },
            "sgd, adam, adamw, lion, muon or adafactor.", InEnvironment())
        .def_prop_ro("has_m", &OptimizerOptions::has_m, "Whether there is a first moment.", InEnvironment())
        .def_prop_ro("has_v", &OptimizerOptions::has_v, "Whether there is a second moment of the weight's shape.",
                     InEnvironment())
        .def_prop_ro(
            "factors", [](const OptimizerOptions& o) { return facts_of(o.kind).factors; },
            "Whether a matrix has its second moment in factors, numbers of rows and of columns.", InEnvironment())
        .def_prop_ro(
            "order",
            [](const OptimizerOptions& o) {
                return std::string(optimizer_order_names[static_cast<std::size_t>(o.order)]);
            },
            "Whose order of operations it follows: torch, apex ...", InEnvironment())
        .def_ro("learning_rate", &OptimizerOptions::learning_rate)
        .def_ro("beta1", &OptimizerOptions::beta1)
        .def_ro("beta2", &OptimizerOptions::beta2)
        .def_ro("eps", &OptimizerOptions::eps)
        .def_ro("weight_decay", &OptimizerOptions::weight_decay)
        .def_ro("momentum", &OptimizerOptions::momentum)
        .def_ro("dampening", &OptimizerOptions::dampening)
        .def_ro("nesterov", &OptimizerOptions::nesterov)
        .def_prop_ro(
            "rate_scale",
            [](const OptimizerOptions& o) {
                return std::string(rate_scale_names[static_cast<std::size_t>(o.rate_scale)]);
            },
            "How Muon's learning rate depends on a matrix: original, match_rms_adamw or spectral_unclamped.",
            InEnvironment())
        .def_ro("adamw_learning_rate", &OptimizerOptions::adamw_learning_rate,
                "The learning rate of what Muon leaves to AdamW; 0 stands for Muon's own.")
        .def_ro("beta2_decay", &OptimizerOptions::beta2_decay, "Adafactor's: beta2 of step t is 1 - t^beta2_decay.")
        .def_ro("eps2", &OptimizerOptions::eps2, "Adafactor's: the least size of weights that its steps follow.")
        .def_ro("update_clip", &OptimizerOptions::update_clip,
                "Adafactor's d: the largest root mean square of a step, relative to the learning rate.")
        .def_ro("contract", &OptimizerOptions::contract,
                "Whether torch's orders compute a * b + c with one rounding, as its kernels for AVX2 do.");
    nb::class_<ScaledFormat>(m, "ScaledFormat", "How optimizer state is kept under scales.")
        .def(
            "__init__",
            [](ScaledFormat* self, const std::string& text, bool has_negatives) {
                const std::optional<ScaledFormat> f = scaled_format(text, has_negatives);
                if (!f) throw std::invalid_argument(text + ": expected FORMAT:tensor or FORMAT:N");
                new (self) ScaledFormat(*f);
            },
            nb::arg("text"), nb::arg("has_negatives") = true, InEnvironment())
        .def_prop_ro("name", &ScaledFormat::name, "FORMAT:tensor or FORMAT:N.", InEnvironment())
        .def_ro("element", &ScaledFormat::element, "The format of the numbers; of a table, that of its codes.")
        .def_ro("block", &ScaledFormat::block, "The number of elements that share a scale; 0 stands for all.")
        .def_prop_ro(
            "map", [](const ScaledFormat& f) { return std::string(row_of(f.map).name); },
            "The table that codes index: none, dynamic8, bnb8 or dynamic4.", InEnvironment())
        .def_ro("has_negatives", &ScaledFormat::has_negatives, "Whether the table has negative numbers.")
        .def("holds", &ScaledFormat::holds, nb::arg("elements"), "Whether a tensor of so many elements is kept so.",
             InEnvironment());
    nb::class_<Update>(m, "OptimizerUpdate").def_ro("options", &Update::options);
    m.def(
        "optimizer_options", [](const std::string& name) { return optimizer(name).options; }, nb::arg("name"),
        InEnvironment());
    m.def("optimizer_update", &update_of, nb::arg("name"), nb::arg("lr"), nb::arg("beta1"), nb::arg("beta2"),
          nb::arg("eps"), nb::arg("weight_decay"), nb::arg("momentum"), nb::arg("rounding"), nb::arg("dampening"),
          nb::arg("nesterov"), nb::arg("random_bits"), nb::arg("contract") = false,
          nb::arg("precision").none() = nb::none(), nb::arg("adafactor").none() = nb::none(), InEnvironment());
    m.def("optimizer_step", &step, nb::arg("update"), nb::arg("t"), nb::arg("key"), nb::arg("formats"), nb::arg("kept"),
          nb::arg("weight").noconvert(), nb::arg("gradient").noconvert(), nb::arg("m").noconvert(),
          nb::arg("v").noconvert(), nb::arg("compensation").noconvert(), InEnvironment());
    m.def(
        "keep_scaled", [](const ScaledFormat& format, const Floats& x) { keep_scaled(format, span_of_writable(x)); },
        nb::arg("format"), nb::arg("x").noconvert(), InEnvironment());
    std::vector<std::string> names;
    for (const OptimizerRow& row : optimizers()) names.emplace_back(row.name);
    m.attr("optimizers") = nb::cast(names);
}

} // namespace amp::python
