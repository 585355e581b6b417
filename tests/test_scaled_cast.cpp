// Casts with a scale for each block: every count, scale and sum of every block, against a recomputation element by
// element from the definitions (oracle_scaled_cast.h); shapes that blocks do not fill, NaN, infinities, all dtypes.
#include "io_files.h"
#include "oracle_scaled_cast.h"
#include "sweep.h"

#include <ampscope/sim/analysis/detail/scaled_summary.h>
#include <ampscope/sim/analysis/detail/scaled_sums.h>
#include <ampscope/sim/analysis/scaled_cast.h>
#include <ampscope/sim/io/write.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>

using namespace amp;
using namespace amp::test;

namespace {

const std::vector<std::vector<std::uint64_t>> shapes = {{},         {1},        {7},       {100},      {4096},
                                                        {40000},    {3, 5, 40}, {64, 96},  {130, 300}, {33, 129},
                                                        {1, 70000}, {2, 20000}, {1500, 3}, {700, 40},  {5, 0}};

/// Blocks: the recipes' in both orientations, squares, and what they do not have.
constexpr std::array<std::pair<std::int64_t, std::int64_t>, 14> block_sizes = {{{0, 0},
                                                                                {1, 32},
                                                                                {32, 1},
                                                                                {32, 32},
                                                                                {1, 16},
                                                                                {16, 1},
                                                                                {16, 16},
                                                                                {1, 128},
                                                                                {128, 1},
                                                                                {128, 128},
                                                                                {1, 0},
                                                                                {0, 1},
                                                                                {3, 5},
                                                                                {0, 8}}};

/// A tensor in a file, read as FP32.
class Stored {
  public:
    explicit Stored(const Matrix& matrix, const std::string& name = "x.safetensors") {
        TensorWriter writer =
            create_tensor_file(scratch_ / name, {{.name = "x", .dtype = DType::f32, .shape = matrix.shape}});
        writer.append(std::as_bytes(std::span(matrix.values)));
        writer.commit();
        file_ = open_tensor_file(scratch_ / name);
    }
    [[nodiscard]] const TensorFile& file() const { return *file_; }

