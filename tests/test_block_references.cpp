// Scales and casts against what TransformerEngine's and DeepSeek's own Python computes, recorded by
// tests/data/fp8_references/record.py: blocks, whole tensors, MX, delayed scaling, and the order of a scaled product.
#include "recordings.h"
#include "sweep.h"

#include <ampscope/formats/scaled_dot.h>
#include <ampscope/sim/backend/kernels/quantize.h>

#include <doctest/doctest.h>

#include <cfloat>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

using namespace amp;
using namespace amp::test;

namespace {

/// A line of the recordings: `rule` may be a kind and a name, as in "delayed:max".
struct Recording {
    std::string line, rule, element;
    std::int64_t rows = 0, columns = 0, height = 0, width = 0;
    std::uint32_t seed = 0;
    std::string scales, codes;
};

std::vector<Recording> recordings() {
    std::vector<Recording> result;
    for (std::istringstream& words : recorded_lines("fp8_references/recordings.txt")) {
        if (words.str().starts_with("special:")) continue;
        Recording& r = result.emplace_back();
        r.line = words.str();
        words >> r.rule >> r.element >> r.rows >> r.columns >> r.height >> r.width >> r.seed >> r.scales >> r.codes;
    }
    return result;
}

/// The number that record.py makes at that place.
float number(const Recording& r, std::int64_t row, std::int64_t column) {
    const auto i = static_cast<std::uint32_t>(row), j = static_cast<std::uint32_t>(column);
    const auto height = static_cast<std::uint32_t>(r.height == 0 ? r.rows : r.height),
               width = static_cast<std::uint32_t>(r.width == 0 ? r.columns : r.width);
    const std::uint32_t base = mixed(mixed(i / height + r.seed) + j / width),
                        word = mixed(mixed(i + 7 * r.seed + 1) + j);
    const std::uint32_t spread = base >> 30 == 0 ? 1 : 16, kind = (base >> 4) % 16;
    if (kind == 0 || mixed(word) % 8 == 0) return std::bit_cast<float>(word & 0x80000000);
    const std::uint32_t exponent = kind == 1 ? 0 : (base >> 8) % 239 + 1 + (word >> 24) % spread;
    return std::bit_cast<float>((word & 0x807fffff) | exponent << 23);
}

std::vector<float> numbers(const Recording& r) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < r.rows; ++i)
        for (std::int64_t j = 0; j < r.columns; ++j) values.push_back(number(r, i, j));
    if (r.rule.ends_with(":jax")) // XLA takes subnormals for zeros
        for (float& x : values) x = std::fabs(x) < 0x1p-100F ? 1 : x;
    return values;
}

/// A tensor, cast by a rule: the decode scales of its blocks, and its codes.
struct Cast {
    std::vector<float> scales;
    std::vector<std::uint8_t> codes;
};

Cast cast(const BlockScaling& s, const std::vector<float>& x, std::int64_t rows, std::int64_t columns) {
    std::vector<BlockScale> scales;
    Cast result{.scales = {}, .codes = std::vector<std::uint8_t>(x.size())};
    for (const float amax : block_amax(s, x, rows, columns)) {
        scales.push_back(block_scale(s.rule, s.element, amax));
        result.scales.push_back(scales.back().decode);
    }
    std::vector<float> q(x.size());
    quantize_blocks(s, x, rows, columns, scales, q);
    encode(s.element, q, std::span(result.codes));
    return result;
}

BlockScaling scaling_of(const Recording& r, const std::string& rule) {
    return {.element = format(r.element),
            .rows = r.height,
            .columns = r.width,
            .rule = parse_name<ScaleRule>("rule", scale_rule_names, rule)};
}

constexpr std::int64_t history_length = 16;

/// The amax of a tensor at a step, as record.py makes it.
float amax_of(const Recording& r, std::int64_t step, std::int64_t tensor) {
    if ((step + tensor) % 37 == 0) return std::numeric_limits<float>::infinity();
    const float amax = std::fabs(number(r, step, tensor));
    return amax == 0 ? 1 : amax;
}

/// The scales of delayed scaling after each of `rows` steps, of `columns` tensors.
std::vector<float> delayed_scales(const Recording& r) {
    const op::DelayedRule rule{.max = decode(format(r.element), format(r.element).max_code())};
    std::vector<float> scales(static_cast<std::size_t>(r.columns), 1), every;
    std::vector<std::array<float, history_length>> histories(scales.size());
    for (std::int64_t step = 0; step < r.rows; ++step)
        for (std::size_t t = 0; t < scales.size(); ++t) {
            histories[t][0] = amax_of(r, step, static_cast<std::int64_t>(t));
            kernels::update_scale(rule, r.rule == "delayed:most_recent", histories[t].data(), history_length,
                                  scales[t]);
            every.push_back(scales[t]);
        }
    return every;
}

