#include <ampscope/sim/train/rank_group.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/ranked_all_reduce.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <type_traits>

namespace amp {

namespace {

template <class T>
std::span<const std::byte> bytes_of(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return std::as_bytes(values);
}

/// Throws std::runtime_error for a message that holds another number of values.
template <class T>
std::vector<T> values_of(std::span<const std::byte> bytes, std::size_t count) {
    if (bytes.size() != count * sizeof(T)) throw std::runtime_error("a message of another rank is of another length");
    std::vector<T> values(count);
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
}

/// After which instruction of backward a gradient is complete, the op that then adds it to those of micro-batches, and
/// the op that reduces it.
struct Completion {
    std::size_t instruction = 0;
    const op::AccumulateGradient* total = nullptr;
    const op::AllReduce* reduce = nullptr;
};

/// Those of all gradients, in the order in which they are complete: the same on every rank.
std::vector<Completion> completions(const Program& program) {
    const auto storage = [&](TensorId id) { return program[id].storage ? program[id].storage.index : id.index; };
    std::map<std::int32_t, std::size_t> written; // last by which instruction
    std::map<std::int32_t, const op::AccumulateGradient*> totals;
    for (std::size_t i = 0; i < program.backward.size(); ++i) {
        const Op& op = program.backward[i].op;
        if (const auto* const total = std::get_if<op::AccumulateGradient>(&op)) totals[total->totals[0].index] = total;
        else
            for (const TensorId out : outputs_of(op)) written[storage(out)] = i;
    }
    std::vector<Completion> all;
    for (const Instruction& i : program.check)
        if (const auto* const reduce = std::get_if<op::AllReduce>(&i.op)) {
            const op::AccumulateGradient* const total = totals.at(reduce->in[0].index);
            all.push_back({written[storage(total->in)], total, reduce});
        }
    std::ranges::stable_sort(all, {}, &Completion::instruction);
    return all;
}

/// Whether a first scale follows from the tensor itself in this step: see delayed_scale().
bool begins(const Backend& backend, const DelayedScale& d) {
    const std::span<const float> scale = backend.read(d.scale), history = backend.read(d.history);
    return d.rule.ms_amp && scale.size() == 1 && scale[0] == 1 &&
           std::ranges::all_of(history, [](float amax) { return amax == 0; });
}

/// The scales of delayed scaling and their histories, one after another.
std::vector<float> scales_of(const Backend& backend, const TrainingProgram& training) {
    std::vector<float> state;
    for (const DelayedScale& d : training.delayed_scales)
        for (const TensorId id : {d.scale, d.history}) std::ranges::copy(backend.read(id), std::back_inserter(state));
    return state;
}

void set_scales(Backend& backend, const TrainingProgram& training, std::span<const std::byte> bytes) {
    const std::vector<float> state = values_of<float>(bytes, scales_of(backend, training).size());
    auto next = state.begin();
    for (const DelayedScale& d : training.delayed_scales)
        for (const TensorId id : {d.scale, d.history})
            for (float& x : backend[id]) x = *next++;
}

} // namespace

std::vector<std::vector<std::byte>> RankGroup::gather_bytes(std::span<const std::byte> own) const {
    const int size = ranks_.size(), rank = ranks_.rank();
    std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(size));
    const auto of_rank = [&](int r) -> std::vector<std::byte>& {
        return all[static_cast<std::size_t>(replica_of((r + size) % size))];
    };
    of_rank(rank).assign(own.begin(), own.end());
    for (int step = 1; step < size; ++step) // around the ring, each passes on what it received last
        of_rank(rank - step) = ranks_.exchange((rank + 1) % size, of_rank(rank - step + 1), (rank - 1 + size) % size);
    return all;
}

std::vector<std::byte> RankGroup::from_first(std::span<const std::byte> own) const {
    const int rank = ranks_.rank();
    std::vector<std::byte> bytes = rank == 0 ? std::vector(own.begin(), own.end()) : ranks_.receive(rank - 1).second;
    if (rank + 1 < ranks_.size()) ranks_.send(rank + 1, bytes);
    return bytes;
}

