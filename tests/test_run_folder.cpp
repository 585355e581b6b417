// A run's folder is never lost: refused commands change nothing in it, one process at a time writes it, damage is found
// and reported, and what killed programs leave is removed.
#include "tool.h"

#include <ampscope/sim/io/folder_lock.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/write.h>
#include <ampscope/sim/train/data/dataset.h>
#include <ampscope/sim/train/run_folder.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>
#include <new>
#include <set>
#include <sys/file.h>
#include <sys/syscall.h>

namespace {
int flock_fails_with = 0;
}

/// Replaces the C library's function, to simulate a file system without locks.
extern "C" int flock(int descriptor, int operation) noexcept {
    if (flock_fails_with == 0) return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
    errno = flock_fails_with;
    return -1;
}

using namespace amp;
using namespace amp::test;

namespace {

using Json = nlohmann::json;

const Tool train{AMP_TRAIN};
const std::string tiny = "--model mlp --width 4 --batch 8 --threads 1 --record-every 3 --statistics-every 0 ";
const std::string both = "--precision fp32,amp-bf16 ", small = tiny + both + "--checkpoint-every 2 ";

/// The contents of all files below a folder, by name.
std::map<std::string, std::string> contents(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
        all[fs::relative(entry.path(), folder)] = entry.is_regular_file() ? read_file(entry.path()) : "";
    return all;
}

void check_refused(const fs::path& folder, const std::string& arguments, std::initializer_list<std::string_view> parts,
                   const std::string& options = small) {
    const auto before = contents(folder);
    train.check_error(options + arguments, 1, parts);
    CHECK(contents(folder) == before);
}

/// A run of two precisions with 9 steps and checkpoints 8 and 9.
struct Recorded {
    Scratch scratch;
    fs::path runs = scratch / "runs", fp32 = runs / "fp32", bf16 = runs / "amp-bf16";
    std::string record = "--record " + runs.string() + " ", resume = record + "--resume ";
    Recorded() { REQUIRE(train(small + "--steps 9 " + record).code == 0); }
};

void flip(const fs::path& file, std::size_t byte) {
    std::string bytes = read_file(file);
    bytes[byte % bytes.size()] ^= 1;
    write_file(file, bytes);
}

} // namespace

TEST_CASE("an attention may be spelt otherwise when a run goes on") {
    const Scratch scratch;
    const std::string run = "--model gpt --width 16 --heads 2 --depth 1 --batch 4 --precision amp-bf16 --record " +
                            (scratch / "run").string() + " --checkpoint-every 1 --attention ";
    REQUIRE(train(run + "fused:o=bf16,max=shifted:2.0,8x8 --steps 2").code == 2); // tiles come first
    REQUIRE(train(run + "fused:8x8,max=shifted:2.0,o=BF16 --steps 2").code == 0);
    const Outcome refused = train(run + "fused:8x8,max=shifted --steps 3 --resume");
    CHECK(refused.code == 1);
    CHECK(refused.err.find("/model/attention") != std::string::npos);
    CHECK(train(run + "fused:8x8,s=fp32,o=bf16,max=shifted --steps 3 --resume").code == 0);
    // As a version wrote it that kept what was typed.
    const fs::path file = scratch / "run" / "amp-bf16" / "run.json";
    std::string text = read_file(file);
    const std::string spelt = "fused:8x8,o=bf16,max=shifted";
    REQUIRE(text.find(spelt) != std::string::npos);
    write_file(file, text.replace(text.find(spelt), spelt.size(), "fused:8x8,max=shifted:2,o=bf16"));
    CHECK(train(run + spelt + " --steps 4 --resume").code == 0);
}

