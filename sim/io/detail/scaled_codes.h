// Codes of a small format with scales for blocks of them, read as the values that they stand for.
#pragma once

#include <ampscope/sim/io/tensor_file.h>

namespace amp {

/// The codes are a matrix in C order. The scale of code (i, j) stands in row i / rows and column j / columns of the
/// scales, or the other way round where these are transposed. The default is one scale for all.
struct ScaleBlocks {
    std::uint64_t rows = ~std::uint64_t{0}, columns = ~std::uint64_t{0};
    bool transposed = false;
};

struct ScaledCodes {
    DType format; ///< what a code of 8 or 4 bits stands for; two of 4 bits lie in a byte, the first in its lower bits
    std::uint64_t rows, columns; ///< extents of the matrix of codes
    ScaleBlocks blocks;
    std::vector<float> scales; ///< in C order
    std::uint64_t stride;      ///< scales in a row; there may be more rows and columns than blocks
    bool single;               ///< products are rounded to FP32; else they are exact: 4 bits by 24 fit FP64's 53
};

/// The values code * scale as FP64. `codes` gives the bytes of the codes.
std::unique_ptr<ByteStream> read_scaled(std::unique_ptr<ByteStream> codes, ScaledCodes scaled);

} // namespace amp
