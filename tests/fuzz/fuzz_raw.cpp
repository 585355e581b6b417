#include "harness.h"

#include <cstring>

// The first byte chooses the dtype, the second how many of the following 8-byte numbers are the shape.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2 || data[0] >= amp::dtypes.size() || size < 2 + std::size_t{8} * data[1]) return 0;
    amp::OpenOptions options;
    options.dtype = static_cast<amp::DType>(data[0]);
    options.shape.resize(data[1]);
    if (data[1] != 0) std::memcpy(options.shape.data(), data + 2, std::size_t{8} * data[1]);
    const std::size_t header = 2 + std::size_t{8} * data[1];
    return amp::fuzz::run(data + header, size - header,
                          [&](const std::filesystem::path& path) { return amp::open_raw(path, options); });
}
