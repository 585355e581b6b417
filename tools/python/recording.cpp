#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/analysis/norms.h>
#include <ampscope/sim/io/folder_lock.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/run_facts.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/write.h>
#include <ampscope/sim/train/run_folder.h>

#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/tuple.h>
#include <nlohmann/json.hpp>

namespace amp::python {

namespace {

/// Name, element type by its name in torch, shape, bytes.
using NamedTensor = std::tuple<std::string, std::string, std::vector<std::uint64_t>, Array<std::uint8_t>>;

DType dtype_named(const std::string& torch_name) {
    for (const DTypeInfo& d : dtypes)
        if (d.torch == torch_name) return d.dtype;
    throw std::invalid_argument("torch." + torch_name + " has no counterpart in safetensors files");
}

void write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                   const std::map<std::string, std::string>& metadata) {
    std::vector<TensorEntry> entries;
    for (const auto& [name, dtype, shape, bytes] : tensors)
        entries.push_back({.name = name, .dtype = dtype_named(dtype), .shape = shape});
    const nb::gil_scoped_release release;
    TensorWriter writer = create_tensor_file(path, entries, metadata);
    for (const NamedTensor& tensor : tensors) writer.append(std::as_bytes(span_of(std::get<3>(tensor))));
    writer.commit();
}

void write_text(const std::string& path, const std::string& text) {
    const nb::gil_scoped_release release;
    write_text_file(path, text);
}

nb::tuple read_tensors(const std::string& path) {
    const auto file = open_complete_file(path);
    nb::list tensors;
    for (std::size_t i = 0; i < file->tensors().size(); ++i) {
        const TensorEntry& entry = file->tensors()[i];
        auto bytes = std::make_unique<std::byte[]>(entry.bytes + 1);
        {
            const nb::gil_scoped_release release;
            file->stream(i)->read(std::span(bytes.get(), entry.bytes));
        }
        const nb::capsule owner(bytes.get(), [](void* p) noexcept { delete[] static_cast<std::byte*>(p); });
        const std::size_t size = entry.bytes;
        const Result<std::uint8_t> array(reinterpret_cast<std::uint8_t*>(bytes.release()), 1, &size, owner);
        const auto shape = entry.storage_order ? std::vector<std::uint64_t>{entry.count} : entry.shape;
        const DTypeInfo& type = info(entry.dtype);
        tensors.append(nb::make_tuple(entry.name, std::string(type.name), std::string(type.numpy), shape, array));
    }
    return nb::make_tuple(file->metadata(), tensors);
}

std::pair<double, double> norms_of(const std::vector<Array<float>>& arrays) {
    const nb::gil_scoped_release release;
    Norms norms;
    for (const Array<float>& array : arrays) norms.add(span_of(array));
    return {norms.two(), norms.largest()};
}

std::string line_of(const MagnitudeHistogram& h, std::int64_t step, const std::string& tensor, const std::string& kind,
                    double loss_scale, const std::string& format) {
    return histogram_line({.step = step,
                           .tensor = tensor,
                           .kind = parse_kind(kind, run_layout::schema_version),
                           .format = format,
                           .scale = loss_scale,
                           .magnitudes = h})
        .dump();
}

/// What each line holds, and the warnings of those that could not be read.
nb::tuple read_lines(const std::string& path) {
    nb::list lines;
    std::vector<std::string> warnings;
    read_histogram_log(
        path,
        [&](const RecordedMagnitudes& r) {
            nb::dict line;
            line["step"] = r.step;
            line["tensor"] = r.tensor;
            line["kind"] = std::string(name_of(r.kind));
            line["loss_scale"] = r.scale;
            line["format"] = r.format;
            line["histogram"] = r.magnitudes;
            lines.append(line);
        },
        warnings);
    return nb::make_tuple(lines, warnings);
}

nb::object object_of(const nlohmann::ordered_json& json) {
    switch (json.type()) {
    case nlohmann::ordered_json::value_t::object: {
        nb::dict object;
        for (const auto& [key, value] : json.items()) object[nb::str(key.data(), key.size())] = object_of(value);
        return object;
    }
    case nlohmann::ordered_json::value_t::array: {
        nb::list array;
        for (const auto& value : json) array.append(object_of(value));
        return array;
    }
    case nlohmann::ordered_json::value_t::string: return nb::cast(json.get<std::string>());
    case nlohmann::ordered_json::value_t::boolean: return nb::cast(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer: return nb::cast(json.get<std::int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned: return nb::cast(json.get<std::uint64_t>());
    case nlohmann::ordered_json::value_t::number_float: return nb::cast(json.get<double>());
    default: return nb::none();
    }
}

nb::dict read_json(const std::string& path) { return nb::cast<nb::dict>(object_of(read_json_object(path))); }

/// What each complete line of JSON Lines holds: the last line may still be written.
nb::list read_json_lines(const std::string& path) {
    nb::list lines;
    TextFile file(path);
    for (std::string line; file.next_line(line);)
        if (!file.ended()) lines.append(object_of(parse_json(line, path, fmt::format("line {}: ", file.number()))));
    return lines;
}

} // namespace

void bind_recording(nb::module_& m) {
    nb::list types; // name, format, NumPy's kind and size, torch's name, bits
    for (const DTypeInfo& d : dtypes)
        types.append(nb::make_tuple(std::string(d.name),
                                    std::string(d.kind == NumberKind::format ? d.format : std::string_view()),
                                    std::string(d.numpy), std::string(d.torch), d.bits));
    m.attr("dtypes") = types;
    const nb::object layout = nb::module_::import_("types").attr("SimpleNamespace")();
    layout.attr("schema_version") = run_layout::schema_version;
    layout.attr("kinds") =
        nb::tuple(nb::cast(std::vector<std::string>(tensor_kind_names.begin(), tensor_kind_names.end())));
    layout.attr("configuration") = run_layout::configuration;
    layout.attr("result") = run_layout::result;
    layout.attr("metrics") = run_layout::metrics;
    layout.attr("histograms") = run_layout::histograms;
    layout.attr("gradients") = run_layout::gradients;
    layout.attr("state") = run_layout::state;
    nb::dict keys; // of run.json, and who writes them
    for (const RunKey& key : run_keys()) keys[key.pointer] = std::string(name_of(key.writer));
    layout.attr("keys") = keys;
    m.attr("run_layout") = layout;
    m.def("step_file", &run_layout::step_file, nb::arg("step"));
    m.def("step_of", &run_layout::step_of, nb::arg("name"));
    m.def("read_tensors", &read_tensors, nb::arg("path"), InEnvironment());
    m.def("read_json", &read_json, nb::arg("path"), InEnvironment());
    m.def("read_json_lines", &read_json_lines, nb::arg("path"), InEnvironment());
    m.def("write_tensors", &write_tensors, nb::arg("path"), nb::arg("tensors"), nb::arg("metadata"), InEnvironment());
    m.def("write_text", &write_text, nb::arg("path"), nb::arg("text"), InEnvironment());
    m.def(
        "remove_partial_files", [](const std::string& run) { remove_partial_files(run); }, nb::arg("run"));
    nb::class_<FolderLock>(m, "FolderLock")
        .def(
            "__init__", [](FolderLock* lock, const std::string& folder) { new (lock) FolderLock(folder); },
            nb::arg("folder"))
        .def_prop_ro("warning", &FolderLock::warning)
        .def("release", &FolderLock::release);
    m.def("norms", &norms_of, nb::arg("arrays").noconvert(), InEnvironment());
    m.def("histogram_line", &line_of, nb::arg("histogram"), nb::arg("step"), nb::arg("tensor"), nb::arg("kind"),
          nb::arg("loss_scale"), nb::arg("format"), InEnvironment());
    m.def("read_histogram_log", &read_lines, nb::arg("path"), InEnvironment());
}

} // namespace amp::python
