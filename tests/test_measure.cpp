// Counts of tensors against one-by-one counting, for every dtype, number of threads and length.
#include <ampscope/sim/analysis/measure.h>
#include <ampscope/sim/analysis/norms.h>
#include <ampscope/sim/base/parallel.h>

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <doctest/doctest.h>

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

using namespace amp;

namespace {

/// Holds the sums of these tests exactly.
using Wide = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<1200>>;

class TemporaryFile {
  public:
    explicit TemporaryFile(std::span<const std::byte> bytes)
        : path_(std::filesystem::temp_directory_path() / ("ampscope_measure_" + std::to_string(::getpid()) + ".bin")) {
        std::ofstream(path_, std::ios::binary)
            .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    ~TemporaryFile() { std::filesystem::remove(path_); }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

/// Bytes whose 32-bit words include every kind of float: normals of all exponents, subnormals, zeros, infinities, NaN.
std::vector<std::byte> mixed_bytes(std::size_t size, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i + 4 <= size; i += 4) {
        auto word = static_cast<std::uint32_t>(random());
        switch (random() % 8) {
        case 0: word &= 0x80000000; break;
        case 1: word &= 0x807fffff; break;
        case 2: word |= 0x7f800000; break;
        case 3: word &= 0xff800000; break;
        case 4: word |= 0x7ffff0 >> random() % 20; break;
        case 5: word = (word & 0xff800000) | 0x680000; break;
        default: break;
        }
        std::memcpy(bytes.data() + i, &word, 4);
    }
    return bytes;
}

std::uint64_t element_bits(std::span<const std::byte> bytes, std::size_t i, std::size_t width) {
    std::uint64_t value = 0;
    for (std::size_t b = 0; b < width; ++b) {
        const std::size_t bit = i * width + b;
        value |= (std::to_integer<std::uint64_t>(bytes[bit / 8]) >> bit % 8 & 1) << b;
    }
    return value;
}

} // namespace

TEST_CASE("every dtype, thread count and length is counted as one by one") {
    for (const DTypeInfo& type : dtypes) {
        CAPTURE(type.name);
        for (const std::size_t elements : {0ul, 1ul, 15ul, 16ul, 4096ul, 70000ul, 600001ul}) {
            const std::size_t units =
                elements * static_cast<std::size_t>(type.bits) / 8 / static_cast<std::size_t>(type.unit_bytes());
            const std::vector<std::byte> bytes = mixed_bytes(units * static_cast<std::size_t>(type.unit_bytes()),
                                                             static_cast<std::uint32_t>(elements) + 7);
            const TemporaryFile raw(bytes);
            const auto file = open_tensor_file(raw.path(), {.dtype = type.dtype});
            MagnitudeHistogram expected;
            double smallest = 0, largest = 0;
            const auto width = static_cast<std::size_t>(type.bits / type.numbers());
            for (std::size_t i = 0; i < bytes.size() * 8 / width; ++i) {
                const Unpacked x = unpack_number(type.dtype, element_bits(bytes, i, width));
                expected.add(x);
                if (x.kind != Kind::finite) continue;
                const double magnitude = std::ldexp(static_cast<double>(x.significand), x.exponent);
                smallest = smallest == 0 ? magnitude : std::min(smallest, magnitude);
                largest = std::max(largest, magnitude);
            }
            const MagnitudeStatistics one = measure(*file, 0, 1);
            CHECK(one.histogram == expected);
            CHECK(one.min_nonzero == smallest);
            CHECK(one.max == largest);
            for (const int threads : {2, 7}) {
                const MagnitudeStatistics many = measure(*file, 0, threads);
                CHECK(many.histogram == expected);
                CHECK(many.sums.absolute == one.sums.absolute);
                CHECK(many.sums.squares == one.sums.squares);
            }
        }
    }
}

/// The sums for types of more than 16 bits: in 16 lanes for a block, and those of the blocks exactly.
MagnitudeSums sums_of_blocks(const std::vector<float>& values) {
    Wide absolute = 0, of_squares = 0;
    for (std::size_t block = 0; block < values.size(); block += sum_block) {
        double part[16]{}, squares[16]{};
        for (std::size_t i = block; i < std::min(values.size(), block + sum_block); ++i) {
            const double x = std::fabs(static_cast<double>(values[i]));
            part[i % 16] += x;
            squares[i % 16] += x * x;
        }
        for (std::size_t half = 8; half > 0; half /= 2)
            for (std::size_t j = 0; j < half; ++j) part[j] += part[j + half], squares[j] += squares[j + half];
        absolute += part[0];
        of_squares += squares[0];
    }
    return {absolute.convert_to<double>(), of_squares.convert_to<double>()};
}

TEST_CASE("sums follow their definition, by kernel or one by one") {
    std::mt19937 random(3);
    for (const std::size_t n : {17ul, 1000ul, 1024ul, 66000ul, 100001ul}) {
        CAPTURE(n);
        std::vector<float> values(n);
        for (float& x : values) x = std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 80) - 60);
        const MagnitudeSums want = sums_of_blocks(values);
        const auto check = [&](std::span<const std::byte> bytes, DType dtype) {
            const TemporaryFile raw(bytes);
            const MagnitudeSums sums = measure(*open_tensor_file(raw.path(), {.dtype = dtype}), 0, 2).sums;
            CHECK(sums.absolute == want.absolute);
            CHECK(sums.squares == want.squares);
        };
        const std::vector<double> wide(values.begin(), values.end());
        check(std::as_bytes(std::span(values)), DType::f32);
        check(std::as_bytes(std::span(wide)), DType::f64);
    }
}

