#include "harness.h"

// If the input is an archive, it is used as it is, else as the pickle of a valid archive with two storages.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string bytes(reinterpret_cast<const char*>(data), size);
    if (!bytes.starts_with("PK"))
        bytes = amp::fuzz::zip_of(
            {{"t/data.pkl", bytes}, {"t/data/0", std::string(96, 'x')}, {"t/data/1", std::string(48, 'y')}});
    return amp::fuzz::run(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(),
                          [](const std::filesystem::path& path) { return amp::open_pt({.path = path}); });
}