  private:
    Scratch scratch_;
    std::unique_ptr<TensorFile> file_;
};

bool close(double got, long double want, std::uint64_t elements) {
    return std::fabs(got - want) <= want * static_cast<long double>(elements + 1) * 0x1p-53L;
}

/// The smallest and largest scale of a rule over all powers of two, and numbers between them.
std::pair<float, float> ends_of(ScaleRule rule, const FormatSpec& element, float tensor_scale) {
    float low = HUGE_VALF, high = 0;
    for (int e = -149; e < 128; ++e)
        for (const float m : {1.0F, 1.25F, 1.5F, 1.75F, 0x1.fffffep0F}) {
            const float d = block_scale(rule, element, std::ldexp(m, e), tensor_scale).decode;
            low = std::min(low, d);
            high = std::max(high, d);
        }
    return {low, high};
}

int e4m3_code(float d) {
    for (int code = 0; code < 127; ++code)
        if (std::ldexp(code < 8 ? code : 8 + code % 8, (code < 8 ? 1 : code / 8) - 10) == d) return code;
    return -1;
}

/// Compares all that is known of a tensor's blocks.
void compare(const Matrix& matrix, const ScaledCast& cast, const ScaledResult& got, Tally& tally,
             const std::string& what) {
    const OracleCast oracle{oracle::find(cast.scaling.element.name), cast.scaling.rows, cast.scaling.columns,
                            cast.scaling.rule, cast.given};
    const auto [want, tensor_scale] = oracle.blocks_of(matrix.values, matrix.columns());
    const auto expect = [&](auto a, auto b, const char* name) {
        tally.expect(a, b, [&] { return what + ": " + name; });
    };
    expect(got.blocks.size(), want.size(), "number of blocks");
    if (got.blocks.size() != want.size()) return;
    if (want.empty()) return;
    expect(std::bit_cast<std::uint32_t>(got.tensor_scale), std::bit_cast<std::uint32_t>(tensor_scale),
           "tensor's scale");
    ScaledStatistics sum;
    const auto [low, high] = ends_of(cast.scaling.rule, cast.scaling.element, tensor_scale);
    const std::uint64_t whole = static_cast<std::uint64_t>(got.height * got.width);
    std::size_t i = 0;
    long double signal = 0, noise = 0;
    for (const auto& [at, b] : want) {
        const ScaledBlock& g = got.blocks[i++];
        expect(std::pair(g.row, g.column) == at, true, "place");
        expect(g.elements, b.elements, "elements");
        expect(g.nonzero, b.nonzero, "non-zero");
        expect(g.nonfinite, b.nonfinite, "not finite");
        expect(g.underflow, b.underflow, "underflow");
        expect(g.saturated, b.saturated, "saturated");
        expect(g.lost, b.lost, "lost");
        expect(std::bit_cast<std::uint32_t>(g.amax), std::bit_cast<std::uint32_t>(b.amax), "largest");
        expect(std::bit_cast<std::uint32_t>(g.least), std::bit_cast<std::uint32_t>(b.least), "least");
        expect(g.scale == b.scale || (std::isnan(g.scale) && std::isnan(b.scale)), true, "scale");
        expect(close(g.signal, b.signal, b.elements) && close(g.noise, b.noise, b.elements), true, "sums of squares");
        signal += b.signal;
        noise += b.noise;
        sum.elements += b.elements;
        sum.nonzero += b.nonzero;
        sum.nonfinite += b.nonfinite;
        sum.underflow += b.underflow;
        sum.saturated += b.saturated;
        sum.lost += b.lost;
        sum.partial_blocks += b.elements < whole ? 1 : 0;
        sum.nonfinite_blocks += b.nonfinite > 0 ? 1 : 0;
        if (b.least > 0)
            ++sum.ranges[static_cast<int>(std::floor(std::log2(static_cast<long double>(b.amax) / b.least)))];
        if (b.nonzero + b.nonfinite == 0) {
            ++sum.zero_blocks;
            continue;
        }
        sum.saturated_scales += !cast.given && low < high && (b.scale == low || b.scale == high) ? 1 : 0;
        if (b.scale == 0) ++sum.zero_scales;
        else if (!std::isfinite(b.scale)) ++sum.nonfinite_scales;
        else ++sum.scales[cast.scaling.scale_format() == format("e4m3") ? e4m3_code(b.scale) : std::ilogb(b.scale)];
        if (b.scale > 0 && std::isfinite(b.scale)) {
            sum.least_scale = sum.least_scale == 0 ? b.scale : std::min(sum.least_scale, b.scale);
            sum.largest_scale = std::max(sum.largest_scale, b.scale);
        }
    }
    const ScaledStatistics& s = got.statistics;
    expect(s.blocks, want.size(), "blocks");
    expect(s.elements, sum.elements, "all elements");
    expect(s.nonzero, sum.nonzero, "all non-zero");
    expect(s.nonfinite, sum.nonfinite, "all not finite");
    expect(s.underflow, sum.underflow, "all underflow");
    expect(s.saturated, sum.saturated, "all saturated");
    expect(s.lost, sum.lost, "all lost");
    expect(s.zero_blocks, sum.zero_blocks, "blocks of zeros");
    expect(s.partial_blocks, sum.partial_blocks, "partial blocks");
    expect(s.nonfinite_blocks, sum.nonfinite_blocks, "blocks with NaN");
    expect(s.zero_scales, sum.zero_scales, "scales of zero");
    expect(s.nonfinite_scales, sum.nonfinite_scales, "NaN scales");
    expect(s.saturated_scales, sum.saturated_scales, "saturated scales");
    expect(s.least_scale, sum.least_scale, "least scale");
    expect(s.largest_scale, sum.largest_scale, "largest scale");
    expect(s.scales == sum.scales, true, "codes of scales");
    expect(s.ranges == sum.ranges, true, "ranges of blocks");
    expect(close(s.signal, signal, s.elements) && close(s.noise, noise, s.elements), true, "all sums of squares");
    std::vector<ScaledBlock> sorted = got.blocks;
    std::ranges::stable_sort(sorted, [](const ScaledBlock& a, const ScaledBlock& b) {
        const auto ratio = [](const ScaledBlock& x) {
            return x.lost > 0 ? HUGE_VAL : x.noise == 0 ? 0.0 : x.noise / x.signal;
        };
        return ratio(a) != ratio(b) ? ratio(a) > ratio(b) : a.noise > b.noise;
    });
    expect(got.worst.size(), std::min<std::size_t>(sorted.size(), 10), "number of the worst blocks");
    for (std::size_t k = 0; k < got.worst.size(); ++k)
        expect(got.worst[k].row == sorted[k].row && got.worst[k].column == sorted[k].column, true, "worst block");
}

bool same(const ScaledBlock& a, const ScaledBlock& b) {
    const auto counts = [](const ScaledBlock& x) {
        return std::array{x.elements,
                          x.nonzero,
                          x.nonfinite,
                          x.underflow,
                          x.saturated,
                          x.lost,
                          static_cast<std::uint64_t>(x.row),
                          static_cast<std::uint64_t>(x.column)};
    };
    return counts(a) == counts(b) && std::bit_cast<std::uint32_t>(a.scale) == std::bit_cast<std::uint32_t>(b.scale) &&
           a.amax == b.amax && a.least == b.least && a.signal == b.signal && a.noise == b.noise;
}

} // namespace

