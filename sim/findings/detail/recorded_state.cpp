#include <ampscope/sim/findings/detail/recorded_state.h>

#include <fmt/format.h>

namespace amp::detail {

std::filesystem::path recorded_state(const std::filesystem::path& run, std::int64_t step) {
    return run / fmt::format("state/step_{:06}.safetensors", step);
}

} // namespace amp::detail
