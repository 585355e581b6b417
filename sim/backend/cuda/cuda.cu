#include <ampscope/sim/backend/cuda/cuda.h>

#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/mapped.h>

namespace amp {

Cuda::Cuda(const Program& program, const CudaDevice& device, CudaArithmetic arithmetic)
    : Backend(program), device_(device), arithmetic_(arithmetic), buffers_(program.tensors.size()),
      counts_(device, program.tensors.size()) {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
        if (!program.tensors[i].storage)
            buffers_[i].device = {device, static_cast<std::size_t>(program.tensors[i].count())};
}

Cuda::Buffer& Cuda::fetched(TensorId id) const {
    Buffer& b = buffers_[storage(id)];
    if (b.host.empty()) {
        b.host.resize(b.device.size());
        b.device_is_new = true;
    }
    if (b.device_is_new) b.device.download(b.host.data());
    b.device_is_new = false;
    return b;
}

std::span<float> Cuda::operator[](TensorId id) {
    Buffer& b = fetched(id);
    b.host_is_new = true;
    return b.host;
}

std::span<const float> Cuda::operator[](TensorId id) const { return fetched(id).host; }

const float* Cuda::in(TensorId id) {
    Buffer& b = buffers_[storage(id)];
    if (b.host_is_new) b.device.upload(b.host.data());
    b.host_is_new = false;
    return b.device.data();
}

float* Cuda::out(TensorId id) {
    static_cast<void>(in(id));
    Buffer& b = buffers_[storage(id)];
    b.device_is_new = true;
    return b.device.data();
}

RoundingCounts* Cuda::rounding_counts(TensorId id) { return counts_roundings ? counts_.data() + id.index : nullptr; }

void Cuda::run(const Op& op) {
    std::visit([this](const auto& o) { op::run(*this, o); }, op);
    if (!counts_roundings) return;
    const std::vector<RoundingCounts> counts = counts_.read();
    for (std::size_t i = 0; i < counts.size(); ++i) roundings()[i] += counts[i];
    counts_.clear();
}

MakeBackend on_device(const CudaDevice& device, CudaArithmetic arithmetic) {
    return [=](const Program& program) { return std::make_unique<Cuda>(program, device, arithmetic); };
}

} // namespace amp
