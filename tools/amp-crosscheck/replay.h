// Compares a device with the processor, bit for bit: everything that sim/backend/cuda computes.
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

/// The parts that can be compared. `accumulators` needs a device; the host has no tensor cores.
inline constexpr std::array<std::string_view, 5> replay_parts = {"conversions", "ops", "accumulators", "training",
                                                                 "speed"};

struct ReplayOptions {
    CudaDevice device{};
    std::vector<std::string> parts{}; ///< parts to compare, from replay_parts; empty: all
    bool quick = false;               ///< samples instead of all 2^32 floats, fewer products, runs of 5 steps
    std::int64_t steps = 100;         ///< steps of each training run
    std::filesystem::path record{};   ///< folder for recorded hardware vectors; empty: they are not kept
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

    /// Counts a comparison of bits.
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

/// Throws std::runtime_error if the device fails, FileError if recordings cannot be written.
Replay replay(const ReplayOptions& options, const ReplayProgress& progress);

// The parts.
void replay_conversions(Replay& replay, const ReplayProgress& progress);
void replay_ops(Replay& replay, const ReplayProgress& progress);
void replay_accumulators(Replay& replay, const ReplayProgress& progress);
void replay_training(Replay& replay, const ReplayProgress& progress);
void measure_speed(Replay& replay);

} // namespace amp::crosscheck_tool
