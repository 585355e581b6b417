#include "harness.h"

// The first byte chooses the dtype that the user gives for lost ones, or none.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    amp::OpenOptions options;
    if (data[0] < amp::dtypes.size()) options.as = static_cast<amp::DType>(data[0]);
    return amp::fuzz::run(data + 1, size - 1,
                          [&](const std::filesystem::path& path) { return amp::open_npy(path, options); });
}
