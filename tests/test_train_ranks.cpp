// amp-train under mpirun: the bytes of one process, one line on what is wrong, and the same bits after a rank has died.
#include "mpirun.h"
#include "needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

using namespace amp::test;

TEST_CASE("a program that was started as one of several ranks says how to get MPI, and once what it has to say") {
    const Scratch scratch;
    fs::copy_file(AMP_TRAIN, scratch / "amp-train"); // beside which there is no module for MPI
    const std::string train = (scratch / "amp-train").string() + " --model mlp --steps 2 --replicas 2 ",
                      as_rank = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=";
    const Outcome without = run_command(as_rank + "0 " + train);
    CHECK(without.code == 1);
    CHECK(without.err ==
          "amp-train: started as one of 2 ranks, but built without MPI: install libopenmpi-dev and build "
          "again, or start with --alone\n");
    CHECK(run_command(as_rank + "1 " + train + "--alone --json -").out == run_command(train + "--json -").out);
    for (const char* const mode : {"--explain", "--memory"}) {
        CHECK(run_command(as_rank + "0 " + train + mode).out == run_command(train + mode).out);
        const Outcome other = run_command(as_rank + "1 " + train + mode + " --norm rms");
        CHECK(other.code == 0);
        CHECK(other.out + other.err == "");
    }
}

TEST_CASE("mpirun -n N amp-train records and reports the bytes of one process" * doctest::test_suite("mpi")) {
    if (!has_mpi(AMP_TRAIN)) return skip("mpirun, or a build with MPI (apt-get install libopenmpi-dev)");
    const Scratch scratch;
    const auto run = [&](int n, bool ranks, const std::string& options, const std::string& name) {
        const std::string folder = (scratch / name).string();
        const Outcome outcome = run_command(
            fmt::format("{} {} --model mlp --width 24 --batch 8 --steps 12 --precision fp32,fp8-delayed "
                        "--all-reduce-format bf16 --replicas {} --record {} --record-every 4 "
                        "--record-activations --record-state --record-replicas --json {}.json {}",
                        ranks ? fmt::format("{} -n {}", mpirun, n) : "", AMP_TRAIN, n, folder, folder, options));
        CHECK_MESSAGE(outcome.code == 0, outcome.err);
        return outcome.out;
    };
    for (const int n : {2, 3, 4, 8}) {
        CAPTURE(n);
        const std::string options = n == 3 ? "--all-reduce all-to-all --shard zero1 --gather-format e4m3" : "";
        const std::string one = run(n, false, options, "one"), several = run(n, true, options, "several");
        CHECK(several == one);
        CHECK_MESSAGE(
            run_command("cd " + scratch.folder().string() + " && cmp one.json several.json && diff -r one several")
                    .code == 0,
            n);
        for (const char* name : {"one", "several"}) fs::remove_all(scratch / name);
    }
}

TEST_CASE("amp-train on ranks says in one line what is wrong" * doctest::test_suite("mpi")) {
    if (!has_mpi(AMP_TRAIN)) return skip("mpirun, or a build with MPI (apt-get install libopenmpi-dev)");
    const Scratch scratch;
    const std::string train = std::string(AMP_TRAIN) + " ";
    const auto check_first_line = [&](const std::string& command, const std::string& line) {
        const Outcome outcome = run_command(std::string(mpirun) + " " + command);
        CHECK(outcome.code != 0);
        const std::vector<std::string> lines = lines_of(outcome.err); // mpirun adds its own
        CHECK_MESSAGE(std::ranges::count_if(lines, [](const auto& l) { return l.starts_with("amp-train:"); }) == 1,
                      outcome.err);
        CHECK_MESSAGE(contains(outcome.err, line), outcome.err);
    };
    check_first_line("-n 3 " + train + "--replicas 2",
                     "amp-train: started as 3 ranks: expected --replicas 3, one on each, or --alone\n");
    const std::string good = train + "--replicas 2", bad = good + " --text none.txt --model gpt";
    check_first_line("-n 2 " + bad, "amp-train: none.txt: cannot be read: No such file or directory\n");
    check_first_line("-n 1 " + good + " : -n 1 " + bad, "amp-train: rank 1: none.txt: cannot be read: ");
    const std::string records = " --record " + (scratch / "runs").string();
    for (const auto& [option, where] :
         std::initializer_list<std::pair<std::string, std::string>>{{" --seed 1", "/runs/0/seed"},
                                                                    {" --steps 9", "/steps"},
                                                                    {" --statistics-every 7", "/statistics_every"},
                                                                    {records, "/record"}})
        check_first_line("-n 1 " + good + " : -n 1 " + good + option,
                         "amp-train: a rank has other options or data than rank 0: " + where + "\n");
    const std::string alone = " -n 2 " + train + "--steps 2 --replicas 3 --alone --json -";
    CHECK(run_command(mpirun + alone).code == 0);
}

TEST_CASE("a run goes on with the same bits after a rank was killed" * doctest::test_suite("mpi")) {
    if (!has_mpi(AMP_TRAIN)) return skip("mpirun, or a build with MPI (apt-get install libopenmpi-dev)");
    const Scratch scratch;
    const auto command = [&](const char* name) {
        return fmt::format("{} --model mlp --width 16 --batch 4 --steps 300 --precision amp-fp16 --replicas 2 "
                           "--statistics-every 50 --record {} --record-every 100 --checkpoint-every 10",
                           AMP_TRAIN, (scratch / name).string());
    };
    REQUIRE(run_command(command("whole")).code == 0);
    for (const char* const which : {"head", "tail"}) { // rank 0, and the other
        CAPTURE(which);
        const std::string checkpoints = (scratch / "broken/amp-fp16/checkpoints").string();
        const Outcome outcome = run_command(fmt::format("{0} -n 2 {1} >/dev/null 2>&1 & job=$!; for i in $(seq 1000); "
                                                        "do ls {2}/step_0001* >/dev/null 2>&1 && break; "
                                                        "sleep 0.05; done; "
                                                        "kill -9 $(pgrep -f '^{1}' | {3} -1); wait $job; echo code $?",
                                                        mpirun, command("broken"), checkpoints, which));
        CHECK_MESSAGE(outcome.out.find("code 137") != std::string::npos, outcome.out);
        REQUIRE(!fs::exists(scratch / "broken/amp-fp16/result.json"));
        CHECK(run_command(std::string(mpirun) + " -n 2 " + command("broken") + " --resume").code == 0);
        CHECK(run_command("cd " + scratch.folder().string() + " && diff -r whole broken").code == 0);
        fs::remove_all(scratch / "broken");
    }
}
