// A short name for many bits, to tell whether two runs, or two files, are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace amp {

/// The 64-bit hash FNV-1a (draft-eastlake-fnv): it finds accidental differences, not forgeries.
class Fingerprint {
  public:
    void add(std::span<const std::byte> bytes) {
        for (const std::byte b : bytes) hash_ = (hash_ ^ static_cast<std::uint64_t>(b)) * 0x100000001b3;
    }
    /// 16 hexadecimal digits.
    [[nodiscard]] std::string text() const {
        std::string digits(16, '0');
        for (std::size_t i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[hash_ >> (60 - 4 * i) & 15];
        return digits;
    }

  private:
    std::uint64_t hash_ = 0xcbf29ce484222325;
};

} // namespace amp
