// Two backends side by side: every op runs on both, and what it wrote is compared bit for bit.
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

/// The first number that differs.
struct LockstepMismatch {
    std::string op, tensor;
    std::int64_t index = 0;
    std::uint32_t got = 0, want = 0; ///< FP32 bits
};

struct LockstepCounts {
    std::int64_t runs = 0, cases = 0, mismatches = 0; ///< ops run, numbers compared, of these different
    std::optional<LockstepMismatch> first{};
};

/// By op; counts of what backends count (infinities found, updates, roundings) are cases of the op that counts.
struct LockstepReport {
    std::map<std::string, LockstepCounts> ops{};

    [[nodiscard]] std::int64_t cases() const;
    [[nodiscard]] std::int64_t mismatches() const;
};

/// A backend that runs ops on both, shows the numbers of the reference, and gives them to the other where it differs,
/// so that every op is compared on equal operands. The report must outlive it.
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
    std::vector<TensorId> written_; ///< by the host since the last op
};

MakeBackend in_lockstep(MakeBackend reference, MakeBackend tested, LockstepReport& report);

} // namespace amp
