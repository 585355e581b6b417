#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/eager/eager_attention.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

namespace amp::python {

namespace {

Shape shape_of(const Array<float>& x) {
    Shape shape;
    for (std::size_t i = 0; i < x.ndim(); ++i) shape.push_back(static_cast<std::int64_t>(x.shape(i)));
    return shape;
}

EagerAttention call_of(const std::optional<Array<float>>& mask, const std::string& options, bool causal, double scale,
                       const std::string& accumulator, const FormatSpec& q, const FormatSpec& k, const FormatSpec& v,
                       const FormatSpec& out, const FormatSpec& gradient) {
    return {.options = options,
            .causal = causal,
            .scale = scale,
            .mask_shape = mask ? shape_of(*mask) : Shape{},
            .mask = mask ? span_of(*mask) : std::span<const float>{},
            .q = q,
            .k = k,
            .v = v,
            .out = out,
            .gradient = gradient,
            .accumulators = accumulators(accumulator)};
}

/// The result and the logsumexp of its rows. The arrays have four axes, and those of k and v the same shape.
std::pair<Result<float>, Result<float>> fused_attention(const Array<float>& q, const Array<float>& k,
                                                        const Array<float>& v, const std::optional<Array<float>>& mask,
                                                        const std::string& options, bool causal, double scale,
                                                        const std::string& accumulator, const FormatSpec& q_format,
                                                        const FormatSpec& k_format, const FormatSpec& v_format,
                                                        const FormatSpec& out_format, int threads) {
    const EagerAttention how =
        call_of(mask, options, causal, scale, accumulator, q_format, k_format, v_format, out_format, fp32_format());
    std::vector<float> sums(q.shape(0) * q.shape(1) * q.shape(2));
    Result<float> out = filled_like<float>(q, [&](std::span<float> values) {
        eager_attention(how, shape_of(q), shape_of(k), span_of(q), span_of(k), span_of(v), values, sums, threads);
    });
    return {std::move(out), filled<float>({q.shape(0), q.shape(1), q.shape(2)},
                                          [&](std::span<float> values) { std::ranges::copy(sums, values.begin()); })};
}

/// The gradients of q, k and v from that of the result, which has q's shape.
std::tuple<Result<float>, Result<float>, Result<float>>
fused_attention_gradients(const Array<float>& q, const Array<float>& k, const Array<float>& v,
                          const std::optional<Array<float>>& mask, const Array<float>& grad, const std::string& options,
                          bool causal, double scale, const std::string& accumulator, const FormatSpec& q_format,
                          const FormatSpec& k_format, const FormatSpec& v_format, const FormatSpec& out_format,
                          const FormatSpec& grad_format, int threads) {
    const EagerAttention how =
        call_of(mask, options, causal, scale, accumulator, q_format, k_format, v_format, out_format, grad_format);
    std::vector<float> to_k(k.size()), to_v(v.size());
    Result<float> to_q = filled_like<float>(q, [&](std::span<float> values) {
        eager_attention_gradients(how, shape_of(q), shape_of(k), span_of(q), span_of(k), span_of(v), span_of(grad),
                                  {values, to_k, to_v}, threads);
    });
    const auto copied = [](const Array<float>& like, const std::vector<float>& from) {
        return filled_like<float>(like, [&](std::span<float> values) { std::ranges::copy(from, values.begin()); });
    };
    return {std::move(to_q), copied(k, to_k), copied(v, to_v)};
}

} // namespace

void bind_attention(nb::module_& m) {
    m.def("attention", &fused_attention, nb::arg("q").noconvert(), nb::arg("k").noconvert(), nb::arg("v").noconvert(),
          nb::arg("mask").noconvert().none(), nb::arg("options"), nb::arg("causal"), nb::arg("scale"),
          nb::arg("accumulator"), nb::arg("q_format"), nb::arg("k_format"), nb::arg("v_format"), nb::arg("out_format"),
          nb::arg("threads"), InEnvironment());
    m.def("attention_gradients", &fused_attention_gradients, nb::arg("q").noconvert(), nb::arg("k").noconvert(),
          nb::arg("v").noconvert(), nb::arg("mask").noconvert().none(), nb::arg("grad").noconvert(), nb::arg("options"),
          nb::arg("causal"), nb::arg("scale"), nb::arg("accumulator"), nb::arg("q_format"), nb::arg("k_format"),
          nb::arg("v_format"), nb::arg("out_format"), nb::arg("grad_format"), nb::arg("threads"), InEnvironment());
}

} // namespace amp::python
