#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/gradient.h>

#include <cmath>

namespace amp::op {

using namespace kernels;

namespace {

/// What all replicas send, one after the other.
struct Sent {
    Transport transport;
    float* data;
    std::int64_t count; ///< number of elements of one replica
};

/// Finds the bits of the largest magnitude; bits are ordered as magnitudes are.
void find_amax(const CudaDevice& device, const float* x, std::int64_t count, std::uint32_t* amax) {
    cuda::each(device, count, [=] AMPSCOPE_DEVICE(std::int64_t i) {
        cuda::atomic_max(*amax, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffff);
    });
}

/// Chunk c of N is summed from replica c + 1 on, around the ring.
void reduce_ring(const CudaDevice& device, const Sent& sent, std::int64_t replicas, float* out) {
    const std::int64_t length = sent.count / replicas, longer = sent.count % replicas;
    cuda::each(device, sent.count, [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const std::int64_t head = longer * (length + 1);
        const std::int64_t chunk = i < head ? i / (length + 1) : longer + (i - head) / length;
        const auto of = [&](std::int64_t r) { return sent.data[(chunk + r) % replicas * sent.count + i]; };
        float sum = of(1);
        for (std::int64_t r = 2; r <= replicas; ++r) sum = sent.transport.add(sum, of(r));
        out[i] = sum;
    });
}

/// Sums neighbours pairwise, then pairs of neighbours: the sum of a part ends up where the part begins.
void reduce_tree(const CudaDevice& device, const Sent& sent, std::int64_t replicas, float* out) {
    cuda::each(device, sent.count, [=] AMPSCOPE_DEVICE(std::int64_t i) {
        for (std::int64_t step = 1; step < replicas; step *= 2)
            for (std::int64_t r = 0; r + step < replicas; r += 2 * step) {
                float& left = sent.data[r * sent.count + i];
                left = sent.transport.add(left, sent.data[(r + step) * sent.count + i]);
            }
        out[i] = sent.data[i];
    });
}

} // namespace

void run(Cuda& cuda, const AllReduce& op) {
    const auto replicas = static_cast<std::int64_t>(op.in.size()), count = cuda.info(op.out).count();
    Transport transport{.format = op.transport};
    if (op.scaled) {
        const DeviceArray<std::uint32_t> amax(cuda.device(), 1);
        for (const TensorId id : op.in) find_amax(cuda.device(), cuda.in(id), count, amax.data());
        transport = Transport::under_scale(op.transport, std::bit_cast<float>(amax.read()[0]), replicas);
    }
    const DeviceArray<float> memory(cuda.device(), static_cast<std::size_t>(replicas * count));
    const Sent sent{transport, memory.data(), count};
    const bool before = op.division == AllReduceDivision::before;
    const auto number = static_cast<double>(replicas);
    for (std::int64_t r = 0; r < replicas; ++r) {
        const float* const from = cuda.in(op.in[static_cast<std::size_t>(r)]);
        float* const to = sent.data + r * count;
        cuda::each(cuda.device(), count,
                   [=] AMPSCOPE_DEVICE(std::int64_t i) { to[i] = transport.send(from[i], before ? number : 1); });
    }
    float* const out = cuda.out(op.out);
    switch (op.order) {
    case AllReduceOrder::ring: reduce_ring(cuda.device(), sent, replicas, out); break;
    case AllReduceOrder::tree: reduce_tree(cuda.device(), sent, replicas, out); break;
    }
    if (op.scaled || !before)
        cuda::each(cuda.device(), count,
                   [=] AMPSCOPE_DEVICE(std::int64_t i) { out[i] = transport.receive(out[i], number); });
    cuda::round_in_place(cuda, op.out);
}

void run(Cuda& cuda, const CheckFinite& op) {
    const DeviceArray<std::uint32_t> flag(cuda.device(), 1);
    std::uint32_t* const found = flag.data();
    for (const TensorId id : op.gradients) {
        const float* const x = cuda.in(id);
        cuda::each(cuda.device(), cuda.info(id).count(), [=] AMPSCOPE_DEVICE(std::int64_t i) {
            if (!(x[i] - x[i] == 0)) cuda::atomic_set(*found);
        });
    }
    cuda.found_inf = cuda.found_inf || flag.read()[0] != 0;
}

/// One thread for each lane of lane_sum(); the squares of the norms are added in the order of the gradients.
void run(Cuda& cuda, const GlobalNorm& op) {
    const DeviceArray<double> memory(cuda.device(), 17);
    double *const lanes = memory.data(), *const total = lanes + 16;
    for (const TensorId id : op.gradients) {
        const float* const x = cuda.in(id);
        const std::int64_t count = cuda.info(id).count();
        const FormatSpec format = cuda.info(id).format;
        cuda::each(cuda.device(), 16, [=] AMPSCOPE_DEVICE(std::int64_t lane) {
            double sum = 0;
            for (std::int64_t i = lane; i < count; i += 16) sum += static_cast<double>(x[i]) * x[i];
            lanes[lane] = sum;
        });
        cuda::each(cuda.device(), 1, [=] AMPSCOPE_DEVICE(std::int64_t) {
            double own[16];
            for (int l = 0; l < 16; ++l) own[l] = lanes[l];
            const double norm = quantize(format, std::sqrt(lane_total(own)));
            *total += norm * norm;
        });
    }
    const cuda::Output to = cuda::output(cuda, op.norm);
    cuda::each(cuda.device(), 1, [=] AMPSCOPE_DEVICE(std::int64_t) { to.put(0, std::sqrt(*total)); });
}

void run(Cuda& cuda, const Clip& op) {
    const FormatSpec f = cuda.info(op.norm).format;
    const float *const norm = cuda.in(op.norm), *const x = cuda.in(op.gradient);
    const double max_norm = op.max_norm;
    const cuda::Output to = cuda::output(cuda, op.gradient);
    cuda::each(cuda.device(), cuda.info(op.gradient).count(), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        to.put(i, x[i] * static_cast<double>(clip_factor(f, norm[0], max_norm)));
    });
}

} // namespace amp::op
