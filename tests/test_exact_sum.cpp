// Exact sums against rationals: the sum itself, and the double nearest to it.
#include <ampscope/sim/analysis/exact_sum.h>

#include <boost/multiprecision/cpp_int.hpp>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace amp;

namespace {

using Rational = boost::multiprecision::cpp_rational;
using Integer = boost::multiprecision::cpp_int;

Rational power(int exponent) {
    const Integer two = Integer{1} << std::abs(exponent);
    return exponent < 0 ? Rational(Integer{1}, two) : Rational(two);
}

Rational rational(double x) {
    int exponent = 0;
    const auto significand = static_cast<std::uint64_t>(std::ldexp(std::frexp(x, &exponent), 53));
    return Rational(Integer{significand}) * power(exponent - 53);
}

/// Whether no double is nearer to the number, and of two equally near ones it is the even one.
bool is_nearest(double x, const Rational& exact) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const auto distance = [&](double y) -> Rational {
        return abs((std::isinf(y) ? power(1024) : rational(y)) - exact);
    };
    const Rational here = distance(x);
    const bool even = std::bit_cast<std::uint64_t>(x) % 2 == 0;
    for (const double other : {std::nextafter(x, 0.0), std::nextafter(x, infinity)})
        if (other != x && (distance(other) < here || (distance(other) == here && !even))) return false;
    return true;
}

double random_double(std::mt19937_64& random, int from, int to) {
    const int exponent = from + static_cast<int>(random() % static_cast<std::uint64_t>(to - from));
    return std::ldexp(static_cast<double>(random() >> (11 + random() % 50)), exponent);
}

} // namespace

TEST_CASE("exact sums are those of rationals, in any order, and rounded once") {
    std::mt19937_64 random(5);
    std::uint64_t cases = 0, mismatches = 0;
    const std::pair<int, int> ranges[] = {{-30, 30}, {-1126, -1070}, {-1126, 960}, {-5, 70}, {900, 970}};
    for (const auto& [from, to] : ranges)
        for (int repeat = 0; repeat < 300; ++repeat) {
            std::vector<std::pair<double, std::uint64_t>> terms(1 + random() % 12);
            Rational exact;
            ExactSum sum, first, second;
            for (auto& [x, times] : terms) {
                x = random_double(random, from, to);
                times = random() >> random() % 64;
                exact += rational(x) * Rational(Integer{times});
                sum.add(x, times);
            }
            for (std::size_t i = terms.size(); i-- > 0;)
                (i % 2 == 0 ? first : second).add(terms[i].first, terms[i].second);
            second += first;
            const int shift = static_cast<int>(random() % 200) - 100;
            const std::uint64_t times = random();
            const ExactSum moved = sum.scaled(shift), more = sum.repeated(times);
            cases += 5;
            mismatches += is_nearest(sum.value(), exact) ? 0 : 1;
            mismatches += is_nearest(moved.value(), exact * power(shift)) ? 0 : 1;
            mismatches += is_nearest(more.value(), exact * Rational(Integer{times})) ? 0 : 1;
            mismatches += second == sum ? 0 : 1;
            const std::optional<ExactSum> read = ExactSum::read(sum.text());
            mismatches +=
                read && *read == sum &&
                        std::bit_cast<std::uint64_t>(read->value()) == std::bit_cast<std::uint64_t>(sum.value())
                    ? 0
                    : 1;
        }
    fmt::print("proof: exact sums against rationals: {} cases, {} mismatches\n", cases, mismatches);
    CHECK(mismatches == 0);
}

TEST_CASE("ties, carries, nothing and infinity") {
    ExactSum sum;
    CHECK(sum.value() == 0);
    CHECK(sum.text() == "0x0p0");
    sum.add(0x1p-1074);
    CHECK(sum.value() == 0x1p-1074);
    CHECK(sum.scaled(-1).value() == 0);                     // a tie to even
    CHECK(sum.repeated(3).scaled(-1).value() == 0x2p-1074); // 1.5 units: a tie to 2
    sum.add(0x1p52);
    sum.add(0.5);
    CHECK(sum.value() == 0x1p52 + 1); // 2^-1074 above a tie
    ExactSum carries;
    carries.add(0x1.fffffffffffffp52, 2);
    carries.add(1, 2);
    CHECK(carries.text() == "0x400000p32");
    carries.add(std::numeric_limits<double>::infinity());
    CHECK(std::isinf(carries.value()));
    CHECK(carries.text() == "inf");
    CHECK(ExactSum::read("inf")->text() == "inf");
    CHECK(std::isinf(carries.repeated(2).value()));
    for (const char* text :
         {"", "0x", "1p0", "0x1p", "0x01p0", "0x1p1", "0x1p-31", "0x1p99999999999", "0x1p-2147483648", "0x1p-32x",
          "0xgp0", "0x100000000p0", "-0x1p0", "0x+1p0", "nan", "0x0p32"})
        CHECK_MESSAGE(!ExactSum::read(text), text);
}
