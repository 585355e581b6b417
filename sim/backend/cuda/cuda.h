// A device as a backend: a buffer a tensor on the device, and a copy on the host of those that are asked for.
#pragma once

#include <ampscope/sim/backend/backend.h>
#include <ampscope/sim/backend/cuda/device.h>

namespace amp {

class Cuda final : public Backend {
  public:
    /// Allocates every tensor of a finished program. Throws std::runtime_error where the device has no room.
    Cuda(const Program& program, const CudaDevice& device, CudaArithmetic arithmetic = CudaArithmetic::emulated);

    [[nodiscard]] std::span<float> operator[](TensorId id) override;
    [[nodiscard]] std::span<const float> operator[](TensorId id) const override;
    void run(const Op& op) override;

    [[nodiscard]] const CudaDevice& device() const { return device_; }
    [[nodiscard]] bool is_native() const { return arithmetic_ == CudaArithmetic::native; }
    /// Matrix products so far, and how many of them tensor cores did.
    std::int64_t products = 0, native_products = 0;

    // For ops: the numbers on the device, to be read, and to be written too.
    [[nodiscard]] const float* in(TensorId id);
    [[nodiscard]] float* out(TensorId id);
    /// Where roundings of a tensor are counted on the device; null where they are not.
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
    mutable std::vector<Buffer> buffers_; ///< reading brings numbers to the host
    DeviceArray<RoundingCounts> counts_;
};

/// Makes backends on that device.
MakeBackend on_device(const CudaDevice& device, CudaArithmetic arithmetic = CudaArithmetic::emulated);

} // namespace amp
