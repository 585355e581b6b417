// Stores an op's results, computed in double, in its output: the one place where a device's ops round. See also
// cpu/detail/wide.h.
#pragma once

#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/cuda/cuda.h>
#include <ampscope/sim/backend/cuda/launch.cuh>
#include <ampscope/sim/backend/cuda/native.cuh>

#include <tuple>

namespace amp::cuda {

/// x rounded to the format.
AMPSCOPE_CALL inline float rounded(const FormatSpec& format, double x) { return quantize(format, x); }

/// The output of an op on the device.
struct Output {
    float* data;
    FormatSpec format;
    RoundingCounts* counts; ///< null if they are not counted
    bool native;            ///< rounds by hardware instructions where it can

    /// Stores x in element i, rounded to the format, once.
    AMPSCOPE_DEVICE void put(std::int64_t i, double x) const {
        const float y = native ? native_round(format, x) : rounded(format, x);
        data[i] = y;
        if (counts != nullptr) count(x, y);
    }
    /// x in another format, counted among the roundings of this output.
    [[nodiscard]] AMPSCOPE_DEVICE float counted(const FormatSpec& other, float x) const {
        const float y = rounded(other, x);
        if (counts != nullptr) count(x, y);
        return y;
    }

  private:
    AMPSCOPE_DEVICE void count(double before, float after) const {
        const bool nonzero = before != 0 && before - before == 0; // finite
        atomic_add(counts->elements, std::int64_t{1});
        if (nonzero) atomic_add(counts->nonzero, std::int64_t{1});
        if (nonzero && after == 0) atomic_add(counts->underflow, std::int64_t{1});
        if (nonzero && after - after != 0) atomic_add(counts->overflow, std::int64_t{1});
    }
};

inline Output output(Cuda& cuda, TensorId id) {
    return {cuda.out(id), cuda.info(id).format, cuda.rounding_counts(id), cuda.is_native()};
}

template <class Kernel, class... Args>
struct MapElement {
    Output to;
    std::tuple<Args...> args;

    AMPSCOPE_DEVICE void operator()(std::int64_t i) const {
        double wide = 0;
        std::apply([&](const auto&... a) { Kernel::run(i, 1, &wide, a...); }, args);
        to.put(i, wide);
    }
};

template <class Kernel, class... Args>
struct MapRow {
    Output to;
    double* wide; ///< array of the size of out
    std::int64_t width;
    std::tuple<Args...> args;

    AMPSCOPE_DEVICE void operator()(std::int64_t row) const {
        double* const own = wide + row * width;
        std::apply([&](const auto&... a) { Kernel::run(row, width, own, a...); }, args);
        for (std::int64_t i = 0; i < width; ++i) to.put(row * width + i, own[i]);
    }
};

/// A struct, not a lambda: nvcc 13.0 loses the host version of a lambda in an inline function.
struct RoundElement {
    Output to;
    const float* in;

    AMPSCOPE_DEVICE void operator()(std::int64_t i) const { to.put(i, in[i]); }
};

} // namespace amp::cuda

namespace amp {

/// Element-wise ops: Kernel::run(begin, n, wide, args...) computes elements [begin, begin + n) of out.
template <class Kernel, class... Args>
void map(Cuda& cuda, Kernel, TensorId out, Args... args) {
    cuda::each(cuda.device(), cuda.info(out).count(),
               cuda::MapElement<Kernel, Args...>{cuda::output(cuda, out), {args...}});
}

/// Ops on rows of the last axis: Kernel::run(row, width, wide, args...) computes one row of out.
template <class Kernel, class... Args>
void map_rows(Cuda& cuda, Kernel, TensorId out, Args... args) {
    const std::int64_t count = cuda.info(out).count(), width = cuda.info(out).shape.back();
    const DeviceArray<double> wide(cuda.device(), static_cast<std::size_t>(count));
    cuda::each(cuda.device(), count / width,
               cuda::MapRow<Kernel, Args...>{cuda::output(cuda, out), wide.data(), width, {args...}});
}

/// out[i] = in[i], rounded to the format of out.
inline void copy(Cuda& cuda, TensorId out, const float* in) {
    cuda::each(cuda.device(), cuda.info(out).count(), cuda::RoundElement{cuda::output(cuda, out), in});
}

} // namespace amp

namespace amp::cuda {

/// Rounds elements of `out` that hold unrounded FP32 values.
inline void round_in_place(Cuda& cuda, TensorId out) { amp::copy(cuda, out, cuda.out(out)); }

} // namespace amp::cuda
