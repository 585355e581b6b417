// Checkpoints of many files: shards joined to tensors, those that PyTorch wrote, and those that must be refused.
#include "checkpoint_files.h"

#include <ampscope/sim/io/recording.h>
#include <ampscope/sim/io/write.h>

#include <bit>
#include <cstring>
#include <fmt/format.h>

#include <sys/resource.h>

using namespace amp;
using namespace amp::test;

namespace {

fs::path checkpoint(const std::string& name) { return fs::path(AMPSCOPE_TEST_DATA) / "checkpoints" / name; }

template <class T>
std::vector<T> numbers(const TensorFile& file, const std::string& name, std::size_t chunk = 24000) {
    for (std::size_t i = 0; i < file.tensors().size(); ++i) {
        if (file.tensors()[i].name != name) continue;
        const std::string bytes = tensor_bytes(file, i, chunk);
        std::vector<T> values(bytes.size() / sizeof(T));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    }
    return {};
}

template <class T>
std::vector<T> counting(std::size_t count) {
    std::vector<T> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<T>(i));
    return values;
}

fs::path write_floats(const fs::path& path, const std::vector<std::pair<std::string, std::vector<float>>>& tensors,
                      const std::map<std::string, std::string>& metadata = {},
                      const std::vector<std::uint64_t>& shape = {}) {
    std::vector<TensorEntry> entries;
    for (const auto& [name, values] : tensors)
        entries.push_back({.name = name, .shape = shape.empty() ? std::vector<std::uint64_t>{values.size()} : shape});
    TensorWriter writer = create_tensor_file(path, entries, metadata);
    for (const auto& [name, values] : tensors) writer.append(std::as_bytes(std::span(values)));
    writer.commit();
    return path;
}

/// A folder whose .metadata has one tensor, in one .distcp file of `copies` archives of two rows of three numbers each.
class Handmade {
  public:
    explicit Handmade(int copies = 2, const std::string& storage = "FloatStorage") {
        const std::string part = read_file(
            pt_of(scratch_ / "part.pt", pickled(tensor(0, {2, 3}, {3, 1}, storage, storage[0] == 'F' ? 6 : 3))));
        fs::remove(scratch_ / "part.pt");
        length_ = static_cast<std::int64_t>(part.size());
        std::string all;
        for (int i = 0; i < copies; ++i) all += part;
        write_file(scratch_ / "__0_0.distcp", all);
    }
    /// The shard of rows [first, first + 2), which the n-th archive holds.
    [[nodiscard]] HandmadeShard rows(std::int64_t first, std::int64_t n) const {
        return {.offsets = {first, 0}, .sizes = {2, 3}, .begin = n * length_, .length = length_};
    }
    const TensorFile& open(const Sizes& shape, const std::vector<HandmadeShard>& shards,
                           const std::string& dtype = "float32") {
        write_file(scratch_ / ".metadata",
                   metadata_pickle(text("w") + metadata_of(shape, shards, dtype), places_of("w", shards)));
        file_ = open_tensor_file(scratch_ / ".metadata");
        return *file_;
    }
    /// What is said of the tensor, when it is listed or when it is read.
    std::string error(const Sizes& shape, const std::vector<HandmadeShard>& shards,
                      const std::string& dtype = "float32") {
        try {
            const TensorFile& file = open(shape, shards, dtype);
            if (!file.problems().empty()) return file.problems().front().what();
            tensor_bytes(file, 0);
        } catch (const FileError& error) {
            return error.what();
        }
        return {};
    }
    [[nodiscard]] fs::path folder() const { return scratch_.folder(); }
    [[nodiscard]] std::int64_t length() const { return length_; }

  private:
    Scratch scratch_;
    std::int64_t length_ = 0;
    std::unique_ptr<TensorFile> file_;
};

bool says(const std::string& error, const std::string& part) {
    const bool found = error.find(part) != std::string::npos && error.find('\n') == std::string::npos;
    if (!found) MESSAGE(error);
    return found;
}

} // namespace

