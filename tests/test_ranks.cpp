// amp-histogram on several ranks: the protocol by threads in place of processes, which count what they send, and the
// real thing by mpirun. The bytes of its report are those of one process.
#include <ampscope/tools/amp-histogram/data_report.h>
#include <ampscope/tools/amp-histogram/find.h>

#include "histogram_tool.h"
#include "mpirun.h"
#include "thread_ranks.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <thread>

using namespace amp;
using namespace amp::test;
using namespace amp::histogram_tool;

namespace {

std::string json_of(const HistogramFindings& findings, const HistogramOptions& options) {
    std::string text;
    write_json(findings, options, [&](std::string_view piece) { text += piece; });
    return text;
}

/// A sparse file of zeros but for a few numbers: large enough for several shards, and counted at once.
void write_sparse(const fs::path& path, std::uint64_t bytes) {
    write_file(path, "abcdefgh");
    fs::resize_file(path, bytes);
}

HistogramToolOptions asked(std::vector<fs::path> paths) {
    HistogramToolOptions options;
    options.paths = std::move(paths);
    options.formats.assign(usual_specs.begin(), usual_specs.end());
    options.open.dtype = DType::bf16;
    options.threads = 1;
    return options;
}

} // namespace

TEST_CASE("ranks take shards in turn, send what they should, and find what one process does") {
    const Scratch scratch;
    write_sparse(scratch / "large.bin", 200 << 20);
    const HistogramToolOptions options = asked({scratch / "large.bin", fs::path(AMP_SAMPLE) / "deep_tanh"});
    const std::string whole = json_of(find(options, {}), options);
    for (const int size : {1, 2, 4}) {
        CAPTURE(size);
        Post post(size);
        std::optional<HistogramFindings> found;
        std::uint64_t total = 0, progressed = 0;
        const Watch watch = [&](std::uint64_t all) -> Progress {
            total = all;
            return [&](std::uint64_t done) { progressed += done; };
        };
        {
            std::vector<std::jthread> others;
            for (int rank = 1; rank < size; ++rank)
                others.emplace_back([&, rank] {
                    ThreadRanks ranks(post, rank, size);
                    CHECK(!find_with_ranks(options, ranks, {}));
                });
            ThreadRanks first(post, 0, size);
            found = find_with_ranks(options, first, watch);
        }
        REQUIRE(found);
        CHECK(json_of(*found, options) == whole);
        // 12 shards of 16 MiB or more. A rank asks by 17 bytes for each that it counts and once more; rank 0 answers
        // by a number. Its report has an entry of some KB for each part and tensor that it counted.
        constexpr std::uint64_t shards = 12;
        std::uint64_t sent = 0;
        for (int rank = 1; rank < size; ++rank) {
            CHECK(post.sent(rank) < whole.size() + shards * (17 + 5000) + 2000);
            sent += post.sent(rank);
        }
        CHECK(post.sent(0) <= shards * 2 + static_cast<std::uint64_t>(size));
        CHECK((sent > 0) == (size > 1));
        std::uint64_t counted = 0; // by all but rank 0
        for (int rank = 1; rank < size; ++rank)
            counted += nlohmann::json::parse(post.last(rank).substr(1))["shards"]["numbers"].size();
        CHECK(counted <= shards);
        CHECK(progressed > total - total / 50);
        CHECK(progressed < total + total / 50);
    }
}

TEST_CASE("a rank that sees other files counts nothing, and the others go on") {
    const Scratch scratch;
    write_sparse(scratch / "a.bin", 100 << 20);
    write_sparse(scratch / "b.bin", 50 << 20);
    const HistogramToolOptions options = asked({scratch / "a.bin"}),
                               other = asked({scratch / "b.bin", scratch / "none"});
    Post post(2);
    std::jthread second([&] {
        ThreadRanks ranks(post, 1, 2);
        CHECK(!find_with_ranks(other, ranks, {}));
    });
    ThreadRanks first(post, 0, 2);
    const auto found = find_with_ranks(options, first, {});
    REQUIRE(found);
    REQUIRE(found->errors.size() == 1);
    CHECK_MESSAGE(found->errors[0].starts_with("rank 1 sees other files than rank 0, and counted nothing: "),
                  found->errors[0]);
    CHECK_MESSAGE(found->errors[0].ends_with("none: cannot open: No such file or directory"), found->errors[0]);
    CHECK(found->total.magnitudes.histogram == find(options, {}).total.magnitudes.histogram);
}

