// What replicas do to many numbers at once: the vectorised versions of kernels::Transport.
#pragma once

#include <ampscope/sim/backend/kernels/all_reduce.h>

#include <span>

namespace amp::cpu {

/// Gradients become what is sent.
void send(const kernels::Transport& transport, std::span<float> gradients);

/// sums = sums + received, rounded to the transport's format; both have the same length.
void add(const kernels::Transport& transport, std::span<float> sums, std::span<const float> received);

/// Sums become means.
void receive(const kernels::Transport& transport, std::span<float> sums);

} // namespace amp::cpu
