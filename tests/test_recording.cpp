// Listing recordings: which files, steps, kinds and scales; what is counted once; what is an error; what still works.
#include "io_files.h"

#include <ampscope/sim/io/recording.h>
#include <ampscope/sim/io/write.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace amp;
using namespace amp::test;

namespace {

/// A safetensors file of one-element U8 tensors, all of value `value`.
fs::path record(const fs::path& path, const std::vector<std::string>& names,
                const std::map<std::string, std::string>& metadata = {}, char value = 'v') {
    fs::create_directories(path.parent_path());
    std::vector<TensorEntry> entries;
    for (const std::string& name : names) entries.push_back({.name = name, .dtype = DType::u8, .shape = {1}});
    TensorWriter writer = create_tensor_file(path, entries, metadata);
    const std::string data(names.size(), value);
    writer.append(std::as_bytes(std::span(data)));
    writer.commit();
    return path;
}

std::optional<std::int64_t> step_of(const std::string& file, const std::map<std::string, std::string>& metadata = {}) {
    const Scratch scratch;
    return find_tensors({record(scratch / file, {"w"}, metadata)}).tensors.at(0).step;
}

} // namespace

TEST_CASE("the step is the metadata's, else the number that ends the file's name") {
    CHECK(step_of("step_000100.safetensors") == 100);
    CHECK(step_of("grads-7.safetensors") == 7);
    CHECK(step_of("iter12.safetensors") == 12);
    CHECK(step_of("12.safetensors") == 12);
    CHECK(step_of("run3_step_4.safetensors") == 4);
    CHECK(step_of("step_000100.safetensors", {{"step", "7"}}) == 7);
    CHECK(step_of("weights.safetensors") == std::nullopt);
    CHECK(step_of("resnet50.safetensors") == std::nullopt);
    CHECK(step_of("step_99999999999999999999.safetensors") == std::nullopt);
}

TEST_CASE("kind, scale and layer") {
    const Scratch scratch;
    const fs::path path = record(scratch / "a.safetensors", {"c1.weight.grad", "c1.out.grad", "odd"},
                                 {{"loss_scale", "1024"}, {"kinds", R"({"odd":"activation"})"}});
    const Recording found = find_tensors({path});
    REQUIRE(found.tensors.size() == 3);
    for (const RecordedTensor& tensor : found.tensors) {
        CHECK(tensor.recorded_scale == 1024);
        CHECK(tensor.kind ==
              (tensor.entry.name == "c1.weight.grad" ? TensorKind::weight_gradient : TensorKind::activation_gradient));
        CHECK(tensor.layer == (tensor.entry.name == "odd" ? "odd" : "c1"));
    }
    CHECK(find_tensors({record(scratch / "b.safetensors", {"w"})}).tensors.at(0).recorded_scale == 1);
    CHECK(layer_of("h.0.attn.in_proj_weight") == "h.0.attn");
    CHECK(layer_of("weight") == "weight");
}

TEST_CASE("metadata that cannot be meant is an error, and the other files are still listed") {
    const Scratch scratch;
    const fs::path good = record(scratch / "good.safetensors", {"w"});
    const std::vector<std::pair<std::string, std::string>> lies{{"loss_scale", "0"},
                                                                {"loss_scale", "-2"},
                                                                {"loss_scale", "nan"},
                                                                {"loss_scale", "inf"},
                                                                {"loss_scale", "big"},
                                                                {"loss_scale", ""},
                                                                {"loss_scale", "1e999"},
                                                                {"loss_scale", "2 "},
                                                                {"step", "1.5"},
                                                                {"step", "x"},
                                                                {"kinds", "["},
                                                                {"kinds", "[]"},
                                                                {"kinds", R"({"w":"bias"})"},
                                                                {"kinds", R"({"w":1})"}};
    for (const auto& lie : lies) {
        const auto& key = lie.first;
        const auto& value = lie.second;
        CAPTURE(key);
        CAPTURE(value);
        const fs::path bad = record(scratch / "bad.safetensors", {"w2"}, {{key, value}});
        const Recording found = find_tensors({bad, good});
        REQUIRE(found.errors.size() == 1);
        CHECK(found.errors[0].starts_with(bad.string() + ": metadata: "));
        CHECK(found.tensors.size() == 1);
    }
}

