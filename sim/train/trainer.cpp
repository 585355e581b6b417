#include <ampscope/sim/train/trainer.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/counts.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/program/memory_plan.h>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace amp {

namespace {

TrainingProgram planned_program(const TrainOptions& options, const Dataset& data, Keeps keeps) {
    TrainingProgram training = build_training_program(options, data);
    if (keeps != Keeps::all)
        training.program.shared = share_memory(training.program, results_of(training, keeps == Keeps::activations));
    return training;
}

} // namespace

Trainer::Trainer(const TrainOptions& options, const Dataset& data, int threads, Keeps keeps)
    : Trainer(options, data, on_processor(threads), keeps) {}

Trainer::Trainer(const TrainOptions& options, const Dataset& data, int threads, RankGroup& group, Keeps keeps)
    : Trainer(options, data, threads, keeps) {
    if (group.replicas() != options.replicas)
        throw std::invalid_argument(
            fmt::format("[train] {} replicas on {} ranks: expected as many", options.replicas, group.replicas()));
    group_ = &group;
}

Trainer::Trainer(const TrainOptions& options, const Dataset& data, const MakeBackend& make, Keeps keeps)
    : options_(options), data_(data), training_(planned_program(options, data, keeps)),
      backend_(make(training_.program)), shuffle_(options.seed, data.training),
      scaler_(initial_state(options.precision.loss_scaler.options)) {
    const FloatEnvironment environment;
    if (data.validation < 1 || data.training < 1)
        throw std::invalid_argument("[train] " + data.name + ": too few examples");
    for (std::size_t i = 0; i < training_.initial.size(); ++i) {
        const Parameter& parameter = training_.initial[i];
        const TensorInfo& info = backend_->info(parameter.weight);
        const std::span<float> weight = (*backend_)[parameter.weight];
        std::ranges::copy(initial_values(parameter, i, info, options.seed), weight.begin());
        if (info.scaled_as) keep_scaled(*info.scaled_as, weight);
        if (const TensorId master = training_.parameters[i].master)
            std::ranges::copy(weight, (*backend_)[master].begin());
    }
    for (const Instruction& gather : training_.gathers()) backend_->run(gather.op);
    for (const DelayedScale& d : training_.delayed_scales) std::ranges::fill((*backend_)[d.scale], 1.0F);
    for (const Parameter& b : training_.buffers)
        std::ranges::fill((*backend_)[b.weight], static_cast<float>(b.init.value)); // constants all
    backend_->context = {.seed = options.seed, .replicas = options.replicas, .micro_batches = options.micro_batches};
}

/// Runs forward and backward on the batches of the context's replica, and adds their losses.
void Trainer::run_replica(std::vector<double>& losses) {
    StepContext& c = backend_->context;
    for (c.micro_batch = 0; c.micro_batch < c.micro_batches; ++c.micro_batch) {
        const std::int64_t part = (step_ * c.replicas + c.replica) * c.micro_batches + c.micro_batch;
        load_batch(*backend_, training_.network, data_, part * options_.batch, options_.batch, &shuffle_);
        replay(*backend_, training_.program.forward);
        losses.push_back(backend_->read(training_.network.loss)[0]);
        if (group_ != nullptr && c.micro_batch + 1 == c.micro_batches) group_->backward(*backend_, training_);
        else replay(*backend_, training_.program.backward);
    }
}

StepResult Trainer::compute() {
    const FloatEnvironment environment;
    StepContext& c = backend_->context;
    StepResult result{.step = step_, .scale = scaler_.scale};
    c.step = static_cast<std::uint32_t>(step_);
    c.loss_scale = scaler_.scale;
    c.training = true;
    in_step_ = true;
    std::vector<double> losses;
    if (group_ == nullptr) {
        for (c.replica = 0; c.replica < c.replicas; ++c.replica) run_replica(losses);
    } else {
        c.replica = group_->replica();
        group_->begin_replica(*backend_, training_);
        run_replica(losses);
        c.replica = c.replicas; // where a process with all replicas ends
        group_->end_replica(*backend_, training_);
        losses = group_->gather(losses);
        group_->merge_counts(*backend_);
    }
    for (const double loss : losses) result.loss += loss / static_cast<double>(losses.size());
    backend_->found_inf = false;
    for (const Instruction& i : training_.program.check)
        if (group_ == nullptr) run_op(*backend_, "check", i.op);
        else run_op(*backend_, "check", i.op, [&] { group_->run(*backend_, i.op); });
    result.found_inf = backend_->found_inf;
    for (const auto& [name, id] : training_.watched_gradients)
        result.amax_activation = std::max(
            result.amax_activation, double{largest_magnitude(backend_->read(id), Magnitudes::finite)} / result.scale);
    return result;
}

StepResult Trainer::apply(StepResult result) {
    const FloatEnvironment environment;
    in_step_ = false;
    StepContext& c = backend_->context;
    const LossScalerRow& row = options_.precision.loss_scaler;
    const LossScalerUpdate update = update_scale(row.options, scaler_, result.found_inf);
    result.verdict = update.verdict;
    if (update.verdict == ScalerVerdict::abort)
        throw std::runtime_error(
            "the loss scale is already at its minimum and gradients are not finite: the run ends, as it would in " +
            std::string(row.name));
    c.unscale_by = update.unscale_by;
    replay(*backend_, training_.program.unscale);
    result.gradient_norm = backend_->read(training_.norm)[0];
    for (const ParameterTensors& p : training_.parameters)
        result.amax_weight =
            std::max(result.amax_weight, double{largest_magnitude(backend_->read(p.gradient), Magnitudes::finite)});
    c.warmup = step_ < options_.warmup ? static_cast<double>(step_ + 1) / static_cast<double>(options_.warmup) : 1;
    result.learning_rate = options_.optimizer.learning_rate * c.warmup;
    if (update.verdict == ScalerVerdict::step) {
        c.update = ++updates_;
        backend_->updates = {};
        replay(*backend_, training_.program.update);
        result.updates = backend_->updates;
    }
    scaler_ = update.state;
    ++step_;
    return result;
}

Evaluation Trainer::evaluate() {
    if (in_step_) throw std::logic_error("[train] evaluate() between compute() and apply(): gradients would be lost");
    backend_->context.training = false;
    backend_->context.replica = 0;
    return evaluate_network(*backend_, training_.network, data_, options_.batch);
}

std::vector<TensorId> Trainer::state_tensors() const {
    std::vector<TensorId> ids;
    for (const ParameterTensors& p : training_.parameters)
        for (const TensorId id : {p.weight, p.master, p.m, p.v, p.v_columns, p.compensation})
            if (id) ids.push_back(id);
    for (const DelayedScale& d : training_.delayed_scales) ids.insert(ids.end(), {d.scale, d.history});
    for (const Parameter& b : training_.buffers) ids.push_back(b.weight);
    return ids;
}

void Trainer::restore(const State& state) {
    step_ = state.step;
    updates_ = state.updates;
    scaler_ = state.scaler;
}

} // namespace amp
