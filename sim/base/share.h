// A part of a whole, such as the elements of a tensor that become zero.
#pragma once

#include <cstdint>

namespace amp {

/// A number of elements out of a whole.
struct Share {
    std::uint64_t part = 0, whole = 0;

    [[nodiscard]] double rate() const {
        return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
    }
    Share& operator+=(const Share& other) {
        part += other.part;
        whole += other.whole;
        return *this;
    }
};

} // namespace amp
