// Written files: what the readers get back, the bytes that the formats' documents ask for, and nothing left on failure.
#include "io_files.h"

#include <ampscope/sim/io/write.h>

#include <doctest/doctest.h>

using namespace amp;
using namespace amp::test;

namespace {

std::string counting_bytes(std::uint64_t n) {
    std::string bytes;
    for (std::uint64_t i = 0; i < n; ++i) bytes.push_back(static_cast<char>(i * 7 + 1));
    return bytes;
}

void put(TensorWriter& writer, std::string_view bytes) { writer.append(std::as_bytes(std::span(bytes))); }

std::size_t files_in(const Scratch& scratch) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(scratch.folder()), fs::directory_iterator()));
}

} // namespace

TEST_CASE("a safetensors file of every dtype, an empty tensor and a scalar is read back as written") {
    const Scratch scratch;
    std::vector<TensorEntry> entries{{.name = "scalar", .dtype = DType::f32, .shape = {}},
                                     {.name = "empty", .dtype = DType::f16, .shape = {3, 0, 2}}};
    for (const DTypeInfo& row : dtypes)
        entries.push_back({.name = "a." + std::string(row.name), .dtype = row.dtype, .shape = {2, 4}});
    const std::map<std::string, std::string> metadata{{"step", "7"}, {"quote \" and \\", "\n\xc3\xa9"}};
    std::uint64_t total = 4;
    for (const DTypeInfo& row : dtypes) total += static_cast<std::uint64_t>(row.bits);
    const std::string data = counting_bytes(total);
    {
        TensorWriter writer = create_tensor_file(scratch / "x.safetensors", entries, metadata);
        for (std::size_t at = 0; at < data.size(); at += 5) put(writer, std::string_view(data).substr(at, 5));
        writer.commit();
    }
    const auto file = open_tensor_file(scratch / "x.safetensors");
    CHECK(file->metadata() == metadata);
    REQUIRE(file->tensors().size() == entries.size());
    std::map<std::string, std::string> contents;
    for (std::size_t i = 0; i < entries.size(); ++i) contents[file->tensors()[i].name] = tensor_bytes(*file, i);
    std::size_t at = 0;
    for (const TensorEntry& entry : entries) {
        const std::size_t size = entry.name == "scalar"  ? 4
                                 : entry.name == "empty" ? 0
                                                         : static_cast<std::size_t>(info(entry.dtype).bits);
        CHECK_MESSAGE(contents[entry.name] == data.substr(at, size), entry.name);
        at += size;
    }
    CHECK(files_in(scratch) == 1);
}

TEST_CASE("the bytes of a small safetensors file are those of the format's document") {
    const Scratch scratch;
    TensorWriter writer =
        create_tensor_file(scratch / "x.safetensors", {{.name = "w", .dtype = DType::bf16, .shape = {2}}});
    put(writer, "abcd");
    writer.commit();
    const std::string header = R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})";
    REQUIRE(header.size() == 55);
    CHECK(read_file(scratch / "x.safetensors") == little_endian(56, 8) + header + " abcd");
}

TEST_CASE("the bytes of a small npy file are those of NumPy") {
    const Scratch scratch;
    TensorWriter writer = create_tensor_file(scratch / "x.npy", {{.name = "w", .dtype = DType::f16, .shape = {2, 3}}});
    put(writer, "abcdefghijkl");
    writer.commit();
    std::string header =
        std::string("\x93NUMPY\x01\x00\x76\x00", 10) + "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }";
    header.resize(127, ' ');
    CHECK(read_file(scratch / "x.npy") == header + "\nabcdefghijkl");
}

TEST_CASE("npy files of every dtype that NumPy can hold are read back") {
    for (const DTypeInfo& row : dtypes) {
        const Scratch scratch;
        const fs::path path = scratch / "x.npy";
        if (row.bits < 8) {
            CHECK_THROWS_AS(create_tensor_file(path, {{.dtype = row.dtype, .shape = {4}}}), FileError);
            continue;
        }
        for (const std::vector<std::uint64_t>& shape : {std::vector<std::uint64_t>{}, {5}, {0, 2}, {2, 3, 4}}) {
            TensorEntry entry{.name = "x", .dtype = row.dtype, .shape = shape};
            finish_entry(entry, path);
            const std::string data = counting_bytes(entry.bytes);
            TensorWriter writer = create_tensor_file(path, {entry});
            put(writer, data);
            writer.commit();
            const auto file = open_tensor_file(
                path, {.as = row.numpy.empty() ? std::optional(row.dtype) : std::nullopt, .dtype = {}, .shape = {}});
            CHECK(file->tensors()[0].dtype == row.dtype);
            CHECK(file->tensors()[0].shape == shape);
            CHECK(tensor_bytes(*file, 0) == data);
        }
    }
}

TEST_CASE("raw files hold the elements alone") {
    const Scratch scratch;
    TensorWriter writer = create_tensor_file(scratch / "x.bin", {{.name = "w", .dtype = DType::f4, .shape = {2, 4}}});
    put(writer, "abcd");
    writer.commit();
    CHECK(read_file(scratch / "x.bin") == "abcd");
}

TEST_CASE("a file of no known extension is not written, raw or otherwise") {
    const Scratch scratch;
    for (const char* name : {"x.safetensor", "x.NPY", "x.dat", "x"}) {
        CHECK_THROWS_WITH_AS(
            create_tensor_file(scratch / name, {{.name = "w", .dtype = DType::f32, .shape = {2}}}),
            doctest::Contains(
                "of a tensor file; known: .safetensors, .npy, or .bin or .raw for the elements of one tensor alone"),
            FileError);
        CHECK(files_in(scratch) == 0);
    }
}

