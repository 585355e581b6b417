// Every tool prints the same bytes with any number of threads; and what tools say if they cannot have as many.
#include "thread_counts.h"
#include "tool_commands.h"

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;

TEST_CASE("tools print the same bytes for any number of threads") {
    const ToolCommands commands;
    for (const std::string& command : commands.threaded()) {
        CAPTURE(command);
        const std::string want = ToolCommands::result("", command + " --threads 1");
        CHECK(contains(want, "exit code: 0"));
        for (const int threads : thread_counts)
            CHECK(ToolCommands::result("", command + " --threads " + std::to_string(threads)) == want);
        CHECK(ToolCommands::result("", command) == want);
        CHECK(ToolCommands::result("taskset -c 0", command) == want);
    }
}

TEST_CASE("threads that the system refuses are done without, and said") {
    const Scratch scratch;
    const fs::path zeros = write_file(scratch / "zeros.bin", "");
    fs::resize_file(zeros, 1 << 26); // 256 pieces
    const std::string command = AMP_HISTOGRAM " --dtype f32 --json - " + zeros.string();
    const Outcome want = run_command(command + " --threads 1");
    const Outcome few = run_command("ulimit -v 1000000; " + command + " --threads 1000"); // KiB; a stack takes 8192
    CHECK(few.code == 0);
    CHECK(few.out == want.out);
    REQUIRE(lines_of(few.err).size() == 1);
    CHECK(contains(few.err, "amp-histogram: warning: "));
    CHECK(contains(few.err, " threads could work: "));
    CHECK(contains(few.err, "; the result is the same"));
    // also if the tool then fails because the report cannot be written
    const Outcome failed = run_command("ulimit -v 1000000; " + command + " --threads 1000 --csv /dev/full");
    CHECK(failed.code == 1);
    REQUIRE(lines_of(failed.err).size() == 2);
    CHECK(contains(failed.err, "/dev/full: cannot be written"));
    CHECK(contains(lines_of(failed.err)[1], " threads could work: "));
}

TEST_CASE("the most threads are said") {
    const Tool train{AMP_TRAIN};
    CHECK(contains(train("--help").out, "4096"));
    train.check_error("--threads 4097", 2, {"--threads", "4097", "4096"});
    train.check_error("--threads -1", 2, {"--threads", "-1"});
}
