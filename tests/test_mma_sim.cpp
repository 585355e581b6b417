// Dot products of rows of matrix hardware, with scales within the sums and without, against what MMA-Sim's own Python
// computes, recorded by tests/data/mma_sim/record.py.
#include "hardware_inputs.h"
#include "sweep.h"

#include <ampscope/formats/scaled_dot.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace amp;
using namespace amp::test;

namespace {

struct Recording {
    std::string row, a, b, scales, kind, hash;
    std::uint32_t block = 0, seed = 0, count = 0, k = 0;
};

std::vector<Recording> recordings() {
    std::vector<Recording> all;
    for (std::istringstream& words : recorded_lines("mma_sim/recordings.txt")) {
        Recording& r = all.emplace_back();
        words >> r.row >> r.a >> r.b >> r.scales >> r.block >> r.kind >> r.seed >> r.count >> r.k >> r.hash;
    }
    return all;
}

/// A recording's dot products, of the inputs that record.py makes.
class Products {
  public:
    explicit Products(const Recording& r)
        : r_(r), kind_(code_kind(r.kind)), acc_(accumulator(r.row)), fa_(format(r.a)), fb_(format(r.b)),
          scale_(format(r.block == 0 ? "fp32" : r.scales)), a_codes_(fa_), b_codes_(fb_), c_codes_(format("fp32")) {}

    std::uint32_t operator()(std::uint32_t line) {
        const bool cancels = kind_ == CodeKind::cancelling;
        a_.clear(), b_.clear();
        for (std::uint32_t i = 0; i < r_.k; ++i) {
            const std::uint32_t pair = cancels ? i / 2 * 2 : i, other = cancels && i + 1 < r_.k ? pair : i;
            a_.push_back(decode(fa_, a_codes_.code(kind_, word(r_.seed, 8 * line, pair), i % 2 == 1)));
            b_.push_back(decode(
                fb_, b_codes_.code(cancels ? CodeKind::ordinary : kind_, word(r_.seed, 8 * line + 1, other), false)));
        }
        const float c = addend(word(r_.seed, 8 * line + 2, 0)),
                    d = r_.block == 0 ? dot(acc_, fa_, fb_, a_, b_, c) : scaled(line, c);
        return std::isnan(d) ? 0x7fffffff : d == 0 ? 0 : std::bit_cast<std::uint32_t>(d);
    }

  private:
    [[nodiscard]] float scale(std::uint32_t word) const {
        const bool exotic = kind_ == CodeKind::any || kind_ == CodeKind::subnormal || kind_ == CodeKind::zeros;
        const bool nan = kind_ == CodeKind::specials && (word >> 20) % 64 == 0;
        const std::uint32_t of = word >> 8;
        if (scale_.is_scale()) return decode(scale_, nan ? 255 : exotic ? of % 255 : 115 + of % 25);
        std::uint32_t code = exotic ? of % 256 : 0x28 + of % 0x20;
        if ((code & 0x7f) == 0x7f) code &= 0x80;
        return decode(scale_, nan ? code | 0x7f : code);
    }
    [[nodiscard]] float addend(std::uint32_t word) const {
        if (word % 4 == 0) return 0;
        const CodeKind kind = kind_ == CodeKind::cancelling ? CodeKind::ordinary : kind_;
        const auto c = std::bit_cast<float>(c_codes_.code(kind, word, false));
        return r_.row == "blackwell-mxf4nvf4" && std::isinf(c) ? 1.0F : c; // see record.py
    }
    /// scaled_dot() with a sum so far.
    [[nodiscard]] float scaled(std::uint32_t line, float c) const {
        std::vector<float> a, b;
        for (std::uint32_t i = 0; i < r_.k / r_.block; ++i) {
            a.push_back(scale(word(r_.seed, 8 * line + 3, i)));
            b.push_back(scale(word(r_.seed, 8 * line + 4, i)));
            if (std::isnan(a.back()) || std::isnan(b.back())) return std::numeric_limits<float>::quiet_NaN();
        }
        return detail::whole_dot(acc_, acc_.reads(fa_), acc_.reads(fb_), a_, b_, c, [&](std::size_t at) {
            return detail::term_scale(scale_, a[at / r_.block], b[at / r_.block]);
        });
    }

    const Recording& r_;
    CodeKind kind_;
    Accumulator acc_;
    FormatSpec fa_, fb_, scale_;
    Codes a_codes_, b_codes_, c_codes_;
    std::vector<float> a_, b_;
};

} // namespace

TEST_CASE("rows of matrix hardware are what MMA-Sim computes") {
    const std::vector<Recording> all = recordings();
    REQUIRE(all.size() == 73);
    prove("dot products of MMA-Sim, by hashes", all.size(), [&](std::uint64_t index, Tally& tally) {
        const Recording& r = all[index];
        Products product(r);
        std::vector<std::uint32_t> results;
        for (std::uint32_t line = 0; line < r.count; ++line) results.push_back(product(line));
        tally.expect(fnv(results), std::uint64_t{std::stoull(r.hash, nullptr, 16)},
                     [&] { return fmt::format("{} {} x {}, {} {}, {}", r.row, r.a, r.b, r.scales, r.block, r.kind); });
        tally.cases += r.count - 1; // one hash stands for so many
    });
}
