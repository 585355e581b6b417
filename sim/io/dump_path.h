// Files of TransformerEngine's DumpTensors feature, whose paths say what they hold.
#pragma once

#include <ampscope/sim/io/recording.h>

namespace amp {

/// What .../rank_RANK/iter_STEP/LAYER_TENSOR.pt names.
struct DumpPath {
    std::int64_t step = 0;
    std::string rank;  ///< "rank_0"
    std::int64_t rank_number = 0;
    std::filesystem::path root; ///< the folder that holds those of the ranks
    std::string layer; ///< the layer's name, in which "_" stands for "."
    std::string stem;  ///< LAYER_TENSOR
    TensorKind kind = TensorKind::activation;
};

/// std::nullopt for other paths. Source: transformer_engine/debug/features/dump_tensors.py (TensorLogger), commit
/// d0067d0; what its tensors are: debug/pytorch/debug_quantization.py (_tensor_to_gemm_names_map) and the products of
/// module/linear.py.
std::optional<DumpPath> dump_path(const std::filesystem::path& file);

} // namespace amp
