// Ranks by MPI: a module that the programs load when mpirun or srun has started them, so that they need no MPI.
#include <ampscope/sim/base/ranks.h>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>

namespace amp {

namespace {

/// MPI counts in int: longer messages travel in pieces.
constexpr std::uint64_t piece = std::uint64_t{1} << 30;
constexpr int of_lengths = 1, of_bytes = 2; // tags

class MpiRanks : public Ranks {
  public:
    MpiRanks() {
        int provided = 0;
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
        if (provided < MPI_THREAD_SERIALIZED)
            throw std::runtime_error("this MPI does not let several threads use it in turn");
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
    }
    ~MpiRanks() override { MPI_Finalize(); }
    MpiRanks(const MpiRanks&) = delete;
    MpiRanks& operator=(const MpiRanks&) = delete;

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }

    void send(int to, std::span<const std::byte> bytes) override {
        const std::uint64_t length = bytes.size();
        MPI_Send(&length, 1, MPI_UINT64_T, to, of_lengths, MPI_COMM_WORLD);
        for (std::uint64_t at = 0; at < length; at += piece)
            MPI_Send(bytes.data() + at, count_at(at, length), MPI_BYTE, to, of_bytes, MPI_COMM_WORLD);
    }

    std::pair<int, std::vector<std::byte>> receive(int from) override {
        std::uint64_t length = 0;
        const MPI_Status status = wait_for(from == anyone ? MPI_ANY_SOURCE : from);
        MPI_Recv(&length, 1, MPI_UINT64_T, status.MPI_SOURCE, of_lengths, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        std::vector<std::byte> bytes(length);
        for (std::uint64_t at = 0; at < length; at += piece)
            MPI_Recv(bytes.data() + at, count_at(at, length), MPI_BYTE, status.MPI_SOURCE, of_bytes, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        return {status.MPI_SOURCE, std::move(bytes)};
    }

    std::vector<std::byte> exchange(int to, std::span<const std::byte> bytes, int from) override {
        const std::uint64_t length = bytes.size();
        std::vector<MPI_Request> sending(1);
        MPI_Isend(&length, 1, MPI_UINT64_T, to, of_lengths, MPI_COMM_WORLD, sending.data());
        for (std::uint64_t at = 0; at < length; at += piece)
            MPI_Isend(bytes.data() + at, count_at(at, length), MPI_BYTE, to, of_bytes, MPI_COMM_WORLD,
                      &sending.emplace_back());
        std::vector<std::byte> received = receive(from).second;
        MPI_Waitall(static_cast<int>(sending.size()), sending.data(), MPI_STATUSES_IGNORE);
        return received;
    }

  private:
    void end_all(int exit_code) override { MPI_Abort(MPI_COMM_WORLD, exit_code); }
    /// Waits for the length of a message. MPI_Recv would keep a core busy meanwhile, which others count on: what does
    /// not come at once is looked for ever more rarely.
    static MPI_Status wait_for(int source) {
        MPI_Status status;
        std::chrono::microseconds pause{0};
        for (int found = 0;;) {
            MPI_Iprobe(source, of_lengths, MPI_COMM_WORLD, &found, &status);
            if (found != 0) return status;
            if (pause.count() < 50) std::this_thread::yield();
            else std::this_thread::sleep_for(pause);
            pause = std::min(pause + std::chrono::microseconds{1}, std::chrono::microseconds{1000});
        }
    }
    static int count_at(std::uint64_t at, std::uint64_t length) {
        return static_cast<int>(std::min(piece, length - at));
    }

    int rank_ = 0, size_ = 1;
};

} // namespace

} // namespace amp

extern "C" amp::Ranks* ampscope_join_ranks() { return new amp::MpiRanks(); }
