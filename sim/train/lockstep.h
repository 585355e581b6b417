// Runs two backends side by side: every op runs on both, and its results are compared bit for bit.
//
//     LockstepReport report;
//     Trainer trainer(options, data, in_lockstep(on_processor(), on_device(device), report));
//     trainer.step();
//     report.mismatches() == 0
#pragma once

#include <ampscope/sim/backend/backend.h>

#include <map>
#include <optional>
#include <string>

namespace amp {

/// The first number in which they differ.
struct LockstepMismatch {
    std::string op, tensor;
    std::int64_t index = 0;
    std::uint32_t got = 0, want = 0; ///< FP32 bits of the tested backend and of the reference
};

struct LockstepCounts {
    std::int64_t runs = 0, cases = 0, mismatches = 0; ///< ops run, numbers compared, numbers that differ
    std::optional<LockstepMismatch> first{};
};

/// Counts by op. What backends count themselves (infinities found, updates, roundings) is compared as cases of that op.
struct LockstepReport {
    std::map<std::string, LockstepCounts> ops{};

    [[nodiscard]] std::int64_t cases() const;
    [[nodiscard]] std::int64_t mismatches() const;
};

/// A backend that runs ops on two others. It shows the reference's numbers, and copies them to the tested backend where
/// that differs, so that every op is compared on equal operands. The report must outlive it.
class Lockstep final : public Backend {
  public:
    Lockstep(const Program& program, std::unique_ptr<Backend> reference, std::unique_ptr<Backend> tested,
             LockstepReport& report);

    [[nodiscard]] std::span<float> operator[](TensorId id) override;
    [[nodiscard]] std::span<const float> operator[](TensorId id) const override { return reference_->read(id); }
    void run(const Op& op) override;

  private:
    void tell(Backend& backend) const;
    void compare(const Op& op, TensorId id, LockstepCounts& counts);

    std::unique_ptr<Backend> reference_, tested_;
    LockstepReport& report_;
    std::vector<TensorId> written_; ///< tensors written by the host since the last op
};

MakeBackend in_lockstep(MakeBackend reference, MakeBackend tested, LockstepReport& report);

} // namespace amp
