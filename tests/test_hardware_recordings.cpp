// What matrix hardware gave: tests/data/hardware, written by amp-crosscheck run --record. The rows of the table of
// accumulators give the same bits, and the recordings can tell them from rows that are nearly the same.
#include "tool.h"

#include <ampscope/formats/dot.h>
#include <ampscope/sim/io/tensor_file.h>

#include <doctest/doctest.h>

#include <map>
#include <sstream>

using namespace amp;
using namespace amp::test;

namespace {

const fs::path folder = AMPSCOPE_TEST_DATA "/hardware";

/// A recording: "hopper-fp16.fp16.fp16.safetensors" has its row and the formats of its operands in its name.
struct Recording {
    fs::path file;
    std::string row, a, b;
    std::vector<float> x, y, c, d; ///< x and y: cases x k

    explicit Recording(const fs::path& path) : file(path) {
        std::istringstream in(path.filename().string());
        for (std::string* word : {&row, &a, &b}) std::getline(in, *word, '.');
    }
    void read() {
        const auto open = open_tensor_file(file);
        for (std::size_t i = 0; i < open->tensors().size(); ++i) {
            const TensorEntry& t = open->tensors()[i];
            std::vector<float>& to = t.name == "a" ? x : t.name == "b" ? y : t.name == "c" ? c : d;
            to.resize(t.count);
            const auto bytes = std::as_writable_bytes(std::span(to));
            REQUIRE(open->stream(i)->read(bytes) == bytes.size());
        }
    }
    [[nodiscard]] int mismatches(const Accumulator& acc) const {
        const std::size_t k = x.size() / c.size();
        int count = 0;
        for (std::size_t i = 0; i < c.size(); ++i)
            count += std::bit_cast<std::uint32_t>(dot(acc, format(a), format(b), std::span(x).subspan(i * k, k),
                                                      std::span(y).subspan(i * k, k), c[i])) !=
                     std::bit_cast<std::uint32_t>(d[i]);
        return count;
    }
};

std::vector<Recording> recordings() {
    std::vector<Recording> all;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.path().extension() == ".safetensors") all.emplace_back(entry.path());
    REQUIRE(all.size() == 24); // every instruction of Hopper
    return all;
}

Outcome vectors(const Recording& r, const fs::path& file) {
    return run_command(fmt::format("{} vectors {} {} --a {} --b {}", AMP_CROSSCHECK, r.row, file.string(), r.a, r.b));
}

} // namespace

TEST_CASE("recordings of hardware, and altered ones") {
    for (const Recording& r : recordings()) {
        const Outcome same = vectors(r, r.file);
        CHECK_MESSAGE(same.code == 0, same.out, same.err);
        const Scratch scratch;
        std::string bytes = read_file(r.file);
        bytes[bytes.size() - 2] ^= 1; // of the last sum
        const fs::path altered = scratch / "altered.safetensors";
        write_file(altered, bytes);
        const Outcome other = vectors(r, altered);
        CHECK_MESSAGE(other.code == 3, r.file.string(), other.out);
    }
}

TEST_CASE("recordings of hardware refute all rows that are nearly the same") {
    std::map<std::string, int> refuted; // by row and difference, over all formats of operands
    for (Recording& r : recordings()) {
        r.read();
        const Accumulator acc = accumulator(r.row);
        CHECK(r.mismatches(acc) == 0);
        const auto differs = [&](const char* how, const auto& change) {
            Accumulator other = acc;
            change(other);
            refuted[r.row + ", " + how] += r.mismatches(other);
        };
        differs("half the products", [](Accumulator& o) { o.products /= 2; });
        differs("twice the products", [](Accumulator& o) { o.products *= 2; });
        differs("the other rounding", [](Accumulator& o) {
            o.rounding = o.rounding == Rounding::nearest_even ? Rounding::toward_zero : Rounding::nearest_even;
        });
        if (acc.sum.exponent_bits == 5 && acc.fraction_bits == 25) continue; // decided by the run, with more sums
        differs("a bit less", [](Accumulator& o) { --o.fraction_bits; });
        differs("a bit more", [](Accumulator& o) { ++o.fraction_bits; });
    }
    for (const auto& [what, count] : refuted) CHECK_MESSAGE(count > 0, what);
}
