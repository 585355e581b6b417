// The formats of IEEE P3109 v4.0, its roundings and saturations: the codec against the report's own functions on exact
// rationals (oracle_p3109.h) and against the 504 published value tables, whose checksums are in data/p3109. With
// AMPSCOPE_P3109_TABLES=".../Public/Value Tables/Hexadecimal" the tables themselves are read.
#include "cases.h"
#include "needs.h"
#include "oracle_p3109.h"

#include <ampscope/formats/batch.h>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

using namespace amp;
using namespace amp::test;
namespace p3109 = oracle::p3109;

namespace {

std::vector<p3109::Format> all_formats() {
    std::vector<p3109::Format> all;
    for (int k = 3; k <= 16; ++k)
        for (int p = 1; p <= k; ++p)
            for (const bool is_signed : {true, false})
                for (const bool extended : {true, false})
                    if (p < k || !is_signed) all.push_back({k, p, is_signed, extended});
    return all;
}

/// A code's number as the tables' checksums have it: "nan", "-inf", "0", or an odd significand and an exponent, with
/// "*" if it is subnormal.
std::string canonical(const Unpacked& u) {
    const std::string sign = u.sign ? "-" : "";
    switch (u.kind) {
    case Kind::nan: return "nan";
    case Kind::infinity: return sign + "inf";
    case Kind::zero: return sign + "0";
    case Kind::finite: break;
    }
    const int low = std::countr_zero(u.significand);
    return fmt::format("{}{}p{}{}", sign, u.significand >> low, u.exponent + low, u.subnormal ? "*" : "");
}

/// A cell of a table in the same form: digits before and behind the point in hexadecimal, a binary exponent.
std::string canonical_cell(const std::string& cell, bool subnormal) {
    if (cell == "NaN" || cell == "Inf" || cell == "-Inf") return cell == "NaN" ? "nan" : cell == "Inf" ? "inf" : "-inf";
    const bool negative = cell[0] == '-';
    const std::size_t x = cell.find('x'), p = cell.find('p');
    std::string digits = cell.substr(x + 1, p - x - 1);
    int exponent = std::stoi(cell.substr(p + 1));
    if (const std::size_t point = digits.find('.'); point != std::string::npos) {
        exponent -= 4 * static_cast<int>(digits.size() - point - 1);
        digits.erase(point, 1);
    }
    std::uint64_t n = std::stoull(digits, nullptr, 16);
    if (n == 0) return negative ? "-0" : "0";
    for (; n % 2 == 0; n /= 2) ++exponent;
    return fmt::format("{}{}p{}{}", negative ? "-" : "", n, exponent, subnormal ? "*" : "");
}

/// The 64-bit FNV-1a hash.
std::uint64_t hash_of(const std::string& text) {
    std::uint64_t state = 0xcbf29ce484222325;
    for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return state;
}

p3109::Real real_of(const Unpacked& u) {
    if (u.is_nan()) return p3109::nan;
    if (u.kind == Kind::infinity) return u.sign ? p3109::minus_infinity : p3109::plus_infinity;
    const p3109::Rational x = p3109::Rational(u.significand) * p3109::power_of_two(u.exponent);
    return {p3109::Real::Kind::number, u.sign ? p3109::Rational(-x) : x};
}

/// A rounding mode, with random bits for the stochastic ones, as the report and as policy.h have it.
struct Rounded {
    p3109::Mode mode;
    Policy policy;
    std::uint32_t word = 0;
};

/// The modes, the stochastic ones with two numbers of random bits, which change with the seed.
std::vector<Rounded> rounding_modes(std::uint64_t seed) {
    constexpr Rounding ours[] = {Rounding::nearest_even, Rounding::nearest_away, Rounding::up,
                                 Rounding::down,         Rounding::toward_zero,  Rounding::to_odd};
    std::vector<Rounded> all;
    for (int name = 0; name < 6; ++name)
        all.push_back({{static_cast<p3109::Mode::Name>(name)}, {.rounding = ours[name]}});
    for (int variant = 0; variant < 3; ++variant)
        for (const int choice : {0, 1}) {
            const std::uint64_t h = mix(seed + all.size());
            constexpr int few[] = {1, 2, 3, 4}, many[] = {5, 8, 11, 32};
            const int bits = choice == 0 ? few[h % 4] : many[h % 4];
            const std::uint64_t last = (std::uint64_t{1} << bits) - 1;
            const std::uint64_t random = h / 4 % 8 == 0 ? 0 : h / 4 % 8 == 1 ? last : h >> 8 & last;
            all.push_back({{static_cast<p3109::Mode::Name>(p3109::Mode::stochastic_a + variant), bits,
                            static_cast<std::uint32_t>(random)},
                           {.rounding = Rounding::stochastic,
                            .random_bits = static_cast<std::uint8_t>(bits),
                            .variant = static_cast<StochasticVariant>(variant)},
                           static_cast<std::uint32_t>(last - random)});
        }
    return all;
}

constexpr std::pair<p3109::Saturation, Overflow> saturations[] = {
    {p3109::Saturation::sat_finite, Overflow::sat_finite},
    {p3109::Saturation::sat_propagate, Overflow::sat_propagate},
    {p3109::Saturation::sat_none, Overflow::sat_none}};

/// Projects one number in every mode by both.
void check_projections(const p3109::Format& f, const FormatSpec& spec, const p3109::Range& range, const Unpacked& u,
                       std::uint64_t seed, Tally& tally) {
    const p3109::Real x = real_of(u);
    for (const Rounded& r : rounding_modes(seed)) {
        const p3109::Real rounded = p3109::round_to_precision(f, r.mode, x);
        for (const auto& pair : saturations) {
            const p3109::Saturation saturation = pair.first;
            const Overflow overflow = pair.second;
            Policy policy = r.policy;
            policy.overflow = overflow;
            Flags unused;
            tally.expect(pack(spec, u, policy, r.word, unused),
                         p3109::encode(f, p3109::saturate(f, saturation, r.mode.name, rounded, range.low, range.high)),
                         [&] {
                             return fmt::format("{} of {} in mode {} with {} bits {:#x}, {}", spec.name, canonical(u),
                                                int(r.mode.name), r.mode.bits, r.mode.random, name_of(overflow));
                         });
        }
    }
}

/// The k-th value above zero as if the exponent had no end, and points between it and the next, in 1024ths.
Unpacked between(const FormatSpec& f, std::uint32_t k, std::uint64_t part, bool sign) {
    const std::uint32_t implicit = std::uint32_t{1} << f.fraction_bits, field = k / implicit;
    const std::uint64_t n = field == 0 ? k : implicit + k % implicit;
    const int exponent = std::max(static_cast<int>(field), 1) - f.bias() - f.fraction_bits - 10;
    if (n == 0 && part == 0) return {.sign = sign};
    return {.kind = Kind::finite, .sign = sign, .exponent = exponent, .significand = n << 10 | part};
}

constexpr std::uint64_t parts[] = {0, 1, 128, 256, 384, 511, 512, 513, 768, 1023};

} // namespace

