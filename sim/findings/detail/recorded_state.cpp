#include <ampscope/sim/findings/detail/recorded_state.h>

#include <ampscope/sim/io/run_layout.h>

namespace amp::detail {

std::filesystem::path recorded_state(const std::filesystem::path& run, std::int64_t step) {
    return run / run_layout::state / run_layout::step_file(step);
}

} // namespace amp::detail
