// A run's gradients by layer: how large they are, and which layers a format zeroes most.
#pragma once

#include <ampscope/sim/findings/recorded_run.h>

namespace amp {

/// The gradients of one layer's weights, or of its activations, over all recorded steps.
struct LayerRecord {
    std::string layer;
    TensorKind kind = TensorKind::weight_gradient;
    GradientCounts counts;
    /// By followed format and column: the share of non-zero elements that become zero at scale 1.
    std::array<std::vector<Share>, followed_formats.size()> zeroed;
    std::size_t layers = 1; ///< the number of layers that were added up: see folded_layers()
    std::string worst{};    ///< the one of them that is zeroed most by the format they were folded for; empty for one

    /// "c1, weight grad" or "c1, activation grad".
    [[nodiscard]] std::string name() const;
    /// The share that becomes zero in followed_formats[f], over all columns.
    [[nodiscard]] Share zeroed_in_all(std::size_t f) const;
};

/// The layers of a run, in order of appearance, with weights and activations apart.
std::vector<LayerRecord> layer_records(const RecordedRun& run);

/// The same layers or, if they are more than `most`, sums of those whose names differ only in whole numbers between
/// dots: "h.0.attn" and "h.1.attn" become "h.*.attn". Where that is not enough, other numbers are replaced, too. In
/// order of first appearance, with weights and activations apart.
/// `f`: the followed format by which the worst of each sum is named.
std::vector<LayerRecord> folded_layers(const std::vector<LayerRecord>& layers, std::size_t most, std::size_t f = 0);

/// At most so many of the layers, in their order: those of which followed_formats[f] zeroes the largest share, the
/// first ones among equals.
std::vector<LayerRecord> worst_layers(const std::vector<LayerRecord>& layers, std::size_t most, std::size_t f = 0);

/// The gradients of one kind, of all layers and steps.
GradientCounts gradient_counts(const RecordedRun& run, TensorKind kind);

} // namespace amp