TEST_CASE("P3109: every code of every format decodes as section 4.7.2 says, and encodes to itself") {
    const std::vector<p3109::Format> all = all_formats();
    CHECK(all.size() == 504);
    prove("P3109 decode and round trip, 504 formats", all.size(), [&](std::uint64_t i, Tally& tally) {
        const p3109::Format& f = all[i];
        const FormatSpec spec = format_of_codes(f.name());
        for (std::uint32_t code = 0; code < f.codes(); ++code) {
            // Rationals are slow: of many codes every 16th, and both ends. The tables have them all.
            if (f.k > 12 && code % 16 != 0 && (code + 16) % (f.codes() / 2) > 32) continue;
            const auto where = [&] { return fmt::format("{} code {:#x}", spec.name, code); };
            bool subnormal = false;
            const Unpacked u = unpack(spec, code);
            tally.expect(real_of(u) == p3109::decode(f, code, &subnormal), true, where);
            tally.expect(u.subnormal, subnormal, where);
            Flags flags;
            tally.expect(pack(spec, u, {.overflow = Overflow::sat_none}, 0, flags), code, where);
            tally.expect(flags.bits, std::uint8_t{0}, where);
        }
    });
}

TEST_CASE("P3109: checksums of the 504 published value tables") {
    std::ifstream file(AMPSCOPE_TEST_DATA "/p3109/checksums.txt");
    std::map<std::string, std::pair<std::uint32_t, std::uint64_t>> published;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        std::uint32_t codes = 0;
        std::uint64_t hash = 0;
        if (line.empty() || line[0] == '#') continue;
        words >> name >> codes >> std::hex >> hash;
        published[name] = {codes, hash};
    }
    const std::vector<p3109::Format> all = all_formats();
    REQUIRE(published.size() == all.size());
    std::atomic<std::uint64_t> codes = 0;
    prove("P3109 checksums of 504 value tables", all.size(), [&](std::uint64_t i, Tally& tally) {
        const FormatSpec spec = format_of_codes(all[i].name());
        std::string text;
        for (std::uint32_t code = 0; code <= spec.code_mask(); ++code) text += canonical(unpack(spec, code)) + "\n";
        const auto& [count, hash] = published.at(spec.name);
        tally.expect(spec.code_mask() + 1, count, [&] { return spec.name; });
        tally.expect(hash_of(text), hash, [&] { return spec.name; });
        codes += count;
    });
    CHECK(codes == 7'602'160);
}

