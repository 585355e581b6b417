// A device as a backend: one buffer for each tensor on the device, and copies on the host of those that are asked for.
#pragma once

#include <ampscope/sim/backend/backend.h>
#include <ampscope/sim/backend/cuda/device.h>

namespace amp {

class Cuda final : public Backend {
  public:
    /// Allocates every tensor of a finished program. Throws std::runtime_error if the device lacks memory.
    Cuda(const Program& program, const CudaDevice& device, CudaArithmetic arithmetic = CudaArithmetic::emulated);

    [[nodiscard]] std::span<float> operator[](TensorId id) override;
    [[nodiscard]] std::span<const float> operator[](TensorId id) const override;
    void run(const Op& op) override;

    [[nodiscard]] const CudaDevice& device() const { return device_; }
    [[nodiscard]] bool is_native() const { return arithmetic_ == CudaArithmetic::native; }
    /// Number of matrix products so far, and how many of them ran on tensor cores.
    std::int64_t products = 0, native_products = 0;

    // Called by ops: the elements on the device for reading, and for reading and writing.
    [[nodiscard]] const float* in(TensorId id);
    [[nodiscard]] float* out(TensorId id);
    /// The device's counters of roundings of a tensor; null if they are not counted.
    [[nodiscard]] RoundingCounts* rounding_counts(TensorId id);

  private:
    struct Buffer {
        DeviceArray<float> device;
        std::vector<float> host{};
        bool host_is_new = false, device_is_new = false;
    };
    Buffer& fetched(TensorId id) const;

    CudaDevice device_;
    CudaArithmetic arithmetic_;
    mutable std::vector<Buffer> buffers_; ///< mutable: reading copies numbers to the host
    DeviceArray<RoundingCounts> counts_;
};

/// Makes backends on the device.
MakeBackend on_device(const CudaDevice& device, CudaArithmetic arithmetic = CudaArithmetic::emulated);

} // namespace amp