TEST_CASE("folders: recursive, in order, recognised files only, links and loops harmless") {
    const Scratch scratch;
    record(scratch / "b/step_2.safetensors", {"w"});
    record(scratch / "b/step_1.safetensors", {"w"});
    record(scratch / "a/deep/er/step_3.safetensors", {"w"});
    write_file(scratch / "a/notes.txt", "no tensor");
    write_file(scratch / "a/broken.npy", "no array");
    fs::create_directory_symlink(scratch.folder(), scratch / "a/loop");
    fs::create_symlink("self.npy", scratch / "a/self.npy");
    fs::create_symlink("nowhere", scratch / "a/nowhere.npy");
    const Recording found = find_tensors({scratch.folder()});
    REQUIRE(found.tensors.size() == 3);
    CHECK(found.tensors[0].step == 3);
    CHECK(found.tensors[1].step == 1);
    CHECK(found.tensors[2].step == 2);
    REQUIRE(found.errors.size() == 3);
    CHECK(found.errors[0].find("broken.npy") != std::string::npos);
    CHECK(found.errors[1].find("nowhere.npy: cannot open: it is a link to nowhere, ") != std::string::npos);
    CHECK(found.errors[2].find("self.npy: cannot open: Too many levels of symbolic links") != std::string::npos);

    fs::create_directory(scratch / "empty");
    CHECK(find_tensors({scratch / "empty"}).errors.size() == 1);
    CHECK(find_tensors({scratch / "missing"}).errors.size() == 1);
}

TEST_CASE("a folder that cannot be listed is named, and hides nothing else") {
    const Scratch scratch;
    record(scratch / "a/step_1.safetensors", {"w"});
    record(scratch / "b/step_2.safetensors", {"w"});
    record(scratch / "c/step_3.safetensors", {"w"});
    fs::permissions(scratch.folder(), fs::perms::all);
    fs::permissions(scratch / "b", fs::perms::none);
    const bool root = ::geteuid() == 0; // root may do anything
    if (root) REQUIRE(::seteuid(65534) == 0);
    const Recording found = find_tensors({scratch.folder()});
    if (root) REQUIRE(::seteuid(0) == 0);
    fs::permissions(scratch / "b", fs::perms::all);
    CHECK(found.tensors.size() == 2);
    REQUIRE(found.errors.size() == 1);
    CHECK(found.errors[0] == (scratch / "b").string() + ": cannot be listed: Permission denied");
}

TEST_CASE("files are read in the order of their paths, whatever the order they are named in") {
    const Scratch scratch;
    const fs::path a = record(scratch / "a_1.safetensors", {"w"}), b = record(scratch / "b_1.safetensors", {"w"});
    for (const Recording& found : {find_tensors({a, b}), find_tensors({b, a}), find_tensors({b, scratch.folder()})}) {
        REQUIRE(found.tensors.size() == 1);
        CHECK(found.tensors[0].file == a);
        CHECK(found.warnings.front().starts_with(b.string()));
    }
}

TEST_CASE("of a run folder only the gradients are read") {
    const Scratch scratch;
    record(scratch / "gradients/step_1.safetensors", {"w"});
    record(scratch / "state/step_1.safetensors", {"m"});
    write_file(scratch / "run.json", "{}");
    const Recording found = find_tensors({scratch.folder()});
    REQUIRE(found.tensors.size() == 1);
    CHECK(found.tensors[0].entry.name == "w");
    CHECK(found.warnings.empty());

    const std::string configuration = (scratch / "run.json").string();
    write_file(configuration, R"({"schema_version": 99})");
    CHECK(find_tensors({scratch.folder()}).warnings ==
          std::vector{configuration + ": schema version 99 is newer than this program's (2): what it does not know is "
                                      "left out"});
    write_file(configuration, "[]"); // the tensors do not need it
    const Recording broken = find_tensors({scratch.folder()});
    CHECK(broken.tensors.size() == 1);
    REQUIRE(broken.warnings.size() == 1);
    CHECK(broken.warnings[0].starts_with(configuration + ": "));
}

