#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/backend/cpu/all_reduce.h>
#include <ampscope/sim/program/training_program.h>

#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

namespace amp::python {

namespace {

/// The mean of gradients in the first axis.
Result<float> mean_of(const Array<float>& gradients, const std::string& algorithm, const std::string& payload_name,
                      const std::string& divide, bool scaled, int threads) {
    const Payload payload = payload_of(payload_name);
    const AllReduceOptions options{.order = parse_name<AllReduceOrder>("algorithm", all_reduce_order_names, algorithm),
                                   .division =
                                       parse_name<AllReduceDivision>("division", all_reduce_division_names, divide),
                                   .transport = payload.format,
                                   .scaled = scaled,
                                   .blocks = payload.blocks};
    const std::size_t replicas = gradients.shape(0), count = gradients.shape(1);
    std::vector<std::span<const float>> parts;
    for (std::size_t r = 0; r < replicas; ++r) parts.push_back(span_of(gradients).subspan(r * count, count));
    return filled<float>(
        {count}, [&](std::span<float> out) { std::ranges::copy(all_reduced(options, parts, threads), out.begin()); });
}

/// (kind, name, meaning, source) of algorithms, divisions and sharded optimizers.
std::vector<std::tuple<std::string_view, std::string_view, std::string_view, std::string_view>> collectives() {
    std::vector<std::tuple<std::string_view, std::string_view, std::string_view, std::string_view>> all;
    const auto add = [&](std::string_view kind, const auto& rows) {
        for (const auto& row : rows) all.emplace_back(kind, row.name, row.meaning, row.source);
    };
    add("algorithm", all_reduce_rows);
    add("divide", all_reduce_divisions);
    add("shard", shardings);
    return all;
}

} // namespace

void bind_collective(nb::module_& m) {
    m.def("all_reduce", &mean_of, nb::arg("gradients").noconvert(), nb::arg("algorithm"), nb::arg("format"),
          nb::arg("divide"), nb::arg("scaled"), nb::arg("threads"), InEnvironment());
    m.def("collectives", &collectives, InEnvironment());
}

} // namespace amp::python
