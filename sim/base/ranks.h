// Processes that work on one thing together, on one machine or many: the ranks of MPI. Arithmetic never goes through
// it: ranks exchange bytes, and whoever receives them computes in an order that does not depend on timing.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace amp {

/// One rank's view of all of them. Its functions may be called by several threads, one at a time.
class Ranks {
  public:
    virtual ~Ranks() = default;
    [[nodiscard]] virtual int rank() const = 0; ///< from 0
    [[nodiscard]] virtual int size() const = 0;
    /// Sends a message of any length; returns when the bytes may be changed again.
    virtual void send(int to, std::span<const std::byte> bytes) = 0;
    static constexpr int anyone = -1;
    /// Waits for the next message from a rank, or from anyone. Returns who sent it, and the message.
    virtual std::pair<int, std::vector<std::byte>> receive(int from) = 0;
    /// Sends a message to one rank and receives one from another, at once, so that a ring of ranks does not wait for
    /// itself. Each message that is sent is received by an exchange or receive().
    virtual std::vector<std::byte> exchange(int to, std::span<const std::byte> bytes, int from) = 0;
    /// Ends all ranks, without waiting for them.
    [[noreturn]] void abort(int exit_code) {
        end_all(exit_code);
        std::abort(); // not reached
    }

  protected:
    virtual void end_all(int exit_code) = 0;
};

/// How many ranks this process was started as one of, by the environment that mpirun and srun leave it; 1: alone.
int launched_ranks();

/// Which of them this process is, by the same; 0: the first, or alone.
int launched_rank();

/// Joins the other ranks. They are connected by a module beside the programs, which alone is linked with MPI. Throws
/// std::runtime_error if it was not built or cannot be loaded, or MPI knows another number of ranks than the launcher.
std::unique_ptr<Ranks> join_ranks();

/// The name of the function by which the module joins; it returns a new Ranks.
inline constexpr const char* ranks_entry = "ampscope_join_ranks";

} // namespace amp
