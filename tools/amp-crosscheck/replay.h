// A device against the processor: everything that sim/backend/cuda computes, bit for bit.
#pragma once

#include <ampscope/sim/backend/cuda/device.h>

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amp::crosscheck_tool {

/// What is compared. `accumulators` needs a device; the host has no tensor cores.
inline constexpr std::array<std::string_view, 5> replay_parts = {"conversions", "ops", "accumulators", "training",
                                                                 "speed"};

struct ReplayOptions {
    CudaDevice device{};
    std::vector<std::string> parts{}; ///< of replay_parts; empty: all
    bool quick = false;               ///< samples instead of all 2^32 floats, fewer products, runs of 5 steps
    std::int64_t steps = 100;         ///< of training runs
    std::filesystem::path record{};   ///< a folder for hardware vectors; empty: none are kept
};

struct ReplayMismatch {
    std::string where; ///< op, tensor, index
    std::uint32_t got = 0, want = 0;
};

struct ReplayRow {
    std::string part, name;
    std::int64_t cases = 0, mismatches = 0;
    std::optional<ReplayMismatch> first{};
    std::string note{};

    /// Counts one comparison of bits.
    template <class Where>
    void expect(std::uint32_t got, std::uint32_t want, const Where& where) {
        ++cases;
        if (got == want) return;
        ++mismatches;
        if (!first) first = {where(), got, want};
    }
};

struct SpeedRow {
    std::string name;
    double value = 0;
    std::string unit, note;
};

struct Replay {
    ReplayOptions options;
    std::vector<ReplayRow> rows{};
    std::vector<SpeedRow> speeds{};

    [[nodiscard]] bool agrees() const;
};

/// Called with every finished row.
using ReplayProgress = std::function<void(const ReplayRow&)>;

/// Throws std::runtime_error for faults of the device, FileError where recordings cannot be written.
Replay replay(const ReplayOptions& options, const ReplayProgress& progress);

// The parts.
void replay_conversions(Replay& replay, const ReplayProgress& progress);
void replay_ops(Replay& replay, const ReplayProgress& progress);
void replay_accumulators(Replay& replay, const ReplayProgress& progress);
void replay_training(Replay& replay, const ReplayProgress& progress);
void measure_speed(Replay& replay);

} // namespace amp::crosscheck_tool
