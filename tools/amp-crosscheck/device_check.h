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
inline constexpr std::array<std::string_view, 5> check_parts = {"conversions", "ops", "accumulators", "training",
                                                                "speed"};

struct CheckOptions {
    CudaDevice device{};
    std::vector<std::string> parts{}; ///< parts to compare, from check_parts; empty: all
    bool quick = false;               ///< samples instead of all 2^32 floats, fewer products, runs of 5 steps
    std::int64_t steps = 100;         ///< steps of each training run
    std::filesystem::path record{};   ///< folder for recorded hardware vectors; empty: they are not kept
};

struct BitMismatch {
    std::string where; ///< op, tensor, index
    std::uint32_t got = 0, want = 0;
};

struct CheckRow {
    std::string part, name;
    std::int64_t cases = 0, mismatches = 0;
    std::optional<BitMismatch> first{};
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

struct DeviceCheck {
    CheckOptions options;
    std::vector<CheckRow> rows{};
    std::vector<SpeedRow> speeds{};
    bool finished = false;

    [[nodiscard]] bool agrees() const;
};

/// Called with what there is whenever a row is finished.
using CheckProgress = std::function<void(const DeviceCheck&)>;

/// Rows that an earlier run of the same comparison has made are taken as they are. Throws std::runtime_error if the
/// device fails, FileError if recordings cannot be written.
DeviceCheck check_device(const CheckOptions& options, const std::vector<CheckRow>& earlier,
                         const CheckProgress& progress);

/// Where the parts put their rows.
class CheckRows {
  public:
    CheckRows(DeviceCheck& check, const std::vector<CheckRow>& earlier, const CheckProgress& progress)
        : check_(check), earlier_(earlier), progress_(progress) {}

    [[nodiscard]] const CheckOptions& options() const { return check_.options; }
    /// Puts the row of that name, which `compare` fills unless an earlier run made it.
    void put(std::string_view part, std::string name, const std::function<void(CheckRow&)>& compare);
    /// Puts all rows of a part that are made at once, unless an earlier run made them.
    void put(std::string_view part, const std::function<std::vector<CheckRow>()>& compare);

  private:
    DeviceCheck& check_;
    const std::vector<CheckRow>& earlier_;
    const CheckProgress& progress_;
};

// The parts.
void check_conversions(CheckRows& rows);
void check_ops(CheckRows& rows);
void check_accumulators(CheckRows& rows);
void check_training(CheckRows& rows);
void measure_speed(DeviceCheck& check);

} // namespace amp::crosscheck_tool
