// How fast the device does it: conversions beside a copy, emulated and native products.
#include <ampscope/sim/analysis/histogram.h>
#include <ampscope/sim/backend/cuda/conversion.h>
#include <ampscope/sim/backend/cuda/cuda.h>
#include <ampscope/sim/backend/cuda/tensor_core.h>
#include <ampscope/tools/amp-crosscheck/device_check.h>
#include <ampscope/tools/amp-crosscheck/dot_inputs.h>

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <set>

namespace amp::crosscheck_tool {

namespace {

/// Multiplications a second of a product of n x n matrices.
double product_rate(const CudaDevice& device, CudaArithmetic arithmetic, const std::string& row, const FormatSpec& a,
                    const FormatSpec& b, std::int64_t n) {
    Program program;
    const auto tensor = [&](const char* name, const FormatSpec& f) {
        program.tensors.push_back({.name = name, .shape = {n, n}, .format = f});
        return TensorId{static_cast<std::int32_t>(program.tensors.size() - 1)};
    };
    op::Matmul op;
    op.a = tensor("a", a);
    op.b = tensor("b", b);
    op.out = tensor("out", format("fp32"));
    op.m = op.n = op.k = n;
    op.transpose_b = true;
    op.arithmetic.accumulate = accumulator(row);
    Cuda cuda(program, device, arithmetic);
    for (const TensorId id : {op.a, op.b})
        std::ranges::copy(dot_inputs(DotInputs::normal, cuda.info(id).format, 1, static_cast<std::size_t>(n * n)),
                          cuda[id].begin());
    double least = 0;
    for (int i = 0; i < 5; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        cuda.run(op);
        static_cast<void>(cuda.read(op.out)); // waits for it
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        least = i == 0 ? seconds : std::min(least, seconds);
    }
    return static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / least;
}

} // namespace

void measure_speed(DeviceCheck& check) {
    const CudaDevice& device = check.options.device;
    const std::size_t numbers = check.options.quick ? 1 << 20 : 1 << 28;
    for (const FormatSpec& f : usual_specs) {
        const ConversionTime t = time_conversion(device, f, numbers);
        const auto add = [&](std::string_view how, double seconds) {
            const double rate = 8 * static_cast<double>(numbers) / seconds; // read and written
            check.speeds.push_back(
                {fmt::format("quantize to {}, {}", f.name, how), rate * 1e-9, "GB/s",
                 fmt::format("{:.0f} % of a copy{}", 100 * t.copy / seconds,
                             device.bandwidth > 0
                                 ? fmt::format(", {:.0f} % of the memory's bandwidth", 100 * rate / device.bandwidth)
                                 : "")});
        };
        add("emulated", t.quantize);
        add("native", t.native);
    }
    const std::int64_t n = check.options.quick ? 128 : 1024;
    check.speeds.push_back(
        {fmt::format("product fp32, emulated, {}^3", n),
         product_rate(device, CudaArithmetic::emulated, "fp32", format("fp32"), format("fp32"), n) * 1e-9, "GMAC/s",
         "with the copy of the result"});
    std::set<std::string> seen;
    for (const TensorCoreInstruction& i : tensor_core_instructions(device)) {
        if (!seen.insert(i.accumulator).second) continue;
        const double emulated = product_rate(device, CudaArithmetic::emulated, i.accumulator, i.a, i.b, n),
                     native = product_rate(device, CudaArithmetic::native, i.accumulator, i.a, i.b, n);
        check.speeds.push_back(
            {fmt::format("product {}, emulated, {}^3", i.accumulator, n), emulated * 1e-9, "GMAC/s",
             fmt::format("native {:.1f} GMAC/s, {:.1f} times as fast", native * 1e-9, native / emulated)});
    }
}

} // namespace amp::crosscheck_tool
