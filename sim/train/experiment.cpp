#include <ampscope/sim/train/experiment.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/base/number.h>
#include <ampscope/sim/base/parallel.h>
#include <ampscope/sim/io/json_value.h>
#include <ampscope/sim/io/step_log.h>
#include <ampscope/sim/train/configuration.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <limits>
#include <set>
#include <stdexcept>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

/// Calls body for every run that has not stopped, several at once.
template <class Body>
void for_each_run(std::vector<Run>& runs, int threads, const Body& body) {
    for_each_chunk(runs.size(), 1, threads, [&](std::uint64_t begin, std::uint64_t) {
        if (runs[begin].stopped.empty()) body(runs[begin]);
    });
}

/// The number of threads of one of the runs, which share the threads asked for, at least one a run.
int threads_of_run(int threads, std::size_t runs, std::size_t run) {
    const auto all = static_cast<std::size_t>(thread_count(threads));
    return static_cast<int>(std::max<std::size_t>(1, all / runs + (run < all % runs ? 1 : 0)));
}

/// Adds the counts of a step's ops to the run's sums by kind, and resets them.
void collect_roundings(Run& run) {
    Backend& backend = run.trainer->backend();
    for (std::size_t i = 0; i < backend.roundings().size(); ++i) {
        const TensorRole role = backend.program().tensors[i].role;
        if (role == TensorRole::gradient) run.gradients += backend.roundings()[i];
        if (role == TensorRole::activation) run.activations += backend.roundings()[i];
        if (role == TensorRole::weight) run.weights += backend.roundings()[i];
        backend.roundings()[i] = {};
    }
}

Json state_of(const RoundingCounts& c) { return {c.elements, c.nonzero, c.underflow, c.overflow}; }
RoundingCounts roundings_from(const Json& j) { return {j.at(0), j.at(1), j.at(2), j.at(3)}; }

/// What a checkpoint holds besides the trainer's state, so that a resumed run reports the same at its end.
Json notes_of(const Run& run) {
    Json losses = Json::array();
    for (const double loss : run.losses)
        losses.push_back(std::isfinite(loss) ? Json(loss) : Json(fmt::format("{}", loss)));
    Json departures = Json::array();
    for (std::size_t kind = 0; run.departures && kind < departure_names.size(); ++kind)
        if (const auto& d = run.departures->first(static_cast<DepartureKind>(kind)))
            departures.push_back({kind, d->step, d->op, d->tensor, finite_or_null(d->error)});
    return {{"losses", losses},
            {"skipped", run.skipped},
            {"roundings", {state_of(run.gradients), state_of(run.activations), state_of(run.weights)}},
            {"updates", {run.updates.lost, run.updates.changed, run.updates.nonfinite}},
            {"departures", departures},
            {"gradient_error", run.gradient_error ? Json(fmt::format("{}", *run.gradient_error)) : Json(nullptr)},
            {"stopped", run.stopped}};
}

/// The notes of a checkpoint.
struct Notes {
    std::vector<double> losses;
    std::int64_t skipped;
    RoundingCounts gradients, activations, weights;
    UpdateCounts updates;
    std::optional<double> gradient_error;
    std::string stopped;
    std::vector<std::pair<DepartureKind, Departure>> departures;
};

Notes notes_from(const Json& json) {
    const auto number = [](const Json& text) { // as {fmt} writes numbers: "nan", "-inf", "0.25"
        const auto digits = text.get<std::string>();
        if (const std::optional<double> value = number_of<double>(digits)) return *value;
        throw std::invalid_argument("'" + digits + "' is no number");
    };
    const Json &roundings = json.at("roundings"), &updates = json.at("updates"), &error = json.at("gradient_error");
    Notes notes{.losses = {},
                .skipped = json.at("skipped"),
                .gradients = roundings_from(roundings.at(0)),
                .activations = roundings_from(roundings.at(1)),
                .weights = roundings_from(roundings.at(2)),
                .updates = {updates.at(0), updates.at(1), updates.at(2)},
                .gradient_error = error.is_null() ? std::nullopt : std::optional(number(error)),
                .stopped = json.at("stopped"),
                .departures = {}};
    for (const Json& loss : json.at("losses"))
        notes.losses.push_back(loss.is_number() ? loss.get<double>() : number(loss));
    for (const Json& d : json.at("departures")) {
        const auto kind = d.at(0).get<std::size_t>();
        if (kind >= departure_names.size()) throw std::out_of_range(fmt::format("{} is no kind of departure", kind));
        const double by = d.at(4).is_null() ? std::numeric_limits<double>::quiet_NaN() : d.at(4).get<double>();
        notes.departures.push_back({static_cast<DepartureKind>(kind), {d.at(1), d.at(2), d.at(3), by}});
    }
    return notes;
}

