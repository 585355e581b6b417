#include <ampscope/sim/backend/cuda/device.h>

#include <ampscope/sim/backend/cuda/launch.cuh>

#include <cstdlib>
#include <cstring>
#include <new>

namespace amp {

#if defined(__CUDACC__)

void cuda::check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(error));
}

namespace {

/// Makes a device the current one while the object lives.
class Current {
  public:
    explicit Current(int device) {
        cuda::check(cudaGetDevice(&before_), "cudaGetDevice");
        cuda::check(cudaSetDevice(device), "cudaSetDevice");
    }
    ~Current() { cudaSetDevice(before_); }
    Current(const Current&) = delete;

  private:
    int before_ = 0;
};

int attribute(cudaDeviceAttr which, int device) {
    int value = 0;
    return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
}

} // namespace

CudaDevices cuda_devices() {
    CudaDevices found;
    int count = 0, driver = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    static_cast<void>(cudaDriverGetVersion(&driver)); // 0 if there is no driver
    if (error != cudaSuccess)
        return {.devices = {}, .reason = driver == 0 ? "no NVIDIA driver is installed" : cudaGetErrorString(error)};
    for (int i = 0; i < count; ++i) {
        cudaDeviceProp p{};
        cuda::check(cudaGetDeviceProperties(&p, i), "cudaGetDeviceProperties");
        if (p.major < 8) continue;
        // The pool keeps memory that ops free, for the next ops.
        cudaMemPool_t pool{};
        std::uint64_t all = ~std::uint64_t{0};
        cuda::check(cudaDeviceGetDefaultMemPool(&pool, i), "memory pool");
        cuda::check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all), "memory pool");
        const double clock = 1000.0 * attribute(cudaDevAttrMemoryClockRate, i); // two transfers per cycle
        found.devices.push_back({.number = i,
                                 .name = p.name,
                                 .major = p.major,
                                 .minor = p.minor,
                                 .driver = driver,
                                 .memory = static_cast<std::int64_t>(p.totalGlobalMem),
                                 .bandwidth = 2 * clock * attribute(cudaDevAttrGlobalMemoryBusWidth, i) / 8});
    }
    if (found.devices.empty()) found.reason = "no device of compute capability 8.0 or newer";
    return found;
}

#else

CudaDevices cuda_devices() { return {.devices = {}, .reason = "built without CUDA (preset cuda builds with it)"}; }

#endif

void FreeDeviceMemory::operator()(void* data) const {
#if defined(__CUDACC__)
    if (device != CudaDevice::host) {
        const Current current(device);
        cudaFreeAsync(data, nullptr); // after pending work
        return;
    }
#endif
    std::free(data);
}

DeviceMemory::DeviceMemory(const CudaDevice& device, std::size_t bytes) : bytes_(bytes) {
    void* data = nullptr;
#if defined(__CUDACC__)
    if (!device.is_host()) {
        const Current current(device.number);
        cuda::check(cudaMallocAsync(&data, bytes + 1, nullptr), "memory on the device");
    }
#endif
    if (device.is_host()) data = std::malloc(bytes + 1);
    if (data == nullptr) throw std::bad_alloc();
    data_ = {data, FreeDeviceMemory{device.number}};
    clear();
}

void DeviceMemory::upload(const void* from, std::size_t bytes) const {
    if (bytes == 0) return;
#if defined(__CUDACC__)
    if (const int device = data_.get_deleter().device; device != CudaDevice::host) {
        const Current current(device);
        return cuda::check(cudaMemcpy(data_.get(), from, bytes, cudaMemcpyHostToDevice), "copy to the device");
    }
#endif
    std::memcpy(data_.get(), from, bytes);
}

void DeviceMemory::download(void* to, std::size_t bytes) const {
    if (bytes == 0) return;
#if defined(__CUDACC__)
    if (const int device = data_.get_deleter().device; device != CudaDevice::host) {
        const Current current(device);
        return cuda::check(cudaMemcpy(to, data_.get(), bytes, cudaMemcpyDeviceToHost), "copy from the device");
    }
#endif
    std::memcpy(to, data_.get(), bytes);
}

void DeviceMemory::clear() const {
#if defined(__CUDACC__)
    if (const int device = data_.get_deleter().device; device != CudaDevice::host) {
        const Current current(device);
        return cuda::check(cudaMemset(data_.get(), 0, bytes_), "cudaMemset");
    }
#endif
    std::memset(data_.get(), 0, bytes_);
}

} // namespace amp