TEST_CASE("checkpoints that PyTorch wrote from four processes are the tensors they were cut from") {
    for (const std::string name : {"distributed", "safetensors"}) {
        CAPTURE(name);
        const auto file = open_tensor_file(checkpoint(name));
        CHECK(file->problems().empty());
        const std::string model = name == "distributed" ? "model." : "";
        for (const std::size_t chunk : {24u, 48u, 24000u}) {
            CHECK(numbers<float>(*file, model + "both", chunk) == counting<float>(15));
            CHECK(numbers<double>(*file, model + "columns", chunk) == counting<double>(14));
            std::vector<std::uint16_t> rows;
            for (int i = 0; i < 10; ++i)
                rows.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(i)) >> 16));
            CHECK(numbers<std::uint16_t>(*file, model + "rows", chunk) == rows);
        }
        for (const TensorEntry& t : file->tensors())
            if (t.name == model + "both") CHECK(t.shape == std::vector<std::uint64_t>{3, 5});
    }
    const auto file = open_tensor_file(checkpoint("distributed") / ".metadata");
    CHECK(numbers<float>(*file, "optim.state.both.exp_avg_sq")[3] == 0x1p-12f);
    CHECK(numbers<float>(*file, "optim.state.both.step") == std::vector<float>{4});
    const auto values = file->values();
    CHECK(std::get<double>(values.at("optim.param_groups.0.lr")) == 0.25);
    CHECK(std::get<double>(values.at("optim.param_groups.0.betas.1")) == 0.75);
    CHECK(std::get<std::string>(values.at("optim.param_groups.0.params.0")) == "both");
}

TEST_CASE("any part of a joined tensor can be read by itself") {
    const auto file = open_tensor_file(checkpoint("safetensors"));
    for (std::size_t t = 0; t < file->tensors().size(); ++t) {
        REQUIRE(file->random_access(t));
        const std::string all = tensor_bytes(*file, t);
        const auto item = static_cast<std::size_t>(info(file->tensors()[t].dtype).bits / 8);
        for (std::size_t begin = 0; begin < all.size(); begin += item)
            for (std::size_t end = begin; end <= all.size(); end += item) {
                std::string part(end - begin, '?');
                file->read_at(t, begin, std::as_writable_bytes(std::span(part)));
                REQUIRE(part == all.substr(begin, end - begin));
            }
    }
}

TEST_CASE("files, steps and kinds of a checkpoint in a folder") {
    const Scratch scratch;
    fs::copy(checkpoint("distributed"), scratch / "step-7");
    const Recording found = find_tensors({scratch.folder()});
    CHECK(found.errors.empty());
    REQUIRE(found.tensors.size() == 6);
    for (const RecordedTensor& t : found.tensors) {
        CHECK(t.step == 7);
        CHECK(t.file == scratch / "step-7" / ".metadata");
        CHECK(t.kind == (t.entry.name.starts_with("optim.") ? TensorKind::state : TensorKind::weight));
    }
    CHECK(find_tensors({checkpoint("safetensors")}).tensors.size() == 3);
}

