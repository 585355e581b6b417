// Records operations of IEEE P3109 as awf/p3109-cpp computes them (MIT licence, header only, in MPFR):
//
//     git clone https://github.com/awf/p3109-cpp && git -C p3109-cpp checkout 9042910
//     g++ -std=c++20 -O1 -I p3109-cpp tests/data/p3109/p3109_cpp.cpp -lmpfr -lgmp -o record
//     ./record > tests/data/p3109/p3109_cpp.txt            # needs libmpfr-dev and libboost-dev; minutes
//
// A line has a format, an operation, a rounding, a saturation, the number of cases (all operands in order) and an
// FNV-1a hash of their results, word by word. Operations of one operand are recorded in formats of eight and seven
// bits, of two in six and five, of three in four; with SatFinite without infinite operands, which this library returns
// as they are. Its SatNone is called OvfInf, as in an earlier report. tests/test_p3109_by_name.cpp computes the same.
#include <cstdint>
#include <cstdio>

#include <p3109.h>

namespace {

using namespace p3109;

template <unsigned K, unsigned P, Signedness sign>
using Extended = binary<K, P, sign, Domain::Extended>;

template <class Projection>
struct Hash {
    std::uint64_t cases = 0, value = 0xcbf29ce484222325;

    template <class Operation, class... F>
    void add(const Operation& operation, F... operands) {
        if (saturates_finitely(Projection{}) && (operands.isinf() || ...)) return;
        value = (value ^ operation(operands...).codepoint) * 0x100000001b3;
        ++cases;
    }
    template <class Round>
    static bool saturates_finitely(ProjectionSpec<Round, SatFinite>) { return true; }
    template <class Round, class Saturate>
    static bool saturates_finitely(ProjectionSpec<Round, Saturate>) { return false; }
    void print(const std::string& format, const char* operation, const char* projection) const {
        std::printf("%s %s %s %llu %016llx\n", format.c_str(), operation, projection,
                    static_cast<unsigned long long>(cases), static_cast<unsigned long long>(value));
    }
};

template <class F, class Projection>
void record_one(const char* projection) {
    const auto all = [&](const char* name, const auto& operation) {
        Hash<Projection> hash;
        for (std::uint64_t x = 0; x < pow2_u64(F::bitwidth); ++x) hash.add(operation, F{x});
        hash.print(F::name(), name, projection);
    };
#define ONE(op) all(#op, [](F x) { return op<F>(x, Projection{}); });
    ONE(Abs) ONE(Negate) ONE(Recip) ONE(Sqrt) ONE(RSqrt) ONE(Exp) ONE(Exp2) ONE(ExpMinusOne) ONE(Log) ONE(Log2)
    ONE(LogOnePlus) ONE(Softplus) ONE(Sin) ONE(Cos) ONE(Tan) ONE(ArcSin) ONE(ArcCos) ONE(ArcTan) ONE(SinPi)
    ONE(CosPi) ONE(TanPi) ONE(ArcSinPi) ONE(ArcCosPi) ONE(ArcTanPi) ONE(Sinh) ONE(Cosh) ONE(Tanh) ONE(ArcSinh)
    ONE(ArcCosh) ONE(ArcTanh)
#undef ONE
}

template <class F, class Projection>
void record_two(const char* projection) {
    const auto all = [&](const char* name, const auto& operation) {
        Hash<Projection> hash;
        for (std::uint64_t x = 0; x < pow2_u64(F::bitwidth); ++x)
            for (std::uint64_t y = 0; y < pow2_u64(F::bitwidth); ++y) hash.add(operation, F{x}, F{y});
        hash.print(F::name(), name, projection);
    };
#define TWO(op) all(#op, [](F x, F y) { return op<F>(x, y, Projection{}); });
    TWO(CopySign) TWO(Add) TWO(Subtract) TWO(Multiply) TWO(Divide) TWO(Hypot) TWO(ArcTan2) TWO(ArcTan2Pi) TWO(Minimum)
    TWO(Maximum) TWO(MinimumNumber) TWO(MaximumNumber) TWO(MinimumFinite) TWO(MaximumFinite) TWO(MinimumMagnitude)
    TWO(MaximumMagnitude) TWO(MinimumMagnitudeNumber) TWO(MaximumMagnitudeNumber)
#undef TWO
}

template <class F, class Projection>
void record_three(const char* projection) {
    const auto all = [&](const char* name, const auto& operation) {
        Hash<Projection> hash;
        for (std::uint64_t i = 0; i < pow2_u64(3 * F::bitwidth); ++i) {
            const std::uint64_t mask = pow2_u64(F::bitwidth) - 1;
            hash.add(operation, F{i >> 2 * F::bitwidth}, F{i >> F::bitwidth & mask}, F{i & mask});
        }
        hash.print(F::name(), name, projection);
    };
#define THREE(op) all(#op, [](F x, F y, F z) { return op<F>(x, y, z, Projection{}); });
    THREE(FMA) THREE(FAA) THREE(Clamp)
#undef THREE
}

template <class Round, class Saturate>
void record(const char* projection) {
    using Projection = ProjectionSpec<Round, Saturate>;
    record_one<Extended<8, 4, Signedness::Signed>, Projection>(projection);
    record_one<Extended<7, 3, Signedness::Unsigned>, Projection>(projection);
    record_two<Extended<6, 3, Signedness::Signed>, Projection>(projection);
    record_two<Extended<5, 2, Signedness::Unsigned>, Projection>(projection);
    record_three<Extended<4, 2, Signedness::Signed>, Projection>(projection);
}

} // namespace

int main() {
    ensure_mpfr_precision();
    std::printf("# awf/p3109-cpp 9042910\n");
    record<NearestTiesToEven, SatFinite>("nearest_even sat_finite");
    record<NearestTiesToAway, SatPropagate>("nearest_away sat_propagate");
    record<TowardZero, OvfInf>("toward_zero sat_none");
    record<TowardNegative, SatFinite>("down sat_finite");
    record<TowardPositive, SatPropagate>("up sat_propagate");
    record<ToOdd, OvfInf>("to_odd sat_none");
    record<NearestTiesToEven, OvfInf>("nearest_even sat_none");
}
