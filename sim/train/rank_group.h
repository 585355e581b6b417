// Data-parallel training in several processes: each rank runs one replica, and all together compute the numbers of a
// training whose replicas run one after another in one process.
#pragma once

#include <ampscope/sim/backend/backend.h>
#include <ampscope/sim/base/ranks.h>
#include <ampscope/sim/program/training_program.h>

#include <map>
#include <string>
#include <vector>

namespace amp {

/// The replicas of a training, one a rank. Rank 0 runs the last replica, whose activations and gradients a process with
/// all replicas is left with: so it records what such a process records.
///
/// Gradients travel by the schedule of their all-reduce, in the format of its messages; every sum is ours, in the order
/// that the algorithm defines. Functions that send are called by all ranks in the same order.
class RankGroup {
  public:
    /// The ranks must outlive the group.
    explicit RankGroup(Ranks& ranks) : ranks_(ranks) {}

    [[nodiscard]] int replicas() const { return ranks_.size(); }
    /// The replica of this rank.
    [[nodiscard]] int replica() const { return replica_of(ranks_.rank()); }

    /// Before and after this replica's part of a step. A first scale of delayed scaling that follows from the tensor
    /// itself (MS-AMP's) is that of the first replica; then replicas run one after another.
    void begin_replica(Backend& backend, const TrainingProgram& training);
    void end_replica(Backend& backend, const TrainingProgram& training);

    /// Runs backward of this replica's last micro-batch. Meanwhile each gradient is reduced as soon as it is complete,
    /// unless replicas take turns.
    void backward(Backend& backend, const TrainingProgram& training);
    /// The numbers of all replicas, replica after replica; each has equally many.
    [[nodiscard]] std::vector<double> gather(std::span<const double> own) const;
    /// Brings the gradients of all replicas to rank 0.
    void gather_contributions(Backend& backend, const TrainingProgram& training) const;
    /// Adds up the counts of all replicas' casts.
    void merge_counts(Backend& backend) const;
    /// Runs an op of TrainingProgram's check tape, where replicas meet.
    void run(Backend& backend, const Op& op);
    /// The texts of all ranks, rank after rank.
    [[nodiscard]] std::vector<std::string> gather(const std::string& own) const;
    /// The bytes of rank 0, on every rank.
    [[nodiscard]] std::vector<std::byte> from_first(std::span<const std::byte> own) const;

  private:
    /// Brings the running statistics of replica 0, which alone updates them, to all ranks.
    void share_buffers(Backend& backend, const TrainingProgram& training) const;
    [[nodiscard]] int replica_of(int rank) const { return ranks_.size() - 1 - rank; }
    [[nodiscard]] int rank_of(int replica) const { return ranks_.size() - 1 - replica; }
    /// The messages of all replicas, by replica.
    [[nodiscard]] std::vector<std::vector<std::byte>> gather_bytes(std::span<const std::byte> own) const;
    [[nodiscard]] std::vector<float> mean_of(const op::AllReduce& op, std::vector<float> own) const;
    [[nodiscard]] std::vector<float> own_gradient(const Backend& backend, const op::AllReduce& op) const;
    void merge_history(Backend& backend, const op::UpdateScale& op) const;

    Ranks& ranks_;
    bool in_turn_ = false;                                     ///< the replicas of this step run one after another
    std::map<const op::AllReduce*, std::vector<float>> means_; ///< those of this step that were reduced in backward
};

} // namespace amp
