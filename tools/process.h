// What every tool does around all else.
#pragma once

#include <ampscope/formats/environment.h>
#include <ampscope/sim/parallel.h>

#include <cstdio>
#include <string_view>

namespace amp {

/// The first thing in main(): from here on arithmetic and the reading of numbers are as they should be, whatever a
/// library in the process has done to the floating-point environment. At the end it says if threads were refused.
class Process {
  public:
    explicit Process(std::string_view tool) : tool_(tool) {}
    ~Process() {
        if (const auto shortage = thread_shortage())
            std::fprintf(stderr, "%.*s: warning: %d of %d threads could work: %s; the result is the same\n",
                         static_cast<int>(tool_.size()), tool_.data(), shortage->got, shortage->wanted,
                         shortage->reason.c_str());
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

  private:
    FloatEnvironment environment_;
    std::string_view tool_;
};

} // namespace amp
