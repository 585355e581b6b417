// What replicas of an all-reduce send each other, as bytes: numbers of a format, or blocks with their scales.
#pragma once

#include <ampscope/formats/block.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace amp {

/// How a message holds numbers: as codes of `format`, one after another without gaps, each with its lowest bit first.
/// With `casts`, they are the elements of `blocks` in one row, and before them stand the upper scale, if there is one,
/// in FP32, and the scale of each block. A message takes Payload::bytes().
struct MessageFormat {
    FormatSpec format = fp32_format();
    bool casts = false;
    BlockScaling blocks{};
};

/// The message that holds these numbers. They are replaced by what a receiver reads of them.
std::vector<std::byte> pack_message(const MessageFormat& format, std::span<float> numbers);

/// The numbers of a message, as many as `numbers` holds. Returns the number of bytes that they took; the message may go
/// on.
std::size_t unpack_message(const MessageFormat& format, std::span<const std::byte> message, std::span<float> numbers);

} // namespace amp
