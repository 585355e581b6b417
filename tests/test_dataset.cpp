// The datasets: the embedded digits, made-up data, texts and .npz files, good and bad.
#include "io_files.h"

#include <ampscope/sim/train/data/dataset.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

using namespace amp;
using namespace amp::test;

namespace {

std::string npy_of(const std::string& shape, const std::vector<float>& values) {
    const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n";
    std::string bytes = std::string("\x93NUMPY\x01\x00", 8) + little_endian(header.size(), 2) + header;
    return bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

fs::path npz_of(const fs::path& path, const std::vector<std::pair<std::string, std::string>>& members) {
    zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    REQUIRE(archive != nullptr);
    for (const auto& [name, bytes] : members)
        REQUIRE(zip_file_add(archive, name.c_str(), zip_source_buffer(archive, bytes.data(), bytes.size(), 0), 0) >= 0);
    REQUIRE(zip_close(archive) == 0);
    return path;
}

/// Fails with a message that names the file and contains these.
template <class Read>
void check_error(const Read& read, std::initializer_list<std::string_view> parts) {
    std::string what;
    try {
        read();
    } catch (const FileError& error) {
        what = error.what();
    }
    CAPTURE(what);
    for (const std::string_view part : parts) CHECK(what.find(part) != std::string::npos);
}

} // namespace

TEST_CASE("digits are scikit-learn's") {
    const Dataset d = digits_data();
    CHECK(d.training + d.validation == 1797);
    CHECK(d.validation == 359);
    // Sums over all images of scikit-learn 1.9.1's load_digits(): 561,718 for pixels, 8,070 for labels.
    double pixels = 0, labels = 0;
    std::vector<float> image(64);
    for (std::int64_t i = 0; i < 1797; ++i) {
        float label = 0;
        d.read(i, image.data(), &label);
        pixels += 16 * std::accumulate(image.begin(), image.end(), 0.0);
        labels += label;
    }
    CHECK(pixels == 561718);
    CHECK(labels == 8070);
}

TEST_CASE("modular addition: every pair once, the answer where it is asked for") {
    const Dataset d = modular_data(7);
    CHECK(d.training + d.validation == 49);
    std::set<std::pair<float, float>> pairs;
    for (std::int64_t i = 0; i < 49; ++i) {
        float input[4], target[4];
        d.read(i, input, target);
        CHECK(input[1] == 7);
        CHECK(input[3] == 8);
        CHECK(target[3] == static_cast<float>(static_cast<int>(input[0] + input[2]) % 7));
        CHECK(target[0] < 0);
        pairs.insert({input[0], input[2]});
    }
    CHECK(pairs.size() == 49);
}

TEST_CASE("a text: the next character, and validation that training never sees") {
    const Scratch scratch;
    std::string text;
    for (int i = 0; i < 1000; ++i) text += static_cast<char>('a' + i * i % 26);
    const Dataset d = text_data(write_file(scratch / "t.txt", text), 8);
    CHECK(d.vocabulary == static_cast<std::int64_t>(std::set<char>(text.begin(), text.end()).size()));
    std::vector<float> input(8), target(8);
    for (const std::int64_t i : {std::int64_t{0}, d.training - 1, d.training, d.training + d.validation - 1}) {
        d.read(i, input.data(), target.data());
        CHECK(std::equal(input.begin() + 1, input.end(), target.begin()));
        CHECK(*std::ranges::max_element(target) < static_cast<float>(d.vocabulary));
    }
    CHECK(d.fingerprint != text_data(write_file(scratch / "t.txt", text + "a"), 8).fingerprint);
    check_error([&] { text_data(scratch / "none.txt", 8); }, {"none.txt", "cannot be read"});
    check_error([&] { text_data(write_file(scratch / "short.txt", "abc"), 8); }, {"short.txt", "3 bytes", "180"});
}

TEST_CASE("arrays x and y") {
    const Scratch scratch;
    std::vector<float> x(20), labels(10), numbers(10);
    std::iota(x.begin(), x.end(), 0.0F);
    for (std::size_t i = 0; i < 10; ++i) {
        labels[i] = static_cast<float>(i % 3);
        numbers[i] = 0.5F * static_cast<float>(i);
    }
    const std::string good_x = npy_of("(10, 2)", x);
    const Dataset classes =
        npz_data(npz_of(scratch / "a.npz", {{"x.npy", good_x}, {"y.npy", npy_of("(10,)", labels)}}));
    CHECK(classes.input == Shape{2});
    CHECK(classes.classes == 3);
    CHECK(classes.training == 8);
    const Dataset values =
        npz_data(npz_of(scratch / "b.npz", {{"x.npy", good_x}, {"y.npy", npy_of("(10,)", numbers)}}));
    CHECK(values.classes == 0);
    CHECK(values.target == Shape{1});
    for (std::int64_t i = 0; i < 10; ++i) {
        float input[2], target = 0;
        values.read(i, input, &target);
        CHECK(input[1] == input[0] + 1);
        CHECK(target == 0.25F * input[0]); // y of the same example, wherever the split put it
    }

    const auto bad = [&](const std::vector<std::pair<std::string, std::string>>& members) {
        npz_data(npz_of(scratch / "bad.npz", members));
    };
    const std::string y = npy_of("(10,)", labels);
    check_error([&] { bad({{"x.npy", good_x}}); }, {"bad.npz", "y"});
    check_error([&] { bad({{"z.npy", good_x}, {"y.npy", y}}); }, {"bad.npz", "x"});
    check_error([&] { bad({{"x.npy", npy_of("(20,)", x)}, {"y.npy", y}}); }, {"bad.npz", "same number of examples"});
    check_error(
        [&] {
            bad({{"x.npy", npy_of("(10, 0)", {})}, {"y.npy", y}});
        },
        {"bad.npz", "x has shape (10, 0), y (10,)", "without numbers"});
    check_error([&] { bad({{"x.npy", good_x}, {"y.npy", npy_of("(10, 0)", {})}}); }, {"(10, 0)", "without numbers"});
    check_error([&] { bad({{"x.npy", npy_of("(10, 3, 0, 2)", {})}, {"y.npy", y}}); }, {"without numbers"});
    check_error(
        [&] {
            bad({{"x.npy", npy_of("()", {1})}, {"y.npy", y}});
        },
        {"x has shape ()", "along their first axes"});
    check_error([&] { bad({{"x.npy", good_x}, {"y.npy", npy_of("()", {1})}}); }, {"y ()", "along their first axes"});
    check_error([&] { bad({{"x.npy", npy_of("(0, 2)", {})}, {"y.npy", npy_of("(0,)", {})}}); }, {"five or more"});
    check_error([&] { bad({{"x.npy", npy_of("(1, 2)", {1, 2})}, {"y.npy", npy_of("(1,)", {0})}}); }, {"five or more"});
    // Targets that are negative, fractional or huge are real numbers, not classes.
    for (const float odd : {-1.0F, 0.5F, 65536.0F, 3e38F}) {
        labels[3] = odd;
        const auto file = npz_of(scratch / "odd.npz", {{"x.npy", good_x}, {"y.npy", npy_of("(10,)", labels)}});
        CHECK(npz_data(file).classes == 0);
    }
    x[7] = std::nanf("");
    check_error(
        [&] {
            bad({{"x.npy", npy_of("(10, 2)", x)}, {"y.npy", y}});
        },
        {"bad.npz", "x", "element 7", "not finite"});
    check_error([&] { npz_data(write_file(scratch / "cut.npz", "PK\x03\x04")); }, {"cut.npz"});
}

TEST_CASE("every epoch has its own order of all examples") {
    Shuffle shuffle(1, 100), again(1, 100);
    std::vector<std::int64_t> first, second;
    for (std::int64_t i = 0; i < 100; ++i) first.push_back(shuffle[i]);
    for (std::int64_t i = 100; i < 200; ++i) second.push_back(shuffle[i]);
    CHECK(std::set(first.begin(), first.end()).size() == 100);
    CHECK(std::set(second.begin(), second.end()).size() == 100);
    CHECK(first != second);
    CHECK(again[150] == second[50]); // from any position, as a resumed run needs
}