std::vector<double> RankGroup::gather(std::span<const double> own) const {
    std::vector<double> all;
    for (const std::vector<std::byte>& bytes : gather_bytes(bytes_of(own)))
        std::ranges::copy(values_of<double>(bytes, own.size()), std::back_inserter(all));
    return all;
}

std::vector<std::string> RankGroup::gather(const std::string& own) const {
    std::vector<std::string> all;
    for (const std::vector<std::byte>& bytes : gather_bytes(std::as_bytes(std::span(own))))
        all.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::ranges::reverse(all); // they are by replica: see rank_of()
    return all;
}

void RankGroup::begin_replica(Backend& backend, const TrainingProgram& training) {
    const FloatEnvironment environment;
    // All ranks have the same state when a step begins, so they decide alike.
    in_turn_ = std::ranges::any_of(training.delayed_scales, [&](const DelayedScale& d) { return begins(backend, d); });
    if (!in_turn_ || replica() == 0) return;
    set_scales(backend, training, ranks_.receive(rank_of(replica() - 1)).second);
}

void RankGroup::share_buffers(Backend& backend, const TrainingProgram& training) const {
    if (training.buffers.empty()) return;
    std::vector<float> own;
    for (const Parameter& b : training.buffers) std::ranges::copy(backend.read(b.weight), std::back_inserter(own));
    const std::vector<float> first =
        values_of<float>(gather_bytes(bytes_of(std::span<const float>(own)))[0], own.size());
    auto next = first.begin();
    for (const Parameter& b : training.buffers)
        for (float& x : backend[b.weight]) x = *next++;
}

void RankGroup::end_replica(Backend& backend, const TrainingProgram& training) {
    if (!in_turn_) return share_buffers(backend, training);
    const std::vector<float> state = scales_of(backend, training);
    const std::span<const std::byte> bytes = bytes_of(std::span(state));
    if (replica() + 1 < replicas()) ranks_.send(rank_of(replica() + 1), bytes);
    set_scales(backend, training, from_first(bytes)); // of the last replica, from which all go on
    share_buffers(backend, training);                 // not before: the next replica waits for the scales first
}

void RankGroup::gather_contributions(Backend& backend, const TrainingProgram& training) const {
    for (const ParameterTensors& p : training.parameters) {
        const auto own = static_cast<std::size_t>(replica());
        if (ranks_.rank() > 0) {
            ranks_.send(0, bytes_of(backend.read(p.contributions[own])));
            continue;
        }
        for (std::size_t r = 0; r < own; ++r) { // rank 0 has the last replica
            const std::span<float> to = backend[p.contributions[r]];
            const std::vector<std::byte> bytes = ranks_.receive(rank_of(static_cast<int>(r))).second;
            std::ranges::copy(values_of<float>(bytes, to.size()), to.begin());
        }
    }
}

void RankGroup::merge_counts(Backend& backend) const {
    const auto merge = [&](auto& counts) {
        using Counts = std::remove_reference_t<decltype(counts[0])>;
        std::vector<Counts> sums(counts.size());
        for (const std::vector<std::byte>& bytes : gather_bytes(bytes_of(std::span<const Counts>(counts)))) {
            const std::vector<Counts> of_replica = values_of<Counts>(bytes, sums.size());
            for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += of_replica[i];
        }
        counts = std::move(sums);
    };
    if (backend.counts_roundings) merge(backend.roundings());
    if (backend.counts_scalings) merge(backend.scalings());
}

