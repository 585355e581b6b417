// Shared by all harnesses: the input is a file in memory, which one reader opens and reads to its end.
#pragma once

#include <ampscope/sim/io/byte_file.h>

#include <cstdlib>

#include <sys/mman.h>
#include <unistd.h>

namespace amp::fuzz {

/// The path of a file in memory that holds `size` bytes, until the next call.
inline std::filesystem::path memory_file(const std::uint8_t* data, std::size_t size) {
    static const int descriptor = ::memfd_create("fuzz", 0);
    if (::ftruncate(descriptor, static_cast<off_t>(size)) != 0) std::abort();
    if (::pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
    return "/proc/self/fd/" + std::to_string(descriptor);
}

inline std::string little_endian(std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
    return text;
}

inline std::uint32_t crc32(std::string_view bytes) {
    std::uint32_t crc = ~0u;
    for (const char c : bytes) {
        crc ^= static_cast<unsigned char>(c);
        for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

/// A zip archive of stored members with correct checksums, which fuzzed bytes would never have by themselves.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members) {
    std::string local, central;
    for (const auto& [name, data] : members) {
        const std::string common = little_endian(20, 2) + little_endian(0, 8) + little_endian(crc32(data), 4) +
                                   little_endian(data.size(), 4) + little_endian(data.size(), 4) +
                                   little_endian(name.size(), 2) + little_endian(0, 2);
        central +=
            "PK\1\2" + little_endian(20, 2) + common + std::string(10, '\0') + little_endian(local.size(), 4) + name;
        local += "PK\3\4" + common + name + data;
    }
    const std::string counts = little_endian(members.size(), 2) + little_endian(members.size(), 2);
    return local + central + "PK\5\6" + little_endian(0, 4) + counts + little_endian(central.size(), 4) +
           little_endian(local.size(), 4) + little_endian(0, 2);
}

/// Reads every tensor, but at most 64 MiB in all: a deflated member or an expanded view may well be longer. Any
/// exception other than FileError, and a stream whose length differs from its entry's, ends the process.
inline void read_all(const TensorFile& file) {
    constexpr std::uint64_t limit = 64 << 20;
    static std::vector<std::byte> chunk(24 * 4096);
    std::uint64_t budget = limit; // for the whole file
    for (std::size_t i = 0; i < file.tensors().size() && budget > 0; ++i) {
        const std::uint64_t bytes = file.tensors()[i].bytes;
        std::uint64_t total = 0;
        try {
            const auto stream = file.stream(i);
            for (std::size_t n = chunk.size(); n == chunk.size() && total < budget; total += n) n = stream->read(chunk);
        } catch (const FileError&) {
            continue; // a damaged member; the others must still be read
        }
        if (total < budget ? total != bytes : total > bytes) std::abort();
        budget -= std::min(budget, total);
        if (file.random_access(i) && bytes > 0) {
            const auto unit = static_cast<std::size_t>(info(file.tensors()[i].dtype).unit_bytes());
            file.read_at(i, bytes - unit, std::span(chunk).first(unit));
        }
    }
}

template <class Open>
int run(const std::uint8_t* data, std::size_t size, Open open) {
    try {
        read_all(*open(memory_file(data, size)));
    } catch (const FileError&) {
        return 0;
    }
    return 0;
}

} // namespace amp::fuzz
