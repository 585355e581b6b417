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

/// Calls fill(begin, count, buffer) with the processor truncating, and rounds what it put into the buffer. Blocks are
/// long enough that changing the control word costs little, and short enough for the first-level cache.
template <class Fill>
void round_blocks(const FormatSpec& format, float* out, std::size_t n, const BatchOptions& options, Execution execution,
                  const Fill& fill) {
    constexpr std::size_t block = 1024;
    alignas(64) float buffer[block];
    for (std::size_t i = 0; i < n; i += block) {
        const std::size_t count = std::min(block, n - i);
        {
            const FloatEnvironment environment(HostRounding::toward_zero);
            fill(i, count, buffer);
        }
        round_array(format, buffer, out + i, count, of_result(options), {.set = execution.set});
    }
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
    const OperandConstants k = operand_constants(format, options.policy);
    const bool in_float = computes_in_float(operation, format);
    round_blocks(format, out, n, options, execution, [&](std::size_t begin, std::size_t count, float* buffer) {
        const float* y = reads_b ? b + begin : nullptr;
        const float* z = reads_c ? c + begin : nullptr;
        if (in_float) dispatch<ArithmeticKernel<float>>(execution.set, operation, a + begin, y, z, buffer, count, &k);
        else dispatch<ArithmeticKernel<double>>(execution.set, operation, a + begin, y, z, buffer, count, &k);
    });
}

void quantize_array(const FormatSpec& format, const double* in, float* out, std::size_t n, const BatchOptions& options,
                    Execution execution) {
    if (!fits_float(format) || options.policy.rounding == Rounding::stochastic) {
        for (std::size_t i = 0; i < n; ++i) out[i] = quantize(format, in[i], options.policy, random_word(options, i));
        return;
    }
    round_blocks(format, out, n, options, execution, [&](std::size_t begin, std::size_t count, float* buffer) {
        dispatch<NarrowKernel>(execution.set, in + begin, buffer, count, options.policy.flushes_input());
    });
}

} // namespace amp::detail