TEST_CASE("numbers of few bits are summed exactly, few or many of them, in any pieces") {
    std::mt19937 random(4);
    for (const std::size_t n : {5ul, 4096ul, 4097ul, 70000ul}) {
        CAPTURE(n);
        std::vector<std::uint16_t> codes(n);
        for (std::uint16_t& code : codes) code = static_cast<std::uint16_t>(0x1001 + random() % 64 * 0x183);
        Wide absolute = 0, squares = 0;
        for (const std::uint16_t code : codes) {
            const Wide x = decode(format("bf16"), code);
            absolute += x;
            squares += x * x;
        }
        const MagnitudeSums want{absolute.convert_to<double>(), squares.convert_to<double>()};
        const std::span<const std::byte> bytes = std::as_bytes(std::span(codes));
        MagnitudeCounter counter(DType::bf16), rest(DType::bf16);
        for (std::size_t at = 0, size = 6; at < bytes.size(); at += size, size *= 2)
            (at > 50000 ? rest : counter).add(bytes.subspan(at, std::min(size, bytes.size() - at)));
        counter.merge(rest);
        CHECK(counter.statistics().sums.absolute == want.absolute);
        CHECK(counter.statistics().sums.squares == want.squares);
        CHECK(counter.statistics().histogram.count() == n);
    }
}

TEST_CASE("integers and doubles beyond FP32's range are counted exactly") {
    CHECK(unpack_number(DType::i64, 0x8000000000000000).significand == 0x8000000000000000);
    CHECK(unpack_number(DType::i8, 0xff).sign);
    CHECK(unpack_number(DType::boolean, 2).significand == 1);
    MagnitudeHistogram h;
    h.add(unpack_number(DType::f64, std::bit_cast<std::uint64_t>(0x1p-1074)));
    CHECK(h.rows.begin()->first == -1074);
    h.add(unpack_number(DType::u64, ~std::uint64_t{0}));
    CHECK(h.rows.rbegin()->first == 63);
    CHECK(h.rows.rbegin()->second[27] == 1);
}

TEST_CASE("norms are sums in FP64 of 32 lanes, begun anew with each tensor, and see every NaN and infinity") {
    for (const std::size_t length : std::initializer_list<std::size_t>{0, 1, 31, 32, 33, 1000, 100'000}) {
        CAPTURE(length);
        const auto bytes = mixed_bytes(4 * length, static_cast<std::uint32_t>(length));
        std::vector<float> all(length);
        if (length > 0) std::memcpy(all.data(), bytes.data(), bytes.size());
        std::ranges::replace_if(
            all, [](float v) { return !std::isfinite(v); }, 0.F);
        for (const bool finite : {true, false}) {
            std::vector<float> x = all;
            if (!finite && length > 2) x[length / 2] = x[length / 3] = -std::numeric_limits<float>::infinity();
            double squares[32] = {}, sum = 0;
            float largest = 0;
            for (std::size_t tensor = 0; tensor < 2; ++tensor)
                for (std::size_t i = 0; i < length; ++i) {
                    squares[i % 32] += static_cast<double>(x[i]) * x[i];
                    largest = std::max(largest, std::fabs(x[i]));
                }
            for (const double s : squares) sum += s;
            Norms norms;
            norms.add(x);
            norms.add(x);
            CHECK(norms.two() == std::sqrt(sum));
            CHECK(norms.largest() == largest);
            if (length == 0) continue;
            x[length - 1] = std::numeric_limits<float>::quiet_NaN();
            norms.add(x);
            CHECK(std::isnan(norms.two()));
            CHECK(std::isnan(norms.largest()));
        }
    }
}