TEST_CASE("a command that is refused changes no folder, of whichever run") {
    const Recorded r;
    CHECK(!fs::exists(r.fp32 / ".lock"));
    check_refused(r.runs, "--steps 12 " + r.record, {"run.json", "holds a run already"});
    check_refused(r.runs, "--steps 5 " + r.resume, {"at step 9 already"});
    check_refused(r.runs, "--steps 12 --seed 1 " + r.resume, {"/seed"});

    const std::string run = read_file(r.bf16 / "run.json");
    write_file(r.bf16 / "run.json", std::string(run).replace(run.find("\"seed\": 0"), 9, "\"seed\": 7"));
    check_refused(r.runs, "--steps 12 " + r.resume, {"amp-bf16/run.json", "/seed"}); // fp32 alone would be fine
    fs::remove(r.bf16 / "run.json");
    check_refused(r.runs, "--steps 12 " + r.resume, {"amp-bf16", "metrics.jsonl", "no run.json"});
    fs::rename(r.bf16, r.scratch / "elsewhere");
    check_refused(r.runs, "--steps 12 " + r.resume, {"amp-bf16", "no run.json"});
    fs::rename(r.scratch / "elsewhere", r.bf16);
    write_file(r.bf16 / "run.json", run);

    const std::string lines = read_file(r.bf16 / "metrics.jsonl");
    write_file(r.bf16 / "metrics.jsonl", lines.substr(0, lines.size() / 2));
    check_refused(r.runs, "--steps 12 " + r.resume, {"amp-bf16/metrics.jsonl", "shorter than its checkpoint"});
    write_file(r.bf16 / "metrics.jsonl", lines);

    // Something else in the place of a file or folder to be written.
    for (const std::string part : {"metrics.jsonl", "run.json", "state", "checkpoints/step_000009.safetensors"})
        for (const char* kind : {"folder", "link", "process", "pipe", "file"}) {
            const fs::path place = r.bf16 / part, aside = r.scratch / "aside";
            if (kind == std::string("file") && part != "state") continue;
            if (fs::exists(place)) fs::rename(place, aside);
            if (kind == std::string("folder")) fs::create_directory(place);
            if (kind == std::string("link")) fs::create_symlink("nowhere", place);
            if (kind == std::string("process")) fs::create_symlink("/proc/self/comm", place); // a regular file
            if (kind == std::string("pipe")) REQUIRE(::mkfifo(place.c_str(), 0600) == 0);
            if (kind == std::string("file")) write_file(place, "");
            if (part != "state" || kind != std::string("folder"))
                check_refused(r.runs, "--steps 12 " + r.resume, {"amp-bf16/" + part + ": is "});
            fs::remove(place);
            if (fs::exists(aside)) fs::rename(aside, place);
        }

    fs::rename(r.bf16 / "checkpoints", r.scratch / "checkpoints");
    check_refused(r.runs, "--steps 12 " + r.resume, {"no checkpoint of the same step"});
    fs::rename(r.scratch / "checkpoints", r.bf16 / "checkpoints");
    const Outcome o = train(small + "--steps 12 " + r.resume);
    CHECK_MESSAGE(o.code == 0, o.err);
}

TEST_CASE("files that are no run's are not written over") {
    const Scratch scratch;
    const std::string record = "--steps 2 --record " + (scratch / "runs").string();
    for (const char* name : {"metrics.jsonl", "histograms.jsonl", "result.json", "gradients/mine.npy"}) {
        const fs::path file = scratch / "runs/amp-bf16" / name;
        fs::create_directories(file.parent_path());
        write_file(file, "mine\n");
        for (const char* resume : {"", " --resume"})
            check_refused(scratch.folder(), record + resume, {"amp-bf16: holds", "no run.json", "another folder"});
        CHECK(!fs::exists(scratch / "runs/fp32"));
        fs::remove_all(scratch / "runs");
    }
    // The leftovers of a program that was killed before it began.
    fs::create_directories(scratch / "runs/fp32/gradients");
    write_file(scratch / "runs/fp32/metrics.jsonl", "");
    CHECK(train(small + record).code == 0);
}

