// Tools in a process that libraries have left with another rounding direction or with flushed subnormals: same bytes.
#include "tool_commands.h"

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;

TEST_CASE("tools print the same bytes in every floating-point environment") {
#ifdef HOSTILE_ENVIRONMENT
    const ToolCommands commands;
    std::vector<std::string> all = commands.threaded();
    for (std::string& command : all) command += " --threads 2";
    for (const std::string& command : commands.others()) all.push_back(command);
    for (const std::string& command : all) {
        CAPTURE(command);
        const std::string want = ToolCommands::result("", command);
        CHECK(contains(want, "exit code: 0"));
        for (const std::string hostile : {"ftz", "daz", "down", "up", "zero"}) {
            CAPTURE(hostile);
            CHECK(ToolCommands::result("LD_PRELOAD=" HOSTILE_ENVIRONMENT " AMPSCOPE_HOSTILE=" + hostile, command) ==
                  want);
        }
    }
#else
    skip("the library that sets the floating-point environment is for x86-64");
#endif
}