void restore(Run& run, Notes notes) {
    run.losses = std::move(notes.losses);
    run.skipped = notes.skipped;
    run.gradients = notes.gradients;
    run.activations = notes.activations;
    run.weights = notes.weights;
    run.updates = notes.updates;
    run.gradient_error = notes.gradient_error;
    run.stopped = std::move(notes.stopped);
    for (auto& [kind, departure] : notes.departures)
        if (run.departures) run.departures->restore(kind, std::move(departure));
}

/// Whether a product reads its operands and adds up in any other way than FP32's, in some layer at least.
bool has_own_products(const Program& program) {
    const auto is_own = [](const Instruction& i) {
        const auto* const product = std::get_if<op::Matmul>(&i.op);
        const auto products = products_of(i.op);
        const auto narrow = [](const auto& o) {
            if constexpr (requires { o.is_fp32(); }) return !o.is_fp32();
            else return false;
        };
        return std::ranges::any_of(products, [](const auto& p) { return p != op::MatmulArithmetic{}; }) ||
               (product != nullptr && product->a_scale.scale) || std::visit(narrow, i.op);
    };
    return std::ranges::any_of(program.forward, is_own) || std::ranges::any_of(program.backward, is_own);
}

bool all_fp32(const Run& run) {
    const Precision& p = run.precision();
    const FormatSpec fp32 = format("fp32");
    return !p.autocast.enabled && p.update == UpdateRounding::nearest && p.scaled_state == ScaledState{} &&
           !has_own_products(run.trainer->training().program) &&
           std::ranges::all_of(
               std::initializer_list<FormatSpec>{p.weights, p.activations, p.gradients, p.loss, p.master, p.m, p.v},
               [&](const FormatSpec& f) { return f == fp32; });
}

/// |x / scale - y| / |y| over these tensors of all parameters, where y is the reference's.
double distance_of(const Run& run, const Run& reference, TensorId ParameterTensors::*which, double scale) {
    const auto &ours = run.trainer->training().parameters, &theirs = reference.trainer->training().parameters;
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
        const auto x = run.trainer->backend()[ours[i].*which], y = reference.trainer->backend()[theirs[i].*which];
        for (std::size_t j = 0; j < x.size(); ++j) {
            const double d = x[j] / scale - y[j];
            difference += d * d;
            size += static_cast<double>(y[j]) * y[j];
        }
    }
    return std::sqrt(difference / size);
}

} // namespace

double Run::final_loss() const {
    const FloatEnvironment environment;
    return final_loss_of(losses);
}

Experiment::Experiment(const std::vector<TrainOptions>& runs, const Dataset& data, ExperimentOptions options,
                       const Json& origin)
    : options_(std::move(options)) {
    const FloatEnvironment environment;
    if (!(options_.departure_bound > 0) || !std::isfinite(options_.departure_bound))
        throw std::invalid_argument("[experiment] expected a bound of departures that is positive and finite");
    if (options_.steps < 0 || options_.record_every < 0 || options_.checkpoint_every < 0 ||
        options_.statistics_every < 0)
        throw std::invalid_argument("[experiment] expected numbers of steps that are not negative");
    std::set<std::string> names;
    for (const TrainOptions& o : runs)
        if (!names.insert(o.precision.name).second)
            throw std::invalid_argument("precision " + o.precision.name + " is asked for twice");
    if (runs.empty()) throw std::invalid_argument("[experiment] expected at least one run, got none");
    for (const TrainOptions& o : runs) {
        const int threads = threads_of_run(options_.threads, runs.size(), runs_.size());
        const Keeps keeps = options_.keeps(runs.size());
        Run& run = runs_.emplace_back();
        run.trainer = options_.group == nullptr
                          ? std::make_unique<Trainer>(o, data, threads, keeps)
                          : std::make_unique<Trainer>(o, data, options_.threads, *options_.group, keeps);
        if (options_.profile) run.profile = std::make_unique<TimeProfile>();
        run.trainer->backend().profile = run.profile.get();
    }
    const auto is_reference = [&](const Run& run) {
        return options_.reference.empty() ? all_fp32(run) : run.precision().name == options_.reference;
    };
    if (const auto found = std::ranges::find_if(runs_, is_reference); found != runs_.end()) reference_ = &*found;
    else if (!options_.reference.empty())
        throw std::invalid_argument("reference " + options_.reference + ": no run has that precision");
    for (Run& run : runs_)
        if (reference_ != nullptr && &run != reference_)
            run.departures.emplace(run.trainer->training(), reference_->trainer->training(), options_.departure_bound);
    if (!options_.record.empty()) open_folders(origin, data);
}

