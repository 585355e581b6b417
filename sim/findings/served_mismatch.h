// Measures how far serving is from training: both compute the validation data, side by side.
#pragma once

#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/findings/mismatch.h>
#include <ampscope/sim/train/serving.h>

namespace amp {

/// How a trained network is served.
struct ServingSetting {
    std::string name;
    Precision precision{};   ///< with its own formats of serving, see served_precision()
    std::int64_t batch = 0;  ///< examples that are computed at once; 0: as in training
    std::string attention{}; ///< a decoder's, as op::attention_options() reads it; empty: as in training
};

/// Compares the probabilities of each target, and the results of all ops of forward that both have, up to the logits,
/// other than transposes and codes with scales.
/// Training computes in `training`, with the batches of the network's own options; of batches that only serving splits,
/// each part is compared with its part. `progress` gets one call for each batch of training. Throws
/// std::invalid_argument for networks without classes or tokens and for a batch that does not divide that of training,
/// and what LoadedNetwork throws.
Mismatch measure_mismatch(const TrainedNetwork& trained, const Precision& training, const ServingSetting& setting,
                          int threads, const Progress& progress = {});

} // namespace amp