TEST_CASE("shards that an index names are read once, through it") {
    const Scratch scratch;
    write_floats(scratch / "model-00001-of-00002.safetensors", {{"a", {1, 2}}, {"extra", {9}}});
    write_floats(scratch / "model-00002-of-00002.safetensors", {{"b", {3}}});
    write_floats(scratch / "other.safetensors", {{"c", {4}}});
    const fs::path index = scratch / "model.safetensors.index.json";
    const auto map = [&](const std::string& items) {
        write_file(index, R"({"metadata":{},"weight_map":{)" + items + "}}");
    };
    const std::string a = R"("a":"model-00001-of-00002.safetensors")";
    map(a + R"(,"b":"model-00002-of-00002.safetensors")");
    const Recording found = find_tensors({scratch.folder()});
    REQUIRE(found.tensors.size() == 3);
    CHECK(found.tensors[0].entry.name == "a");
    CHECK(found.tensors[0].file == index);
    CHECK(found.tensors[1].entry.name == "b");
    CHECK(found.tensors[2].file == scratch / "other.safetensors");
    REQUIRE(found.warnings.size() == 1);
    CHECK(says(found.warnings[0], "'extra' in model-00001-of-00002.safetensors is not as the index has it; skipped"));
    CHECK(find_tensors({index, scratch / "model-00001-of-00002.safetensors"}).tensors.size() == 2);

    const auto refused = [&](const std::string& items, std::size_t tensors, const std::string& what) {
        map(items);
        const Recording left = find_tensors({index});
        REQUIRE(left.errors.size() == 1);
        CHECK(says(left.errors[0], what));
        CHECK(left.tensors.size() == tensors);
    };
    refused(a + R"(,"b":"absent.safetensors")", 1,
            "weight_map: names absent.safetensors, which is not there; 1 tensor");
    refused(a + R"(,"z":"model-00001-of-00002.safetensors")", 1, "weight_map: 'z' is not in model-00001");
    refused(a + R"(,"b":".")", 1, "weight_map: names ., a folder; 1 tensor is missing");
    refused(a + R"(,"b":"../b.safetensors")", 0, "weight_map: 'b' is not in a file of this folder");
    refused(a + R"(,"b":"/etc/passwd")", 0, "weight_map: 'b' is not in a file of this folder");
    refused(a + R"(,"b":3)", 0, "weight_map: 'b' is not in a file of this folder");
    write_file(scratch / "torn.safetensors", "short");
    refused(a + R"(,"b":"torn.safetensors")", 1, "torn.safetensors: too short");
    write_file(index, "{}");
    CHECK(says(find_tensors({index}).errors.at(0), "has no weight_map"));
    write_file(index, "[");
    CHECK(find_tensors({index}).errors.size() == 1);
}

TEST_CASE("a tensor without elements, each of which would be less than a byte, in two indices of one file") {
    const Scratch scratch;
    const std::string header = R"({"e":{"dtype":"F4","shape":[0],"data_offsets":[0,0]}})";
    write_file(scratch / "e.safetensors", little_endian(header.size(), 8) + header);
    for (const std::string index : {"a", "b"})
        write_file(scratch / (index + ".safetensors.index.json"), R"({"weight_map":{"e":"e.safetensors"}})");
    const Recording found = find_tensors({scratch.folder()});
    CHECK(found.errors.empty());
    REQUIRE(found.tensors.size() == 1);
    CHECK(tensor_bytes(*open_tensor_file(found.tensors[0].file), 0).empty());
}

TEST_CASE("shards in safetensors must be the whole of a tensor") {
    const Scratch scratch;
    const auto shard = [&](int rank, const std::string& offsets, const std::vector<std::uint64_t>& shape,
                           const std::string& key = "w") {
        const std::size_t count = shape.empty() ? 1 : shape[0] * (shape.size() > 1 ? shape[1] : 1);
        write_floats(scratch / fmt::format("shard-{:05}-model-00001-of-00001.safetensors", rank),
                     {{"w", std::vector<float>(count, static_cast<float>(rank))}},
                     {{"DCP_SHARDING_INFO", R"({")" + key + R"(":{"saved_offsets":)" + offsets + "}}"}}, shape);
    };
    const auto error = [&]() -> std::string {
        const Recording found = find_tensors({scratch.folder()});
        return found.errors.empty() ? "" : found.errors.front();
    };
    shard(1, "[0,0]", {2, 2});
    shard(2, "[0,2]", {2, 1});
    CHECK(error().empty());
    const auto file = open_tensor_file(scratch.folder());
    CHECK(numbers<float>(*file, "w") == std::vector<float>{1, 1, 2, 1, 1, 2});
    shard(2, "[0,3]", {2, 1});
    CHECK(says(error(), "tensor 'w': its shards hold 6 of its 8 elements"));
    shard(2, "[0,1]", {2, 2});
    CHECK(says(error(), "tensor 'w': the shard at [0, 0] of shape [2, 2] overlaps the shard at [0, 1]"));
    shard(2, "[0,0]", {2, 2});
    CHECK(says(error(), "the shard at [0, 0] of shape [2, 2] is there twice"));
    shard(2, "[0]", {2, 1});
    CHECK(says(error(), "differs in dtype or dimensions"));
    shard(2, "[0,9223372036854775807]", {2, 1});
    CHECK(says(error(), "begins beyond any tensor"));
    shard(2, "[0,-1]", {2, 1});
    CHECK_FALSE(error().empty());
    shard(2, "[0,2]", {2, 1}, "v");
    CHECK(says(error(), "metadata: DCP_SHARDING_INFO: tensor 'w'"));
    shard(2, "7", {2, 1});
    CHECK(says(error(), "metadata: DCP_SHARDING_INFO: tensor 'w'"));
}

