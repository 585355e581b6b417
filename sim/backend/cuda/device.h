// The devices of this machine, and memory on them. This header needs no CUDA header: without CUDA the same files are
// compiled for the host alone, which then is the only device and runs what devices run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace amp {

/// A device, or the host, which runs the same functions in loops.
struct CudaDevice {
    static constexpr int host = -1;
    int number = host;
    std::string name = "host";
    int major = 0, minor = 0; ///< compute capability, as major.minor
    int driver = 0;           ///< newest CUDA version of the driver, as 1000 * major + 10 * minor
    std::int64_t memory = 0;  ///< size of its memory in bytes
    double bandwidth = 0;     ///< memory bandwidth in bytes a second, from clock and bus width; 0: hidden by the driver

    [[nodiscard]] bool is_host() const { return number == host; }
    [[nodiscard]] int capability() const { return 10 * major + minor; }
    bool operator==(const CudaDevice&) const = default;
};

/// The devices that can be used, sorted by number.
struct CudaDevices {
    std::vector<CudaDevice> devices;
    std::string reason; ///< why there are none; else empty
};
CudaDevices cuda_devices();

/// How a device computes.
enum class CudaArithmetic : std::uint8_t {
    emulated, ///< formats/ compiled for the device: equals the processor bit for bit
    native    ///< hardware conversions, and tensor cores whose sums are a row of accumulator.h
};

struct FreeDeviceMemory {
    int device = CudaDevice::host;
    void operator()(void* data) const;
};

/// Bytes on a device, initially zero. Throws std::runtime_error if there is not enough memory.
class DeviceMemory {
  public:
    DeviceMemory() = default;
    DeviceMemory(const CudaDevice& device, std::size_t bytes);

    [[nodiscard]] void* data() const { return data_.get(); }
    void upload(const void* from, std::size_t bytes) const;
    void download(void* to, std::size_t bytes) const;
    void clear() const;

  private:
    std::unique_ptr<void, FreeDeviceMemory> data_;
    std::size_t bytes_ = 0;
};

/// An array on a device.
template <class T>
class DeviceArray {
  public:
    DeviceArray() = default;
    DeviceArray(const CudaDevice& device, std::size_t count) : count_(count), memory_(device, count * sizeof(T)) {}

    [[nodiscard]] T* data() const { return static_cast<T*>(memory_.data()); }
    [[nodiscard]] std::size_t size() const { return count_; }
    void upload(const T* from) const { memory_.upload(from, count_ * sizeof(T)); }
    void download(T* to) const { memory_.download(to, count_ * sizeof(T)); }
    [[nodiscard]] std::vector<T> read() const {
        std::vector<T> values(count_);
        download(values.data());
        return values;
    }
    void clear() const { memory_.clear(); }

  private:
    std::size_t count_ = 0;
    DeviceMemory memory_;
};

} // namespace amp
