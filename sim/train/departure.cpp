#include <ampscope/sim/train/departure.h>

#include <ampscope/formats/environment.h>

#include <cmath>
#include <map>
#include <set>

namespace amp {

namespace {

/// The last gradient tensor of each tensor, which the tape ends with after adding the contributions of all uses.
std::map<int, TensorId> final_gradients(const TrainingProgram& t) {
    std::map<int, TensorId> last;
    for (const Instruction& i : t.program.backward)
        for (const TensorId out : outputs_of(i.op))
            if (const TensorId of = t.program[out].gradient_of) last[of.index] = out;
    return last;
}

bool any_nonzero(std::span<const float> x) {
    for (const float v : x)
        if (v != 0) return true;
    return false;
}

bool any_infinite(std::span<const float> x) {
    for (const float v : x)
        if (std::isinf(v)) return true;
    return false;
}

bool any_nan(std::span<const float> x) {
    for (const float v : x)
        if (v != v) return true;
    return false;
}

/// |x / scale - y| / |y|; NaN if x is not finite, 0 if y is zero.
double relative_error(std::span<const float> x, double scale, std::span<const float> y) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double d = x[i] / scale - y[i];
        difference += d * d;
        size += static_cast<double>(y[i]) * y[i];
    }
    return size > 0 ? std::sqrt(difference / size) : 0;
}

} // namespace

DepartureWatch::DepartureWatch(const TrainingProgram& run, const TrainingProgram& reference, double bound)
    : bound_(bound) {
    std::map<std::string, TensorId> by_name;
    for (std::size_t i = 0; i < reference.program.tensors.size(); ++i)
        by_name[reference.program.tensors[i].name] = {static_cast<std::int32_t>(i)};
    const auto twin = [&](TensorId id) {
        const auto found = by_name.find(run.program[id].name);
        return found != by_name.end() && reference.program[found->second].shape == run.program[id].shape ? found->second
                                                                                                         : TensorId{};
    };
    for (const ParameterTensors& p : run.parameters)
        if (const TensorId other = twin(p.weight)) pairs_.push_back({op::Update::name, p.weight, other, Pair::updated});
    for (const Instruction& i : run.program.forward)
        for (const TensorId out : outputs_of(i.op))
            if (const TensorId other = twin(out); other && !run.program[out].storage)
                pairs_.push_back({name_of(i.op), out, other, Pair::result});

    const std::map<int, TensorId> ours = final_gradients(run), theirs = final_gradients(reference);
    for (const Instruction& i : run.program.backward)
        for (const TensorId out : outputs_of(i.op)) {
            const TensorId of = run.program[out].gradient_of;
            if (!of || run.program[out].storage || ours.at(of.index) != out) continue;
            const TensorId other = twin(of);
            const auto found = theirs.find(other.index);
            if (other && found != theirs.end()) pairs_.push_back({name_of(i.op), out, found->second, Pair::gradient});
        }
}

void DepartureWatch::note(DepartureKind kind, const Trainer& run, const Pair& pair, std::int64_t step, double error) {
    auto& found = found_[static_cast<std::size_t>(kind)];
    if (pair.kind == Pair::updated) --step; // weights are results of the step before
    if (!found) found = {step, std::string(pair.op), run.training().program[pair.run].name, error};
}

void DepartureWatch::look(const Trainer& run, const Trainer& reference, const StepResult& step,
                          double reference_scale) {
    const FloatEnvironment environment;
    const Backend &ours = run.backend(), &theirs = reference.backend();
    const bool broken = step.found_inf || !std::isfinite(step.loss); // else no tensor is infinite or NaN
    const auto wants = [&](DepartureKind kind) { return !first(kind); };
    for (const Pair& pair : pairs_) {
        const std::span<const float> x = ours[pair.run], y = theirs[pair.reference];
        if (broken && wants(DepartureKind::infinite) && any_infinite(x))
            note(DepartureKind::infinite, run, pair, step.step);
        if (broken && wants(DepartureKind::nan) && any_nan(x)) note(DepartureKind::nan, run, pair, step.step);
        if (pair.kind == Pair::gradient && wants(DepartureKind::zero_gradient) && !any_nonzero(x) && any_nonzero(y))
            note(DepartureKind::zero_gradient, run, pair, step.step);
        // Weights are not judged by error: one that begins at zero is far off as soon as its first gradients differ in
        // sign.
        if (!wants(DepartureKind::error) || pair.kind == Pair::updated) continue;
        const double error = relative_error(x, pair.kind == Pair::gradient ? step.scale / reference_scale : 1, y);
        if (!(error <= bound_)) note(DepartureKind::error, run, pair, step.step, error);
    }
}

void DepartureWatch::look_at_weights(const Trainer& run) {
    for (const Pair& pair : pairs_) {
        if (pair.kind != Pair::updated) continue;
        const std::span<const float> x = run.backend().read(pair.run);
        if (!first(DepartureKind::infinite) && any_infinite(x)) note(DepartureKind::infinite, run, pair, run.steps());
        if (!first(DepartureKind::nan) && any_nan(x)) note(DepartureKind::nan, run, pair, run.steps());
    }
}

} // namespace amp
