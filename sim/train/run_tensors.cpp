#include <ampscope/sim/train/detail/run_tensors.h>

#include <ampscope/formats/batch.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/write.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <span>

namespace amp {

namespace {

/// The dtype in which a file holds a tensor of that format: the format's own codes if they are whole bytes, else FP32.
DType dtype_of(const FormatSpec& f) {
    for (const DTypeInfo& d : dtypes)
        if (d.kind == NumberKind::format && d.bits >= 8 && d.bits == f.bits() && d.format == f.name) return d.dtype;
    return DType::f32;
}

template <class Code>
void append_codes(TensorWriter& writer, const FormatSpec& f, std::span<const float> values) {
    std::vector<Code> codes(values.size());
    encode(f, values, std::span(codes));
    writer.append(std::as_bytes(std::span(codes)));
}

void append_values(TensorWriter& writer, DType dtype, std::span<const float> values) {
    const FormatSpec f = format(info(dtype).format);
    if (dtype == DType::f32) writer.append(std::as_bytes(values));
    else if (info(dtype).bits == 16) append_codes<std::uint16_t>(writer, f, values);
    else append_codes<std::uint8_t>(writer, f, values);
}

} // namespace

detail::NamedTensors detail::state_of(const Trainer& trainer) {
    NamedTensors tensors;
    for (const TensorId id : trainer.state_tensors()) {
        const TensorInfo& t = trainer.backend().info(id);
        tensors.push_back({t.name, id, t.role == TensorRole::parameter ? TensorKind::weight : TensorKind::state});
    }
    return tensors;
}

detail::NamedTensors detail::recorded_state_of(const Trainer& trainer) {
    NamedTensors tensors = state_of(trainer);
    for (const ParameterTensors& p : trainer.training().parameters) {
        if (!p.master) continue;
        std::erase_if(tensors, [&](const NamedTensor& t) { return t.id == p.master; });
        std::ranges::find(tensors, p.weight, &NamedTensor::id)->id = p.master;
    }
    return tensors;
}

detail::NamedTensors detail::gradients_of(const Trainer& trainer) {
    NamedTensors tensors;
    for (const ParameterTensors& p : trainer.training().parameters)
        tensors.push_back({trainer.backend().info(p.weight).name + ".grad", p.gradient, TensorKind::weight_gradient});
    for (const auto& [name, id] : trainer.training().watched_gradients)
        tensors.push_back({name, id, TensorKind::activation_gradient});
    return tensors;
}

detail::NamedTensors detail::gradients_of_replicas(const Trainer& trainer) {
    NamedTensors tensors;
    for (std::size_t r = 0; r < static_cast<std::size_t>(trainer.options().replicas); ++r)
        for (const ParameterTensors& p : trainer.training().parameters)
            tensors.push_back({fmt::format("replica_{}.{}.grad", r, trainer.backend().info(p.weight).name),
                               p.contributions[r], TensorKind::weight_gradient});
    return tensors;
}

detail::NamedTensors detail::activations_of(const Trainer& trainer) {
    NamedTensors tensors;
    for (const auto& [name, id] : trainer.training().watched_activations)
        tensors.push_back({name, id, TensorKind::activation});
    return tensors;
}

detail::NamedTensors detail::weights_of(const Trainer& trainer) {
    NamedTensors tensors;
    for (const ParameterTensors& p : trainer.training().parameters)
        tensors.push_back({trainer.backend().info(p.weight).name, p.updated(), TensorKind::weight});
    return tensors;
}

std::map<std::string, std::string> detail::metadata_of(const NamedTensors& tensors, std::int64_t step) {
    auto kinds = nlohmann::ordered_json::object();
    for (const NamedTensor& t : tensors) kinds[t.name] = name_of(t.kind);
    return {{"schema_version", std::to_string(run_layout::schema_version)},
            {"step", std::to_string(step)},
            {"kinds", kinds.dump()}};
}

void detail::write_tensors(const std::filesystem::path& file, const Trainer& trainer, const NamedTensors& tensors,
                           const std::map<std::string, std::string>& metadata, bool checkpoint) {
    std::vector<TensorEntry> entries;
    for (const NamedTensor& tensor : tensors) {
        const TensorInfo& t = trainer.backend().info(tensor.id);
        entries.push_back({.name = tensor.name,
                           .dtype = checkpoint ? DType::f32 : dtype_of(t.format),
                           .shape = {t.shape.begin(), t.shape.end()}});
    }
    TensorWriter writer =
        checkpoint ? create_sealed_file(file, entries, metadata) : create_tensor_file(file, entries, metadata);
    for (std::size_t i = 0; i < tensors.size(); ++i)
        append_values(writer, entries[i].dtype, trainer.backend()[tensors[i].id]);
    writer.commit();
}

} // namespace amp
