// What adding up gradients of N replicas costs in accuracy, by algorithm and format, from recorded gradients.
#pragma once

#include <ampscope/sim/io/recording.h>
#include <ampscope/sim/program/ops/all_reduce.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace amp {

struct CollectiveErrorOptions {
    std::vector<AllReduceOptions> ways; ///< the all-reduces that are compared
    int threads = 0;                    ///< 0: every core; results do not depend on it
};

/// The all-reduces that a report compares: those that frameworks use, beside an exact sum.
std::vector<AllReduceOptions> usual_all_reduces();

/// What distinguishes an all-reduce from others: "ring, bf16, nccl-avg".
std::string name_of(const AllReduceOptions& options);

struct CollectiveErrors {
    AllReduceOptions way;
    std::vector<double> errors;             ///< for each number of replicas: |mean - exact mean| / |exact mean|
    std::optional<double> exponent, beyond; ///< the errors grow as N to it: see collective_errors()
};

struct CollectiveErrorFindings {
    std::size_t gradients = 0, tensors = 0, elements = 0; ///< replicas that there are; tensors and elements of each
    std::size_t steps = 0;                                ///< recorded steps that they are of
    std::vector<int> replicas;
    std::vector<CollectiveErrors> rows;
    /// For each number of replicas, by how much their mean differs by chance from that of unlimited data, if they have
    /// no example in common: the standard error of the elements, over |exact mean|, which is noise itself where N is
    /// small. An all-reduce whose error is well below it costs little.
    std::vector<double> noise;
    std::vector<std::string> verdict;  ///< a sentence for each format, on the most replicas there are
    std::vector<std::string> warnings; ///< lines for the user, such as one on a run whose weights change
    static constexpr int fitted_from = 8, fitted_to = 256; ///< replicas
};

/// The error of the mean of gradients[0] ... gradients[N - 1] for N = 2, 3, 4, 6, 8, 12 ... up to their number. Norms
/// are taken over all elements, the exact mean is a sum in double. The exponent is the slope of the line through
/// (log N, log error) from `fitted_from` to `fitted_to` replicas, and beyond, if there are three points. Of 256 equal
/// terms the next is half a unit of their sum in BF16: sums then begin to stand still.
CollectiveErrorFindings collective_errors(const std::vector<std::vector<float>>& gradients,
                                          const CollectiveErrorOptions& options);

/// The format that replicas of an all-reduce send and sum in, or "messages with scales".
std::string kind_of(const AllReduceOptions& options);

/// The same of recorded gradients of weights: of the replicas of each step of a run that recorded them (replicas/), and
/// of another run each step as a replica. They are ordered by run, step and replica. The tensors of a replica are one
/// bucket, in which they follow each other in ascending order of their names. (PyTorch's DDP makes several buckets of
/// about 25 MiB, roughly in the reverse order of the parameters, so that chunks begin elsewhere.) Several steps differ
/// in their batches alone, as replicas do, only if weights stayed as they were, with a learning rate of 0: there is a
/// warning for each run with another one. Throws FileError, RecordingError, and std::invalid_argument for replicas that
/// do not have the same tensors, for a tensor that a replica has twice, for a step of two runs that are copies of each
/// other, for numbers that are not finite, and for fewer than two replicas.
CollectiveErrorFindings recorded_collective_errors(const std::vector<std::filesystem::path>& paths,
                                                   const CollectiveErrorOptions& options);

} // namespace amp
