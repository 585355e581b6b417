#include <ampscope/sim/backend/cpu/all_reduce.h>

#include <ampscope/formats/block.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/detail/transport.h>
#include <ampscope/sim/backend/cpu/detail/wide.h>

#include <algorithm>
#include <stdexcept>

namespace amp::op {

using namespace kernels;

namespace {

/// The largest magnitude of all replicas; NaN if there is one.
float amax_of(std::span<const std::span<const float>> gradients) {
    std::vector<float> most;
    for (const std::span<const float> gradient : gradients)
        most.push_back(largest_magnitude(gradient, Magnitudes::all));
    return largest_magnitude(most, Magnitudes::all);
}

/// Pairwise sums without casts: the vectorised version of reduce_chunk().
void add_pairwise(const Transport& transport, const ReplicaChunk& chunk, std::span<const Addition> additions) {
    const auto of = [&](std::int64_t replica) {
        return std::span(chunk.numbers + replica * chunk.stride, static_cast<std::size_t>(chunk.count));
    };
    for (const Addition& a : additions) cpu::add(transport, of(a.to), of(a.from));
}

/// The op on gradients of replicas, wherever they lie.
void reduce(const AllReduce& op, std::span<const std::span<const float>> gradients, int threads, std::span<float> out) {
    const std::int64_t count = std::ssize(out);
    const Transport transport = Transport::of(op, op.scaled ? amax_of(gradients) : 0);
    std::vector<float> replicas;
    replicas.reserve(gradients.size() * out.size());
    for (const std::span<const float> gradient : gradients)
        replicas.insert(replicas.end(), gradient.begin(), gradient.end());
    cpu::send(transport, replicas);

    const Schedule schedule = op.schedule();
    const ChunkReduction how = chunk_reduction(op, transport, schedule);
    const std::vector<ChunkSum> sums = sums_of(schedule);
    const std::int64_t work = count * std::ssize(op.in) / schedule.chunks();
    for_each_chunk(sums.size(), cpu::lines_at_once(work), threads, [&](std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t c = first; c < last; ++c) {
            const auto [begin, end] = schedule.chunk(static_cast<int>(c), count);
            const ReplicaChunk chunk{replicas.data() + begin, count, std::ssize(op.in), end - begin};
            const ChunkSum& sum = sums[c];
            if (how.sum == ReduceSum::pairwise && !how.casts) add_pairwise(transport, chunk, sum.additions);
            else reduce_chunk(how, chunk, sum.additions.data(), std::ssize(sum.additions), sum.owner);
            std::copy_n(chunk.numbers + sum.owner * count, end - begin, out.begin() + begin);
        }
    });
    cpu::receive(transport, out);
}

} // namespace

void run(Cpu& cpu, const AllReduce& op) {
    std::vector<std::span<const float>> gradients;
    for (const TensorId id : op.in) gradients.push_back(cpu[id]);
    reduce(op, gradients, cpu.threads(), cpu[op.out]);
    cpu::round_in_place(cpu, op.out, 0, cpu.info(op.out).count());
}

} // namespace amp::op

namespace amp {

std::vector<float> all_reduced(const AllReduceOptions& o, std::span<const std::span<const float>> gradients,
                               int threads) {
    check(o);
    if (gradients.empty()) throw std::invalid_argument("[all-reduce] expected a gradient of at least one replica");
    for (const std::span<const float> gradient : gradients)
        if (gradient.size() != gradients[0].size())
            throw std::invalid_argument("[all-reduce] expected gradients of the same length");
    const FloatEnvironment environment;
    std::vector<float> mean(gradients[0].size());
    const std::vector<TensorId> replicas(gradients.size());
    op::reduce({replicas, {}, o.order, o.division, o.transport, o.scaled, o.blocks}, gradients, threads, mean);
    return mean;
}

} // namespace amp
