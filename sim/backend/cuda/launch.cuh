// Runs a body for every index on a device. Compiled for the host alone, or with the device "host", the same bodies run
// in loops.
#pragma once

#include <ampscope/sim/backend/cuda/device.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/base/parallel.h>

#include <atomic>
#include <stdexcept>
#include <string>

namespace amp::cuda {

#if defined(__CUDACC__)

/// Throws std::runtime_error unless `error` is success.
void check(cudaError_t error, const char* what);

template <class Body>
__global__ void each_kernel(std::int64_t count, Body body) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
        body(i);
}

#endif

/// Adds to a counter to which other threads may add at the same time.
template <class T>
AMPSCOPE_INLINE void atomic_add(T& to, T value) {
    static_assert(sizeof(T) == 8);
#if defined(__CUDA_ARCH__)
    atomicAdd(reinterpret_cast<unsigned long long*>(&to), static_cast<unsigned long long>(value));
#else
    std::atomic_ref(to).fetch_add(value, std::memory_order_relaxed);
#endif
}

AMPSCOPE_INLINE void atomic_max(std::uint32_t& to, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
    atomicMax(&to, value);
#else
    std::atomic_ref shared(to);
    std::uint32_t now = shared.load();
    while (now < value && !shared.compare_exchange_weak(now, value)) {
    }
#endif
}

/// Sets a flag that other threads may set at the same time.
AMPSCOPE_INLINE void atomic_set(std::uint32_t& to) { atomic_max(to, 1); }

/// Calls body(i) for every i in [0, count), in any order and concurrently. `body` is a struct of values and device
/// pointers whose operator() is marked AMPSCOPE_DEVICE, or a lambda [=] AMPSCOPE_DEVICE (std::int64_t i) { ... }.
template <class Body>
void each(const CudaDevice& device, std::int64_t count, const Body& body) {
    if (count <= 0) return;
#if defined(__CUDACC__)
    if (!device.is_host()) {
        constexpr std::int64_t threads = 128, most_blocks = 1 << 20;
        const std::int64_t blocks = (count + threads - 1) / threads;
        check(cudaSetDevice(device.number), "cudaSetDevice");
        each_kernel<<<static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks), threads>>>(count, body);
        check(cudaGetLastError(), "launch");
        return;
    }
#endif
    static_cast<void>(device);
    constexpr std::uint64_t share = 4096;
    for_each_chunk(static_cast<std::uint64_t>(count), share, 0, [&](std::uint64_t begin, std::uint64_t end) {
        for (auto i = static_cast<std::int64_t>(begin); i < static_cast<std::int64_t>(end); ++i) body(i);
    });
}

} // namespace amp::cuda
