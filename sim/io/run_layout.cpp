#include <ampscope/sim/io/run_layout.h>

#include <cstdio>
#include <fmt/format.h>

namespace amp {

std::string run_layout::step_file(std::int64_t step) { return fmt::format("step_{:06}.safetensors", step); }

std::optional<std::int64_t> run_layout::step_of(const std::string& name) {
    std::int64_t step = 0;
    if (std::sscanf(name.c_str(), "step_%ld.safetensors", &step) != 1 || name != step_file(step)) return std::nullopt;
    return step;
}

} // namespace amp
