// An all-reduce as one of its replicas carries it out: what it sends, receives and adds, step by step.
#pragma once

#include <ampscope/sim/program/ops/all_reduce.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace amp {

/// What a replica sends in a step, and from whom it receives; none: it does not.
struct Exchange {
    std::optional<int> to{}, from{};
    std::span<const std::byte> bytes{};
};

/// The mean of all replicas' gradients, of which this one has its own: the bits of op::AllReduce in one process, before
/// they are rounded to the format of the op's result. `share_amax` returns the largest of all replicas' magnitudes, for
/// one scale; `exchange` sends and receives the bytes of a step: as many as traffic_of() counts, except
/// that no switch is there, so that a replica sends its sum to each of the others.
std::vector<float> ranked_all_reduce(const op::AllReduce& op, std::vector<float> own, int replica,
                                     const std::function<float(float amax)>& share_amax,
                                     const std::function<std::vector<std::byte>(const Exchange&)>& exchange);

} // namespace amp
