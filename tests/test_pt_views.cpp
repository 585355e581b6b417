// Views in .pt files: every byte of a shared storage is read at most once, whatever the view, compressed or not; and an
// expanded view is counted by its distinct elements.
#include "io_golden.h"

#include <ampscope/sim/analysis/cast_count.h>
#include <ampscope/sim/analysis/cast_error.h>
#include <ampscope/sim/analysis/measure.h>

#include <doctest/doctest.h>
#include <zip.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

using namespace amp;
using namespace amp::test;

namespace {

using Extents = std::vector<std::int64_t>;

std::string text(std::string_view s) { return "X" + little_endian(s.size(), 4) + std::string(s); }
std::string number(std::int64_t n) { return "\x8a\x08" + little_endian(static_cast<std::uint64_t>(n), 8); }
std::string tuple(const Extents& items) {
    std::string pickle = "(";
    for (const std::int64_t item : items) pickle += number(item);
    return pickle + "t";
}

struct View {
    std::int64_t offset;
    Extents shape, stride;
};

/// An archive as torch.save writes it, with views "0", "1" ... of one storage of floats.
fs::path pt_of(const fs::path& path, const std::vector<View>& views, const std::vector<float>& storage,
               bool deflated = false, const std::string& type = "FloatStorage") {
    std::string pickle = "\x80\x02}(";
    const std::size_t item = type == "HalfStorage" ? 2 : 4, size = storage.size() * 4;
    for (std::size_t i = 0; i < views.size(); ++i)
        pickle += text(std::to_string(i)) + "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" +
                  type + "\n" + text("0") + text("cpu") + number(static_cast<std::int64_t>(size / item)) + "tQ" +
                  number(views[i].offset) + tuple(views[i].shape) + tuple(views[i].stride) + "\x89}tR";
    pickle += "u.";
    zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    REQUIRE(archive != nullptr);
    REQUIRE(zip_file_add(archive, "t/data.pkl", zip_source_buffer(archive, pickle.data(), pickle.size(), 0), 0) == 0);
    REQUIRE(zip_file_add(archive, "t/data/0", zip_source_buffer(archive, storage.data(), size, 0), 0) == 1);
    for (zip_uint64_t i = 0; i < 2; ++i)
        REQUIRE(zip_set_file_compression(archive, i, deflated ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 1) == 0);
    REQUIRE(zip_close(archive) == 0);
    return path;
}

/// The elements of a view in C order, one by one.
std::vector<float> elements_of(const View& v, const std::vector<float>& storage) {
    std::vector<float> elements;
    const std::int64_t count = std::accumulate(v.shape.begin(), v.shape.end(), std::int64_t{1}, std::multiplies<>());
    for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t at = v.offset, rest = i;
        for (std::size_t d = v.shape.size(); d-- > 0; rest /= v.shape[d]) at += rest % v.shape[d] * v.stride[d];
        elements.push_back(storage[static_cast<std::size_t>(at)]);
    }
    return elements;
}

std::string bytes_of(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::vector<float> numbers(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = std::ldexp(static_cast<float>(i * 2654435761U % 65536), -20);
    return values;
}

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

} // namespace

