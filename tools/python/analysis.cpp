#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/analysis/count.h>
#include <ampscope/sim/optim/loss_scaler.h>
#include <ampscope/tools/chart/chart.h>

#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nlohmann/json.hpp>

namespace amp::python {

namespace {

/// Counts a whole array; without Python's lock.
template <class T>
MagnitudeStatistics measured(const Array<T>& x, DType dtype) {
    const nb::gil_scoped_release release;
    MagnitudeCounter counter(dtype);
    const auto bytes = std::as_bytes(span_of(x));
    for (std::size_t at = 0; at < bytes.size(); at += sum_block * sizeof(T))
        counter.add(bytes.subspan(at, std::min(sum_block * sizeof(T), bytes.size() - at)));
    return counter.statistics();
}

/// m.histogram(x), and m.measure(x): with the largest finite magnitude.
template <class T>
void bind_counting(nb::module_& m, DType dtype) {
    m.def(
        "histogram", [dtype](const Array<T>& x) { return measured(x, dtype).histogram; }, nb::arg("x").noconvert(),
        InEnvironment());
    m.def(
        "measure",
        [dtype](const Array<T>& x) {
            const MagnitudeStatistics s = measured(x, dtype);
            return std::pair(s.histogram, s.max);
        },
        nb::arg("x").noconvert(), InEnvironment());
}

FormatSpec counted_format(const nb::object& named) {
    const FormatSpec f = format_of(named);
    check_counted(f);
    return f;
}

nb::dict classes(const MagnitudeHistogram& h, const nb::object& f, int log2_scale) {
    const ClassCounts c = h.classify(counted_format(f), log2_scale);
    nb::dict d;
    d["underflow"] = c.underflow;
    d["subnormal"] = c.subnormal;
    d["normal"] = c.normal;
    d["overflow"] = c.overflow;
    return d;
}

nb::dict recommended(const MagnitudeHistogram& h, const nb::object& f, int margin, double limit) {
    return recommendation_dict(recommend(h, counted_format(f), {.margin = margin, .limit = limit}));
}

std::map<int, std::uint64_t> exponents_of(const MagnitudeHistogram& h) {
    std::map<int, std::uint64_t> out;
    for (const auto& [exponent, row] : h.rows)
        for (const std::uint64_t n : row) out[exponent] += n;
    return out;
}

std::vector<std::string> usual_names() { return {usual_formats.begin(), usual_formats.end()}; }

std::string svg_of(const MagnitudeHistogram& h, const nb::object& shown, const std::string& title) {
    const MagnitudeFigure figure{.title = title,
                                 .exponents = exponents_of(h),
                                 .zero = h.zero,
                                 .nan = h.nan,
                                 .inf = h.inf,
                                 .formats = formats_in(shown)};
    return svg_document({figure});
}

using State = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::map<int, MantissaRow>>;

/// For pickle: all that a histogram holds.
State state_of(const MagnitudeHistogram& h) { return {h.zero, h.nan, h.inf, h.rows}; }

void restore(MagnitudeHistogram& h, const State& state) {
    const auto& [zero, nan, inf, rows] = state;
    new (&h) MagnitudeHistogram{.zero = zero, .nan = nan, .inf = inf, .rows = rows};
}

void bind_magnitudes(nb::module_& m) {
    nb::class_<MagnitudeHistogram>(m, "Histogram",
                                   "Exact counts of magnitudes: from them follows, for every format and power-of-two "
                                   "loss scale, what a cast of each element would give. h1 + h2 merges exactly.")
        .def(nb::init<>())
        .def_ro("zero", &MagnitudeHistogram::zero)
        .def_ro("nan", &MagnitudeHistogram::nan)
        .def_ro("inf", &MagnitudeHistogram::inf)
        .def_prop_ro("nonzero", &MagnitudeHistogram::nonzero, "The number of elements that are finite and not zero.",
                     InEnvironment())
        .def_prop_ro("count", &MagnitudeHistogram::count, InEnvironment())
        .def_prop_ro("exponents", &exponents_of, "The number of elements in [2^e, 2^(e+1)), by e.", InEnvironment())
        .def("scaled", &MagnitudeHistogram::scaled, nb::arg("log2_scale"),
             "The Histogram of every element times 2^log2_scale.", InEnvironment())
        .def("classify", &classes, nb::arg("format").none(), nb::arg("log2_scale") = 0,
             "What nearest-even rounding makes of the non-zero elements times 2^log2_scale: a dict of counts.",
             InEnvironment())
        .def("recommend", &recommended, nb::arg("format").none(), nb::arg("margin") = 2, nb::arg("limit") = 0.001,
             "The loss scale for a format: log2_scale, window, lowest_enough, highest_safe (exponents of two). known "
             "says whether these hold for all gradients, which a Histogram takes for granted.",
             InEnvironment())
        .def("svg", &svg_of, nb::arg("formats") = usual_names(), nb::arg("title") = "Magnitudes",
             "The picture that amp-histogram draws, as SVG text.", InEnvironment())
        .def(
            "_repr_svg_", [](const MagnitudeHistogram& h) { return svg_of(h, nb::cast(usual_names()), "Magnitudes"); },
            InEnvironment())
        .def(
            "__add__",
            [](const MagnitudeHistogram& a, const MagnitudeHistogram& b) {
                MagnitudeHistogram sum = a;
                sum.merge(b);
                return sum;
            },
            nb::is_operator(), InEnvironment())
        .def(
            "__radd__",
            [](const MagnitudeHistogram& h, int zero) {
                if (zero != 0) throw nb::next_overload();
                return h;
            },
            nb::is_operator(), "0 + h is h, so that sum() adds histograms.", InEnvironment())
        .def("__getstate__", &state_of, InEnvironment())
        .def("__setstate__", &restore, InEnvironment())
        .def(
            "__eq__", [](const MagnitudeHistogram& a, const MagnitudeHistogram& b) { return a == b; },
            nb::is_operator(), equality, InEnvironment())
        .def(
            "__repr__",
            [](const MagnitudeHistogram& h) {
                return "<ampscope.Histogram of " + std::to_string(h.count()) + " elements>";
            },
            InEnvironment());
    m.attr("usual_formats") = nb::tuple(nb::cast(usual_names()));
    bind_counting<float>(m, DType::f32);
    bind_counting<double>(m, DType::f64);
}

/// A scaler with its state.
struct Scaler {
    LossScalerOptions options;
    LossScalerState state;
};

void bind_scaler(nb::module_& m) {
    std::vector<std::string> names;
    for (const LossScalerRow& row : loss_scalers) names.emplace_back(row.name);
    m.attr("loss_scalers") = nb::cast(names);
    nb::class_<Scaler>(m, "LossScaler",
                       "A framework's loss scaler as a state machine: a row of ampscope.loss_scalers with changes.")
        .def(
            "__init__",
            [](Scaler* self, const std::string& name, std::optional<double> init_scale,
               std::optional<double> growth_factor, std::optional<double> backoff_factor,
               std::optional<std::int64_t> growth_interval) {
                LossScalerOptions o = loss_scaler(name).options;
                if (init_scale) o.init_scale = *init_scale;
                if (growth_factor) o.growth_factor = *growth_factor;
                if (backoff_factor) o.backoff_factor = *backoff_factor;
                if (growth_interval) o.growth_interval = *growth_interval;
                new (self) Scaler{o, initial_state(o)};
            },
            nb::arg("name") = "torch", nb::kw_only(), nb::arg("init_scale") = nb::none(),
            nb::arg("growth_factor") = nb::none(), nb::arg("backoff_factor") = nb::none(),
            nb::arg("growth_interval") = nb::none(), InEnvironment())
        .def_prop_ro(
            "scale", [](const Scaler& s) { return s.state.scale; }, "The number by which the next loss is multiplied.",
            InEnvironment())
        .def_prop_ro(
            "growth_tracker", [](const Scaler& s) { return s.state.growth_tracker; }, InEnvironment())
        .def(
            "update",
            [](Scaler& s, bool found_inf) {
                const LossScalerUpdate u = update_scale(s.options, s.state, found_inf);
                s.state = u.state;
                return u.verdict == ScalerVerdict::step ? "step" : u.verdict == ScalerVerdict::skip ? "skip" : "abort";
            },
            nb::arg("found_inf"), "Ends a step: 'step', 'skip' or 'abort'; the scale moves as the framework's does.",
            InEnvironment());
}

} // namespace

nb::dict recommendation_dict(const Recommendation& r) {
    nb::dict d;
    d["log2_scale"] = r.log2_scale;
    d["window"] = r.window ? nb::cast(std::pair(r.window->low, r.window->high)) : nb::none();
    d["lowest_enough"] = r.lowest_enough;
    d["highest_safe"] = r.highest_safe;
    d["known"] = std::string(name_of(r.known));
    d["unknown_below_log2"] = r.censoring.below_log2;
    d["recorded_zeros"] = r.censoring.zeros;
    return d;
}

void bind_analysis(nb::module_& m) {
    bind_magnitudes(m);
    bind_scaler(m);
}

} // namespace amp::python
