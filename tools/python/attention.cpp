#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/eager/eager_attention.h>

namespace amp::python {

namespace {

Shape shape_of(const Array<float>& x) {
    Shape shape;
    for (std::size_t i = 0; i < x.ndim(); ++i) shape.push_back(static_cast<std::int64_t>(x.shape(i)));
    return shape;
}

/// The result and the logsumexp of its rows. The arrays have four axes, and those of k and v the same shape.
std::pair<Result<float>, Result<float>>
fused_attention(const Array<float>& q, const Array<float>& k, const Array<float>& v, const std::string& options,
                bool causal, double scale, const std::string& accumulator, const FormatSpec& q_format,
                const FormatSpec& k_format, const FormatSpec& v_format, const FormatSpec& out_format, int threads) {
    const EagerAttention how{.options = options,
                             .causal = causal,
                             .scale = scale,
                             .q = q_format,
                             .k = k_format,
                             .v = v_format,
                             .out = out_format,
                             .accumulators = accumulators(accumulator)};
    std::vector<float> sums(q.shape(0) * q.shape(1) * q.shape(2));
    Result<float> out = filled_like<float>(q, [&](std::span<float> values) {
        eager_attention(how, shape_of(q), shape_of(k), span_of(q), span_of(k), span_of(v), values, sums, threads);
    });
    return {std::move(out), filled<float>({q.shape(0), q.shape(1), q.shape(2)},
                                          [&](std::span<float> values) { std::ranges::copy(sums, values.begin()); })};
}

} // namespace

void bind_attention(nb::module_& m) {
    m.def("attention", &fused_attention, nb::arg("q").noconvert(), nb::arg("k").noconvert(), nb::arg("v").noconvert(),
          nb::arg("options"), nb::arg("causal"), nb::arg("scale"), nb::arg("accumulator"), nb::arg("q_format"),
          nb::arg("k_format"), nb::arg("v_format"), nb::arg("out_format"), nb::arg("threads"), InEnvironment());
}

} // namespace amp::python
