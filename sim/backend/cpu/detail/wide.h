// Stores an op's results, computed in double, in its output: the one place where the processor's ops round.
// cuda/wide.cuh has map(), map_rows() and copy() for devices, so an op that needs no more than these is written once,
// in kernels/.
#pragma once

#include <ampscope/formats/instruction_set.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/base/parallel.h>

#include <algorithm>
#include <cstddef>

namespace amp::cpu {

/// Number of elements processed together: their doubles stay in the first-level cache.
inline constexpr std::int64_t block = 1024;
/// Least number of elements for a thread; fewer are not worth waking one.
inline constexpr std::int64_t grain = 32768;

/// out[i] = wide[i] rounded to the format, once.
void round_wide(const FormatSpec& format, const double* wide, float* out, std::int64_t n);
/// Rounds wide[0 ... n) to elements [begin, begin + n) of `out`, and counts what it did if the backend counts.
void store(Cpu& cpu, TensorId out, std::int64_t begin, const double* wide, std::int64_t n);
/// The same for FP32 values, which are not those elements themselves if the backend counts.
void round_floats(Cpu& cpu, TensorId out, std::int64_t begin, const float* in, std::int64_t n);
/// The same for elements of `out` that hold unrounded FP32 values.
void round_in_place(Cpu& cpu, TensorId out, std::int64_t begin, std::int64_t n);

/// Rounds n numbers in place, of an op that keeps them to itself, and counts what it did as roundings of `of`.
void round_counted(Cpu& cpu, TensorId of, const FormatSpec& format, float* x, std::int64_t n);

/// The number of lines of `line` elements that a thread takes at once: about `work` elements, and at least one line.
inline std::uint64_t lines_at_once(std::int64_t line, std::int64_t work = grain) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(1, work / std::max<std::int64_t>(1, line)));
}

/// Calls body(begin, end) for ranges of [0, count) on the backend's threads, at least `grain` elements at once.
template <class Body>
void for_elements(const Cpu& cpu, std::int64_t count, const Body& body) {
    for_each_chunk(static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(grain), cpu.threads(),
                   [&](std::uint64_t begin, std::uint64_t end) {
                       body(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
                   });
}

/// The rows from `row` on, one after the other: a call for each of them would take longer than a short row.
template <class Kernel>
struct RowsKernel {
    template <class... Args>
    AMPSCOPE_KERNEL void run(std::int64_t row, std::int64_t rows, std::int64_t width, double* wide, Args... args) {
        for (std::int64_t r = 0; r < rows; ++r) Kernel::run(row + r, width, wide + r * width, args...);
    }
};

} // namespace amp::cpu

namespace amp {

/// Element-wise ops: Kernel::run(begin, n, wide, args...) computes elements [begin, begin + n) of out.
template <class Kernel, class... Args>
void map(Cpu& cpu, Kernel, TensorId out, Args... args) {
    cpu::for_elements(cpu, cpu.info(out).count(), [&](std::int64_t begin, std::int64_t end) {
        alignas(64) double wide[cpu::block];
        for (std::int64_t i = begin; i < end; i += cpu::block) {
            const std::int64_t n = std::min(cpu::block, end - i);
            dispatch<Kernel>(best_instruction_set(), i, n, &wide[0], args...);
            cpu::store(cpu, out, i, wide, n);
        }
    });
}

/// Ops on rows of the last axis: Kernel::run(row, width, wide, args...) computes one row of out.
template <class Kernel, class... Args>
void map_rows(Cpu& cpu, Kernel, TensorId out, Args... args) {
    const std::int64_t width = cpu.info(out).shape.back(), rows = cpu.info(out).count() / width;
    const std::int64_t at_once = std::max<std::int64_t>(1, cpu::block / width);
    for_each_chunk(static_cast<std::uint64_t>(rows), cpu::lines_at_once(width, cpu::grain / 4), cpu.threads(),
                   [&](std::uint64_t begin, std::uint64_t end) {
                       const auto last = static_cast<std::int64_t>(end);
                       std::vector<double> wide(static_cast<std::size_t>(at_once * width));
                       for (auto row = static_cast<std::int64_t>(begin); row < last; row += at_once) {
                           const std::int64_t n = std::min(at_once, last - row);
                           dispatch<cpu::RowsKernel<Kernel>>(best_instruction_set(), row, n, width, wide.data(),
                                                             args...);
                           cpu::store(cpu, out, row * width, wide.data(), n * width);
                       }
                   });
}

/// out[i] = in[i], rounded to the format of out; `in` may be out's own numbers.
inline void copy(Cpu& cpu, TensorId out, const float* in) {
    const bool in_place = in == cpu[out].data();
    cpu::for_elements(cpu, cpu.info(out).count(), [&](std::int64_t begin, std::int64_t end) {
        if (in_place) cpu::round_in_place(cpu, out, begin, end - begin);
        else cpu::round_floats(cpu, out, begin, in + begin, end - begin);
    });
}

} // namespace amp
