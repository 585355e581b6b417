// Element-wise comparison of tensors: classes, distances in ulps, first and worst, against a plain loop.
#include "io_files.h"
#include "sweep.h"

#include <ampscope/formats/batch.h>
#include <ampscope/sim/analysis/tensor_diff.h>
#include <ampscope/sim/io/write.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

/// Writes a safetensors file with one tensor.
fs::path write_tensor(const fs::path& path, DType dtype, const void* data, std::uint64_t count) {
    TensorWriter writer = create_tensor_file(path, {{.name = "x", .dtype = dtype, .shape = {count}}});
    const auto bytes = count * static_cast<std::uint64_t>(info(dtype).bits) / 8;
    writer.append({static_cast<const std::byte*>(data), bytes});
    writer.commit();
    return path;
}

fs::path write_floats(const fs::path& path, const std::vector<float>& values) {
    return write_tensor(path, DType::f32, values.data(), values.size());
}

fs::path write_halves(const fs::path& path, const std::vector<float>& values, const char* f, DType dtype) {
    std::vector<std::uint16_t> codes(values.size());
    encode(format(f), values, std::span(codes));
    return write_tensor(path, dtype, codes.data(), codes.size());
}

TensorDiff compare(const fs::path& a, const fs::path& b, double a_scale = 1, double b_scale = 1, std::size_t keep = 5,
                   int threads = 2) {
    const auto x = open_tensor_file(a), y = open_tensor_file(b);
    return compare_tensors({*x, 0, a_scale}, {*y, 0, b_scale}, keep, threads);
}

TensorDiff compare_floats(const std::vector<float>& a, const std::vector<float>& b) {
    const Scratch scratch;
    return compare(write_floats(scratch / "a.safetensors", a), write_floats(scratch / "b.safetensors", b));
}

/// The position of a float among all floats of its sign.
std::int64_t ordinal(float x) { return std::bit_cast<std::int32_t>(std::fabs(x)); }

} // namespace

TEST_CASE("every pair has one class") {
    const float inf = HUGE_VALF, nan = NAN;
    const std::vector<float> a = {1, nan, nan, 1, inf, inf, inf, 0, -0.0F, 0, 2, 3, 1};
    const std::vector<float> b = {1, nan, 1, nan, inf, -inf, 2, 0, 0, 5, -2, 4, 0};
    const TensorDiff d = compare_floats(a, b);
    CHECK(d.of(DiffClass::equal) == 4);
    CHECK(d.of(DiffClass::nan) == 2);
    CHECK(d.of(DiffClass::inf) == 2);
    CHECK(d.of(DiffClass::zero_sign) == 1);
    CHECK(d.of(DiffClass::zero) == 2);
    CHECK(d.of(DiffClass::sign) == 1);
    CHECK(d.of(DiffClass::finite) == 1);
    CHECK(d.elements() == a.size());
    CHECK(d.differing() == a.size() - 4);
    REQUIRE(d.first);
    CHECK(d.first->index == 2);
    CHECK(d.first->b_bits == 0x3f800000);
    REQUIRE(d.worst.size() == 5);
    for (std::size_t i = 0; i < 4; ++i) CHECK(std::isinf(d.worst[i].ulps)); // NaN and infinities come first, by index
    CHECK(d.worst[0].index == 2);
    CHECK(d.worst[3].index == 6);
    CHECK(d.worst[4].index == 10); // -2 and 2: 2^24 ulps
    CHECK(d.worst[4].ulps == 0x1p24);
    CHECK(d.max_absolute == 5);
    CHECK(d.max_relative == 2);
}

