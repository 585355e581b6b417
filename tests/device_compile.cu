// formats/ compiles for the device without a host/device macro; run by tools/check where nvcc is installed. A kernel
// takes its format by value: a class-type template parameter on a __global__ function breaks nvcc 13.0's host stub.
#include <ampscope/formats/arithmetic.h>
#include <ampscope/formats/dot.h>
#include <ampscope/formats/random.h>
#include <ampscope/formats/scalar_math.h>

__global__ void quantize_and_add(amp::FormatSpec format, amp::Policy policy, amp::RandomKey key, const float* in,
                                 float* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const std::uint32_t random = key.word(i, policy.random_bits);
    amp::Arithmetic unit{format, policy, random};
    const std::uint32_t code = amp::encode(format, in[i], policy, random);
    out[i] = amp::decode(format, unit.fma(code, code, code));
}

__global__ void dot_products(amp::Accumulator accumulator, amp::FormatSpec a_read, amp::FormatSpec b_read,
                             const float* a, const float* b, float* out, unsigned n, unsigned k) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = amp::detail::dot_as_read(accumulator, a_read, b_read, {a + i * k, k}, {b + i * k, k}, out[i]);
}