TEST_CASE("so of run folders below a folder, and whatever lies in the place of the gradients") {
    const Scratch scratch;
    for (const char* run : {"a", "deep/er/b"}) {
        record(scratch / run / "gradients/step_1.safetensors", {"w"}, {}, *run);
        record(scratch / run / "state/step_1.safetensors", {"m"}, {}, *run);
        record(scratch / run / "checkpoints/step_1.safetensors", {"w"}, {}, 'c');
        write_file(scratch / run / "run.json", "{}");
    }
    record(scratch / "deep/x_1.safetensors", {"x"});
    const Recording found = find_tensors({scratch.folder()});
    CHECK(found.errors.empty());
    CHECK(found.tensors.size() == 3);
    for (const RecordedTensor& t : found.tensors)
        CHECK((t.entry.name == "x" || t.file.parent_path().filename() == "gradients"));

    fs::remove_all(scratch / "a/gradients");
    CHECK(find_tensors({scratch.folder()}).tensors.size() == 2);
    CHECK(find_tensors({scratch / "a"}).errors.size() == 1); // not a tensor file
    fs::create_symlink("/nowhere", scratch / "a/gradients");
    for (const fs::path& path : {scratch.folder(), scratch / "a"}) {
        const Recording broken = find_tensors({path});
        CHECK(broken.tensors.size() == (path == scratch.folder() ? 2 : 0));
        REQUIRE(broken.errors.size() == 1);
        CHECK(broken.errors[0].find("a/gradients: is no folder") != std::string::npos);
    }
}

TEST_CASE("the same name, step and bytes are counted once") {
    const Scratch scratch;
    const fs::path a = record(scratch / "a/step_1.safetensors", {"w", "b"}),
                   same = record(scratch / "b/step_1.safetensors", {"w", "b"});
    const fs::path other_bytes = record(scratch / "c/step_1.safetensors", {"w"}, {}, 'x'),
                   other_step = record(scratch / "d/step_2.safetensors", {"w"});
    const Recording found = find_tensors({scratch.folder()});
    CHECK(found.tensors.size() == 4);
    REQUIRE(found.warnings.size() == 1);
    CHECK(found.warnings[0] == same.string() + ": 2 tensors are the same as in " + a.string() + "; counted once");
    CHECK(find_tensors({a, a}).tensors.size() == 2);
    CHECK(find_tensors({a, other_bytes, other_step}).tensors.size() == 4);
}

TEST_CASE("of repeated tensors the file that states the loss scale is kept; under two stated scales both are") {
    const Scratch scratch;
    const fs::path silent = record(scratch / "a_7.safetensors", {"w"});
    const fs::path scaled = record(scratch / "b_7.safetensors", {"w"}, {{"loss_scale", "1024"}});
    const fs::path other = record(scratch / "c_7.safetensors", {"w"}, {{"loss_scale", "512"}});
    const Recording two = find_tensors({silent, scaled});
    REQUIRE(two.tensors.size() == 1);
    CHECK(two.tensors[0].recorded_scale == 1024);
    CHECK(two.tensors[0].file == scaled);
    CHECK(two.warnings.size() == 1);
    CHECK(find_tensors({silent, scaled, other}).tensors.size() == 2);
    const Recording told = find_tensors({silent, scaled, other}, {}, {.recorded_scale = 256});
    REQUIRE(told.tensors.size() == 1);
    CHECK(told.tensors[0].recorded_scale == 256);
    CHECK(told.tensors[0].scale_stated);
    const FindOptions weights{.unstated = TensorKind::weight, .recorded_scale = 256};
    CHECK(find_tensors({record(scratch / "p.safetensors", {"p"})}, {}, weights).tensors.at(0).recorded_scale == 1);
}

TEST_CASE("raw files take part where a dtype is given") {
    const Scratch scratch;
    write_file(scratch / "w_step_5.bin", "12345678");
    const OpenOptions floats{.as = {}, .dtype = DType::f32, .shape = {}};
    CHECK(find_tensors({scratch / "w_step_5.bin"}).errors.size() == 1);
    CHECK(find_tensors({scratch / "w_step_5.bin"}, floats).tensors.at(0).entry.count == 2);
    CHECK(find_tensors({scratch.folder()}).errors.size() == 1);
    CHECK(find_tensors({scratch.folder()}, floats).tensors.at(0).step == 5);
}

TEST_CASE("the real recordings" * doctest::test_suite("real_recordings")) {
    const fs::path folder = real_recordings();
    if (folder.empty()) return;
    const Recording found = find_tensors({folder});
    CHECK(found.errors.empty());
    std::size_t elements = 0, activations = 0;
    for (const RecordedTensor& tensor : found.tensors) {
        elements += tensor.entry.count;
        activations += tensor.kind == TensorKind::activation_gradient ? 1u : 0u;
        CHECK(tensor.step.has_value());
        CHECK(tensor.file.extension() != ".pt"); // the same tensors came first as .npz or .safetensors
    }
    CHECK(found.warnings.size() == 6); // three steps, each also as .pt and as .npz
    CHECK(activations > 0);
    CHECK(elements > 2'000'000);
    fmt::print("{} tensors, {} elements, {} of activations\n", found.tensors.size(), elements, activations);
}