void Experiment::begin_together() {
    Json own = {{"steps", options_.steps},
                {"statistics_every", options_.statistics_every},
                {"record", options_.group_records},
                {"record_every", options_.record_every},
                {"record_replicas", options_.record_replicas}};
    for (const Run& run : runs_) own["runs"].push_back(configuration_of(run.trainer->options(), run.trainer->data()));
    const std::string text = own.dump(-1, ' ', false, Json::error_handler_t::replace),
                      first = options_.group->gather(text).front();
    own = Json::parse(text);
    if (const std::string where = difference(Json::parse(first), own); !where.empty())
        throw std::runtime_error("a rank has other options or data than rank 0: " + where);
    const auto shared = [&]<class T>(std::vector<T> values) { // the first rank's; all have as many
        const std::vector<std::byte> bytes = options_.group->from_first(std::as_bytes(std::span<const T>(values)));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    };
    step_ = shared(std::vector{step_})[0];
    for (Run& run : runs_) {
        run.trainer->restore(shared(std::vector{run.trainer->state()})[0]);
        for (const TensorId id : run.trainer->state_tensors()) {
            const std::span<float> tensor = run.trainer->backend()[id];
            std::ranges::copy(shared(std::vector<float>(tensor.begin(), tensor.end())), tensor.begin());
        }
        if (shared(std::vector<char>{run.stopped.empty() ? '\0' : '\1'})[0] != '\0' && run.stopped.empty())
            run.stopped = "stopped before";
    }
}

void Experiment::open_folders(const Json& origin, const Dataset& data) {
    for (Run& run : runs_) {
        Json own = origin;
        own.update(configuration_of(run.trainer->options(), data));
        for (const ParameterTensors& p : run.trainer->training().parameters) {
            const TensorInfo& weight = run.trainer->backend().info(p.weight);
            own["parameters"][weight.name] = weight.shape;
        }
        own["recording"] = {{"gradients_every", options_.record_every},
                            {"activations", options_.record_activations},
                            {"state", options_.record_state},
                            {"statistics_every", options_.statistics_every},
                            {"departure", options_.departure_bound},
                            {"reference", run.departures ? Json(reference_->precision().name) : Json(nullptr)}};
        if (options_.record_replicas) own["recording"]["replicas"] = true;
        run.folder.emplace(options_.record / run.precision().name, own, options_.resume);
        if (!run.folder->warning().empty()) warnings_.push_back(run.folder->warning());
    }
    if (options_.resume) resume();
    for (Run& run : runs_) run.folder->begin(); // the first call that writes
    last_checkpoint_ = step_;
}

/// Steps from which all runs can continue, ascending; empty if all can start anew. Throws FileError if there was such a
/// step but it was lost.
std::vector<std::int64_t> Experiment::common_checkpoints() const {
    std::optional<std::vector<std::int64_t>> common;
    constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
    std::int64_t earliest = none;
    std::string held;
    for (const Run& run : runs_) {
        const std::vector<std::int64_t> steps = RunFolder::checkpoints(run.folder->path());
        std::vector<std::int64_t> both;
        std::ranges::set_intersection(common.value_or(steps), steps, std::back_inserter(both));
        common = std::move(both);
        if (!steps.empty()) earliest = std::min(earliest, steps.front());
        held += fmt::format("{}{}: {}", held.empty() ? "" : "; ", run.precision().name,
                            steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", ")));
    }
    // If the program was killed during the first checkpoint, only some runs have it; then none has continued beyond it.
    const auto is_beyond = [&](const Run& run) { return run.folder->ended() || run.folder->logged_steps() > earliest; };
    if (common->empty() && earliest < none && std::ranges::any_of(runs_, is_beyond))
        throw FileError(options_.record,
                        fmt::format("its runs have no checkpoint of the same step ({}): put back what was lost, or "
                                    "record into another folder",
                                    held));
    return *common;
}

void Experiment::resume() {
    const auto has_steps = [](const Run& run) { return run.folder->holds_steps(); };
    const bool any = std::ranges::any_of(runs_, has_steps);
    for (const Run& run : runs_)
        if (any && !run.folder->begun())
            throw FileError(
                run.folder->path(),
                "holds no run.json, but runs beside it have steps: resume the runs that were begun together");
    std::vector<std::int64_t> steps = common_checkpoints();
    for (const Run& run : runs_)
        if (steps.empty() && run.folder->ended())
            throw FileError(run.folder->path(), "has ended and left no checkpoint to go on from: name another folder");
    std::string damaged;
    for (; !steps.empty(); steps.pop_back()) {
        try {
            std::vector<Notes> notes;
            for (Run& run : runs_)
                run.folder->restore(*run.trainer, steps.back(),
                                    [&](const Json& json) { notes.push_back(notes_from(json)); });
            for (std::size_t i = 0; i < runs_.size(); ++i) restore(runs_[i], std::move(notes[i]));
            step_ = steps.back();
            break;
        } catch (const FileError& error) {
            damaged += (damaged.empty() ? "" : "; ") + std::string(error.what());
        }
    }
    if (steps.empty() && !damaged.empty())
        throw FileError(options_.record, "no checkpoint is left to go on from: " + damaged);
    if (step_ > options_.steps)
        throw FileError(options_.record,
                        fmt::format("the runs are at step {} already, beyond the {} asked for", step_, options_.steps));
    if (!damaged.empty()) warnings_.push_back(fmt::format("{}; goes on from step {}", damaged, step_));
    else if (any && step_ == 0)
        warnings_.push_back(options_.record.string() + ": no checkpoint that every run has; begins again at step 0");
}