TEST_CASE("shards of a distributed checkpoint must be the whole of a tensor") {
    Handmade made;
    CHECK(made.error({4, 3}, {made.rows(0, 0), made.rows(2, 1)}).empty());
    const TensorFile& file = made.open({4, 3}, {made.rows(2, 1), made.rows(0, 0)});
    for (const std::size_t chunk : {24u, 24000u})
        CHECK(tensor_bytes(file, 0, chunk) == "abcdefghijklmnopqrstuvwxabcdefghijklmnopqrstuvwx");
    CHECK(says(made.error({5, 3}, {made.rows(0, 0), made.rows(2, 1)}), "tensor 'w': its shards hold 12 of its 15"));
    CHECK(says(made.error({3, 3}, {made.rows(0, 0), made.rows(2, 1)}), "reaches beyond the tensor's shape [3, 3]"));
    CHECK(says(made.error({3, 3}, {made.rows(0, 0), made.rows(1, 1)}), "overlaps the shard at [1, 0]"));
    CHECK(says(made.error({2, 3}, {made.rows(0, 0), made.rows(0, 1)}), "is there twice"));
    CHECK(says(made.error({12}, {made.rows(0, 0), made.rows(2, 1)}), "has not the dimensions"));
    CHECK(says(made.error({std::int64_t{1} << 62, std::int64_t{1} << 62}, {made.rows(0, 0)}), "more elements"));
    constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
    CHECK(says(made.error({4, 3}, {made.rows(0, 0), made.rows(huge, 1)}), "reaches beyond the tensor's shape"));
    CHECK(says(made.error({4, 3}, {made.rows(-1, 0), made.rows(2, 1)}), "a chunk has no offsets or sizes"));
    CHECK(says(made.error({6, 2}, {made.rows(0, 0)}), "reaches beyond the tensor's shape"));
    HandmadeShard other{.offsets = {0, 0}, .sizes = {3, 2}, .begin = 0, .length = made.length()};
    CHECK(says(made.error({3, 2}, {other}), "the shard is F32 of shape [2, 3] where"));
    CHECK(says(made.error({4, 3}, {made.rows(0, 0), made.rows(2, 1)}, "int32"), "says I32 of shape [2, 3]"));
    CHECK(says(made.error({4, 3}, {made.rows(0, 0), made.rows(2, 1)}, "complex128"), "names no tensor"));
}

TEST_CASE("places that .metadata has and the files have not") {
    Handmade made;
    const auto shard = [&](const std::string& file, std::int64_t begin, std::int64_t length) {
        return HandmadeShard{{2, 0}, {2, 3}, file, begin, length};
    };
    const auto error = [&](const HandmadeShard& second) { return made.error({4, 3}, {made.rows(0, 0), second}); };
    const std::int64_t length = made.length();
    CHECK(says(error(shard("__1_0.distcp", 0, length)), "names __1_0.distcp, which is not there; 1 tensor is missing"));
    CHECK(says(error(shard("__0_0.distcp", length, length + 1)), "the file ends here; it is truncated"));
    CHECK(says(error(shard("__0_0.distcp", std::numeric_limits<std::int64_t>::max(), length)), "the file ends here"));
    CHECK(says(error(shard("../__0_0.distcp", 0, length)), "is not at a place of a file of this folder"));
    CHECK(says(error(shard("/etc/passwd", 0, 10)), "is not at a place of a file of this folder"));
    CHECK(says(error(shard("__0_0.distcp", -5, length)), "is not at a place of a file of this folder"));
    CHECK(says(error(shard("__0_0.distcp", 1, length)), "byte 1: cannot be read as a zip archive"));
    CHECK(says(error(shard("__0_0.distcp", length, length - 1)), "cannot be read as a zip archive"));
    CHECK(says(error(shard("__0_0.distcp", length, 0)), "cannot be read as a zip archive"));
    HandmadeShard compressed = made.rows(2, 1);
    compressed.extension = "stream.zstd";
    CHECK(says(error(compressed), "is stored through the extension 'stream.zstd', which is not read"));
    fs::create_directory(made.folder() / "__1_0.distcp");
    CHECK_FALSE(error(shard("__1_0.distcp", 0, length)).empty());
}

