#include <ampscope/tools/amp-crosscheck/dot_inputs.h>

#include <ampscope/formats/codec.h>
#include <ampscope/formats/random.h>

#include <charconv>
#include <cmath>

namespace amp::crosscheck_tool {

namespace {

constexpr std::string_view published =
#include <ampscope/tools/amp-crosscheck/vectors.inc>
    ;

/// The text before the next `at`, which is taken off.
std::string_view take(std::string_view& text, char at) {
    const std::size_t end = std::min(text.find(at), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return part;
}

std::uint32_t number(std::string_view text, int base) {
    std::uint32_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value, base);
    return value;
}

/// "0:3c00,5:1" -> k numbers of the format.
std::vector<float> sparse(const FormatSpec& f, std::string_view text, std::size_t k) {
    std::vector<float> x(k);
    while (!text.empty() && text != "-") {
        std::string_view item = take(text, ',');
        const std::uint32_t index = number(take(item, ':'), 10);
        x.at(index) = decode(f, number(item, 16));
    }
    return x;
}

/// Two numbers of a normal distribution (Box and Muller).
double normal(std::uint32_t x, std::uint32_t y) {
    return std::sqrt(-2 * std::log((x + 1.0) * 0x1p-32)) * std::cos(2 * 3.14159265358979323846 * (y * 0x1p-32));
}

float any_code(const FormatSpec& f, std::uint32_t word, bool finite) {
    const float x = decode(f, word & f.code_mask());
    return !finite || std::isfinite(x) ? x : 1.0F;
}

float zero(std::uint32_t word) { return word % 2 == 0 ? 0.0F : -0.0F; }

float power_of_two(int exponent, std::uint32_t word) { return std::ldexp(word % 2 == 0 ? 1.0F : -1.0F, exponent); }

/// Of eight numbers the first leads: two such have a product in the last place of a sum near zero, or below the
/// format's range if that ends before. Of the others a quarter is not zero, and their products are far below.
float tiny(const FormatSpec& f, std::size_t place, const std::array<std::uint32_t, 4>& w) {
    const bool wide = f.exponent_bits == 8;
    const int bottom = std::max(f.min_subnormal_exponent(), -82), lead = std::max(bottom, wide ? -75 : -13);
    if (place % 8 == 0) return w[3] % 4 == 0 ? zero(w[2]) : power_of_two(lead + static_cast<int>(w[3] / 4 % 2), w[2]);
    return w[3] % 4 == 0 ? power_of_two(bottom + static_cast<int>(w[3] / 4 % 6), w[2]) : zero(w[2]);
}

/// Sums so far are 2^13 ... 2^14, and half of their last place in FP16 is 4. Of eight products the first is +4, -4 or
/// zero; a sixteenth of the others is 21 to 27 binades below the sum, or as far as the format reaches.
float tie(const FormatSpec& f, std::size_t place, const std::array<std::uint32_t, 4>& w) {
    if (place % 8 == 0) return w[3] % 2 == 0 ? power_of_two(1, w[2]) : zero(w[2]);
    const int exponent = -4 - static_cast<int>(w[1] % 4);
    return w[3] % 4 == 0 ? power_of_two(std::max(exponent, f.min_subnormal_exponent()), w[2]) : zero(w[2]);
}

float one(DotInputs kind, const FormatSpec& f, std::size_t place, const std::array<std::uint32_t, 4>& w) {
    const double ordinary = normal(w[0], w[1]);
    const Policy saturate{.overflow = Overflow::saturate_all};
    switch (kind) {
    case DotInputs::normal:
    case DotInputs::cancelling: return quantize(f, ordinary, saturate);
    case DotInputs::uniform: return quantize(f, w[0] * 0x1p-32, saturate);
    case DotInputs::random_bits: return any_code(f, w[2], true);
    case DotInputs::subnormal: return decode(f, (w[2] & f.fraction_mask()) | (w[3] % 2 == 0 ? f.sign_mask() : 0));
    case DotInputs::zeros: return w[3] % 2 == 0 ? (w[3] % 4 == 0 ? 0.0F : -0.0F) : any_code(f, w[2], true);
    case DotInputs::specials:
        if (w[3] % 16 == 0) return decode(f, f.nan_code());
        if (w[3] % 16 == 1 && f.has_infinity())
            return decode(f, f.infinity_code() | (w[2] % 2 == 0 ? f.sign_mask() : 0));
        return w[3] % 16 == 2 ? 0.0F : quantize(f, ordinary, saturate);
    case DotInputs::signed_zeros: return w[3] % 8 == 0 ? power_of_two(0, w[2]) : zero(w[2]);
    case DotInputs::tiny: return tiny(f, place, w);
    case DotInputs::unrounded: return quantize(f == format("tf32") ? format("fp32") : f, ordinary, saturate);
    case DotInputs::ties: return tie(f, place, w);
    case DotInputs::large_sums: return f.is_integer() ? any_code(f, w[2], true) : quantize(f, ordinary, saturate);
    }
    return 0;
}

} // namespace

std::vector<float> dot_inputs(DotInputs kind, const FormatSpec& f, std::uint32_t seed, std::size_t n, bool second) {
    const RandomKey key{.seed = seed, .stream = static_cast<std::uint32_t>(kind), .step = second ? 1U : 0U};
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) {
        x[i] = one(kind, f, i, key.words(i));
        const bool repeats = kind == DotInputs::cancelling && i % 2 == 1 && key.words(i)[3] % 4 != 0;
        if (repeats) x[i] = second ? x[i - 1] : -x[i - 1];
    }
    return x;
}