TEST_CASE("P3109: the published value tables, code by code" * doctest::test_suite("p3109_tables")) {
    const char* const folder = std::getenv("AMPSCOPE_P3109_TABLES");
    if (folder == nullptr)
        return skip("the value tables of P3109: git clone https://github.com/P3109/Public, and "
                    "AMPSCOPE_P3109_TABLES=\"Public/Value Tables/Hexadecimal\"");
    std::vector<std::filesystem::path> tables;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
        if (entry.path().extension() == ".csv") tables.push_back(entry.path());
    REQUIRE(tables.size() == 504);
    prove("P3109 value tables, code by code", tables.size(), [&](std::uint64_t i, Tally& tally) {
        const FormatSpec spec = format_of_codes(tables[i].stem().string());
        std::ifstream file(tables[i]);
        std::string line;
        std::getline(file, line); // codepoint,value,subnormal
        std::uint32_t code = 0;
        for (; std::getline(file, line); ++code) {
            const std::size_t first = line.find(','), second = line.find(',', first + 1);
            const std::string want =
                canonical_cell(line.substr(first + 1, second - first - 1), line.find('*', second) != std::string::npos);
            const auto where = [&] { return fmt::format("{} code {:#x}: {}", spec.name, code, line); };
            tally.expect(std::stoul(line, nullptr, 16), std::uint64_t{code}, where);
            tally.expect(canonical(unpack(spec, code)) == want, true, where);
        }
        tally.expect(code, spec.code_mask() + 1, [&] { return spec.name; });
    });
}

TEST_CASE("P3109: projection of every value, midpoint and neighbour of formats up to 8 bits") {
    std::vector<p3109::Format> small = all_formats();
    std::erase_if(small, [](const p3109::Format& f) { return f.k > 8; });
    constexpr std::uint64_t slices = 16;
    prove("P3109 projections to formats of 3 to 8 bits", small.size() * slices, [&](std::uint64_t i, Tally& tally) {
        const p3109::Format& f = small[i / slices];
        const FormatSpec spec = format_of_codes(f.name());
        const p3109::Range range(f);
        for (std::uint32_t k = static_cast<std::uint32_t>(i % slices); k <= spec.max_code() + 4; k += slices)
            for (const std::uint64_t part : parts)
                for (const bool sign : {false, true})
                    check_projections(f, spec, range, between(spec, k, part, sign), mix(k * 1024 + part), tally);
        for (const bool sign : {false, true}) {
            check_projections(f, spec, range, {.kind = Kind::infinity, .sign = sign}, 1, tally);
            check_projections(f, spec, range, {.kind = Kind::nan, .sign = sign, .significand = 1}, 2, tally);
            for (const int e : {-1200, -40, 40, 1200})
                check_projections(f, spec, range, {.kind = Kind::finite, .sign = sign, .exponent = e, .significand = 3},
                                  3, tally);
        }
    });
}

TEST_CASE("P3109: projection to formats of 9 to 16 bits, at both ends and at random") {
    std::vector<p3109::Format> wide = all_formats();
    std::erase_if(wide, [](const p3109::Format& f) { return f.k <= 8; });
    prove("P3109 projections to formats of 9 to 16 bits", wide.size(), [&](std::uint64_t i, Tally& tally) {
        const p3109::Format& f = wide[i];
        const FormatSpec spec = format_of_codes(f.name());
        const p3109::Range range(f);
        const std::uint32_t implicit = std::uint32_t{1} << spec.fraction_bits, last = spec.max_code();
        std::vector<std::uint32_t> indices = {0, 1, implicit - 1, implicit, implicit + 1, last - 1, last, last + 1};
        for (std::uint64_t n = 0; n < (spec.exponent_bits > 11 ? 1 : 6); ++n)
            indices.push_back(static_cast<std::uint32_t>(mix(100 * i + n) % last));
        for (const std::uint32_t k : indices)
            for (std::size_t n = k % 2; n<std::size(parts); n += spec.exponent_bits> 11 ? 7 : 2)
                check_projections(f, spec, range, between(spec, k, parts[n], (k + n / 2) % 2 != 0), mix(i + k), tally);
    });
}