TEST_CASE("a program that was started as one of several ranks, but has no MPI, says how to get it") {
    const Scratch scratch;
    fs::copy_file(AMP_HISTOGRAM, scratch / "amp-histogram");
    for (const char* variable : {"OMPI_COMM_WORLD_SIZE=3", "PMI_SIZE=3", "PMIX_RANK=0 SLURM_STEP_NUM_TASKS=3"}) {
        const Outcome outcome = run_command(std::string(variable) + " " + (scratch / "amp-histogram").string());
        CHECK(outcome.code == 1);
        CHECK(outcome.err ==
              "amp-histogram: started as one of 3 ranks, but built without MPI: install libopenmpi-dev and "
              "build again, or start with --alone\n");
    }
    const std::string within = "OMPI_COMM_WORLD_SIZE=3 ", json = (scratch / "x.json").string();
    for (const std::string& words : {"--alone " + sample(sample_files[0]),
                                     sample(sample_files[0]) + " --shard 1/1 --json " + json, "--merge " + json})
        CHECK_MESSAGE(run(words, within).code == 0, words);
    CHECK(run(sample(sample_files[0]), "SLURM_STEP_NUM_TASKS=3").code == 0); // a step of one process a task
    const Outcome blocks = run(sample(sample_files[0]) + " --recipe te-mxfp8 --blocks b.npz", within);
    CHECK(blocks.code == 2);
    CHECK(contains(blocks.err, "--blocks: no report of ranks holds all blocks"));
}

TEST_CASE("mpirun -n N gives the bytes of one process" * doctest::test_suite("mpi")) {
    if (!has_mpi(AMP_HISTOGRAM)) return skip("mpirun, or a build with MPI (apt-get install libopenmpi-dev)");
    const Scratch scratch;
    write_sparse(scratch / "large.bin", 100 << 20);
    write_file(scratch / "broken.safetensors", "no tensors");
    const std::string words = scratch.folder().string() + " " + sample("deep_tanh") + " --dtype bf16 --json ";
    const Outcome once = run(words + (scratch / "once.json").string());
    CHECK(once.code == 1);
    for (const int n : {1, 2, 4}) {
        CAPTURE(n);
        const Outcome outcome = run(words + (scratch / "ranks.json").string(), fmt::format("{} -n {}", mpirun, n));
        CHECK(outcome.code == 1);
        CHECK(read_file(scratch / "ranks.json") == read_file(scratch / "once.json"));
        CHECK_MESSAGE(outcome.err.starts_with(once.err), outcome.err); // mpirun adds its own
        fs::remove(scratch / "ranks.json");
    }
}

TEST_CASE("a rank that is killed ends the job, and no report is left" * doctest::test_suite("mpi")) {
    if (!has_mpi(AMP_HISTOGRAM)) return skip("mpirun, or a build with MPI (apt-get install libopenmpi-dev)");
    const Scratch scratch;
    write_sparse(scratch / "large.bin", std::uint64_t{1} << 40); // minutes of work
    const std::string json = (scratch / "a.json").string();
    const Outcome outcome =
        run_command(fmt::format("{} -n 2 {} {} --dtype bf16 --json {} >/dev/null 2>&1 & job=$!; sleep 3; "
                                "kill -9 $(pgrep -f '^{} {}' | head -1); wait $job; echo code $?",
                                mpirun, AMP_HISTOGRAM, (scratch / "large.bin").string(), json, AMP_HISTOGRAM,
                                (scratch / "large.bin").string()));
    CHECK_MESSAGE(outcome.out.find("code 137") != std::string::npos, outcome.out);
    CHECK(!fs::exists(json));
}