TEST_CASE("one process at a time records into a folder, and one part of a process") {
    const Recorded r;
    {
        const FolderLock lock(r.bf16);
        check_refused(r.runs, "--steps 12 " + r.resume,
                      {"amp-bf16: process " + std::to_string(::getpid()) + " on ", "is recording into it"});
        CHECK_THROWS_AS(FolderLock{r.bf16}, FileError);
        CHECK(fs::exists(r.bf16 / ".lock"));
    }
    CHECK(!fs::exists(r.bf16 / ".lock"));
    write_file(r.bf16 / ".lock", "process 1 on elsewhere\n"); // left by a killed process
    CHECK(train(small + "--steps 10 " + r.resume).code == 0);
    CHECK(!fs::exists(r.bf16 / ".lock"));

    // If two begin at once only one gets the folder, and a killed process holds nothing.
    const std::string command = train.path + " " + small + "--steps 1000000 --record " + (r.scratch / "long").string();
    const Outcome two =
        run_command(fmt::format("bash -c '{0} & a=$!; {0} & b=$!; wait -n; kill -KILL $a $b; wait'", command));
    CHECK(contains(two.err, "long/fp32: "));
    CHECK(contains(two.err, "is recording into it"));
    CHECK(fs::exists(r.scratch / "long/fp32/.lock"));
    CHECK(FolderLock(r.scratch / "long/fp32").warning().empty());
}

TEST_CASE("a lock leaves no folder behind in which nothing was written") {
    const Scratch scratch;
    { const FolderLock lock(scratch / "a/b/c"); }
    CHECK(fs::is_empty(scratch.folder()));
    fs::create_directory(scratch / "own");
    {
        const FolderLock lock(scratch / "own/a/b");
        write_file(scratch / "own/a/kept", "x");
    }
    CHECK(contents(scratch.folder()).size() == 3);
    write_file(scratch / "file", "");
    CHECK_THROWS_WITH_AS(FolderLock(scratch / "file/a"), doctest::Contains("file/a: cannot be made"), FileError);
}

TEST_CASE("a file system without locks is warned of") {
    const Scratch scratch;
    for (const int error : {ENOLCK, EOPNOTSUPP, ENOSYS}) {
        flock_fails_with = error;
        const FolderLock lock(scratch / "run");
        flock_fails_with = 0;
        CHECK(contains(lock.warning(), "run: cannot be locked ("));
    }
}

TEST_CASE("a damaged checkpoint is found, and the one before it is taken") {
    const Recorded r;
    const std::string elsewhere = " --record " + (r.scratch / "elsewhere").string();
    const std::string whole = train.json(small + "--steps 12" + elsewhere)["runs"][1]["fingerprint"];
    const fs::path newest = r.bf16 / "checkpoints/step_000009.safetensors";
    flip(newest, 5000);
    const Outcome o = train(small + "--json - --steps 12 " + r.resume);
    REQUIRE(o.code == 0);
    REQUIRE(lines_of(o.err).size() == 1);
    CHECK(contains(o.err, newest.string() + ": is damaged"));
    CHECK(contains(o.err, "goes on from step 8"));
    CHECK(Json::parse(o.out)["runs"][1]["fingerprint"] == whole);
}

TEST_CASE("without a whole checkpoint, all are named and nothing changes") {
    const Recorded r;
    const fs::path newest = r.bf16 / "checkpoints/step_000009.safetensors";
    const fs::path older = r.fp32 / "checkpoints/step_000008.safetensors";
    const std::string good = read_file(newest);
    const auto refused = [&](std::string_view what) {
        check_refused(r.runs, "--steps 12 " + r.resume, {newest.string(), older.string(), what});
    };
    flip(older, 40);
    flip(newest, 1000);
    refused("is damaged");
    write_file(newest, good.substr(0, 20));
    refused("has no fingerprint");
    fs::copy_file(r.bf16 / "checkpoints/step_000008.safetensors", newest, fs::copy_options::overwrite_existing);
    refused("is the checkpoint of step 8 under another name");
    fs::copy_file(r.fp32 / "checkpoints/step_000009.safetensors", newest, fs::copy_options::overwrite_existing);
    refused("is a checkpoint of another run");
    const Outcome served = train("--evaluate " + r.fp32.string() + " --weights-as e4m3");
    CHECK(served.code == 0);
    flip(r.fp32 / "checkpoints/step_000009.safetensors", 2000);
    train.check_error("--weights-as e4m3 --evaluate " + r.fp32.string(), 1, {"step_000009.safetensors: is damaged"});
    for (const char* broken : {"{}", R"({"model": {"name": 1}})"}) {
        write_file(r.fp32 / "run.json", broken);
        const Outcome o = train("--weights-as e4m3 --evaluate " + r.fp32.string());
        CAPTURE(o.err);
        CHECK(o.code == 1);
        CHECK(contains(o.err, "run.json: cannot be read: "));
        CHECK(!contains(o.err, "json.exception"));
    }
}

