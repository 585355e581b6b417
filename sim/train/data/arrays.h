// Whole tensors as floats.
#pragma once

#include <ampscope/sim/io/tensor_file.h>

#include <vector>

namespace amp {

/// All numbers of a tensor of any type but complex ones, rounded to FP32, at most 2^31. Memory grows with what is read,
/// as a compressed array may claim any size. Throws FileError.
std::vector<float> read_floats(const TensorFile& file, std::size_t index);

} // namespace amp