void RankGroup::merge_history(Backend& backend, const op::UpdateScale& op) const {
    const std::span<float> history = backend[op.history];
    const std::size_t rows = backend.read(op.scale).size(), length = history.size() / rows;
    std::vector<float> newest;
    for (std::size_t row = 0; row < rows; ++row) newest.push_back(history[row * length]);
    const auto all = gather_bytes(bytes_of(std::span<const float>(newest)));
    for (std::size_t r = 0; r < all.size(); ++r) {
        const std::vector<float> theirs = values_of<float>(all[r], rows);
        for (std::size_t row = 0; row < rows; ++row) // each replica has seen its own row, or all have seen the only one
            if ((rows == 1 || row == r) && theirs[row] > history[row * length]) history[row * length] = theirs[row];
    }
}

std::vector<float> RankGroup::mean_of(const op::AllReduce& op, std::vector<float> own) const {
    const auto share_amax = [&](float amax) {
        std::uint32_t most = 0; // bits of magnitudes are ordered as magnitudes are
        for (const std::vector<std::byte>& bytes : gather_bytes(bytes_of(std::span<const float>(&amax, 1))))
            most = std::max(most, std::bit_cast<std::uint32_t>(values_of<float>(bytes, 1)[0]));
        return std::bit_cast<float>(most);
    };
    return ranked_all_reduce(op, std::move(own), replica(), share_amax, [&](const Exchange& e) {
        if (e.to && e.from) return ranks_.exchange(rank_of(*e.to), e.bytes, rank_of(*e.from));
        if (e.to) ranks_.send(rank_of(*e.to), e.bytes);
        return e.from ? ranks_.receive(rank_of(*e.from)).second : std::vector<std::byte>();
    });
}

std::vector<float> RankGroup::own_gradient(const Backend& backend, const op::AllReduce& op) const {
    const std::span<const float> own = backend.read(op.in[static_cast<std::size_t>(replica())]);
    return {own.begin(), own.end()};
}

void RankGroup::backward(Backend& backend, const TrainingProgram& training) {
    if (in_turn_) return replay(backend, training.program.backward);
    const std::vector<Completion> all = completions(training.program);
    std::vector<std::vector<float>> own(all.size());
    std::size_t complete = 0;
    std::mutex mutex; // of `complete`
    std::condition_variable_any changed;
    std::exception_ptr failure;
    std::jthread sender([&](const std::stop_token& stop) {
        const FloatEnvironment environment;
        try {
            for (std::size_t i = 0; i < all.size(); ++i) {
                std::unique_lock lock(mutex);
                if (!changed.wait(lock, stop, [&] { return complete > i; })) return;
                lock.unlock();
                means_[all[i].reduce] = mean_of(*all[i].reduce, std::move(own[i]));
            }
        } catch (...) {
            failure = std::current_exception();
        }
    });
    auto next = all.begin();
    const Tape& tape = training.program.backward;
    for (std::size_t i = 0; i < tape.size(); ++i) {
        if (!std::holds_alternative<op::AccumulateGradient>(tape[i].op)) run_op(backend, "backward", tape[i].op);
        for (; next != all.end() && next->instruction <= i; ++next) {
            run_op(backend, "backward", *next->total);
            own[complete] = own_gradient(backend, *next->reduce);
            const std::lock_guard lock(mutex);
            ++complete;
            changed.notify_one();
        }
    }
    sender.join();
    if (failure) std::rethrow_exception(failure);
}

void RankGroup::run(Backend& backend, const Op& op) {
    const FloatEnvironment environment;
    const auto* const reduce = std::get_if<op::AllReduce>(&op);
    if (reduce == nullptr) {
        if (const auto* const update = std::get_if<op::UpdateScale>(&op)) merge_history(backend, *update);
        return backend.run(op);
    }
    auto reduced = means_.extract(reduce);
    const std::vector<float> mean =
        reduced ? std::move(reduced.mapped()) : mean_of(*reduce, own_gradient(backend, *reduce));
    std::ranges::copy(mean, backend[reduce->out].begin());
    backend.run(op::Cast{reduce->out, reduce->out}); // rounded to the format of the tensor, and counted as elsewhere
}

} // namespace amp
