#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/all_reduce.h>

namespace amp::op {

using namespace kernels;

namespace {

/// Finds the bits of the largest magnitude; bits are ordered as magnitudes are.
void find_amax(const CudaDevice& device, const float* x, std::int64_t count, std::uint32_t* amax) {
    cuda::each(device, count, [=] AMPSCOPE_DEVICE(std::int64_t i) {
        cuda::atomic_max(*amax, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffff);
    });
}

/// Where a chunk lies, and which of the additions are its own.
struct ChunkPlan {
    ElementRange elements;
    std::int64_t first_addition = 0, additions = 0, owner = 0;
};

/// What a device needs to know of a schedule.
struct DevicePlan {
    DeviceArray<ChunkPlan> chunks;
    DeviceArray<Addition> additions;
};

DevicePlan plan_of(const CudaDevice& device, const Schedule& schedule, std::int64_t count) {
    std::vector<ChunkPlan> chunks;
    std::vector<Addition> additions;
    for (const ChunkSum& sum : sums_of(schedule)) {
        chunks.push_back({schedule.chunk(static_cast<int>(chunks.size()), count), std::ssize(additions),
                          std::ssize(sum.additions), sum.owner});
        additions.insert(additions.end(), sum.additions.begin(), sum.additions.end());
    }
    additions.emplace_back(); // so that the array is not empty
    DevicePlan plan{{device, chunks.size()}, {device, additions.size()}};
    plan.chunks.upload(chunks.data());
    plan.additions.upload(additions.data());
    return plan;
}

/// The replicas' numbers, one replica after the other, become sums of chunks. A thread takes one number of a chunk, or
/// if messages are cast all of them.
void reduce(const CudaDevice& device, const ChunkReduction& how, const DevicePlan& plan, std::int64_t replicas,
            std::int64_t count, float* numbers, float* out) {
    const auto chunks = static_cast<std::int64_t>(plan.chunks.size());
    const ChunkPlan* const all = plan.chunks.data();
    const Addition* const additions = plan.additions.data();
    const std::int64_t length = count / chunks, longer = count % chunks, head = longer * (length + 1);
    cuda::each(device, how.casts ? chunks : count, [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const std::int64_t c = how.casts ? i : i < head ? i / (length + 1) : longer + (i - head) / length;
        const ChunkPlan& chunk = all[c];
        const std::int64_t begin = how.casts ? chunk.elements.begin : i, end = how.casts ? chunk.elements.end : i + 1;
        reduce_chunk(how, {numbers + begin, count, replicas, end - begin}, additions + chunk.first_addition,
                     chunk.additions, chunk.owner);
        for (std::int64_t j = begin; j < end; ++j) out[j] = numbers[chunk.owner * count + j];
    });
}

} // namespace

void run(Cuda& cuda, const AllReduce& op) {
    const auto replicas = static_cast<std::int64_t>(op.in.size()), count = cuda.info(op.out).count();
    float amax = 0;
    if (op.scaled) {
        const DeviceArray<std::uint32_t> found(cuda.device(), 1);
        for (const TensorId id : op.in) find_amax(cuda.device(), cuda.in(id), count, found.data());
        amax = std::bit_cast<float>(found.read()[0]);
    }
    const Transport transport = Transport::of(op, amax);
    const DeviceArray<float> memory(cuda.device(), static_cast<std::size_t>(replicas * count));
    for (std::int64_t r = 0; r < replicas; ++r) {
        const float* const from = cuda.in(op.in[static_cast<std::size_t>(r)]);
        float* const to = memory.data() + r * count;
        cuda::each(cuda.device(), count, [=] AMPSCOPE_DEVICE(std::int64_t i) { to[i] = transport.send(from[i]); });
    }
    float* const out = cuda.out(op.out);
    const Schedule schedule = op.schedule();
    reduce(cuda.device(), chunk_reduction(op, transport, schedule), plan_of(cuda.device(), schedule, count), replicas,
           count, memory.data(), out);
    if (transport.changes_sums())
        cuda::each(cuda.device(), count, [=] AMPSCOPE_DEVICE(std::int64_t i) { out[i] = transport.receive(out[i]); });
    cuda::round_in_place(cuda, op.out);
}

} // namespace amp::op