TEST_CASE("P3109: arrays are rounded as single numbers are") {
    const std::vector<p3109::Format> all = all_formats();
    prove("P3109 arrays: quantize, encode and decode", all.size(), [&](std::uint64_t i, Tally& tally) {
        const FormatSpec spec = format_of_codes(all[i].name());
        if (!spec.fits_fp32()) return;
        std::vector<float> in = {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-45f, INFINITY, -INFINITY, NAN, 3e38f, -3e38f};
        for (std::uint64_t n = 0; n < 12; ++n) {
            const auto k = static_cast<std::uint32_t>(mix(i + n) % (spec.max_code() + 3));
            for (const std::uint64_t part : parts) {
                const Unpacked u = between(spec, k, part, n % 2 != 0);
                in.push_back(static_cast<float>(std::ldexp(double(u.significand) * (u.sign ? -1 : 1), u.exponent)));
            }
        }
        std::vector<float> values(in.size());
        std::vector<std::uint32_t> codes(in.size());
        for (const Rounded& r : rounding_modes(i))
            for (const auto& [saturation, overflow] : saturations) {
                BatchOptions options{.policy = r.policy, .key = {.seed = i}, .first_index = i % 5};
                options.policy.overflow = overflow;
                quantize(spec, in, values, options);
                encode(spec, in, codes, options);
                for (std::size_t n = 0; n < in.size(); ++n) {
                    const std::uint32_t word = options.key.word(options.first_index + n, r.policy.random_bits);
                    const std::uint32_t code = encode(spec, in[n], options.policy, word);
                    const auto where = [&] { return fmt::format("{} of {:a}", spec.name, in[n]); };
                    tally.expect(codes[n], code, where);
                    tally.expect(values[n], decode(spec, code), where);
                }
            }
        if (spec.bits() > 12) return;
        codes.resize(spec.code_mask() + 1);
        for (std::uint32_t code = 0; code < codes.size(); ++code) codes[code] = code;
        values.resize(codes.size());
        decode(spec, codes, values);
        for (std::uint32_t code = 0; code < codes.size(); ++code)
            tally.expect(values[code], decode(spec, code), [&] { return fmt::format("{} {:#x}", spec.name, code); });
    });
}

TEST_CASE("P3109: names") {
    CHECK(std::string(format("Binary8p3se").name) == "binary8p3se");
    CHECK(format("binary8p3") == format("BINARY8P3SE"));
    CHECK(format("binary8p3").bits() == 8);
    // Two formats that others have under another name, but for that name.
    FormatSpec fnuz = format("binary8p4sf");
    std::copy_n(format("e4m3fnuz").name, sizeof fnuz.name, fnuz.name);
    CHECK(fnuz == format("e4m3fnuz"));
    const auto error = [](const char* name, const auto& make) {
        try {
            (void)make(name);
        } catch (const std::invalid_argument& e) {
            return std::string(e.what());
        }
        return std::string();
    };
    for (const char* name :
         {"binary8p3s", "binary8p3es", "binary8p3see", "binary8", "binary8p", "binaryp3", "binary8p3x"})
        CHECK(error(name, format_of_codes).find("unknown format '" + std::string(name) + "'; known: ") == 0);
    for (const char* name : {"binary2p1se", "binary17p3se", "binary8p8se", "binary8p9ue", "binary08p3se", "binary8p0"})
        CHECK(error(name, format_of_codes).find(name) != std::string::npos);
    std::uint64_t beyond = 0;
    for (const p3109::Format& f : all_formats()) {
        const bool fits = format_of_codes(f.name()).fits_fp32();
        if (!fits) CHECK(error(f.name().c_str(), format).find("beyond those of FP32") != std::string::npos);
        beyond += fits ? 0 : 1;
    }
    CHECK(beyond == 128);
}
