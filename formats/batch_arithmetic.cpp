#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/detail/arithmetic_loop.h>
#include <ampscope/formats/detail/convert.h>
#include <ampscope/formats/environment.h>

#include <algorithm>

namespace amp::detail {

namespace {

/// Whether a float has two bits more than the format's precision, as rounding to odd needs.
bool fits_float(const FormatSpec& f) { return f.precision() + 2 <= 24 && f.has_zero; }

/// Whether FP32 has the bits and the exponents for the loop's results; double always has.
bool computes_in_float(Operation operation, const FormatSpec& f) {
    if (operation == Operation::add || operation == Operation::sub) return true;
    return f.precision() <= 11 && -2 * f.min_subnormal_exponent() <= 120 &&
           f.max_exponent() - f.min_subnormal_exponent() <= 120;
}

OperandConstants operand_constants(const FormatSpec& f, const Policy& policy) {
    OperandConstants k;
    if (policy.flushes_input()) k.zero_below = std::bit_cast<std::uint32_t>(decode(f, f.min_normal_code()));
    else if (!f.has_negative_zero()) k.zero_below = 1;
    if (k.zero_below != 0 && f.has_negative_zero()) k.zero_sign = 0x80000000;
    k.exact_zero_sign = policy.rounding == Rounding::down ? 0x80000000 : 0;
    return k;
}

/// The options for rounding a result: input flushing was applied to the operands and does not apply to it.
BatchOptions of_result(const BatchOptions& options) {
    BatchOptions result = options;
    Subnormals& subnormals = result.policy.subnormals;
    subnormals = options.policy.flushes_output() ? Subnormals::flush_output : Subnormals::keep;
    return result;
}

std::uint32_t random_word(const BatchOptions& options, std::size_t i) {
    if (options.policy.rounding != Rounding::stochastic) return 0;
    return options.key.word(options.first_index + i, options.policy.random_bits);
}

float apply_plain(Operation operation, const FormatSpec& format, float a, float b, float c, const Policy& policy,
                  std::uint32_t word) {
    Arithmetic unit{format, policy, word};
    const auto code = [&](float x) { return encode(format, x); };
    std::uint32_t result = 0;
    switch (operation) {
    case Operation::add: result = unit.add(code(a), code(b)); break;
    case Operation::sub: result = unit.sub(code(a), code(b)); break;
    case Operation::mul: result = unit.mul(code(a), code(b)); break;
    case Operation::div: result = unit.div(code(a), code(b)); break;
    case Operation::sqrt: result = unit.sqrt(code(a)); break;
    case Operation::fma: result = unit.fma(code(a), code(b), code(c)); break;
    }
    return decode(format, result, policy.nan);
}

/// Numbers at a time: so many that changing the control word costs little, and that they stay in the first-level cache.
constexpr std::size_t block = 1024;

/// Calls fill(buffer) with the processor truncating, and rounds what it put into the buffer.
template <class Fill>
void round_block(const FormatSpec& format, float* out, std::size_t count, const BatchOptions& options,
                 Execution execution, const Fill& fill) {
    alignas(64) float buffer[block];
    {
        const FloatEnvironment environment(HostRounding::toward_zero);
        fill(buffer);
    }
    round_array(format, buffer, out, count, of_result(options), {.set = execution.set});
}

/// Whether the results of FP32 can be rounded again: it has 2p + 2 bits. Products of fma must have its exponents or
/// the loop must tell that they do not; any other result that leaves them is zero or too large in a narrow format.
bool rounds_twice(Operation operation, const FormatSpec& f, Loop loop) {
    const bool holds_products = 2 * f.min_subnormal_exponent() >= -149 && 2 * (f.max_exponent() + 1) <= 128;
    return 2 * f.precision() + 2 <= 24 && (operation != Operation::fma || loop == Loop::wide_simple || holds_products);
}

/// Rounds FP32's results of a block again. Returns false, and leaves `out` as it is, if they leave its exponents.
bool round_twice(const ShortLoop& loop, Operation operation, bool in_float, const float* a, const float* b,
                 const float* c, float* out, std::size_t count, Execution execution) {
    alignas(64) float buffer[block];
    std::uint32_t outside = 0;
    dispatch<TwiceRoundedKernel>(execution.set, operation, loop.loop, a, b, c, in_float ? out : &buffer[0], count,
                                 &loop.constants, &outside);
    if (!in_float && outside == 0) std::copy_n(&buffer[0], count, out); // which may be an operand
    return outside == 0;
}

} // namespace

void apply_array(Operation operation, const FormatSpec& format, const float* a, const float* b, const float* c,
                 float* out, std::size_t n, const BatchOptions& options, Execution execution) {
    const bool reads_b = operation != Operation::sqrt, reads_c = operation == Operation::fma;
    if (!fits_float(format) || options.policy.rounding == Rounding::stochastic) {
        for (std::size_t i = 0; i < n; ++i)
            out[i] = apply_plain(operation, format, a[i], reads_b ? b[i] : 0, reads_c ? c[i] : 0, options.policy,
                                 random_word(options, i));
        return;
    }
    const FloatEnvironment environment;
    const OperandConstants k = operand_constants(format, options.policy);
    const bool in_float = computes_in_float(operation, format);
    std::optional<ShortLoop> loop = short_loop(format, options.policy);
    if (loop && !(k == OperandConstants{} && rounds_twice(operation, format, loop->loop))) loop.reset();
    if (loop && in_float && round_twice(*loop, operation, in_float, a, b, c, out, n, execution)) return;
    for (std::size_t i = 0; i < n; i += block) {
        const std::size_t count = std::min(block, n - i);
        const float *x = a + i, *y = reads_b ? b + i : nullptr, *z = reads_c ? c + i : nullptr;
        if (loop && round_twice(*loop, operation, in_float, x, y, z, out + i, count, execution)) continue;
        round_block(format, out + i, count, options, execution, [&](float* buffer) {
            if (in_float) dispatch<ArithmeticKernel<float>>(execution.set, operation, x, y, z, buffer, count, &k);
            else dispatch<ArithmeticKernel<double>>(execution.set, operation, x, y, z, buffer, count, &k);
        });
    }
}

void quantize_array(const FormatSpec& format, const double* in, float* out, std::size_t n, const BatchOptions& options,
                    Execution execution) {
    if (!fits_float(format) || options.policy.rounding == Rounding::stochastic) {
        for (std::size_t i = 0; i < n; ++i) out[i] = quantize(format, in[i], options.policy, random_word(options, i));
        return;
    }
    for (std::size_t i = 0; i < n; i += block) {
        const std::size_t count = std::min(block, n - i);
        round_block(format, out + i, count, options, execution, [&](float* buffer) {
            dispatch<NarrowKernel>(execution.set, in + i, buffer, count, options.policy.flushes_input());
        });
    }
}

} // namespace amp::detail
