#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/elementwise.h>

#include <cmath>

namespace amp::op {

using namespace kernels;

void run(Cuda& cuda, const Add& op) {
    cuda::map<BinaryKernel<false>>(cuda, op.out, cuda.in(op.a), cuda.in(op.b), cuda.info(op.b).count());
}

void run(Cuda& cuda, const Mul& op) {
    cuda::map<BinaryKernel<true>>(cuda, op.out, cuda.in(op.a), cuda.in(op.b), cuda.info(op.b).count());
}

void run(Cuda& cuda, const Scale& op) { cuda::map<ScaleKernel>(cuda, op.out, cuda.in(op.in), op.factor); }

void run(Cuda& cuda, const Cast& op) { cuda::copy(cuda, op.out, cuda.in(op.in)); }

void run(Cuda& cuda, const Dropout& op) {
    const StepContext& c = cuda.context;
    const auto count = static_cast<std::uint64_t>(cuda.info(op.out).count());
    const double probability = c.training ? op.probability : 0;
    cuda::map<DropoutKernel>(cuda, op.out, cuda.in(op.in), static_cast<std::uint64_t>(std::ceil(probability * 0x1p32)),
                             1 / (1 - probability), RandomKey{.seed = c.seed, .stream = op.stream, .step = c.step},
                             c.part() * count);
}

} // namespace amp::op
