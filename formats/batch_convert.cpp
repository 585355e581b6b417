#include <ampscope/formats/detail/convert.h>
#include <ampscope/formats/detail/decode_loop.h>
#include <ampscope/formats/detail/random_words.h>
#include <ampscope/formats/detail/rounding_loop.h>
#include <ampscope/formats/environment.h>

#include <optional>

namespace amp::detail {

namespace {

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

/// The threshold of round_kept for one sign: a magnitude is rounded up iff its discarded fraction is larger.
std::uint32_t threshold(Rounding rounding, bool sign) {
    constexpr std::uint32_t half = 0x80000000, never = 0xffffffff;
    switch (rounding) {
    case Rounding::nearest_even: return half;
    case Rounding::nearest_away: return half - 1;
    case Rounding::toward_zero: return never;
    case Rounding::down: return sign ? 0 : never;
    case Rounding::up: return sign ? never : 0;
    case Rounding::to_odd:
    case Rounding::stochastic: break;
    }
    return 0;
}

/// Whether the format has FP32's exponents: then shifting a float's bits rounds it.
bool is_wide(const FormatSpec& f) { return f.has_zero && f.first_binade() == -126; }
/// Whether FP32 has far smaller exponents and more bits: then the sums of the adder loops are exact before they are
/// rounded.
bool is_narrow(const FormatSpec& f) {
    return f.has_zero && f.fraction_bits < 23 && f.min_subnormal_exponent() >= -100 && f.max_exponent() <= 100;
}
/// Whether the loops round so. Of one significant bit their ties are not those of the codes, and they do not know where
/// a format without sign ends below, nor the rarer variants of stochastic rounding.
bool has_loop(const FormatSpec& f, const Policy& policy) {
    return (is_wide(f) || is_narrow(f)) && f.fraction_bits > 0 && f.is_signed && policy.variant == StochasticVariant::a;
}

RoundingConstants constants(const FormatSpec& f, const Policy& policy, bool encodes) {
    RoundingConstants k;
    k.fraction_bits = static_cast<std::uint32_t>(f.fraction_bits);
    k.drop = 23 - k.fraction_bits;
    k.first_field = static_cast<std::uint32_t>(f.first_binade() + 127);
    k.beyond = static_cast<std::uint32_t>(f.max_exponent() + 128) << 23;
    k.threshold = {threshold(policy.rounding, false), threshold(policy.rounding, true)};
    // A wide format without bits to drop has no ties.
    k.tie = policy.rounding == Rounding::nearest_even && !(is_wide(f) && k.drop == 0);
    k.odd = policy.rounding == Rounding::to_odd ? 0xffffffff : 0;
    k.fraction_shift = policy.rounding == Rounding::stochastic ? 32U - policy.random_bits : 0;
    k.random_scale = 2 * 127 + 23 + policy.random_bits;
    k.flush_in = policy.flushes_input() ? 0x800000 : 0;

    Flags unused;
    const auto stored = [&](std::uint32_t code) { return encodes ? code : bits_of(decode(f, code, policy.nan)); };
    const auto both = [&](auto pack_one) { return BySign{stored(pack_one(false)), stored(pack_one(true))}; };
    k.flush_out = policy.flushes_output() ? stored(f.min_normal_code()) : 0;
    k.max = stored(f.max_code());
    k.overflow = both([&](bool sign) { return pack_overflow(f, sign, policy, unused); });
    k.infinity = both([&](bool sign) { return pack_infinity(f, sign, policy, unused); });
    k.nan = both([&](bool sign) {
        return pack_nan(f, {.kind = Kind::nan, .sign = sign, .significand = std::uint64_t{1} << 63}, policy.nan,
                        unused);
    });
    if (policy.nan == NanRule::payload && f.has_nan_payload()) k.payload = 0x7fffff & (0 - (1U << k.drop));
    k.payload_shift = encodes ? k.drop : 0;
    k.sign = encodes ? f.sign_mask() : fp32_sign;
    k.zero_sign = f.has_negative_zero() && !policy.projects() ? k.sign : 0;

    // Whether the short loop gives the same results, and from where on it overflows. A tie above an even max stays at
    // max.
    const bool one_nan = k.nan.difference == 0 && k.payload == 0;
    const bool one_overflow =
        k.overflow.positive == k.infinity.positive && k.overflow.difference == k.infinity.difference;
    const bool mirrored = k.overflow.difference == k.sign;
    const bool is_nan = k.overflow.difference == 0 && k.overflow.positive == k.nan.positive;
    k.usual = policy.subnormals == Subnormals::keep && one_nan && k.zero_sign == k.sign;
    k.simple = k.usual && policy.rounding == Rounding::nearest_even && one_overflow && (mirrored || is_nan);
    const std::uint32_t last_place = 1U << (k.drop + std::uint32_t{f.is_integer()}); // of max, in FP32's last places
    k.overflow_from =
        bits_of(decode(f, f.max_code())) + (last_place >> 1) + std::uint32_t{k.drop == 0 || f.max_code() % 2 == 0};
    k.nan_from = is_nan ? std::min(k.overflow_from, fp32_infinity) : fp32_infinity + 1;
    return k;
}

/// The constants, kept from the last call of this thread if that was alike: making them takes longer than rounding a
/// few numbers.
RoundingConstants recent_constants(const FormatSpec& f, const Policy& policy, bool encodes) {
    struct Recent {
        FormatSpec format;
        Policy policy;
        bool encodes;
        RoundingConstants constants;
    };
    thread_local std::optional<Recent> recent;
    if (!recent || !(recent->format == f && recent->policy == policy && recent->encodes == encodes))
        recent = {f, policy, encodes, constants(f, policy, encodes)};
    return recent->constants;
}

/// The same for decoding.
DecodingConstants recent_constants(const FormatSpec& f, NanRule rule) {
    struct Recent {
        FormatSpec format;
        NanRule rule;
        DecodingConstants constants;
    };
    thread_local std::optional<Recent> recent;
    if (!recent || !(recent->format == f && recent->rule == rule))
        recent = {f, rule, decoding_constants(f, rule, is_wide(f))};
    return recent->constants;
}

/// The processor's rounding direction for the adder loops.
HostRounding host_rounding(Rounding rounding) {
    switch (rounding) {
    case Rounding::down: return HostRounding::down;
    case Rounding::up: return HostRounding::up;
    case Rounding::nearest_even: return HostRounding::nearest_even;
    case Rounding::nearest_away:
    case Rounding::toward_zero:
    case Rounding::to_odd:
    case Rounding::stochastic: break;
    }
    return HostRounding::toward_zero;
}

Loop choose(const FormatSpec& f, Rounding rounding, const RoundingConstants& k) {
    const bool random = rounding == Rounding::stochastic;
    if (is_wide(f)) return k.simple ? Loop::wide_simple : random ? Loop::wide_random : Loop::wide;
    switch (rounding) {
    case Rounding::nearest_away: return Loop::adder_away;
    case Rounding::to_odd: return Loop::adder_odd;
    case Rounding::stochastic: return Loop::adder_random;
    case Rounding::nearest_even:
    case Rounding::toward_zero:
    case Rounding::down:
    case Rounding::up: break;
    }
    return k.simple ? Loop::adder_simple : Loop::adder;
}

/// Calls body(begin, count, streams) for blocks of [0, n), each of at most `size` elements. The part of `out` that a
/// block writes begins at a cache line, as streamed results must, and as vectors are stored fastest; not of few.
template <class Out, class Body>
void for_each_block(const Out* out, std::size_t n, std::size_t size, bool streams, const Body& body) {
    const std::size_t head = streams || n >= 512 ? unaligned_head(out, n) : 0;
    if (head != 0) body(0, head, false);
    for (std::size_t i = head; i < n; i += size) body(i, std::min(size, n - i), streams);
    if (streams) stream_end();
}

template <class Out, class Plain>
void plain_loop(Out* out, std::size_t n, const BatchOptions& options, const Plain& plain) {
    const bool random = options.policy.rounding == Rounding::stochastic;
    for (std::size_t i = 0; i < n; ++i)
        out[i] = static_cast<Out>(
            plain(i, random ? options.key.word(options.first_index + i, options.policy.random_bits) : 0));
}

} // namespace

std::optional<ShortLoop> short_loop(const FormatSpec& format, const Policy& policy) {
    if (!has_loop(format, policy)) return {};
    const RoundingConstants k = recent_constants(format, policy, false);
    if (!k.simple) return {};
    return ShortLoop{choose(format, policy.rounding, k), k};
}

/// Codes in two's complement: the values, rounded to floats, are integers of that format times a power of two.
template <class Code>
void encode_integers(const FormatSpec& format, const float* in, Code* out, std::size_t n, const BatchOptions& options,
                     Execution execution) {
    alignas(64) float values[block_size];
    const float unit = std::bit_cast<float>(static_cast<std::uint32_t>(127 - format.min_subnormal_exponent()) << 23);
    const std::uint32_t mask = format.code_mask();
    for (std::size_t i = 0; i < n; i += block_size) {
        const std::size_t count = std::min(block_size, n - i);
        BatchOptions rest = options;
        rest.first_index += i;
        round_array(format, in + i, values, count, rest, {.set = execution.set});
        for (std::size_t j = 0; j < count; ++j)
            out[i + j] =
                static_cast<Code>(static_cast<std::uint32_t>(static_cast<std::int32_t>(values[j] * unit)) & mask);
    }
}

/// The values of codes in two's complement.
template <class Code>
void decode_integers(const FormatSpec& format, const Code* in, float* out, std::size_t n) {
    const float unit = std::bit_cast<float>(static_cast<std::uint32_t>(127 + format.min_subnormal_exponent()) << 23);
    const int rest = 32 - format.bits(); // bits before the code's sign
    for (std::size_t i = 0; i < n; ++i)
        out[i] = static_cast<float>(static_cast<std::int32_t>(std::uint32_t{in[i]} << rest) >> rest) * unit;
}

template <class Out>
void round_array(const FormatSpec& format, const float* in, Out* out, std::size_t n, const BatchOptions& options,
                 Execution execution) {
    constexpr bool encodes = !std::is_same_v<Out, float>;
    if (!has_loop(format, options.policy)) {
        plain_loop(out, n, options, [&](std::size_t i, std::uint32_t word) {
            if constexpr (encodes) return amp::encode(format, in[i], options.policy, word);
            else return amp::quantize(format, in[i], options.policy, word);
        });
        return;
    }
    if constexpr (encodes)
        if (format.negatives != Negatives::sign_and_magnitude)
            return encode_integers(format, in, out, n, options, execution);
    const RoundingConstants k = recent_constants(format, options.policy, encodes);
    const Loop loop = choose(format, options.policy.rounding, k);
    const FloatEnvironment environment(host_rounding(options.policy.rounding));
    const bool random = options.policy.rounding == Rounding::stochastic;
    RandomWords buffer;
    const auto run = [&]<bool usual>(std::bool_constant<usual>) {
        const std::size_t size = random ? block_size : n;
        for_each_block(out, n, size, execution.streams, [&](std::size_t begin, std::size_t count, bool streams) {
            const std::uint32_t* words = nullptr;
            if (random)
                words = random_words(execution.set, options.key, options.policy.random_bits,
                                     options.first_index + begin, count, buffer);
            dispatch<RoundKernel<Out, usual>>(execution.set, loop, in + begin, out + begin, count, streams, words, &k);
        });
    };
    if (k.usual) run(std::true_type());
    else run(std::false_type());
}

template <class Code>
void decode_array(const FormatSpec& format, const Code* in, float* out, std::size_t n, NanRule nan,
                  Execution execution) {
    if (format.negatives != Negatives::sign_and_magnitude) return decode_integers(format, in, out, n);
    if (!is_wide(format) && !is_narrow(format)) {
        for (std::size_t i = 0; i < n; ++i) out[i] = amp::decode(format, in[i], nan);
        return;
    }
    const DecodingConstants k = recent_constants(format, nan);
    const bool is_ieee = format.nonfinite == NonFinite::ieee && format.is_signed;
    [[maybe_unused]] const std::optional<HalfConstants> half =
        execution.set != InstructionSet::baseline && !is_wide(format) ? half_constants(format, k) : std::nullopt;
    const auto run = [&]<Decoding decoding>(std::integral_constant<Decoding, decoding>) {
        for_each_block(out, n, n, execution.streams, [&](std::size_t begin, std::size_t count, bool streams) {
#if defined(__x86_64__)
            if constexpr (sizeof(Code) < 4)
                if (half) {
                    const auto decode_half =
                        execution.set == InstructionSet::avx512 ? decode_half_avx512<Code> : decode_half_avx2<Code>;
                    const std::size_t done = decode_half(in + begin, out + begin, count, streams, *half);
                    begin += done;
                    count -= done;
                }
#endif
            dispatch<DecodeKernel<Code, decoding>>(execution.set, in + begin, out + begin, count, streams, &k);
        });
    };
    if (is_ieee && is_wide(format)) run(std::integral_constant<Decoding, Decoding::prefix>());
    else if (is_ieee && nan == NanRule::canonical) run(std::integral_constant<Decoding, Decoding::ieee>());
    else run(std::integral_constant<Decoding, Decoding::any>());
}

template void round_array(const FormatSpec&, const float*, float*, std::size_t, const BatchOptions&, Execution);
template void round_array(const FormatSpec&, const float*, std::uint8_t*, std::size_t, const BatchOptions&, Execution);
template void round_array(const FormatSpec&, const float*, std::uint16_t*, std::size_t, const BatchOptions&, Execution);
template void round_array(const FormatSpec&, const float*, std::uint32_t*, std::size_t, const BatchOptions&, Execution);
template void decode_array(const FormatSpec&, const std::uint8_t*, float*, std::size_t, NanRule, Execution);
template void decode_array(const FormatSpec&, const std::uint16_t*, float*, std::size_t, NanRule, Execution);
template void decode_array(const FormatSpec&, const std::uint32_t*, float*, std::size_t, NanRule, Execution);

} // namespace amp::detail