TEST_CASE("any view gives its elements in C order, from stored and from compressed storages") {
    const Scratch scratch;
    const std::vector<float> storage = numbers(300'000); // more than the part that is kept in memory
    const std::vector<View> views = {
        {0, {300'000}, {1}},            // all
        {299'999, {1}, {1}},            // the last
        {5, {100, 1000}, {2000, 2}},    // every second element of a row
        {7, {29}, {10'000}},            // few, far apart
        {0, {3, 4, 5}, {1, 10, 100}},   // permuted, with holes
        {0, {100, 50}, {1, 1}},         // windows that overlap
        {0, {1000, 200}, {100, 1}},     // overlapping rows
        {3, {4, 5, 6}, {0, 1, 7}},      // expanded and permuted
        {3, {5, 3, 1000}, {20, 0, 0}},  // expanded within
        {3, {2, 70'000}, {0, 3}},       // expanded around a strided view
        {299'000, {0, 5}, {1, 1}},      // empty
        {9, {}, {}},                    // a scalar
        {100, {1, 200, 1}, {0, 1, 99}}, // strides along extents of 1 are ignored
        {200'000, {50'000}, {2}},
        {100'000, {50'000}, {1}}, // lies before the one before it in the list
    };
    for (const bool deflated : {false, true}) {
        const auto file = open_tensor_file(pt_of(scratch / "a.pt", views, storage, deflated));
        REQUIRE(file->tensors().size() == views.size());
        for (std::size_t i = 0; i < views.size(); ++i) {
            CAPTURE(i);
            CAPTURE(deflated);
            const std::string expected = bytes_of(elements_of(views[i], storage));
            CHECK(tensor_bytes(*file, i) == expected);
            CHECK(tensor_bytes(*file, i, 48) == expected); // in small pieces
        }
    }
}

TEST_CASE("an expanded view counts as its elements one by one do") {
    const Scratch scratch;
    std::vector<float> storage = numbers(5000);
    storage[3] = NAN, storage[4] = -INFINITY, storage[5] = -0.0F, storage[6] = 1e-40F;
    const std::vector<View> views = {{0, {3, 100}, {0, 1}}, {0, {100, 7}, {1, 0}},     {0, {5, 20, 3}, {0, 40, 0}},
                                     {0, {11}, {0}},        {0, {2, 4, 2}, {0, 1, 9}}, {2, {50, 50}, {0, 0}}};
    for (const std::string type : {"FloatStorage", "HalfStorage"})
        for (std::size_t i = 0; i < views.size(); ++i) {
            CAPTURE(i);
            CAPTURE(type);
            const auto view = open_tensor_file(pt_of(scratch / "a.pt", views, storage, false, type));
            const DType dtype = view->tensors()[i].dtype;
            CHECK(view->tensors()[i].repeats > 1);
            const auto all =
                open_tensor_file(write_file(scratch / "all.bin", tensor_bytes(*view, i)), {.dtype = dtype});
            const MagnitudeStatistics a = measure(*view, i, 2), b = measure(*all, 0, 2);
            CHECK(a.histogram == b.histogram);
            CHECK(a.max == b.max);
            CHECK(a.min_nonzero == b.min_nonzero);
            CHECK(a.sums.absolute == b.sums.absolute); // exact here: few bits in a small range
            CHECK(a.sums.squares == doctest::Approx(b.sums.squares).epsilon(1e-14));
            CHECK(measure_divided(*view, i, 3, 1).histogram == measure_divided(*all, 0, 3, 1).histogram);
            const FineNeeds needs{.directed = Rounding::up, .ends = {1}};
            CHECK(measure_fine(*view, i, 1, needs, 1) == measure_fine(*all, 0, 1, needs, 1));
            const std::vector<Cast> casts = {
                {format("e4m3")}, {format("bf16"), {.rounding = Rounding::stochastic}}, {format("fp16"), {}, 3, 7}};
            const auto c = count_casts(*view, i, casts, 1), d = count_casts(*all, 0, casts, 1);
            const auto e = measure_errors(*view, i, casts, 1), f = measure_errors(*all, 0, casts, 1);
            for (std::size_t k = 0; k < casts.size(); ++k) {
                CHECK(c[k].underflow == d[k].underflow);
                CHECK(c[k].subnormal == d[k].subnormal);
                CHECK(c[k].normal == d[k].normal);
                CHECK(c[k].overflow == d[k].overflow);
                CHECK(e[k].compared == f[k].compared);
                CHECK(e[k].nonzero == f[k].nonzero);
                CHECK(e[k].max_relative == f[k].max_relative);
                CHECK(e[k].noise.value() == doctest::Approx(f[k].noise.value()).epsilon(1e-12));
            }
        }
}

TEST_CASE("many views of one storage take as long as the storage") {
    const Scratch scratch;
    const std::size_t parts = 400, each = 10'000; // 16 MB
    const std::vector<float> storage = numbers(parts * each);
    std::vector<View> views;
    for (std::size_t i = 0; i < parts; ++i)
        views.push_back({static_cast<std::int64_t>(i * each), {static_cast<std::int64_t>(each)}, {1}});
    const auto sum_up = [](const TensorFile& file) {
        for (std::size_t i = 0; i < file.tensors().size(); ++i)
            if (tensor_bytes(file, i, 24'000).size() != file.tensors()[i].bytes) throw std::runtime_error("cut short");
    };
    for (const bool deflated : {false, true}) {
        const auto whole = open_tensor_file(
            pt_of(scratch / "a.pt", {{0, {static_cast<std::int64_t>(storage.size())}, {1}}}, storage, deflated));
        const auto apart = open_tensor_file(pt_of(scratch / "b.pt", views, storage, deflated));
        const double once = seconds_of([&] { sum_up(*whole); }), together = seconds_of([&] { sum_up(*apart); });
        CAPTURE(deflated);
        CHECK(together < 20 * once + 0.5); // reading from the beginning each time would take 200 times as long
    }
    // From last to first, which a stored member allows.
    std::ranges::reverse(views);
    const double backward = seconds_of([&] { sum_up(*open_tensor_file(pt_of(scratch / "c.pt", views, storage))); });
    CHECK(backward < 5);
}

TEST_CASE("an expanded view of 2^40 elements is counted at once, and refused where each must be looked at") {
    const Scratch scratch;
    const std::int64_t side = std::int64_t{1} << 20;
    const std::vector<View> views(200, View{0, {side, side, 2}, {0, 0, 1}});
    const auto file = open_tensor_file(pt_of(scratch / "a.pt", views, {1, 0}));
    CHECK(seconds_of([&] {
              for (std::size_t i = 0; i < views.size(); ++i) {
                  const MagnitudeStatistics s = measure(*file, i, 1);
                  CHECK(s.histogram.count() == std::uint64_t{1} << 41);
                  CHECK(s.histogram.zero == std::uint64_t{1} << 40);
                  CHECK(s.sums.absolute == 0x1p40);
              }
          }) < 5);
    CHECK_THROWS_WITH_AS(static_cast<void>(file->stream(0)), doctest::Contains("save what it expands"), FileError);
}