TEST_CASE("a checkpoint whose notes make no sense is not gone on from, though its seal is whole") {
    const Recorded r;
    const fs::path newest = r.bf16 / "checkpoints/step_000009.safetensors";
    const auto forge = [&](const std::string& pointer, const Json& value) {
        const auto file = open_tensor_file(newest);
        auto metadata = file->metadata();
        Json state = Json::parse(metadata.at("state"));
        state[Json::json_pointer(pointer)] = value;
        metadata["state"] = state.dump();
        TensorWriter writer = create_sealed_file(newest, file->tensors(), metadata);
        for (std::size_t i = 0; i < file->tensors().size(); ++i) {
            std::vector<std::byte> bytes(file->tensors()[i].bytes);
            file->read_at(i, 0, bytes);
            writer.append(bytes);
        }
        writer.commit();
    };
    for (const std::string pointer : {"/notes/losses/0", "/notes/departures/0"}) {
        CAPTURE(pointer);
        forge(pointer, pointer == "/notes/losses/0" ? Json("x") : Json({99, 0, "a", "b", 1}));
        const Outcome o = train(small + "--json - --steps 10 " + r.resume);
        CHECK(o.code == 0);
        CHECK(contains(o.err, newest.string() + ": its state cannot be read: "));
        CHECK(contains(o.err, pointer == "/notes/losses/0" ? "'x' is no number" : "99 is no kind of departure"));
        CHECK(contains(o.err, "goes on from step 8"));
        CHECK(Json::parse(o.out)["runs"][1]["final_loss"].is_number());
        fs::remove_all(r.runs);
        REQUIRE(train(small + "--steps 9 " + r.record).code == 0);
    }
}

TEST_CASE("a run that has ended and lost its checkpoints is not begun again; what lies beyond one goes away") {
    const Recorded r;
    const fs::path stray = r.fp32 / "gradients/step_000100.safetensors";
    fs::copy_file(r.fp32 / "gradients/step_000006.safetensors", stray);
    CHECK(train(small + "--steps 10 " + r.resume).code == 0);
    CHECK(!fs::exists(stray));
    CHECK(fs::exists(r.fp32 / "gradients/step_000006.safetensors"));
    for (const fs::path& run : {r.fp32, r.bf16}) fs::remove_all(run / "checkpoints");
    check_refused(r.runs, "--steps 12 " + r.resume, {"ended and left no checkpoint"});
    check_refused(r.runs, "--steps 5 " + r.resume, {"ended and left no checkpoint"});
}

TEST_CASE("files that a killed program was writing go away, those of others stay") {
    const Recorded r;
    for (const char* name : {"result.json.12-0.partial", "gradients/step_000003.safetensors.12-0.partial",
                             "checkpoints/step_000009.safetensors.4194304-3.partial"})
        write_file(r.fp32 / name, "half");
    const std::vector<std::string> others = {"notes.12-0.partial", "result.json.partial", "result.json.x-0.partial",
                                             "gradients/mine.npy.12-0.partial", "checkpoints/run.json.1-0.partial"};
    for (const std::string& name : others) write_file(r.fp32 / name, "mine");
    write_file(r.fp32 / "checkpoints/step_000003.safetensors", "the third last");
    REQUIRE(train(small + "--steps 9 " + r.resume).code == 0);
    CHECK(RunFolder::checkpoints(r.fp32) == RunFolder::checkpoints(r.bf16));
    REQUIRE(train(small + "--steps 12 " + r.resume).code == 0);
    std::vector<std::string> left;
    for (const auto& [name, text] : contents(r.fp32))
        if (name.ends_with(".partial")) left.push_back(name);
    std::vector<std::string> wanted = others;
    std::ranges::sort(wanted);
    CHECK(left == wanted);
}