std::vector<float> sums_so_far(DotInputs kind, const FormatSpec& f, std::uint32_t seed, std::size_t n) {
    const auto drawn = [&](const auto& sum) {
        const RandomKey key{.seed = seed, .stream = static_cast<std::uint32_t>(kind), .step = 2};
        std::vector<float> x(n);
        for (std::size_t i = 0; i < n; ++i) x[i] = sum(key.words(i));
        return x;
    };
    switch (kind) {
    case DotInputs::random_bits: return dot_inputs(DotInputs::normal, f, seed, n);
    case DotInputs::tiny:
        return drawn([&](const auto& w) {
            const int exponent = f.min_subnormal_exponent() + static_cast<int>(w[1] % 40);
            return w[3] % 2 == 0 ? zero(w[2]) : power_of_two(exponent, w[2]);
        });
    case DotInputs::large_sums:
        return drawn(
            [&](const auto& w) { return power_of_two(static_cast<int>(w[1] % 64) % (f.max_exponent() + 1), w[2]); });
    case DotInputs::ties:
        return drawn(
            [&](const auto& w) { return power_of_two(13, w[2]) * (1 + static_cast<float>(w[1] % 1024) * 0x1p-10F); });
    default: return dot_inputs(kind, f, seed, n);
    }
}

std::vector<DotVector> published_vectors() {
    std::vector<DotVector> found;
    for (std::string_view text = published; !text.empty();) {
        std::string_view line = take(text, '\n');
        const std::string_view id = take(line, '\t');
        if (id.starts_with("#") || id == "Q-stagnate") continue; // comments; a chain of its own
        static_cast<void>(take(line, '\t'));
        std::string_view types = take(line, '\t');
        const bool acc16 = types.ends_with("->f16");
        const std::string_view name = take(types, '-');
        const FormatSpec f = format(name == "f16" ? "fp16" : name);
        const std::uint32_t k = number(take(line, '\t'), 10);
        DotVector v{.id = id, .format = f, .acc16 = acc16, .a = {}, .b = {}};
        v.a = sparse(f, take(line, '\t'), k);
        v.b = sparse(f, take(line, '\t'), k);
        const std::uint32_t c = number(take(line, '\t'), 16);
        v.c = acc16 ? decode(format("fp16"), c) : std::bit_cast<float>(c);
        found.push_back(std::move(v));
    }
    return found;
}

} // namespace amp::crosscheck_tool