TEST_CASE("more columns of a tensor than files may be open: the message says what to do") {
    constexpr int columns = 100;
    Handmade made(columns);
    std::vector<HandmadeShard> shards;
    for (int i = 0; i < columns; ++i)
        shards.push_back({.offsets = {0, 3 * i}, .sizes = {2, 3}, .begin = i * made.length(), .length = made.length()});
    const TensorFile& file = made.open({2, std::int64_t{3} * columns}, shards);
    rlimit usual{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &usual) == 0);
    rlimit few = usual;
    few.rlim_cur = 64;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    std::string error;
    try {
        tensor_bytes(file, 0, 24); // less than a row at a time, so that all shards are needed for the first row
    } catch (const FileError& refused) {
        error = refused.what();
    }
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &usual) == 0);
    CHECK(says(error, "raise the limit with ulimit -n"));
    CHECK(tensor_bytes(file, 0, 24).size() == 24 * columns);
}

TEST_CASE("a .metadata that is no checkpoint's, or wants code to run") {
    const Scratch scratch;
    const auto error = [&](const std::string& bytes) -> std::string {
        write_file(scratch / ".metadata", bytes);
        const Recording found = find_tensors({scratch / ".metadata"});
        return found.errors.empty() ? "" : found.errors.front();
    };
    const std::string call = "cos\nsystem\n(" + text("touch " + (scratch / "owned").string()) + "tR";
    CHECK(
        says(error(pickled(call)), "not the metadata of a distributed checkpoint, but an object of os.system, whose"));
    CHECK(says(error(metadata_pickle(text("w") + call, "")), "'w': is an object of os.system, whose code is not run"));
    CHECK(says(error(metadata_pickle("", call + call)), "storage_data: a key is an object of os.system"));
    CHECK(says(error(metadata_pickle("", "")), "names no tensor"));
    const std::string place = places_of("w", {{.offsets = {0, 2}, .sizes = {1, 1}}});
    CHECK(says(error(metadata_pickle("", place + place)), "the shard of 'w' at [0, 2] is there twice"));
    CHECK(says(error(pickled("}")), "is not the metadata of a distributed checkpoint, but no object"));
    CHECK(says(error(pickled(object_of("Metadata", "}"))), "lacks state_dict_metadata"));
    CHECK(says(error(""), "the pickle is truncated"));
    CHECK(says(error("\x80\x02" + std::string(9'000'000, 'N')), "more than 8000000 values"));
    CHECK(!fs::exists(scratch / "owned"));
}

TEST_CASE("damage of a checkpoint is an error or changes nothing but numbers") {
    const Scratch scratch;
    fs::copy(checkpoint("distributed"), scratch / "c");
    for (const std::string name : {".metadata", "__0_0.distcp"}) {
        const std::string whole = read_file(scratch / "c" / name);
        for (std::size_t at = 0; at < whole.size(); at += name[0] == '.' ? 7 : 101) {
            for (const bool cut : {false, true}) {
                std::string damaged = cut ? whole.substr(0, at) : whole;
                if (!cut) damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
                write_file(scratch / "c" / name, damaged);
                const Recording found = find_tensors({scratch / "c"});
                for (const RecordedTensor& t : found.tensors) {
                    const auto file = open_tensor_file(t.file);
                    std::uint64_t bytes = t.entry.bytes;
                    try {
                        bytes = tensor_bytes(*file, t.index).size();
                    } catch (const FileError& error) {
                        CHECK(says(error.what(), ".distcp: "));
                    }
                    CHECK(bytes == t.entry.bytes);
                }
                if (cut) CHECK_FALSE(found.errors.empty());
            }
        }
        write_file(scratch / "c" / name, whole);
    }
}
