// Tensor cores against their rows of formats/accumulator.h, dot product by dot product; and recordings of them.
#include <ampscope/formats/dot.h>
#include <ampscope/sim/analysis/recorded_products.h>
#include <ampscope/sim/backend/cuda/tensor_core.h>
#include <ampscope/sim/base/parallel.h>
#include <ampscope/sim/io/write.h>
#include <ampscope/tools/amp-crosscheck/device_check.h>
#include <ampscope/tools/amp-crosscheck/dot_inputs.h>

#include <bit>
#include <fmt/format.h>
#include <utility>

namespace amp::crosscheck_tool {

namespace {

/// A product on the device: a is m x k, b holds the columns of k numbers, c may be empty.
struct Question {
    std::string name;
    std::int64_t batch, m, n, k;
    std::vector<float> a, b, c;
    std::int64_t promote_every = 0;
};

std::vector<float> ask(const CudaDevice& device, const TensorCoreInstruction& i, const Question& q) {
    const auto uploaded = [&](const std::vector<float>& x) {
        DeviceArray<float> array(device, x.size());
        array.upload(x.data());
        return array;
    };
    const DeviceArray<float> a = uploaded(q.a), b = uploaded(q.b), c = uploaded(q.c);
    const DeviceArray<float> out(device, static_cast<std::size_t>(q.batch * q.m * q.n));
    multiply_on_tensor_cores(
        device, i, {a.data(), b.data(), q.c.empty() ? nullptr : c.data(), out.data(), q.batch, q.m, q.n, q.k, q.k},
        q.promote_every);
    return out.read();
}

/// How many of some sums of q the device has that sums nearby do not give.
void refute(const TensorCoreInstruction& i, const Question& q, const std::vector<float>& got,
            std::vector<NearbySum>& nearby) {
    constexpr std::int64_t some = 64;
    const auto k = static_cast<std::size_t>(q.k);
    for_each_chunk(nearby.size(), 1, 0, [&](std::uint64_t at, std::uint64_t) {
        for (std::int64_t line = 0; line < std::min(some, q.m); ++line)
            for (std::int64_t column = 0; column < std::min(some, q.n); ++column) {
                const auto sum = static_cast<std::size_t>(line * q.n + column);
                const float d =
                    dot(nearby[at].accumulator, i.a, i.b, std::span(q.a).subspan(static_cast<std::size_t>(line) * k, k),
                        std::span(q.b).subspan(static_cast<std::size_t>(column) * k, k), q.c[sum]);
                nearby[at].refuted += std::bit_cast<std::uint32_t>(d) != std::bit_cast<std::uint32_t>(got[sum]) ? 1 : 0;
            }
    });
}

/// Compares every sum with the model's.
std::vector<float> compare(const CudaDevice& device, const TensorCoreInstruction& i, const Question& q, CheckRow& row) {
    std::vector<float> got = ask(device, i, q);
    const Accumulator acc =
        accumulator(q.promote_every == 0 ? i.accumulator : fmt::format("{}-promote{}", i.accumulator, q.promote_every));
    std::vector<float> want(got.size());
    const auto k = static_cast<std::size_t>(q.k), n = static_cast<std::size_t>(q.n), m = static_cast<std::size_t>(q.m);
    for_each_chunk(got.size(), std::max<std::uint64_t>(1, 65536 / std::max<std::uint64_t>(k, 1)), 0,
                   [&](std::uint64_t begin, std::uint64_t end) {
                       for (std::size_t at = begin; at < end; ++at) {
                           const std::size_t line = at / n, column = at / (m * n) * n + at % n;
                           want[at] = dot(acc, i.a, i.b, std::span(q.a).subspan(line * k, k),
                                          std::span(q.b).subspan(column * k, k), q.c.empty() ? 0 : q.c[at]);
                       }
                   });
    for (std::size_t at = 0; at < got.size(); ++at)
        row.expect(std::bit_cast<std::uint32_t>(got[at]), std::bit_cast<std::uint32_t>(want[at]),
                   [&] { return fmt::format("{}, k {}, sum {}", q.name, q.k, at); });
    return got;
}

Question random_question(const TensorCoreInstruction& i, DotInputs kind, std::int64_t batch, std::int64_t m,
                         std::int64_t n, std::int64_t k) {
    const auto seed = static_cast<std::uint32_t>(k);
    const FormatSpec sum = format(i.acc16() ? "fp16" : "fp32");
    return {.name = std::string(dot_inputs_names[static_cast<std::size_t>(kind)]),
            .batch = batch,
            .m = m,
            .n = n,
            .k = k,
            .a = dot_inputs(kind, i.a, seed, static_cast<std::size_t>(batch * m * k)),
            .b = dot_inputs(kind, i.b, seed + 1, static_cast<std::size_t>(batch * n * k), true),
            .c = sums_so_far(kind, sum, seed + 2, static_cast<std::size_t>(batch * m * n))};
}

void compare_vectors(const CudaDevice& device, const TensorCoreInstruction& i, CheckRow& row) {
    for (const DotVector& v : published_vectors()) {
        if (!(v.format == i.a) || !(v.format == i.b) || v.acc16 != i.acc16()) continue;
        compare(device, i, {std::string(v.id), 1, 1, 1, static_cast<std::int64_t>(v.a.size()), v.a, v.b, {v.c}}, row);
    }
    if (!i.warpgroup || i.mma != Mma::e4m3_e4m3) return;
    for (const std::int64_t steps : {16, 511, 512, 513, 8192}) { // the sum stays at 64
        const std::vector<float> x(static_cast<std::size_t>(32 * steps), 0.0625F);
        compare(device, i, {"stagnation", 1, 1, 1, 32 * steps, x, x, {}}, row);
    }
}

/// Some sums of every kind of operands, two steps long, as a file that `amp-crosscheck vectors` reads.
void record(const CheckOptions& o, const TensorCoreInstruction& i) {
    constexpr std::int64_t each = 32;
    const std::int64_t k = 2 * i.k();
    Question all{.name = "", .batch = 0, .m = 1, .n = 1, .k = k, .a = {}, .b = {}, .c = {}};
    for (std::size_t kind = 0; kind < dot_inputs_names.size(); ++kind) {
        const Question q = random_question(i, static_cast<DotInputs>(kind), each, 1, 1, k);
        all.batch += each;
        all.a.insert(all.a.end(), q.a.begin(), q.a.end());
        all.b.insert(all.b.end(), q.b.begin(), q.b.end());
        all.c.insert(all.c.end(), q.c.begin(), q.c.end());
    }
    const std::vector<float> d = ask(o.device, i, all);
    const auto cases = static_cast<std::uint64_t>(all.batch), length = static_cast<std::uint64_t>(k);
    std::filesystem::create_directories(o.record);
    const auto name = [&](const FormatSpec& f) { return i.mma == Mma::tf32 ? "fp32" : f.name; }; // as it is stored
    TensorWriter writer =
        create_tensor_file(o.record / fmt::format("{}.{}.{}.safetensors", i.accumulator, name(i.a), name(i.b)),
                           {{.name = "a", .dtype = DType::u32, .shape = {cases, length}},
                            {.name = "b", .dtype = DType::u32, .shape = {cases, length}},
                            {.name = "c", .dtype = DType::u32, .shape = {cases}},
                            {.name = i.acc16() ? "d_fp16" : "d_fp32", .dtype = DType::u32, .shape = {cases}}},
                           {{"device", o.device.name}, {"instruction", i.name()}});
    for (const std::vector<float>* x : {&std::as_const(all.a), &std::as_const(all.b), &std::as_const(all.c), &d})
        writer.append(std::as_bytes(std::span(*x)));
    writer.commit();
}

} // namespace

void check_accumulators(CheckRows& rows) {
    const CheckOptions& o = rows.options();
    const std::int64_t side = o.quick ? 32 : 1000;
    const std::vector<std::int64_t> chains =
        o.quick ? std::vector<std::int64_t>{300} : std::vector<std::int64_t>{1000, 4096, 16384};
    for (const TensorCoreInstruction& i : tensor_core_instructions(o.device))
        rows.put("accumulators", i.name(), [&](CheckRow& row) {
            row.note = fmt::format("{}, {}", i.accumulator, name_of(accumulator(i.accumulator).evidence));
            if (!o.record.empty()) record(o, i);
            compare_vectors(o.device, i, row);
            const std::int64_t step = i.k();
            std::vector<NearbySum> nearby = nearby_sums(accumulator(i.accumulator));
            for (std::size_t kind = 0; kind < dot_inputs_names.size(); ++kind)
                for (const std::int64_t k : {step, 2 * step - 3}) { // a step; two, the second padded with zeros
                    const Question q = random_question(i, static_cast<DotInputs>(kind), 1, side, side / 2, k);
                    refute(i, q, compare(o.device, i, q, row), nearby);
                }
            const std::string left = differences(nearby, false);
            row.note += left.empty() ? ", nothing nearby fits" : ", not told from " + left;
            for (const DotInputs kind : {DotInputs::normal, DotInputs::uniform, DotInputs::cancelling})
                for (const std::int64_t k : chains) {
                    Question q = random_question(i, kind, 1, 24, 24, k);
                    compare(o.device, i, q, row);
                    q.promote_every = 128;
                    compare(o.device, i, q, row);
                }
        });
}

} // namespace amp::crosscheck_tool