TEST_CASE("every block of every rule, by definition") {
    Tally tally;
    std::size_t number = 0;
    for (const auto& shape : shapes)
        for (const auto& [rows, columns] : block_sizes)
            for (const bool nonfinite : {false, true}) {
                const Matrix matrix = matrix_of(shape, static_cast<std::uint32_t>(++number), nonfinite);
                const Stored stored(matrix);
                const std::size_t step = under_sanitizers ? 13 : matrix.values.size() > 10000 ? 5 : 1; // now and then
                for (std::size_t r = number % step; r < scale_rule_names.size(); r += step) {
                    const auto rule = static_cast<ScaleRule>(r);
                    if (rule == ScaleRule::ms_eden || rule == ScaleRule::affine) continue; // below; test_affine
                    const char* element = std::array{"e4m3", "e5m2", "e2m1", "e2m3", "e3m2"}[(number + r) % 5];
                    const ScaledCast cast{.scaling = {format(element), rows, columns, rule}};
                    const ScaledResult got = measure_scaled(stored.file(), 0, cast, {.blocks = true, .threads = 2});
                    compare(matrix, cast, got, tally,
                            fmt::format("{} in blocks of {} x {}, {}, {} elements", name_of(rule), rows, columns,
                                        element, matrix.values.size()));
                }
            }
    report("casts with scales, block by block", tally);
}

TEST_CASE("a scale that is given, as delayed scaling gives it") {
    Tally tally;
    const Matrix matrix = matrix_of({300, 217}, 5, true);
    const Stored stored(matrix);
    for (const float scale : {1.0F, 0x1p20F, 3e10F, 1e-12F, HUGE_VALF}) {
        const ScaledCast cast{.scaling = {format("e5m2")}, .given = BlockScale{.encode = scale, .decode = 1 / scale}};
        compare(matrix, cast, measure_scaled(stored.file(), 0, cast, {.blocks = true}), tally,
                fmt::format("{}", scale));
        float amax = 0;
        for (const float x : matrix.values)
            if (!std::isnan(x)) amax = std::max(amax, std::fabs(x));
        CHECK(scaled_amax(stored.file(), 0, cast, 2) == amax);
    }
    report("casts with a given scale", tally);
}

TEST_CASE("results do not depend on threads") {
    for (const auto& [rows, columns] : block_sizes) {
        const Stored stored(matrix_of({1200, 130}, 3, true));
        const ScaledCast cast{.scaling = {format("e2m1"), rows, columns, ScaleRule::nvfp4},
                              .rounding = Rounding::stochastic};
        const ScaledResult one = measure_scaled(stored.file(), 0, cast, {.blocks = true, .threads = 1});
        for (const int threads : {2, 3, 8}) {
            const ScaledResult more = measure_scaled(stored.file(), 0, cast, {.blocks = true, .threads = threads});
            CHECK(std::ranges::equal(one.blocks, more.blocks, same));
            CHECK(std::ranges::equal(one.worst, more.worst, same));
            CHECK(one.statistics.signal == more.statistics.signal);
            CHECK(one.statistics.noise == more.statistics.noise);
            CHECK(one.statistics.scales == more.statistics.scales);
            CHECK(one.statistics.ranges == more.statistics.ranges);
        }
    }
}

TEST_CASE("scales of many blocks come from a table, and are the rule's") {
    for (const ScaleRule rule : {ScaleRule::mx_floor, ScaleRule::mx_even, ScaleRule::mx_ceil, ScaleRule::mx_rceil,
                                 ScaleRule::mx_te, ScaleRule::nvfp4}) {
        const ScaledCast cast{.scaling = {format("e2m1"), 1, 16, rule}};
        const detail::Scales scales(cast, 3.7e5F, 1 << 20);
        std::uint64_t differing = 0;
        for (std::uint32_t bits = 0; bits <= 0x7f800000; bits += 40009) { // a prime
            const BlockScale want = block_scale(rule, format("e2m1"), std::bit_cast<float>(bits), 3.7e5F),
                             got = scales.of(std::bit_cast<float>(bits));
            differing += want.encode != got.encode || want.decode != got.decode;
        }
        CHECK(differing == 0);
    }
}

