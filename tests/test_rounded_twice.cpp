// Arithmetic over arrays where FP32's result is rounded again: pairs of significands whose results have every exponent
// of the format and those beyond its ends, against the plain code. Of formats with FP32's exponents a block falls back
// to other loops if a product or quotient leaves them; here some blocks do.
#include "sweep.h"

#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/detail/convert.h>
#include <ampscope/formats/names.h>

#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

/// Exponents of two operands, and of the third of fma.
struct Exponents {
    int x, y, z;
};

/// Such that the result's exponent is about r. The third operand of fma has half of its last place where the product
/// begins, or is close to it.
Exponents exponents(Operation operation, const FormatSpec& f, int r, std::uint64_t i) {
    const int least = f.min_exponent(), most = f.max_exponent();
    const int half = std::clamp(r / 2, least, most), apart = static_cast<int>(i % 16);
    switch (operation) {
    case Operation::add:
    case Operation::sub: return {std::clamp(r, least, most), std::clamp(r - apart, least, most), 0};
    case Operation::div: return {half, std::clamp(half - r, least, most), 0};
    default:
        return {half, std::clamp(r - half, least, most),
                std::clamp(r + (apart < 8 ? f.precision() : apart - 12), least, most)};
    }
}

void check_block(Operation operation, const FormatSpec& f, const Exponents& e, std::uint64_t row, Tally& tally) {
    const std::uint64_t significands = std::uint64_t{1} << f.fraction_bits;
    const auto value = [&](std::uint64_t significand, int exponent) {
        const double x = std::ldexp(
            1 + static_cast<double>(significand % significands) / static_cast<double>(significands), exponent);
        return quantize(f, (significand / significands) % 2 == 0 ? x : -x);
    };
    std::vector<float> a, b, c, want;
    for (std::uint64_t column = 0; column < significands; ++column) {
        a.push_back(value(row, e.x));
        b.push_back(value(column + significands * (column / 8), e.y));
        c.push_back(value(row * 77 + column * 13, e.z));
        Arithmetic unit{f, {}};
        const std::uint32_t x = encode(f, a.back()), y = encode(f, b.back()), z = encode(f, c.back());
        switch (operation) {
        case Operation::add: want.push_back(decode(f, unit.add(x, y))); break;
        case Operation::sub: want.push_back(decode(f, unit.sub(x, y))); break;
        case Operation::mul: want.push_back(decode(f, unit.mul(x, y))); break;
        case Operation::div: want.push_back(decode(f, unit.div(x, y))); break;
        case Operation::sqrt: want.push_back(decode(f, unit.sqrt(x))); break;
        case Operation::fma: want.push_back(decode(f, unit.fma(x, y, z))); break;
        }
    }
    for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set) {
        std::vector<float> out = b; // in place
        detail::apply_array(operation, f, a.data(), out.data(), c.data(), out.data(), out.size(), {},
                            {.set = static_cast<InstructionSet>(set)});
        for (std::size_t i = 0; i < out.size(); ++i)
            tally.expect(out[i], want[i], [&] {
                return fmt::format("{} operation {} of {}, {}, {}, set {}", f.name, int(operation), Tally::show(a[i]),
                                   Tally::show(b[i]), Tally::show(c[i]), set);
            });
    }
}

} // namespace

TEST_CASE("results of FP32, rounded again, at every exponent") {
    for (const char* const name : {"fp16", "e6m9", "bf16", "e8m5", "tf32"}) {
        const FormatSpec f = format(name);
        const int least = f.min_subnormal_exponent() - 3, exponents_of = f.max_exponent() + 3 - least;
        constexpr std::uint64_t rows = 6; // significands of the first operand for each exponent, always others
        prove(fmt::format("arrays: {} from FP32's results rounded again", name),
              std::uint64_t{5} * rows * static_cast<std::uint64_t>(exponents_of), [&](std::uint64_t i, Tally& tally) {
                  constexpr Operation operations[] = {Operation::add, Operation::sub, Operation::mul, Operation::div,
                                                      Operation::fma};
                  const Operation operation = operations[i % 5];
                  const int r = least + static_cast<int>(i / 5 % static_cast<std::uint64_t>(exponents_of));
                  check_block(operation, f, exponents(operation, f, r, i / 5), i * 37 + i / 64, tally);
              });
    }
}

TEST_CASE("blocks that leave FP32's exponents, beside others, and operands that are zero or not finite") {
    const FormatSpec shifted_up{"e6m5 to 2^91", 6, 5, NonFinite::ieee, -60}; // squares leave FP32
    const FormatSpec shifted_down{"e6m5 from 2^-86", 6, 5, NonFinite::ieee, 50};
    for (const FormatSpec& f : {format("bf16"), format("fp16"), shifted_up, shifted_down}) {
        std::vector<float> hard = {0, -0.0F, INFINITY, -INFINITY, NAN};
        for (const std::uint32_t code :
             {1U, 2U, f.min_normal_code(), f.min_normal_code() + 5, f.max_code(), f.max_code() / 2})
            for (const std::uint32_t sign : {0U, f.sign_mask()}) hard.push_back(decode(f, code | sign));
        std::vector<float> a, b, c;
        for (std::size_t i = 0; i < 6000; ++i) {
            const bool is_hard = i / 1024 % 2 == 1 || i > 4090;
            const auto usual = [&](std::size_t n) {
                return quantize(f, std::ldexp(1 + static_cast<float>(n % 128) / 128, -f.bias_offset));
            };
            a.push_back(is_hard ? hard[i % hard.size()] : usual(i));
            b.push_back(is_hard ? hard[i / hard.size() % hard.size()] : usual(i / 128));
            c.push_back(is_hard ? hard[i / 7 % hard.size()] : -usual(i * 5));
        }
        for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set)
            for (const Operation operation : {Operation::mul, Operation::div, Operation::fma}) {
                std::vector<float> out(a.size());
                detail::apply_array(operation, f, a.data(), b.data(), c.data(), out.data(), out.size(), {},
                                    {.set = static_cast<InstructionSet>(set)});
                std::size_t wrong = 0;
                for (std::size_t i = 0; i < out.size(); ++i) {
                    Arithmetic unit{f, {}};
                    const std::uint32_t x = encode(f, a[i]), y = encode(f, b[i]);
                    const std::uint32_t want = operation == Operation::mul   ? unit.mul(x, y)
                                               : operation == Operation::div ? unit.div(x, y)
                                                                             : unit.fma(x, y, encode(f, c[i]));
                    wrong += !Tally::same(out[i], decode(f, want));
                }
                CAPTURE(f.name);
                CAPTURE(set);
                CAPTURE(static_cast<int>(operation));
                CHECK(wrong == 0);
            }
    }
}
