#include <ampscope/sim/train/lockstep.h>

#include <ampscope/formats/environment.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace amp {

std::int64_t LockstepReport::cases() const {
    std::int64_t sum = 0;
    for (const auto& [op, counts] : ops) sum += counts.cases;
    return sum;
}

std::int64_t LockstepReport::mismatches() const {
    std::int64_t sum = 0;
    for (const auto& [op, counts] : ops) sum += counts.mismatches;
    return sum;
}

Lockstep::Lockstep(const Program& program, std::unique_ptr<Backend> reference, std::unique_ptr<Backend> tested,
                   LockstepReport& report)
    : Backend(program), reference_(std::move(reference)), tested_(std::move(tested)), report_(report) {}

std::span<float> Lockstep::operator[](TensorId id) {
    written_.push_back(id);
    return (*reference_)[id];
}

void Lockstep::tell(Backend& backend) const {
    backend.context = context;
    backend.found_inf = found_inf;
    backend.updates = {};
    backend.counts_roundings = counts_roundings;
    backend.counts_scalings = counts_scalings;
}

void Lockstep::compare(const Op& op, TensorId id, LockstepCounts& counts) {
    const std::span<const float> want = reference_->read(id), got = tested_->read(id);
    counts.cases += static_cast<std::int64_t>(want.size());
    bool differs = false;
    for (std::size_t i = 0; i < want.size(); ++i) {
        const auto w = std::bit_cast<std::uint32_t>(want[i]), g = std::bit_cast<std::uint32_t>(got[i]);
        if (w == g) continue;
        differs = true;
        ++counts.mismatches;
        if (!counts.first) counts.first = {std::string(name_of(op)), info(id).name, static_cast<std::int64_t>(i), g, w};
    }
    if (differs) std::ranges::copy(want, (*tested_)[id].begin());
}

void Lockstep::run(const Op& op) {
    const FloatEnvironment environment;
    for (const TensorId id : written_) std::ranges::copy(reference_->read(id), (*tested_)[id].begin());
    written_.clear();
    tell(*reference_);
    tell(*tested_);
    reference_->run(op);
    tested_->run(op);

    LockstepCounts& counts = report_.ops[std::string(name_of(op))];
    ++counts.runs;
    for (const TensorId id : outputs_of(op)) compare(op, id, counts);
    const auto expect = [&](const char* what, std::int64_t got, std::int64_t want) {
        ++counts.cases;
        if (got == want) return;
        ++counts.mismatches;
        if (!counts.first)
            counts.first = {std::string(name_of(op)), what, 0, static_cast<std::uint32_t>(got),
                            static_cast<std::uint32_t>(want)};
    };
    expect("found_inf", tested_->found_inf, reference_->found_inf);
    expect("updates lost", tested_->updates.lost, reference_->updates.lost);
    expect("updates changed", tested_->updates.changed, reference_->updates.changed);
    expect("updates not finite", tested_->updates.nonfinite, reference_->updates.nonfinite);
    for (const TensorId id : outputs_of(op)) {
        const auto index = static_cast<std::size_t>(id.index);
        RoundingCounts &want = reference_->roundings()[index], &got = tested_->roundings()[index];
        expect("roundings to zero", got.underflow, want.underflow);
        expect("roundings to infinity", got.overflow, want.overflow);
        expect("roundings", got.elements, want.elements);
        roundings()[index] += std::exchange(want, {});
        got = {};
        scalings()[index] = reference_->scalings()[index];
    }
    found_inf = reference_->found_inf;
    updates += reference_->updates;
}

MakeBackend in_lockstep(MakeBackend reference, MakeBackend tested, LockstepReport& report) {
    return [reference = std::move(reference), tested = std::move(tested), &report](const Program& program) {
        return std::make_unique<Lockstep>(program, reference(program), tested(program), report);
    };
}

} // namespace amp
