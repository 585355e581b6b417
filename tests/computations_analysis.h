// Computations of sim/analysis on tensors in files: with no, one and many elements, more than the pieces that threads
// take.
#pragma once

#include "computations.h"
#include "io_files.h"

#include <ampscope/sim/analysis/block_scales.h>
#include <ampscope/sim/analysis/cast_error.h>
#include <ampscope/sim/analysis/scaled_cast.h>
#include <ampscope/sim/analysis/tensor_diff.h>
#include <ampscope/sim/io/write.h>

#include <array>

namespace amp {

inline void add_bits(test::Bits& bits, const MagnitudeHistogram& h) { bits << h.zero << h.nan << h.inf << h.rows; }
inline void add_bits(test::Bits& bits, const MagnitudeStatistics& s) {
    bits << s.histogram << s.min_nonzero << s.max << s.sums.absolute << s.sums.squares;
}
inline void add_bits(test::Bits& bits, const CastCounts& c) {
    bits << c.underflow << c.subnormal << c.normal << c.overflow;
}
inline void add_bits(test::Bits& bits, const SquareSum& sum) { bits << sum.parts(); }
inline void add_bits(test::Bits& bits, const CastError& e) {
    bits << e.compared << e.excluded << e.signal << e.noise << e.max_relative << e.sum_relative << e.nonzero
         << e.sqnr();
}
inline void add_bits(test::Bits& bits, const ClassCounts& c) {
    bits << c.underflow << c.subnormal << c.normal << c.overflow;
}
inline void add_bits(test::Bits& bits, const BlockCounts& c) { bits << c.mx << c.amax << c.tensor; }
inline void add_bits(test::Bits& bits, const BlockStatistics& s) {
    bits << s.blocks << s.zero_blocks << s.amax_exponents << s.formats;
}
inline void add_bits(test::Bits& bits, const ScaledBlock& b) {
    bits << b.row << b.column << b.scale << b.amax << b.least << b.elements << b.nonzero << b.nonfinite << b.underflow
         << b.saturated << b.lost << b.signal << b.noise;
}
inline void add_bits(test::Bits& bits, const ScaledResult& r) {
    const ScaledStatistics& s = r.statistics;
    bits << s.underflow << s.saturated << s.lost << s.signal << s.noise << s.zero_scales << s.saturated_scales
         << s.least_scale << s.largest_scale << s.scales << s.ranges << s.sqnr() << r.blocks;
}
inline void add_bits(test::Bits& bits, const DifferingElement& e) {
    bits << e.index << e.a_bits << e.b_bits << e.a << e.b << e.ulps;
}
inline void add_bits(test::Bits& bits, const TensorDiff& d) {
    bits << d.counts << d.ulps << d.relative << d.max_ulps << d.max_relative << d.max_absolute << d.difference_squares
         << d.a_squares << d.b_squares << d.first << d.worst << d.relative_norm();
}
} // namespace amp

namespace amp::test {

/// The tensors "none", "one" and "many" of a safetensors file.
class Tensors {
  public:
    explicit Tensors(const char* name = "a.safetensors", std::uint_fast32_t seed = 1) {
        TensorWriter writer =
            create_tensor_file(scratch_ / name, {{.name = "none", .dtype = DType::f32, .shape = {0}},
                                                 {.name = "one", .dtype = DType::f32, .shape = {1}},
                                                 {.name = "many", .dtype = DType::f32, .shape = {size}}});
        std::vector<float> x = mixed_floats(size + 1, true);
        if (seed != 1) // as if another program had made them
            for (std::size_t i = 0; i < x.size(); i += 3)
                x[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x[i]) ^ 5);
        writer.append(std::as_bytes(std::span(x)));
        writer.commit();
        file_ = open_tensor_file(scratch_ / name);
    }
    [[nodiscard]] const TensorFile& file() const { return *file_; }

  private:
    static constexpr std::uint64_t size = 200003;
    Scratch scratch_;
    std::unique_ptr<TensorFile> file_;
};

inline void add_analysis(std::vector<Computation>& all) {
    static const Tensors a, b("b.safetensors", 2);
    for (std::size_t i = 0; i < a.file().tensors().size(); ++i) {
        const auto add = [&](const std::string& name, const auto& run) {
            all.push_back({name + " of " + a.file().tensors()[i].name,
                           [i, run](int threads, Bits& results) { results << run(a.file(), i, threads); },
                           a.file().tensors()[i].name == "many"});
        };
        using File = const TensorFile&;
        add("measure", [](File f, std::size_t t, int threads) { return measure(f, t, threads); });
        add("measure_divided", [](File f, std::size_t t, int threads) { return measure_divided(f, t, 3, threads); });
        add("measure_fine", [](File f, std::size_t t, int threads) {
            const FineHistogram h = measure_fine(f, t, 3, {.directed = Rounding::up, .ends = {2}}, threads);
            return std::pair(std::pair(h.toward, h.away), h.ends);
        });
        add("count_casts", [](File f, std::size_t t, int threads) {
            const std::array casts = {Cast{.format = format("e4m3"), .scale = 3},
                                      Cast{.format = format("fp16"), .policy = {.rounding = Rounding::stochastic}}};
            return count_casts(f, t, casts, threads);
        });
        add("measure_errors", [](File f, std::size_t t, int threads) {
            const std::array casts = {Cast{.format = format("e4m3")}, Cast{.format = format("bf16"), .scale = 3}};
            return measure_errors(f, t, casts, threads);
        });
        add("measure_blocks",
            [](File f, std::size_t t, int threads) { return measure_blocks(f, t, 32, 1e30, threads); });
        add("measure_scaled in blocks", [](File f, std::size_t t, int threads) {
            const ScaledCast cast{.scaling = {format("e4m3"), 1, 32, ScaleRule::mx_te}, .recorded_scale = 3};
            return measure_scaled(f, t, cast, {.blocks = true, .threads = threads});
        });
        add("measure_scaled with one scale", [](File f, std::size_t t, int threads) {
            return measure_scaled(f, t, {.scaling = {format("e5m2")}}, {.blocks = true, .threads = threads});
        });
        add("compare_tensors", [](File f, std::size_t t, int threads) {
            return compare_tensors({f, t, 3}, {b.file(), t}, 7, threads);
        });
    }
}

} // namespace amp::test