TEST_CASE("fast sums are those of the definition, on every instruction set") {
    Matrix matrix = matrix_of({40000}, 9, true);
    const float limit = detail::largest_unsaturated(format("e4m3"));
    CHECK(limit == 464); // a tie, which goes to 448
    CHECK(detail::largest_unsaturated(format("e5m2")) == std::nextafter(61440.0F, 0.0F));
    CHECK(detail::largest_unsaturated(format("e2m1")) == std::nextafter(7.0F, 0.0F)); // the tie goes to 8
    for (const std::size_t n :
         {std::size_t{1}, std::size_t{16}, std::size_t{31}, std::size_t{32}, std::size_t{128}, std::size_t{20000}})
        for (const auto& scale :
             {BlockScale{.encode = 0x1p18F, .decode = 0x1p-18F},
              BlockScale{.encode = 1, .decode = 3e-6F, .divisor = 3e-6F}, BlockScale{.encode = 1e30F, .decode = 0}}) {
            std::vector<float> q(matrix.values.size());
            quantize_blocks({.rows = 0, .columns = 0}, matrix.values, 1, static_cast<std::int64_t>(q.size()),
                            {&scale, 1}, q);
            std::vector<detail::CastBlock> blocks(q.size() / n, {scale, scale.decode, 0});
            for (std::size_t i = 0; i < blocks.size() * n; ++i)
                if (float& amax = blocks[i / n].amax; !(std::fabs(matrix.values[i]) <= amax))
                    amax = std::fabs(matrix.values[i]);
            for (const InstructionSet set : {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512}) {
                if (set > best_instruction_set()) continue;
                std::vector<ScaledBlock> sums(blocks.size());
                detail::sum_runs(matrix.values, q, n, blocks, limit, sums, set);
                std::uint64_t differing = 0;
                for (std::size_t k = 0; k < sums.size(); ++k)
                    differing += !same(sums[k], detail::sum_numbers(std::span(matrix.values).subspan(k * n, n),
                                                                    std::span(q).subspan(k * n, n), blocks[k], limit));
                CHECK(differing == 0);
            }
        }
}

TEST_CASE("numbers of every dtype are read as FP32, without the recorded scale") {
    // Codes of all kinds: FP64 and integers are rounded to FP32, an FP64 beyond its range is infinite.
    const Scratch scratch;
    Tally tally;
    for (const DTypeInfo& type : dtypes) {
        if (type.kind == NumberKind::boolean) continue;
        const std::uint64_t columns = 48, rows = 40;
        std::string bytes;
        std::uint32_t x = 77;
        for (std::uint64_t i = 0; i < rows * columns * static_cast<std::uint64_t>(type.bits) / 8; ++i)
            bytes.push_back(static_cast<char>((x = x * 1664525 + 1013904223) >> 24));
        const auto file =
            open_tensor_file(write_file(scratch / "x.bin", bytes), {.dtype = type.dtype, .shape = {rows, columns}});
        Matrix matrix{{rows, columns * static_cast<std::uint64_t>(type.numbers())}, {}};
        const auto width = static_cast<std::size_t>(type.number_bits());
        for (std::size_t i = 0; i < bytes.size() * 8 / width; ++i) {
            std::uint64_t code = 0;
            for (std::size_t b = 0; b < width; ++b)
                code |=
                    std::uint64_t{(static_cast<unsigned char>(bytes[(i * width + b) / 8]) >> (i * width + b) % 8) & 1U}
                    << b;
            double value = 0;
            if (type.kind == NumberKind::float64) value = std::bit_cast<double>(code);
            else if (type.kind == NumberKind::signed_integer)
                value = static_cast<double>(static_cast<std::int64_t>(code << (64 - width)) >> (64 - width));
            else if (type.kind == NumberKind::unsigned_integer) value = static_cast<double>(code);
            else value = decode(format(type.format), static_cast<std::uint32_t>(code));
            matrix.values.push_back(static_cast<float>(static_cast<double>(static_cast<float>(value)) / 3));
        }
        const ScaledCast cast{.scaling = {format("e4m3"), 32, 1, ScaleRule::mx_te}, .recorded_scale = 3};
        compare(matrix, cast, measure_scaled(*file, 0, cast, {.blocks = true}), tally, std::string(type.name));
    }
    report("casts with scales of every dtype", tally);
}

