#include "harness.h"

// An archive as it is, or anything else as the pickle of a valid one with two storages.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string bytes(reinterpret_cast<const char*>(data), size);
    if (!bytes.starts_with("PK"))
        bytes = amp::fuzz::zip_of(
            {{"t/data.pkl", bytes}, {"t/data/0", std::string(96, 'x')}, {"t/data/1", std::string(48, 'y')}});
    return amp::fuzz::run(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(),
                          [](const std::filesystem::path& path) { return amp::open_pt(path, {}); });
}