TEST_CASE("runs begin again only where they cannot have had a checkpoint in common") {
    const Scratch scratch;
    const fs::path runs = scratch / "runs", fp32 = runs / "fp32", bf16 = runs / "amp-bf16";
    const std::string options = tiny + "--checkpoint-every 6 --record " + runs.string() + " ";
    const auto resume = [&](int steps, const std::string& precision = both) {
        return train(options + precision + fmt::format("--resume --steps {}", steps));
    };
    const auto refuses = [&](const std::string& held) {
        check_refused(runs, both + "--resume --steps 20",
                      {runs.string() + ": its runs have no checkpoint of the same step (" + held + "): put back"},
                      options);
    };
    // The leftovers of a kill after so many steps, of which the sixth ends with a checkpoint.
    const auto killed_at = [&](int steps) {
        fs::remove_all(runs);
        REQUIRE(train(options + both + fmt::format("--steps {}", steps)).code == 0);
        for (const fs::path& run : {fp32, bf16}) {
            fs::remove(run / "result.json");
            if (steps != 6) fs::remove(run / fmt::format("checkpoints/step_{:06}.safetensors", steps));
        }
    };
    for (const fs::path& lost : {fp32, bf16}) {
        killed_at(8);
        fs::remove(lost / "checkpoints/step_000006.safetensors");
        refuses(lost == fp32 ? "fp32: none; amp-bf16: 6" : "fp32: 6; amp-bf16: none");
        // Without the reference, what was watched beside it could not be watched any more.
        check_refused(runs, "--resume --steps 12 --precision amp-bf16",
                      {"amp-bf16/run.json: /recording/reference differs from this run's"}, options);
        const Outcome o = resume(12, "--precision fp32 ");
        CHECK_MESSAGE(o.code == 0, o.err);
        CHECK(contains(o.err, "begins again at step 0") == (lost == fp32));
        if (lost == bf16) continue;
        CHECK(resume(13).code == 0);
        CHECK(lines_of(read_file(fp32 / "metrics.jsonl")).size() == 13);
    }
    killed_at(6); // while the second of the first checkpoints is written
    fs::remove(bf16 / "checkpoints/step_000006.safetensors");
    const Outcome o = resume(7);
    CHECK_MESSAGE(o.code == 0, o.err);
    CHECK(contains(o.err, "no checkpoint that every run has; begins again at step 0"));
    CHECK(lines_of(read_file(fp32 / "metrics.jsonl")).size() == 7);

    // One run that continued alone: both go back to the newest checkpoint that both have, if there is one.
    for (const auto& [steps, alone, held] :
         {std::tuple(8, 12, ""), {8, 18, "fp32: 12, 18; amp-bf16: 6"}, {3, 12, "fp32: 6, 12; amp-bf16: none"}}) {
        killed_at(steps);
        REQUIRE(resume(alone, "--precision fp32 ").code == 0);
        if (*held != 0) refuses(held);
        else CHECK(resume(14).code == 0);
    }
}

TEST_CASE("memory that is short is no damage of a checkpoint, and a log that is refused is closed") {
    const Scratch scratch;
    Trainer trainer({.model = {.name = "mlp", .width = 4}, .batch = 8}, regression_data(0), 1);
    RunFolder folder(scratch / "run", Json::object(), false);
    folder.begin();
    folder.checkpoint(trainer, "notes", 1, 1);
    folder.restore(trainer, 1, [](const auto& notes) { CHECK(notes == "notes"); });
    CHECK_THROWS_AS(folder.restore(trainer, 1, [](const auto&) { throw std::bad_alloc(); }), std::bad_alloc);
    CHECK_THROWS_AS(folder.restore(trainer, 1, [](const auto&) { throw std::out_of_range("x"); }), FileError);

    const auto open_files = [] {
        return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
    };
    const auto before = open_files();
    CHECK_THROWS_AS(LineFile(scratch / "short.jsonl", 1), FileError);
    CHECK(open_files() == before);
}

TEST_CASE("the name of a step's file, and the step of a name") {
    CHECK(run_layout::step_file(100) == "step_000100.safetensors");
    for (const std::int64_t step : {0L, 7L, 999'999L, 1'000'000L, 12'345'678L})
        CHECK(run_layout::step_of(run_layout::step_file(step)) == step);
    for (const char* other : {"step_7.safetensors", "step_0000007.safetensors", "step_000007.safetensors.1",
                              "step_000007.npz", "grads_000007.safetensors", "step_.safetensors", ""})
        CHECK_MESSAGE(!run_layout::step_of(other), other);
}