TEST_CASE("within a binade a distance is the difference of the numbers' ordinals") {
    Tally tally;
    std::vector<float> a, b;
    std::uint32_t seed = 1;
    std::map<int, std::uint64_t> ulps, relative;
    double difference = 0, size = 0, worst = 0;
    for (int i = 0; i < 200'000; ++i) { // several blocks
        seed = seed * 1664525 + 1013904223;
        const std::uint32_t base = (seed >> 1) % 0x7f000000;
        const std::uint32_t distance = i % 3 == 0 ? 0 : seed % 3000;
        // in the same binade
        const std::uint32_t other = (base & 0x7f800000) | ((base + distance) & 0x7fffff);
        a.push_back(std::bit_cast<float>(base));
        b.push_back(std::bit_cast<float>(other));
        const std::int64_t between = std::abs(ordinal(a.back()) - ordinal(b.back()));
        const double x = a.back(), y = b.back();
        size += x * x;
        if (between == 0) continue;
        int k = 0;
        while ((std::int64_t{1} << k) < between) ++k;
        ++ulps[k];
        ++relative[std::ilogb(std::fabs(x - y) / std::max(x, y))];
        worst = std::max(worst, static_cast<double>(between));
        difference += (x - y) * (x - y);
    }
    const TensorDiff d = compare_floats(a, b);
    CHECK(d.ulps == ulps);
    CHECK(d.relative == relative);
    CHECK(d.max_ulps == worst);
    CHECK(d.relative_norm() == doctest::Approx(std::sqrt(difference) / std::sqrt(size)).epsilon(1e-12));
    REQUIRE(!d.worst.empty());
    CHECK(d.worst.front().ulps == worst);
    for (std::size_t i = 1; i < d.worst.size(); ++i) CHECK(d.worst[i - 1].ulps >= d.worst[i].ulps);
    const Scratch scratch;
    const fs::path x = write_floats(scratch / "a.safetensors", a), y = write_floats(scratch / "b.safetensors", b);
    const TensorDiff one = compare(x, y, 1, 1, 50, 1), three = compare(x, y, 1, 1, 50, 3);
    CHECK(one.difference_squares == three.difference_squares);
    CHECK(one.first->index == three.first->index);
    REQUIRE(one.worst.size() == three.worst.size());
    for (std::size_t i = 0; i < one.worst.size(); ++i) CHECK(one.worst[i].index == three.worst[i].index);
}

TEST_CASE("dtypes and scales may differ: the coarser one's last place counts") {
    const Scratch scratch;
    std::vector<float> values, scaled;
    for (int i = 1; i < 3000; ++i) values.push_back(std::ldexp(static_cast<float>(i), -12));
    for (const float x : values) scaled.push_back(x * 1024);
    const fs::path wide = write_floats(scratch / "wide.safetensors", values);
    const fs::path half = write_halves(scratch / "half.safetensors", scaled, "fp16", DType::f16);
    const fs::path brain = write_halves(scratch / "brain.safetensors", values, "bf16", DType::bf16);
    const TensorDiff rounded = compare(wide, half, 1, 1024);
    CHECK(rounded.max_ulps <= 0.5); // in FP16's ulps: rounding errs by at most half of one
    CHECK(rounded.max_ulps > 0);
    CHECK(rounded.of(DiffClass::equal) + rounded.of(DiffClass::finite) == values.size());
    CHECK(compare(half, wide, 1024, 1).max_ulps == rounded.max_ulps);
    const TensorDiff coarse = compare(wide, brain);
    CHECK(coarse.max_ulps == 0.5);
    CHECK(compare(half, brain, 1024, 1).max_ulps <= 0.5 + 0x1p-4);
    // Below FP16's smallest normal value, and recorded under scale 1024, an ulp is 2^-24 / 1024.
    const std::vector<float> tiny = {0x1p-24F, 0x1.8p-22F};
    std::vector<float> tinier = {0x1p-23F, 0x1p-22F};
    const TensorDiff subnormal =
        compare(write_halves(scratch / "t.safetensors", tiny, "fp16", DType::f16),
                write_halves(scratch / "u.safetensors", tinier, "fp16", DType::f16), 1024, 1024);
    CHECK(subnormal.max_ulps == 2);
    CHECK(subnormal.ulps == std::map<int, std::uint64_t>{{0, 1}, {1, 1}});
}

TEST_CASE("what cannot be paired is an error") {
    const Scratch scratch;
    const fs::path a = write_floats(scratch / "a.safetensors", {1, 2, 3});
    const fs::path b = write_floats(scratch / "b.safetensors", {1, 2});
    const float complex[4] = {1, 2, 3, 4};
    const fs::path c = write_tensor(scratch / "c.safetensors", DType::c64, complex, 2);
    CHECK_THROWS_WITH_AS(compare(a, b), doctest::Contains("2 elements, the other has 3"), FileError);
    CHECK_THROWS_WITH_AS(compare(a, write_floats(scratch / "one.safetensors", {1})),
                         doctest::Contains("x: 1 element, the other has 3"), FileError);
    CHECK_THROWS_WITH_AS(compare(b, c), doctest::Contains("complex"), FileError);
    CHECK(compare(c, c).elements() == 4);
    CHECK(compare_floats({}, {}).elements() == 0);
    CHECK(compare_floats({}, {}).relative_norm() == 0);
    CHECK(std::isinf(compare_floats({0}, {1}).relative_norm()));
}