TEST_CASE("a matrix in Fortran order has the blocks of its rows and columns") {
    const Scratch scratch;
    const Matrix matrix = matrix_of({60, 100}, 4, false);
    std::vector<float> stored;
    for (std::size_t j = 0; j < 100; ++j)
        for (std::size_t i = 0; i < 60; ++i) stored.push_back(matrix.values[i * 100 + j]);
    std::string header = "{'descr': '<f4', 'fortran_order': True, 'shape': (60, 100), }";
    header.resize(117, ' ');
    header += '\n';
    const auto bytes = std::as_bytes(std::span(stored));
    const auto file = open_tensor_file(
        write_file(scratch / "x.npy", "\x93NUMPY" + little_endian(1, 2) + little_endian(118, 2) + header +
                                          std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
    Tally tally;
    for (const auto& [rows, columns] : block_sizes) {
        const ScaledCast cast{.scaling = {format("e4m3"), rows, columns, ScaleRule::deepseek}};
        REQUIRE(can_scale(file->tensors()[0], cast));
        compare(matrix, cast, measure_scaled(*file, 0, cast, {.blocks = true}), tally,
                fmt::format("{} x {}", rows, columns));
    }
    report("blocks of a matrix in Fortran order", tally);
}

TEST_CASE("what blocks of torchao's scales.txt are worth is what its scales and codes say") {
    // The recorded E8M0 scales of torchao for 600 blocks of 32 (data/torchao/scales.py): their histogram.
    constexpr std::uint64_t blocks = 600, width = 32;
    std::uint32_t x = 1;
    const auto next = [&] { return x = x * 1664525 + 1013904223; };
    Matrix matrix{{blocks, width}, {}};
    for (std::uint64_t i = 0; i < blocks; ++i) {
        const std::uint32_t first = (next() >> 8) % 224 + 8;
        for (std::uint64_t j = 0; j < width; ++j) {
            const std::uint32_t w = next();
            matrix.values.push_back(std::bit_cast<float>((w & 0x807fffff) | (first + (w >> 24) % 16) << 23));
        }
    }
    const Stored stored(matrix);
    std::ifstream in(AMPSCOPE_TEST_DATA "/torchao/scales.txt");
    std::string line;
    int compared = 0;
    while (std::getline(in, line)) {
        std::istringstream words(line);
        std::string kind, mode, element, hash, recorded;
        words >> kind >> mode >> element >> hash >> recorded;
        if (kind != "mx") continue;
        std::map<int, std::uint64_t> want;
        for (std::size_t i = 0; i < blocks; ++i) ++want[std::stoi(recorded.substr(2 * i, 2), nullptr, 16) - 127];
        const ScaleRule rule = parse_name<ScaleRule>("rule", scale_rule_names, "mx-" + mode);
        const ScaledResult got = measure_scaled(stored.file(), 0, {.scaling = {format(element), 1, 32, rule}});
        CHECK(got.statistics.scales == want);
        ++compared;
    }
    CHECK(compared > 5);
}

TEST_CASE("tensors that cannot be cast in blocks") {
    const auto can = [](std::vector<std::uint64_t> shape, BlockScaling scaling, bool in_storage_order = false) {
        TensorEntry entry{.name = "x", .dtype = DType::f32, .shape = std::move(shape)};
        finish_entry(entry, "x");
        entry.storage_order = in_storage_order;
        return can_scale(entry, {.scaling = scaling});
    };
    const BlockScaling square{format("e4m3"), 128, 128}, row{format("e4m3"), 1, 32}, whole{};
    CHECK(can({1 << 20, 1 << 10}, square));
    CHECK_FALSE(can({1 << 10, 1 << 20}, square)); // 128 rows of 2^20 numbers
    CHECK_FALSE(can({2, std::uint64_t{1} << 50}, square));
    CHECK(can({2, std::uint64_t{1} << 50}, row)); // consecutive blocks, a few at a time
    CHECK(can({std::uint64_t{1} << 50}, square));
    CHECK(can({2, std::uint64_t{1} << 50}, whole));
    CHECK(can({60, 100}, row, true));
    CHECK_FALSE(can({3, 20, 100}, row, true)); // neither rows nor columns lie one behind the other
    CHECK(can({3, 20, 100}, whole, true));
}