void Experiment::compute(Run& run) {
    const bool counts = options_.statistics_every > 0 && step_ % options_.statistics_every == 0;
    run.trainer->backend().counts_roundings = counts;
    const bool records = (run.folder || options_.group_records) && run.precision().has_recipe();
    run.trainer->backend().counts_scalings = records;
    if (records) std::ranges::fill(run.trainer->backend().scalings(), ScalingCounts{});
    run.last = run.trainer->compute();
    run.trainer->backend().counts_roundings = run.trainer->backend().counts_scalings = false;
    if (counts) collect_roundings(run);
    run.losses.push_back(run.last.loss);
    ++run.profiled_steps;
}

/// Whether tensors of this step are recorded, by this process or by another of the group.
bool Experiment::records_tensors() const {
    const bool records = !options_.record.empty() || options_.group_records;
    return records && options_.record_every > 0 && step_ % options_.record_every == 0;
}

void Experiment::apply(Run& run) {
    if (records_tensors() && options_.record_replicas && options_.group != nullptr)
        options_.group->gather_contributions(run.trainer->backend(), run.trainer->training());
    if (run.folder && records_tensors()) {
        run.folder->record_tensors(*run.trainer, run.last, options_.record_activations, options_.record_state);
        if (options_.record_replicas) run.folder->record_replicas(*run.trainer, run.last);
    }
    try {
        run.last = run.trainer->apply(run.last);
    } catch (const std::runtime_error& error) {
        run.stopped = fmt::format("step {}: {}", step_, error.what());
        run.last.verdict = ScalerVerdict::abort;
    }
    run.skipped += run.last.verdict == ScalerVerdict::skip;
    run.updates.lost += run.last.updates.lost;
    run.updates.changed += run.last.updates.changed;
    run.updates.nonfinite += run.last.updates.nonfinite;
    if (!run.folder) return;
    Json line = metrics_of(run.last);
    if (Json scaling = scalings_of(run.trainer->backend()); !scaling.is_null()) line["scaling"] = std::move(scaling);
    run.folder->append_metrics(line);
}

void Experiment::step() {
    const FloatEnvironment environment;
    // On ranks runs take turns, each with all threads, so that all ranks send in the same order.
    const int at_once = options_.group == nullptr ? options_.threads : 1;
    for_each_run(runs_, at_once, [&](Run& run) { compute(run); });
    const bool looks = step_ < 10 || (options_.statistics_every > 0 && step_ % options_.statistics_every == 0);
    for_each_run(runs_, options_.threads, [&](Run& run) {
        const bool broken = run.last.found_inf || !std::isfinite(run.last.loss);
        if (run.departures && (looks || broken))
            run.departures->look(*run.trainer, *reference_->trainer, run.last, reference_->last.scale);
    });
    if (step_ == 0 && reference_ != nullptr) // both are still multiplied by the loss scale of their run
        for (Run& run : runs_)
            run.gradient_error =
                distance_of(run, *reference_, &ParameterTensors::gradient, run.last.scale / reference_->last.scale);
    for_each_run(runs_, at_once, [&](Run& run) { apply(run); });
    ++step_;
    for (Run& run : runs_)
        if (run.departures && finished()) run.departures->look_at_weights(*run.trainer);
    if (options_.checkpoint_every > 0 && (step_ % options_.checkpoint_every == 0 || finished())) checkpoint();
}

void Experiment::checkpoint() {
    // Checkpoints before the last are removed only when every run has a new one: if killed in between, all still have
    // one step.
    for (Run& run : runs_)
        if (run.folder) run.folder->checkpoint(*run.trainer, notes_of(run), step_, last_checkpoint_);
    last_checkpoint_ = step_;
}

std::optional<double> Experiment::distance(const Run& run) const {
    const FloatEnvironment environment;
    return reference_ == nullptr ? std::nullopt
                                 : std::optional(distance_of(run, *reference_, &ParameterTensors::weight, 1));
}

} // namespace amp
