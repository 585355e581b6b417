// A user's program: one use of each library, written as in the README.
#include <ampscope/formats/batch.h>
#include <ampscope/formats/codec.h>
#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/io/dtype.h>

#include <array>

int main() {
    constexpr amp::FormatSpec e4m3 = amp::format("e4m3");
    std::array<float, 3> x{0.1f, 464.0f, -1e-9f};
    amp::quantize(e4m3, x, x);
    amp::MagnitudeHistogram histogram;
    histogram.add(amp::unpack(1e-9f));
    const bool right =
        x[1] == 448.0f && histogram.classify(e4m3, 0).underflow == 1 && amp::parse_dtype("BF16") == amp::DType::bf16;
    return right ? 0 : 1;
}
