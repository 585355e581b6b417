#include <ampscope/formats/batch.h>
#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/cpu/detail/wide.h>
#include <ampscope/sim/backend/kernels/gradient.h>

#include <atomic>
#include <cmath>

namespace amp::op {

using namespace kernels;

namespace {

struct FiniteKernel {
    AMPSCOPE_KERNEL void run(const float* x, std::int64_t n, bool* finite) {
        float zero = 0; // 0 unless an element is infinite or NaN
        for (std::int64_t i = 0; i < n; ++i) zero = x[i] - x[i] == 0 ? zero : 1;
        *finite = zero == 0;
    }
};

struct SquaresKernel {
    AMPSCOPE_KERNEL void run(const float* x, std::int64_t n, double* sum) {
        *sum = lane_sum(n, [&](std::int64_t i) { return static_cast<double>(x[i]) * x[i]; });
    }
};

/// sum += term, in the transport's format.
void add_to(const Transport& transport, std::span<float> sum, std::span<const float> term) {
    apply(Operation::add, transport.format, sum, term, {}, sum, {.policy = transport.policy()});
}

/// Chunk c of N is summed from replica c + 1 on, around the ring.
void reduce_ring(const Transport& transport, const std::vector<std::vector<float>>& sent, std::span<float> out) {
    const std::size_t n = sent.size(), length = out.size() / n, longer = out.size() % n;
    for (std::size_t c = 0, begin = 0; c < n; ++c) {
        const std::size_t extent = length + (c < longer ? 1 : 0);
        const auto part = out.subspan(begin, extent);
        for (std::size_t s = 1; s <= n; ++s) {
            const auto from = std::span(sent[(c + s) % n]).subspan(begin, extent);
            if (s == 1) std::ranges::copy(from, part.begin());
            else add_to(transport, part, from);
        }
        begin += extent;
    }
}

void reduce_tree(const Transport& transport, std::vector<std::vector<float>> sent, std::span<float> out) {
    while (sent.size() > 1) {
        std::vector<std::vector<float>> next;
        for (std::size_t i = 0; i < sent.size(); i += 2) {
            if (i + 1 < sent.size()) add_to(transport, sent[i], sent[i + 1]);
            next.push_back(std::move(sent[i]));
        }
        sent = std::move(next);
    }
    std::ranges::copy(sent.front(), out.begin());
}

/// The largest magnitude of all replicas; NaN if there is one.
float amax_of(const Cpu& cpu, const std::vector<TensorId>& gradients) {
    std::uint32_t most = 0; // bits of magnitudes are ordered as magnitudes are
    for (const TensorId id : gradients)
        for (const float x : cpu[id]) most = std::max(most, std::bit_cast<std::uint32_t>(x) & 0x7fffffff);
    return std::bit_cast<float>(most);
}

/// values / divisor in the transport's format: the vectorised version of an unscaled Transport.
void divide(const FormatSpec& format, std::span<float> values, double divisor) {
    std::vector<double> wide(values.begin(), values.end());
    for (double& x : wide) x /= divisor;
    cpu::round_wide(format, wide.data(), values.data(), static_cast<std::int64_t>(values.size()));
}

double rounded(const FormatSpec& f, double x) { return quantize(f, x); }

} // namespace

void run(Cpu& cpu, const AllReduce& op) {
    const std::size_t replicas = op.in.size();
    const Transport transport =
        op.scaled ? Transport::under_scale(op.transport, amax_of(cpu, op.in), static_cast<std::int64_t>(replicas))
                  : Transport{.format = op.transport};
    const bool before = op.division == AllReduceDivision::before;
    const auto number = static_cast<double>(replicas);
    std::vector<std::vector<float>> sent;
    for (const TensorId id : op.in) {
        sent.emplace_back(cpu[id].begin(), cpu[id].end());
        if (!op.scaled) divide(op.transport, sent.back(), before ? number : 1);
        else
            for (float& x : sent.back()) x = transport.send(x, 1);
    }
    const std::span<float> out = cpu[op.out];
    switch (op.order) {
    case AllReduceOrder::ring: reduce_ring(transport, sent, out); break;
    case AllReduceOrder::tree: reduce_tree(transport, std::move(sent), out); break;
    }
    if (!op.scaled && !before) divide(op.transport, out, number);
    for (float& x : op.scaled ? out : std::span<float>{}) x = transport.receive(x, number);
    cpu::round_in_place(cpu, op.out, 0, cpu.info(op.out).count());
}

void run(Cpu& cpu, const CheckFinite& op) {
    std::atomic<bool> found = false;
    for (const TensorId id : op.gradients) {
        const float* const x = cpu[id].data();
        cpu::for_elements(cpu, cpu.info(id).count(), [&](std::int64_t begin, std::int64_t end) {
            bool finite = true;
            dispatch<FiniteKernel>(best_instruction_set(), x + begin, end - begin, &finite);
            if (!finite) found = true;
        });
    }
    cpu.found_inf = cpu.found_inf || found;
}

void run(Cpu& cpu, const GlobalNorm& op) {
    double total = 0;
    for (const TensorId id : op.gradients) {
        double squares = 0;
        dispatch<SquaresKernel>(best_instruction_set(), static_cast<const float*>(cpu[id].data()), cpu.info(id).count(),
                                &squares);
        const double norm = rounded(cpu.info(id).format, std::sqrt(squares));
        total += norm * norm;
    }
    total = std::sqrt(total);
    cpu::store(cpu, op.norm, 0, &total, 1);
}

void run(Cpu& cpu, const Clip& op) {
    const double factor = clip_factor(cpu.info(op.norm).format, cpu[op.norm][0], op.max_norm);
    map(cpu, WideProductKernel{}, op.gradient, static_cast<const float*>(cpu[op.gradient].data()), factor);
}

} // namespace amp::op