/// The same as torch computes number / tensor: a product with the reciprocal. The amax is searched for in all steps.
std::vector<float> unfused_scales(const Recording& r) {
    const float max = decode(format(r.element), format(r.element).max_code());
    std::vector<float> scales(static_cast<std::size_t>(r.columns), 1), every;
    for (std::int64_t step = 0; step < r.rows; ++step)
        for (std::size_t t = 0; t < scales.size(); ++t) {
            float amax = 0;
            const std::int64_t first =
                r.rule == "unfused:max" ? std::max<std::int64_t>(0, step - history_length + 1) : step;
            for (std::int64_t i = first; i <= step; ++i)
                amax = std::max(amax, amax_of(r, i, static_cast<std::int64_t>(t)));
            if (std::isfinite(amax)) scales[t] = std::min(1 / amax * max, FLT_MAX);
            every.push_back(scales[t]);
        }
    return every;
}

/// The word that record.py makes of a place in an operand or its scales.
std::uint32_t word_at(std::int64_t row, std::int64_t column, std::uint32_t seed) {
    return mixed(mixed(static_cast<std::uint32_t>(row) + seed) + static_cast<std::uint32_t>(column));
}

/// Rows of E4M3 numbers and of scales, one for every 128 columns.
struct Operand {
    std::vector<float> values, scales;
    std::int64_t columns;

    Operand(std::int64_t rows, std::int64_t width, std::uint32_t seed, bool powers) : columns(width) {
        for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t j = 0; j < columns; ++j) {
                const std::uint32_t word = word_at(i, j, seed);
                values.push_back(decode(format("e4m3"), (word & 0x80) | (40 + (word >> 8) % 40)));
            }
            for (std::int64_t j = 0; j < blocks(); ++j) {
                const std::uint32_t word = word_at(i, j, seed + 2);
                scales.push_back(
                    std::bit_cast<float>((powers ? 0 : word & 0x7fffff) | (117 + (word >> 24) % 20) << 23));
            }
        }
    }
    [[nodiscard]] std::int64_t blocks() const { return (columns + 127) / 128; }
    [[nodiscard]] ScaledNumbers row(std::int64_t i, std::int64_t scale_row) const {
        const auto at = [](std::int64_t n) { return static_cast<std::size_t>(n); };
        return {std::span(values).subspan(at(i * columns), at(columns)),
                std::span(scales).subspan(at(scale_row * blocks()), at(blocks()))};
    }
};

/// cuBLAS' product: the sum of each block times one scale, which times the other is added to the total.
float cublas_dot(const ScaledNumbers& a, const ScaledNumbers& b) {
    float total = 0;
    for (std::size_t k = 0; k < a.scales.size(); ++k) {
        double sum = 0; // exact
        for (std::size_t i = 128 * k; i < std::min(a.values.size(), 128 * (k + 1)); ++i)
            sum += static_cast<double>(a.values[i]) * b.values[i];
        total = std::fma(static_cast<float>(sum) * a.scales[k], b.scales[k], total);
    }
    return total;
}

} // namespace

TEST_CASE("scales and codes of whole tensors, rule by rule") {
    Tally tally;
    std::map<std::string, std::uint64_t> elements;
    for (const Recording& r : recordings()) {
        const std::string rule = r.rule.substr(0, r.rule.find(':'));
        if (rule == "delayed" || rule == "unfused" || rule == "product") continue;
        const Cast got = cast(scaling_of(r, rule), numbers(r), r.rows, r.columns);
        tally.expect(std::uint32_t{hash_of(got.scales) == r.scales}, 1U, [&] { return "scales of " + r.line; });
        tally.expect(std::uint32_t{hash_of(got.codes) == r.codes}, 1U, [&] { return "codes of " + r.line; });
        elements[rule] += got.codes.size();
    }
    for (const auto& of_rule : elements) CHECK_MESSAGE(of_rule.second >= 100000, of_rule.first);
    CHECK(elements.size() == 7);
    report("hashes of scales and codes of TransformerEngine, DeepGEMM and DeepSeek-V3", tally);
}

