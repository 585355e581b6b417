// The quantized tensors of TransformerEngine as they lie in pickles: codes q and inverse scales, x = q * scale_inv.
//
// Each of its classes pickles itself as a call of a function, whose arguments are the tensors that it consists of. The
// function is named here, never called. Source: transformer_engine/pytorch/tensor/*_tensor.py (__reduce_ex__) and
// storage/*_storage.py (what the scales mean), commit d0067d0 (2.20.0.dev0). In earlier versions, a method of the class
// is called with the same arguments, of which the last may lack; before 2.4 the types of codes had other numbers.
#pragma once

#include <ampscope/sim/io/detail/pickle.h>
#include <ampscope/sim/io/detail/scaled_codes.h>

#include <optional>

namespace amp::transformer_engine {

/// Codes with their scales.
struct Quantized {
    std::string suffix{}; ///< ends the tensor's name: ".columnwise" where there are row-wise codes, too, else empty
    DType format = DType::f8_e4m3; ///< what a code stands for; two of F4 lie in a byte, the first in its lower bits
    const pickle::Tensor* codes = nullptr;
    bool transposed = false;   ///< the codes' first dimension is the tensor's last
    bool first_is_row = false; ///< a row of the matrix of codes is all but the first dimension; else it is the last
    ScaleBlocks blocks{};
    const pickle::Tensor* scale_inv = nullptr;
    DType scale_type = DType::f32;
    const pickle::Tensor* amax = nullptr; ///< NVFP4's scales are relative to it: one number, or one for each row
    int scale_max = 448;                  ///< NVFP4: a scale s means s * amax / (6 * scale_max)
};

/// What an object holds: quantized tensors, or other values under names of their own, and what of it cannot be read.
struct Unwrapped {
    std::vector<Quantized> tensors;
    std::vector<std::pair<std::string, pickle::Ref>> values;
    std::vector<std::string> problems; ///< "is ...; save ..."
};

/// std::nullopt for what is no tensor of TransformerEngine.
std::optional<Unwrapped> unwrap(const pickle::Opaque& object);

} // namespace amp::transformer_engine
