// Recordings that tests of findings write: named FP32 tensors.
#pragma once

#include "io_files.h"

#include <ampscope/sim/base/progress.h>
#include <ampscope/sim/io/write.h>

#include <utility>

namespace amp::test {

using NamedValues = std::vector<std::pair<std::string, std::vector<float>>>;

inline fs::path save(const fs::path& path, const NamedValues& tensors,
                     const std::map<std::string, std::string>& metadata = {}) {
    fs::create_directories(path.parent_path());
    std::vector<TensorEntry> entries;
    for (const auto& [name, values] : tensors)
        entries.push_back({.name = name, .dtype = DType::f32, .shape = {values.size()}});
    TensorWriter writer = create_tensor_file(path, entries, metadata);
    for (const auto& [name, values] : tensors) writer.append(std::as_bytes(std::span(values)));
    writer.commit();
    return path;
}

/// Collects what a watch is told.
struct Watched {
    std::uint64_t total = 0, done = 0;
    int pieces_of_work = 0;

    Watch watch() {
        return [this](std::uint64_t of) {
            total += of;
            ++pieces_of_work;
            return [this](std::uint64_t n) { done += n; };
        };
    }
};

struct Interrupted {};

/// Ends the work at the first report of progress.
inline Watch interrupting() {
    return [](std::uint64_t) { return [](std::uint64_t) { throw Interrupted(); }; };
}

} // namespace amp::test
