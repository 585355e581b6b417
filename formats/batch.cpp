#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/batch.h>

#include <algorithm>

namespace amp {

namespace {

std::uint32_t random_word(const BatchOptions& options, std::size_t i) {
    if (options.policy.rounding != Rounding::stochastic) return 0;
    return options.key.word(options.first_index + i, options.policy.random_bits);
}

template <class In, class Out, class F>
void transform(std::span<const In> in, std::span<Out> out, F f) {
    const std::size_t n = std::min(in.size(), out.size());
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<Out>(f(in[i], i));
}

} // namespace

void quantize(const FormatSpec& format, std::span<const float> in, std::span<float> out, const BatchOptions& options) {
    transform(in, out, [&](float x, std::size_t i) { return quantize(format, x, options.policy, random_word(options, i)); });
}
void quantize(const FormatSpec& format, std::span<const double> in, std::span<float> out, const BatchOptions& options) {
    transform(in, out, [&](double x, std::size_t i) { return quantize(format, x, options.policy, random_word(options, i)); });
}

void encode(const FormatSpec& format, std::span<const float> in, std::span<std::uint8_t> out, const BatchOptions& options) {
    transform(in, out, [&](float x, std::size_t i) { return encode(format, x, options.policy, random_word(options, i)); });
}
void encode(const FormatSpec& format, std::span<const float> in, std::span<std::uint16_t> out, const BatchOptions& options) {
    transform(in, out, [&](float x, std::size_t i) { return encode(format, x, options.policy, random_word(options, i)); });
}
void encode(const FormatSpec& format, std::span<const float> in, std::span<std::uint32_t> out, const BatchOptions& options) {
    transform(in, out, [&](float x, std::size_t i) { return encode(format, x, options.policy, random_word(options, i)); });
}

void decode(const FormatSpec& format, std::span<const std::uint8_t> in, std::span<float> out, NanRule nan) {
    transform(in, out, [&](std::uint8_t code, std::size_t) { return decode(format, code, nan); });
}
void decode(const FormatSpec& format, std::span<const std::uint16_t> in, std::span<float> out, NanRule nan) {
    transform(in, out, [&](std::uint16_t code, std::size_t) { return decode(format, code, nan); });
}
void decode(const FormatSpec& format, std::span<const std::uint32_t> in, std::span<float> out, NanRule nan) {
    transform(in, out, [&](std::uint32_t code, std::size_t) { return decode(format, code, nan); });
}

void apply(Operation operation, const FormatSpec& format, std::span<const float> a, std::span<const float> b,
           std::span<const float> c, std::span<float> out, const BatchOptions& options) {
    for (std::size_t i = 0; i < out.size(); ++i) {
        Arithmetic unit{format, options.policy, random_word(options, i)};
        const auto code = [&](std::span<const float> x) { return encode(format, x[i]); };
        std::uint32_t result = 0;
        switch (operation) {
        case Operation::add: result = unit.add(code(a), code(b)); break;
        case Operation::sub: result = unit.sub(code(a), code(b)); break;
        case Operation::mul: result = unit.mul(code(a), code(b)); break;
        case Operation::div: result = unit.div(code(a), code(b)); break;
        case Operation::sqrt: result = unit.sqrt(code(a)); break;
        case Operation::fma: result = unit.fma(code(a), code(b), code(c)); break;
        }
        out[i] = decode(format, result, options.policy.nan);
    }
}

} // namespace amp