TEST_CASE("scales of delayed scaling, step by step") {
    Tally tally;
    for (const Recording& r : recordings()) {
        const bool fused = r.rule.starts_with("delayed:");
        if (!fused && !r.rule.starts_with("unfused:")) continue;
        const std::vector<float> scales = fused ? delayed_scales(r) : unfused_scales(r);
        tally.expect(std::uint32_t{hash_of(scales) == r.scales}, 1U, [&] { return r.line; });
    }
    report("hashes of 104,000 delayed scales each of TransformerEngine", tally);
    CHECK(tally.cases == 8);
}

TEST_CASE("the order of a scaled product: cuBLAS' is ours where scales are powers of two") {
    Tally tally;
    for (const Recording& r : recordings()) {
        if (!r.rule.starts_with("product:")) continue;
        const bool powers = r.rule == "product:te-pow2";
        const std::int64_t m = r.rows, n = r.columns, k = r.height;
        const Operand a(m, k, 11, powers), b(n, k, 12, powers);
        std::vector<float> ours, cublas;
        for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
                const ScaledNumbers x = a.row(i, i), w = b.row(j, r.width == 1 ? j : 0);
                ours.push_back(scaled_dot({}, format("e4m3"), format("e4m3"), x, w, 128, format("fp32")));
                cublas.push_back(cublas_dot(x, w));
            }
        tally.expect(std::uint32_t{hash_of(cublas) == r.scales}, 1U, [&] { return r.line; });
        CHECK((ours == cublas) == powers); // else FP32 rounds elsewhere, by little beside the largest of the products
        const auto size = [](float x, float y) { return std::fabs(x) < std::fabs(y); };
        const float largest = std::fabs(*std::ranges::max_element(cublas, size));
        for (std::size_t i = 0; i < ours.size(); ++i) CHECK(std::fabs(ours[i] - cublas[i]) < 1e-6F * largest);
    }
    report("scaled products in the order of TransformerEngine's reference", tally);
    CHECK(tally.cases == 4);
}

TEST_CASE("zeros, infinities, NaN, the smallest and the largest numbers: what the references give, and where kernels "
          "differ") {
    // In blocks with an infinity or NaN, TE's Python is not its kernels, which are what we follow: a scale of 1 where
    // amax is infinite or NaN, and amax without NaN (recipe_common.cuh); 2^127 for E8M0 where it is infinite (ptx.cuh).
    const std::set<std::string> follows_kernels = {"te", "te-pow2", "mx-te"};
    std::ifstream file(AMPSCOPE_TEST_DATA "/fp8_references/recordings.txt");
    Tally tally;
    std::string line;
    std::uint64_t by_kernels = 0;
    while (std::getline(file, line)) {
        if (!line.starts_with("special:")) continue;
        std::istringstream words(line.substr(8));
        std::string rule, element, numbers, scale, codes;
        words >> rule >> element >> numbers >> scale >> codes;
        const auto word = [](const std::string& hex, std::size_t digits, std::size_t i) {
            return static_cast<std::uint32_t>(std::stoul(hex.substr(i * digits, digits), nullptr, 16));
        };
        std::vector<float> x;
        for (std::size_t i = 0; i < 4; ++i) x.push_back(std::bit_cast<float>(word(numbers, 8, i)));
        const ScaleRule named = parse_name<ScaleRule>("rule", scale_rule_names, rule);
        const Cast got = cast({.element = format(element), .rule = named}, x, 1, 4);
        if (follows_kernels.contains(rule) && !std::ranges::all_of(x, [](float v) { return is_finite(v); })) {
            ++by_kernels;
            const bool infinite = std::ranges::any_of(x, [](float v) { return std::isinf(v); });
            const float finite = rule == "te" ? 1 / (448 / 3.0F) : 0x1p-7F; // amax is 3 without the NaN
            CHECK(got.scales[0] == (!infinite ? finite : rule == "mx-te" ? 0x1p127F : 1.0F));
            continue;
        }
        tally.expect(std::bit_cast<std::uint32_t>(got.scales[0]), word(scale, 8, 0),
                     [&] { return "scale of " + line; });
        for (std::size_t i = 0; i < 4; ++i) {
            const std::uint32_t code = word(codes, 2, i), sign = (code & 0x7f) == 0x7f ? 0x80 : 0; // a NaN has none
            tally.expect(got.codes[i] & ~sign, code & ~sign, [&] { return "code of " + line; });
        }
    }
    report("special numbers against TransformerEngine, DeepGEMM and DeepSeek-V3", tally);
    CHECK(tally.cases == 340);
    CHECK(by_kernels == 9);
}