TEST_CASE("of a device it is said that it is one, not that it lacks an extension") {
    CHECK_THROWS_WITH_AS(create_tensor_file("/dev/null", {{.name = "w", .dtype = DType::f32, .shape = {2}}}),
                         "/dev/null: cannot be written: a pipe or a device cannot be replaced by a file", FileError);
}

TEST_CASE("an unfinished file leaves nothing, and what was there stays") {
    const Scratch scratch;
    write_file(scratch / "x.npy", "precious");
    {
        TensorWriter writer = create_tensor_file(scratch / "x.npy", {{.name = "w", .dtype = DType::u8, .shape = {4}}});
        put(writer, "ab");
        CHECK_THROWS_AS(writer.commit(), std::logic_error);
        CHECK_THROWS_AS(put(writer, "abc"), std::logic_error);
        CHECK(read_file(scratch / "x.npy") == "precious");
        CHECK(files_in(scratch) == 2);
    }
    CHECK(read_file(scratch / "x.npy") == "precious");
    CHECK(files_in(scratch) == 1);
    write_text_file(scratch / "x.npy", "new");
    CHECK(read_file(scratch / "x.npy") == "new");
    CHECK(files_in(scratch) == 1);
}

TEST_CASE("a link stays a link: the file behind it is written") {
    const Scratch scratch;
    const fs::path file = write_file(scratch / "real.txt", "old"), link = scratch / "link.txt";
    fs::create_symlink(file, link);
    write_text_file(link, "new");
    CHECK(fs::is_symlink(link));
    CHECK(fs::file_size(file) == 3);
    std::string text;
    std::ifstream(file) >> text;
    CHECK(text == "new");
    fs::create_symlink("later.txt", scratch / "ahead.txt");
    fs::create_symlink("ahead.txt", scratch / "far.txt");
    write_text_file(scratch / "far.txt", "new");
    CHECK(fs::is_symlink(scratch / "ahead.txt"));
    CHECK(fs::file_size(scratch / "later.txt") == 3);
    fs::create_symlink("circle.txt", scratch / "circle.txt");
    CHECK_THROWS_WITH_AS(write_text_file(scratch / "circle.txt", "new"), doctest::Contains("links in a circle"),
                         FileError);
}

TEST_CASE("who may read and write a file stays as it was") {
    const Scratch scratch;
    const fs::path file = write_file(scratch / "private.txt", "old");
    constexpr fs::perms mine = fs::perms::owner_read | fs::perms::owner_write;
    fs::permissions(file, mine);
    write_text_file(file, "new");
    CHECK(fs::status(file).permissions() == mine);
    fs::permissions(file, fs::perms::owner_read);
    if (::geteuid() != 0) CHECK_THROWS_WITH_AS(write_text_file(file, "x"), doctest::Contains("Permission"), FileError);
}

TEST_CASE("what a format cannot hold is refused before anything is written") {
    const Scratch scratch;
    const TensorEntry a{.name = "a", .dtype = DType::f32, .shape = {1}},
        b{.name = "b", .dtype = DType::f32, .shape = {1}};
    const auto refused = [&](const char* name, const std::vector<TensorEntry>& entries) {
        CHECK_THROWS_AS(create_tensor_file(scratch / name, entries), FileError);
        CHECK(files_in(scratch) == 0);
    };
    refused("x.npy", {a, b});
    refused("x.npy", {});
    refused("x.bin", {a, b});
    refused("x.safetensors", {a, a});
    refused("x.safetensors", {{.name = "__metadata__", .dtype = DType::f32, .shape = {1}}});
    refused("x.safetensors", {{.name = "\xff", .dtype = DType::f32, .shape = {1}}});
    refused("x.safetensors", {{.name = "odd", .dtype = DType::f4, .shape = {3}}});
    refused("x.npz", {a});
    refused("x.pt", {a});
    refused("missing/x.npy", {a});
}

TEST_CASE("in a sealed file every flipped bit is found, and every byte that is missing or too many") {
    const Scratch scratch;
    const fs::path path = scratch / "x.safetensors";
    {
        TensorWriter writer =
            create_sealed_file(path, {{.name = "a", .dtype = DType::f32, .shape = {5}}}, {{"state", "{\"step\":3}"}});
        put(writer, counting_bytes(7));
        put(writer, counting_bytes(13));
        writer.commit();
    }
    check_seal(path);
    CHECK(tensor_bytes(*open_tensor_file(path), 0) == counting_bytes(7) + counting_bytes(13));
    CHECK(open_tensor_file(path)->metadata().at("state") == "{\"step\":3}");
    const std::string good = read_file(path);
    std::string bad = good;
    std::size_t found = 0;
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
        const auto flip = [&] { bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8); };
        flip();
        write_file(path, bad);
        try {
            check_seal(path);
        } catch (const FileError&) {
            ++found;
        }
        flip();
    }
    CHECK(found == 8 * good.size());
    for (const std::string& other : {std::string(), good.substr(0, 20), good.substr(0, good.size() - 1), good + '\0'}) {
        write_file(path, other);
        CHECK_THROWS_AS(check_seal(path), FileError);
    }
    const auto announce = [&] { create_sealed_file(path, {}, {{"a", "before it"}}); };
    CHECK_THROWS_AS(announce(), std::logic_error);
}

TEST_CASE("the names of files that were being written") {
    CHECK(target_of_partial("a/step_000001.safetensors.123-4.partial") == "a/step_000001.safetensors");
    for (const char* other : {"a.partial", "a.1.partial", "a.1-x.partial", "a.1-2.partial~", ".1-2.partial", "a.1-2"})
        CHECK_MESSAGE(target_of_partial(other).empty(), other);
}
