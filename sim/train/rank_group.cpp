#include <ampscope/sim/train/rank_group.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/train/ranked_all_reduce.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace amp {

namespace {

template <class T>
std::span<const std::byte> bytes_of(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return std::as_bytes(values);
}

template <class T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
}

/// Whether a first scale follows from the tensor itself in this step: see delayed_scale().
bool begins(const Backend& backend, const DelayedScale& d) {
    const std::span<const float> scale = backend.read(d.scale), history = backend.read(d.history);
    return d.rule.ms_amp && scale.size() == 1 && scale[0] == 1 &&
           std::ranges::all_of(history, [](float amax) { return amax == 0; });
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

std::vector<std::byte> RankGroup::from_first(std::span<const std::byte> bytes) const {
    return std::move(gather_bytes(bytes)[static_cast<std::size_t>(replica_of(0))]);
}

std::vector<double> RankGroup::gather(std::span<const double> own) const {
    std::vector<double> all;
    for (const std::vector<std::byte>& bytes : gather_bytes(bytes_of(own)))
        std::ranges::copy(values_of<double>(bytes), std::back_inserter(all));
    return all;
}

void RankGroup::begin_replica(Backend& backend, const TrainingProgram& training) {
    const FloatEnvironment environment;
    // All ranks have the same state when a step begins, so they decide alike.
    in_turn_ = std::ranges::any_of(training.delayed_scales, [&](const DelayedScale& d) { return begins(backend, d); });
    if (!in_turn_ || replica() == 0) return;
    std::vector<float> state = values_of<float>(ranks_.receive(rank_of(replica() - 1)).second);
    auto next = state.begin();
    for (const DelayedScale& d : training.delayed_scales)
        for (const TensorId id : {d.scale, d.history})
            for (float& x : backend[id]) x = *next++;
}

void RankGroup::end_replica(Backend& backend, const TrainingProgram& training) {
    if (!in_turn_) return;
    std::vector<float> state;
    for (const DelayedScale& d : training.delayed_scales)
        for (const TensorId id : {d.scale, d.history}) std::ranges::copy(backend.read(id), std::back_inserter(state));
    if (replica() + 1 < replicas()) ranks_.send(rank_of(replica() + 1), bytes_of(std::span<const float>(state)));
    // The last replica has the state that all go on from.
    state = values_of<float>(from_first(bytes_of(std::span<const float>(state))));
    auto next = state.begin();
    for (const DelayedScale& d : training.delayed_scales)
        for (const TensorId id : {d.scale, d.history})
            for (float& x : backend[id]) x = *next++;
}

void RankGroup::merge_counts(Backend& backend) const {
    const auto merge = [&](auto& counts) {
        using Counts = std::remove_reference_t<decltype(counts[0])>;
        std::vector<Counts> sums(counts.size());
        for (const std::vector<std::byte>& bytes : gather_bytes(bytes_of(std::span<const Counts>(counts)))) {
            const std::vector<Counts> of_replica = values_of<Counts>(bytes);
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
        const std::vector<float> theirs = values_of<float>(all[r]);
        for (std::size_t row = 0; row < rows; ++row) // each replica has seen its own row, or all have seen the only one
            if ((rows == 1 || row == r) && theirs[row] > history[row * length]) history[row * length] = theirs[row];
    }
}

void RankGroup::all_reduce(Backend& backend, const op::AllReduce& op) const {
    const auto share_amax = [&](float amax) {
        std::uint32_t most = 0; // bits of magnitudes are ordered as magnitudes are
        for (const std::vector<std::byte>& bytes : gather_bytes(bytes_of(std::span<const float>(&amax, 1))))
            most = std::max(most, std::bit_cast<std::uint32_t>(values_of<float>(bytes)[0]));
        return std::bit_cast<float>(most);
    };
    const std::span<const float> own = backend.read(op.in[static_cast<std::size_t>(replica())]);
    const std::vector<float> mean = ranked_all_reduce(op, own, replica(), share_amax, [&](const Exchange& e) {
        const auto of = [&](int other) { return rank_of(other); };
        if (e.to && e.from) return ranks_.exchange(of(*e.to), e.bytes, of(*e.from));
        if (e.to) ranks_.send(of(*e.to), e.bytes);
        return e.from ? ranks_.receive(of(*e.from)).second : std::vector<std::byte>();
    });
    std::ranges::copy(mean, backend[op.out].begin());
    backend.run(op::Cast{op.out, op.out}); // rounded to the format of the tensor, and counted as it is elsewhere
}

void RankGroup::run(Backend& backend, const Op& op) const {
    const FloatEnvironment environment;
    if (const auto* const reduce = std::get_if<op::AllReduce>(&op)) return all_reduce(backend, *reduce);
    if (const auto* const update = std::get_if<op::UpdateScale>(&op)) merge_history(backend, *update);
    backend.run(op);
}

} // namespace amp
