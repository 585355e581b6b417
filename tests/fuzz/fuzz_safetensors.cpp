#include "harness.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return amp::fuzz::run(data, size, [](const std::filesystem::path& path) { return amp::open_safetensors(path); });
}
